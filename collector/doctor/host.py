"""Asks the machine: packages, rights, spool folder, clock, limits."""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from importlib import metadata
from pathlib import Path
from typing import Final, Generic, TypeVar

from collector.agent import LOCK_NAME
from collector.doctor.facts import (
    ClockFacts,
    RightsFacts,
    SoftwareFacts,
    SpoolFacts,
    TokenFacts,
)
from collector.spool import FILE_NAME

PACKAGES: Final = ("idlewatt", "nvidia-ml-py", "msgspec", "zstandard")
SYNCS: Final = 5
SYNC_BYTES: Final = 4_096
_CAP_SYS_ADMIN: Final = 21
_STA_UNSYNC: Final = 0x40
_T = TypeVar("_T")


class Asked(Generic[_T]):
    """A question that is asked in the background, so that nothing waits for it for ever.

    Args:
        ask: answers it; if it hangs, it is left behind.
    """

    def __init__(self, ask: Callable[[], _T]) -> None:
        self._ask = ask
        self._answers: list[_T] = []
        self._errors: list[Exception] = []
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._answers.append(self._ask())
        except Exception as exc:
            self._errors.append(exc)

    def result(self, seconds: float, otherwise: _T) -> _T:
        """Return the answer, or `otherwise` if there is none `seconds` from now.

        Raises:
            Exception: what the question raised.
        """
        self._thread.join(seconds)
        if self._errors:
            raise self._errors[0]
        return self._answers[0] if self._answers else otherwise


def probe_software() -> SoftwareFacts:
    """Return the versions of interpreter and packages."""
    versions: dict[str, str | None] = {}
    for name in PACKAGES:
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            versions[name] = None
    return SoftwareFacts(sys.version_info[:3], versions)


def probe_rights(proc: Path = Path("/proc"), dev: Path = Path("/dev")) -> RightsFacts:
    """Return what this process may do."""
    return RightsFacts(
        uid=os.geteuid(),
        sys_admin=_sys_admin(proc / "self" / "status"),
        profiling_restricted=_restricted(proc / "driver" / "nvidia" / "params"),
        open_files=resource.getrlimit(resource.RLIMIT_NOFILE)[0],
        closed_nodes=tuple(
            str(node)
            for node in (dev / "nvidiactl", *sorted(dev.glob("nvidia[0-9]*")))
            if node.exists() and not os.access(node, os.R_OK | os.W_OK)
        ),
    )


def _sys_admin(path: Path) -> bool | None:
    word = _word_after(path, "CapEff:")
    return None if word is None else bool(int(word, 16) >> _CAP_SYS_ADMIN & 1)


def _restricted(path: Path) -> bool | None:
    word = _word_after(path, "RmProfilingAdminOnly:")
    return None if word is None else word != "0"


def _word_after(path: Path, key: str) -> str | None:
    try:
        for line in path.read_text("utf-8", "replace").splitlines():
            if line.startswith(key):
                return line.removeprefix(key).strip()
    except OSError:
        return None
    return None


def probe_spool(folder: Path, max_mib: int, now_s: float | None = None) -> SpoolFacts:
    """Return how the spool's folder is; one small file is written there and removed."""
    folder = folder.absolute()
    facts = SpoolFacts(str(folder), max_mib=max_mib)
    there = next(path for path in (folder, *folder.parents) if path.exists())
    facts = replace(facts, kind=_file_system(there))
    with contextlib.suppress(OSError):
        facts = replace(facts, free_bytes=shutil.disk_usage(there).free)
    if there != folder:
        writable = there.is_dir() and os.access(there, os.W_OK | os.X_OK)
        return replace(facts, error=None if writable else f"{there} cannot be written")
    facts = replace(facts, exists=True)
    try:
        facts = replace(facts, sync_ms=_time_syncs(folder))
    except OSError as exc:
        return replace(facts, error=exc.strerror or str(exc))
    now_s = time.time() if now_s is None else now_s
    return replace(facts, holder_pid=_holder(folder / LOCK_NAME), silent_s=_silent_s(folder, now_s))


