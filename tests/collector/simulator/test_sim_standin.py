"""The real pynvml over the stand-in: its structs, versions and error mapping all run."""

from __future__ import annotations

import ctypes
import math
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, ClassVar

import pynvml
import pytest

from collector.simulator.constant import ConstantLoad, ConstantProvider, install_constant
from collector.simulator.device import Reading, device_info
from collector.simulator.profiles import PROFILES, Figure, profile
from collector.simulator.standin import StandIn, install, uninstall
from idlewatt.clock import VirtualClock
from idlewatt.errors import UsageError

MODELS = tuple(PROFILES)


class Changing(ConstantProvider):
    """Constant devices with some fields replaced by the test."""

    override: ClassVar[dict[str, Any]] = {}

    def read(self, index: int) -> Reading:
        return replace(super().read(index), **self.override)


@pytest.fixture(autouse=True)
def _clean() -> Iterator[None]:
    yield
    uninstall()


def begin(model: str = "H100", **options: Any) -> tuple[StandIn, VirtualClock, Any]:
    clock = VirtualClock()
    standin = StandIn(Changing(2, model, clock), **options)
    install(standin)
    pynvml.nvmlInit()
    return standin, clock, pynvml.nvmlDeviceGetHandleByIndex(0)


def code_of(call: Any, *arguments: Any) -> int:
    with pytest.raises(pynvml.NVMLError) as caught:
        call(*arguments)
    return int(caught.value.value)


def test_system_strings_and_counts() -> None:
    begin()
    assert pynvml.nvmlSystemGetDriverVersion() == "590.48.01"
    assert pynvml.nvmlSystemGetNVMLVersion().startswith("13.")
    assert pynvml.nvmlSystemGetCudaDriverVersion() == 13010
    assert pynvml.nvmlDeviceGetCount() == 2
    assert pynvml.nvmlErrorString(15) == "GPU is lost"


def test_before_init_and_after_shutdown_every_call_says_so() -> None:
    install_constant(1)
    assert code_of(pynvml.nvmlDeviceGetCount) == pynvml.NVML_ERROR_UNINITIALIZED
    pynvml.nvmlInit()
    assert pynvml.nvmlDeviceGetCount() == 1
    pynvml.nvmlShutdown()
    assert code_of(pynvml.nvmlDeviceGetCount) == pynvml.NVML_ERROR_UNINITIALIZED


@pytest.mark.parametrize("model", MODELS)
def test_identity_is_the_same_by_index_uuid_and_bus(model: str) -> None:
    standin, _, handle = begin(model)
    info = standin.provider.devices[0]
    assert pynvml.nvmlDeviceGetName(handle) == profile(model).name
    assert pynvml.nvmlDeviceGetUUID(handle) == info.uuid
    assert pynvml.nvmlDeviceGetSerial(handle) == info.serial
    assert pynvml.nvmlDeviceGetArchitecture(handle) == profile(model).arch
    pci = pynvml.nvmlDeviceGetPciInfo(handle)
    assert (pci.busId, pci.bus) == (info.bus_id, info.pci_bus)
    assert pci.busIdLegacy == info.bus_id[4:]
    assert pci.pciDeviceId == profile(model).pci_device_id
    again = pynvml.nvmlDeviceGetHandleByUUID(standin.provider.devices[1].uuid.encode())
    assert pynvml.nvmlDeviceGetIndex(again) == 1
    assert pynvml.nvmlDeviceGetMinorNumber(again) == 1
    bus = pynvml.nvmlDeviceGetHandleByPciBusId(info.bus_id.encode())
    assert pynvml.nvmlDeviceGetUUID(bus) == info.uuid
    assert code_of(pynvml.nvmlDeviceGetHandleByUUID, b"GPU-none") == pynvml.NVML_ERROR_NOT_FOUND
    assert code_of(pynvml.nvmlDeviceGetHandleByIndex, 7) == pynvml.NVML_ERROR_INVALID_ARGUMENT


