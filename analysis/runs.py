"""Run-length accounting of power states: raw runs per hour, and their stitching into intervals.

Times are stamps: a row at `ts` covers (ts - obs, ts] and belongs to the hour of `ts`, so that
13:00:00 falls into the 13 h bucket. Two rows follow each other without a hole when the second one's
interval begins where the first one's ended, to within half its nominal interval.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any, Final, TypeVar

import numpy as np
from numpy.typing import NDArray

from analysis.classify import RAW_OF_KIND, Kind, Raw
from analysis.frame import ENERGY_SOURCES, BoolArray, CodeArray, IntArray, Rows
from idlewatt.units import MS_PER_S, US_PER_HOUR, US_PER_MS

LENGTH_SLACK_MS: Final = 500
"""A run of "at least n s" has obs_ms >= 1000 n - 500, for every n alike."""
_RELABEL: Final = np.int8(Kind.LOW_COUNTERS - Kind.ACTIVE_COUNTERS)


@dataclass(frozen=True, slots=True)
class Runs:
    """Runs of rows of one GPU within one UTC hour, ordered by (gpu, first_us).

    Every row of a run has the same kind, job and nominal interval, and there is no hole inside.

    Attributes:
        gpu: code of the GPU.
        node: code of the node that held it in that hour.
        first_us: stamp of the first row.
        last_us: stamp of the last row.
        kind: `analysis.classify.Kind`.
        job: code of the owner, -1 where nobody owns the GPU.
        samples: number of rows.
        obs_ms: sum of nominal intervals.
        energy_uj: energy per source (first axis as `ENERGY_SOURCES`).
        energy_seen: whether any row had energy from that source.
        energy_obs_ms: sum of nominal intervals of the rows that have an energy.
    """

    gpu: NDArray[np.int32]
    node: NDArray[np.int32]
    first_us: IntArray
    last_us: IntArray
    kind: CodeArray
    job: NDArray[np.int32]
    samples: IntArray
    obs_ms: IntArray
    energy_uj: IntArray
    energy_seen: BoolArray
    energy_obs_ms: IntArray

    def __len__(self) -> int:
        return len(self.first_us)

    @property
    def hour_us(self) -> IntArray:
        """Return the start of the UTC hour that each stamp falls into."""
        return self.first_us - self.first_us % US_PER_HOUR


@dataclass(frozen=True, slots=True)
class Intervals(Runs):
    """Final pieces, ordered by (gpu, first_us); a low `kind` now means execution-idle.

    Attributes:
        run_ms: length of the whole run of this state, also beyond the hour of the piece.
    """

    run_ms: IntArray

    @property
    def state(self) -> CodeArray:
        """Return codes into `analysis.classify.STATES`."""
        return RAW_OF_KIND[self.kind]


R = TypeVar("R", bound=Runs)


def take(runs: R, index: NDArray[np.int64] | BoolArray) -> R:
    """Return some of the runs, by position or mask."""
    return type(runs)(*(getattr(runs, f.name)[..., index] for f in fields(runs)))


def within(runs: R, period_us: tuple[int, int]) -> R:
    """Return the runs that begin in a half-open period of stamps."""
    return take(runs, (runs.first_us >= period_us[0]) & (runs.first_us < period_us[1]))


def concat(parts: Sequence[Runs]) -> Runs:
    """Return the runs of several parts in the order (gpu, first_us)."""
    joined = [
        np.concatenate([getattr(part, f.name) for part in parts], axis=-1) for f in fields(Runs)
    ]
    runs = Runs(*joined)
    gpu, first_us = runs.gpu, runs.first_us
    later = (gpu[1:] > gpu[:-1]) | ((gpu[1:] == gpu[:-1]) & (first_us[1:] >= first_us[:-1]))
    if later.all():
        return runs
    return take(runs, np.lexsort((runs.first_us, runs.gpu)).astype(np.int64, copy=False))


def join(runs: Runs, cuts_us: Sequence[int] = ()) -> Runs:
    """Return runs with those put together that were cut only because rows came in portions.

    Args:
        runs: what `raw_runs` made of portions of rows, in the order (gpu, first_us).
        cuts_us: the stamps that it was given.
    """
    start = _changes(
        runs.kind,
        runs.job,
        _interval(runs),
        *_buckets(runs.first_us, cuts_us),
        hole=~_follows(runs),
    )
    if start.all():
        return runs
    first = np.flatnonzero(start)
    last = np.append(first[1:], len(start)) - 1
    return Runs(
        gpu=runs.gpu[first],
        node=runs.node[last],
        first_us=runs.first_us[first],
        last_us=runs.last_us[last],
        kind=runs.kind[first],
        job=runs.job[first],
        samples=_sum(runs.samples, first),
        obs_ms=_sum(runs.obs_ms, first),
        energy_uj=np.stack([_sum(values, first) for values in runs.energy_uj]),
        energy_seen=np.stack([_any(values, first) for values in runs.energy_seen]),
        energy_obs_ms=_sum(runs.energy_obs_ms, first),
    )


def differing(old: Runs, new: Runs) -> tuple[BoolArray, BoolArray]:
    """Return which of the old runs are gone, and which of the new ones were not there.

    A run that differs in anything is both. Of one GPU no two runs of a side begin together.
    """
    count = len(old)
    gpu, first_us = (
        np.concatenate([getattr(old, name), getattr(new, name)]) for name in ("gpu", "first_us")
    )
    order = np.lexsort((first_us, gpu))  # stable: an old run stands before its new self
    here, there = order[:-1], order[1:]
    pair = (here < count) & (there >= count)
    here, there = here[pair], there[pair] - count
    same = np.ones(len(here), dtype=np.bool_)
    for f in fields(Runs):
        equal = getattr(old, f.name)[..., here] == getattr(new, f.name)[..., there]
        same &= equal if equal.ndim == 1 else equal.all(axis=0)
    gone, added = np.ones(count, dtype=np.bool_), np.ones(len(new), dtype=np.bool_)
    gone[here[same]] = False
    added[there[same]] = False
    return gone, added


def empty_runs() -> Runs:
    """Return no runs."""
    none = np.zeros(0, dtype=np.int64)
    code = np.zeros(0, dtype=np.int32)
    return Runs(
        gpu=code,
        node=code,
        first_us=none,
        last_us=none,
        kind=np.zeros(0, dtype=np.int8),
        job=code,
        samples=none,
        obs_ms=none,
        energy_uj=np.zeros((len(ENERGY_SOURCES), 0), dtype=np.int64),
        energy_seen=np.zeros((len(ENERGY_SOURCES), 0), dtype=np.bool_),
        energy_obs_ms=none,
    )


def raw_runs(
    rows: Rows,
    kind: CodeArray,
    job: NDArray[np.int32],
    node: NDArray[np.int32] | None = None,
    cuts_us: Sequence[int] = (),
) -> Runs:
    """Return the runs of rows that are in the order (gpu, ts_us).

    A run ends at a hole, at a UTC hour, and where kind, job or nominal interval change. What is
    cut here without need (an hour, a job) is joined again by `stitch`.

    Args:
        rows: the samples.
        kind: what `classify` said about each.
        job: code of each row's owner, -1 for none.
        node: code of each row's node; the last one of a run counts.
        cuts_us: further stamps at which runs are cut, for periods that end inside an hour.
    """
    start = _changes(
        rows.gpu,
        kind,
        job,
        rows.obs_ms,
        *_buckets(rows.ts_us, cuts_us),
        hole=_holes(rows.ts_us, rows.ts_us, rows.obs_ms),
    )
    first = np.flatnonzero(start)
    last = np.append(first[1:], len(start)) - 1 if len(first) else first
    energies = [_energy(rows, code, first) for code in range(len(ENERGY_SOURCES))]
    known = rows.energy_source >= 0
    return Runs(
        gpu=rows.gpu[first],
        node=np.zeros(len(first), dtype=np.int32) if node is None else node[last],
        first_us=rows.ts_us[first],
        last_us=rows.ts_us[last],
        kind=kind[first],
        job=job[first],
        samples=(last - first + 1).astype(np.int64),
        obs_ms=_sum(rows.obs_ms, first),
        energy_uj=np.stack([energy for energy, _ in energies]),
        energy_seen=np.stack([seen for _, seen in energies]),
        energy_obs_ms=_sum(rows.obs_ms if known.all() else np.where(known, rows.obs_ms, 0), first),
    )


def _energy(rows: Rows, source: int, first: NDArray[np.int64]) -> tuple[IntArray, BoolArray]:
    """Return each run's energy from one source, and whether it has any."""
    has = rows.energy_source == source
    if not has.any():
        return np.zeros(len(first), dtype=np.int64), np.zeros(len(first), dtype=np.bool_)
    if has.all():
        return _sum(rows.energy_uj, first), np.ones(len(first), dtype=np.bool_)
    return _sum(np.where(has, rows.energy_uj, 0), first), _any(has, first)


