"""`idlewatt sql`: one SELECT or one named query, asked of the running server.

Needs the base install only: the standard library speaks HTTP, the server makes CSV and JSON.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any, Final
from urllib.error import HTTPError, URLError
from urllib.request import ProxyHandler, Request, build_opener

from idlewatt.cli import output, sql_help
from idlewatt.config import Settings
from idlewatt.errors import QueryError, ServerUnreachableError, UnavailableError, UsageError
from warehouse.queries import is_name

_FORMATS: Final = ("table", "csv", "json", "arrow")
_SLACK_S: Final = 10.0
_TRY_LATER: Final = frozenset({429, 503, 507})
_RETRY_AFTER_S: Final = 5


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add flags."""
    parser.add_argument(
        "name", nargs="?", help="a query, view or table by name, `list`, or `describe`"
    )
    parser.add_argument(
        "of", nargs="?", metavar="QUERY", help="what to describe: a query, view or table"
    )
    what = parser.add_mutually_exclusive_group()
    what.add_argument("-c", "--command", metavar="SQL", help="one SELECT")
    what.add_argument(
        "-f", "--file", metavar="FILE", help="file that holds it; - is standard input"
    )
    parser.add_argument(
        "--param", action="append", default=[], metavar="K=V", help="value of $K; may be repeated"
    )
    parser.add_argument("--format", choices=_FORMATS, default="table", help="default: table")
    parser.add_argument("--json", action="store_true", help="short for --format json")
    parser.add_argument("-o", "--output", metavar="FILE", help="write the answer there")
    parser.add_argument("--url", help="server to ask (setting query.url)")
    parser.add_argument("--max-rows", type=int, metavar="N", help="cut the answer after N rows")
    parser.set_defaults(flag_settings={"url": "query.url"})
    parser.add_argument("--timeout", type=float, metavar="S", help="stop the query after S seconds")
    parser.epilog = (
        "examples:\n"
        "  idlewatt sql list\n"
        "  idlewatt sql describe fleet_power_by_minute\n"
        "  idlewatt sql energy_by_state\n"
        "  idlewatt sql fleet_power_by_minute --param minutes=30\n"
        '  idlewatt sql --format csv -c "SELECT * FROM energy_by_state"\n'
        "  idlewatt sql -f report.sql --format arrow -o report.arrow\n"
        "  idlewatt sql                      # one statement after the other"
    )


def run(args: argparse.Namespace, settings: Settings) -> int:
    """Ask and print."""
    form = "json" if args.json else args.format
    given = args.command is not None or args.file is not None
    if given and args.name is not None:
        raise UsageError("give a named query, or -c, or -f; not two of them")
    if args.name == "list":
        sql_help.show_list(form)
        return 0
    client = Client(settings.text("query.url"), settings.number("query.timeout_s"))
    if args.name == "describe":
        if not args.of:
            raise UsageError("`idlewatt sql describe` needs the name of a query, view or table")
        sql_help.describe(args.of, form, client.ask)
        return 0
    if args.of is not None:
        raise UsageError(f"unexpected argument {args.of!r}")
    asked: dict[str, Any] = {"params": _params(args.param)}
    if args.max_rows is not None:
        asked["max_rows"] = args.max_rows
    if args.timeout is not None:
        asked["timeout_s"] = args.timeout
    if not given and args.name is None:
        return _loop(client, asked, form)
    asked |= _statement(args)
    _deliver(client.ask(asked, form), form, args.output)
    return 0