def test_memory_v1_counts_the_reserve_as_used_and_v2_does_not() -> None:
    _, _, handle = begin()
    old = pynvml.nvmlDeviceGetMemoryInfo(handle)
    new = pynvml.nvmlDeviceGetMemoryInfo(handle, version=pynvml.nvmlMemory_v2)
    assert old.total == new.total == 81_559 * 2**20
    assert new.reserved == 479 * 2**20
    assert old.used == new.used + new.reserved
    assert new.used + new.reserved + new.free == new.total
    wrong = code_of(pynvml.nvmlDeviceGetMemoryInfo, handle, 0x0100_0028)
    assert wrong == pynvml.NVML_ERROR_ARGUMENT_VERSION_MISMATCH


@pytest.mark.parametrize("model", MODELS)
def test_plain_readings(model: str) -> None:
    standin, clock, handle = begin(model)
    model_profile = profile(model)
    watts = model_profile.power.resident_w.value
    assert pynvml.nvmlDeviceGetPowerUsage(handle) == pytest.approx(watts * 1_000, abs=1)
    before = pynvml.nvmlDeviceGetTotalEnergyConsumption(handle)
    clock.advance(10)
    grown = pynvml.nvmlDeviceGetTotalEnergyConsumption(handle) - before
    assert grown == pytest.approx(watts * 10_000, abs=2)
    rates = pynvml.nvmlDeviceGetUtilizationRates(handle)
    assert (rates.gpu, rates.memory) == (90, 40)
    top = round(model_profile.clocks.sm_max_mhz.value)
    assert pynvml.nvmlDeviceGetClockInfo(handle, pynvml.NVML_CLOCK_SM) == top
    assert pynvml.nvmlDeviceGetMaxClockInfo(handle, pynvml.NVML_CLOCK_GRAPHICS) == top
    assert pynvml.nvmlDeviceGetClock(handle, 1, pynvml.NVML_CLOCK_ID_CURRENT) == top
    celsius = pynvml.nvmlDeviceGetTemperature(handle, pynvml.NVML_TEMPERATURE_GPU)
    assert celsius == pynvml.nvmlDeviceGetTemperatureV(handle, pynvml.NVML_TEMPERATURE_GPU)
    assert 20 < celsius < 60
    assert pynvml.nvmlDeviceGetPerformanceState(handle) == 0
    assert pynvml.nvmlDeviceGetCurrentClocksEventReasons(handle) == 0
    assert pynvml.nvmlDeviceGetCurrPcieLinkGeneration(handle) == model_profile.pcie_gen
    assert pynvml.nvmlDeviceGetMaxPcieLinkGeneration(handle) == model_profile.pcie_gen
    assert pynvml.nvmlDeviceGetCurrPcieLinkWidth(handle) == 16
    assert pynvml.nvmlDeviceGetPersistenceMode(handle) == 1
    assert pynvml.nvmlDeviceGetPcieThroughput(handle, pynvml.NVML_PCIE_UTIL_TX_BYTES) == 0
    assert code_of(pynvml.nvmlDeviceGetFanSpeed, handle) == pynvml.NVML_ERROR_NOT_SUPPORTED
    assert standin.calls["nvmlDeviceGetPowerUsage"] == 1


def test_a_bare_device_is_at_its_floor() -> None:
    standin = install_constant(1, "L40S", VirtualClock(), ConstantLoad(resident=False))
    pynvml.nvmlInit()
    handle = pynvml.nvmlDeviceGetHandleByIndex(0)
    assert pynvml.nvmlDeviceGetPowerUsage(handle) == 35_600
    assert pynvml.nvmlDeviceGetClockInfo(handle, pynvml.NVML_CLOCK_SM) == 210
    assert pynvml.nvmlDeviceGetPerformanceState(handle) == 8
    assert pynvml.nvmlDeviceGetComputeRunningProcesses(handle) == []
    assert len(standin.provider.devices) == 1


