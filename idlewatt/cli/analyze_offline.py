"""`idlewatt analyze FILE...`: what the GPUs of log files did, without a server."""

from __future__ import annotations

import argparse
import datetime as dt
import sys
from pathlib import Path
from typing import Any, Final

from analysis.offline import analyse
from analysis.offline_json import as_json
from analysis.offline_model import Offline
from collector.formats import Options
from collector.formats.stamps import parse_stamp, parse_zone
from dashboard.offline import advice, page, text
from dashboard.offline.words import Context, verdict
from idlewatt.cli import output
from idlewatt.cli.analyze_files import Reading, read_files
from idlewatt.config import Settings
from idlewatt.errors import IdlewattError, UsageError
from idlewatt.model import Thresholds
from idlewatt.units import MS_PER_S

_WIDTH: Final = 110


def run(args: argparse.Namespace, settings: Settings) -> int:
    """Read the files, print the report, write the page if asked for."""
    read = read_files(args.what, _options(args), _progress(args.json))
    result = analyse(read.samples, _thresholds(args, settings))
    context = _context(read, settings)
    if args.html is not None:
        _write(args.html, page.render(result, context))
    if args.json:
        output.emit_json(_json(result, context, read))
    else:
        output.say(text.render(result, context, output.width(_WIDTH), output.paint))
    if args.html is not None:
        output.say(f"wrote {args.html}", err=True)
    return 0


def _options(args: argparse.Namespace) -> Options:
    zone = parse_zone(args.zone) if args.zone else None
    interval_ms = None
    if args.interval is not None:
        if not 0.01 <= args.interval <= 3_600:
            raise UsageError("--interval is in seconds, from 0.01 to 3600")
        interval_ms = round(args.interval * MS_PER_S)
    fields = tuple(part.strip() for part in (args.fields or "").split(",") if part.strip())
    return Options(zone, args.node_id, interval_ms, fields, _start(args.start, zone))


def _start(words: str | None, zone: dt.tzinfo | None) -> dt.datetime | None:
    if words is None:
        return None
    start = parse_stamp(words)
    if start is None:
        raise UsageError(f"--start {words!r} is no time such as 2026-07-14T08:12:00Z")
    if start.tzinfo is None:
        start = start.replace(tzinfo=zone or dt.UTC)
    return start.astimezone(dt.UTC)


def _thresholds(args: argparse.Namespace, settings: Settings) -> Thresholds:
    minimum_s = args.min_interval_s or settings.integer("analysis.min_interval_s")
    return Thresholds(
        settings.number("analysis.activity"), settings.number("analysis.comm_bytes_s"), minimum_s
    )


def _context(read: Reading, settings: Settings) -> Context:
    return Context(
        files={name: kind.value for name, kind in read.files.items()},
        zone_known=read.zone_known,
        rules=frozenset(read.rules),
        notes=tuple(read.notes),
        file_findings=tuple(item.text for item in read.findings),
        skipped=tuple((item.file, item.line, item.why) for item in read.skipped),
        skipped_count=read.skipped_count,
        price_per_kwh=settings.number("report.price_per_kwh"),
        currency=settings.text("report.currency"),
    )


def _json(result: Offline, context: Context, read: Reading) -> dict[str, Any]:
    return {
        "verdict": verdict(result, context),
        "files": context.files,
        "times_are_utc": context.zone_known,
        **as_json(result),
        "price_per_kwh": context.price_per_kwh or None,
        "currency": context.currency,
        "actions": advice.actions(result, context),
        "record_with": advice.command(result),
        "unknown": advice.unknowns(result, context),
        "findings_text": advice.finding_lines(result, context),
        "notes": list(context.notes),
        "skipped_lines": read.skipped_count,
        "skipped": [{"file": f, "line": line, "why": why} for f, line, why in context.skipped],
    }


def _write(path: Path, html: str) -> None:
    try:
        path.write_text(html, "utf-8")
    except OSError as exc:
        raise IdlewattError(f"cannot write {path}: {exc.strerror}") from exc


def _progress(quiet: bool) -> Any:
    """Return what is told of each part of a large file; it shows where a person looks on."""
    shown = sys.stderr.isatty() and not quiet

    def tell(name: str, done: int, size: int) -> None:
        if shown and size > 4 << 20:
            output.say(f"{name}: {done >> 20} of {size >> 20} MiB read", err=True)

    return tell
