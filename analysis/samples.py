"""Samples of an hour read from the warehouse, and the raw runs they make.

Rows come in batches. A sealed hour comes in the order (gpu, ts), and each batch becomes runs while
it is in the processor's cache; the few runs that the borders of batches cut are joined again. A
live hour comes as it arrived: its rows, kept in the few columns that accounting needs, are sorted.
"""

from __future__ import annotations

import datetime as dt
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from analysis.classify import classify, counters_decide
from analysis.frame import (
    CodeArray,
    Rows,
    column_from_arrow,
    columns_from_arrow,
    mean_power,
    sort_order,
)
from analysis.runs import Runs, concat, empty_runs, join, raw_runs
from analysis.tables import Codes, Connection, stamp
from idlewatt.clock import us_from_utc
from idlewatt.model import Thresholds
from idlewatt.units import US_PER_HOUR, US_PER_MS
from warehouse.queries import load

_OWNER_SHIFT_US: Final = 500 * US_PER_MS
"""The owner of a row is whoever held the GPU half a second before its stamp."""
_BATCH_ROWS: Final = 1 << 16
RANGE_ROWS: Final = 4_000_000
"""GPUs are read in ranges of about so many rows, so that memory does not grow with the fleet."""

Held = tuple[int, int, int]
"""A job and the first and one-past-last stamp (µs) that it owns."""


@dataclass(frozen=True, slots=True)
class _Gpus:
    """GPUs of an hour, in the order of their names.

    Attributes:
        names: what they are called.
        hashes: what stands for each in the rows read.
        nodes: who held each last.
        samples: rows of each.
    """

    names: list[str]
    hashes: NDArray[np.uint64]
    nodes: list[str]
    samples: list[int]


@dataclass(frozen=True, slots=True)
class _Batch:
    """Rows of a batch and what each is by itself."""

    rows: Rows
    kind: CodeArray

    def sorted_after(self, before: _Batch | None) -> bool:
        """Return True where the rows are in the order (gpu, ts) and follow an earlier batch."""
        rows = self.rows
        if before is not None and len(rows):
            last = (before.rows.gpu[-1], before.rows.ts_us[-1])
            if (rows.gpu[0], rows.ts_us[0]) < last:
                return False
        return sort_order(rows.gpu, rows.ts_us) is None


@dataclass(frozen=True, slots=True)
class HourReader:
    """Computes raw runs from the samples of a snapshot.

    Attributes:
        cur: cursor of the snapshot.
        codes: numbers of names.
        thresholds: limits of the low-activity test.
        cuts_us: further stamps at which runs are cut.
        range_rows: about so many rows are in memory at once.
    """

    cur: Connection
    codes: Codes
    thresholds: Thresholds
    cuts_us: tuple[int, ...] = ()
    range_rows: int = RANGE_ROWS

    def known_hours(self) -> set[int]:
        """Return the hours that ever had samples."""
        rows = self.cur.execute("SELECT hour_utc FROM hour_change").fetchall()
        return {us_from_utc(hour) for (hour,) in rows}

    def hour(self, hour_us: int) -> Runs:
        """Return the runs of one hour, in the order (gpu, first_us)."""
        period = {"from_utc": stamp(hour_us), "to_utc": stamp(hour_us + US_PER_HOUR)}
        gpus = self._gpus(period)
        held = self._held(period, gpus.names)
        parts = [empty_runs()]
        for low, high in ranges(gpus.samples, gpus.hashes, self.range_rows):
            part = _Gpus(
                gpus.names[low:high],
                gpus.hashes[low:high],
                gpus.nodes[low:high],
                gpus.samples[low:high],
            )
            parts.append(self._range(period, part, held[low:high]))
        return concat(parts)

    def _range(self, period: dict[str, Any], gpus: _Gpus, held: list[list[Held]]) -> Runs:
        """Return the runs of some GPUs of an hour."""
        node = self.codes.nodes.codes(gpus.nodes)

        def runs_of(batch: _Batch) -> Runs:
            job = owners(batch.rows, held)
            return raw_runs(batch.rows, batch.kind, job, node[batch.rows.gpu], self.cuts_us)

        parts: list[Runs] = [empty_runs()]
        kept: list[_Batch] = []
        ordered = True
        for batch in self._batches(period, gpus):
            ordered = ordered and batch.sorted_after(kept[-1] if kept else None)
            kept.append(batch)
            if ordered:
                parts.append(runs_of(batch))
        runs = join(concat(parts), self.cuts_us) if ordered else runs_of(_sorted(kept))
        return replace(runs, gpu=self.codes.gpus.codes(gpus.names)[runs.gpu])

    def _batches(self, period: dict[str, Any], gpus: _Gpus) -> Iterator[_Batch]:
        order = np.argsort(gpus.hashes).astype(np.int32)
        hashes = gpus.hashes[order]
        wanted = {"first_gpu": gpus.names[0], "last_gpu": gpus.names[-1]}
        found = self.cur.sql(load("statements/states_rows"), params=period | wanted)
        for batch in found.to_arrow_reader(_BATCH_ROWS):
            if batch.num_rows:
                hashed = column_from_arrow(batch.column("gpu")).values
                yield _batch(batch, _codes(hashed, hashes, order), self.thresholds)

    def _gpus(self, period: dict[str, Any]) -> _Gpus:
        rows = self.cur.execute(load("statements/states_gpus"), period).fetchall()
        moved = [row[0] for row in rows if row[3]]
        last: dict[str, str] = {}
        if moved:
            found = self.cur.execute(load("statements/states_moved_gpus"), period | {"gpus": moved})
            last = dict(found.fetchall())
        return _Gpus(
            [row[0] for row in rows],
            np.array([row[1] for row in rows], dtype=np.uint64),
            [last.get(row[0], row[2]) for row in rows],
            [row[4] for row in rows],
        )

    def _held(self, period: dict[str, Any], names: list[str]) -> list[list[Held]]:
        """Return who held each GPU; of two at once the later one counts."""
        rows = self.cur.execute(load("statements/states_allocations"), period).fetchall()
        by_gpu: defaultdict[str, list[Held]] = defaultdict(list)
        for gpu_uuid, job_key, start, end in rows:
            by_gpu[gpu_uuid].append((self.codes.jobs.code(job_key), _owned(start), _owned(end)))
        return [by_gpu.get(name, []) for name in names]