def test_fields_fail_one_by_one() -> None:
    _, clock, handle = begin("A100-SXM4-80GB")
    wanted = [185, 186, (186, 1), 187, 188, 189, 190, 192, 83, 74, (138, 0xFFFF_FFFF), (138, 99)]
    values = pynvml.nvmlDeviceGetFieldValues(handle, [*wanted, 94, 230, 298, 299, 142, 3, 250])
    codes = [value.nvmlReturn for value in values]
    assert codes == [3, 0, 3, 0, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 3]
    by_field = {value.fieldId: value for value in values if value.nvmlReturn == 0}
    assert by_field[186].value.uiVal == 80_000
    assert by_field[186].valueType == pynvml.NVML_VALUE_TYPE_UNSIGNED_INT
    assert [by_field[field].value.uiVal for field in (187, 188, 189)] == [100_000, 400_000, 400_000]
    assert by_field[190].value.uiVal == by_field[192].value.uiVal == 400_000
    assert by_field[83].valueType == pynvml.NVML_VALUE_TYPE_UNSIGNED_LONG_LONG
    assert by_field[83].value.ullVal == 1_000_000_000
    assert all(value.timestamp == clock.now_us() and value.latencyUsec >= 0 for value in values)
    assert values[10].scopeId == 0xFFFF_FFFF


def test_a_call_without_one_good_field_fails_as_a_whole() -> None:
    standin, _, handle = begin("L40S")
    nvlink = [(138, 0xFFFF_FFFF), (139, 0xFFFF_FFFF), 82]
    assert code_of(pynvml.nvmlDeviceGetFieldValues, handle, nvlink) == 3
    standin.settables[0].field_faults[186] = pynvml.NVML_ERROR_NO_DATA
    values = pynvml.nvmlDeviceGetFieldValues(handle, [185, 186])
    assert [value.nvmlReturn for value in values] == [0, pynvml.NVML_ERROR_NO_DATA]


def test_counters_keep_their_width() -> None:
    _, _, handle = begin()
    Changing.override = {"pcie_tx_bytes": 5 * 2**32 + 7, "nvlink_tx_bytes": 36 * 2**40}
    try:
        fields = [197, (138, 0xFFFF_FFFF), (138, 0)]
        tx, total, one = pynvml.nvmlDeviceGetFieldValues(handle, fields)
    finally:
        Changing.override = {}
    assert (tx.valueType, tx.value.ullVal) == (pynvml.NVML_VALUE_TYPE_UNSIGNED_INT, 7)
    assert total.value.ullVal == 36 * 2**30
    assert one.value.ullVal == 2 * 2**30


def metrics(ids: list[int], first: Any, second: Any) -> list[tuple[int, float]]:
    request = pynvml.c_nvmlGpmMetricsGet_t()
    request.version = pynvml.NVML_GPM_METRICS_GET_VERSION
    request.numMetrics = len(ids)
    request.sample1, request.sample2 = first, second
    for position, number in enumerate(ids):
        request.metrics[position].metricId = number
    pynvml.nvmlGpmMetricsGet(request)
    return [(request.metrics[n].nvmlReturn, request.metrics[n].value) for n in range(len(ids))]


def test_gpm_averages_between_two_samples() -> None:
    standin, clock, handle = begin()
    assert pynvml.nvmlGpmQueryDeviceSupport(handle).isSupportedDevice == 1
    first, second = pynvml.nvmlGpmSampleAlloc(), pynvml.nvmlGpmSampleAlloc()
    pynvml.nvmlGpmSampleGet(handle, first)
    assert code_of(metrics, [2], first, second) == pynvml.NVML_ERROR_INVALID_ARGUMENT
    clock.advance(1)
    pynvml.nvmlGpmSampleGet(handle, second)
    got = metrics([1, 2, 10, 20, 61, 4], first, second)
    assert [code for code, _ in got] == [0, 0, 0, 0, 0, 3]
    assert [value for _, value in got[:3]] == pytest.approx([90, 60, 40])
    clock.advance(0.05)
    pynvml.nvmlGpmSampleGet(handle, first)
    ((code, value),) = metrics([2], second, first)
    assert code == 0
    assert math.isnan(value)  # too close together
    pynvml.nvmlGpmSampleFree(first)
    assert code_of(metrics, [2], second, first) == pynvml.NVML_ERROR_INVALID_ARGUMENT
    assert len(standin.samples) == 1


