"""C entry points that describe the system and its devices, and read their present state."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any, Final

from collector.simulator import cabi
from collector.simulator.device import (
    CUDA_VERSION,
    DRIVER_VERSION,
    NVML_VERSION,
    Process,
    Reading,
)
from collector.simulator.standin import HANDLE_BASE, HANDLE_STEP, device_entry, entry
from idlewatt.units import MIB

if TYPE_CHECKING:
    from collector.simulator.standin import StandIn

MEMORY_V2: Final = 0x0200_0028
TEMPERATURE_V1: Final = 0x0100_000C
NO_INSTANCE: Final = 0xFFFF_FFFF
CLOCK_MEM: Final = 2
CLOCK_VIDEO: Final = 3
COMPUTE_CAPABILITY: Final = {7: (8, 0), 8: (8, 9), 9: (9, 0)}
SUPPORTED_REASONS: Final = 0x1FF
PROCESS_BYTES: Final = 24
UTILISATION_BYTES: Final = 32


@entry("nvmlInit", "nvmlInit_v2", "nvmlInitWithFlags")
def _init(lib: StandIn, *_flags: Any) -> int:
    lib.initialised += 1
    return cabi.SUCCESS


@entry("nvmlShutdown")
def _shutdown(lib: StandIn) -> int:
    lib.initialised -= 1
    return cabi.SUCCESS


@entry("nvmlErrorString")
def _error_string(_lib: StandIn, code: Any) -> bytes:
    return cabi.ERROR_TEXT.get(cabi.number(code), b"Unknown Error")


@entry("nvmlSystemGetDriverVersion")
def _driver_version(_lib: StandIn, buffer: Any, size: Any) -> int:
    return cabi.put_text(buffer, size, DRIVER_VERSION)


@entry("nvmlSystemGetNVMLVersion")
def _nvml_version(_lib: StandIn, buffer: Any, size: Any) -> int:
    return cabi.put_text(buffer, size, NVML_VERSION)


@entry("nvmlSystemGetCudaDriverVersion", "nvmlSystemGetCudaDriverVersion_v2")
def _cuda_version(_lib: StandIn, out: Any) -> int:
    cabi.put_u32(out, CUDA_VERSION)
    return cabi.SUCCESS


@entry("nvmlDeviceGetCount", "nvmlDeviceGetCount_v2")
def _count(lib: StandIn, out: Any) -> int:
    cabi.put_u32(out, len(lib.provider.devices))
    return cabi.SUCCESS


def _give_handle(lib: StandIn, index: int, out: Any) -> int:
    fault = lib.settables[index].fault
    if not fault:
        cabi.put_handle(out, HANDLE_BASE + index * HANDLE_STEP)
    return fault


@entry("nvmlDeviceGetHandleByIndex", "nvmlDeviceGetHandleByIndex_v2")
def _handle_by_index(lib: StandIn, index: Any, out: Any) -> int:
    wanted = cabi.number(index)
    if not 0 <= wanted < len(lib.provider.devices):
        return cabi.INVALID_ARGUMENT
    return _give_handle(lib, wanted, out)


@entry("nvmlDeviceGetHandleByUUID")
def _handle_by_uuid(lib: StandIn, uuid: Any, out: Any) -> int:
    wanted = cabi.text(uuid).decode()
    for info in lib.provider.devices:
        if info.uuid == wanted:
            return _give_handle(lib, info.index, out)
    return cabi.NOT_FOUND


@entry("nvmlDeviceGetHandleByPciBusId", "nvmlDeviceGetHandleByPciBusId_v2")
def _handle_by_bus(lib: StandIn, bus_id: Any, out: Any) -> int:
    wanted = cabi.text(bus_id).decode().upper()
    for info in lib.provider.devices:
        if wanted in (info.bus_id, info.bus_id[4:]):
            return _give_handle(lib, info.index, out)
    return cabi.NOT_FOUND


@device_entry("nvmlDeviceGetName")
def _name(lib: StandIn, index: int, buffer: Any, size: Any) -> int:
    return cabi.put_text(buffer, size, lib.info(index).profile.name)


@device_entry("nvmlDeviceGetUUID")
def _uuid(lib: StandIn, index: int, buffer: Any, size: Any) -> int:
    return cabi.put_text(buffer, size, lib.info(index).uuid)


@device_entry("nvmlDeviceGetSerial")
def _serial(lib: StandIn, index: int, buffer: Any, size: Any) -> int:
    return cabi.put_text(buffer, size, lib.info(index).serial)


@device_entry("nvmlDeviceGetIndex", "nvmlDeviceGetMinorNumber")
def _index(_lib: StandIn, index: int, out: Any) -> int:
    cabi.put_u32(out, index)
    return cabi.SUCCESS


@device_entry("nvmlDeviceGetPciInfo", "nvmlDeviceGetPciInfo_v2", "nvmlDeviceGetPciInfo_v3")
def _pci_info(lib: StandIn, index: int, out: Any) -> int:
    info = lib.info(index)
    struct.pack_into(
        "<16s5I32s",
        cabi.target(out),
        0,
        info.bus_id[4:].encode(),
        info.pci_domain,
        info.pci_bus,
        0,
        info.profile.pci_device_id,
        info.profile.pci_subsystem_id,
        info.bus_id.encode(),
    )
    return cabi.SUCCESS


@device_entry("nvmlDeviceGetArchitecture")
def _architecture(lib: StandIn, index: int, out: Any) -> int:
    cabi.put_u32(out, lib.info(index).profile.arch)
    return cabi.SUCCESS


@device_entry("nvmlDeviceGetCudaComputeCapability")
def _capability(lib: StandIn, index: int, major: Any, minor: Any) -> int:
    high, low = COMPUTE_CAPABILITY[lib.info(index).profile.arch]
    cabi.put_u32(major, high)
    cabi.put_u32(minor, low)
    return cabi.SUCCESS


def _memory(lib: StandIn, index: int) -> tuple[int, int, int]:
    profile = lib.info(index).profile
    total = round(profile.mem_total_mib.value) * MIB
    reserved = round(profile.mem_reserved_mib.value) * MIB
    used = min(lib.provider.read(index).mem_used_bytes, total - reserved)
    return total, reserved, used


@device_entry("nvmlDeviceGetMemoryInfo")
def _memory_v1(lib: StandIn, index: int, out: Any) -> int:
    total, reserved, used = _memory(lib, index)
    struct.pack_into("<3Q", cabi.target(out), 0, total, total - reserved - used, used + reserved)
    return cabi.SUCCESS


@device_entry("nvmlDeviceGetMemoryInfo_v2")
def _memory_v2(lib: StandIn, index: int, out: Any) -> int:
    memory = cabi.target(out)
    if struct.unpack_from("<I", memory, 0)[0] != MEMORY_V2:
        return cabi.ARGUMENT_VERSION_MISMATCH
    total, reserved, used = _memory(lib, index)
    struct.pack_into("<4Q", memory, 8, total, reserved, total - reserved - used, used)
    return cabi.SUCCESS


@device_entry("nvmlDeviceGetUtilizationRates")
def _utilisation(lib: StandIn, index: int, out: Any) -> int:
    now = lib.provider.read(index)
    struct.pack_into("<2I", cabi.target(out), 0, now.util_gpu_pct, now.util_mem_pct)
    return cabi.SUCCESS


@device_entry("nvmlDeviceGetPowerUsage")
def _power_usage(lib: StandIn, index: int, out: Any) -> int:
    now = lib.provider.read(index)
    average = now.power_avg_mw
    cabi.put_u32(out, now.power_inst_mw if average is None else average)
    return cabi.SUCCESS


@device_entry("nvmlDeviceGetTotalEnergyConsumption")
def _energy(lib: StandIn, index: int, out: Any) -> int:
    cabi.put_u64(out, lib.provider.read(index).energy_mj)
    return cabi.SUCCESS


@device_entry("nvmlDeviceGetTemperature")
def _temperature(lib: StandIn, index: int, sensor: Any, out: Any) -> int:
    if cabi.number(sensor) != 0:
        return cabi.INVALID_ARGUMENT
    cabi.put_u32(out, lib.provider.read(index).temp_gpu_c)
    return cabi.SUCCESS


@device_entry("nvmlDeviceGetTemperatureV")
def _temperature_v(lib: StandIn, index: int, out: Any) -> int:
    reading = cabi.target(out)
    version, sensor = struct.unpack_from("<2I", reading, 0)
    if version != TEMPERATURE_V1:
        return cabi.ARGUMENT_VERSION_MISMATCH
    if sensor != 0:
        return cabi.INVALID_ARGUMENT
    struct.pack_into("<i", reading, 8, lib.provider.read(index).temp_gpu_c)
    return cabi.SUCCESS


@device_entry("nvmlDeviceGetClockInfo")
def _clock(lib: StandIn, index: int, kind: Any, out: Any) -> int:
    return _put_clock(lib, index, cabi.number(kind), out)


@device_entry("nvmlDeviceGetClock")
def _clock_by_id(lib: StandIn, index: int, kind: Any, which: Any, out: Any) -> int:
    if cabi.number(which) != 0:
        return cabi.NOT_SUPPORTED
    return _put_clock(lib, index, cabi.number(kind), out)


def _put_clock(lib: StandIn, index: int, kind: int, out: Any) -> int:
    if kind > CLOCK_VIDEO:
        return cabi.INVALID_ARGUMENT
    now = lib.provider.read(index)
    cabi.put_u32(out, now.mem_clock_mhz if kind == CLOCK_MEM else now.sm_clock_mhz)
    return cabi.SUCCESS


@device_entry("nvmlDeviceGetMaxClockInfo")
def _max_clock(lib: StandIn, index: int, kind: Any, out: Any) -> int:
    wanted = cabi.number(kind)
    if wanted > CLOCK_VIDEO:
        return cabi.INVALID_ARGUMENT
    clocks = lib.info(index).profile.clocks
    cabi.put_u32(
        out, round(float(clocks.mem_max_mhz if wanted == CLOCK_MEM else clocks.sm_max_mhz))
    )
    return cabi.SUCCESS


@device_entry("nvmlDeviceGetPerformanceState", "nvmlDeviceGetPowerState")
def _pstate(lib: StandIn, index: int, out: Any) -> int:
    cabi.put_u32(out, lib.provider.read(index).pstate)
    return cabi.SUCCESS


@device_entry("nvmlDeviceGetFanSpeed")
def _fan(lib: StandIn, index: int, out: Any) -> int:
    fan = lib.provider.read(index).fan_pct
    if fan is None:
        return cabi.NOT_SUPPORTED
    cabi.put_u32(out, fan)
    return cabi.SUCCESS


@device_entry("nvmlDeviceGetFanSpeed_v2")
def _fan_v2(lib: StandIn, index: int, which: Any, out: Any) -> int:
    return cabi.INVALID_ARGUMENT if cabi.number(which) else _fan(lib, index, out)


@device_entry("nvmlDeviceGetNumFans")
def _fans(lib: StandIn, index: int, out: Any) -> int:
    cabi.put_u32(out, 0 if lib.provider.read(index).fan_pct is None else 1)
    return cabi.SUCCESS


@device_entry("nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetCurrentClocksThrottleReasons")
def _reasons(lib: StandIn, index: int, out: Any) -> int:
    cabi.put_u64(out, lib.provider.read(index).event_reasons)
    return cabi.SUCCESS


@device_entry(
    "nvmlDeviceGetSupportedClocksEventReasons", "nvmlDeviceGetSupportedClocksThrottleReasons"
)
def _supported_reasons(_lib: StandIn, _index: int, out: Any) -> int:
    cabi.put_u64(out, SUPPORTED_REASONS)
    return cabi.SUCCESS


@device_entry("nvmlDeviceGetMigMode")
def _mig_mode(lib: StandIn, index: int, current: Any, pending: Any) -> int:
    if not lib.info(index).profile.mig_capable:
        return cabi.NOT_SUPPORTED
    cabi.put_u32(current, 0)
    cabi.put_u32(pending, 0)
    return cabi.SUCCESS


@device_entry("nvmlDeviceGetMaxMigDeviceCount", "nvmlDeviceIsMigDeviceHandle")
def _no_mig(_lib: StandIn, _index: int, out: Any) -> int:
    cabi.put_u32(out, 0)
    return cabi.SUCCESS


@device_entry("nvmlDeviceGetCurrPcieLinkGeneration")
def _pcie_gen(lib: StandIn, index: int, out: Any) -> int:
    cabi.put_u32(out, lib.provider.read(index).pcie_gen)
    return cabi.SUCCESS


@device_entry("nvmlDeviceGetCurrPcieLinkWidth")
def _pcie_width(lib: StandIn, index: int, out: Any) -> int:
    cabi.put_u32(out, lib.provider.read(index).pcie_width)
    return cabi.SUCCESS


@device_entry("nvmlDeviceGetMaxPcieLinkGeneration", "nvmlDeviceGetGpuMaxPcieLinkGeneration")
def _pcie_gen_max(lib: StandIn, index: int, out: Any) -> int:
    cabi.put_u32(out, lib.info(index).profile.pcie_gen)
    return cabi.SUCCESS


@device_entry("nvmlDeviceGetMaxPcieLinkWidth")
def _pcie_width_max(lib: StandIn, index: int, out: Any) -> int:
    cabi.put_u32(out, lib.info(index).profile.pcie_width)
    return cabi.SUCCESS


@device_entry("nvmlDeviceGetPcieThroughput")
def _pcie_throughput(lib: StandIn, index: int, counter: Any, out: Any) -> int:
    now = lib.provider.read(index)
    rates = (now.pcie_tx_bytes_s, now.pcie_rx_bytes_s)
    wanted = cabi.number(counter)
    if wanted >= len(rates):
        return cabi.INVALID_ARGUMENT
    cabi.put_u32(out, round(rates[wanted] / 1024))
    return cabi.SUCCESS


def _put_processes(processes: tuple[Process, ...], count: Any, out: Any) -> int:
    counter = cabi.target(count)
    room = struct.unpack_from("<I", counter, 0)[0]
    struct.pack_into("<I", counter, 0, len(processes))
    if not processes:
        return cabi.SUCCESS
    array = cabi.target(out)
    if array is None or room < len(processes):
        return cabi.INSUFFICIENT_SIZE
    for position, (pid, used) in enumerate(processes):
        struct.pack_into(
            "<I4xQII", array, position * PROCESS_BYTES, pid, used, NO_INSTANCE, NO_INSTANCE
        )
    return cabi.SUCCESS


@device_entry("nvmlDeviceGetComputeRunningProcesses_v3")
def _compute(lib: StandIn, index: int, count: Any, out: Any) -> int:
    return _put_processes(lib.provider.read(index).compute, count, out)


@device_entry("nvmlDeviceGetGraphicsRunningProcesses_v3")
def _graphics(lib: StandIn, index: int, count: Any, out: Any) -> int:
    return _put_processes(lib.provider.read(index).graphics, count, out)


@device_entry("nvmlDeviceGetMPSComputeRunningProcesses_v3")
def _mps(lib: StandIn, index: int, count: Any, out: Any) -> int:
    return _put_processes(lib.provider.read(index).mps, count, out)


@device_entry("nvmlDeviceGetProcessUtilization")
def _process_utilisation(lib: StandIn, index: int, out: Any, count: Any, _since: Any) -> int:
    now = lib.provider.read(index)
    busy = _busy(now)
    counter = cabi.target(count)
    room = struct.unpack_from("<I", counter, 0)[0]
    struct.pack_into("<I", counter, 0, len(busy))
    array = cabi.target(out)
    if busy and (array is None or room < len(busy)):
        return cabi.INSUFFICIENT_SIZE
    stamp = lib.provider.now_us()
    for position, pid in enumerate(busy):
        values = (pid, stamp, now.util_gpu_pct // len(busy), now.util_mem_pct // len(busy), 0, 0)
        struct.pack_into("<I4xQ4I", array, position * UTILISATION_BYTES, *values)
    return cabi.SUCCESS


def _busy(now: Reading) -> list[int]:
    if not now.util_gpu_pct:
        return []
    return [pid for pid, _ in (*now.compute, *now.graphics, *now.mps)]
