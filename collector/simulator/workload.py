"""The work inside a job: intervals in which the GPU has something scheduled, and how busy it is.

A job's life after its context opens is cut into segments of fixed length. Each segment is drawn
from its own random stream, so any hour can be generated alone. Between intervals nothing is
scheduled: that, and nothing measured, is what ground truth calls idle.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

import numpy as np
from numpy.typing import NDArray

from collector.simulator.cluster import Job
from collector.simulator.device import SIGNALS, stable_key
from collector.simulator.profiles import GpuProfile

Floats = NDArray[np.float64]
Codes = NDArray[np.int8]

GAP: Final = -1
DAY_S: Final = 86_400.0
SEGMENT_S: Final = 600.0
PIECE_S: Final = 1.5
RATIO_COLUMNS: Final = 8  # the first columns of a level row are ratios, at most 1
# A level row: SIGNALS, then these.
KERNEL: Final = len(SIGNALS)  # share of time in which a kernel runs
MEMORY: Final = len(SIGNALS) + 1  # share of time in which memory is read or written
ADDED_W: Final = len(SIGNALS) + 2  # watts above the idle context
WORK: Final = len(SIGNALS) + 3  # 1 while anything is scheduled
WIDTH: Final = len(SIGNALS) + 4


class Phase(IntEnum):
    """What an interval of work is."""

    LOAD = 0
    COMPUTE = 1
    EXCHANGE = 2
    OPTIMISE = 3
    CHECKPOINT = 4
    PREFILL = 5
    DECODE = 6
    BATCH = 7
    CELL = 8
    TRICKLE = 9  # kernels so small that no counter reaches 5 %
    PING = 10  # a health check of some milliseconds


# gr, sm, occupancy, tensor, fp64, fp32, fp16, dram | pcie tx, rx, nvlink tx, rx as shares of the
# link | kernel running, memory busy. All assumed; they follow the shapes in the papers.
_LEVELS: Final = np.array(
    [
        [0.02, 0.005, 0.002, 0, 0, 0, 0, 0.020, 0.001, 0.20, 0, 0, 0.0, 0.4],
        [0.99, 0.92, 0.35, 0.52, 0, 0.12, 0.05, 0.48, 0.002, 0.010, 0.05, 0.05, 1.0, 0.7],
        [0.99, 0.85, 0.10, 0.00, 0, 0.04, 0.02, 0.22, 0.010, 0.010, 0.55, 0.55, 1.0, 0.5],
        [0.98, 0.80, 0.50, 0.00, 0, 0.30, 0.02, 0.75, 0.001, 0.001, 0, 0, 1.0, 0.9],
        [0.02, 0.005, 0.002, 0, 0, 0, 0, 0.020, 0.30, 0.001, 0, 0, 0.0, 0.5],
        [0.99, 0.94, 0.30, 0.65, 0, 0.08, 0.06, 0.42, 0.002, 0.004, 0.02, 0.02, 1.0, 0.6],
        [0.97, 0.48, 0.18, 0.08, 0, 0.05, 0.12, 0.62, 0.001, 0.001, 0.01, 0.01, 1.0, 0.9],
        [0.98, 0.80, 0.35, 0.40, 0, 0.15, 0.08, 0.50, 0.010, 0.050, 0, 0, 1.0, 0.7],
        [0.90, 0.55, 0.30, 0.10, 0, 0.30, 0.02, 0.30, 0.005, 0.020, 0, 0, 1.0, 0.5],
        [0.20, 0.025, 0.005, 0, 0, 0.01, 0, 0.015, 0, 0, 0, 0, 0.2, 0.05],
        [0.90, 0.30, 0.10, 0, 0, 0.10, 0, 0.10, 0, 0, 0, 0, 1.0, 0.3],
    ]
)
# Share of the way from idle context to peak that each ratio adds; assumed.
_POWER_WEIGHTS: Final = np.array([0.01, 0.28, 0.02, 0.45, 0.30, 0.14, 0.10, 0.27])
_LINK_WEIGHTS: Final = np.array([0.04, 0.04, 0.04, 0.04])


@functools.lru_cache(maxsize=32)
def level_table(profile: GpuProfile, shared: bool) -> Floats:
    """Return a level row for each phase on this model; `shared` jobs exchange over links."""
    table = np.zeros((len(Phase), WIDTH))
    shares = _LEVELS[:, RATIO_COLUMNS : RATIO_COLUMNS + 4].copy()
    if not shared:
        shares[:, 2:] = 0.0
    elif not profile.nvlink_links:  # ranks talk over PCIe instead
        shares[Phase.EXCHANGE, :2] = 0.5
        shares[:, 2:] = 0.0
    links = np.array([profile.pcie_max_gb_s.value] * 2 + [profile.nvlink_max_gb_s.value] * 2) * 1e9
    table[:, :RATIO_COLUMNS] = _LEVELS[:, :RATIO_COLUMNS]
    table[:, RATIO_COLUMNS:KERNEL] = shares * links
    table[:, KERNEL] = _LEVELS[:, -2]
    table[:, MEMORY] = _LEVELS[:, -1]
    span_w = profile.power.peak_w.value - profile.power.resident_w.value
    load = table[:, :RATIO_COLUMNS] @ _POWER_WEIGHTS + shares @ _LINK_WEIGHTS
    table[:, ADDED_W] = span_w * np.minimum(load, 1.0)
    table[:, WORK] = 1.0
    return table


@dataclass(frozen=True, slots=True)
class Work:
    """Intervals of work in order of time, without overlap; times relative to a given zero."""

    starts: Floats
    ends: Floats
    phases: Codes
    scales: Floats

    def shifted(self, by_s: float, low_s: float, high_s: float) -> Work:
        """Return the part inside [low_s, high_s) after moving everything by `by_s`."""
        starts = np.maximum(self.starts + by_s, low_s)
        ends = np.minimum(self.ends + by_s, high_s)
        keep = ends > starts
        return Work(starts[keep], ends[keep], self.phases[keep], self.scales[keep])


def _chain(durations: Floats, phases: tuple[int, ...], length_s: float) -> tuple[Floats, ...]:
    """Return starts, ends and phases of rows of durations laid end to end up to `length_s`."""
    flat = durations.ravel()
    ends = np.cumsum(flat)
    starts = ends - flat
    codes = np.tile(np.array(phases, dtype=np.int8), durations.shape[0])
    keep = (codes != GAP) & (flat > 0) & (starts < length_s)
    return starts[keep], np.minimum(ends[keep], length_s), codes[keep]


def _lognormal(rng: np.random.Generator, median: float, sigma: float, size: int) -> Floats:
    return np.exp(rng.normal(np.log(median), sigma, size))


@dataclass(frozen=True, slots=True)
class Habit:
    """What a job repeats, drawn once per job.

    Attributes:
        segment_s: length of a segment; a training job writes a checkpoint at the end of each.
        step_s: median length of a step, request or unit of input.
        gap_s: median of the pauses between units.
        stall: chance that a unit waits for input.
        copy_s: how long a checkpoint copies to the host.
        write_s: how long it then waits for storage.
        load_s: how long weights travel to the device after the context opens.
        memory: share of the device memory it holds.
        phase: position in the day, 0-1.
    """

    segment_s: float
    step_s: float
    gap_s: float
    stall: float
    copy_s: float
    write_s: float
    load_s: float
    memory: float
    phase: float


@functools.lru_cache(maxsize=4096)
def habit_of(seed: int, job: Job) -> Habit:
    """Return what a job repeats."""
    rng = np.random.default_rng(stable_key(seed, "habit", job.number))
    training = job.kind == "training"
    return Habit(
        segment_s=float(rng.choice([300.0, 450.0, 600.0, 900.0])) if training else SEGMENT_S,
        step_s=float(rng.uniform(0.8, 5.0)),
        gap_s=float(rng.uniform(4.0, 8.0)),
        stall=float(rng.uniform(0.002, 0.02)),
        copy_s=float(rng.uniform(2.0, 7.0)),
        write_s=float(rng.uniform(4.0, 18.0)),
        load_s=float(rng.uniform(6.0, 30.0)),
        memory=float(rng.uniform(0.25, 0.92)),
        phase=float(rng.random()),
    )


def _training(rng: np.random.Generator, habit: Habit, shared: bool) -> tuple[Floats, ...]:
    quiet_s = habit.copy_s + habit.write_s
    length_s = habit.segment_s - quiet_s
    count = int(length_s / habit.step_s * 1.3) + 8
    step = habit.step_s * _lognormal(rng, 1.0, 0.04, count)
    stalls = np.where(rng.random(count) < habit.stall, _lognormal(rng, 6.0, 0.9, count), 0.0)
    host = rng.uniform(0.01, 0.04, count) * step
    talk = (rng.uniform(0.12, 0.22, count) if shared else np.zeros(count)) * step
    tune = 0.08 * step
    rows = np.stack([stalls, host, step - host - talk - tune, talk, tune], axis=1)
    phases = (GAP, GAP, Phase.COMPUTE, Phase.EXCHANGE, Phase.OPTIMISE)
    starts, ends, codes = _chain(rows, phases, length_s)
    return (
        np.append(starts, length_s),
        np.append(ends, length_s + habit.copy_s),
        np.append(codes, np.int8(Phase.CHECKPOINT)),
    )


def _serving(rng: np.random.Generator, habit: Habit, at_s: float) -> tuple[Floats, ...]:
    swing = 1.0 + 0.4 * np.sin(2 * np.pi * (at_s / DAY_S + habit.phase))
    count = int(habit.segment_s / 3.0) + 16
    gap = _lognormal(rng, habit.gap_s * swing, 1.0, count)
    ping = np.where((gap > 3.0) & (rng.random(count) < 0.1), 0.015, 0.0)
    trickle = np.where((gap > 8.0) & (rng.random(count) < 0.004), 2.5, 0.0)
    prefill = np.minimum(_lognormal(rng, 0.3, 0.6, count), 4.0)
    decode = np.minimum(_lognormal(rng, habit.step_s, 0.7, count), 40.0)
    rows = np.stack([0.5 * gap, ping, 0.5 * gap, trickle, prefill, decode], axis=1)
    phases = (GAP, Phase.PING, GAP, Phase.TRICKLE, Phase.PREFILL, Phase.DECODE)
    return _chain(rows, phases, habit.segment_s)


def _batch(rng: np.random.Generator, habit: Habit) -> tuple[Floats, ...]:
    count = int(habit.segment_s / 6.0) + 16
    wait = np.where(rng.random(count) < 0.4, _lognormal(rng, 3.5, 0.9, count), 0.05)
    fetch = rng.uniform(0.1, 0.6, count)
    rows = np.stack([wait, fetch, 6.0 * habit.step_s * _lognormal(rng, 1.0, 0.4, count)], axis=1)
    return _chain(rows, (GAP, Phase.LOAD, Phase.BATCH), habit.segment_s)


def _notebook(rng: np.random.Generator, habit: Habit) -> tuple[Floats, ...]:
    rows = np.stack(
        [_lognormal(rng, 60.0 * habit.gap_s, 1.2, 24), _lognormal(rng, 3.0, 1.0, 24)], axis=1
    )
    return _chain(rows, (GAP, Phase.CELL), habit.segment_s)


@functools.lru_cache(maxsize=512)
def segment(seed: int, job: Job, rank: int, number: int) -> Work:
    """Return the work of one segment of a job on one rank, relative to the segment's start.

    Ranks of a training job move in step; in all other kinds each GPU has its own stream.
    """
    habit = habit_of(seed, job)
    shared = job.kind == "training"
    stream = 0 if shared else rank
    rng = np.random.default_rng(stable_key(seed, "segment", job.number, stream, number))
    if shared:
        starts, ends, phases = _training(rng, habit, len(job.gpus) > 1)
    elif job.kind == "serving":
        starts, ends, phases = _serving(rng, habit, job.context_s + number * habit.segment_s)
    elif job.kind == "batch":
        starts, ends, phases = _batch(rng, habit)
    else:
        starts, ends, phases = _notebook(rng, habit)
    return _uneven(rng, starts, ends, phases.astype(np.int8))


def _uneven(rng: np.random.Generator, starts: Floats, ends: Floats, phases: Codes) -> Work:
    """Return the work cut into pieces of at most `PIECE_S`, each a little more or less busy."""
    pieces = np.ceil((ends - starts) / PIECE_S).astype(np.int64)
    length = np.repeat((ends - starts) / pieces, pieces)
    first = np.repeat(np.cumsum(pieces) - pieces, pieces)
    begins = np.repeat(starts, pieces) + (np.arange(length.size) - first) * length
    scales = rng.normal(1.0, 0.06, length.size)
    return Work(begins, begins + length, np.repeat(phases, pieces), scales)


def work_of(seed: int, job: Job, rank: int, low_s: float, high_s: float) -> list[Work]:
    """Return a job's work on one rank inside [low_s, high_s), in order, clipped to it."""
    low_s, high_s = max(low_s, job.context_s), min(high_s, job.exit_s)
    if low_s >= high_s:
        return []
    habit = habit_of(seed, job)
    begin_s = job.context_s + 0.5  # the context alone, then weights, then the pattern
    body_s = begin_s + habit.load_s
    pieces: list[Work] = []
    if low_s < body_s:
        load = Work(
            np.array([begin_s]),
            np.array([body_s]),
            np.array([Phase.LOAD], dtype=np.int8),
            np.ones(1),
        )
        pieces.append(load.shifted(0.0, low_s, high_s))
    first = max(int((low_s - body_s) // habit.segment_s), 0)
    last = int((high_s - body_s) // habit.segment_s)
    for number in range(first, last + 1):
        offset_s = body_s + number * habit.segment_s
        pieces.append(segment(seed, job, rank, number).shifted(offset_s, low_s, high_s))
    return pieces
