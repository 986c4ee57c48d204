"""At most one row per (gpu_uuid, ts_utc) at every moment: the higher epoch wins.

The usual row is newer than all its GPU has; that is seen from the range of seconds each GPU has
in each hour, held in memory and read from the tables when an hour is first touched. Only rows
that fall inside such a range are compared with the rows that are there.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import duckdb
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from idlewatt.units import US_PER_HOUR
from warehouse.layout import Layout
from warehouse.queries import load
from warehouse.schema import SAMPLE_COLUMNS, parquet_list, rows_of

IntArray = npt.NDArray[np.int64]

_HOURS_KEPT: Final = 96
_NONE_LO: Final = np.iinfo(np.int64).max
_NONE_HI: Final = np.iinfo(np.int64).min


@dataclass(slots=True)
class _Ranges:
    """First and last µs of each GPU within one hour, by GPU number."""

    lo: IntArray = field(default_factory=lambda: np.empty(0, np.int64))
    hi: IntArray = field(default_factory=lambda: np.empty(0, np.int64))

    def grow(self, size: int) -> None:
        more = max(size, 64, len(self.lo) * 2) - len(self.lo)
        if size > len(self.lo):
            self.lo = np.concatenate([self.lo, np.full(more, _NONE_LO, np.int64)])
            self.hi = np.concatenate([self.hi, np.full(more, _NONE_HI, np.int64)])


@dataclass(frozen=True, slots=True)
class Placed:
    """What became of the rows of one hour."""

    hour_us: int
    inserted: int
    replaced: int
    superseded: int


class Unique:
    """Places rows of `gpu_sample`; used on the writer thread only."""

    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        self.gpu_numbers: dict[str, int] = {}
        self._hours: OrderedDict[int, _Ranges] = OrderedDict()

    def place(
        self,
        con: duckdb.DuckDBPyConnection,
        samples: pa.Table,
        keys: tuple[IntArray, IntArray, IntArray],
        now_us: int,
    ) -> list[Placed]:
        """Insert rows where they belong and return what became of them, by hour.

        Args:
            con: the writer's connection, inside its transaction.
            samples: the rows.
            keys: their ts_utc in µs, GPU number (of `gpu_numbers`) and epoch.
            now_us: the time, for files that are replaced.
        """
        hours = keys[0] // US_PER_HOUR
        placed = []
        for hour in np.unique(hours):
            rows = np.nonzero(hours == hour)[0]
            hour_us = int(hour) * US_PER_HOUR
            kept, suspects = self._screen(con, hour_us, rows, keys)
            losers = len(rows) - len(kept)
            replaced = 0
            if len(suspects):
                lost, replaced = self._settle(con, hour_us, samples, (suspects, keys[2]), now_us)
                kept = np.setdiff1d(kept, lost, assume_unique=True)
                losers += len(lost)
            if len(kept):
                self._insert(con, hour_us, samples, kept, now_us)
            placed.append(Placed(hour_us, len(kept), replaced, losers))
        return placed

    def _screen(
        self,
        con: duckdb.DuckDBPyConnection,
        hour_us: int,
        rows: IntArray,
        keys: tuple[IntArray, IntArray, IntArray],
    ) -> tuple[IntArray, IntArray]:
        """Return the rows left after removing doubles among them, and those to look at closer."""
        stamps, gpus, epochs = (values[rows] for values in keys)
        offsets = stamps - hour_us
        # Stable by arrival: among equal epochs the row that came first stays.
        order = np.lexsort((-epochs, offsets, gpus))
        gpu, offset = gpus[order], offsets[order]
        first = np.ones(len(order), bool)
        first[1:] = (gpu[1:] != gpu[:-1]) | (offset[1:] != offset[:-1])
        order, gpu, offset = order[first], gpu[first], offset[first]
        starts = np.nonzero(np.append(True, gpu[1:] != gpu[:-1]))[0]
        ends = np.append(starts[1:], len(gpu)) - 1
        ranges = self._ranges(con, hour_us)
        ranges.grow(len(self.gpu_numbers))
        who = gpu[starts]
        touched = (offset[starts] <= ranges.hi[who]) & (offset[ends] >= ranges.lo[who])
        ranges.lo[who] = np.minimum(ranges.lo[who], offset[starts])
        ranges.hi[who] = np.maximum(ranges.hi[who], offset[ends])
        kept = rows[np.sort(order)]
        if not touched.any():
            return kept, np.empty(0, np.int64)
        suspect = np.repeat(touched, ends - starts + 1)
        return kept, rows[np.sort(order[suspect])]

    def _ranges(self, con: duckdb.DuckDBPyConnection, hour_us: int) -> _Ranges:
        ranges = self._hours.get(hour_us)
        if ranges is not None:
            self._hours.move_to_end(hour_us)
            return ranges
        ranges = _Ranges()
        sources = self._sources(
            hour_us, [segment.path for segment in self._layout.segments_of(hour_us)]
        )
        if sources:
            text = load("statements/gpu_ranges").replace("/* sources */", sources)
            found = rows_of(con, text)
            numbers = np.array(
                [self.gpu_numbers.setdefault(gpu, len(self.gpu_numbers)) for gpu, _, _ in found],
                np.int64,
            )
            ranges.grow(len(self.gpu_numbers))
            ranges.lo[numbers] = np.array([low for _, low, _ in found], np.int64) - hour_us
            ranges.hi[numbers] = np.array([high for _, _, high in found], np.int64) - hour_us
        self._hours[hour_us] = ranges
        while len(self._hours) > _HOURS_KEPT:
            self._hours.popitem(last=False)
        return ranges

    def _sources(self, hour_us: int, paths: Sequence[str]) -> str:
        """Return the tables and files of an hour as one UNION ALL; empty where there are none."""
        parts = [
            f"SELECT gpu_uuid, ts_utc, epoch, '{table.name}' AS source FROM {table.name}"  # noqa: S608
            for table in self._layout.live_of(hour_us)
        ]
        for path in paths:
            file = parquet_list([str(self._layout.root / path)])
            parts.append(f"SELECT gpu_uuid, ts_utc, epoch, '{path}' AS source FROM {file}")  # noqa: S608
        return "\nUNION ALL ".join(parts)

    def _settle(
        self,
        con: duckdb.DuckDBPyConnection,
        hour_us: int,
        samples: pa.Table,
        suspects: tuple[IntArray, IntArray],
        now_us: int,
    ) -> tuple[IntArray, int]:
        """Return which suspects lose against rows that are there, and remove the rows they beat."""
        rows, epochs = suspects
        part = samples.select(["gpu_uuid", "ts_utc", "epoch"]).take(pa.array(rows))
        names = set(part["gpu_uuid"].unique().to_pylist())
        paths = [
            segment.path
            for segment in self._layout.segments_of(hour_us)
            if any(segment.min_gpu_uuid <= name <= segment.max_gpu_uuid for name in names)
        ]
        sources = self._sources(hour_us, paths)
        if not sources:
            return np.empty(0, np.int64), 0
        con.register("suspect", part.append_column("number", pa.array(rows)))
        try:
            text = load("statements/conflicts").replace("/* sources */", sources)
            found = rows_of(con, text)
        finally:
            con.unregister("suspect")
        lost = np.array([row for row, old, _ in found if old >= epochs[row]], np.int64)
        beaten: dict[str, list[int]] = {}
        for row, old, source in found:
            if old < epochs[row]:
                beaten.setdefault(source, []).append(row)
        for source, winners in beaten.items():
            keys = samples.select(["gpu_uuid", "ts_utc"]).take(pa.array(winners))
            con.register("winner", keys)
            try:
                self._remove(con, hour_us, source, now_us)
            finally:
                con.unregister("winner")
        return lost, sum(len(winners) for winners in beaten.values())

    def _remove(
        self, con: duckdb.DuckDBPyConnection, hour_us: int, source: str, now_us: int
    ) -> None:
        """Remove the rows named in `winner`; a segment's other rows become live again."""
        table = self._layout.live.get(source)
        if table is not None:
            con.execute(load("statements/delete_winners").replace("/* table */", source))
            if table.frozen:
                self._layout.touch_frozen(con, source)
            return
        target = self._layout.open_table(con, hour_us)
        text = load("statements/thaw").replace("/* table */", target.name)
        text = text.replace("/* columns */", SAMPLE_COLUMNS)
        text = text.replace("/* file */", parquet_list([str(self._layout.root / source)]))
        con.execute(text)
        self._layout.retire_segment(con, source, now_us)

    def _insert(
        self,
        con: duckdb.DuckDBPyConnection,
        hour_us: int,
        samples: pa.Table,
        rows: IntArray,
        now_us: int,
    ) -> None:
        table = self._layout.open_table(con, hour_us)
        self._layout.last_write_us[table.name] = now_us
        part: Any = samples if len(rows) == samples.num_rows else samples.take(pa.array(rows))
        con.register("arrived", part)
        try:
            con.execute(load("statements/sample_insert").replace("/* table */", table.name))
        finally:
            con.unregister("arrived")