def stitch(runs: Runs, min_interval_s: int, cuts_us: Sequence[int] = ()) -> Intervals:
    """Return the intervals that runs make, over the borders of hours and jobs.

    A stretch of low runs without a hole that is long enough becomes execution-idle, whole; a
    shorter one becomes active. A change of owner, of evidence (counters or utilisation) or of hour
    splits the pieces, not the stretch whose length is tested.

    Args:
        runs: in the order (gpu, first_us).
        min_interval_s: length from which a low stretch is execution-idle.
        cuts_us: further stamps at which pieces are cut.
    """
    follows = _follows(runs)
    kind = runs.kind.copy()
    kind[_short_lows(runs, follows, min_interval_s)] -= _RELABEL
    state = RAW_OF_KIND[kind]
    run_start = np.flatnonzero(_changes(state, hole=~follows))
    run_ms = _spread(_sum(runs.obs_ms, run_start), run_start, len(runs))
    piece = _changes(state, kind, runs.job, *_buckets(runs.first_us, cuts_us), hole=~follows)
    first = np.flatnonzero(piece)
    last = np.append(first[1:], len(piece)) - 1 if len(first) else first
    return Intervals(
        gpu=runs.gpu[first],
        node=runs.node[last],
        first_us=runs.first_us[first],
        last_us=runs.last_us[last],
        kind=kind[first],
        job=runs.job[first],
        samples=_sum(runs.samples, first),
        obs_ms=_sum(runs.obs_ms, first),
        energy_uj=np.stack([_sum(values, first) for values in runs.energy_uj]),
        energy_seen=np.stack([_any(values, first) for values in runs.energy_seen]),
        energy_obs_ms=_sum(runs.energy_obs_ms, first),
        run_ms=run_ms[first],
    )


