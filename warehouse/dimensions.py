"""Inventory, jobs, allocations, gaps and meters: small tables that arrive beside the samples."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import duckdb
import pyarrow as pa

from idlewatt.columns import TABLES, Column, Kind
from idlewatt.units import US_PER_MS
from warehouse.columnar import ARROW_TYPE
from warehouse.layout import Layout, naive
from warehouse.queries import load
from warehouse.schema import rows_of

Row = tuple[Any, ...]
OWNER_SHIFT_US: Final = 500 * US_PER_MS  # a row belongs to the allocation at ts - 500 ms
# Years 1990 to 2200: anything else is a mistake, and Python and DuckDB dates overflow far outside.
MIN_TIME_US: Final = 631_152_000_000_000
MAX_TIME_US: Final = 7_258_118_400_000_000
MAX_TEXT: Final = 512
# Control characters, and those that turn the direction of what follows.
_CONTROL: Final = re.compile(
    "[\\x00-\\x1f\\x7f-\\x9f\\u202a-\\u202e\\u2066-\\u2069\\ud800-\\udfff]"
)
_SPANS: Final = (("start_utc", "end_utc"), ("from_utc", "to_utc"))


@dataclass(frozen=True, slots=True)
class Dimension:
    """Where a wire table is kept and what identifies its rows (nothing: rows only add up)."""

    wire: str
    stored: str
    key: tuple[str, ...]

    @property
    def spec(self) -> tuple[Column, ...]:
        """Return the columns."""
        return TABLES[self.wire]


DIMENSIONS: Final = (
    Dimension("device", "device_history", ("gpu_uuid", "valid_from_utc")),
    Dimension("node", "node_history", ("node_id", "valid_from_utc")),
    Dimension(
        "device_capability",
        "device_capability_history",
        ("gpu_uuid", "column_name", "valid_from_utc"),
    ),
    Dimension("job", "job", ("job_key",)),
    Dimension("allocation", "allocation", ("gpu_uuid", "start_utc", "job_key")),
    Dimension("gap", "gap", ()),
    Dimension("meter", "meter", ("node_id", "meter_id", "ts_utc")),
)


def split_impossible(
    spec: Sequence[Column], rows: Iterable[Row]
) -> tuple[list[Row], list[tuple[Row, str]]]:
    """Return the rows that can be true, and those that cannot with the reason."""
    at = {column.name: number for number, column in enumerate(spec)}
    times = [number for number, column in enumerate(spec) if column.kind is Kind.TS]
    texts = [number for number, column in enumerate(spec) if column.kind is Kind.STR]
    shares = [at[name] for name in ("share", "confidence") if name in at]
    spans = [(at[a], at[b]) for a, b in _SPANS if a in at and b in at]
    good: list[Row] = []
    bad: list[tuple[Row, str]] = []
    for row in rows:
        why = None
        if not all(row[n] is None or MIN_TIME_US <= row[n] <= MAX_TIME_US for n in times):
            why = "impossible time"
        elif not all(row[n] is None or _plain_text(row[n]) for n in texts):
            why = f"text of over {MAX_TEXT} characters, or with control characters"
        elif not all(row[n] is None or 0 <= row[n] <= 1 for n in shares):  # NaN fails too
            why = "share or confidence outside 0 to 1"
        elif any(None not in (row[a], row[b]) and row[b] < row[a] for a, b in spans):
            why = "ends before it starts"
        if why is None:
            good.append(row)
        else:
            bad.append((row, why))
    return good, bad


def _plain_text(text: str) -> bool:
    return len(text) <= MAX_TEXT and (text.isprintable() or not _CONTROL.search(text))


def merge(dimension: Dimension, rows: Iterable[Row]) -> list[Row]:
    """Return one row per key; of several a later value wins, a later NULL does not."""
    if not dimension.key:
        return list(rows)
    names = [column.name for column in dimension.spec]
    places = [names.index(name) for name in dimension.key]
    merged: dict[Row, Row] = {}
    for row in rows:
        key = tuple(row[place] for place in places)
        before = merged.get(key)
        merged[key] = (
            row
            if before is None
            else tuple(old if new is None else new for old, new in zip(before, row, strict=True))
        )
    return list(merged.values())


def store_rows(
    con: duckdb.DuckDBPyConnection, layout: Layout, dimension: Dimension, rows: Sequence[Row]
) -> None:
    """Upsert rows; where an allocation changed, the hours it touches are noted as changed."""
    merged = merge(dimension, rows)
    if not merged:
        return
    arrays = [
        pa.array([row[number] for row in merged], ARROW_TYPE[column.kind])
        for number, column in enumerate(dimension.spec)
    ]
    con.register("arrived", pa.table(arrays, names=[column.name for column in dimension.spec]))
    try:
        if dimension.wire == "allocation":
            _note_allocations(con, layout)
        con.execute(upsert_sql(dimension))
    finally:
        con.unregister("arrived")


def upsert_sql(dimension: Dimension) -> str:
    """Return the statement that upserts the registered table `arrived`."""
    insert = f"INSERT INTO {dimension.stored} BY NAME SELECT * FROM arrived"  # noqa: S608
    if not dimension.key:
        return insert
    others = [column.name for column in dimension.spec if column.name not in dimension.key]
    sets = ", ".join(
        f"{name} = coalesce(excluded.{name}, {dimension.stored}.{name})" for name in others
    )
    return f"{insert} ON CONFLICT ({', '.join(dimension.key)}) DO UPDATE SET {sets}"


def _note_allocations(con: duckdb.DuckDBPyConnection, layout: Layout) -> None:
    """Bump `hour_change` for the hours where `arrived` changes who holds a GPU."""
    spans: list[tuple[dt.datetime, dt.datetime | None]] = []
    shift = dt.timedelta(microseconds=OWNER_SHIFT_US)
    for start, end, old_end, known, same in rows_of(con, load("statements/allocation_changes")):
        if known and same and (end is None or end == old_end):
            continue
        first, last = start, end
        if known and same:
            first = end if old_end is None else min(end, old_end)
            last = None if old_end is None else max(end, old_end)
        elif known:
            last = None if old_end is None or end is None else max(end, old_end)
        spans.append((first + shift, None if last is None else last + shift))
    for first, last in spans:
        con.execute(
            load("statements/hour_change_allocation"),
            {"first_utc": first, "last_utc": last, "change_seq": layout.next_change()},
        )


def note_hours(con: duckdb.DuckDBPyConnection, layout: Layout, deltas: dict[int, int]) -> None:
    """Bump `hour_change` for hours whose rows changed, with how many more or fewer there are."""
    for hour_us, delta in deltas.items():
        con.execute(
            load("statements/hour_change_bump"),
            {"hour_utc": naive(hour_us), "change_seq": layout.next_change(), "delta": delta},
        )