class Client:
    """Asks a server; no proxy of the environment stands between."""

    def __init__(self, url: str, timeout_s: float) -> None:
        if not url.startswith(("http://", "https://")):
            raise UsageError(f"{url!r} is not an http:// or https:// address")
        self._url = url.rstrip("/")
        self._timeout_s = timeout_s + _SLACK_S
        self._opener = build_opener(ProxyHandler({}))

    def ask(self, asked: dict[str, Any], form: str) -> bytes:
        """Return the body of the answer; warn on stderr where rows were cut.

        Raises:
            QueryError: the server refused or stopped the query.
            UnavailableError: the server cannot answer now; it says when to try again.
            ServerUnreachableError: nobody answers.
        """
        body = json.dumps({**asked, "format": "json" if form == "table" else form}).encode()
        # The scheme was checked above.
        request = Request(  # noqa: S310
            f"{self._url}/api/v1/query", body, {"Content-Type": "application/json"}
        )
        timeout_s = max(self._timeout_s, asked.get("timeout_s", 0) + _SLACK_S)
        try:
            with self._opener.open(request, timeout=timeout_s) as answer:
                data: bytes = answer.read()
                if answer.headers.get("idlewatt-truncated") == "true":
                    rows = answer.headers.get("idlewatt-rows")
                    output.say(f"idlewatt: the answer was cut after {rows} rows", err=True)
        except HTTPError as exc:
            with exc:
                if exc.code in _TRY_LATER:
                    raise UnavailableError(_reason(exc), exc.code, _retry_after_s(exc)) from None
                raise QueryError(_reason(exc)) from None
        except (URLError, OSError) as exc:
            reason = getattr(exc, "reason", exc)
            raise ServerUnreachableError(
                f"no server answers at {self._url} ({_words(reason)}); "
                "start `idlewatt serve`, or give --url"
            ) from None
        return data


def _reason(exc: HTTPError) -> str:
    try:
        return str(json.loads(exc.read())["error"])
    except (ValueError, KeyError, TypeError, OSError):
        return f"the server answered {exc.code} {exc.reason}; is it an idlewatt server?"


def _retry_after_s(exc: HTTPError) -> int:
    text = str(exc.headers.get("retry-after", ""))
    return int(text) if text.isdecimal() else _RETRY_AFTER_S


def _words(reason: object) -> str:
    return str(getattr(reason, "strerror", None) or reason).lower()


def _statement(args: argparse.Namespace) -> dict[str, Any]:
    if args.name is not None:
        if not is_name(args.name):
            raise UsageError(f"{args.name!r} is not the name of a query; give SQL with -c")
        return {"name": args.name}
    if args.command is not None:
        return {"sql": args.command}
    try:
        text = sys.stdin.read() if args.file == "-" else Path(args.file).read_text("utf-8")
    except (OSError, UnicodeDecodeError) as exc:
        raise UsageError(f"cannot read {args.file}: {exc}") from exc
    return {"sql": text}


def _params(pairs: list[str]) -> dict[str, str]:
    values: dict[str, str] = {}
    for pair in pairs:
        name, found, value = pair.partition("=")
        if not found or not name:
            raise UsageError(f"--param {pair!r} is not K=V")
        values[name] = value
    return values


def _deliver(data: bytes, form: str, file: str | None) -> None:
    if form == "table":
        answer = json.loads(data)
        data = (output.table(answer["columns"], answer["rows"]) + "\n").encode()
    elif not data.endswith(b"\n") and form == "json":
        data += b"\n"
    if file is not None:
        try:
            Path(file).write_bytes(data)
        except OSError as exc:
            raise UsageError(f"cannot write {file}: {exc.strerror}") from exc
        return
    if form == "arrow" and sys.stdout.isatty():
        raise UsageError("an Arrow stream is not for a terminal; give -o FILE")
    if form == "arrow":
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()
        return
    output.say(data.decode().rstrip("\n"))


def _loop(client: Client, asked: dict[str, Any], form: str) -> int:
    """Read statements, each ended by a semicolon, until end of input."""
    interactive = sys.stdin.isatty()
    if not interactive:
        raise UsageError("give a named query, -c SQL or -f FILE (`-f -` reads standard input)")
    import readline  # line editing for input()

    readline.set_history_length(1_000)
    output.say("One SELECT at a time, ended by a semicolon; Ctrl-D leaves.")
    pending: list[str] = []
    while True:
        try:
            line = input("     ...> " if pending else "idlewatt> ")
        except EOFError:
            output.say()
            return 0
        except KeyboardInterrupt:
            output.say()
            pending = []
            continue
        pending.append(line)
        text = "\n".join(pending).strip()
        if not text or not text.endswith(";"):
            pending = pending if text else []
            continue
        pending = []
        try:
            _deliver(client.ask({**asked, "sql": text}, form), form, None)
        except (QueryError, UnavailableError) as exc:
            output.fail(str(exc))
