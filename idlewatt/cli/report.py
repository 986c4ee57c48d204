"""`idlewatt report`: what happened, as a page of text, asked of the running server.

Needs the base install only: the standard library speaks HTTP, the server writes the page.
"""

from __future__ import annotations

import argparse
import json
from typing import Final
from urllib.error import HTTPError, URLError
from urllib.parse import urlencode
from urllib.request import ProxyHandler, Request, build_opener

from idlewatt.cli import output
from idlewatt.config import Settings
from idlewatt.errors import QueryError, ServerUnreachableError, UsageError

_SLACK_S: Final = 10.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add flags."""
    what = parser.add_subparsers(dest="what", metavar="WHAT", required=True)
    job = what.add_parser("job", help="one job: its energy, its waste, and what to change")
    job.add_argument("key", metavar="KEY", help="job_key: cluster:id:attempt")
    for each in (parser, job):
        each.add_argument("--json", action="store_true", default=argparse.SUPPRESS, help="as JSON")
        each.add_argument(
            "--url", default=argparse.SUPPRESS, help="server to ask (setting query.url)"
        )
    parser.set_defaults(flag_settings={"url": "query.url"}, url=None, json=False)
    parser.epilog = (
        "examples:\n"
        "  idlewatt report job alpha:48221:0\n"
        "  idlewatt report job alpha:48221:0 --json\n"
        '  idlewatt report job alpha:48221:0 | mail -s "your job" OWNER'
    )


def run(args: argparse.Namespace, settings: Settings) -> int:
    """Ask and print."""
    form = "json" if args.json else "text"
    query = urlencode({"key": args.key, "format": form})
    timeout_s = settings.number("query.timeout_s") + _SLACK_S
    body = fetch(settings.text("query.url"), f"/api/v1/job?{query}", timeout_s)
    if args.json:
        output.emit_json(json.loads(body))
    else:
        output.say(body.decode("utf-8").rstrip("\n"))
    return 0


def fetch(url: str, path: str, timeout_s: float) -> bytes:
    """Return the body of an answer; no proxy of the environment stands between.

    Raises:
        QueryError: the server refused; its own sentence.
        ServerUnreachableError: nobody answers.
        UsageError: the address is none.
    """
    if not url.startswith(("http://", "https://")):
        raise UsageError(f"{url!r} is not an http:// or https:// address")
    asked = Request(f"{url.rstrip('/')}{path}")  # noqa: S310
    try:
        with build_opener(ProxyHandler({})).open(asked, timeout=timeout_s) as answer:
            data: bytes = answer.read()
            return data
    except HTTPError as exc:
        with exc:
            raise QueryError(_reason(exc)) from None
    except (URLError, OSError) as exc:
        reason = getattr(exc, "reason", exc)
        words = str(getattr(reason, "strerror", None) or reason).lower()
        raise ServerUnreachableError(
            f"no server answers at {url} ({words}); start `idlewatt serve`, or give --url"
        ) from None


def _reason(exc: HTTPError) -> str:
    try:
        return str(json.loads(exc.read())["error"])
    except (ValueError, KeyError, TypeError, OSError):
        return f"the server answered {exc.code} {exc.reason}; is it an idlewatt server?"