def _time_syncs(folder: Path) -> tuple[float, ...]:
    took = []
    with tempfile.TemporaryFile(dir=folder) as file:
        for _ in range(SYNCS):
            begun_ns = time.perf_counter_ns()
            file.write(b"\0" * SYNC_BYTES)
            file.flush()
            os.fdatasync(file.fileno())
            took.append((time.perf_counter_ns() - begun_ns) / 1e6)
    return tuple(took)


def _file_system(path: Path) -> str | None:
    """Return the kind of the file system that holds `path`."""
    kinds: dict[Path, str] = {}
    try:
        lines = Path("/proc/self/mountinfo").read_text("utf-8", "replace").splitlines()
        whole = path.resolve()
    except OSError:
        return None
    for line in lines:
        before, _, after = line.partition(" - ")
        kinds[Path(before.split()[4])] = after.split()[0]
    return next((kinds[one] for one in (whole, *whole.parents) if one in kinds), None)


def _holder(lock: Path, locks: Path = Path("/proc/locks")) -> int | None:
    """Return the process that holds the agent's lock; reads only, so that nobody is refused."""
    try:
        inode = lock.stat().st_ino
        lines = locks.read_text("ascii", "replace").splitlines()
    except OSError:
        return None
    for line in lines:
        words = line.split()
        if len(words) > 5 and words[1] == "FLOCK" and words[5].rpartition(":")[2] == str(inode):
            return int(words[4])
    return None


def _silent_s(folder: Path, now_s: float) -> float | None:
    changed = []
    for name in (FILE_NAME, f"{FILE_NAME}-wal"):
        with contextlib.suppress(OSError):
            changed.append((folder / name).stat().st_mtime)
    return max(now_s - max(changed), 0.0) if changed else None


class _Timex(ctypes.Structure):
    """The kernel's `struct timex` up to its status, with room for the rest."""

    _fields_ = [
        ("modes", ctypes.c_uint),
        ("offset", ctypes.c_long),
        ("freq", ctypes.c_long),
        ("maxerror", ctypes.c_long),
        ("esterror", ctypes.c_long),
        ("status", ctypes.c_int),
        ("rest", ctypes.c_char * 256),
    ]


def probe_clock(run: Path = Path("/run")) -> ClockFacts:
    """Return how well the clock is kept; `modes` is 0, so that nothing is set."""
    known = _kernel()
    if (run / "systemd" / "timesync" / "synchronized").exists():
        return replace(known, synchronised=True, source="systemd-timesyncd")
    if known.synchronised and (run / "chrony").exists():
        return replace(known, source="chrony")
    return known


def _kernel() -> ClockFacts:
    try:
        adjtimex = ctypes.CDLL(None).adjtimex
    except (OSError, AttributeError):
        return ClockFacts()
    state = _Timex()
    if adjtimex(ctypes.byref(state)) < 0:
        return ClockFacts()
    synchronised = not state.status & _STA_UNSYNC
    max_error_ms = state.maxerror / 1_000 if synchronised else None
    return ClockFacts(synchronised, "kernel", max_error_ms)


def probe_token(file: str, given: str) -> tuple[TokenFacts, str]:
    """Return what is known about the token, and the token."""
    if not file:
        return TokenFacts(present=bool(given)), given
    path = Path(file).expanduser().absolute()
    try:
        token = path.read_text("utf-8").strip()
        mode = path.stat().st_mode & 0o777
    except (OSError, UnicodeDecodeError) as exc:
        words = getattr(exc, "strerror", None) or str(exc)
        return TokenFacts(str(path), error=f"token file {path} cannot be read: {words}"), ""
    return TokenFacts(str(path), mode=mode, present=bool(token)), token
