"""What files say about their GPUs: states, energy, idle runs, what is unknown, what looks wrong.

Pure: rows in, value objects out. Text and page are made from these alone, so they agree.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from analysis.classify import RAW_NAMES, STATES, VERDICTS, classify
from analysis.frame import ENERGY_SOURCES, BoolArray, CodeArray, Column, IntArray
from analysis.offline_findings import Finding, findings
from analysis.offline_rows import Gpu, Samples
from analysis.offline_series import Series, power_mw, series
from analysis.runs import Intervals, Runs, raw_runs, stitch, take
from analysis.shares import StateTotal, shares, totals
from idlewatt.model import Basis, EnergySource, State, Thresholds
from idlewatt.units import MS_PER_S, US_PER_MS

MOMENT_ROWS: Final = 2
"""Up to so many readings of a GPU are moments, not a time line."""

KEPT_RUNS: Final = 10
LONG_MS: Final = 5 * 60 * MS_PER_S
"""From here on a run is a wait of a program, and not a pause between two pieces of work."""
KEPT_MOMENTS: Final = 64


@dataclass(frozen=True, slots=True)
class Totals:
    """Time and energy by state of a GPU or of all.

    Attributes:
        states: in the order of `STATES`.
        basis_ms: time in execution (active, execution-idle) by the evidence it rests on.
        unknown_ms: time of unknown state by reason.
        seen_ms: time with a reading.
        span_ms: time from the first to the last reading of the node.
    """

    states: tuple[StateTotal, ...]
    basis_ms: dict[Basis, int]
    unknown_ms: dict[str, int]
    seen_ms: int
    span_ms: int

    def of(self, state: State) -> StateTotal:
        """Return one state's."""
        return self.states[STATES.index(state)]

    @property
    def held_ms(self) -> int:
        """Return the time in execution: a program held the GPU and its state is known."""
        return self.of(State.ACTIVE).obs_ms + self.of(State.EXECUTION_IDLE).obs_ms

    @property
    def held_uj(self) -> int | None:
        """Return the energy of the time in execution; None where none is known."""
        return _sum_known(
            [self.of(State.ACTIVE).energy_uj, self.of(State.EXECUTION_IDLE).energy_uj]
        )

    @property
    def energy_uj(self) -> int | None:
        """Return the energy of all states; None where none is known."""
        return _sum_known([total.energy_uj for total in self.states])

    @property
    def energy_ms(self) -> int:
        """Return the time that has an energy."""
        return sum(total.energy_obs_ms for total in self.states)

    @property
    def idle_time_share(self) -> float | None:
        """Return execution-idle over in-execution time."""
        idle = self.of(State.EXECUTION_IDLE).obs_ms
        return idle / self.held_ms if self.held_ms else None

    @property
    def idle_energy_share(self) -> float | None:
        """Return execution-idle over in-execution energy; None where no energy is known."""
        idle, held = self.of(State.EXECUTION_IDLE).energy_uj, self.held_uj
        if not held:
            return None
        return (idle or 0) / held if idle is not None or not self._idle_ms else None

    @property
    def _idle_ms(self) -> int:
        return self.of(State.EXECUTION_IDLE).obs_ms

    def mean_w(self, state: State) -> float | None:
        """Return the mean power in a state over the time that has an energy."""
        total = self.of(state)
        if total.energy_uj is None or not total.energy_obs_ms:
            return None
        return total.energy_uj / total.energy_obs_ms / 1_000

    @property
    def coverage(self) -> float | None:
        """Return the share of the span that has a reading."""
        return min(self.seen_ms / self.span_ms, 1.0) if self.span_ms else None


def _no_totals() -> Totals:
    none = tuple(
        StateTotal(state, 0, None, tuple(None for _ in ENERGY_SOURCES), 0) for state in STATES
    )
    return Totals(none, {}, {}, 0, 0)


@dataclass(frozen=True, slots=True)
class IdleRun:
    """A stretch in which a program held a GPU and did nothing.

    Attributes:
        gpu: which.
        begin_us: when it began.
        end_us: when it ended.
        length_ms: how long.
        energy_uj: its energy; None where none is known.
        basis: the evidence.
    """

    gpu: Gpu
    begin_us: int
    end_us: int
    length_ms: int
    energy_uj: int | None
    basis: Basis