def firm_borders(runs: Runs, min_interval_s: int) -> BoolArray:
    """Return True where no row outside these runs can join a run to the one before it.

    That holds at a hole, between states that never merge, and at the edge of a low stretch that is
    long enough already: more rows can only make it longer. False at each GPU's first run.
    """
    follows = _follows(runs)
    raw = RAW_OF_KIND[runs.kind]
    group = np.where(raw == Raw.LOW, np.int8(Raw.ACTIVE), raw)  # low and active may merge
    low = raw == Raw.LOW
    long = low & ~_short_lows(runs, follows, min_interval_s)
    firm = ~follows
    firm[1:] |= group[1:] != group[:-1]
    firm[1:] |= (low[1:] != low[:-1]) & (long[1:] | long[:-1])
    firm &= ~_changes(runs.gpu)
    return firm


def _short_lows(runs: Runs, follows: BoolArray, min_interval_s: int) -> BoolArray:
    """Return True for the low runs whose stretch is too short."""
    low = RAW_OF_KIND[runs.kind] == Raw.LOW
    stretch = np.flatnonzero(_changes(low, hole=~follows))
    length_ms = _spread(_sum(runs.obs_ms, stretch), stretch, len(runs))
    return np.asarray(low & (length_ms < MS_PER_S * min_interval_s - LENGTH_SLACK_MS))


def _follows(runs: Runs) -> BoolArray:
    """Return True where a run goes on from the one before: same GPU, no hole."""
    follows = ~_holes(runs.first_us, runs.last_us, _interval(runs))
    return np.asarray(follows & ~_changes(runs.gpu))


def _interval(runs: Runs) -> IntArray:
    return runs.obs_ms // np.maximum(runs.samples, 1)


def _holes(
    first_us: IntArray, last_us: IntArray, interval_ms: NDArray[np.integer[Any]]
) -> BoolArray:
    """Return True where something is missing before an entry; always at the first one."""
    hole = np.ones(len(first_us), dtype=np.bool_)
    if len(first_us) > 1:
        step_us = first_us[1:] - last_us[:-1]
        lowest, highest = interval_ms.min(), interval_ms.max()
        interval: Any = int(lowest) if lowest == highest else interval_ms[1:].astype(np.int64)
        longest_us = interval * (3 * US_PER_MS // 2)
        np.greater_equal(step_us, longest_us, out=hole[1:])
    return hole


def _changes(*keys: NDArray[np.generic], hole: BoolArray | None = None) -> BoolArray:
    """Return True at the first entry and wherever any key differs from the entry before."""
    change = np.zeros(len(keys[0]), dtype=np.bool_) if hole is None else hole.copy()
    change[:1] = True
    for key in keys:
        change[1:] |= key[1:] != key[:-1]
    return change


def _buckets(ts_us: IntArray, cuts_us: Sequence[int]) -> list[IntArray]:
    """Return numbers that change at each UTC hour and each cut; none without a border."""
    if not len(ts_us):
        return []
    lowest, highest = int(ts_us.min()), int(ts_us.max())
    found = []
    if lowest // US_PER_HOUR != highest // US_PER_HOUR:
        found.append(ts_us // US_PER_HOUR)
    cuts = [cut for cut in sorted(cuts_us) if lowest < cut <= highest]
    if cuts:
        found.append(np.searchsorted(np.array(cuts, dtype=np.int64), ts_us, side="right"))
    return found


def _sum(values: NDArray[np.integer[Any]], first: NDArray[np.int64]) -> IntArray:
    if not len(first):
        return np.zeros(0, dtype=np.int64)
    return np.add.reduceat(values, first, dtype=np.int64)


def _any(flags: BoolArray, first: NDArray[np.int64]) -> BoolArray:
    if not len(first):
        return np.zeros(0, dtype=np.bool_)
    return np.asarray(np.logical_or.reduceat(flags, first), dtype=np.bool_)


def _spread(values: IntArray, first: NDArray[np.int64], size: int) -> IntArray:
    """Return each group's value for every entry of the group."""
    return np.repeat(values, np.diff(np.append(first, size)))
