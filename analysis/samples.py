"""Samples of an hour read from the warehouse, and the raw runs they make.

Rows come in batches. A sealed hour comes in the order (gpu, ts), and each batch becomes runs while
it is in the processor's cache; the few runs that the borders of batches cut are joined again. A
live hour comes as it arrived: its rows, kept in the few columns that accounting needs, are sorted.
Every batch is looked at; what the catalogue says of an hour's order only saves memory.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from analysis.classify import classify, counters_decide
from analysis.frame import (
    ArrowColumns,
    CodeArray,
    IntArray,
    Rows,
    column_from_arrow,
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
"""A job and the stamps (µs) that it owns: from the first to before the second."""


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
    """Rows of a batch and what each is by itself; never empty.

    Attributes:
        rows: the rows.
        kind: their `analysis.classify.Kind`.
        first: where each stretch of rows of one GPU begins.
    """

    rows: Rows
    kind: CodeArray
    first: IntArray

    def copied(self) -> _Batch:
        """Return the same, apart from the Arrow batch, all of whose columns it kept in memory."""
        rows = self.rows
        own = Rows(
            rows.gpu,
            rows.ts_us.copy(),
            rows.obs_ms.copy(),
            rows.energy_uj.copy(),
            rows.energy_source.copy(),
        )
        return _Batch(own, self.kind, self.first)

    def sorted_after(self, before: _Batch | None) -> bool:
        """Return True where the rows are in the order (gpu, ts) and follow an earlier batch."""
        gpu, ts_us, first = self.rows.gpu, self.rows.ts_us, self.first
        last = None if before is None else (before.rows.gpu[-1], before.rows.ts_us[-1])
        if last is not None and (gpu[0], ts_us[0]) <= last:
            return False
        later = ts_us[1:] > ts_us[:-1]
        later[first[1:] - 1] = True
        stretches = gpu[first]
        return bool(later.all() and (stretches[1:] > stretches[:-1]).all())


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
        ((unsorted,),) = self.cur.execute(
            load("statements/states_sources"), {"hour_utc": stamp(hour_us)}
        ).fetchall()
        parts = [empty_runs()]
        for low, high in ranges(gpus.samples, gpus.hashes, self.range_rows):
            part = _Gpus(
                gpus.names[low:high],
                gpus.hashes[low:high],
                gpus.nodes[low:high],
                gpus.samples[low:high],
            )
            parts.append(self._range(period, part, held[low:high], keep=unsorted))
        return concat(parts)

    def _range(
        self, period: dict[str, Any], gpus: _Gpus, held: list[list[Held]], *, keep: bool
    ) -> Runs:
        """Return the runs of some GPUs of an hour.

        Args:
            period: bounds of the hour.
            gpus: which GPUs.
            held: who held each.
            keep: keep the rows, to sort them; without it, they are read again where they must be.
        """

        def runs_of(batch: _Batch) -> Runs:
            job = owners(batch.rows, batch.first, held)
            return raw_runs(batch.rows, batch.kind, job, cuts_us=self.cuts_us)

        parts: list[Runs] = [empty_runs()]
        kept: list[_Batch] = []
        before: _Batch | None = None
        ordered = True
        for batch in self._batches(period, gpus):
            ordered = ordered and batch.sorted_after(before)
            before = batch
            if ordered:
                parts.append(runs_of(batch))
            elif not keep:
                break
            if keep:
                kept.append(batch.copied())
        if not ordered and not keep:
            return self._range(period, gpus, held, keep=True)
        runs = join(concat(parts), self.cuts_us) if ordered else runs_of(_sorted(kept))
        return replace(
            runs,
            gpu=self.codes.gpus.codes(gpus.names)[runs.gpu],
            node=self.codes.nodes.codes(gpus.nodes)[runs.gpu],
        )

    def _batches(self, period: dict[str, Any], gpus: _Gpus) -> Iterator[_Batch]:
        order = np.argsort(gpus.hashes).astype(np.int32)
        hashes = gpus.hashes[order]
        wanted = {"first_gpu": gpus.names[0], "last_gpu": gpus.names[-1]}
        found = self.cur.sql(load("statements/states_rows"), params=period | wanted)
        for batch in found.to_arrow_reader(_BATCH_ROWS):
            if batch.num_rows:
                hashed = column_from_arrow(batch.column("gpu")).values
                first = _stretches(hashed)
                gpu = order[np.searchsorted(hashes, hashed[first])]
                yield _batch(batch, gpu, first, self.thresholds)

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
        found = self.cur.sql(load("statements/states_allocations"), params=period).to_arrow_table()
        gpus = found.column("gpu_uuid").to_pylist()
        jobs = self.codes.jobs.from_arrow(found.column("job_key")).tolist()
        edges = [
            (column_from_arrow(found.column(name)).values + _OWNER_SHIFT_US).tolist()
            for name in ("start_utc", "end_utc")
        ]
        by_gpu: defaultdict[str, list[Held]] = defaultdict(list)
        for gpu, job, from_us, to_us in zip(gpus, jobs, *edges, strict=True):
            by_gpu[gpu].append((job, from_us, to_us))
        return [by_gpu.get(name, []) for name in names]


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


def _stretches(values: NDArray[Any]) -> IntArray:
    """Return where each stretch of equal values begins."""
    change = np.flatnonzero(values[1:] != values[:-1]) + 1
    return np.concatenate([[0], change])


def _batch(
    batch: Any, stretch_gpu: NDArray[np.int32], first: IntArray, thresholds: Thresholds
) -> _Batch:
    """Return the rows of an Arrow batch; of each stretch of one GPU, which and where it begins."""
    columns = ArrowColumns(batch)
    obs_ms, energy = columns["obs_ms"].values, columns["energy_uj"]
    source = columns["energy_source"].values
    if energy.valid is not None:
        source = np.where(energy.valid, source, np.int8(-1))
    if not counters_decide(columns):
        columns.put("mean_power_mw", mean_power(energy.values, obs_ms, source == 0))
    kind = classify(columns, batch.num_rows, thresholds)
    gpu = np.repeat(stretch_gpu, np.diff(first, append=batch.num_rows))
    rows = Rows(gpu, columns["ts_utc"].values, obs_ms, energy.values, source)
    return _Batch(rows, kind, first)


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
    if order is not None:
        rows, kind = rows.take(order), kind[order]
    return _Batch(rows, kind, _stretches(rows.gpu))


def owners(rows: Rows, first: IntArray, held: Sequence[Sequence[Held]]) -> NDArray[np.int32]:
    """Return the owner of each row at half a second before its stamp; -1 where nobody.

    Args:
        rows: in the order (gpu, ts_us).
        first: where each GPU begins.
        held: for each number of a GPU who held it; of two at once the later one counts.
    """
    job = np.full(len(rows), -1, dtype=np.int32)
    edges = [*first.tolist(), len(rows)]
    for at, gpu in enumerate(rows.gpu[first].tolist()):
        low, high = edges[at], edges[at + 1]
        ts_us = rows.ts_us[low:high]
        for code, from_us, to_us in held[gpu]:
            if from_us > ts_us[-1] or to_us <= ts_us[0]:
                continue
            start, end = ts_us.searchsorted((from_us, to_us))
            job[low + start : low + end] = code
    return job
