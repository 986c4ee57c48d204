"""Child processes that never outlive their parent, however it ends."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

_PR_SET_PDEATHSIG: Final = 1


def die_with_parent() -> None:
    """Ask the kernel for SIGTERM when the parent is gone (Linux)."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


class Children:
    """A set of child processes, each in a session of its own so that Ctrl-C reaches only us.

    Args:
        log_dir: each child's output goes to a file here.
    """

    def __init__(self, log_dir: Path) -> None:
        self._log_dir = log_dir
        self._running: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, name: str, words: Sequence[str], env: Mapping[str, str] | None = None) -> None:
        """Start a child."""
        with (self._log_dir / f"{name}.log").open("ab") as log:
            self._running[name] = subprocess.Popen(
                list(words),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=None if env is None else os.environ | dict(env),
                start_new_session=True,
                preexec_fn=die_with_parent,  # noqa: PLW1509 - called before any thread exists
            )

    def ended(self) -> str | None:
        """Return the name of a child that has ended, if one has."""
        return next((n for n, child in self._running.items() if child.poll() is not None), None)

    def last_words(self, name: str) -> str:
        """Return the last lines that a child printed."""
        text = (self._log_dir / f"{name}.log").read_text("utf-8", "replace")
        return "\n".join(text.strip().splitlines()[-5:])

    def stop(self, timeout_s: float = 10.0) -> None:
        """Stop all children, the youngest first; kill what does not obey in time."""
        order = list(reversed(self._running.values()))
        for child in order:
            if child.poll() is None:
                child.terminate()
        end = time.monotonic() + timeout_s
        for child in order:
            try:
                child.wait(max(end - time.monotonic(), 0.1))
            except subprocess.TimeoutExpired:
                child.kill()
                child.wait()
        self._running.clear()
