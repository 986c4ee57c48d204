"""Power states over synthetic hours: rows a second, CPU and memory of what ran here.

::

    python benchmarks/power_states.py                       # 100 GPUs, 2 hours: seconds
    python benchmarks/power_states.py --gpus 1000 --hours 24  # 86 M rows; needs 3 GB of disk

Measured, each in a process of its own so that memory is its own:

* ``pure``         classify, raw runs and stitching of one hour, on arrays in memory
* ``all hours``    `refresh` over every hour of a sealed warehouse, output written
* ``one hour``     `refresh` after one more row has come to the last hour
* ``nothing``      `refresh` when nothing changed

Nothing is extrapolated. CPU is user + system of the process, memory its peak.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from analysis import states_job
from analysis.power_states import Rows, classify, columns_from_arrow, raw_runs, stitch
from analysis.tables import stamp
from idlewatt.clock import VirtualClock
from idlewatt.config import Settings, resolve
from idlewatt.units import S_PER_HOUR, US_PER_HOUR, US_PER_S
from warehouse.sealer import Sealer
from warehouse.store import Store

ORIGIN_US = 491_000 * US_PER_HOUR
MEAN_RUN_S = 20


def hour_table(gpus: int, hour: int, seed: int) -> pa.Table:
    """Return an hour of samples, GPU by GPU: runs of work, pauses and empty time."""
    rng = np.random.default_rng((seed, hour))
    rows = gpus * S_PER_HOUR
    switch = rng.random(rows) < 1 / MEAN_RUN_S
    number = np.cumsum(switch)
    state = rng.choice(3, size=int(number[-1]) + 1, p=[0.6, 0.3, 0.1])[number]
    noise = rng.random(rows).astype(np.float32)
    busy = state == 0
    level = np.where(busy, 0.4 + 0.5 * noise, 0.01 * noise).astype(np.float32)
    power = np.where(busy, 550_000, np.where(state == 1, 120_000, 72_000)) + (noise * 9e3)
    power = power.astype(np.int32)
    second = np.tile(np.arange(S_PER_HOUR, dtype=np.int64), gpus)
    traffic = np.where(busy, 5e7 + noise * 1e7, 1e4).astype(np.int64)
    names = [f"GPU-{seed:08x}-{gpu:06d}-0000-0000-000000000000" for gpu in range(gpus)]
    which = pa.array(np.repeat(np.arange(gpus, dtype=np.int32), S_PER_HOUR))
    zero = pa.array(np.zeros(rows, dtype=np.float32))
    return pa.table(
        {
            "ts_utc": pa.array(ORIGIN_US + hour * US_PER_HOUR + second * US_PER_S).cast(
                pa.timestamp("us")
            ),
            "obs_ms": pa.array(np.full(rows, 1000, dtype=np.int32)),
            "node_id": pa.array([f"n{gpu // 8:04d}" for gpu in range(gpus)]).take(which),
            "gpu_uuid": pa.array(names).take(which),
            "epoch": pa.array(np.ones(rows, dtype=np.int64)),
            "power_avg_mw": pa.array(power),
            "power_inst_mw": pa.array(power),
            "power_limit_mw": pa.array(np.full(rows, 700_000, dtype=np.int32)),
            "energy_uj": pa.array(power.astype(np.int64) * 1000),
            "energy_source": pa.array(["counter"]).take(pa.array(np.zeros(rows, dtype=np.int32))),
            "sm_active": pa.array(level),
            "tensor_active": pa.array(level),
            "fp64_active": zero,
            "fp32_active": pa.array(level),
            "fp16_active": zero,
            "dram_active": pa.array(level),
            "util_gpu_pct": pa.array((level * 100).astype(np.int16)),
            "util_mem_pct": pa.array((level * 60).astype(np.int16)),
            "pcie_tx_bytes_s": pa.array(traffic),
            "pcie_rx_bytes_s": pa.array(traffic),
            "nvlink_tx_bytes_s": pa.array(traffic),
            "nvlink_rx_bytes_s": pa.array(traffic),
            "resident": pa.array(state != 2),
        }
    )


def fill(folder: Path, gpus: int, hours: int, seed: int, settings: Settings) -> None:
    """Make a warehouse of sealed hours."""
    clock = VirtualClock(ORIGIN_US + (hours + 2) * US_PER_HOUR)
    with Store.open(folder, settings, clock) as store:
        for hour in range(hours):
            table = hour_table(gpus, hour, seed)
            store.write(lambda con, hour=hour, table=table: _insert(store, con, hour, table))
            Sealer(store).run_once()


def _insert(store: Store, con: Any, hour: int, table: pa.Table) -> None:
    hour_us = ORIGIN_US + hour * US_PER_HOUR
    name = store.layout.open_table(con, hour_us).name
    con.register("bench_rows", table)
    con.execute(f"INSERT INTO {name} BY NAME SELECT * FROM bench_rows")
    con.unregister("bench_rows")
    con.execute(
        "INSERT INTO hour_change VALUES (?, ?, ?) ON CONFLICT (hour_utc) DO UPDATE "
        "SET change_seq = excluded.change_seq, rows = hour_change.rows + excluded.rows",
        [stamp(hour_us), store.layout.next_change(), table.num_rows],
    )


def measured(work: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """Return what `work` says, and the time and memory it took."""
    before = resource.getrusage(resource.RUSAGE_SELF)
    begin = time.perf_counter()
    answer = work()
    wall_s = time.perf_counter() - begin
    after = resource.getrusage(resource.RUSAGE_SELF)
    cpu_s = after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime
    answer |= {
        "wall_s": round(wall_s, 3),
        "cpu_s": round(cpu_s, 3),
        "peak_mib": after.ru_maxrss // 1024,
    }
    if answer.get("rows"):
        answer["rows_per_s"] = round(answer["rows"] / wall_s)
    return answer


def pure(gpus: int, seed: int) -> dict[str, Any]:
    """Measure the pure functions on one hour in memory."""
    table = hour_table(gpus, 0, seed)
    columns = columns_from_arrow(table)
    count = table.num_rows
    rows = Rows(
        np.repeat(np.arange(gpus, dtype=np.int32), S_PER_HOUR),
        table.column("ts_utc").to_numpy().astype("datetime64[us]").view(np.int64),
        np.full(count, 1000, dtype=np.int64),
        table.column("energy_uj").to_numpy(),
        np.zeros(count, dtype=np.int8),
    )
    nobody = np.full(count, -1, dtype=np.int32)

    def work() -> dict[str, Any]:
        runs = raw_runs(rows, classify(columns, count), nobody)
        return {"rows": count, "runs": len(runs), "pieces": len(stitch(runs, 5))}

    return measured(work)


def refresh(folder: Path, settings: Settings, *, touch: int | None = None) -> dict[str, Any]:
    """Measure a refresh; with `touch`, after that hour has changed."""
    clock = VirtualClock(ORIGIN_US)
    with Store.open(folder, settings, clock) as store:
        if touch is not None:
            late = hour_table(1, touch, 99).slice(0, 1)
            store.write(lambda con: _insert(store, con, touch, late))

        def work() -> dict[str, Any]:
            done = states_job.refresh(store, settings, clock)
            return {
                "rows": done.samples,
                "hours": len(done.hours),
                "runs": done.runs,
                "pieces": done.pieces,
            }

        return measured(work)


def child(args: argparse.Namespace, step: str, folder: Path) -> dict[str, Any]:
    """Return what a step measured in a process of its own."""
    command = [sys.executable, __file__, "--step", step, "--folder", str(folder)]
    for name in ("gpus", "hours", "seed", "memory_mib"):
        command += [f"--{name.replace('_', '-')}", str(getattr(args, name))]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE)
    return dict(json.loads(done.stdout))


def main() -> None:
    """Run the benchmark and print one line a step."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--gpus", type=int, default=100)
    parser.add_argument("--hours", type=int, default=2)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--memory-mib", type=int, default=768, help="limit of the database")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--step", help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    args = parser.parse_args()
    settings = resolve({"server.memory_mib": args.memory_mib}, environ={})
    if args.step:
        steps: dict[str, Callable[[], dict[str, Any]]] = {
            "fill": lambda: measured(
                lambda: fill(args.folder, args.gpus, args.hours, args.seed, settings) or {}
            ),
            "pure": lambda: pure(args.gpus, args.seed),
            "all hours": lambda: refresh(args.folder, settings),
            "one hour": lambda: refresh(args.folder, settings, touch=args.hours - 1),
            "nothing": lambda: refresh(args.folder, settings),
        }
        print(json.dumps(steps[args.step]()))
        return
    with tempfile.TemporaryDirectory(prefix="idlewatt-bench-") as scratch:
        folder = Path(scratch) / "data"
        results = {
            step: child(args, step, folder)
            for step in ("fill", "pure", "all hours", "one hour", "nothing")
        }
    if args.json:
        print(json.dumps(results, indent=2))
        return
    print(f"{args.gpus} GPUs, {args.hours} hours, runs of {MEAN_RUN_S} s in the mean")
    for step, result in results.items():
        print(f"{step:10}", "  ".join(f"{name}={value}" for name, value in result.items()))


if __name__ == "__main__":
    main()
