"""From work to what a sensor shows: exact integrals over time, evaluated wherever one reads.

Between two changes of work everything is constant, so that energy and activity are piecewise
linear in time. A `Track` holds them as running integrals; a sensor's average over a window is the
difference of two readings of an integral. No time step, no error that grows, and any hour comes
out the same whether generated alone or in a row. Power follows the work at once: what is slow on
real boards are the sensors, and those are modelled.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from collector.simulator.cluster import ClusterSpec, Job, schedule_of
from collector.simulator.device import SIGNALS, Process, stable_key
from collector.simulator.profiles import GpuProfile, Sensor
from collector.simulator.workload import (
    ADDED_W,
    RATIO_COLUMNS,
    WIDTH,
    Work,
    habit_of,
    level_table,
    work_of,
)
from idlewatt.units import MIB

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

IDLE_PHASE: Final = -1
PID_BASE: Final = 20_000
PIDS_PER_JOB: Final = 64
_MIX_A: Final = np.uint64(0xBF58476D1CE4E5B9)
_MIX_B: Final = np.uint64(0x94D049BB133111EB)
_GOLDEN: Final = np.uint64(0x9E3779B97F4A7C15)


def hash_bits(key: int, index: Ints) -> NDArray[np.uint64]:
    """Return 64 well-mixed bits for each index: noise that can be read at any place."""
    with np.errstate(over="ignore"):
        bits = (index.astype(np.uint64) + np.uint64(key)) * _GOLDEN
        bits = (bits ^ (bits >> np.uint64(30))) * _MIX_A
        bits = (bits ^ (bits >> np.uint64(27))) * _MIX_B
        return bits ^ (bits >> np.uint64(31))


def hash_uniform(key: int, index: Ints) -> Floats:
    """Return a uniform number in [0, 1) for each index."""
    result: Floats = (hash_bits(key, index) >> np.uint64(11)).astype(np.float64) * 2.0**-53
    return result


def hash_normal(key: int, index: Ints) -> Floats:
    """Return a standard normal number for each index (sum of four uniforms, no far tails)."""
    bits = hash_bits(key, index)
    total = np.zeros(bits.shape)
    for shift in (0, 16, 32, 48):
        total += ((bits >> np.uint64(shift)) & np.uint64(0xFFFF)).astype(np.float64)
    result: Floats = (total / 65_536.0 - 2.0) * np.sqrt(3.0)
    return result


@dataclass(frozen=True, slots=True)
class Track:
    """One GPU over [low_s, high_s): work as running integrals, and its contexts.

    Attributes:
        starts: begin of each interval of work; the first is a dummy without length.
        durations: length of each interval.
        levels: what each interval adds per second, in the columns of `workload`.
        before: integrals up to the begin of each interval.
        phases: what each interval is.
        jobs: jobs that hold the GPU in this time.
        contexts: begin and end of each time with an open context, clipped to the track.
    """

    low_s: float
    high_s: float
    profile: GpuProfile
    starts: Floats
    durations: Floats
    levels: Floats
    before: Floats
    phases: NDArray[np.int8]
    jobs: tuple[Job, ...]
    contexts: Floats

    def at(self, times: Floats) -> Floats:
        """Return the integrals of all columns from the track's begin up to each time."""
        where = np.searchsorted(self.starts, times, side="right") - 1
        spent = np.minimum(times - self.starts[where], self.durations[where])
        result: Floats = self.before[where] + self.levels[where] * spent[:, None]
        return result

    def column(self, times: Floats, column: int) -> Floats:
        """Return the integral of one column up to each time."""
        where = np.searchsorted(self.starts, times, side="right") - 1
        spent = np.minimum(times - self.starts[where], self.durations[where])
        result: Floats = self.before[where, column] + self.levels[where, column] * spent
        return result

    def resident_s(self, times: Floats) -> Floats:
        """Return seconds with an open context from the track's begin up to each time."""
        total = np.zeros(times.shape)
        for begin, end in self.contexts:
            total += np.minimum(np.maximum(times, begin), end) - begin
        return total

    def energy_j(self, times: Floats) -> Floats:
        """Return the true energy from the track's begin up to each time, in joules."""
        power = self.profile.power
        step_w = power.resident_w.value - power.bare_w.value
        return (
            power.bare_w.value * (times - self.low_s)
            + step_w * self.resident_s(times)
            + self.column(times, ADDED_W)
        )

    def phase_before(self, times: Floats) -> NDArray[np.int8]:
        """Return the phase of the last interval that began before each time."""
        where = np.searchsorted(self.starts, times, side="right") - 1
        return self.phases[where]


