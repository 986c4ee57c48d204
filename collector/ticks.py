"""The tick grid: one reading on each whole UTC second, without drift.

A tick's nominal time is the whole second at which it was due; lateness is recorded, never hidden.
A second that passes without a tick is reported as missed. The wall clock is compared with the
monotonic one, so that a step of the wall clock is told apart from a late tick.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import Final

from idlewatt.clock import Clock
from idlewatt.units import US_PER_MS, US_PER_S

STEP_US: Final = 500_000
# A wall clock set back by up to this is waited for; by more, a new epoch begins.
HOLD_BACK_US: Final = 10 * US_PER_S
_LONGEST_WAIT_S: Final = 1.0


@dataclass(frozen=True, slots=True)
class Missed:
    """Nominal seconds without a tick, both ends inclusive.

    Where the wall clock was set back no second is missing; then both ends are the last second
    before the step.
    """

    from_us: int
    to_us: int
    reason: str
    detail: str | None = None


@dataclass(frozen=True, slots=True)
class Due:
    """One tick that is due now."""

    ts_us: int
    late_us: int
    mono_ns: int
    missed: Missed | None = None

    @property
    def late_ms(self) -> int:
        """Return how late the reading starts."""
        return self.late_us // US_PER_MS


class ClockSetBackError(Exception):
    """The wall clock went back so far that a new epoch must begin."""


class TickGrid:
    """Waits for the next whole second and says what was missed.

    Args:
        clock: the time.
        stop: ends the waiting.
    """

    def __init__(self, clock: Clock, stop: threading.Event | None = None) -> None:
        self._clock = clock
        self._stop = stop
        self._last_us: int | None = None
        self._offset_us = self._offset()

    def _offset(self) -> int:
        return self._clock.now_us() - self._clock.monotonic_ns() // 1_000

    def next(self) -> Due | None:
        """Return the next tick when it is due, or None if told to stop.

        Raises:
            ClockSetBackError: the wall clock was set back by more than `HOLD_BACK_US`.
        """
        step_us = 0
        first = self._last_us is None
        due_us = (
            -(-self._clock.now_us() // US_PER_S) * US_PER_S
            if self._last_us is None
            else self._last_us + US_PER_S
        )
        while True:
            now_us = self._clock.now_us()
            moved_us = self._step()
            step_us += moved_us
            if moved_us < 0 and now_us < due_us - US_PER_S - HOLD_BACK_US:
                raise ClockSetBackError(f"wall clock set back by {-moved_us / US_PER_S:.1f} s")
            if now_us >= due_us:
                break
            wait_s = min((due_us - now_us) / US_PER_S, _LONGEST_WAIT_S)
            if self._clock.wait(wait_s, self._stop):
                return None
        ts_us = now_us // US_PER_S * US_PER_S
        missed = None if first else self._missed(due_us, ts_us, step_us)
        self._last_us = ts_us
        return Due(ts_us, now_us - ts_us, self._clock.monotonic_ns(), missed)

    def _step(self) -> int:
        """Return by how much the wall clock was stepped since the last look, in µs."""
        offset = self._offset()
        moved = offset - self._offset_us
        self._offset_us = offset
        return moved if abs(moved) >= STEP_US else 0

    @staticmethod
    def _missed(due_us: int, ts_us: int, step_us: int) -> Missed | None:
        detail = f"wall clock stepped by {step_us / US_PER_S:+.1f} s" if step_us else None
        if ts_us > due_us:
            reason = "clock_step" if step_us > 0 else "late_tick"
            return Missed(due_us, ts_us - US_PER_S, reason, detail)
        if step_us:
            return Missed(due_us - US_PER_S, due_us - US_PER_S, "clock_step", detail)
        return None
