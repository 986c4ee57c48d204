"""`idlewatt import`: files of other tools, as samples of the warehouse."""

from __future__ import annotations

import argparse
import datetime as dt
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from collector.formats import Import, Options, Source, read
from collector.formats.stamps import parse_stamp, parse_zone
from collector.importer import Shipped, ship
from collector.shipper import Connection
from idlewatt.cli import output
from idlewatt.clock import SystemClock, iso_utc
from idlewatt.columns import GPU_SAMPLE
from idlewatt.config import Settings
from idlewatt.errors import UsageError
from idlewatt.units import MS_PER_S, UJ_PER_J, US_PER_S

FAMILIES: Final = ("nvidia-smi", "dcgm", "meter")
MAX_FILE_BYTES: Final = 1 << 30
_TIMEOUT_S: Final = 60.0
_AHEAD_S: Final = 300
_SHOWN_SKIPPED: Final = 10
_HEADS: Final = (
    *("gpu_uuid", "identified_by", "rows", "first_utc", "last_utc"),
    *("seen_s", "energy_j", "energy_source", "residency_known"),
)
_AT: Final = {column.name: place for place, column in enumerate(GPU_SAMPLE)}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add flags."""
    parser.add_argument(
        "files", nargs="+", metavar="FILE", help="files, folders or -; before them may stand what "
        "they are: nvidia-smi, dcgm or meter"
    )  # fmt: skip
    parser.add_argument("--zone", help="zone of local times, such as Europe/Berlin or +02:00")
    parser.add_argument("--node-id", metavar="ID", help="node that the GPUs belong to")
    parser.add_argument(
        "--interval", type=float, metavar="S", help="nominal interval; found from the times"
    )
    parser.add_argument("--fields", metavar="A,B", help="fields of CSV without a header")
    parser.add_argument("--start", metavar="TIME", help="time of the first reading, if not dated")
    parser.add_argument("--dry-run", action="store_true", help="report only, send nothing")
    parser.add_argument("--json", action="store_true", help="report as JSON")
    parser.add_argument("--server", metavar="URL", help="server to send to")
    parser.add_argument("--token-file", metavar="FILE", help="file that holds the node's token")
    parser.set_defaults(
        flag_settings={
            "server": "agent.server_url",
            "token_file": "agent.token_file",
            "node_id": "agent.node_id",
        }
    )
    parser.epilog = (
        "examples:\n"
        "  idlewatt import log.csv --zone Europe/Berlin --dry-run\n"
        "  idlewatt import nvidia-smi gpu*.csv --zone UTC --node-id n17 --token-file token\n"
        "  idlewatt import dcgm scrapes/ --node-id n17 --token-file token\n"
        "  idlewatt import meter spl.txt mlperf_log_detail.txt --zone UTC --dry-run"
    )


def run(args: argparse.Namespace, settings: Settings) -> int:
    """Read, report, and send unless told not to."""
    family, paths = _what(args.files)
    found = read(_sources(paths), _options(args, family, settings))
    shipped: Shipped | None = None
    if not args.dry_run and any(found.tables.values()):
        shipped = _send(found, settings, quiet=args.json)
    if args.json:
        output.emit_json(as_json(found, shipped))
    else:
        for line in as_text(found, shipped, args.dry_run):
            output.say(line)
    return 0


def _what(words: Sequence[str]) -> tuple[str | None, list[str]]:
    if words[0] in FAMILIES and (len(words) > 1 or not Path(words[0]).exists()):
        if len(words) == 1:
            raise UsageError(f"`idlewatt import {words[0]}` needs a file")
        return words[0], list(words[1:])
    return None, list(words)


def _sources(paths: Sequence[str]) -> list[Source]:
    """Return the files, named as shortly as tells them apart."""
    found = list(_files(paths))
    short = Counter(path.name for path, _ in found)
    return [Source(path.name if short[path.name] == 1 else str(path), data) for path, data in found]


def _files(paths: Sequence[str]) -> Iterator[tuple[Path, bytes]]:
    for text in paths:
        if text == "-":
            yield Path("standard input"), sys.stdin.buffer.read(MAX_FILE_BYTES)
            continue
        path = Path(text)
        try:
            files = sorted(p for p in path.iterdir() if p.is_file()) if path.is_dir() else [path]
            if not files:
                raise UsageError(f"the folder {text} holds no file")
            for file in files:
                if file.stat().st_size > MAX_FILE_BYTES:
                    raise UsageError(
                        f"{file} is larger than {MAX_FILE_BYTES >> 20} MiB; cut it into parts"
                    )
                yield file, file.read_bytes()
        except OSError as exc:
            raise UsageError(f"cannot read {text}: {exc.strerror}") from exc


def _options(args: argparse.Namespace, family: str | None, settings: Settings) -> Options:
    zone = parse_zone(args.zone) if args.zone else None
    interval_ms = None
    if args.interval is not None:
        if not 0.01 <= args.interval <= 3_600:
            raise UsageError("--interval is in seconds, from 0.01 to 3600")
        interval_ms = round(args.interval * MS_PER_S)
    fields = tuple(part.strip() for part in (args.fields or "").split(",") if part.strip())
    return Options(
        zone=zone,
        node_id=settings.text("agent.node_id") or None,
        interval_ms=interval_ms,
        fields=fields,
        start=_start(args.start, zone),
        family=family,
    )


def _start(text: str | None, zone: dt.tzinfo | None) -> dt.datetime | None:
    if text is None:
        return None
    start = parse_stamp(text)
    if start is None:
        raise UsageError(f"--start {text!r} is no time such as 2026-07-14T08:12:00Z")
    if start.tzinfo is None:
        if zone is None:
            raise UsageError("--start names no zone; add Z or an offset, or give --zone")
        start = start.replace(tzinfo=zone)
    return start.astimezone(dt.UTC)


def _send(found: Import, settings: Settings, quiet: bool) -> Shipped:
    newest_us = max((row[_AT["ts_utc"]] for row in found.samples), default=0)
    if newest_us > SystemClock().now_us() + _AHEAD_S * US_PER_S:
        raise UsageError(
            f"the newest reading is of {iso_utc(newest_us)}, which lies in the future; is --zone "
            "the zone of the machine that wrote the file?"
        )
    if not found.named:
        raise UsageError(
            "the files do not say which node they are from: give --node-id, or --dry-run to look "
            "at the report only"
        )
    token = settings.text("agent.token")
    if settings.text("agent.token_file"):
        path = settings.path("agent.token_file")
        try:
            token = path.read_text("utf-8").strip()
        except (OSError, UnicodeDecodeError) as exc:
            raise UsageError(f"cannot read the token in {path}: {exc}") from exc
    link = Connection(settings.text("agent.server_url"), lambda: token, _TIMEOUT_S)
    total = sum(map(len, found.tables.values()))
    try:
        return ship(found.node_id, found.tables, link, SystemClock(), _progress(total, quiet))
    finally:
        link.close()


def _progress(total: int, quiet: bool) -> Callable[[int], None]:
    """Return what is told of each batch; it shows a line where a person looks on."""
    done = 0

    def tell(rows: int) -> None:
        nonlocal done
        done += rows
        if not quiet and sys.stderr.isatty():
            output.say(f"sent {done:,} of {total:,} rows", err=True)

    return tell


def as_json(found: Import, shipped: Shipped | None) -> dict[str, Any]:
    """Return the report as plain values."""
    return {
        "files": {name: kind.value for name, kind in found.formats.items()},
        "node_id": found.node_id,
        "rows": {name: len(rows) for name, rows in found.tables.items()},
        "gpus": gpus(found),
        "interval_s": {name: ms / MS_PER_S for name, ms in found.interval_ms.items()},
        "windows": [
            {name: getattr(window, name) for name in window.__slots__} for window in found.windows
        ],
        "notes": found.notes,
        "advice": found.advice,
        "findings": [
            {"kind": item.kind, "text": item.text, "file": item.file, "line": item.line}
            for item in found.findings
        ],
        "skipped": [
            {"file": item.file, "line": item.line, "why": item.why} for item in found.skipped
        ],
        "skipped_lines": found.skipped_count,
        "shipped": None
        if shipped is None
        else {
            "rows": shipped.rows,
            "batches": shipped.batches,
            "duplicates": shipped.duplicates,
            "epoch": shipped.epoch,
        },
    }


def gpus(found: Import) -> list[dict[str, Any]]:
    """Return what each GPU has: rows, time, energy, known residency."""
    made: dict[str, dict[str, Any]] = {}
    for row in found.samples:
        name = row[_AT["gpu_uuid"]]
        item = made.setdefault(
            name,
            {
                "gpu_uuid": name,
                "identified_by": found.identity.get(name),
                "rows": 0,
                "first_utc": iso_utc(row[_AT["ts_utc"]]),
                "seen_s": 0.0,
                "energy_j": None,
                "energy_source": None,
                "residency_known": 0,
            },
        )
        item["rows"] += 1
        item["last_utc"] = iso_utc(row[_AT["ts_utc"]])
        item["seen_s"] += row[_AT["obs_ms"]] / MS_PER_S
        energy = row[_AT["energy_uj"]]
        if energy is not None:
            item["energy_j"] = (item["energy_j"] or 0.0) + energy / UJ_PER_J
            sources = set((item["energy_source"] or "").split("+")) - {""}
            item["energy_source"] = "+".join(sorted({*sources, row[_AT["energy_source"]]}))
        item["residency_known"] += row[_AT["resident"]] is not None
    return list(made.values())


def as_text(found: Import, shipped: Shipped | None, dry_run: bool) -> Iterator[str]:
    """Yield the lines of the report."""
    for name, kind in found.formats.items():
        yield f"{name}: {kind.value}"
    rows = gpus(found)
    if found.named:
        yield f"node {found.node_id}"
    if rows:
        yield ""
        yield output.table(_HEADS, [[row.get(head) for head in _HEADS] for row in rows])
    if found.meter_rows:
        meters = sorted({row[1] for row in found.meter_rows})
        yield f"{len(found.meter_rows):,} rows of {len(meters)} meter(s): {', '.join(meters)}"
    for window in found.windows:
        yield (
            f"{window.meter_id}, {window.name}: {window.seconds:.1f} s, "
            f"mean {window.mean_w:.3f} W, {window.energy_j:,.0f} J by the trapezoid rule"
        )
    yield from _listed("found", [_with_line(item) for item in found.findings])
    yield from _listed("notes", found.notes)
    if found.skipped_count:
        yield f"\n{found.skipped_count:,} line(s) skipped"
        for item in found.skipped[:_SHOWN_SKIPPED]:
            yield f"  {item.file}, line {item.line}: {item.why}"
    for advice in found.advice:
        yield f"\n{advice}"
    yield ""
    yield _outcome(found, shipped, dry_run)


def _with_line(item: Any) -> str:
    return f"{item.text} (line {item.line})" if item.line else item.text


def _listed(title: str, lines: Sequence[str]) -> Iterator[str]:
    if lines:
        yield f"\n{title}"
        for line in lines:
            yield f"  {line}"


def _outcome(found: Import, shipped: Shipped | None, dry_run: bool) -> str:
    if shipped is None:
        return "nothing was sent (--dry-run)" if dry_run else "nothing to send: no readings"
    if shipped.duplicates == shipped.batches:
        return f"{shipped.rows:,} rows: the server has had them already; nothing was doubled"
    return f"{shipped.rows:,} rows sent to node {found.node_id}"