def added_cap_w(profile: GpuProfile) -> float:
    """Return the most that work adds to an idle context."""
    return profile.power.peak_w.value - profile.power.resident_w.value


def span_energy_j(spec: ClusterSpec, gpu: int, low_s: float, high_s: float) -> float:
    """Return the true energy of one GPU over a span, without the rest of a track."""
    profile = spec.profile_of(gpu // spec.gpus_per_node)
    power, cap_w = profile.power, added_cap_w(profile)
    total = power.bare_w.value * (high_s - low_s)
    step_w = power.resident_w.value - power.bare_w.value
    for job in schedule_of(spec).jobs_on(gpu, low_s, high_s):
        total += step_w * max(min(job.exit_s, high_s) - max(job.context_s, low_s), 0.0)
        watts = level_table(profile, job.kind == "training" and len(job.gpus) > 1)[:, ADDED_W]
        for work in work_of(spec.seed, job, job.gpus.index(gpu), low_s, high_s):
            added = np.minimum(watts[work.phases] * work.scales, cap_w)
            total += float(added @ (work.ends - work.starts))
    return total


def build_track(spec: ClusterSpec, gpu: int, low_s: float, high_s: float) -> Track:
    """Return the track of one GPU over [low_s, high_s)."""
    profile = spec.profile_of(gpu // spec.gpus_per_node)
    jobs = schedule_of(spec).jobs_on(gpu, low_s, high_s)
    works: list[Work] = []
    levels = [np.zeros((1, WIDTH))]
    for job in jobs:
        rank = job.gpus.index(gpu)
        table = level_table(profile, job.kind == "training" and len(job.gpus) > 1)
        for work in work_of(spec.seed, job, rank, low_s, high_s):
            rows = table[work.phases]
            rows[:, :ADDED_W] *= work.scales[:, None]
            np.minimum(rows[:, :RATIO_COLUMNS], 1.0, out=rows[:, :RATIO_COLUMNS])
            np.minimum(rows[:, len(SIGNALS) : ADDED_W], 1.0, out=rows[:, len(SIGNALS) : ADDED_W])
            rows[:, ADDED_W] *= work.scales
            works.append(work)
            levels.append(rows)
    starts = np.concatenate([[low_s], *(work.starts for work in works)])
    durations = np.concatenate([[0.0], *(work.ends - work.starts for work in works)])
    phases = np.concatenate(
        [np.array([IDLE_PHASE], dtype=np.int8), *(work.phases for work in works)]
    )
    matrix = np.concatenate(levels)
    np.minimum(matrix[:, ADDED_W], added_cap_w(profile), out=matrix[:, ADDED_W])
    before = np.zeros_like(matrix)
    np.cumsum(matrix[:-1] * durations[:-1, None], axis=0, out=before[1:])
    contexts = [
        (max(job.context_s, low_s), min(job.exit_s, high_s))
        for job in jobs
        if job.context_s < job.exit_s and job.context_s < high_s and job.exit_s > low_s
    ]
    return Track(
        low_s=low_s,
        high_s=high_s,
        profile=profile,
        starts=starts,
        durations=durations,
        levels=matrix,
        before=before,
        phases=phases,
        jobs=tuple(jobs),
        contexts=np.array(contexts).reshape(-1, 2),
    )


@dataclass(frozen=True, slots=True)
class Board:
    """What makes one board differ from the next of its model; fixed at its making or at boot.

    Attributes:
        gain: proportional error of both power sensors.
        counter_gain: proportional error of the energy counter, drawn on its own.
        counter_base_mj: what the counter had reached at the cluster's origin.
        average_phase_s: when in its period the average is renewed.
        instant_phase_s: when in its period the window of the instant reading lies.
        counter_phase_s: when in its period the counter is renewed.
    """

    key: int
    gain: float
    counter_gain: float
    counter_base_mj: int
    average_phase_s: float
    instant_phase_s: float
    counter_phase_s: float


@functools.lru_cache(maxsize=4096)
def board_of(spec: ClusterSpec, gpu: int) -> Board:
    """Return the individual traits of one board."""
    key = stable_key(spec.seed, "board", gpu)
    rng = np.random.default_rng(key)
    power = spec.profile_of(gpu // spec.gpus_per_node).power
    spread, counter_spread = power.gain_spread.value, power.counter_spread.value
    return Board(
        key=key,
        gain=float(rng.uniform(-spread, spread)),
        counter_gain=float(rng.uniform(-counter_spread, counter_spread)),
        counter_base_mj=int(rng.integers(10**8, 10**11)),
        average_phase_s=float(rng.uniform(0, 0.1)),
        instant_phase_s=float(rng.uniform(0, power.instant.period_s.value)),
        counter_phase_s=float(rng.uniform(0, power.counter_period_s.value)),
    )


def updates(times: Floats, period_s: float, phase_s: float) -> tuple[Floats, Ints]:
    """Return when a value read at each time was renewed, and the number of that renewal."""
    number = np.floor((times - phase_s) / period_s + 1e-9)
    return number * period_s + phase_s, number.astype(np.int64)


def sensor_mw(track: Track, board: Board, sensor: Sensor, times: Floats, average: bool) -> Ints:
    """Return what a power sensor shows when read at each time.

    A boxcar of the sensor's window, ended its lag before the last renewal, times the board's gain,
    plus noise that belongs to the renewal: two reads between renewals see the same value.
    """
    phase_s = board.average_phase_s if average else board.instant_phase_s
    renewed, number = updates(times, sensor.period_s.value, phase_s)
    ends = renewed - sensor.lag_s.value
    window_s = sensor.window_s.value
    mean_w = (track.energy_j(ends) - track.energy_j(ends - window_s)) / window_s
    return noisy_mw(track.profile, board, mean_w, number, average)


def noisy_mw(
    profile: GpuProfile, board: Board, mean_w: Floats, number: Ints, average: bool
) -> Ints:
    """Return window means as the sensor reports them: gain, noise, whole milliwatts."""
    power = profile.power
    noise = hash_normal(board.key ^ (0x5A5A if average else 0xA5A5), number)
    sigma_w = power.noise_w.value + power.noise_ratio.value * mean_w
    shown_w = mean_w * (1.0 + board.gain) + sigma_w * noise
    result: Ints = np.rint(np.maximum(shown_w, 0.0) * 1_000).astype(np.int64)
    return result


def counter_mj(board: Board, energy_uj: Floats) -> Ints:
    """Return the energy counter for true energies since the origin (at its last renewal).

    The counter is an accumulation of its own: it misses nothing between power readings, is renewed
    about ten times a second, and carries its own small gain error instead of the sensors'.
    """
    grown = np.floor(energy_uj * ((1.0 + board.counter_gain) / 1_000.0))
    result: Ints = grown.astype(np.int64) + board.counter_base_mj
    return result


def relax(target: Floats, first: float, tau_s: float) -> Floats:
    """Return the first-order response to a target sampled once a second, starting at `first`."""
    block = 64
    decay = float(np.exp(-1.0 / tau_s))
    size = target.size
    padded = np.zeros((-(-size // block), block))
    padded.ravel()[:size] = target
    steps = np.arange(block)
    lower = np.tril(decay ** np.maximum(steps[:, None] - steps[None, :], 0)) * (1.0 - decay)
    driven: Floats = padded @ lower.T
    fading = decay ** (steps + 1.0)
    state = first
    for number in range(driven.shape[0]):
        driven[number] += fading * state
        state = float(driven[number, -1])
    return driven.ravel()[:size]


def temperature_c(profile: GpuProfile, power_w: Floats) -> Floats:
    """Return the GPU temperature for mean watts of consecutive seconds.

    Starts in the steady state of the first minute; callers give some time constants of run-up.
    """
    heat = profile.thermal
    goal = heat.base_c.value + heat.c_per_w.value * power_w
    return relax(goal, float(goal[:60].mean()), heat.tau_s.value)


def memory_bytes(spec: ClusterSpec, job: Job, profile: GpuProfile) -> int:
    """Return the device memory that one rank of a job holds."""
    share = habit_of(spec.seed, job).memory
    room_mib = profile.mem_total_mib.value - profile.mem_reserved_mib.value
    return int(share * room_mib) * MIB


def processes_of(
    spec: ClusterSpec, job: Job, rank: int, profile: GpuProfile
) -> tuple[Process, ...]:
    """Return the processes of a job on one of its GPUs; a few notebooks run two kernels."""
    held = memory_bytes(spec, job, profile)
    count = 2 if job.kind == "notebook" and job.number % 4 == 0 else 1
    first = PID_BASE + job.number * PIDS_PER_JOB + 2 * (rank % (PIDS_PER_JOB // 2))
    return tuple((first + extra, held // count) for extra in range(count))
