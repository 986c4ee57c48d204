"""Fleet power of the last day, second by second, kept in memory and refreshed by difference.

A past hour is read again only when its number in `hour_change` moved. Of the current hour only
the tail is read, and the whole of it once a minute, and once more when it has ended, for rows
that came late. Each refresh has a
time budget, newest hours first, so that a page is there at once and its history follows.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from idlewatt.units import S_PER_HOUR, US_PER_HOUR, US_PER_S

IntArray = npt.NDArray[np.int64]
Loader = Callable[[int, int], tuple[IntArray, IntArray, IntArray]]

HOURS_KEPT: Final = 25
TAIL_S: Final = 150  # a little more than the live horizon of the agents
FULL_EVERY_NS: Final = 60 * 1_000_000_000


@dataclass(frozen=True, slots=True)
class Seconds:
    """Fleet power per second from `start_us`, without holes in time.

    Attributes:
        start_us: first second, µs since 1970.
        power_mw: sum over the devices that gave a reading; 0 where none did.
        readings: how many devices gave one.
    """

    start_us: int
    power_mw: IntArray
    readings: IntArray

    @property
    def end_us(self) -> int:
        """Return the first second after the last."""
        return self.start_us + len(self.power_mw) * US_PER_S

    def window(self, from_us: int, to_us: int) -> Seconds:
        """Return the seconds from `from_us` up to, not including, `to_us`."""
        return Seconds(
            from_us,
            cut(self.power_mw, self.start_us, from_us, to_us),
            cut(self.readings, self.start_us, from_us, to_us),
        )


def cut(values: IntArray, start_us: int, from_us: int, to_us: int) -> IntArray:
    """Return the values of [from, to), one a second from `start_us`; 0 where there are none."""
    first = (from_us - start_us) // US_PER_S
    last = (to_us - start_us) // US_PER_S
    low = min(max(first, 0), len(values))
    high = max(min(max(last, 0), len(values)), low)
    found = np.zeros(max(last - first, 0), dtype=np.int64)
    found[low - first : high - first] = values[low:high]
    return found


@dataclass(frozen=True, slots=True)
class _Hour:
    change_seq: int
    exact: bool  # False where only the tail was read since the last full reading
    until_us: int
    full_ns: int
    power_mw: IntArray
    readings: IntArray


class SecondsCache:
    """The last 25 hours of fleet power. Not thread-safe: its owner holds a lock."""

    def __init__(self, monotonic_ns: Callable[[], int], budget_s: float = 0.25) -> None:
        self._monotonic_ns = monotonic_ns
        self._budget_ns = round(budget_s * 1e9)
        self._hours: dict[int, _Hour] = {}

    def refresh(self, hours: list[tuple[int, int]], as_of_us: int, load: Loader) -> int:
        """Bring the cache up to date and return how many hours are still to be read.

        Args:
            hours: (hour in µs, change number), newest first.
            as_of_us: newest stamp of the page.
            load: reads (stamps, power, readings) of [from, to) in µs.
        """
        started, pending = self._monotonic_ns(), 0
        known = {hour for hour, _ in hours}
        self._hours = {hour: value for hour, value in self._hours.items() if hour in known}
        for number, (hour_us, seq) in enumerate(hours):
            old = self._hours.get(hour_us)
            if old is not None and old.change_seq == seq and old.exact:
                continue
            if number and self._monotonic_ns() - started > self._budget_ns:
                pending += 1
                continue
            self._hours[hour_us] = self._read(hour_us, seq, as_of_us, load)
        return pending

    def _read(self, hour_us: int, seq: int, as_of_us: int, load: Loader) -> _Hour:
        old, now_ns = self._hours.get(hour_us), self._monotonic_ns()
        end_us = hour_us + US_PER_HOUR
        is_tail = (
            old is not None
            and as_of_us < end_us
            and as_of_us >= old.until_us
            and now_ns - old.full_ns < FULL_EVERY_NS
        )
        if old is not None and is_tail:
            from_us = max(hour_us, old.until_us - TAIL_S * US_PER_S)
            power_mw, readings, full_ns = old.power_mw.copy(), old.readings.copy(), old.full_ns
        else:
            from_us, full_ns = hour_us, now_ns
            power_mw = np.zeros(S_PER_HOUR, dtype=np.int64)
            readings = np.zeros(S_PER_HOUR, dtype=np.int64)
        ts_us, power, count = load(from_us, end_us)
        at = (ts_us - hour_us) // US_PER_S
        power_mw[at], readings[at] = power, count
        until_us = min(as_of_us, end_us)
        return _Hour(seq, not is_tail, until_us, full_ns, power_mw, readings)

    def seconds(self, as_of_us: int) -> Seconds:
        """Return the last 25 hours up to and including the hour of `as_of_us`."""
        last_us = as_of_us - as_of_us % US_PER_HOUR
        hours = [last_us - back * US_PER_HOUR for back in reversed(range(HOURS_KEPT))]
        empty = np.zeros(S_PER_HOUR, dtype=np.int64)
        found = [self._hours.get(hour) for hour in hours]
        return Seconds(
            hours[0],
            np.concatenate([empty if one is None else one.power_mw for one in found]),
            np.concatenate([empty if one is None else one.readings for one in found]),
        )