@pytest.mark.parametrize("model", ["A100-SXM4-80GB", "L40S"])
def test_no_gpm_before_hopper(model: str) -> None:
    _, _, handle = begin(model)
    assert pynvml.nvmlGpmQueryDeviceSupport(handle).isSupportedDevice == 0
    sample = pynvml.nvmlGpmSampleAlloc()
    assert code_of(pynvml.nvmlGpmSampleGet, handle, sample) == pynvml.NVML_ERROR_NOT_SUPPORTED


def test_gpm_samples_of_two_devices_do_not_mix() -> None:
    _, clock, handle = begin()
    other = pynvml.nvmlDeviceGetHandleByIndex(1)
    first, second = pynvml.nvmlGpmSampleAlloc(), pynvml.nvmlGpmSampleAlloc()
    pynvml.nvmlGpmSampleGet(handle, first)
    clock.advance(1)
    pynvml.nvmlGpmSampleGet(other, second)
    assert code_of(metrics, [2], first, second) == pynvml.NVML_ERROR_INVALID_ARGUMENT


def test_process_lists_follow_the_size_protocol() -> None:
    _, _, handle = begin()
    Changing.override = {
        "compute": ((11, 2**30), (12, 2**31)),
        "mps": ((13, 5),),
        "graphics": (),
    }
    try:
        found = pynvml.nvmlDeviceGetComputeRunningProcesses(handle)
        assert [(one.pid, one.usedGpuMemory) for one in found] == [(11, 2**30), (12, 2**31)]
        assert found[0].gpuInstanceId == 0xFFFF_FFFF
        assert [one.pid for one in pynvml.nvmlDeviceGetMPSComputeRunningProcesses_v3(handle)] == [
            13
        ]
        assert pynvml.nvmlDeviceGetGraphicsRunningProcesses(handle) == []
        used = pynvml.nvmlDeviceGetProcessUtilization(handle, 0)
        assert [(one.pid, one.smUtil) for one in used] == [(11, 30), (12, 30), (13, 30)]
        Changing.override = {"util_gpu_pct": 0}
        # pynvml raises even for an empty success
        assert code_of(pynvml.nvmlDeviceGetProcessUtilization, handle, 0) == 0
    finally:
        Changing.override = {}


def test_an_array_of_the_right_size_is_enough_and_a_smaller_one_is_told_the_size() -> None:
    standin, _, handle = begin()
    Changing.override = {"compute": ((11, 1), (12, 2))}
    call = pynvml._nvmlGetFunctionPointer("nvmlDeviceGetComputeRunningProcesses_v3")
    try:
        for room, code in ((0, 7), (1, 7), (2, 0), (3, 0)):
            count = ctypes.c_uint(room)
            array = (pynvml.c_nvmlProcessInfo_v3_t * 3)()
            assert call(handle, ctypes.byref(count), array) == code
            assert count.value == 2
            assert [one.pid for one in array] == ([11, 12, 0] if code == 0 else [0, 0, 0])
    finally:
        Changing.override = {}
    assert standin.calls["nvmlDeviceGetComputeRunningProcesses_v3"] == 4


@pytest.mark.parametrize("code", [3, 4, 10, 15, 16, 18, 21, 999])
def test_each_fault_becomes_its_own_exception(code: int) -> None:
    standin, _, handle = begin()
    standin.settables[0].fault = code
    for call in (
        pynvml.nvmlDeviceGetPowerUsage,
        pynvml.nvmlDeviceGetComputeRunningProcesses,
        pynvml.nvmlDeviceGetUUID,
    ):
        assert code_of(call, handle) == code
    assert code_of(pynvml.nvmlDeviceGetFieldValues, handle, [186]) == code
    assert code_of(pynvml.nvmlDeviceGetHandleByIndex, 0) == code
    other = pynvml.nvmlDeviceGetHandleByIndex(1)
    assert pynvml.nvmlDeviceGetPowerUsage(other) > 0  # the neighbour is well
    standin.settables[0].fault = 0
    assert pynvml.nvmlDeviceGetPowerUsage(handle) > 0


