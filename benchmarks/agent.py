"""The node agent at 1 Hz: CPU, memory, lateness and missed ticks, beside nvitop-exporter.

::

    python benchmarks/agent.py                    # 8 GPUs, one minute
    python benchmarks/agent.py --seconds 900      # the fifteen minutes of the budget
    python benchmarks/agent.py --no-peer --json

Three things run at the same time over the same stand-in, as real processes in real time:

* ``idlewatt``      supervisor and poller, shipping each second to a server on loopback
* ``driver alone``  a process that makes, each second, the very driver calls that the poller makes
  (recorded from ten of its ticks) and nothing else: the time that a Python driver costs. What the
  agent needs beyond that is its own.
* ``nvitop``        nvitop-exporter 1.7.2, interval 1 s, scraped each second over loopback, in an
  environment of its own that is made for the run; left out, with the reason, where that fails

CPU is the kernel's process clock (ns), threads that have ended included. A tick is late by what
its first row says; a row also waits for the rows before it. Nothing is extrapolated.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
import venv
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import psutil

from collector.identity import NodeIdentity
from collector.nvml import Nvml
from collector.sampler import Sampler
from collector.simulator.constant import install_constant
from collector.ticks import Due, TickGrid
from idlewatt.clock import SystemClock
from idlewatt.columns import GPU_SAMPLE
from idlewatt.units import US_PER_S
from idlewatt.wire import decode_batch, rows_from_table

ROOT = Path(__file__).parents[1]
PEER = "nvitop-exporter==1.7.2"
SETTLE_S = 8
RECORDED_TICKS = 10
LATE = [column.name for column in GPU_SAMPLE].index("late_ms")
BARS = {
    "own_cpu_pct": 0.5,
    "memory_mb": 45.0,
    "tick_late_p99_ms": 20.0,
    "missed_ticks": 0.0,
    "cpu_over_peer": 0.5,
}


class Server:
    """Acknowledges everything and keeps the lateness of each row by its second."""

    def __init__(self) -> None:
        self.late: dict[int, list[int]] = {}
        late = self.late

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True

            def do_POST(self) -> None:
                batch = decode_batch(self.rfile.read(int(self.headers["Content-Length"])))
                if "gpu_sample" in batch.tables:
                    for row in rows_from_table(GPU_SAMPLE, batch.tables["gpu_sample"]):
                        late.setdefault(row[0], []).append(row[LATE])
                raw = json.dumps({"acked": batch.header.seq, "flush_s": 1.0}).encode()
                self.send_response(200)
                self.send_header("Idlewatt-Server", "0")
                self.send_header("Content-Length", str(len(raw)))
                self.end_headers()
                self.wfile.write(raw)

            def log_message(self, *_: Any) -> None:
                return

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.http.serve_forever, daemon=True).start()
        self.url = f"http://127.0.0.1:{self.http.server_port}"


# ── the driver alone ────────────────────────────────────────────────────────────────────────────


def record_calls(gpus: int) -> list[list[tuple[Callable[..., int], tuple[Any, ...]]]]:
    """Return the driver calls of ten ticks of the agent's own reader, one list a tick."""
    clock = SystemClock()
    install_constant(gpus, "H100", clock)
    nvml = Nvml()
    calls: list[tuple[Callable[..., int], tuple[Any, ...]]] = []
    function = nvml.function

    def recorded(name: str) -> Callable[..., int] | None:
        call = function(name)
        if call is None:
            return None

        def record(*args: Any) -> int:
            calls.append((call, args))
            return call(*args)

        return record

    nvml.function = recorded  # type: ignore[method-assign]
    sampler = Sampler(nvml, NodeIdentity("bench"), clock, 0)
    sampler.discover()
    start_us = clock.now_us() // US_PER_S * US_PER_S
    ticks = []
    for number in range(RECORDED_TICKS + 2):
        calls.clear()
        sampler.sample(Due(start_us + number * US_PER_S, 0, clock.monotonic_ns()))
        ticks.append(list(calls))
        time.sleep(0.11)  # the counters are compared over at least 100 ms
    return ticks[2:]


