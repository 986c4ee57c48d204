"""What start-up does with files in the segments folder that the catalogue does not name.

Nothing is unlinked but what is proven needless: drafts that were never finished, and whole files
whose every row stands elsewhere (a crash between the last rename of a seal and its commit). Any
other whole file holds rows that the catalogue forgot, because its log was lost or the database was
moved away. Where its keys are nowhere else it is catalogued again as it is; where some are, its
rows go through the rule of `uniqueness` (the higher epoch wins) and the file goes to
`quarantine/`, as does a file that cannot be read. The newest files come first, since one that was
replaced may still lie beside the one that replaced it.
"""

from __future__ import annotations

import datetime as dt
import logging
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import duckdb
import numpy as np
import pyarrow as pa

from idlewatt.clock import us_from_utc
from idlewatt.columns import GPU_SAMPLE
from idlewatt.units import US_PER_HOUR
from warehouse.dimensions import note_hours
from warehouse.layout import DRAFT, Layout, Segment, digest_of, naive
from warehouse.queries import load
from warehouse.schema import SAMPLE_COLUMNS, parquet_list, rows_of
from warehouse.uniqueness import Unique

log = logging.getLogger(__name__)

SEALED_KEY: Final = "idlewatt_sealed_us"
QUARANTINE: Final = "quarantine"
_PLACE: Final = re.compile(
    r"day=(\d{4}-\d{2}-\d{2})/hour=(\d{2})/[A-Za-z0-9][A-Za-z0-9_-]{0,80}\.parquet"
)
_BATCH_ROWS: Final = 200_000


@dataclass(slots=True)
class Adopted:
    """What became of the files that no catalogue named.

    Attributes:
        problems: one sentence for each kind of thing that a person should know.
        moves: files to move to quarantine once the transaction is committed.
        needless: files to unlink once the transaction is committed.
        files: files catalogued again, and rows that were taken out of files: for the report.
    """

    problems: list[str]
    moves: list[Path]
    needless: list[Path]
    files: int = 0
    rows: int = 0

    def settle(self, quarantine: Path) -> None:
        """Unlink and move the files; call after the transaction."""
        for file in self.needless:
            file.unlink(missing_ok=True)
            log.info("path=%s msg=%r", file.name, "removed a file whose rows stand elsewhere")
        for file in self.moves:
            quarantine.mkdir(mode=0o750, exist_ok=True)
            target = quarantine / "_".join(file.parts[-3:])
            number = 1
            while target.exists():
                target = target.with_name(f"{number}-{'_'.join(file.parts[-3:])}")
                number += 1
            os.replace(file, target)


def adopt(con: duckdb.DuckDBPyConnection, layout: Layout, now_us: int) -> Adopted:
    """Bring the catalogue and the segments folder together, inside a transaction.

    The caller commits and then calls `Adopted.settle`.
    """
    result = Adopted([], [], [])
    known = {path for (path,) in rows_of(con, "SELECT path FROM segment")}
    known |= {path for (path,) in rows_of(con, "SELECT path FROM retired_file")}
    whole: list[tuple[int, Path]] = []
    for file in _files(layout.root):
        if file.name.endswith(DRAFT):
            result.needless.append(file)
        elif str(file.relative_to(layout.root)) not in known:
            sealed_us = _sealed_us(con, file)
            if sealed_us is None:
                _refuse(result, layout, file, "it is no whole Parquet file")
            else:
                whole.append((sealed_us, file))
    unique = Unique(layout)
    for _, file in sorted(whole, key=lambda item: (-item[0], item[1])):
        _take(con, layout, unique, result, file, now_us)
    if result.files or result.rows:
        result.problems.insert(
            0,
            f"the catalogue did not name {result.files} whole segment files, which are used again, "
            f"and missed {result.rows} rows that were taken from others",
        )
    return result


def _files(root: Path) -> Iterator[Path]:
    for file in sorted(root.rglob("*.parquet*")):
        if file.is_file() and file.name.endswith((".parquet", DRAFT)):
            yield file  # any other ending was given by a person


def _refuse(result: Adopted, layout: Layout, file: Path, why: str) -> None:
    result.moves.append(file)
    path = file.relative_to(layout.root)
    result.problems.append(
        f"{path} is not in the catalogue and {why}; it was moved to {QUARANTINE}/"
    )


def _sealed_us(con: duckdb.DuckDBPyConnection, file: Path) -> int | None:
    """Return when a file was sealed, by its footer or else its file time; None if not Parquet."""
    probe = con.cursor()  # what fails on it leaves the transaction alone
    try:
        found = rows_of(probe, "SELECT key, value FROM parquet_kv_metadata(?)", [str(file)])
    except duckdb.Error:
        return None
    finally:
        probe.close()
    pairs = {bytes(key): bytes(value) for key, value in found}
    text = pairs.get(SEALED_KEY.encode(), b"")
    return int(text) if text.isdigit() else file.stat().st_mtime_ns // 1000


