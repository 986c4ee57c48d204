"""`nvmlDeviceGetFieldValues`: many values in one call, each with its own return code."""

from __future__ import annotations

import struct
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from collector.simulator import cabi
from collector.simulator.device import Reading, Settable
from collector.simulator.profiles import GpuProfile
from collector.simulator.standin import MW_PER_W, device_entry

if TYPE_CHECKING:
    from collector.simulator.standin import StandIn

FIELD_BYTES: Final = 40
UINT: Final = 1
ULL: Final = 3
_FORMAT: Final = {UINT: "<I4x", ULL: "<Q"}
ALL_LINKS: Final = 0xFFFF_FFFF
KIB: Final = 1 << 10
RAW_OVERHEAD: Final = 1.06  # headers on top of the payload; assumed

Value = tuple[int, int]  # value type, value
Getter = Callable[[GpuProfile, Reading, Settable], Value | None]


def _limit(value: Callable[[GpuProfile, Settable], float]) -> Getter:
    return lambda profile, _now, state: (UINT, round(value(profile, state)))


def _uint(value: Callable[[Reading], int | None]) -> Getter:
    def get(_profile: GpuProfile, now: Reading, _state: Settable) -> Value | None:
        found = value(now)
        return None if found is None else (UINT, found)

    return get


def _ull(value: Callable[[Reading], int]) -> Getter:
    return lambda _profile, now, _state: (ULL, value(now))


def _pcie_bytes(value: Callable[[Reading], int]) -> Getter:
    """Return a getter of a byte counter of 32 bits, which wraps."""
    return lambda profile, now, _state: (
        (UINT, value(now) & 0xFFFF_FFFF) if profile.pcie_byte_fields else None
    )


_FIELDS: Final[dict[int, Getter]] = {
    **dict.fromkeys((3, 4, 5, 6), _ull(lambda now: 0)),  # ECC totals
    74: _ull(lambda now: now.throttle_power_ns),
    75: _ull(lambda now: now.throttle_thermal_ns),
    82: _uint(lambda now: now.temp_mem_c),
    83: _ull(lambda now: now.energy_mj),
    94: _uint(lambda now: 0),  # PCIe replays
    **dict.fromkeys((142, 143, 144, 145), _uint(lambda now: 0)),  # row remapping
    185: _uint(lambda now: now.power_avg_mw),
    186: _uint(lambda now: now.power_inst_mw),
    187: _limit(lambda profile, state: profile.limit_min_w.value * MW_PER_W),
    188: _limit(lambda profile, state: profile.limit_max_w.value * MW_PER_W),
    189: _limit(lambda profile, state: profile.limit_default_w.value * MW_PER_W),
    190: _limit(lambda profile, state: state.limit_mw),
    191: _ull(lambda now: now.energy_mj),
    192: _limit(lambda profile, state: state.limit_mw),
    197: _pcie_bytes(lambda now: now.pcie_tx_bytes),
    198: _pcie_bytes(lambda now: now.pcie_rx_bytes),
    230: _uint(lambda now: 0),  # recovery action: none
    269: _ull(lambda now: now.throttle_thermal_ns),
    270: _ull(lambda now: 0),
    271: _ull(lambda now: now.throttle_brake_ns),
    298: _limit(lambda profile, state: profile.clocks.mem_switch),
    299: _limit(lambda profile, state: 0),
}
_NVLINK: Final[dict[int, Callable[[Reading], float]]] = {
    138: lambda now: now.nvlink_tx_bytes,
    139: lambda now: now.nvlink_rx_bytes,
    140: lambda now: now.nvlink_tx_bytes * RAW_OVERHEAD,
    141: lambda now: now.nvlink_rx_bytes * RAW_OVERHEAD,
}


def _nvlink(profile: GpuProfile, now: Reading, field: int, scope: int) -> Value | int:
    if not profile.nvlink_links:
        return cabi.NOT_SUPPORTED
    total = _NVLINK[field](now) / KIB
    if scope == ALL_LINKS:
        return ULL, int(total)
    if scope >= profile.nvlink_links:
        return cabi.INVALID_ARGUMENT
    return ULL, int(total / profile.nvlink_links)


def _value(lib: StandIn, index: int, now: Reading, field: int, scope: int) -> Value | int:
    """Return a value, or the NVML code that says why there is none."""
    state = lib.settables[index]
    fault = state.field_faults.get(field)
    if fault:
        return fault
    profile = lib.info(index).profile
    if field in _NVLINK:
        return _nvlink(profile, now, field, scope)
    getter = _FIELDS.get(field)
    if getter is None or scope != 0:
        return cabi.NOT_SUPPORTED
    found = getter(profile, now, state)
    return cabi.NOT_SUPPORTED if found is None else found


def _frozen(state: Settable, field: int, stamp_us: int, value: Value) -> tuple[int, Value]:
    """Return time and value: where the field is frozen, those it had when that began."""
    if field not in state.frozen_fields:
        return stamp_us, value
    kept = state.frozen_fields[field] or (stamp_us, value)
    state.frozen_fields[field] = kept
    return kept


@device_entry("nvmlDeviceGetFieldValues")
def _field_values(lib: StandIn, index: int, count: Any, out: Any) -> int:
    wanted = cabi.number(count)
    if wanted < 1:
        return cabi.INVALID_ARGUMENT
    array = cabi.target(out)
    now = lib.provider.read(index)
    stamp_us = lib.provider.now_us()
    good = 0
    for position in range(wanted):
        base = position * FIELD_BYTES
        field, scope = struct.unpack_from("<2I", array, base)
        begin = time.perf_counter_ns()
        value = _value(lib, index, now, field, scope)
        took_us = (time.perf_counter_ns() - begin) // 1_000
        if isinstance(value, int):
            struct.pack_into("<qqIIQ", array, base + 8, stamp_us, took_us, 0, value, 0)
            continue
        good += 1
        read_us, value = _frozen(lib.settables[index], field, stamp_us, value)
        struct.pack_into("<qqII", array, base + 8, read_us, took_us, value[0], cabi.SUCCESS)
        struct.pack_into(_FORMAT[value[0]], array, base + 32, value[1])
    return cabi.SUCCESS if good else cabi.NOT_SUPPORTED