def run_driver_alone(gpus: int) -> None:
    """Make the recorded calls each second, for ever."""
    ticks = record_calls(gpus)
    grid = TickGrid(SystemClock())
    while True:
        for calls in ticks:
            grid.next()
            for call, args in calls:
                call(*args)


# ── the peer ────────────────────────────────────────────────────────────────────────────────────


def free_port() -> int:
    """Return a TCP port that was free a moment ago."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def install_peer(folder: Path) -> Path:
    """Return the interpreter of a new environment that holds the peer.

    Raises:
        RuntimeError: it cannot be installed here.
    """
    venv.create(folder, with_pip=True)
    python = folder / "bin" / "python"
    words = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", PEER]
    done = subprocess.run(words, capture_output=True, text=True, timeout=300, check=False)
    if done.returncode != 0:
        raise RuntimeError((done.stderr.strip() or "pip failed").splitlines()[-1])
    return python


@contextlib.contextmanager
def peer(gpus: int, python: Path) -> Iterator[psutil.Process]:
    """Run the peer and scrape it each second."""
    port, stop = free_port(), threading.Event()
    runner = Path(__file__).parent / "peers" / "run_nvitop.py"
    child = subprocess.Popen(
        [str(python), str(runner), str(ROOT), str(gpus), str(port)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )

    def scrape() -> None:
        while not stop.wait(1.0):
            with contextlib.suppress(OSError):
                urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=5).read()

    thread = threading.Thread(target=scrape, daemon=True)
    thread.start()
    try:
        yield psutil.Process(child.pid)
    finally:
        stop.set()
        thread.join(6)
        child.terminate()
        child.wait(10)


# ── measuring ───────────────────────────────────────────────────────────────────────────────────


def cpu_s(process: psutil.Process) -> float:
    """Return the CPU seconds of a process from the kernel's own clock of it."""
    return time.clock_gettime((~process.pid << 3) | 2)


def words_of(gpus: int, folder: str, url: str) -> list[str]:
    """Return the agent's command line."""
    return [
        *(sys.executable, "-m", "idlewatt", "agent", "--driver", "constant"),
        *("--gpus", str(gpus), "--node-id", "bench", "--spool-dir", folder, "--server", url),
    ]


def quantile(values: list[int], share: float) -> int:
    """Return a quantile of sorted values."""
    return values[min(int(len(values) * share), len(values) - 1)]


def measure(gpus: int, seconds: int, python: Path | None) -> dict[str, Any]:
    """Return what everything costs in the same window of real time."""
    server = Server()
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        agent = subprocess.Popen(words_of(gpus, folder, server.url))
        alone = subprocess.Popen([sys.executable, __file__, "--driver-alone", str(gpus)])
        stack.callback(alone.wait, 10)
        stack.callback(alone.terminate)
        other = stack.enter_context(peer(gpus, python)) if python else None
        time.sleep(SETTLE_S)
        supervisor = psutil.Process(agent.pid)
        poller = supervisor.children()[0]
        watched = {"supervisor": supervisor, "poller": poller, "driver": psutil.Process(alone.pid)}
        if other is not None:
            watched["peer"] = other
        before = {name: cpu_s(process) for name, process in watched.items()}
        load, begun = [os.getloadavg()[0]], time.monotonic()
        time.sleep(seconds)
        took_s = time.monotonic() - begun
        load.append(os.getloadavg()[0])
        pct = {
            name: 100 * (cpu_s(process) - before[name]) / took_s
            for name, process in watched.items()
        }
        memory = poller.memory_info().rss + supervisor.memory_full_info().uss
        peer_rss = None if other is None else other.memory_info().rss / 1e6
        agent.send_signal(signal.SIGTERM)
        code = agent.wait(10)
    server.http.shutdown()
    return {
        "gpus": gpus,
        "seconds": seconds,
        "load_average": [round(value, 2) for value in load],
        "exit_code": code,
        "supervisor_cpu_pct": round(pct["supervisor"], 3),
        "poller_cpu_pct": round(pct["poller"], 3),
        "driver_cpu_pct": round(pct["driver"], 3),
        "cpu_pct": round(pct["supervisor"] + pct["poller"], 3),
        "own_cpu_pct": round(pct["supervisor"] + pct["poller"] - pct["driver"], 3),
        "memory_mb": round(memory / 1e6, 1),
        **lateness(server.late),
        "peer_cpu_pct": None if other is None else round(pct["peer"], 3),
        "peer_memory_mb": None if peer_rss is None else round(peer_rss, 1),
        "cpu_over_peer": None
        if other is None
        else round((pct["supervisor"] + pct["poller"]) / pct["peer"], 3),
    }


