"""Sealing: a finished hour's live table becomes sorted Parquet, in one switch.

Freeze (late rows go to a further table), copy beside ingest, then catalogue, view and DROP in one
transaction. A table that lost rows to a higher epoch while it was copied is copied again.
"""

from __future__ import annotations

import hashlib
import itertools
import logging
import os
import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from idlewatt.clock import us_from_utc, utc_from_us
from idlewatt.errors import StoreError
from idlewatt.units import US_PER_HOUR, US_PER_S
from warehouse.layout import DRAFT, LiveTable, Segment, naive
from warehouse.queries import load
from warehouse.schema import parquet_list, rows_of
from warehouse.store import FILE_MODE, Connection, Store

log = logging.getLogger(__name__)

SHARD_ROWS: Final = 4_000_000
_CHUNK: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class Written:
    """A segment file on disk and its catalogue row."""

    segment: Segment
    row: dict[str, Any]


def due_tables(store: Store, quiet_since_us: dict[str, int]) -> list[LiveTable]:
    """Return the live tables to seal now, oldest hour first; frozen ones are always due.

    Args:
        store: the warehouse.
        quiet_since_us: when each table last took rows, as far as seen.
    """
    now_us = store.clock.now_us()
    after_us = store.settings.integer("server.seal_after_s") * US_PER_S
    quiet_us = store.settings.integer("server.seal_quiet_s") * US_PER_S
    due = []
    for table in list(store.layout.live.values()):
        over = table.hour_us + US_PER_HOUR + after_us <= now_us
        quiet = quiet_since_us.get(table.name, 0) + quiet_us <= now_us
        if table.frozen or (over and quiet):
            due.append(table)
    return sorted(due, key=lambda table: (table.hour_us, table.generation))


def seal(store: Store, name: str) -> int | None:
    """Seal one live table; return its rows, or None where it changed meanwhile (try again).

    Raises:
        StoreError: what was written is not what the table holds.
    """
    return seal_several(store, [name]).get(name)


def seal_several(
    store: Store, names: Sequence[str], stopped: Callable[[], bool] = lambda: False
) -> dict[str, int]:
    """Seal live tables in one switch, so that the view is written once for all of them.

    Returns:
        Rows by table; without those that changed meanwhile, or came after `stopped` said so.

    Raises:
        StoreError: what was written is not what a table holds.
    """
    tables = store.write(lambda con: [_freeze(store, con, name) for name in names])
    written: dict[LiveTable, list[Written]] = {}
    done: list[bool] = []
    failure: Exception | None = None
    try:
        for table in tables:
            if stopped():
                break
            if table is None:
                continue
            try:
                written[table] = _write_files(store, table)
            except Exception as exc:
                failure = exc  # those before it are sealed all the same
                break
        done = store.write(
            lambda con: [_switch(store, con, table, files) for table, files in written.items()]
        )
    except BaseException:
        for files in written.values():
            _unlink(store, files)
        raise
    rows: dict[str, int] = {}
    for (table, files), switched in zip(written.items(), done, strict=True):
        if switched:
            rows[table.name] = sum(item.segment.rows for item in files)
        else:
            _unlink(store, files)
    if failure is not None:
        raise failure
    return rows


def _freeze(store: Store, con: Connection, name: str) -> LiveTable | None:
    table = store.layout.live.get(name)
    if table is None or table.frozen:
        return table
    return store.layout.freeze(con, name)


def _switch(store: Store, con: Connection, table: LiveTable, written: list[Written]) -> bool:
    if store.layout.live.get(table.name) != table:
        return False
    for item in written:
        store.layout.add_segment(con, item.segment, item.row)
    store.layout.drop_table(con, table.name)
    return True


def _write_files(store: Store, table: LiveTable) -> list[Written]:
    """Return the files written from one snapshot of a frozen table."""
    folder = store.layout.root / f"day={utc_from_us(table.hour_us):%Y-%m-%d}"
    folder /= f"hour={utc_from_us(table.hour_us):%H}"
    folder.mkdir(parents=True, exist_ok=True)
    written: list[Written] = []
    cursor = store.cursor()
    try:
        cursor.execute("BEGIN TRANSACTION READ ONLY")
        total = int(rows_of(cursor, f"SELECT count(*) FROM {table.name}")[0][0])  # noqa: S608
        for number, (low, high) in enumerate(_shards(cursor, table, total)):
            stem = f"g{table.generation:03d}-s{number:03d}-{secrets.token_hex(4)}.parquet"
            file = folder / stem
            text = load("statements/seal").replace("/* table */", table.name)
            text = text.replace("/* sealed_us */", str(store.clock.now_us()))
            text = text.replace("/* file */", str(draft_of(file)).replace("'", "''"))
            text = text.replace("/* low */", _quote(low)).replace("/* high */", _quote(high))
            try:
                cursor.execute(text)
                written.append(describe(store, cursor, table, file))
            finally:
                draft_of(file).unlink(missing_ok=True)
    except BaseException:
        _unlink(store, written)
        raise
    finally:
        cursor.close()
    sealed = sum(item.segment.rows for item in written)
    if sealed != total:
        _unlink(store, written)
        raise StoreError(f"sealing {table.name} wrote {sealed} rows of {total}; it stays live")
    return written


def _shards(cursor: Connection, table: LiveTable, total: int) -> list[tuple[str, str]]:
    """Return inclusive GPU ranges of about SHARD_ROWS rows each; none for an empty table."""
    names = [
        name
        for (name,) in rows_of(
            cursor,
            f"SELECT DISTINCT gpu_uuid FROM {table.name} ORDER BY gpu_uuid",  # noqa: S608
        )
    ]
    if not names:
        return []
    count = min(len(names), -(-total // SHARD_ROWS))
    edges = [len(names) * number // count for number in range(count + 1)]
    return [(names[a], names[b - 1]) for a, b in itertools.pairwise(edges)]


def describe(store: Store, cursor: Connection, table: LiveTable, file: Path) -> Written:
    """Return the catalogue row of a file, read back after its draft reached the disk."""
    digest, size = _settle(file)
    text = load("statements/segment_facts").replace("/* file */", parquet_list([str(file)]))
    rows, first, last, low, high = rows_of(cursor, text)[0]
    path = str(file.relative_to(store.layout.root))
    segment = Segment(path, table.hour_us, rows, us_from_utc(last), low, high, size, digest)
    row = {
        "path": path,
        "hour_utc": naive(table.hour_us),
        "rows": rows,
        "min_ts_utc": first,
        "max_ts_utc": last,
        "min_gpu_uuid": low,
        "max_gpu_uuid": high,
        "size_bytes": size,
        "sha256": digest,
        "sealed_utc": naive(store.clock.now_us()),
    }
    return Written(segment, row)


def _settle(file: Path) -> tuple[str, int]:
    """Give a finished draft its name; return SHA-256 and size once all reached the disk.

    Start-up unlinks drafts and nothing else, so a file bears its name only when it is whole.
    """
    draft = draft_of(file)
    digest = hashlib.sha256()
    size = 0
    draft.chmod(FILE_MODE)
    with draft.open("rb") as stream:
        os.fsync(stream.fileno())
        while chunk := stream.read(_CHUNK):
            digest.update(chunk)
            size += len(chunk)
    draft.rename(file)
    folder = os.open(file.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
    return digest.hexdigest(), size


def draft_of(file: Path) -> Path:
    """Return the name that a file bears while it is being written."""
    return file.with_name(file.name + DRAFT)


def _unlink(store: Store, written: list[Written]) -> None:
    for item in written:
        (store.layout.root / item.segment.path).unlink(missing_ok=True)


def _quote(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
