"""The poller: a process of its own that reads the driver each second and appends to the spool.

It is the only process that touches the driver, so that whatever the driver does (crash, hang)
leaves the shipper and what is spooled alone. It ends when its supervisor ends.
"""

from __future__ import annotations

import _thread
import contextlib
import ctypes
import gc
import logging
import os
import signal
import sqlite3
import struct
import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from collector.attribution import AllocationSource
from collector.identity import NodeIdentity
from collector.nvml import Nvml
from collector.sampler import Facts, Sampler, Second
from collector.spool import EXIT_SPOOL_DAMAGED, Spool
from collector.spooled import SpoolDamagedError, gap_row
from collector.ticks import ClockSetBackError, Due, Missed, TickGrid
from idlewatt.clock import Clock
from idlewatt.units import US_PER_S

HEARTBEAT: Final = b"."
TIDY_EVERY: Final = 60
_STATE: Final = "counters"
_PR_SET_PDEATHSIG: Final = 1
SLICE_NS: Final = 100_000
_SCHED_OTHER: Final = 0
_SCHED_SETATTR: Final = {"x86_64": 314, "aarch64": 274}  # numbers of the system call
# size, policy, flags, nice, priority, runtime (of a fair task: its slice), deadline, period
_SCHED_ATTR: Final = struct.Struct("=IIQiIQQQ")

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class PollerConfig:
    """How the poller works."""

    node: NodeIdentity
    spool_dir: Path
    spool_max_mib: int


class Poller:
    """The loop, apart from the process around it.

    Args:
        config: identity and spool.
        nvml: the opened driver.
        source: who holds which GPU.
        clock: the time.
        beat: called after each tick is on disk.
    """

    def __init__(
        self,
        config: PollerConfig,
        nvml: Nvml,
        source: AllocationSource,
        clock: Clock,
        beat: Callable[[], None] = lambda: None,
    ) -> None:
        self._config = config
        self._nvml = nvml
        self._source = source
        self._clock = clock
        self._beat = beat
        self._spool = Spool(config.spool_dir, config.spool_max_mib)
        self._pending: Facts = {}
        self._unspooled: list[int] = []
        self._ticks = 0
        self._spool.forget_facts()
        self._sampler = self._begin()

    def _begin(self) -> Sampler:
        """Begin an epoch: new rows, same counters."""
        self._epoch = self._spool.begin_epoch(self._clock.now_us())
        self._fresh = True
        kept = self._spool.state(_STATE)
        sampler = Sampler(self._nvml, self._config.node, self._clock, self._epoch, kept)
        self._spool.add_facts(sampler.discover())
        gc.collect()
        gc.freeze()
        return sampler

    def close(self) -> None:
        """Free the driver's buffers and the spool."""
        self._sampler.close()
        self._spool.close()

    def run(self, stop: threading.Event) -> None:
        """Tick until `stop` is set."""
        grid = TickGrid(self._clock, stop)
        while not stop.is_set():
            try:
                due = grid.next()
            except ClockSetBackError as exc:
                grid = self._set_back(str(exc), stop)
                continue
            if due is None:
                return
            self.tick(due)

    def tick(self, due: Due) -> None:
        """Read every device once and put it on disk."""
        if self._fresh:
            self._fresh = False
            due = self._after_pause(due)
        second = self._sampler.sample(due)
        try:
            self._collect(second, self._source.poll(due.ts_us))
        except Exception:
            _log.exception("allocation source failed")
        self._store(due, second)
        self._beat()
        self._tidy()

    def _tidy(self) -> None:
        """Do now and then what must not fall into a reading."""
        self._ticks += 1
        if self._ticks % TIDY_EVERY:
            return
        gc.collect()
        try:
            dropped = self._spool.trim(self._config.node.node_id)
        except sqlite3.Error as exc:  # busy too long, disk full
            _log.error("the spool could not be trimmed: %s", exc)
            return
        if dropped:
            _log.error("spool is full: the oldest %d seconds are dropped", dropped)

    def _after_pause(self, due: Due) -> Due:
        """Name the seconds between the last tick of an earlier agent and this one."""
        last_us = self._spool.last_tick_us()
        if last_us is None or due.ts_us - last_us <= US_PER_S:
            return due
        return replace(due, missed=Missed(last_us + US_PER_S, due.ts_us - US_PER_S, "agent_down"))

    def _set_back(self, words: str, stop: threading.Event) -> TickGrid:
        _log.warning("%s: a new epoch begins", words)
        self._sampler.close()
        self._sampler = self._begin()
        now_us = self._clock.now_us() // US_PER_S * US_PER_S
        self._spool.add_facts(
            {"gap": [gap_row(self._config.node.node_id, now_us, now_us, "clock_step", words)]}
        )
        return TickGrid(self._clock, stop)

    @staticmethod
    def _collect(second: Second, facts: Facts) -> None:
        for name, rows in facts.items():
            second.add(name, *rows)

    def _store(self, due: Due, second: Second) -> None:
        facts = self._pending
        for name, rows in second.facts.items():
            facts.setdefault(name, []).extend(rows)
        if self._unspooled:
            first, last = self._unspooled[0], self._unspooled[-1]
            hole = gap_row(self._config.node.node_id, first, last, "spool_error")
            facts = {**facts, "gap": [*facts.get("gap", []), hole]}
        state: dict[str, Any] = {_STATE: self._sampler.state()}
        try:
            self._spool.append(self._epoch, due.ts_us, second.rows, facts, state)
            self._pending, self._unspooled = {}, []
        except sqlite3.Error as exc:  # busy too long, disk full
            if not self._unspooled:
                _log.error("a second could not be spooled: %s", exc)
            self._unspooled.append(due.ts_us)