def lateness(late: dict[int, list[int]]) -> dict[str, int]:
    """Return lateness of ticks (first row of a second) and of rows, and the seconds missed."""
    ticks = sorted(min(values) for values in late.values())
    rows = sorted(value for values in late.values() for value in values)
    return {
        "ticks": len(ticks),
        "tick_late_p50_ms": quantile(ticks, 0.5),
        "tick_late_p99_ms": quantile(ticks, 0.99),
        "tick_late_max_ms": ticks[-1],
        "row_late_p50_ms": quantile(rows, 0.5),
        "row_late_p99_ms": quantile(rows, 0.99),
        "missed_ticks": (max(late) - min(late)) // US_PER_S + 1 - len(late),
    }


def table(found: dict[str, Any], why_no_peer: str) -> str:
    """Return the figures beside the peer's and the budget's."""
    rows = [
        ("CPU, % of a core", found["cpu_pct"], found["peer_cpu_pct"], "cpu_over_peer"),
        ("  of it the driver's", found["driver_cpu_pct"], None, ""),
        ("  of it our own", found["own_cpu_pct"], None, "own_cpu_pct"),
        ("memory, MB", found["memory_mb"], found["peer_memory_mb"], "memory_mb"),
        ("tick late, median ms", found["tick_late_p50_ms"], None, ""),
        ("tick late, p99 ms", found["tick_late_p99_ms"], None, "tick_late_p99_ms"),
        ("tick late, max ms", found["tick_late_max_ms"], None, ""),
        ("row late, p99 ms", found["row_late_p99_ms"], None, ""),
        ("ticks missed", found["missed_ticks"], None, "missed_ticks"),
    ]
    lines = [f"{'':24}{'idlewatt':>10}{'nvitop':>10}{'ratio':>8}{'bar':>16}"]
    for name, ours, theirs, bar in rows:
        ratio = f"{ours / theirs:.2f}" if theirs else ""
        limit = f"{'ratio ' if bar == 'cpu_over_peer' else ''}<= {BARS[bar]:g}" if bar else ""
        shown = "" if theirs is None else f"{theirs:g}"
        lines.append(f"{name:24}{ours:>10g}{shown:>10}{ratio:>8}{limit:>16}".rstrip())
    first, last = found["load_average"]
    lines.append(
        f"{found['gpus']} GPUs, {found['seconds']} s, {found['ticks']} ticks, load average"
        f" {first} to {last} on {os.cpu_count()} cores"
    )
    if why_no_peer:
        lines.append(f"no peer: {why_no_peer}")
    return "\n".join(lines)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--gpus", type=int, default=8)
    parser.add_argument("--seconds", type=int, default=60)
    parser.add_argument("--no-peer", action="store_true", help="leave nvitop-exporter out")
    parser.add_argument("--peer-python", type=Path, help="an interpreter that has it already")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--driver-alone", type=int, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.driver_alone:
        run_driver_alone(args.driver_alone)
    why = "left out by --no-peer" if args.no_peer else ""
    with tempfile.TemporaryDirectory() as folder:
        python = args.peer_python
        if not args.no_peer and python is None:
            try:
                python = install_peer(Path(folder))
            except (RuntimeError, OSError, subprocess.SubprocessError) as exc:
                why = f"{PEER} cannot be installed here: {exc}"
        found = measure(args.gpus, args.seconds, None if args.no_peer else python)
    print(json.dumps(found | {"no_peer": why or None}) if args.json else table(found, why))


if __name__ == "__main__":
    main()
