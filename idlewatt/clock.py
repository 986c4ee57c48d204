"""Time as an injected dependency: the system's clock, and a virtual one for tests."""

from __future__ import annotations

import datetime as dt
import threading
import time
from typing import Protocol

from idlewatt.units import US_PER_S


class Clock(Protocol):
    """What idlewatt needs of time. Wall time is UTC microseconds since 1970."""

    def now_us(self) -> int:
        """Return UTC wall time in µs since 1970."""
        ...

    def monotonic_ns(self) -> int:
        """Return a time in ns that never goes back; only differences mean anything."""
        ...

    def wait(self, seconds: float, wake: threading.Event | None = None) -> bool:
        """Wait up to `seconds`, or until `wake` is set; return True if it was set."""
        ...


class SystemClock:
    """The machine's clock."""

    def now_us(self) -> int:
        """Return UTC wall time in µs since 1970."""
        return time.time_ns() // 1_000

    def monotonic_ns(self) -> int:
        """Return the machine's monotonic time in ns."""
        return time.monotonic_ns()

    def wait(self, seconds: float, wake: threading.Event | None = None) -> bool:
        """Sleep up to `seconds`, or until `wake` is set; return True if it was set."""
        if wake is not None:
            return wake.wait(max(seconds, 0.0))
        if seconds > 0:
            time.sleep(seconds)
        return False


class VirtualClock:
    """A clock that moves only when told to, or when somebody waits on it."""

    def __init__(self, now_us: int = 1_700_000_000 * US_PER_S) -> None:
        self._now_us = now_us
        self._mono_ns = 0

    def now_us(self) -> int:
        """Return the virtual wall time in µs since 1970."""
        return self._now_us

    def monotonic_ns(self) -> int:
        """Return the virtual monotonic time in ns."""
        return self._mono_ns

    def wait(self, seconds: float, wake: threading.Event | None = None) -> bool:
        """Advance by `seconds` unless `wake` is already set; return True if it was set."""
        if wake is not None and wake.is_set():
            return True
        self.advance(max(seconds, 0.0))
        return False

    def advance(self, seconds: float) -> None:
        """Move both times forward."""
        self._now_us += round(seconds * US_PER_S)
        self._mono_ns += round(seconds * 1e9)

    def step_wall(self, seconds: float) -> None:
        """Step the wall clock alone, as an administrator or NTP would."""
        self._now_us += round(seconds * US_PER_S)


def utc_from_us(value_us: int) -> dt.datetime:
    """Return an aware UTC datetime from µs since 1970."""
    return dt.datetime.fromtimestamp(value_us / US_PER_S, tz=dt.UTC)


def us_from_utc(value: dt.datetime) -> int:
    """Return µs since 1970; a naive datetime is UTC by contract."""
    aware = value if value.tzinfo else value.replace(tzinfo=dt.UTC)
    return round((aware - dt.datetime(1970, 1, 1, tzinfo=dt.UTC)) / dt.timedelta(microseconds=1))


def iso_utc(value_us: int) -> str:
    """Return `YYYY-MM-DDTHH:MM:SSZ` from µs since 1970."""
    return utc_from_us(value_us).strftime("%Y-%m-%dT%H:%M:%SZ")
