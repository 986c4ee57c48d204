"""Answers that are kept a while, so that a page that asks each second costs nothing.

A dear answer is kept longer: whatever it took, at most a twentieth of the time goes into it.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Final, Generic, TypeVar

T = TypeVar("T")

KEEP_NS: Final = 15_000_000_000
LOAD: Final = 20


class Kept(Generic[T]):
    """Values by key, each computed anew when it is old. Thread-safe.

    Args:
        monotonic_ns: time.
        most: how many values are kept.
    """

    def __init__(self, monotonic_ns: Callable[[], int], most: int) -> None:
        self._monotonic_ns = monotonic_ns
        self._most = most
        self._lock = threading.Lock()
        self._values: OrderedDict[Hashable, tuple[int, T]] = OrderedDict()

    def get(
        self,
        key: Hashable,
        compute: Callable[[T | None], T],
        keep_ns: Callable[[T, int], int] = lambda _value, took_ns: max(KEEP_NS, LOAD * took_ns),
    ) -> T:
        """Return the value of a key.

        Args:
            key: whose value.
            compute: makes it; takes the value kept so far.
            keep_ns: for how long a value holds that took so many nanoseconds.
        """
        with self._lock:
            until_ns, old = self._values.get(key, (0, None))
            started = self._monotonic_ns()
            if old is not None and started < until_ns:
                self._values.move_to_end(key)
                return old
            value = compute(old)
            now_ns = self._monotonic_ns()
            until_ns = now_ns + keep_ns(value, now_ns - started)
            self._values[key] = (until_ns, value)
            self._values.move_to_end(key)
            while len(self._values) > self._most:
                self._values.popitem(last=False)
            return value
