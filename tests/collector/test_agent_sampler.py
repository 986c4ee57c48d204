from __future__ import annotations

import math
import sys
import types
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from collector import nvml as nv
from collector.gpm import convert
from collector.identity import NodeIdentity
from collector.nvml import Nvml, plausible_pid
from collector.probe import Plan, probe
from collector.residency import resident
from collector.sampler import MEASURED, Sampler, Second
from collector.simulator.constant import ConstantProvider
from collector.simulator.device import Reading, Settable
from collector.simulator.standin import StandIn, install, uninstall
from collector.ticks import Due, Missed
from idlewatt.clock import VirtualClock
from idlewatt.columns import DEVICE, DEVICE_CAPABILITY, GAP, GPU_SAMPLE, Group, missing_reason
from idlewatt.errors import DriverError
from idlewatt.model import Missing

S = 1_000_000


class Devices(ConstantProvider):
    """Constant devices whose readings a test may change."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.change: dict[int, dict[str, Any]] = {}

    def read(self, index: int) -> Reading:
        return replace(super().read(index), **self.change.get(index, {}))


class Bench:
    """A sampler over a stand-in, ticking on a virtual clock."""

    def __init__(self, gpus: int = 2, model: str = "H100", **standin: Any) -> None:
        self.clock = VirtualClock()
        self.devices = Devices(gpus, model, self.clock)
        self.standin = StandIn(self.devices, **standin)
        install(self.standin)
        self.nvml = Nvml()
        self.missed: Missed | None = None
        self.restart()

    def restart(self, kept: dict[str, list[int]] | None = None, epoch: int = 77) -> None:
        node = NodeIdentity("n", "r1", "c")
        self.sampler = Sampler(self.nvml, node, self.clock, epoch, kept)
        self.facts = self.sampler.discover()

    def settable(self, index: int) -> Settable:
        return self.standin.settables[index]

    def tick(self, seconds: float = 1.0) -> Second:
        self.clock.advance(seconds)
        missed = self.missed
        if seconds > 1 and missed is None:
            now = self.clock.now_us()
            missed = Missed(now - round(seconds - 1) * S, now - S, "late_tick")
        self.missed = None
        due = Due(self.clock.now_us(), 0, self.clock.monotonic_ns(), missed)
        return self.sampler.sample(due)

    def rows(self, seconds: float = 1.0) -> list[dict[str, Any]]:
        return named(self.tick(seconds))


def named(second: Second) -> list[dict[str, Any]]:
    names = [column.name for column in GPU_SAMPLE]
    return [dict(zip(names, row, strict=True)) for row in second.rows]


def gaps(second: Second) -> list[dict[str, Any]]:
    names = [column.name for column in GAP]
    return [dict(zip(names, row, strict=True)) for row in second.facts.get("gap", [])]


@pytest.fixture(autouse=True)
def _no_driver_left_behind() -> Iterator[None]:
    yield
    uninstall()


def refusals(bench: Bench, uuid: str) -> dict[str, str | None]:
    names = [column.name for column in DEVICE_CAPABILITY]
    rows = [dict(zip(names, row, strict=True)) for row in bench.facts["device_capability"]]
    mine = [row for row in rows if row["gpu_uuid"] == uuid]
    assert {row["column_name"] for row in mine} == {column.name for column in MEASURED}
    assert all(row["supported"] is (row["reason"] is None) for row in mine)
    return {row["column_name"]: row["reason"] for row in mine if not row["supported"]}


def test_an_h100_gives_every_second_a_full_row() -> None:
    bench = Bench()
    first = bench.rows()[0]
    assert first["dt_ms"] is None
    assert first["sm_active"] is None  # no baseline yet
    assert missing_reason(first["missing"], Group.ACTIVITY) == Missing.STALE
    assert first["energy_source"] == "power_avg"
    row = bench.rows()[0]
    assert row["dt_ms"] == 1000
    assert row["obs_ms"] == 1000
    assert row["epoch"] == 77
    assert row["ts_utc"] == bench.clock.now_us()
    assert row["sm_active"] == pytest.approx(0.6)
    assert row["dram_active"] == pytest.approx(0.4)
    assert row["pcie_tx_bytes_s"] == 0
    assert row["activity_source"] == "gpm"
    assert (row["energy_source"], row["energy_epoch"]) == ("counter", 0)
    assert row["energy_uj"] == row["power_avg_mw"] * 1000
    assert (row["resident"], row["n_procs"]) == (True, 1)
    assert row["power_scope"] == "gpu"
    assert row["throttle_power_us"] == 0
    assert row["missing"] == 0
    refused = refusals(bench, row["gpu_uuid"])
    assert set(refused) == {"fan_pct"}
    absent = {name for name, value in row.items() if value is None}
    assert absent == {"parent_uuid", "fan_pct"}


def test_an_a100_is_told_apart_and_says_what_it_cannot_give() -> None:
    bench = Bench(model="A100")
    bench.rows()
    row = bench.rows()[0]
    refused = refusals(bench, row["gpu_uuid"])
    assert refused["power_avg_mw"] == "unsupported"
    assert refused["sm_active"] == "unsupported"
    assert row["power_avg_mw"] is None
    assert row["power_inst_mw"] is not None
    assert row["sm_active"] is None
    assert row["activity_source"] == "nvml_util"
    assert row["util_gpu_pct"] == 90
    assert row["missing"] == 0  # a property of the device, not of this second
    plan = probe(bench.nvml, bench.nvml.lib.nvmlDeviceGetHandleByIndex(0))
    assert "power_avg_mw" not in plan.fields
    device = dict(zip([column.name for column in DEVICE], bench.facts["device"][0], strict=True))
    assert device["arch"] == "ampere"
    assert device["gpu_uuid"] == row["gpu_uuid"]
    assert device["power_limit_max_mw"] == 400_000


def test_one_batched_call_and_no_slow_call_per_gpu_and_second() -> None:
    bench = Bench(gpus=4)
    bench.rows()
    before = dict(bench.standin.calls)
    for _ in range(10):
        bench.rows()
    spent = {name: count - before.get(name, 0) for name, count in bench.standin.calls.items()}
    assert spent["nvmlDeviceGetFieldValues"] == 40
    assert spent["nvmlGpmSampleGet"] == 40
    assert spent["nvmlDeviceGetComputeRunningProcesses_v3"] == 40
    assert spent["nvmlDeviceGetGraphicsRunningProcesses_v3"] == 8  # each 5 s
    assert spent["nvmlDeviceGetMPSComputeRunningProcesses_v3"] == 8
    assert spent.get("nvmlDeviceGetPcieThroughput", 0) == 0


def test_a_hole_is_a_gap_that_holds_the_rest_of_the_energy() -> None:
    bench = Bench(gpus=1)
    bench.rows()
    bench.rows()
    second = bench.tick(4)
    row, gap = named(second)[0], gaps(second)[0]
    power = row["power_avg_mw"]
    assert row["energy_uj"] == pytest.approx(power * 1000, rel=1e-4)
    assert gap["energy_uj"] == pytest.approx(power * 3000, rel=1e-4)
    assert gap["reason"] == "late_tick"
    assert (gap["to_utc"] - gap["from_utc"]) // S + 1 == 3
    assert gap["gpu_uuid"] == row["gpu_uuid"]
    assert row["dt_ms"] == 4000


def test_the_next_agent_goes_on_from_the_counter_of_the_last() -> None:
    bench = Bench(gpus=1)
    bench.rows()
    bench.rows()
    kept = bench.sampler.state()
    last = bench.clock.now_us()
    bench.clock.advance(9)
    bench.restart(kept, epoch=99)
    bench.missed = Missed(last + S, last + 9 * S, "agent_down")
    second = bench.tick()
    row, gap = named(second)[0], gaps(second)[0]
    assert row["energy_source"] == "power_avg"
    assert row["energy_epoch"] == 0
    assert gap["reason"] == "agent_down"
    assert (gap["from_utc"], gap["to_utc"]) == (last + S, last + 9 * S)
    assert gap["energy_uj"] == pytest.approx(row["power_avg_mw"] * 9000, rel=1e-4)
    assert len(gaps(second)) == 1


def test_a_clock_set_back_keeps_the_count_of_resets() -> None:
    bench = Bench(gpus=1)
    bench.rows()
    bench.devices.change[0] = {"energy_mj": 5}
    bench.rows()
    kept = bench.sampler.state()
    bench.clock.step_wall(-3600)
    bench.restart(kept, epoch=99)
    second = bench.tick()
    assert named(second)[0]["energy_epoch"] == 1
    assert named(second)[0]["energy_source"] == "power_avg"
    assert gaps(second) == []


def test_sentinels_of_the_inventory_are_null(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench(gpus=1)
    ask = bench.nvml.ask

    def sentinel(name: str, *args: Any) -> Any:
        return 2**32 - 1 if "Limit" in name and "Constraints" not in name else ask(name, *args)

    monkeypatch.setattr(bench.nvml, "ask", sentinel)
    bench.restart()
    device = dict(zip([column.name for column in DEVICE], bench.facts["device"][0], strict=True))
    assert device["power_limit_default_mw"] is None
    assert device["power_limit_max_mw"] == 700_000


def test_a_counter_reset_is_an_epoch_and_power_for_that_row() -> None:
    bench = Bench(gpus=1)
    bench.rows()
    bench.devices.change[0] = {"energy_mj": 5}
    row = bench.rows()[0]
    assert (row["energy_source"], row["energy_epoch"]) == ("power_avg", 1)
    bench.devices.change[0] = {"energy_mj": 100_005}
    row = bench.rows()[0]
    assert (row["energy_source"], row["energy_uj"]) == ("counter", 100_000_000)


def test_a_counter_that_stands_still_is_said_once_and_power_stands_in(
    caplog: pytest.LogCaptureFixture,
) -> None:
    bench = Bench(gpus=1)
    bench.rows()
    bench.devices.change[0] = {"energy_mj": bench.devices.read(0).energy_mj}
    rows = [bench.rows()[0] for _ in range(6)]
    assert {row["energy_source"] for row in rows} == {"power_avg"}
    assert {row["energy_uj"] for row in rows} == {rows[0]["power_avg_mw"] * 1000}
    assert [row["energy_mj"] is None for row in rows] == [False, False, True, True, True, True]
    assert missing_reason(rows[-1]["missing"], Group.POWER) == Missing.STALE
    assert caplog.text.count("stands still") == 1
    bench.devices.change[0] = {}  # it has counted all the while
    row = bench.rows()[0]
    assert (row["energy_source"], row["missing"]) == ("counter", 0)
    assert row["energy_uj"] == pytest.approx(row["power_avg_mw"] * 1000, rel=1e-3)
    assert caplog.text.count("moves again") == 1


@pytest.mark.parametrize(
    ("field", "column", "group"),
    [
        (nv.FI_POWER_AVERAGE, "power_avg_mw", Group.POWER),
        (nv.FI_MEMORY_TEMP, "temp_mem_c", Group.CLOCKS_HEAT),
        (nv.FI_HW_BRAKE, "throttle_brake_us", Group.LIMITS),
    ],
)
def test_a_reading_older_than_two_intervals_is_null_and_stale(
    field: int, column: str, group: Group
) -> None:
    bench = Bench(gpus=1)
    bench.rows()
    bench.settable(0).frozen_fields = {field: None}
    rows = [bench.rows()[0] for _ in range(5)]
    assert [row[column] is None for row in rows] == [False, False, False, True, True]
    assert [missing_reason(row["missing"], group) for row in rows] == [0, 0, 0, 3, 3]
    if field == nv.FI_POWER_AVERAGE:
        assert rows[-1]["energy_source"] == "counter"
    bench.settable(0).frozen_fields = {}
    bench.rows()
    assert bench.rows()[0]["missing"] == 0


def test_energy_of_a_device_whose_counter_and_average_are_frozen_comes_from_the_latest() -> None:
    bench = Bench(gpus=1)
    bench.rows()
    bench.settable(0).frozen_fields = {nv.FI_ENERGY: None, nv.FI_POWER_AVERAGE: None}
    row = [bench.rows()[0] for _ in range(6)][-1]
    assert (row["energy_mj"], row["power_avg_mw"]) == (None, None)
    assert (row["energy_source"], row["energy_uj"]) == ("power_inst", row["power_inst_mw"] * 1000)


@pytest.mark.parametrize(
    ("field", "stamp_us"),
    [
        (nv.FI_POWER_AVERAGE, 0),
        (nv.FI_POWER_AVERAGE, 86_400 * S),  # time since the machine started
        (nv.FI_POWER_CURRENT_LIMIT, 1_600_000_000 * S),  # set long ago, and still in force
    ],
)
def test_a_time_that_says_nothing_is_not_held_against_a_reading(field: int, stamp_us: int) -> None:
    bench = Bench(gpus=1)
    bench.settable(0).frozen_fields = {field: (stamp_us, (1, 123_000))}
    row = bench.rows()[0]
    column = "power_limit_mw" if field == nv.FI_POWER_CURRENT_LIMIT else "power_avg_mw"
    assert row[column] == 123_000
    assert missing_reason(row["missing"], Group.POWER) == Missing.OBSERVED


@pytest.mark.parametrize("code", [nv.GPU_IS_LOST, nv.UNKNOWN])
def test_a_lost_gpu_leaves_a_gap_and_the_others_go_on(code: int) -> None:
    bench = Bench(gpus=3)
    bench.rows()
    lost = bench.rows()[1]
    bench.settable(1).fault = code
    for _ in range(3):
        rows = bench.rows()
        assert len(rows) == 2
        assert lost["gpu_uuid"] not in {row["gpu_uuid"] for row in rows}
    calls = bench.standin.calls["nvmlDeviceGetHandleByUUID"]
    bench.settable(1).fault = 0
    returned = next(second for second in (bench.tick() for _ in range(8)) if len(second.rows) == 3)
    assert bench.standin.calls["nvmlDeviceGetHandleByUUID"] - calls <= 2
    row, gap = named(returned)[1], gaps(returned)[0]
    assert row["gpu_uuid"] == gap["gpu_uuid"] == lost["gpu_uuid"]
    assert gap["reason"] == "driver"
    assert gap["from_utc"] == lost["ts_utc"] + S
    assert gap["to_utc"] == row["ts_utc"] - S
    missing_s = (gap["to_utc"] - gap["from_utc"]) // S + 1
    assert gap["energy_uj"] == pytest.approx(lost["power_avg_mw"] * 1000 * missing_s, rel=1e-3)
    assert returned.facts["device"][0][0] == lost["gpu_uuid"]
    assert gaps(bench.tick()) == []


def test_a_gpu_lost_for_long_is_declared_piece_by_piece() -> None:
    bench = Bench(gpus=1)
    last = bench.rows()[0]["ts_utc"]
    bench.settable(0).fault = nv.GPU_IS_LOST
    found = [gap for _ in range(130) for gap in gaps(bench.tick())]
    assert len(found) == 2
    assert found[0]["from_utc"] == last + S
    assert found[1]["from_utc"] == found[0]["to_utc"] + S
    assert found[0]["detail"] == "gpu_is_lost"


def test_a_driver_that_is_gone_ends_the_poller() -> None:
    bench = Bench()
    bench.rows()
    bench.settable(0).fault = nv.UNINITIALIZED
    with pytest.raises(DriverError, match="gone"):
        bench.rows()


@pytest.mark.parametrize(
    ("field", "reason"),
    [
        (nv.NO_PERMISSION, "no_permission"),
        (nv.NOT_SUPPORTED, "unsupported"),
        (nv.FUNCTION_NOT_FOUND, "function_not_found"),
    ],
)
def test_what_the_driver_refuses_at_the_start_is_a_capability(field: int, reason: str) -> None:
    bench = Bench(gpus=1)
    bench.settable(0).field_faults = {nv.FI_MEMORY_TEMP: field}
    bench.restart()
    row = bench.rows()[0]
    assert row["temp_mem_c"] is None
    assert refusals(bench, row["gpu_uuid"])["temp_mem_c"] == reason


def test_an_older_driver_is_asked_by_its_older_calls() -> None:
    bench = Bench(gpus=1, absent=("nvmlDeviceGetFieldValues",))
    bench.rows()
    row = bench.rows()[0]
    assert row["power_avg_mw"] is not None  # nvmlDeviceGetPowerUsage: an average on Hopper
    assert row["power_inst_mw"] is None
    assert row["energy_source"] == "counter"
    assert row["power_limit_mw"] == 700_000
    assert refusals(bench, row["gpu_uuid"])["power_inst_mw"] == "function_not_found"


def test_throttle_times_fall_back_to_the_older_field() -> None:
    bench = Bench(gpus=1)
    bench.settable(0).field_faults = {nv.FI_SW_THERMAL: nv.NOT_SUPPORTED}
    bench.restart()
    bench.devices.change[0] = {"throttle_thermal_ns": 0}
    bench.rows()
    bench.devices.change[0] = {"throttle_thermal_ns": 250_000_000}
    assert bench.rows()[0]["throttle_thermal_us"] == 250_000


def test_a_throttle_counter_that_falls_is_null_for_that_row() -> None:
    bench = Bench(gpus=1)
    bench.devices.change[0] = {"throttle_power_ns": 900_000_000}
    bench.rows()
    bench.devices.change[0] = {"throttle_power_ns": 5_000_000}
    row = bench.rows()[0]
    assert row["throttle_power_us"] is None
    assert missing_reason(row["missing"], Group.LIMITS) == Missing.IMPLAUSIBLE
    bench.devices.change[0] = {"throttle_power_ns": 805_000_000}
    assert bench.rows(2)[0]["throttle_power_us"] == 400_000  # half of two seconds


def test_passing_trouble_is_null_with_a_reason() -> None:
    bench = Bench(gpus=1)
    bench.rows()
    bench.settable(0).field_faults = {nv.FI_POWER_AVERAGE: 10}  # timeout
    row = bench.rows()[0]
    assert row["power_avg_mw"] is None
    assert missing_reason(row["missing"], Group.POWER) == Missing.STALE
    assert row["energy_source"] == "counter"


@pytest.mark.parametrize(
    ("column", "reading", "value", "group", "reason"),
    [
        ("power_inst_mw", "power_inst_mw", 5_000_000, Group.POWER, Missing.IMPLAUSIBLE),
        ("power_inst_mw", "power_inst_mw", 2**32 - 1, Group.POWER, Missing.STALE),
        ("energy_mj", "energy_mj", 2**64 - 1, Group.POWER, Missing.STALE),
        ("temp_gpu_c", "temp_gpu_c", 900, Group.CLOCKS_HEAT, Missing.IMPLAUSIBLE),
        ("sm_clock_mhz", "sm_clock_mhz", 2**32 - 1, Group.CLOCKS_HEAT, Missing.STALE),
        ("util_gpu_pct", "util_gpu_pct", 101, Group.UTILISATION, Missing.IMPLAUSIBLE),
    ],
)
def test_sentinels_and_nonsense_never_become_numbers(
    column: str, reading: str, value: int, group: Group, reason: Missing
) -> None:
    bench = Bench(gpus=1)
    bench.rows()
    bench.devices.change[0] = {reading: value}
    row = bench.rows()[0]
    assert row[column] is None
    assert missing_reason(row["missing"], group) == reason


def test_gpm_baselines_older_than_three_seconds_are_dropped() -> None:
    bench = Bench(gpus=1)
    bench.rows()
    assert bench.rows(3)[0]["sm_active"] == pytest.approx(0.6)
    row = bench.rows(4)[0]
    assert row["sm_active"] is None
    assert row["activity_source"] == "nvml_util"
    assert bench.rows()[0]["sm_active"] == pytest.approx(0.6)


def test_gpm_metrics_that_a_model_lacks_are_reported_once() -> None:
    bench = Bench(gpus=1)
    reader = bench.sampler._slots[0].reader
    assert reader is not None
    assert reader.gpm is not None
    bench.rows()
    reader.gpm.codes = {"sm_active": 0, "nvlink_tx_bytes_s": nv.NOT_SUPPORTED}
    second = bench.tick()
    assert "device_capability" not in second.facts  # every metric answered on this model
    bench.sampler._slots[0].said_gpm = False
    reader.gpm.codes["nvlink_tx_bytes_s"] = nv.NOT_SUPPORTED
    reader.gpm._wanted = [metric for metric in reader.gpm._wanted if "nvlink" not in metric[0]]
    second = bench.tick()
    assert [row[2:] for row in second.facts["device_capability"]] == [
        ("nvlink_tx_bytes_s", False, "unsupported")
    ]


@pytest.mark.parametrize("call", ["nvmlGpmQueryDeviceSupport", "nvmlGpmSampleGet"])
def test_gpm_that_is_not_permitted_is_reported_as_that(
    call: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    begin = Bench.restart
    refuse = lambda *_: nv.NO_PERMISSION  # noqa: E731
    monkeypatch.setattr(
        Bench, "restart", lambda bench: (setattr(bench.standin, call, refuse), begin(bench))
    )
    bench = Bench(gpus=1)
    bench.facts["device_capability"] += bench.tick().facts.get("device_capability", [])
    said = {row[2]: row[4] for row in bench.facts["device_capability"]}  # the newest holds
    assert said["sm_active"] == said["pcie_rx_bytes_s"] == "no_permission"
    assert said["power_avg_mw"] is None
    second = bench.tick()
    assert "device_capability" not in second.facts
    row = named(second)[0]
    assert (row["sm_active"], row["activity_source"]) == (None, "nvml_util")


@pytest.mark.parametrize(
    ("name", "raw", "value", "reason"),
    [
        ("sm_active", 50.0, 0.5, 0),
        ("sm_active", 100.4, 1.0, 0),
        ("sm_active", math.nan, None, Missing.STALE),
        ("sm_active", 250.0, None, Missing.IMPLAUSIBLE),
        ("sm_active", -1.0, None, Missing.IMPLAUSIBLE),
        ("pcie_tx_bytes_s", 953.67431640625, 1_000_000_000, 0),
        ("pcie_tx_bytes_s", math.inf, None, Missing.IMPLAUSIBLE),
    ],
)
def test_gpm_units(name: str, raw: float, value: float | None, reason: int) -> None:
    found, why = convert(name, raw)
    assert found == (None if value is None else pytest.approx(value))
    assert why == reason


@pytest.mark.parametrize(
    ("compute", "graphics", "mps", "expected"),
    [
        ((7,), (True, None), (True, None), True),
        ((), (True, (7,)), (True, ()), True),
        ((), (True, ()), (True, (7,)), True),
        (None, (True, (7,)), (True, ()), True),
        ((), (True, ()), (True, ()), False),
        ((), (False, None), (False, None), False),
        ((), (True, None), (True, ()), None),
        (None, (True, ()), (True, ()), None),
    ],
)
def test_residency_rule(
    compute: tuple[int, ...] | None, graphics: Any, mps: Any, expected: bool | None
) -> None:
    assert resident(compute, (graphics, mps)) is expected


def test_residency_is_carried_between_the_slow_lists() -> None:
    bench = Bench(gpus=1)
    bench.devices.change[0] = {"compute": (), "graphics": ((9, 0),)}
    assert bench.rows()[0]["resident"] is True  # every list is asked the first time
    bench.devices.change[0] = {"compute": (), "graphics": ()}
    seen = [bench.rows()[0]["resident"] for _ in range(6)]
    assert seen[-1] is False
    assert True in seen  # the old answer stood until the list was asked again
    assert seen == sorted(seen, reverse=True)


@pytest.mark.parametrize("pid", [0, 2**32 - 1, 40_000_000])
def test_a_list_of_the_wrong_structure_says_nothing(pid: int) -> None:
    assert not plausible_pid(pid)
    bench = Bench(gpus=1)
    bench.rows()
    bench.devices.change[0] = {"compute": ((pid, 0),)}
    row = bench.rows()[0]
    assert (row["resident"], row["n_procs"]) == (None, None)
    assert missing_reason(row["missing"], Group.RESIDENCY) == Missing.STALE


def test_more_processes_than_the_buffer_holds() -> None:
    bench = Bench(gpus=1)
    bench.devices.change[0] = {"compute": tuple((100 + number, 0) for number in range(300))}
    bench.rows()
    assert bench.rows()[0]["n_procs"] == 300


def test_module_scope_where_the_gpu_alone_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench(gpus=1)
    refused = dict.fromkeys((nv.FI_POWER_AVERAGE, nv.FI_POWER_INSTANT), nv.NOT_SUPPORTED)
    bench.settable(0).field_faults = refused
    plan = probe(bench.nvml, bench.nvml.lib.nvmlDeviceGetHandleByIndex(0))
    assert plan.scope.value == "gpu"
    assert {call.column for call in plan.direct} & {"power_avg_mw"} == {"power_avg_mw"}

    def only_module(_nvml: Nvml, _handle: Any, fields: list[nv.Field]) -> dict[nv.Field, int]:
        return {
            one: nv.SUCCESS if one[1] == nv.SCOPE_MODULE else nv.NOT_SUPPORTED for one in fields
        }

    monkeypatch.setattr("collector.probe._probe_fields", only_module)
    plan = probe(bench.nvml, bench.nvml.lib.nvmlDeviceGetHandleByIndex(0))
    assert plan.scope.value == "module"
    assert plan.fields["power_inst_mw"] == (nv.FI_POWER_INSTANT, nv.SCOPE_MODULE)


def test_every_field_is_read_once() -> None:
    plan = Plan(fields={"a": (1, 0), "b": (2, 0)}, throttle={"c": ((2, 0), (3, 0))})
    assert plan.all_fields() == [(1, 0), (2, 0), (3, 0)]


def test_another_pynvml_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    other = types.ModuleType("pynvml")
    other.__file__ = "/somewhere/pynvml/__init__.py"
    monkeypatch.setitem(sys.modules, "pynvml", other)
    with pytest.raises(DriverError, match="nvidia-ml-py"):
        nv.load()


def test_a_machine_without_a_driver_says_so_in_one_sentence() -> None:
    uninstall()
    with pytest.raises(DriverError, match="cannot be opened"):
        Nvml()
