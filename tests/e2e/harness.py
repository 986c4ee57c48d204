"""Real processes for the end-to-end tests: a server, agents, and what they leave behind."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

IDLEWATT = (sys.executable, "-m", "idlewatt")


def free_port() -> int:
    """Return a TCP port that was free a moment ago."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def wait_until(check: Callable[[], Any], timeout_s: float, what: str) -> Any:
    """Return the first truthy result of `check`, polled until the time is up."""
    end = time.monotonic() + timeout_s
    while time.monotonic() < end:
        value = check()
        if value:
            return value
        time.sleep(0.1)
    raise AssertionError(f"not within {timeout_s} s: {what}")


def clean_env(extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return the environment without idlewatt settings, plus `extra`."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("IDLEWATT_")}
    return kept | dict(extra or {})


@dataclass
class Process:
    """A child in its own process group, with its output in a file."""

    words: Sequence[str]
    log: Path
    env: Mapping[str, str] = field(default_factory=dict)
    cwd: Path | None = None
    child: subprocess.Popen[bytes] | None = None

    def start(self) -> Process:
        """Start it."""
        with self.log.open("ab") as out:
            self.child = subprocess.Popen(
                [*self.words], stdout=out, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL,
                env=clean_env(self.env), cwd=self.cwd, start_new_session=True,
            )  # fmt: skip
        return self

    @property
    def pid(self) -> int:
        """Return the process id."""
        assert self.child is not None
        return self.child.pid

    def kill(self) -> None:
        """Send SIGKILL to this process alone, as an out-of-memory killer would."""
        assert self.child is not None
        self.child.kill()
        self.child.wait(10)

    def stop(self, timeout_s: float = 15) -> int:
        """Send SIGTERM and return the exit code."""
        assert self.child is not None
        if self.child.poll() is None:
            self.child.send_signal(signal.SIGTERM)
        return self.child.wait(timeout_s)

    def end(self) -> None:
        """Make sure that nothing of its group is left."""
        if self.child is None:
            return
        for sign in (signal.SIGTERM, signal.SIGKILL):
            try:
                os.killpg(self.child.pid, sign)
            except ProcessLookupError:
                break
            time.sleep(0.2)
        self.child.wait(10)

    def output(self) -> str:
        """Return what it has printed so far."""
        return self.log.read_text("utf-8", "replace") if self.log.exists() else ""


@dataclass
class Server:
    """`idlewatt serve` on a port and a data folder that survive restarts."""

    root: Path
    command: Sequence[str] = IDLEWATT
    settings: Mapping[str, str] = field(default_factory=dict)
    port: int = field(default_factory=free_port)
    process: Process | None = None

    @property
    def url(self) -> str:
        """Return the base URL."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def data_dir(self) -> Path:
        """Return the warehouse's folder."""
        return self.root / "data"

    def start(self, wait: bool = True) -> Server:
        """Start the server, and wait until it answers."""
        flags = {"server.port": str(self.port), "server.data_dir": str(self.data_dir)}
        words = [*self.command, "serve"]
        for name, value in (flags | dict(self.settings)).items():
            words += ["--set", f"{name}={value}"]
        self.process = Process(words, self.root / "server.log", cwd=self.root).start()
        if wait:
            wait_until(self.answers, 60, f"server answers\n{self.process.output()}")
        return self

    def answers(self) -> bool:
        """Return whether the health page answers at all, green or red."""
        assert self.process is not None
        assert self.process.child is not None
        assert self.process.child.poll() is None, self.process.output()
        try:
            urllib.request.urlopen(self.url + "/healthz", timeout=5).close()
        except urllib.error.HTTPError:
            return True
        except OSError:
            return False
        return True

    def token(self, node_id: str) -> str:
        """Create a token for a node and return it."""
        done = subprocess.run(
            [*self.command, "token", "create", node_id, "--set", f"server.data_dir={self.data_dir}"],  # noqa: E501
            capture_output=True, text=True, check=True, env=clean_env(), cwd=self.root,
        )  # fmt: skip
        return done.stdout.split()[-1]

    def sql(self, statement: str) -> list[dict[str, Any]]:
        """Return the rows of a query."""
        body = json.dumps({"sql": statement, "format": "json"}).encode()
        request = urllib.request.Request(
            self.url + "/api/v1/query", body, {"Content-Type": "application/json"}
        )
        with urllib.request.urlopen(request, timeout=60) as answer:
            found = json.load(answer)
        return [dict(zip(found["columns"], row, strict=True)) for row in found["rows"]]

    def end(self) -> None:
        """Make sure that it is gone."""
        if self.process is not None:
            self.process.end()
