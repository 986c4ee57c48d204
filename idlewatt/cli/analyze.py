"""`idlewatt analyze`: on log files; or over a period, by the running server or on a data folder."""

from __future__ import annotations

import argparse
import datetime as dt
import json
import re
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any, Final

from idlewatt.cli import output
from idlewatt.clock import Clock, SystemClock, iso_utc, us_from_utc
from idlewatt.config import Settings
from idlewatt.errors import IdlewattError, MissingExtraError, ServerUnreachableError, UsageError
from idlewatt.units import US_PER_S

POWER_STATES: Final = "power-states"
_TIMEOUT_S: Final = 900
_AGO: Final = re.compile(r"(\d+)([smhd])")
_SECONDS: Final = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add flags."""
    parser.add_argument(
        "what",
        nargs="+",
        metavar="FILE",
        help="log files or folders of them (no server needed); or the word power-states for a "
        "period of the server",
    )
    parser.add_argument(
        "--min-interval-s",
        type=int,
        metavar="S",
        help="a low run this long is execution-idle (default 5); on a server, another value than "
        "the setting stores nothing",
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    _file_arguments(parser.add_argument_group("files"))
    _server_arguments(parser.add_argument_group("power-states of a server"))
    parser.usage = (
        "idlewatt analyze FILE... [--html OUT.html] [--zone ZONE] [--json] ...\n"
        "       idlewatt analyze power-states [--from TIME] [--to TIME] [--json] ..."
    )
    parser.epilog = (
        "examples, on files:\n"
        "  idlewatt analyze gpus.csv\n"
        "  idlewatt analyze gpus.csv --zone Europe/Berlin --html report.html --price 0.30\n"
        "  idlewatt analyze node1.csv node2.csv --min-interval-s 10 --json\n"
        "  nvidia-smi -q -x > now.xml; idlewatt analyze now.xml\n"
        "examples, on a server:\n"
        "  idlewatt analyze power-states --from 24h\n"
        "  idlewatt analyze power-states --from 2026-02-04 --to 2026-02-05T12:00 --json\n"
        "  idlewatt analyze power-states --from 6h --min-interval-s 10\n"
        "  idlewatt analyze power-states --data-dir ./idlewatt-data --dry-run"
    )
    parser.set_defaults(flag_settings={"url": "query.url", "price": "report.price_per_kwh"})


def _file_arguments(group: Any) -> None:
    group.add_argument("--html", type=Path, metavar="OUT.html", help="write a page as well")
    group.add_argument(
        "--zone", help="zone of the file's times, such as UTC, Europe/Berlin or +02:00"
    )
    group.add_argument("--price", type=float, metavar="P", help="price of a kWh")
    group.add_argument("--node-id", metavar="ID", help="node that the GPUs belong to")
    group.add_argument(
        "--interval", type=float, metavar="S", help="nominal interval; found from the times"
    )
    group.add_argument("--fields", metavar="A,B", help="fields of CSV without a header")
    group.add_argument("--start", metavar="TIME", help="time of the first reading, if not dated")


def _server_arguments(group: Any) -> None:
    group.add_argument(
        "--from",
        dest="from_time",
        default="24h",
        metavar="TIME",
        help="first stamp: UTC time, or how long ago (default 24h)",
    )
    group.add_argument(
        "--to",
        dest="to_time",
        default="now",
        metavar="TIME",
        help="first stamp after (default now)",
    )
    group.add_argument("--dry-run", action="store_true", help="leave stored results as they are")
    group.add_argument("--url", help="server to ask (setting query.url)")
    group.add_argument(
        "--data-dir", type=Path, help="open this warehouse itself; only where no server owns it"
    )


def run(args: argparse.Namespace, settings: Settings, clock: Clock | None = None) -> int:
    """Run the analysis, print its figures and return the exit code."""
    if args.min_interval_s is not None and args.min_interval_s < 1:
        raise UsageError("--min-interval-s is at least 1")
    if args.what == [POWER_STATES]:
        if args.html is not None or args.zone is not None:
            raise UsageError("--html and --zone are for files; give files instead of power-states")
        return _run_period(args, settings, clock or SystemClock())
    try:
        from idlewatt.cli.analyze_offline import run as run_files
    except ModuleNotFoundError as exc:
        if exc.name != "numpy":
            raise
        raise MissingExtraError("analyze FILE", "analyze", exc.name) from exc
    return run_files(args, settings)


def _run_period(args: argparse.Namespace, settings: Settings, clock: Clock) -> int:
    now_us = clock.now_us()
    from_us = parse_time(args.from_time, now_us, "--from")
    to_us = parse_time(args.to_time, now_us, "--to")
    if to_us <= from_us:
        raise UsageError("the period is empty: --to must be later than --from")
    asked: dict[str, Any] = {
        "from_us": from_us,
        "to_us": to_us,
        "min_interval_s": args.min_interval_s,
        "dry_run": args.dry_run,
    }
    if args.data_dir is not None:
        answer = _ask_folder(args.data_dir, settings, clock, asked)
    else:
        answer = _ask_server(settings.text("query.url"), asked)
    if args.json:
        output.emit_json(answer)
    else:
        output.say(render(answer))
    return 0


def parse_time(text: str, now_us: int, flag: str) -> int:
    """Return a stamp in µs since 1970 from `now`, `6h` (ago) or an ISO time (UTC without a zone).

    Raises:
        UsageError: it is none of these.
    """
    if text == "now":
        return now_us
    ago = _AGO.fullmatch(text)
    if ago:
        return now_us - int(ago.group(1)) * _SECONDS[ago.group(2)] * US_PER_S
    try:
        return us_from_utc(dt.datetime.fromisoformat(text))
    except ValueError:
        raise UsageError(
            f"{flag} {text!r} is no time; give now, 90m, 24h, 7d, 2026-02-04 or 2026-02-04T13:00"
        ) from None


def render(answer: dict[str, Any]) -> str:
    """Return the figures as text tables."""
    states = [
        (
            item["state"],
            round(item["seconds"]),
            _percent(item["time_share"]),
            item["energy_kwh"],
            _percent(item["energy_coverage"]),
            round(item["by_utilisation_s"]),
        )
        for item in answer["states"]
    ]
    lengths = [
        (
            item["min_interval_s"],
            round(item["execution_idle_s"]),
            _percent(item["time_share"]),
            _percent(item["energy_share"]),
        )
        for item in answer["by_min_interval"]
    ]
    share = answer["in_execution"]
    return "\n".join(
        [
            f"{answer['from_utc']} to {answer['to_utc']} · {answer['gpus']} GPUs · "
            f"{answer['samples']} samples · coverage {_percent(answer['coverage'])}",
            "",
            output.table(
                ["state", "seconds", "time", "kWh", "energy known", "by utilisation, s"], states
            ),
            "",
            f"execution-idle in execution (runs of {answer['min_interval_s']} s and more): "
            f"{_percent(share['time_share'])} of time, {_percent(share['energy_share'])} of energy",
            "",
            output.table(["runs of at least, s", "seconds", "time", "energy"], lengths),
            "",
            "stored results were computed anew" if answer["stored"] else "nothing was stored",
        ]
    )


def _percent(value: float | None) -> str:
    return "unknown" if value is None else f"{100 * value:.2f} %"


def _ask_folder(
    data_dir: Path, settings: Settings, clock: Clock, asked: dict[str, Any]
) -> dict[str, Any]:
    from analysis.report import power_states
    from warehouse.store import FILE_NAME, Store

    if not (data_dir.expanduser() / FILE_NAME).exists():
        raise UsageError(f"there is no warehouse in {data_dir}")
    with Store.open(data_dir, settings, clock) as store:
        return power_states(store, settings, clock, asked, progress=_progress)


def _progress(done: int, total: int) -> None:
    output.say(f"hour {done} of {total}", err=True)


def _ask_server(url: str, asked: dict[str, Any]) -> dict[str, Any]:
    """Return the server's answer.

    Raises:
        ServerUnreachableError: nobody answers at `url`.
        IdlewattError: the server refused; its sentence.
    """
    if not url.startswith(("http://", "https://")):
        raise UsageError(f"query.url {url!r} is no http address")
    body = {
        "analysis": "power_states",
        "from_utc": iso_utc(asked["from_us"]),
        "to_utc": iso_utc(asked["to_us"]),
        "min_interval_s": asked["min_interval_s"],
        "dry_run": asked["dry_run"],
    }
    request = urllib.request.Request(  # noqa: S310
        url.rstrip("/") + "/api/v1/analyze",
        data=json.dumps(body).encode(),
        headers={"Content-Type": "application/json"},
        method="POST",
    )
    output.say(f"asking {url}", err=True)
    try:
        with urllib.request.urlopen(request, timeout=_TIMEOUT_S) as response:  # noqa: S310
            return dict(json.load(response))
    except urllib.error.HTTPError as exc:
        with exc:
            raise _refusal(exc.code, exc.read()) from None
    except (OSError, ValueError) as exc:
        raise ServerUnreachableError(
            f"no answer from {url} ({getattr(exc, 'reason', exc)}); is `idlewatt serve` running?"
        ) from exc


def _refusal(status: int, body: bytes) -> IdlewattError:
    try:
        text = str(json.loads(body)["error"])
    except (ValueError, KeyError, TypeError):
        text = f"the server answered {status}"
    return UsageError(text) if status == 400 else IdlewattError(text)
