"""`idlewatt token`: the tokens by which nodes may write their own rows."""

from __future__ import annotations

import argparse

from idlewatt.cli import output
from idlewatt.config import Settings
from idlewatt.errors import UsageError
from warehouse.tokens import Tokens, tokens_path


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add flags."""
    parser.add_argument("action", choices=("create", "list"), help="what to do")
    parser.add_argument("node", metavar="NODE", nargs="?", help="node id, as the agent sends it")
    parser.add_argument("--replace", action="store_true", help="make a new one; the old one dies")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--data-dir", metavar="DIR", help="where the warehouse lives")
    parser.set_defaults(flag_settings={"data_dir": "server.data_dir"})
    parser.epilog = (
        "The tokens lie in <data_dir>/tokens.toml; a running server sees a new one at once.\n\n"
        "examples:\n"
        "  idlewatt token create node-1 > /etc/idlewatt/token\n"
        "  idlewatt token create node-1 --replace\n"
        "  idlewatt token list"
    )


def run(args: argparse.Namespace, settings: Settings) -> int:
    """Create or list."""
    tokens = Tokens(tokens_path(settings))
    if args.action == "create":
        if not args.node:
            raise UsageError("`idlewatt token create` needs the id of a node")
        token = tokens.create(args.node, replace=args.replace)
        if args.json:
            output.emit_json({"node_id": args.node, "token": token})
        else:
            output.say(token)
        return 0
    # The secret itself is never listed; its start tells which one it is.
    rows = [{"node_id": node, "token": f"{token[:7]}…"} for node, token in tokens.nodes().items()]
    if args.json:
        output.emit_json(rows)
    elif rows:
        output.say(output.table(["node_id", "token"], [list(row.values()) for row in rows]))
    else:
        output.say(f"no node has a token yet in {tokens.path}")
    return 0
