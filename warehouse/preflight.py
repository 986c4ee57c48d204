"""Plans a statement in a child process that can be killed, before it is planned for real.

DuckDB's binder and planner hear no interrupt, and 800 bytes of SQL (forty column aliases, each the
sum of the one before with itself) keep them busy for ever while memory grows. Constant expressions
are computed there too. The child has the tables without rows, a memory limit and a deadline.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import logging
import os
import selectors
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any, Final

from idlewatt.errors import QueryError, UnavailableError

log = logging.getLogger(__name__)

_START_S: Final = 30.0
_CHILDREN: Final = 2
_MAX_ANSWER: Final = 64 << 10
_LOOK_S: Final = 0.1
_WALL_FACTOR: Final = 4
_TICKS: Final = os.sysconf("SC_CLK_TCK")


class _Child:
    """One process, used by one statement at a time."""

    def __init__(self) -> None:
        root = str(Path(__file__).resolve().parents[1])
        paths = [root, *filter(None, [os.environ.get("PYTHONPATH")])]
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", "warehouse.preflight_child"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
            start_new_session=True,
        )
        self._rest = b""
        try:
            self._answer(_START_S)
        except (TimeoutError, OSError):
            self.kill()
            raise

    def plan(self, sql: str, params: Mapping[str, Any], limit_s: float) -> Mapping[str, str]:
        """Return the child's verdict.

        Raises:
            TimeoutError: it took too long.
            OSError: the child is gone.
        """
        line = json.dumps({"sql": sql, "params": dict(params)}, default=str).encode() + b"\n"
        pipe = self._pipe(self._process.stdin)
        pipe.write(line)
        pipe.flush()
        answer: Mapping[str, str] = json.loads(self._answer(limit_s))
        return answer

    def alive(self) -> bool:
        return self._process.poll() is None

    def kill(self) -> None:
        self._process.kill()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()
        self._process.wait()

    def _answer(self, limit_s: float) -> bytes:
        """Return a line; the limit is of the child's own CPU time, so that load refuses nobody."""
        pipe = self._pipe(self._process.stdout)
        began_s, deadline = self._cpu_s(), time.monotonic() + _WALL_FACTOR * limit_s
        with selectors.DefaultSelector() as selector:
            selector.register(pipe, selectors.EVENT_READ)
            while b"\n" not in self._rest:
                if not selector.select(min(limit_s, _LOOK_S)):
                    if time.monotonic() > deadline or self._cpu_s() - began_s > limit_s:
                        raise TimeoutError
                    continue
                part = os.read(pipe.fileno(), _MAX_ANSWER)
                if not part:
                    raise OSError("the planning process ended")
                self._rest += part
        line, _, self._rest = self._rest.partition(b"\n")
        return line

    def _cpu_s(self) -> float:
        try:
            text = Path(f"/proc/{self._process.pid}/stat").read_text("ascii", "replace")
        except OSError:
            return 0.0
        user, system = text.rpartition(")")[2].split()[11:13]
        return (int(user) + int(system)) / _TICKS

    @staticmethod
    def _pipe(pipe: IO[bytes] | None) -> IO[bytes]:
        if pipe is None:
            raise OSError("no pipe")
        return pipe


class Preflight:
    """A few children, started when first needed and replaced when lost."""

    def __init__(self, children: int = _CHILDREN) -> None:
        self._free = threading.Semaphore(children)
        self._lock = threading.Lock()
        self._idle: list[_Child] = []
        self._closed = False

    def check(self, sql: str, params: Mapping[str, Any], limit_s: float) -> None:
        """Let a statement through that can be planned within `limit_s`.

        Raises:
            QueryError: it cannot be; the reason.
            UnavailableError: every child is busy for long.
        """
        if not self._free.acquire(timeout=2 * limit_s + 1):
            raise UnavailableError("too many statements wait to be planned", 503, 2)
        child = None
        try:
            child = self._take()
            verdict = child.plan(sql, params, limit_s)
        except TimeoutError:
            raise QueryError(
                f"the statement could not be planned within {limit_s:g} s; make it simpler"
            ) from None
        except OSError as exc:
            log.warning("msg=%r error=%r", "planning process lost", str(exc))
            raise QueryError("the statement could not be planned; make it simpler") from exc
        else:
            self._put_back(child)
            child = None
        finally:
            if child is not None:
                child.kill()
            self._free.release()
        if error := verdict.get("error"):
            raise QueryError(error)

    def _take(self) -> _Child:
        while True:
            with self._lock:
                child = self._idle.pop() if self._idle else None
            if child is None:
                return _Child()
            if child.alive():
                return child
            child.kill()

    def _put_back(self, child: _Child) -> None:
        with self._lock:
            if not self._closed:
                self._idle.append(child)
                return
        child.kill()

    def close(self) -> None:
        """End the children that are idle; the others end with this process."""
        with self._lock:
            idle, self._idle, self._closed = self._idle, [], True
        for child in idle:
            child.kill()


PREFLIGHT: Final = Preflight()
atexit.register(PREFLIGHT.close)
