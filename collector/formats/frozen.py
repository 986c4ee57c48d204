"""Sources that stand still: an exporter that repeats its last values after its source has died.

A cumulative energy counter always moves while a board has power. Where it and every other value
stay exactly the same for more than two intervals, nothing is being read any more.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Final

from collector.formats.model import Reading, Reason
from collector.formats.rows import Tick
from idlewatt.units import US_PER_MS

COUNTER: Final = "energy_mj"
INTERVALS: Final = 2


def without_frozen(ticks: Sequence[Tick]) -> tuple[list[Tick], int]:
    """Return the ticks, with stale values taken out, and how many were stale."""
    found: list[Tick] = []
    count = 0
    since: Tick | None = None
    for tick in ticks:
        values = tick.reading.values
        if since is None or COUNTER not in values or values != since.reading.values:
            since = tick
        elif tick.ts_us - since.ts_us > INTERVALS * tick.obs_ms * US_PER_MS:
            count += 1
            found.append(dataclasses.replace(tick, reading=_stale(tick.reading)))
            continue
        found.append(tick)
    return found, count


def _stale(reading: Reading) -> Reading:
    absent = dict.fromkeys([*reading.values, *reading.absent], Reason.STALE)
    return dataclasses.replace(reading, values={}, absent=absent, processes=None)