def _owned(edge: dt.datetime) -> int:
    return us_from_utc(edge) + _OWNER_SHIFT_US


def ranges(
    samples: Sequence[int], hashes: Iterable[Any], range_rows: int
) -> Iterator[tuple[int, int]]:
    """Return half-open ranges of GPUs of about `range_rows` rows; in each, every hash is unique."""
    low = total = 0
    seen: set[int] = set()
    for at, (count, hashed) in enumerate(zip(samples, hashes, strict=True)):
        if at > low and (total + count > range_rows or int(hashed) in seen):
            yield low, at
            low, total, seen = at, 0, set()
        total += count
        seen.add(int(hashed))
    if len(samples) > low:
        yield low, len(samples)


def _codes(
    hashed: NDArray[np.uint64], hashes: NDArray[np.uint64], order: NDArray[np.int32]
) -> NDArray[np.int32]:
    """Return the number of each row's GPU; looked up once for each stretch of equal ones."""
    start = np.flatnonzero(hashed[1:] != hashed[:-1]) + 1
    edges = np.concatenate([[0], start, [len(hashed)]])
    codes = order[np.searchsorted(hashes, hashed[edges[:-1]])]
    return np.repeat(codes, np.diff(edges))


def _batch(batch: Any, gpu: NDArray[np.int32], thresholds: Thresholds) -> _Batch:
    columns = columns_from_arrow(batch)
    ts_us = column_from_arrow(batch.column("ts_utc")).values
    obs_ms = column_from_arrow(batch.column("obs_ms")).values
    energy = column_from_arrow(batch.column("energy_uj"))
    source = column_from_arrow(batch.column("energy_source")).values
    if energy.valid is not None:
        source = np.where(energy.valid, source, np.int8(-1))
    if not counters_decide(columns):
        columns["mean_power_mw"] = mean_power(energy.values, obs_ms, source == 0)
    kind = classify(columns, len(ts_us), thresholds)
    return _Batch(Rows(gpu, ts_us, obs_ms, energy.values, source), kind)


def _sorted(batches: Sequence[_Batch]) -> _Batch:
    """Return all rows as one batch in the order (gpu, ts)."""
    rows = Rows(
        *(
            np.concatenate([getattr(batch.rows, name) for batch in batches])
            for name in ("gpu", "ts_us", "obs_ms", "energy_uj", "energy_source")
        )
    )
    kind = np.concatenate([batch.kind for batch in batches])
    order = sort_order(rows.gpu, rows.ts_us)
    return _Batch(rows, kind) if order is None else _Batch(rows.take(order), kind[order])


def owners(rows: Rows, held: Sequence[Sequence[Held]]) -> NDArray[np.int32]:
    """Return the owner of each row at half a second before its stamp; -1 where nobody.

    Args:
        rows: in the order (gpu, ts_us).
        held: for each number of a GPU who held it; of two at once the later one counts.
    """
    job = np.full(len(rows), -1, dtype=np.int32)
    first = np.flatnonzero(np.diff(rows.gpu, prepend=-1))
    edges = [*first.tolist(), len(rows)]
    for at, low in enumerate(edges[:-1]):
        high = edges[at + 1]
        for code, from_us, to_us in held[rows.gpu[low]]:
            start, end = np.searchsorted(rows.ts_us[low:high], (from_us, to_us))
            job[low + start : low + end] = code
    return job
