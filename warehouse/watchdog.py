"""Stops statements that run too long or take too much memory, again and again until they end.

One thread looks every 50 ms at all statements from outside. An interrupt is heard between two
vectors of work only, so it is repeated. Memory is the growth of the whole process since a
statement began, less what the database itself accounts for: that part has its own limit
(`server.memory_mib`), and values that one vector holds have none.
"""

from __future__ import annotations

import contextlib
import os
import resource
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


class Ceiling:
    """A limit on the memory of the process, only while statements from outside run.

    One vector can hold 2,048 values, and no interrupt is heard before all of them exist. Above the
    ceiling the allocation fails and with it the statement; the machine is not drawn into it.
    """

    def __init__(self) -> None:
        self._before: tuple[int, int] | None = None

    def set(self, more_bytes: int) -> None:
        """Allow so much more than the process has now."""
        held = _data_bytes()
        soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
        wanted = held + more_bytes
        known = [limit for limit in (soft, hard) if limit != resource.RLIM_INFINITY]
        if held and wanted < min(known, default=wanted + 1):
            with contextlib.suppress(ValueError, OSError):
                resource.setrlimit(resource.RLIMIT_DATA, (wanted, hard))
                self._before = (soft, hard)

    def lift(self) -> None:
        """Take the ceiling away."""
        if self._before is not None:
            with contextlib.suppress(ValueError, OSError):
                resource.setrlimit(resource.RLIMIT_DATA, self._before)
            self._before = None


def _data_bytes() -> int:
    """Return what the kernel counts against RLIMIT_DATA, or 0 where it does not say."""
    try:
        lines = Path("/proc/self/status").read_text("ascii", "replace").splitlines()
    except OSError:
        return 0
    found = [line.split()[1] for line in lines if line.startswith("VmData:")]
    return int(found[0]) * 1024 if found else 0


class Watchdog:
    """The thread and what it watches; it runs only while there is something to watch."""

    def __init__(self, resident: Callable[[], int] = resident_bytes) -> None:
        self._resident = resident
        self._ceiling = Ceiling()
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
        ceiling_bytes: int | None = None,
    ) -> Iterator[Watched]:
        """Watch a statement for as long as the block runs.

        Args:
            cursor: runs the statement.
            limit_s: it is stopped after so long.
            limit_bytes: it is stopped when the process has grown so much beyond `accounted`.
            accounted: what the database counts as its own, in bytes.
            ceiling_bytes: the process gets no more new memory meanwhile; see `Ceiling`.
        """
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
            if not self._running and ceiling_bytes is not None:
                self._ceiling.set(ceiling_bytes)
            self._running.append(item)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="query-watch", daemon=True)
                self._thread.start()
        try:
            yield item
        finally:
            with self._lock:
                self._running.remove(item)
                if not self._running:
                    self._ceiling.lift()

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
                    with contextlib.suppress(Exception):  # the next look tries again
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
