"""The node agent over a constant stand-in: CPU, memory, lateness, missed ticks.

::

    python benchmarks/agent.py                    # 8 GPUs, 20 seconds
    python benchmarks/agent.py --seconds 900      # the fifteen minutes of the budget

Measured:

* ``agent``   supervisor and poller as real processes, shipping to a server on loopback in this
  process: CPU (user + system) of both, poller RSS + supervisor USS, lateness of the ticks as the
  rows tell it, seconds without a row. The driver here is Python, so its time is in these figures.
* ``tick``    CPU of one tick in a loop, and the part of it that was spent inside the driver.

Nothing is extrapolated.
"""

from __future__ import annotations

import argparse
import json
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import psutil

from collector.attribution import NoAllocations
from collector.identity import NodeIdentity
from collector.nvml import Nvml
from collector.poller import Poller, PollerConfig
from collector.simulator.constant import install_constant
from collector.ticks import Due
from idlewatt.clock import SystemClock
from idlewatt.columns import GPU_SAMPLE
from idlewatt.units import US_PER_S
from idlewatt.wire import decode_batch, rows_from_table

SETTLE_S = 5
LATE = [column.name for column in GPU_SAMPLE].index("late_ms")


class Server:
    """Acknowledges everything and keeps (second, lateness) of each row."""

    def __init__(self) -> None:
        self.seen: list[tuple[int, int]] = []
        seen = self.seen

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True

            def do_POST(self) -> None:
                batch = decode_batch(self.rfile.read(int(self.headers["Content-Length"])))
                if "gpu_sample" in batch.tables:
                    rows = rows_from_table(GPU_SAMPLE, batch.tables["gpu_sample"])
                    seen.extend((row[0], row[LATE]) for row in rows)
                raw = json.dumps({"acked": batch.header.seq, "flush_s": 1.0}).encode()
                self.send_response(200)
                self.send_header("Content-Length", str(len(raw)))
                self.end_headers()
                self.wfile.write(raw)

            def log_message(self, *_: Any) -> None:
                return

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.http.serve_forever, daemon=True).start()


def cpu_s(process: psutil.Process) -> float:
    """Return CPU seconds of a process."""
    times = process.cpu_times()
    return float(times.user + times.system)


def measure_agent(gpus: int, seconds: int) -> dict[str, Any]:
    """Return what the agent costs in real time."""
    server = Server()
    with tempfile.TemporaryDirectory() as folder:
        child = subprocess.Popen(
            [
                *(sys.executable, "-m", "idlewatt", "agent", "--driver", "constant"),
                *("--gpus", str(gpus), "--node-id", "bench", "--spool-dir", folder),
                *("--server", f"http://127.0.0.1:{server.http.server_port}"),
            ]
        )
        time.sleep(SETTLE_S)
        supervisor = psutil.Process(child.pid)
        poller = supervisor.children()[0]
        before = cpu_s(supervisor), cpu_s(poller)
        time.sleep(seconds)
        after = cpu_s(supervisor), cpu_s(poller)
        supervisor_uss = supervisor.memory_full_info().uss
        poller_rss = poller.memory_info().rss
        child.send_signal(signal.SIGTERM)
        code = child.wait(10)
    server.http.shutdown()
    stamps = sorted({stamp for stamp, _ in server.seen})
    late = sorted(late_ms for _, late_ms in server.seen)
    return {
        "gpus": gpus,
        "seconds": seconds,
        "supervisor_cpu_pct": round(100 * (after[0] - before[0]) / seconds, 3),
        "poller_cpu_pct": round(100 * (after[1] - before[1]) / seconds, 3),
        "memory_mb": round((poller_rss + supervisor_uss) / 1e6, 1),
        "late_p50_ms": late[len(late) // 2],
        "late_p99_ms": late[int(len(late) * 0.99)],
        "late_max_ms": late[-1],
        "missed_seconds": (stamps[-1] - stamps[0]) // US_PER_S + 1 - len(stamps),
        "exit_code": code,
    }


class Meter:
    """Adds up the time spent inside the driver's functions."""

    def __init__(self, nvml: Nvml) -> None:
        self.spent_ns = 0
        self._function = nvml.function
        nvml.function = self.function  # type: ignore[method-assign]

    def function(self, name: str) -> Callable[..., int] | None:
        """Return the driver's function with a clock around it."""
        call = self._function(name)
        if call is None:
            return None

        def timed(*args: Any) -> int:
            begun = time.perf_counter_ns()
            code = call(*args)
            self.spent_ns += time.perf_counter_ns() - begun
            return code

        return timed


def measure_tick(gpus: int, ticks: int = 300) -> dict[str, Any]:
    """Return the CPU of a tick, and how much of it the driver took."""
    clock = SystemClock()
    install_constant(gpus, "H100", clock)
    nvml = Nvml()
    meter = Meter(nvml)
    start_us = clock.now_us() // US_PER_S * US_PER_S
    with tempfile.TemporaryDirectory() as folder:
        config = PollerConfig(NodeIdentity("bench"), Path(folder), 64)
        poller = Poller(config, nvml, NoAllocations(), clock)
        poller.tick(Due(start_us, 0, clock.monotonic_ns()))
        meter.spent_ns = 0
        cpu, wall = time.process_time(), time.perf_counter()
        for number in range(1, ticks + 1):
            poller.tick(Due(start_us + number * US_PER_S, 0, clock.monotonic_ns()))
        cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
        poller.close()
    nvml.close()
    driver_s = meter.spent_ns / 1e9 * cpu / wall
    return {
        "tick_cpu_ms": round(1e3 * cpu / ticks, 2),
        "of_it_driver_ms": round(1e3 * driver_s / ticks, 2),
        "own_ms": round(1e3 * (cpu - driver_s) / ticks, 2),
    }


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--gpus", type=int, default=8)
    parser.add_argument("--seconds", type=int, default=20)
    args = parser.parse_args()
    print(json.dumps({"tick": measure_tick(args.gpus)}))
    print(json.dumps({"agent": measure_agent(args.gpus, args.seconds)}))


if __name__ == "__main__":
    main()