@dataclass(frozen=True, slots=True)
class GpuResult:
    """One GPU.

    Attributes:
        gpu: which.
        totals: its time and energy.
        first_us: begin of its first reading's interval.
        last_us: stamp of its last reading.
        interval_ms: nominal interval, the most frequent one.
        mean_w: mean power over the time that has an energy.
        peak_w: highest reading.
        peak_us: when.
        limit_w: highest enforced limit.
        sources: where its energy comes from, by time.
        idle_runs: number of execution-idle runs.
        idle_median_s: their median length.
        idle_long_ms: time in the runs of `LONG_MS` or more.
        idle_long_uj: energy of those; None where none is known.
        longest: the longest run.
    """

    gpu: Gpu
    totals: Totals
    first_us: int
    last_us: int
    interval_ms: int
    mean_w: float | None
    peak_w: float | None
    peak_us: int | None
    limit_w: float | None
    sources: tuple[EnergySource, ...]
    idle_runs: int
    idle_median_s: float | None
    idle_long_ms: int
    idle_long_uj: int | None
    longest: IdleRun | None


@dataclass(frozen=True, slots=True)
class Moment:
    """A single reading: what a GPU was doing at that moment, without the length rule.

    Attributes:
        gpu: which.
        at_us: when.
        raw: active, low, deep_idle or unknown.
        basis: the evidence.
        reason: why it is unknown.
        power_w: as read.
        util_gpu_pct: as read.
        util_mem_pct: as read.
        mem_used_mib: as read.
    """

    gpu: Gpu
    at_us: int
    raw: str
    basis: Basis
    reason: str | None
    power_w: float | None
    util_gpu_pct: int | None
    util_mem_pct: int | None
    mem_used_mib: int | None


@dataclass(frozen=True, slots=True)
class Length:
    """In-execution share if another length made a low stretch execution-idle."""

    min_interval_s: int
    time: float | None
    energy: float | None


@dataclass(frozen=True, slots=True)
class Offline:
    """Everything that files say.

    Attributes:
        gpus: per GPU, in the order of node and index.
        totals: of all devices; instances of MIG are left out where their device is there.
        runs: the longest execution-idle runs, longest first.
        moments: readings of GPUs that have too few for a time line.
        series: time lines and power of each GPU, in buckets; None where there are only moments.
        findings: what looks wrong or misleads.
        by_length: shares by minimum length.
        rows: readings.
        rows_by_memory: readings in which memory in use alone shows whether a program held the GPU.
        min_interval_s: length from which a low stretch is execution-idle.
        from_us: begin of the first reading's interval.
        to_us: last stamp.
    """

    gpus: tuple[GpuResult, ...] = ()
    totals: Totals = field(default_factory=_no_totals)
    runs: tuple[IdleRun, ...] = ()
    moments: tuple[Moment, ...] = ()
    series: Series | None = None
    findings: tuple[Finding, ...] = ()
    by_length: tuple[Length, ...] = ()
    rows: int = 0
    rows_by_memory: int = 0
    min_interval_s: int = 5
    from_us: int = 0
    to_us: int = 0

    @property
    def only_moments(self) -> bool:
        """Return whether no GPU has a time line."""
        return self.series is None

    @property
    def devices(self) -> tuple[GpuResult, ...]:
        """Return the GPUs that totals count."""
        return tuple(item for item in self.gpus if _counts(item.gpu, [g.gpu for g in self.gpus]))


