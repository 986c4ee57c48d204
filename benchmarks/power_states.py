"""Power states over synthetic hours: rows a second, CPU and memory of what ran here.

::

    python benchmarks/power_states.py                         # 100 GPUs, 4 hours: seconds
    python benchmarks/power_states.py --gpus 1000 --hours 24  # 86 M rows; needs 3 GB of disk

Measured, each in a process of its own so that memory is its own:

* ``pure``          classify, raw runs and stitching of one hour, on arrays in memory
* ``a quarter``, ``a half``, ``all hours``
                    `refresh` over every hour of a sealed warehouse of that size, output written
* ``late row``      `refresh` after one more row has come to the last hour
* ``hour again``    the last hour anew, everything replaced
* ``live hour``     `refresh` of one more hour that is not sealed: rows in the order of arrival
* ``live row``      `refresh` after one more row has come to that hour
* ``nothing``       `refresh` when nothing changed

Nothing is extrapolated. CPU is user + system of the process, memory its peak; both begin after the
warehouse was opened, and the load average is that of the machine at the end.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from analysis import states_job
from analysis.frame import column_from_arrow
from analysis.power_states import Rows, classify, columns_from_arrow, raw_runs, stitch
from analysis.tables import stamp
from idlewatt.clock import VirtualClock, utc_from_us
from idlewatt.columns import GPU_SAMPLE
from idlewatt.config import Settings, resolve
from idlewatt.units import S_PER_HOUR, US_PER_HOUR, US_PER_S
from warehouse.layout import LiveTable
from warehouse.queries import load
from warehouse.segments import Written, describe, draft_of
from warehouse.store import Store

ORIGIN_US = 491_000 * US_PER_HOUR
MEAN_RUN_S = 131
"""Gives the raw runs of the reference fleet: 0.77 M a day of 1,000 GPUs, with what losses cut."""
LOST = 0.001
"""Share of rows that never came, one by one; each cuts a run."""
OUTAGE_S = 5
"""Length of the hole that each GPU has in each hour: 0.24 % lost in all, as in the reference."""
SHARD_GPUS = 1000
JOB_HOURS = 4


@dataclass(frozen=True, slots=True)
class Fleet:
    """What is simulated: enough signals, noise and NULLs for files of about 24 B a row."""

    gpus: int
    hours: int
    seed: int
    mean_run_s: float

    def name(self, gpu: int) -> str:
        """Return the UUID of a GPU."""
        return f"GPU-{self.seed:08x}-{gpu:06d}-0000-0000-000000000000"


def states(rng: np.random.Generator, rows: int, mean_run_s: float) -> np.ndarray:
    """Return 0 busy, 1 paused, 2 empty for each row: busy runs, and one of the others between."""
    count = int(rows / mean_run_s * 1.1) + 100
    mean_s = np.tile([1.5 * mean_run_s, 0.5 * mean_run_s], count // 2 + 1)[:count]
    length = rng.geometric(1 / mean_s)
    what = np.zeros(count, dtype=np.int8)
    what[1::2] = 1 + (rng.random(count // 2) < 0.25)
    found = np.repeat(what, length)[:rows]
    return np.pad(found, (0, rows - len(found)))


def hour_table(fleet: Fleet, hour: int, first_gpu: int = 0, gpus: int | None = None) -> pa.Table:
    """Return an hour of samples, GPU by GPU; columns that are left out are NULL throughout."""
    gpus = fleet.gpus if gpus is None else gpus
    rng = np.random.default_rng((fleet.seed, hour, first_gpu))
    there = rng.random(gpus * S_PER_HOUR) >= LOST
    outage = rng.integers(0, S_PER_HOUR - OUTAGE_S, gpus) + np.arange(gpus) * S_PER_HOUR
    there[outage[:, None] + np.arange(OUTAGE_S)] = False
    kept = np.flatnonzero(there)
    rows = len(kept)
    state = states(rng, rows, fleet.mean_run_s)
    busy, loaded = state == 0, state != 2
    gpu = (kept // S_PER_HOUR).astype(np.int32)
    ts_us = ORIGIN_US + hour * US_PER_HOUR + (kept % S_PER_HOUR) * US_PER_S

    def noise(top: int) -> np.ndarray:
        return (rng.integers(0, 1 << 16, rows, dtype=np.uint16).astype(np.int32) * top) >> 16

    def ratio(busy_permille: int, paused_permille: int = 0) -> pa.Array:
        # A paused GPU does a little something in one second of four, and exactly nothing else.
        high = busy_permille + noise(100)
        low = np.where(loaded & (noise(4) == 0), paused_permille, 0)
        return pa.array((np.where(busy, high, low) / np.float32(1000)).astype(np.float32))

    def rate(top: int) -> pa.Array:
        return pa.array(np.where(busy, top + noise(top >> 3).astype(np.int64) * 64, 1000 * loaded))

    def same(value: object, dtype: pa.DataType) -> pa.Array:
        return pa.repeat(pa.scalar(value, dtype), rows)

    def coded(words: list[str]) -> pa.Array:
        return pa.DictionaryArray.from_arrays(pa.array(gpu), pa.array(words))

    power = np.where(busy, 520_000, np.where(loaded, 120_000, 72_000)) + noise(30_000)
    energy_uj = power.astype(np.int64) * 1000 + noise(1 << 15)
    numbers = range(first_gpu, first_gpu + gpus)
    return pa.table(
        {
            "ts_utc": pa.array(ts_us).cast(pa.timestamp("us")),
            "dt_ms": pa.array(1000 + noise(4)),
            "obs_ms": same(1000, pa.int32()),
            "node_id": coded([f"n{number // 8:05d}" for number in numbers]),
            "gpu_uuid": coded([fleet.name(number) for number in numbers]),
            "epoch": same(1, pa.int64()),
            "power_avg_mw": pa.array(power),
            "power_inst_mw": pa.array(power + noise(20_000) - 10_000),
            "power_limit_mw": same(700_000, pa.int32()),
            "power_limit_requested_mw": same(700_000, pa.int32()),
            "power_scope": same("gpu", pa.string()),
            "energy_mj": pa.array(np.cumsum(energy_uj) // 1000),
            "energy_epoch": same(0, pa.int32()),
            "energy_uj": pa.array(energy_uj),
            "energy_source": same("counter", pa.string()),
            "gr_active": ratio(800, 1000),
            "sm_active": ratio(700, 10),
            "sm_occupancy": ratio(300),
            "tensor_active": ratio(400),
            "fp64_active": same(0.0, pa.float32()),
            "fp32_active": ratio(150),
            "fp16_active": ratio(50),
            "dram_active": ratio(350, 5),
            "activity_source": same("gpm", pa.string()),
            "util_gpu_pct": pa.array(np.where(busy, 90 + noise(10), 0)),
            "util_mem_pct": pa.array(np.where(busy, 40 + noise(20), 0)),
            "pcie_tx_bytes_s": rate(1 << 24),
            "pcie_rx_bytes_s": rate(1 << 24),
            "nvlink_tx_bytes_s": rate(1 << 28),
            "nvlink_rx_bytes_s": rate(1 << 28),
            "mem_used_mib": pa.array(np.where(loaded, 61_000, 4)),
            "sm_clock_mhz": pa.array(np.where(loaded, 1980, 345)),
            "mem_clock_mhz": same(2619, pa.int16()),
            "temp_gpu_c": pa.array(np.where(busy, 60, 40) + noise(3)),
            "temp_mem_c": pa.array(np.where(busy, 70, 45) + noise(3)),
            "pstate": same(0, pa.int16()),
            "event_reasons": pa.array(np.where(busy, 4, 1)),
            "throttle_power_us": pa.array(np.where(busy & (noise(10) == 0), 1000, 0)),
            "throttle_thermal_us": same(0, pa.int64()),
            "throttle_brake_us": same(0, pa.int64()),
            "resident": pa.array(loaded),
            "n_procs": pa.array(loaded.astype(np.int16)),
            "pcie_gen": same(5, pa.int16()),
            "pcie_width": same(16, pa.int16()),
            "missing": same(0, pa.int64()),
            "late_ms": pa.array(noise(5)),
        }
    )


def fill(folder: Path, fleet: Fleet, hours: range, settings: Settings) -> dict[str, Any]:
    """Add sealed hours to a warehouse and return their rows and the bytes a row takes.

    The rows are made in the order of a segment, so that they go straight into one: the file is
    written, described and catalogued by what the sealer uses, without its sort.
    """
    clock = VirtualClock(ORIGIN_US + (fleet.hours + 2) * US_PER_HOUR)
    rows = size = 0
    with Store.open(folder, settings, clock) as store:
        if not hours.start:
            store.write(lambda con: allocate(con, fleet))
        for hour in hours:
            for first in range(0, fleet.gpus, SHARD_GPUS):
                table = hour_table(fleet, hour, first, min(SHARD_GPUS, fleet.gpus - first))
                written = seal_directly(store, hour, first, table)
                store.write(lambda con, w=written, n=table.num_rows: enter(store, con, w, n))
                rows, size = rows + table.num_rows, size + written.segment.size_bytes
    return {"rows": rows, "bytes_per_row": round(size / rows, 1)}


def allocate(con: Any, fleet: Fleet) -> None:
    """Give each GPU a job every few hours."""
    slots = np.arange(0, fleet.hours, JOB_HOURS)
    start_us = ORIGIN_US + slots * US_PER_HOUR + 7 * US_PER_S
    held = {
        "gpu_uuid": [fleet.name(gpu) for gpu in range(fleet.gpus) for _ in slots],
        "start_utc": pa.array(np.tile(start_us, fleet.gpus)).cast(pa.timestamp("us")),
        "end_utc": pa.array(
            np.tile(start_us + (JOB_HOURS * 3600 - 60) * US_PER_S, fleet.gpus)
        ).cast(pa.timestamp("us")),
        "job_key": [f"c:{gpu // 8}-{slot}:0" for gpu in range(fleet.gpus) for slot in slots],
        "share": [1.0] * (fleet.gpus * len(slots)),
    }
    register(con, pa.table(held), "INSERT INTO allocation BY NAME SELECT * FROM bench_rows")


def seal_directly(store: Store, hour: int, shard: int, table: pa.Table) -> Written:
    """Return a segment file written from rows that are in its order already."""
    hour_us = ORIGIN_US + hour * US_PER_HOUR
    live = LiveTable("bench_rows", hour_us, 1, frozen=True)
    folder = store.layout.root / f"{utc_from_us(hour_us):day=%Y-%m-%d/hour=%H}"
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / f"g001-s{shard:03d}-bench.parquet"
    seal = load("statements/seal")
    target = seal[seal.rindex(") TO ") :].replace("/* file */", str(draft_of(file)))
    target = target.replace("/* sealed_us */", str(hour_us + US_PER_HOUR))
    cursor = store.cursor()
    try:
        register(cursor, table, f"COPY (SELECT {typed(table)} FROM bench_rows {target}")
        return describe(store, cursor, live, file)
    finally:
        cursor.close()


def typed(table: pa.Table) -> str:
    """Return the select list that gives all columns of a sample their types."""
    there = set(table.column_names)
    return ", ".join(
        f"CAST({column.name if column.name in there else 'NULL'} AS {column.kind.sql}) "
        f"AS {column.name}"
        for column in GPU_SAMPLE
    )


def register(con: Any, table: pa.Table, sql: str) -> None:
    """Run a statement that reads `bench_rows`."""
    con.register("bench_rows", table)
    try:
        con.execute(sql)
    finally:
        con.unregister("bench_rows")


def enter(store: Store, con: Any, written: Written, rows: int) -> None:
    """Catalogue a segment and say that its hour changed."""
    store.layout.add_segment(con, written.segment, written.row)
    changed(store, con, written.segment.hour_us, rows)


def insert(store: Store, con: Any, hour: int, table: pa.Table) -> None:
    """Put rows into the live table of an hour."""
    hour_us = ORIGIN_US + hour * US_PER_HOUR
    name = store.layout.open_table(con, hour_us).name
    register(con, table, f"INSERT INTO {name} BY NAME SELECT * FROM bench_rows")
    changed(store, con, hour_us, table.num_rows)


def changed(store: Store, con: Any, hour_us: int, rows: int) -> None:
    """Say that an hour changed."""
    con.execute(
        "INSERT INTO hour_change VALUES (?, ?, ?) ON CONFLICT (hour_utc) DO UPDATE "
        "SET change_seq = excluded.change_seq, rows = hour_change.rows + excluded.rows",
        [stamp(hour_us), store.layout.next_change(), rows],
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
        "load": round(os.getloadavg()[0], 1),
    }
    if answer.get("rows"):
        answer["rows_per_cpu_s"] = round(answer["rows"] / cpu_s)
    return answer


def pure(fleet: Fleet) -> dict[str, Any]:
    """Measure the pure functions on one hour in memory."""
    table = hour_table(fleet, 0)
    columns = columns_from_arrow(table)
    count = table.num_rows
    rows = Rows(
        column_from_arrow(table.column("gpu_uuid").combine_chunks().indices).values,
        column_from_arrow(table.column("ts_utc")).values,
        np.full(count, 1000, dtype=np.int32),
        table.column("energy_uj").to_numpy(),
        np.zeros(count, dtype=np.int8),
    )
    nobody = np.full(count, -1, dtype=np.int32)
    del table

    def work() -> dict[str, Any]:
        runs = raw_runs(rows, classify(columns, count), nobody)
        return {"rows": count, "runs": len(runs), "pieces": len(stitch(runs, 5))}

    return measured(work)


def arrive(folder: Path, fleet: Fleet, hour: int, settings: Settings) -> dict[str, Any]:
    """Put an hour into a live table in the order of arrival: 10 s of 8 GPUs at a time."""
    table = hour_table(fleet, hour)
    gpu = table.column("gpu_uuid").combine_chunks().indices.to_numpy()
    second = column_from_arrow(table.column("ts_utc")).values // US_PER_S
    table = table.take(pa.array(np.lexsort((second, gpu, gpu // 8, second // 10))))
    with Store.open(folder, settings, VirtualClock(ORIGIN_US)) as store:
        store.write(lambda con: insert(store, con, hour, table))
    return {"rows": table.num_rows}


def refresh(
    folder: Path, fleet: Fleet, settings: Settings, *, touch: int | None = None, anew: bool = False
) -> dict[str, Any]:
    """Measure a refresh.

    Args:
        folder: the warehouse.
        fleet: what fills it.
        settings: resolved settings.
        touch: an hour that gets one more row before.
        anew: do that hour anew instead, whatever is stored.
    """
    clock = VirtualClock(ORIGIN_US)
    with Store.open(folder, settings, clock) as store:
        if touch is not None and not anew:
            late = hour_table(Fleet(1, 1, 99, 60), touch).slice(0, 1)
            store.write(lambda con: insert(store, con, touch, late))

        def work() -> dict[str, Any]:
            if anew and touch is not None:
                at_us = ORIGIN_US + touch * US_PER_HOUR
                done = states_job.recompute(store, at_us, at_us + 1, settings, clock)
            else:
                done = states_job.refresh(store, settings, clock)
            return {
                "rows": done.samples,
                "hours": len(done.hours),
                "runs": done.runs,
                "pieces": done.pieces,
            }

        return measured(work)


def run_step(step: str, args: argparse.Namespace) -> dict[str, Any]:
    """Return what a step measured; runs in a process of its own."""
    settings = resolve({"server.memory_mib": args.memory_mib}, environ={})
    fleet = Fleet(args.gpus, args.hours, args.seed, args.mean_run_s)
    last = args.hours - 1
    folder = args.folder
    steps: dict[str, Callable[[], dict[str, Any]]] = {
        "fill": lambda: measured(
            lambda: fill(folder, fleet, range(args.from_hour, args.to_hour), settings)
        ),
        "pure": lambda: pure(fleet),
        "refresh": lambda: refresh(folder, fleet, settings),
        "late row": lambda: refresh(folder, fleet, settings, touch=last),
        "hour again": lambda: refresh(folder, fleet, settings, touch=last, anew=True),
        "arrive": lambda: arrive(folder, fleet, last + 1, settings),
        "live row": lambda: refresh(folder, fleet, settings, touch=last + 1),
    }
    return steps[step]()


def child(step: str, args: argparse.Namespace, folder: Path, **more: int) -> dict[str, Any]:
    """Return what a step measured in a process of its own."""
    command = [sys.executable, __file__, "--step", step, "--folder", str(folder)]
    given = {name: getattr(args, name) for name in ("gpus", "hours", "seed", "mean_run_s")}
    for name, value in {**given, "memory_mib": args.memory_mib, **more}.items():
        command += [f"--{name.replace('_', '-')}", str(value)]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE)
    return dict(json.loads(done.stdout))


def copied(folder: Path, to: Path) -> Path:
    """Return a copy of a warehouse; its segments are links."""
    shutil.copytree(folder, to, copy_function=_link)
    return to


def _link(source: str, target: str) -> None:
    if source.endswith(".parquet"):
        os.link(source, target)
    else:
        shutil.copy2(source, target)


def run_all(args: argparse.Namespace, scratch: Path) -> dict[str, dict[str, Any]]:
    """Return the results of all steps by name."""
    folder = scratch / "data"
    results = {"pure": child("pure", args, folder)}
    done = 0
    for name, hours in (
        ("a quarter", args.hours // 4),
        ("a half", args.hours // 2),
        ("all hours", args.hours),
    ):
        if hours == done:
            continue
        key = f"fill to {hours} h"
        results[key] = child("fill", args, folder, from_hour=done, to_hour=hours)
        done = hours
        results[name] = child("refresh", args, copied(folder, scratch / name.replace(" ", "-")))
    folder = scratch / "all-hours"
    for step in ("late row", "hour again"):
        results[step] = child(step, args, folder)
    child("arrive", args, folder)
    results["live hour"] = child("refresh", args, folder)
    results["live row"] = child("live row", args, folder)
    results["nothing"] = child("refresh", args, folder)
    return results


def main() -> None:
    """Run the benchmark and print one line a step."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--gpus", type=int, default=100)
    parser.add_argument("--hours", type=int, default=4)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--mean-run-s",
        type=float,
        default=MEAN_RUN_S,
        help=f"mean length of a state's run; {MEAN_RUN_S} is the reference fleet",
    )
    parser.add_argument("--memory-mib", type=int, default=512, help="limit of the database")
    parser.add_argument("--scratch", type=Path, help="folder to keep; a temporary one if left out")
    parser.add_argument("--json", action="store_true", help="print JSON")
    for hidden in ("--step", "--from-hour", "--to-hour", "--folder"):
        kind: Any = {"--step": str, "--folder": Path}.get(hidden, int)
        parser.add_argument(hidden, type=kind, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.step:
        print(json.dumps(run_step(args.step, args)))
        return
    if args.scratch:
        results = run_all(args, args.scratch)
    else:
        with tempfile.TemporaryDirectory(prefix="idlewatt-bench-") as scratch:
            results = run_all(args, Path(scratch))
    if args.json:
        print(json.dumps(results, indent=2))
        return
    print(f"{args.gpus} GPUs, {args.hours} hours, runs of {args.mean_run_s:g} s in the mean")
    for step, result in results.items():
        print(f"{step:12}", "  ".join(f"{name}={value}" for name, value in result.items()))


if __name__ == "__main__":
    main()