def test_a_lost_gpu_has_a_class_of_its_own() -> None:
    standin, _, handle = begin()
    standin.settables[0].fault = pynvml.NVML_ERROR_GPU_IS_LOST
    with pytest.raises(pynvml.NVMLError_GpuIsLost):
        pynvml.nvmlDeviceGetPowerUsage(handle)


def test_setters_need_root() -> None:
    _, _, handle = begin("L40S")
    for call, arguments in (
        (pynvml.nvmlDeviceSetPowerManagementLimit, (200_000,)),
        (pynvml.nvmlDeviceSetGpuLockedClocks, (210, 210)),
        (pynvml.nvmlDeviceSetMemoryLockedClocks, (405, 405)),
        (pynvml.nvmlDeviceResetGpuLockedClocks, ()),
        (pynvml.nvmlDeviceSetPersistenceMode, (0,)),
    ):
        with pytest.raises(pynvml.NVMLError_NoPermission):
            call(handle, *arguments)
    # This one swallows the code, so only reading back tells.
    assert pynvml.nvmlDeviceSetPowerManagementLimit_v2(handle, 0, 200_000) == 0
    assert pynvml.nvmlDeviceGetPowerManagementLimit(handle) == 350_000


def test_root_may_set_within_the_limits() -> None:
    _, _, handle = begin("L40S", root=True)
    assert pynvml.nvmlDeviceGetPowerManagementLimitConstraints(handle) == [100_000, 350_000]
    pynvml.nvmlDeviceSetPowerManagementLimit(handle, 200_000)
    assert pynvml.nvmlDeviceGetEnforcedPowerLimit(handle) == 200_000
    pynvml.nvmlDeviceSetPowerManagementLimit_v2(handle, 0, 250_000)
    assert pynvml.nvmlDeviceGetPowerManagementLimit(handle) == 250_000
    assert pynvml.nvmlDeviceGetPowerManagementDefaultLimit(handle) == 350_000
    for limit in (99_999, 350_001):
        code = code_of(pynvml.nvmlDeviceSetPowerManagementLimit, handle, limit)
        assert code == pynvml.NVML_ERROR_INVALID_ARGUMENT
    pynvml.nvmlDeviceSetGpuLockedClocks(handle, 210, 900)
    assert pynvml.nvmlDeviceGetClockInfo(handle, pynvml.NVML_CLOCK_SM) == 900
    pynvml.nvmlDeviceResetGpuLockedClocks(handle)
    assert pynvml.nvmlDeviceGetClockInfo(handle, pynvml.NVML_CLOCK_SM) == 2520
    assert code_of(pynvml.nvmlDeviceSetGpuLockedClocks, handle, 900, 210) == 2
    pynvml.nvmlDeviceSetPersistenceMode(handle, 0)
    assert pynvml.nvmlDeviceGetPersistenceMode(handle) == 0


def test_memory_clock_lock_only_where_the_model_switches_at_run_time() -> None:
    _, _, handle = begin("H100", root=True)
    assert code_of(pynvml.nvmlDeviceSetMemoryLockedClocks, handle, 2619, 2619) == 3


def test_mig_is_off_or_unknown() -> None:
    _, _, handle = begin("H100")
    assert pynvml.nvmlDeviceGetMigMode(handle) == [0, 0]
    assert pynvml.nvmlDeviceGetMaxMigDeviceCount(handle) == 0
    _, _, handle = begin("L40S")
    assert code_of(pynvml.nvmlDeviceGetMigMode, handle) == pynvml.NVML_ERROR_NOT_SUPPORTED


def test_symbols_nobody_implements_are_not_supported() -> None:
    _, _, handle = begin()
    for call, arguments in (
        (pynvml.nvmlDeviceGetEncoderUtilization, (handle,)),
        (pynvml.nvmlDeviceGetBrand, (handle,)),
        (pynvml.nvmlEventSetCreate, ()),
        (pynvml.nvmlDeviceGetNvLinkState, (handle, 0)),
    ):
        assert code_of(call, *arguments) == pynvml.NVML_ERROR_NOT_SUPPORTED