def analyse(samples: Samples, thresholds: Thresholds | None = None) -> Offline:
    """Return everything that the rows of some files say.

    Args:
        samples: the rows.
        thresholds: limits of the low-activity test; the paper's where None.
    """
    limits = thresholds or Thresholds()
    rows, columns = samples.rows, samples.columns
    if not len(rows):
        return Offline(min_interval_s=limits.min_interval_s)
    kind = classify(columns, len(rows), limits)
    runs = raw_runs(rows, kind, np.full(len(rows), -1, dtype=np.int32))
    pieces = stitch(runs, limits.min_interval_s)
    counted = np.array([_counts(gpu, samples.gpus) for gpu in samples.gpus])
    spans = _spans(samples)
    counts = np.bincount(rows.gpu, minlength=len(samples.gpus))
    moments = bool((counts <= MOMENT_ROWS).all())
    ours = take(pieces, counted[pieces.gpu])
    return Offline(
        gpus=tuple(
            _gpu(samples, code, take(pieces, pieces.gpu == code), spans[code])
            for code in range(len(samples.gpus))
        ),
        totals=_totals(ours, int(spans[counted].sum())),
        runs=() if moments else _longest(_all_runs(samples.gpus, pieces)),
        moments=_moments(samples, kind, counts) if moments else (),
        series=None if moments else series(samples, np.repeat(pieces.state, pieces.samples)),
        findings=findings(samples, kind),
        by_length=() if moments else _by_length(runs, counted),
        rows=len(rows),
        rows_by_memory=_by_memory(samples),
        min_interval_s=limits.min_interval_s,
        from_us=int((rows.ts_us - rows.obs_ms * US_PER_MS).min()),
        to_us=int(rows.ts_us.max()),
    )


def _counts(gpu: Gpu, gpus: Sequence[Gpu]) -> bool:
    """Return whether totals count a GPU: instances only where their device is not there."""
    return gpu.parent_uuid is None or all(gpu.parent_uuid != other.name for other in gpus)


def _sum_known(values: Sequence[int | None]) -> int | None:
    known = [value for value in values if value is not None]
    return sum(known) if known else None


def _spans(samples: Samples) -> IntArray:
    """Return per GPU how long its node was recorded, in ms."""
    rows = samples.rows
    nodes = {gpu.node_id: number for number, gpu in enumerate(samples.gpus)}
    node = np.array([nodes[gpu.node_id] for gpu in samples.gpus])[rows.gpu]
    spans = np.zeros(len(samples.gpus), dtype=np.int64)
    for code, gpu in enumerate(samples.gpus):
        mine = node == nodes[gpu.node_id]
        begin = (rows.ts_us[mine] - rows.obs_ms[mine] * US_PER_MS).min()
        spans[code] = (rows.ts_us[mine].max() - begin) // US_PER_MS
    return spans


def _totals(pieces: Intervals, span_ms: int) -> Totals:
    basis_ms: dict[Basis, int] = {}
    unknown_ms: dict[str, int] = {}
    for kind, verdict in enumerate(VERDICTS):
        time_ms = int(pieces.obs_ms[pieces.kind == kind].sum())
        if not time_ms:
            continue
        if verdict.reason is not None:
            unknown_ms[verdict.reason] = unknown_ms.get(verdict.reason, 0) + time_ms
        elif verdict.basis is not Basis.RESIDENCY:
            basis_ms[verdict.basis] = basis_ms.get(verdict.basis, 0) + time_ms
    return Totals(tuple(totals(pieces)), basis_ms, unknown_ms, int(pieces.obs_ms.sum()), span_ms)


def _gpu(samples: Samples, code: int, pieces: Intervals, span_ms: int) -> GpuResult:
    rows = samples.rows
    begin, end = np.searchsorted(rows.gpu, [code, code + 1])
    mine = slice(int(begin), int(end))
    power = power_mw(samples, mine)
    limit = samples.columns.get("power_limit_mw")
    limits = limit.values[mine][limit.present()[mine]] if limit is not None else np.zeros(0)
    at = int(np.argmax(np.where(power.present(), power.values, -1)))
    known = bool(power.present().any())
    runs = _all_runs(samples.gpus, pieces)
    long = [run for run in runs if run.length_ms >= LONG_MS]
    all_ = _totals(pieces, span_ms)
    energy_uj = all_.energy_uj
    source = rows.energy_source[mine]
    return GpuResult(
        samples.gpus[code],
        all_,
        int(rows.ts_us[mine][0] - rows.obs_ms[mine][0] * US_PER_MS),
        int(rows.ts_us[mine][-1]),
        int(np.median(rows.obs_ms[mine])),
        None if energy_uj is None or not all_.energy_ms else energy_uj / all_.energy_ms / 1_000,
        float(power.values[at]) / 1_000 if known else None,
        int(rows.ts_us[mine][at]) if known else None,
        float(limits.max()) / 1_000 if len(limits) else None,
        tuple(name for number, name in enumerate(ENERGY_SOURCES) if (source == number).any()),
        len(runs),
        float(np.median([run.length_ms for run in runs])) / MS_PER_S if runs else None,
        sum(run.length_ms for run in long),
        _sum_known([run.energy_uj for run in long]),
        max(runs, key=lambda run: run.length_ms, default=None),
    )


