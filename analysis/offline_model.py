"""Value objects of what files say about their GPUs; text, page and JSON are made from these."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from analysis.classify import STATES
from analysis.frame import ENERGY_SOURCES
from analysis.offline_findings import Finding
from analysis.offline_rows import Gpu
from analysis.offline_series import Series
from analysis.shares import StateTotal
from idlewatt.model import Basis, EnergySource, State


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
        return sum_known([self.of(State.ACTIVE).energy_uj, self.of(State.EXECUTION_IDLE).energy_uj])

    @property
    def energy_uj(self) -> int | None:
        """Return the energy of all states; None where none is known."""
        return sum_known([total.energy_uj for total in self.states])

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
        lacking: fields of nvidia-smi that would have told more, none of whose values is there.
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
    lacking: tuple[str, ...] = ()

    @property
    def only_moments(self) -> bool:
        """Return whether no GPU has a time line."""
        return self.series is None

    @property
    def devices(self) -> tuple[GpuResult, ...]:
        """Return the GPUs that totals count."""
        return tuple(item for item in self.gpus if counts(item.gpu, [g.gpu for g in self.gpus]))


def counts(gpu: Gpu, gpus: Sequence[Gpu]) -> bool:
    """Return whether totals count a GPU: instances only where their device is not there."""
    return gpu.parent_uuid is None or all(gpu.parent_uuid != other.name for other in gpus)


def sum_known(values: Sequence[int | None]) -> int | None:
    """Return the sum of what is known; None where nothing is."""
    known = [value for value in values if value is not None]
    return sum(known) if known else None