def _take(
    con: duckdb.DuckDBPyConnection,
    layout: Layout,
    unique: Unique,
    result: Adopted,
    file: Path,
    now_us: int,
) -> None:
    path = str(file.relative_to(layout.root))
    place = _PLACE.fullmatch(path)
    if place is None:
        _refuse(result, layout, file, "its name is not that of a segment")
        return
    hour = dt.datetime.fromisoformat(f"{place[1]}T{place[2]}:00:00").replace(tzinfo=dt.UTC)
    hour_us = us_from_utc(hour)
    try:
        facts = _facts(con, file)
    except (duckdb.Error, OSError) as exc:
        _refuse(result, layout, file, f"cannot be read ({str(exc).splitlines()[0]})")
        return
    rows, different, first, last = facts[:4]
    if (
        not rows
        or different != rows
        or facts[6]
        or first < hour_us
        or last >= hour_us + US_PER_HOUR
    ):
        _refuse(result, layout, file, "it does not hold distinct samples of its hour")
        return
    elsewhere = _elsewhere(layout, hour_us)
    if not elsewhere or not _shares_keys(con, file, elsewhere):
        _catalogue(con, layout, path, hour_us, facts, now_us)
        result.files += 1
        return
    if _same_rows(con, file, elsewhere):
        result.needless.append(file)
        return
    added = _merge(con, unique, layout, file, now_us)
    result.rows += added
    _refuse(result, layout, file, f"shares rows with others ({added} were missing and are back)")


def _facts(con: duckdb.DuckDBPyConnection, file: Path) -> tuple[Any, ...]:
    """Return rows, distinct keys, first and last stamp in µs, first and last GPU, rows unfit."""
    text = load("statements/adopt_facts").replace("/* file */", parquet_list([str(file)]))
    probe = con.cursor()
    try:
        return rows_of(probe, text.replace("/* columns */", SAMPLE_COLUMNS))[0]
    finally:
        probe.close()


def _elsewhere(layout: Layout, hour_us: int) -> str:
    """Return all rows of an hour that the catalogue knows, as one UNION ALL; empty if none."""
    parts = [f"SELECT {SAMPLE_COLUMNS} FROM {t.name}" for t in layout.live_of(hour_us)]  # noqa: S608
    paths = [str(layout.root / segment.path) for segment in layout.segments_of(hour_us)]
    if paths:
        parts.append(f"SELECT {SAMPLE_COLUMNS} FROM {parquet_list(paths)}")  # noqa: S608
    return " UNION ALL ".join(parts)


def _shares_keys(con: duckdb.DuckDBPyConnection, file: Path, elsewhere: str) -> bool:
    keys = "SELECT gpu_uuid, ts_utc FROM"
    source = parquet_list([str(file)])
    return bool(rows_of(con, f"({keys} {source}) INTERSECT ({keys} ({elsewhere})) LIMIT 1"))


def _same_rows(con: duckdb.DuckDBPyConnection, file: Path, elsewhere: str) -> bool:
    source = parquet_list([str(file)])
    return not rows_of(
        con,
        f"(SELECT {SAMPLE_COLUMNS} FROM {source}) EXCEPT ({elsewhere}) LIMIT 1",  # noqa: S608
    )


def _catalogue(
    con: duckdb.DuckDBPyConnection,
    layout: Layout,
    path: str,
    hour_us: int,
    facts: tuple[Any, ...],
    now_us: int,
) -> None:
    rows, _, first, last, low, high = facts[:6]
    file = layout.root / path
    digest, size = digest_of(file), file.stat().st_size
    row = {
        "path": path,
        "hour_utc": naive(hour_us),
        "rows": rows,
        "min_ts_utc": naive(first),
        "max_ts_utc": naive(last),
        "min_gpu_uuid": low,
        "max_gpu_uuid": high,
        "size_bytes": size,
        "sha256": digest,
        "sealed_utc": naive(now_us),
    }
    layout.add_segment(con, Segment(path, hour_us, rows, last, low, high, size, digest), row)
    note_hours(con, layout, {hour_us: rows})


def _merge(
    con: duckdb.DuckDBPyConnection, unique: Unique, layout: Layout, file: Path, now_us: int
) -> int:
    """Put the rows of a file where they are missing; return by how many there are more now."""
    text = f"SELECT {SAMPLE_COLUMNS} FROM {parquet_list([str(file)])}"  # noqa: S608
    held: pa.Table = con.sql(text).to_arrow_table()
    names = [column.name for column in GPU_SAMPLE]
    added = 0
    for begin in range(0, held.num_rows, _BATCH_ROWS):
        part = held.slice(begin, _BATCH_ROWS).select(names).combine_chunks()
        numbers = unique.gpu_numbers
        gpus = [numbers.setdefault(gpu, len(numbers)) for gpu in part["gpu_uuid"].to_pylist()]
        keys = (
            part["ts_utc"].cast("timestamp[us]").cast("int64").to_numpy(),
            np.array(gpus, np.int64),
            part["epoch"].to_numpy(),
        )
        placed = unique.place(con, part, keys, now_us)
        deltas = {item.hour_us: item.inserted - item.replaced for item in placed if item.inserted}
        note_hours(con, layout, deltas)
        added += sum(deltas.values())
    return added
