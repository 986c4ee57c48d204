"""The agent: a supervisor that keeps the poller alive and ships what it spools.

The supervisor never touches the driver. It starts the poller as a process of its own, hears one
byte a second from it, and starts it again when it ends or falls silent. The two shipping lanes are
threads of the supervisor. What must not be lost is on disk, so that any of them may be killed at
any moment.
"""

from __future__ import annotations

import _thread
import contextlib
import fcntl
import logging
import os
import signal
import sqlite3
import subprocess
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from collector.shipper import Connection, LaneConfig, LaneShipper
from collector.spool import EXIT_SPOOL_DAMAGED, Spool
from collector.spool_care import claim, put_aside_if_damaged
from collector.spooled import SpoolDamagedError
from idlewatt.clock import Clock
from idlewatt.errors import ConfigError, StoreError, UsageError
from idlewatt.model import Lane

SILENCE_S: Final = 30.0
START_SILENCE_S: Final = 90.0
RESTART_FIRST_S: Final = 0.5
RESTART_MAX_S: Final = 60.0
HEALTHY_S: Final = 60.0
STOP_POLLER_S: Final = 2.0
KILL_POLLER_S: Final = 0.5
LAST_FLUSH_S: Final = 2.0
CHECKPOINT_EVERY_S: Final = 30.0
LOCK_NAME: Final = "agent.lock"
_LOOK_EVERY_S: Final = 1.0
_EXIT_WRONG_USAGE: Final = 2

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class AgentConfig:
    """How the agent works.

    Attributes:
        node_id: identity of the node.
        spool_dir: where samples wait.
        spool_max_mib: size from which the oldest go.
        server_url: where batches go; empty: nowhere, they wait.
        token: returns the node's token.
        flush_s: batching interval until the server says one.
        live_horizon_s: older samples travel in the backfill lane.
    """

    node_id: str
    spool_dir: Path
    spool_max_mib: int
    server_url: str
    token: Callable[[], str]
    flush_s: float
    live_horizon_s: int


