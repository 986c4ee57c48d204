"""From stamps of a log to ticks of a grid: one row a nominal tick, in UTC.

A log of one reading a second drifts: it waits a second after each reading, so its true period is
a little longer. Its nominal interval is a second all the same. Each reading goes to the nearest
tick; a tick that drift jumps over gets the reading after it; where readings are truly missing,
nothing is put.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from idlewatt.units import MS_PER_S, US_PER_MS

DEFAULT_MS: Final = MS_PER_S
_WHOLE_MS: Final = (
    *(100, 200, 250, 500),
    *(1_000, 2_000, 3_000, 5_000, 10_000, 15_000, 20_000, 30_000),
    *(60_000, 120_000, 300_000, 600_000, 900_000, 1_800_000, 3_600_000),
)
_DRIFT: Final = 0.05
_LEAST_US: Final = 10 * US_PER_MS
_MOST_MS: Final = 86_400_000


def nominal_interval_ms(series: Iterable[Sequence[int]]) -> int | None:
    """Return the interval a log was asked for, or None where no GPU has two readings.

    The median step in whole milliseconds; where that is within 5 % of an interval that people
    ask for (1 s, 5 s, 100 ms, ...), that one: then files of one GPU share one grid.

    Args:
        series: stamps in µs of each GPU.
    """
    steps = sorted(
        later - earlier
        for stamps in series
        for earlier, later in itertools.pairwise(stamps)
        if later - earlier >= _LEAST_US
    )
    if not steps:
        return None
    median_ms = round(steps[len(steps) // 2] / US_PER_MS)
    for whole in _WHOLE_MS:
        if abs(median_ms - whole) <= whole * _DRIFT:
            return whole
    return min(max(median_ms, 1), _MOST_MS)


@dataclass(slots=True)
class Ticks:
    """Which reading each tick gets.

    Attributes:
        reading: tick in µs -> position of the reading.
        bridged: ticks that drift jumped over, and that got the reading after them.
        repeated: readings that fell on a tick that had one; the later one counts.
    """

    reading: dict[int, int]
    bridged: set[int]
    repeated: int = 0


def to_ticks(stamps_us: Sequence[int], interval_ms: int) -> Ticks:
    """Return the grid of one GPU's readings, in the order of the file."""
    step = interval_ms * US_PER_MS
    ticks = Ticks({}, set())
    before: tuple[int, int] | None = None  # stamp and tick of the reading before
    for position, stamp in enumerate(stamps_us):
        tick = (stamp + step // 2) // step * step
        between = tick - step
        jumps = before is not None and tick == before[1] + 2 * step
        if jumps and before is not None and stamp - before[0] < 1.5 * step:
            if between not in ticks.reading:
                ticks.bridged.add(between)
            ticks.reading.setdefault(between, position)
        if tick in ticks.bridged:
            ticks.bridged.discard(tick)
        elif tick in ticks.reading:
            ticks.repeated += 1
        ticks.reading[tick] = position
        before = (stamp, tick)
    return ticks


def to_tick_after(stamps_us: Sequence[int], interval_ms: int) -> Ticks:
    """Return the grid of single moments: each belongs to the interval that contains it."""
    step = interval_ms * US_PER_MS
    ticks = Ticks({}, set())
    for position, stamp in enumerate(stamps_us):
        tick = -(-stamp // step) * step
        ticks.repeated += tick in ticks.reading
        ticks.reading[tick] = position
    return ticks


def holes(ticks: Iterable[int], interval_ms: int) -> list[tuple[int, int]]:
    """Return (first, last) missing tick of each hole between ticks."""
    step = interval_ms * US_PER_MS
    ordered = sorted(ticks)
    return [
        (earlier + step, later - step)
        for earlier, later in itertools.pairwise(ordered)
        if later - earlier > step
    ]