def test_an_older_driver_lacks_symbols() -> None:
    _, _, handle = begin(absent=["nvmlDeviceGetFieldValues", "nvmlGpmSampleAlloc"])
    assert code_of(pynvml.nvmlDeviceGetFieldValues, handle, [186]) == 13
    assert code_of(pynvml.nvmlGpmSampleAlloc) == pynvml.NVML_ERROR_FUNCTION_NOT_FOUND
    assert pynvml.nvmlDeviceGetPowerUsage(handle) > 0


def test_installing_another_stand_in_forgets_the_first() -> None:
    begin("H100")
    assert pynvml.nvmlDeviceGetName(pynvml.nvmlDeviceGetHandleByIndex(0)).endswith("HBM3")
    _, _, handle = begin("L40S")
    assert pynvml.nvmlDeviceGetName(handle) == "NVIDIA L40S"
    uninstall()
    assert pynvml.nvmlLib is None
    assert not pynvml._nvmlGetFunctionPointer_cache


def test_a_foreign_handle_is_an_invalid_argument() -> None:
    begin()
    assert code_of(pynvml.nvmlDeviceGetPowerUsage, pynvml.c_nvmlDevice_t()) == 2


def test_latency_delays_each_device_call() -> None:
    _, _, handle = begin(latency_s=0.02)
    before = time.perf_counter()
    pynvml.nvmlDeviceGetPowerUsage(handle)
    assert time.perf_counter() - before >= 0.02


def test_profiles_are_complete_and_sourced() -> None:
    for one in PROFILES.values():
        power = one.power
        assert 0 < power.bare_w.value < power.resident_w.value < power.peak_w.value
        assert one.limit_min_w.value < one.limit_default_w.value <= one.limit_max_w.value
        assert one.clocks.sm_idle_mhz.value < one.clocks.sm_max_mhz.value
        for holder in (one, one.power, one.clocks, one.thermal, power.instant):
            for name in holder.__slots__:
                value = getattr(holder, name)
                assert not isinstance(value, Figure) or value.source
    assert profile("H100") is PROFILES["H100-SXM"]
    with pytest.raises(UsageError, match="unknown GPU model"):
        profile("voodoo2")


def test_identities_depend_on_seed_node_and_index() -> None:
    model = profile("H100")
    seen = {
        device_info(seed, node, index, model).uuid
        for seed in (1, 2)
        for node in (0, 1)
        for index in (0, 1)
    }
    assert len(seen) == 8
    assert device_info(1, 0, 0, model) == device_info(1, 0, 0, model)


def test_constant_devices_need_no_numpy() -> None:
    code = (
        "import sys; sys.modules['numpy'] = None\n"
        "from collector.simulator.constant import install_constant\n"
        "import pynvml; install_constant(3, 'L40S'); pynvml.nvmlInit()\n"
        "print(pynvml.nvmlDeviceGetCount())"
    )
    out = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert out.stdout.strip() == "3"


def raw(name: str) -> Any:
    return pynvml._nvmlGetFunctionPointer(name)


def test_structs_of_a_wrong_version_are_refused() -> None:
    _, _, handle = begin("L40S", root=True)
    mismatch = pynvml.NVML_ERROR_ARGUMENT_VERSION_MISMATCH
    heat = pynvml.c_nvmlTemperature_v1_t(version=1, sensorType=0)
    assert raw("nvmlDeviceGetTemperatureV")(handle, ctypes.byref(heat)) == mismatch
    heat = pynvml.c_nvmlTemperature_v1_t(version=pynvml.nvmlTemperature_v1, sensorType=1)
    assert raw("nvmlDeviceGetTemperatureV")(handle, ctypes.byref(heat)) == 2
    power = pynvml.c_nvmlPowerValue_v2_t(version=1, powerScope=0, powerValueMw=200_000)
    setter = raw("nvmlDeviceSetPowerManagementLimit_v2")
    assert setter(handle, ctypes.byref(power)) == mismatch
    power = pynvml.c_nvmlPowerValue_v2_t(version=pynvml.nvmlPowerValue_v2, powerScope=1)
    assert setter(handle, ctypes.byref(power)) == pynvml.NVML_ERROR_NOT_SUPPORTED
    support = pynvml.c_nvmlGpmSupport_t(version=9)
    assert raw("nvmlGpmQueryDeviceSupport")(handle, ctypes.byref(support)) == mismatch
    request = pynvml.c_nvmlGpmMetricsGet_t(version=9)
    assert raw("nvmlGpmMetricsGet")(ctypes.pointer(request)) == mismatch


