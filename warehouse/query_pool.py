"""Threads for statements from outside: a few, never waited for, replaced when one is stuck."""

from __future__ import annotations

import asyncio
import contextlib
import queue
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, Final, Generic, TypeVar

from idlewatt.errors import UnavailableError

T = TypeVar("T")
_LOOK_S: Final = 0.5


@dataclass(eq=False)
class _Job(Generic[T]):
    work: Callable[[], T]
    limit_s: float
    future: Future[T] = field(default_factory=Future)
    started: float | None = None
    lost: bool = False


class QueryPool:
    """At most `size` threads work; up to `spare` more replace those that do not come back.

    The threads are daemons: the end of the process does not wait for them.
    """

    def __init__(self, name: str, size: int, spare: int = 0) -> None:
        self._name = name
        self._size = size
        self._spare = spare
        self._lock = threading.Lock()
        self._jobs: queue.SimpleQueue[_Job[Any] | None] = queue.SimpleQueue()
        self._running: set[_Job[Any]] = set()
        self._threads = self._idle = 0
        self._alive: list[threading.Thread] = []
        self._closed = False

    async def run(self, work: Callable[[], T], limit_s: float) -> T:
        """Return what `work` returns.

        Args:
            work: runs on a thread of the pool.
            limit_s: after so long its thread counts as lost, and nobody waits for it any more.

        Raises:
            UnavailableError: it did not come back, or the pool is closed.
        """
        job = self._put(work, limit_s)
        waiting = asyncio.ensure_future(asyncio.wrap_future(job.future))
        while True:
            done, _ = await asyncio.wait({waiting}, timeout=_LOOK_S)
            if done:
                return waiting.result()
            self.reap()
            if job.lost:
                waiting.cancel()
                raise UnavailableError("the query does not stop; it was given up", 503, 10)

    def _put(self, work: Callable[[], T], limit_s: float) -> _Job[T]:
        job = _Job(work, limit_s)
        with self._lock:
            if self._closed:
                raise UnavailableError("the server is ending", 503, 5)
            self._jobs.put(job)
            self._grow()
        return job

    def _grow(self) -> None:
        lost = sum(job.lost for job in self._running)
        allowed = self._size + min(lost, self._spare)
        if self._threads < allowed and self._idle < self._jobs.qsize():
            self._threads += 1
            thread = threading.Thread(target=self._work, name=self._name, daemon=True)
            self._alive = [item for item in self._alive if item.is_alive()]
            self._alive.append(thread)
            thread.start()

    def reap(self) -> int:
        """Count the threads that did not come back in time, replace them and return the count."""
        now = time.monotonic()
        with self._lock:
            for job in self._running:
                if job.started is not None and now - job.started > job.limit_s:
                    job.lost = True
            lost = sum(job.lost for job in self._running)
            self._grow()
        return lost

    def problem(self) -> str | None:
        """Return a sentence for the health once no replacement is left, else None."""
        lost = self.reap()
        if lost <= self._spare:
            return None
        return f"{lost} queries do not stop; restart the server to have their threads back"

    def close(self, wait_s: float = 0.0) -> int:
        """Take no more work, wait for the threads at most so long; return how many are left.

        A daemon thread inside native code while the interpreter is torn down aborts the process,
        so idle ones are waited for as well.
        """
        with self._lock:
            self._closed = True
            for _ in range(self._threads):
                self._jobs.put(None)
            alive = list(self._alive)
        deadline = time.monotonic() + wait_s
        for thread in alive:
            thread.join(max(deadline - time.monotonic(), 0.01))
        return sum(thread.is_alive() for thread in alive)

    def _work(self) -> None:
        while True:
            with self._lock:
                self._idle += 1
            job = self._jobs.get()
            with self._lock:
                self._idle -= 1
                if job is not None:
                    job.started = time.monotonic()
                    self._running.add(job)
            if job is None or not self._do(job):
                break
        with self._lock:
            self._threads -= 1

    def _do(self, job: _Job[Any]) -> bool:
        """Run one job and return True if this thread is still one of the pool."""
        result: Any = None
        error: BaseException | None = None
        if job.future.set_running_or_notify_cancel():
            try:
                result = job.work()
            except BaseException as exc:
                error = exc
        with self._lock:
            self._running.discard(job)
            keep = not job.lost or self._threads <= self._size
        if not job.future.cancelled():
            with contextlib.suppress(Exception):  # cancelled meanwhile
                if error is None:
                    job.future.set_result(result)
                else:
                    job.future.set_exception(error)
        return keep