def die_with_parent() -> None:
    """Ask the kernel to kill this process when its parent ends."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)


def ask_for_quick_wakeups() -> bool:
    """Ask the scheduler for short slices, so that a tick begins sooner on a busy core.

    Return whether it was taken. It needs no right, keeps the process's weight, and so takes nothing
    from others over time. Linux 6.12 and newer honour it; older ones take it and change nothing.
    """
    number = _SCHED_SETATTR.get(os.uname().machine)
    if number is None:
        return False
    nice = os.getpriority(os.PRIO_PROCESS, 0)
    fields = (_SCHED_ATTR.size, _SCHED_OTHER, 0, nice, 0, SLICE_NS, 0, 0)
    try:
        return bool(ctypes.CDLL(None).syscall(number, 0, _SCHED_ATTR.pack(*fields), 0) == 0)
    except (OSError, AttributeError):
        return False


def _stop_at_end_of_input(stop: threading.Event) -> None:
    with contextlib.suppress(OSError):
        while os.read(0, 64):
            pass
    stop.set()


def run_poller(
    config: PollerConfig,
    load_driver: Callable[[], None],
    make_source: Callable[[], AllocationSource],
    clock: Clock,
) -> int:
    """Run the poller process and return its exit code.

    Its standard input is the supervisor's pipe: at its end the poller ends. On standard output it
    writes one byte for each second on disk.

    Raises:
        DriverError: the driver cannot be opened, or is gone.
    """
    die_with_parent()
    ask_for_quick_wakeups()
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        # Not from the handler itself: it may interrupt a wait that holds the event's lock.
        signal.signal(number, lambda *_: _thread.start_new_thread(stop.set, ()))
    threading.Thread(target=_stop_at_end_of_input, args=(stop,), daemon=True).start()

    def beat() -> None:
        try:
            os.write(1, HEARTBEAT)
        except OSError:
            stop.set()

    load_driver()
    nvml = Nvml()
    gc.disable()  # garbage is collected after a tick, never in the middle of one
    try:
        poller = Poller(config, nvml, make_source(), clock, beat)
        try:
            poller.run(stop)
        finally:
            poller.close()
    except SpoolDamagedError as exc:
        _log.error("%s", exc)
        return EXIT_SPOOL_DAMAGED
    finally:
        nvml.close()
    return 0


def sample_once(node: NodeIdentity, clock: Clock) -> Second:
    """Return one second of every device; waits for a second first, so that rates have a base.

    Raises:
        DriverError: the driver cannot be opened.
    """
    nvml = Nvml()
    try:
        sampler = Sampler(nvml, node, clock, 0)
        facts = sampler.discover()
        grid = TickGrid(clock)
        for _ in range(2):
            due = grid.next()
            second = sampler.sample(due) if due is not None else Second()
        sampler.close()
        second.facts = {**facts, **second.facts}
        return second
    finally:
        nvml.close()
