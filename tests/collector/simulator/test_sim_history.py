"""History in bulk equals the same seconds read live through the real pynvml by the real agent."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator
from typing import Any

import pynvml
import pytest

from collector.identity import NodeIdentity
from collector.nvml import Nvml
from collector.sampler import Sampler
from collector.simulator.cluster import ClusterSpec, node_id, rack_of, schedule_of
from collector.simulator.history import epoch_of, generate, inventory, samples
from collector.simulator.live import LiveAllocations, LiveProvider, install_live
from collector.simulator.standin import uninstall
from collector.ticks import Due
from idlewatt.clock import VirtualClock
from idlewatt.columns import ALLOCATION, DEVICE, DEVICE_CAPABILITY, GPU_SAMPLE, JOB, NODE, TABLES
from idlewatt.wire import Header, Table, decode_batch, encode_batch, rows_from_table

S = 1_000_000
HOUR = 3_600 * S
ORIGIN = 1_760_000_400_000_000
MODELS = ("H100-SXM", "A100-SXM4-80GB", "L40S")
SPEC = ClusterSpec(seed=5, nodes=3, gpus_per_node=4, origin_us=ORIGIN, models=MODELS)
Rows = list[dict[str, Any]]


@pytest.fixture(autouse=True)
def _clean() -> Iterator[None]:
    yield
    uninstall()


def named(table: Table, name: str = "gpu_sample") -> Rows:
    columns = TABLES[name]
    names = [column.name for column in columns]
    return [dict(zip(names, row, strict=True)) for row in rows_from_table(columns, table)]


def live_rows(node: int, from_us: int, seconds: int) -> Rows:
    """Return what the agent's sampler reads each second; the first two are not kept."""
    clock = VirtualClock(from_us - 2 * S)
    install_live(SPEC, node, clock)
    nvml = Nvml()
    identity = NodeIdentity(node_id(node), rack_of(SPEC, node), SPEC.cluster)
    sampler = Sampler(nvml, identity, clock, 1)
    sampler.discover()
    rows: Rows = []
    names = [column.name for column in GPU_SAMPLE]
    for _ in range(seconds + 2):
        second = sampler.sample(Due(clock.now_us(), 0, clock.monotonic_ns(), None))
        rows.extend(dict(zip(names, row, strict=True)) for row in second.rows)
        clock.advance(1)
    sampler.close()
    return [row for row in rows if row["ts_utc"] >= from_us]


TOLERANCE = {
    "energy_mj": 1,
    "energy_uj": 1_000,
    "power_avg_mw": 1,
    "power_inst_mw": 1,
    "util_gpu_pct": 1,
    "util_mem_pct": 1,
    "temp_gpu_c": 1,
    "temp_mem_c": 1,
    "pcie_tx_bytes_s": 2_000,
    "pcie_rx_bytes_s": 2_000,
    "nvlink_tx_bytes_s": 2_000,
    "nvlink_rx_bytes_s": 2_000,
}
OWN = {"epoch", "dt_ms", "late_ms"}


@pytest.mark.parametrize("node", [0, 1, 2])
def test_history_equals_live_across_an_hour(node: int) -> None:
    from_us = ORIGIN + 2 * HOUR - 40 * S
    live = {(row["gpu_uuid"], row["ts_utc"]): row for row in live_rows(node, from_us, 80)}
    edge = ORIGIN + 2 * HOUR
    past = named(samples(SPEC, node, from_us, edge)) + named(
        samples(SPEC, node, edge, edge + 40 * S)
    )
    assert len(past) == len(live) == 80 * SPEC.gpus_per_node
    for row in past:
        other = live[row["gpu_uuid"], row["ts_utc"]]
        for name in row.keys() - OWN:
            one, two = row[name], other[name]
            if one is not None and (isinstance(one, float) or name in TOLERANCE):
                assert one == pytest.approx(two, abs=TOLERANCE.get(name, 2e-6), rel=1e-6), name
            else:
                assert one == two, (name, one, two)


def test_an_hour_alone_equals_the_hour_in_the_day() -> None:
    day = list(generate(SPEC, 0, ORIGIN, ORIGIN + 4 * HOUR))
    newest_first = list(generate(SPEC, 0, ORIGIN, ORIGIN + 4 * HOUR, newest_first=True))
    assert [one["gpu_sample"] for one in newest_first] == [
        one["gpu_sample"] for one in reversed(day)
    ]
    alone = next(iter(generate(SPEC, 0, ORIGIN + 2 * HOUR, ORIGIN + 3 * HOUR)))
    assert alone["gpu_sample"] == day[2]["gpu_sample"]
    part = named(samples(SPEC, 0, ORIGIN + 2 * HOUR + 100 * S, ORIGIN + 2 * HOUR + 160 * S))
    whole = {(row["gpu_uuid"], row["ts_utc"]): row for row in named(alone["gpu_sample"])}
    assert all(row == whole[row["gpu_uuid"], row["ts_utc"]] for row in part)
    assert len(part) == 60 * SPEC.gpus_per_node


