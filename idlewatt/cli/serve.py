"""`idlewatt serve`: the server in one process; composes warehouse, analysis and web app."""

from __future__ import annotations

import argparse

from idlewatt.config import Settings


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add flags."""
    parser.add_argument("--port", type=int, help="port (setting server.port)")
    parser.add_argument("--data-dir", help="where the warehouse lives (setting server.data_dir)")
    parser.epilog = (
        "examples:\n"
        "  idlewatt serve\n"
        "  idlewatt serve --data-dir /var/lib/idlewatt --port 8050\n"
        "  idlewatt serve --config /etc/idlewatt.toml -v"
    )
    parser.set_defaults(flag_settings={"port": "server.port", "data_dir": "server.data_dir"})


def run(args: argparse.Namespace, settings: Settings) -> int:
    """Serve until SIGTERM or SIGINT."""
    raise SystemExit(2)