class TokenFile:
    """A token in a file, read again when the file changes.

    Raises:
        ConfigError: the file cannot be read at the start.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._changed_ns = -1
        self._token = ""
        try:
            self._read()
        except OSError as exc:
            raise ConfigError(f"token file {path} cannot be read: {exc}") from exc

    def _read(self) -> None:
        changed_ns = self._path.stat().st_mtime_ns
        if changed_ns != self._changed_ns:
            self._token = self._path.read_text("utf-8").strip()
            self._changed_ns = changed_ns

    def __call__(self) -> str:
        """Return the token; the last one known if the file is gone."""
        with contextlib.suppress(OSError):
            self._read()
        return self._token


class PollerProcess:
    """The poller as a child process.

    Args:
        argv: command line that runs it.
        clock: the time.
        environ: its environment.
    """

    def __init__(self, argv: Sequence[str], clock: Clock, environ: dict[str, str]) -> None:
        self._clock = clock
        self._child = subprocess.Popen(
            list(argv), stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environ
        )
        assert self._child.stdout is not None  # noqa: S101  # we asked for a pipe
        self._pipe = self._child.stdout.fileno()
        os.set_blocking(self._pipe, False)
        self._started_ns = self._heard_ns = clock.monotonic_ns()
        self.beats = 0

    @property
    def pid(self) -> int:
        """Return its process id."""
        return self._child.pid

    def listen(self) -> None:
        """Take note of the heartbeats since the last call."""
        with contextlib.suppress(BlockingIOError):
            heard = len(os.read(self._pipe, 65_536))
            if heard:
                self.beats += heard
                self._heard_ns = self._clock.monotonic_ns()

    def exit_code(self) -> int | None:
        """Return its exit code, or None while it runs."""
        return self._child.poll()

    def silent_s(self) -> float:
        """Return the seconds since it was last heard."""
        return (self._clock.monotonic_ns() - self._heard_ns) / 1e9

    def lived_s(self) -> float:
        """Return the seconds since it was started."""
        return (self._clock.monotonic_ns() - self._started_ns) / 1e9

    def stuck(self) -> bool:
        """Return whether it has been silent for too long."""
        return self.silent_s() > (SILENCE_S if self.beats else START_SILENCE_S)

    def stop(self, patience_s: float) -> bool:
        """End it, politely first; return whether it is gone.

        A process that hangs in the driver cannot be ended; it is left behind and not waited for.
        """
        assert self._child.stdin is not None  # noqa: S101
        with contextlib.suppress(OSError):
            self._child.stdin.close()
        if self._child.poll() is None and patience_s > 0:
            self._child.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._child.wait(patience_s)
        if self._child.poll() is None:
            self._child.kill()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._child.wait(KILL_POLLER_S)
        gone = self._child.poll() is not None
        if gone and self._child.stdout is not None:
            self._child.stdout.close()
        return gone


class Lanes:
    """The shipping threads.

    Attributes:
        damaged: set by a lane that found the spool damaged.
    """

    def __init__(self, config: AgentConfig, clock: Clock, wake: threading.Event) -> None:
        self._config = config
        self._clock = clock
        self._wake = wake
        self._stop = threading.Event()
        self._last_flush_s = 0.0
        self._threads: list[threading.Thread] = []
        self.damaged = threading.Event()

    def start(self) -> None:
        """Start a thread for each lane."""
        if not self._config.server_url:
            return
        self._stop = threading.Event()
        self.damaged.clear()
        for lane in Lane:
            thread = threading.Thread(
                target=self._run, args=(lane, self._stop), name=f"lane-{lane.value}", daemon=True
            )
            thread.start()
            self._threads.append(thread)

    def _run(self, lane: Lane, stop: threading.Event) -> None:
        config = self._config
        try:
            spool = Spool(config.spool_dir, config.spool_max_mib)
            shipper = LaneShipper(
                spool,
                Connection(config.server_url, config.token),
                LaneConfig(config.node_id, lane, config.live_horizon_s, config.flush_s),
                self._clock,
            )
            try:
                shipper.run(stop)
                if lane is Lane.LIVE:
                    shipper.finish(self._last_flush_s)
            finally:
                shipper.close()
                spool.close()
        except SpoolDamagedError as exc:
            _log.error("%s", exc)
            self.damaged.set()
            self._wake.set()
        except Exception:
            _log.exception("lane=%s ended", lane.value)

    def alive(self) -> bool:
        """Return whether every lane still runs."""
        return all(thread.is_alive() for thread in self._threads)

    def stop(self, patience_s: float, *, last_flush: bool = False) -> None:
        """Stop the lanes within `patience_s`; one that waits for an answer is left to itself.

        With `last_flush` the live lane first sends what is left.
        """
        self._last_flush_s = patience_s if last_flush else 0.0
        self._stop.set()
        end_ns = self._clock.monotonic_ns() + round(patience_s * 1e9)
        for thread in self._threads:
            thread.join(max(end_ns - self._clock.monotonic_ns(), 0) / 1e9)
        self._threads = []


class Supervisor:
    """Keeps poller and lanes going until told to stop.

    Args:
        config: how the agent works.
        poller_argv: command line of the poller.
        clock: the time.

    Raises:
        UsageError: another agent already uses the spool.
    """

    def __init__(self, config: AgentConfig, poller_argv: Sequence[str], clock: Clock) -> None:
        if config.server_url:
            Connection(config.server_url, config.token)  # says at once if the address is wrong
        self._config = config
        self._argv = list(poller_argv)
        self._clock = clock
        self._wake = threading.Event()
        self._stopping = False
        self._lock = _lock(config.spool_dir)
        self._lanes = Lanes(config, clock, self._wake)
        self._poller: PollerProcess | None = None
        self._backoff_s = RESTART_FIRST_S
        self._not_before_ns = 0
        self._hung_pid = 0
        self._checkpoint_ns = clock.monotonic_ns()
        environ = dict(os.environ)
        environ.pop("IDLEWATT_AGENT_TOKEN", None)  # the poller has no use for it
        environ.setdefault("MALLOC_ARENA_MAX", "1")  # it has one busy thread
        self._environ = environ

    def stop(self, *_: object) -> None:
        """Ask for a clean end; safe in a signal handler."""
        self._stopping = True
        # Not from the handler itself: it may interrupt a wait that holds the event's lock.
        _thread.start_new_thread(self._wake.set, ())

    def run(self) -> int:
        """Supervise until stopped and return the exit code.

        SIGHUP is ignored, here and in the poller, which inherits that: a terminal that closes ends
        no measurement, and there is nothing to load again (the token file is looked at each time).

        Raises:
            UsageError: the spool holds what another node has not sent yet.
        """
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self.stop)
        self._check_spool()
        self._lanes.start()
        code = 0
        try:
            while not self._stopping and code == 0:
                code = self._look()
                self._checkpoint()
                self._clock.wait(_LOOK_EVERY_S, self._wake)
                if not self._stopping:
                    self._wake.clear()
        finally:
            if self._poller is not None:
                self._poller.stop(STOP_POLLER_S)
            self._lanes.stop(LAST_FLUSH_S, last_flush=True)
            os.close(self._lock)
        return code

    def _look(self) -> int:
        """Put right what is not; return an exit code if there is no use in going on."""
        if self._lanes.damaged.is_set():
            self._replace_spool()
        elif not self._lanes.alive():
            self._lanes.stop(0.5)
            self._lanes.start()
        poller = self._poller
        if poller is None:
            if self._clock.monotonic_ns() >= self._not_before_ns:
                self._poller = PollerProcess(self._argv, self._clock, self._environ)
            return 0
        poller.listen()
        code = poller.exit_code()
        if code is not None:
            return self._ended(poller, code)
        if poller.stuck():
            silent_s = poller.silent_s()
            if poller.stop(0.0):
                _log.error("poller silent for %.0f s: it is started again", silent_s)
                self._pause(poller)
            elif self._hung_pid != poller.pid:
                self._hung_pid = poller.pid
                _log.error("poller pid=%d hangs in the driver and cannot be ended", poller.pid)
        elif poller.lived_s() > HEALTHY_S:
            self._backoff_s = RESTART_FIRST_S
        return 0

    def _ended(self, poller: PollerProcess, code: int) -> int:
        poller.stop(0.0)
        if code == _EXIT_WRONG_USAGE:
            return code  # it has said why; the same would happen again
        if code == EXIT_SPOOL_DAMAGED:
            self._replace_spool()
        _log.error("poller ended with code %d: next start in %.1f s", code, self._backoff_s)
        self._pause(poller)
        return 0

    def _pause(self, poller: PollerProcess) -> None:
        if poller.lived_s() > HEALTHY_S:
            self._backoff_s = RESTART_FIRST_S
        self._poller = None
        self._not_before_ns = self._clock.monotonic_ns() + round(self._backoff_s * 1e9)
        self._backoff_s = min(self._backoff_s * 2, RESTART_MAX_S)

    def _replace_spool(self) -> None:
        """Stop everybody, put the damaged spool aside and start the lanes on a fresh one."""
        if self._poller is not None:
            self._poller.stop(STOP_POLLER_S)
            self._poller = None
        self._lanes.stop(15.0)
        self._check_spool()
        self._lanes.start()

    def _checkpoint(self) -> None:
        """Move the spool's log into its file: here it delays neither a tick nor a batch."""
        now_ns = self._clock.monotonic_ns()
        if now_ns - self._checkpoint_ns < CHECKPOINT_EVERY_S * 1e9:
            return
        self._checkpoint_ns = now_ns
        try:
            spool = Spool(self._config.spool_dir)
            try:
                spool.checkpoint()
            finally:
                spool.close()
        except (StoreError, sqlite3.Error) as exc:
            _log.warning("the spool's log stays long: %s", exc)

    def _check_spool(self) -> None:
        aside = put_aside_if_damaged(self._config.spool_dir, self._clock.now_us())
        if aside is not None:
            _log.error("the spool was damaged; it is kept as %s, a fresh one starts", aside)
        claim(self._config.spool_dir, self._config.node_id)


def _lock(folder: Path) -> int:
    """Return a descriptor that holds the spool for this agent."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = os.open(folder / LOCK_NAME, os.O_RDWR | os.O_CREAT, 0o600)
    except OSError as exc:
        raise StoreError(f"spool {folder} cannot be used: {exc}; set agent.spool_dir") from exc
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as exc:
        os.close(descriptor)
        raise UsageError(f"another agent already uses the spool {folder}") from exc
    return descriptor