def test_the_counter_runs_on_across_hours() -> None:
    rows: Rows = []
    for tables in generate(SPEC, 0, ORIGIN + HOUR - 5 * S, ORIGIN + HOUR + 5 * S):
        rows.extend(named(tables["gpu_sample"]))
    for uuid in {row["gpu_uuid"] for row in rows}:
        mine = sorted((row for row in rows if row["gpu_uuid"] == uuid), key=lambda r: r["ts_utc"])
        assert len(mine) == 10
        for before, after in itertools.pairwise(mine):
            assert after["energy_uj"] == (after["energy_mj"] - before["energy_mj"]) * 1_000
            assert after["energy_source"] == "counter"
            assert 30e6 < after["energy_uj"] < 710e6
            assert after["dt_ms"] == 1_000 + after["late_ms"] - before["late_ms"]


def test_the_first_second_of_history_has_no_predecessor() -> None:
    rows = named(next(iter(generate(SPEC, 0, 0, ORIGIN + 3 * S)))["gpu_sample"])
    assert min(row["ts_utc"] for row in rows) == ORIGIN
    first = rows[0]
    assert first["dt_ms"] is None
    assert first["sm_active"] is None
    assert first["throttle_power_us"] is None
    assert first["missing"] == 3 << 8 | 3 << 16 | 3 << 28
    assert first["energy_source"] == "power_avg"
    assert first["energy_uj"] == first["power_avg_mw"] * 1_000
    assert rows[1]["missing"] == 0
    assert rows[1]["energy_source"] == "counter"
    assert first["epoch"] == epoch_of(SPEC) == ORIGIN // 1_000


@pytest.mark.parametrize(
    ("node", "lacking", "source"),
    [
        (0, {"fan_pct", "parent_uuid"}, "gpm"),
        (1, {"fan_pct", "power_avg_mw", "sm_active", "nvlink_tx_bytes_s"}, "nvml_util"),
        (2, {"fan_pct", "temp_mem_c", "dram_active", "pcie_rx_bytes_s"}, "nvml_util"),
    ],
)
def test_each_model_lacks_what_it_lacks(node: int, lacking: set[str], source: str) -> None:
    rows = named(samples(SPEC, node, ORIGIN + HOUR, ORIGIN + HOUR + 60 * S))
    for row in rows:
        assert all(row[name] is None for name in lacking)
        assert row["activity_source"] == source
        assert row["power_inst_mw"] > 0
    assert (rows[5]["sm_active"] is None) is (source != "gpm")


@pytest.mark.parametrize("node", [0, 1, 2])
def test_inventory_equals_what_the_agent_finds(node: int) -> None:
    clock = VirtualClock(ORIGIN)
    install_live(SPEC, node, clock)
    identity = NodeIdentity(node_id(node), rack_of(SPEC, node), SPEC.cluster)
    sampler = Sampler(Nvml(), identity, clock, 1)
    facts = sampler.discover()
    tables = inventory(SPEC, node)
    assert rows_from_table(DEVICE, tables["device"]) == facts["device"]
    found = sorted(rows_from_table(DEVICE_CAPABILITY, tables["device_capability"]))
    assert found == sorted(facts["device_capability"])
    (mine,) = rows_from_table(NODE, tables["node"])
    assert mine[0] == node_id(node)
    assert mine[3] == rack_of(SPEC, node)


def test_chunks_pass_the_wire() -> None:
    for number, tables in enumerate(generate(SPEC, 2, ORIGIN, ORIGIN + 2 * HOUR)):
        header = Header(1, node_id(2), epoch_of(SPEC), "backfill", number + 1)
        batch = decode_batch(encode_batch(header, tables))
        assert batch.tables == tables
        assert ("device" in tables) is (number == 0)
        assert tables["gpu_sample"].rows == 3600 * SPEC.gpus_per_node


def test_jobs_that_still_run_are_open_or_left_to_the_live_agent() -> None:
    end_us = ORIGIN + 3 * HOUR
    told = list(generate(SPEC, 0, ORIGIN, end_us))
    allocations = [row for one in told for row in named(one["allocation"], "allocation")]
    jobs = [row for one in told for row in named(one["job"], "job")]
    assert any(row["end_utc"] is None for row in allocations)
    assert {row["job_key"] for row in allocations} == {row["job_key"] for row in jobs}
    assert all(row["end_utc"] is None or row["end_utc"] <= end_us for row in allocations)
    closed = [
        row
        for one in generate(SPEC, 0, ORIGIN, end_us, closed_by_us=end_us)
        if "allocation" in one
        for row in named(one["allocation"], "allocation")
    ]
    assert closed
    assert all(row["end_utc"] is not None for row in closed)
    assert {row["job_key"] for row in closed} < {row["job_key"] for row in allocations}