def _first_of_runs(idle: Intervals) -> IntArray:
    """Return where each whole run begins among idle pieces, which are cut at hours."""
    new = np.ones(len(idle), dtype=np.bool_)
    if len(idle) > 1:
        step_ms = (idle.first_us[1:] - idle.last_us[:-1]) // US_PER_MS
        interval_ms = idle.obs_ms[1:] // np.maximum(idle.samples[1:], 1)
        new[1:] = (idle.gpu[1:] != idle.gpu[:-1]) | (step_ms >= interval_ms * 3 // 2)
    return np.flatnonzero(new).astype(np.int64, copy=False)


def _all_runs(gpus: Sequence[Gpu], pieces: Intervals) -> list[IdleRun]:
    """Return the whole execution-idle runs, in the order of the pieces."""
    idle = take(pieces, pieces.state == STATES.index(State.EXECUTION_IDLE))
    first = _first_of_runs(idle)
    if not len(first):
        return []
    last = np.append(first[1:], len(idle)) - 1
    interval_ms = idle.obs_ms[first] // idle.samples[first]
    energy_uj = np.add.reduceat(idle.energy_uj.sum(axis=0), first)
    known = np.add.reduceat(idle.energy_seen.any(axis=0), first)
    columns = (
        idle.gpu[first],
        idle.first_us[first] - interval_ms * US_PER_MS,
        idle.last_us[last],
        np.add.reduceat(idle.obs_ms, first),
        idle.kind[first],
        energy_uj,
        known,
    )
    return [
        IdleRun(gpus[gpu], begin, end, ms, uj if seen else None, VERDICTS[kind].basis)
        for gpu, begin, end, ms, kind, uj, seen in zip(
            *(column.tolist() for column in columns), strict=True
        )
    ]


def _longest(runs: list[IdleRun]) -> tuple[IdleRun, ...]:
    return tuple(sorted(runs, key=lambda run: -run.length_ms)[:KEPT_RUNS])


def _by_length(runs: Runs, counted: BoolArray) -> tuple[Length, ...]:
    ours = take(runs, counted[runs.gpu])
    return tuple(Length(item.min_interval_s, item.time, item.energy) for item in shares(ours))


def _moments(samples: Samples, kind: CodeArray, counts: IntArray) -> tuple[Moment, ...]:
    rows, power = samples.rows, power_mw(samples, slice(None))
    read = [samples.columns.get(name) for name in ("util_gpu_pct", "util_mem_pct", "mem_used_mib")]
    found = []
    for at in range(min(int(counts.sum()), KEPT_MOMENTS)):
        verdict = VERDICTS[kind[at]]
        read_mw = _value(power, at)
        found.append(
            Moment(
                samples.gpus[rows.gpu[at]],
                int(rows.ts_us[at]),
                RAW_NAMES[verdict.raw],
                verdict.basis,
                verdict.reason,
                None if read_mw is None else read_mw / 1_000,
                *(_value(column, at) for column in read),
            )
        )
    return tuple(found)


def _value(column: Column | None, at: int) -> int | None:
    return None if column is None or not column.present()[at] else int(column.values[at])


def _by_memory(samples: Samples) -> int:
    """Return how many rows rest on memory in use: a state of residency without a process list."""
    resident = samples.columns.get("resident")
    processes = samples.columns.get("n_procs")
    if resident is None:
        return 0
    listed = np.zeros(len(samples.rows), bool) if processes is None else processes.present()
    return int((resident.present() & ~listed).sum())
