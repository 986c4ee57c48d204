"""Stops statements that run too long or take too much memory, again and again until they end.

One thread looks every 50 ms at all statements from outside. An interrupt is heard between two
vectors of work only, so it is repeated. Memory is the growth of the whole process since a
statement began, less what the database itself accounts for: that part has its own limit
(`server.memory_mib`), and values that one vector holds have none.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

from idlewatt.units import MIB

PERIOD_S: Final = 0.05
_PAGE: Final = os.sysconf("SC_PAGE_SIZE")


class Interruptible(Protocol):
    """What can be stopped: a cursor."""

    def interrupt(self) -> None:
        """Ask the running statement to stop."""
        ...


def resident_bytes() -> int:
    """Return the memory that this process holds now."""
    try:
        return int(Path("/proc/self/statm").read_text("ascii").split()[1]) * _PAGE
    except OSError:
        return 0


@dataclass
class Watched:
    """One running statement; `reason` says why it was stopped."""

    cursor: Interruptible
    deadline: float
    limit_s: float
    limit_bytes: int
    base_bytes: int
    accounted: Callable[[], int]
    base_accounted: int
    reason: str = ""

    @property
    def stopped(self) -> bool:
        """Tell whether it was asked to stop."""
        return bool(self.reason)


class Watchdog:
    """The thread and what it watches; it runs only while there is something to watch."""

    def __init__(self, resident: Callable[[], int] = resident_bytes) -> None:
        self._resident = resident
        self._lock = threading.Lock()
        self._running: list[Watched] = []
        self._thread: threading.Thread | None = None

    @contextlib.contextmanager
    def watch(
        self,
        cursor: Interruptible,
        limit_s: float,
        limit_bytes: int,
        accounted: Callable[[], int] = lambda: 0,
    ) -> Iterator[Watched]:
        """Watch a statement for as long as the block runs."""
        item = Watched(
            cursor,
            time.monotonic() + limit_s,
            limit_s,
            limit_bytes,
            self._resident(),
            accounted,
            accounted(),
        )
        with self._lock:
            self._running.append(item)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="query-watch", daemon=True)
                self._thread.start()
        try:
            yield item
        finally:
            with self._lock:
                self._running.remove(item)

    def stop_all(self, reason: str) -> None:
        """Stop every statement that runs."""
        with self._lock:
            for item in self._running:
                item.reason = item.reason or reason

    def _run(self) -> None:
        while True:
            with self._lock:
                if not self._running:
                    self._thread = None
                    return
                for item in self._running:
                    self._look(item)
            time.sleep(PERIOD_S)

    def _look(self, item: Watched) -> None:
        if not item.reason:
            if time.monotonic() >= item.deadline:
                item.reason = (
                    f"the query was stopped after {item.limit_s:g} s; ask for less, or raise "
                    "query.timeout_s"
                )
            elif self._too_large(item):
                item.reason = (
                    f"the query was stopped because it needed more than {item.limit_bytes // MIB} "
                    "MiB beside the database's own memory; ask for less, or raise query.memory_mib"
                )
        if item.reason:
            item.cursor.interrupt()

    def _too_large(self, item: Watched) -> bool:
        grown = self._resident() - item.base_bytes
        if grown <= item.limit_bytes:
            return False
        own = max(item.accounted() - item.base_accounted, 0)
        return grown - own > item.limit_bytes


WATCHDOG: Final = Watchdog()