def test_live_allocations_tell_each_change_once() -> None:
    source = LiveAllocations(SPEC, 0)
    start_us, end_us = ORIGIN + HOUR, ORIGIN + 9 * HOUR
    told: list[tuple[Any, ...]] = []
    for step in range(0, 8 * 3600, 30):
        rows = source.poll(start_us + step * S)
        told.extend(rows.get("allocation", []))
        assert {row[3] for row in rows.get("allocation", [])} == {
            row[0] for row in rows.get("job", [])
        }
    told.extend(source.poll(end_us).get("allocation", []))
    assert len(told) == len(set(told))
    for gpu in SPEC.node_gpus(0):
        for job in schedule_of(SPEC).jobs_on(gpu, 3600.0, 9 * 3600.0):
            mine = [
                row for row in told if row[3] == job.key and row[1] == SPEC.time_us(job.start_s)
            ]
            assert mine
            assert any(row[2] is None for row in mine) or job.end_s <= 3600.0
            if job.end_s <= 9 * 3600.0:
                assert any(row[2] == SPEC.time_us(job.end_s) for row in mine)
    assert source.poll(end_us) == {}
    assert len(JOB) == 11
    assert len(told[0]) == len(ALLOCATION)


def test_a_clock_lock_lowers_the_watts_and_the_counter_follows() -> None:
    spec = ClusterSpec(seed=2, nodes=1, gpus_per_node=8, origin_us=ORIGIN, models=("L40S",))
    clock = VirtualClock(ORIGIN + HOUR + 3_000 * S)
    standin = install_live(spec, 0, clock, root=True)
    plain = LiveProvider(spec, 0, clock)
    pynvml.nvmlInit()
    handles = [pynvml.nvmlDeviceGetHandleByIndex(index) for index in range(8)]
    for handle in handles:
        pynvml.nvmlDeviceSetGpuLockedClocks(handle, 210, 210)
    before = [pynvml.nvmlDeviceGetTotalEnergyConsumption(handle) for handle in handles]
    unlocked = [plain.read(index).energy_mj for index in range(8)]
    assert before == unlocked
    clock.advance(1_200)  # over the hour: lock and counter are carried along
    saved = 0
    for index, handle in enumerate(handles):
        used = pynvml.nvmlDeviceGetTotalEnergyConsumption(handle) - before[index]
        free = plain.read(index).energy_mj - unlocked[index]
        resident = bool(plain.read(index).compute)
        if resident:
            assert pynvml.nvmlDeviceGetClockInfo(handle, pynvml.NVML_CLOCK_SM) == 210
            assert used < free
            saved += 1
        floor_mj = 35.6 * 1_200 * 1_000 * 0.99
        assert floor_mj < used <= free
    assert saved >= 4
    for handle in handles:
        pynvml.nvmlDeviceResetGpuLockedClocks(handle)
    clock.advance(2)
    for index, handle in enumerate(handles):
        shown = pynvml.nvmlDeviceGetPowerUsage(handle)
        assert shown == pytest.approx(plain.read(index).power_avg_mw, abs=2)
    assert standin.root


def test_the_counter_of_a_restarted_driver_goes_on_where_it_was() -> None:
    clock = VirtualClock(ORIGIN + HOUR + 1_800 * S)
    before = LiveProvider(SPEC, 0, clock)
    first = before.read(2).energy_mj
    clock.advance(1_900)  # over the hour
    carried = before.read(2)
    fresh = LiveProvider(SPEC, 0, clock).read(2)
    assert carried.energy_mj == pytest.approx(fresh.energy_mj, abs=1)
    assert carried.energy_mj > first
    assert carried.power_inst_mw == fresh.power_inst_mw


def test_two_hours_of_32_gpus_take_little_time() -> None:
    spec = ClusterSpec(seed=9, nodes=4, gpus_per_node=8, origin_us=ORIGIN)
    begin = time.process_time()
    rows = sum(
        tables["gpu_sample"].rows
        for node in range(spec.nodes)
        for tables in generate(spec, node, ORIGIN + HOUR, ORIGIN + 3 * HOUR)
    )
    took_s = time.process_time() - begin
    assert rows == 2 * 3_600 * spec.gpus
    assert took_s < 4.0  # about 0.6 s on a quiet core; a day then stays far below 15 s