def test_arguments_out_of_range_are_invalid() -> None:
    _, _, handle = begin("L40S")
    out = ctypes.c_uint()
    for name, arguments in (
        ("nvmlDeviceGetTemperature", (1,)),
        ("nvmlDeviceGetClockInfo", (9,)),
        ("nvmlDeviceGetMaxClockInfo", (9,)),
        ("nvmlDeviceGetPcieThroughput", (9,)),
        ("nvmlDeviceGetFanSpeed_v2", (1,)),
    ):
        code = raw(name)(handle, *map(ctypes.c_uint, arguments), ctypes.pointer(out))
        assert code == pynvml.NVML_ERROR_INVALID_ARGUMENT, name
    assert raw("nvmlDeviceGetFieldValues")(handle, ctypes.c_int(0), None) == 2
    small = ctypes.create_string_buffer(4)
    assert raw("nvmlDeviceGetName")(handle, small, ctypes.c_uint(4)) == 7
    assert code_of(pynvml.nvmlDeviceGetClock, handle, 1, 2) == pynvml.NVML_ERROR_NOT_SUPPORTED
    assert code_of(pynvml.nvmlGpmSampleFree, pynvml.c_nvmlGpmSample_t()) == 2
    assert code_of(pynvml.nvmlGpmSampleGet, handle, pynvml.c_nvmlGpmSample_t()) == 3
    _, _, hopper = begin("H100")
    assert code_of(pynvml.nvmlGpmSampleGet, hopper, pynvml.c_nvmlGpmSample_t()) == 2
    assert code_of(pynvml.nvmlDeviceGetHandleByPciBusId, b"0000:FF:00.0") == 6


def test_small_facts() -> None:
    _, _, handle = begin("L40S", root=True)
    assert pynvml.nvmlDeviceGetCudaComputeCapability(handle) == (8, 9)
    assert pynvml.nvmlDeviceGetNumFans(handle) == 0
    assert pynvml.nvmlDeviceGetPowerManagementMode(handle) == 1
    assert pynvml.nvmlDeviceGetMaxPcieLinkWidth(handle) == 16
    assert pynvml.nvmlDeviceGetSupportedClocksEventReasons(handle) & 0x4
    pynvml.nvmlDeviceSetMemoryLockedClocks(handle, 405, 405)
    pynvml.nvmlDeviceResetMemoryLockedClocks(handle)
    Changing.override = {"fan_pct": 44}
    try:
        assert pynvml.nvmlDeviceGetFanSpeed(handle) == 44
        assert pynvml.nvmlDeviceGetFanSpeed_v2(handle, 0) == 44
        assert pynvml.nvmlDeviceGetNumFans(handle) == 1
    finally:
        Changing.override = {}


def test_a_fault_reaches_a_comparison_of_samples_already_taken() -> None:
    standin, clock, handle = begin("H100")
    first, second = pynvml.nvmlGpmSampleAlloc(), pynvml.nvmlGpmSampleAlloc()
    pynvml.nvmlGpmSampleGet(handle, first)
    clock.advance(1)
    pynvml.nvmlGpmSampleGet(handle, second)
    standin.settables[0].fault = pynvml.NVML_ERROR_GPU_IS_LOST
    assert code_of(metrics, [2], first, second) == pynvml.NVML_ERROR_GPU_IS_LOST
