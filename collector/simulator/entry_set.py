"""Power limits, clock locks and persistence: reading them is free, setting them needs root."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any, Final

from collector.simulator import cabi
from collector.simulator.standin import MW_PER_W, device_entry

if TYPE_CHECKING:
    from collector.simulator.standin import StandIn

POWER_VALUE_V2: Final = 0x0200_000C


@device_entry("nvmlDeviceGetPowerManagementMode")
def _mode(_lib: StandIn, _index: int, out: Any) -> int:
    cabi.put_u32(out, 1)
    return cabi.SUCCESS


@device_entry("nvmlDeviceGetPowerManagementLimit", "nvmlDeviceGetEnforcedPowerLimit")
def _limit(lib: StandIn, index: int, out: Any) -> int:
    cabi.put_u32(out, lib.settables[index].limit_mw)
    return cabi.SUCCESS


@device_entry("nvmlDeviceGetPowerManagementDefaultLimit")
def _default_limit(lib: StandIn, index: int, out: Any) -> int:
    cabi.put_u32(out, round(lib.info(index).profile.limit_default_w.value * MW_PER_W))
    return cabi.SUCCESS


@device_entry("nvmlDeviceGetPowerManagementLimitConstraints")
def _constraints(lib: StandIn, index: int, low: Any, high: Any) -> int:
    profile = lib.info(index).profile
    cabi.put_u32(low, round(profile.limit_min_w.value * MW_PER_W))
    cabi.put_u32(high, round(profile.limit_max_w.value * MW_PER_W))
    return cabi.SUCCESS


def _set_limit(lib: StandIn, index: int, limit_mw: int) -> int:
    if not lib.root:
        return cabi.NO_PERMISSION
    profile = lib.info(index).profile
    low, high = profile.limit_min_w.value * MW_PER_W, profile.limit_max_w.value * MW_PER_W
    if not low <= limit_mw <= high:
        return cabi.INVALID_ARGUMENT
    lib.settables[index].limit_mw = limit_mw
    return _changed(lib, index)


def _changed(lib: StandIn, index: int) -> int:
    lib.provider.changed(index, lib.settables[index])
    return cabi.SUCCESS


@device_entry("nvmlDeviceSetPowerManagementLimit")
def _set_limit_v1(lib: StandIn, index: int, limit_mw: Any) -> int:
    return _set_limit(lib, index, cabi.number(limit_mw))


@device_entry("nvmlDeviceSetPowerManagementLimit_v2")
def _set_limit_v2(lib: StandIn, index: int, value: Any) -> int:
    version, scope, limit_mw = struct.unpack_from("<3I", cabi.target(value), 0)
    if version != POWER_VALUE_V2:
        return cabi.ARGUMENT_VERSION_MISMATCH
    return cabi.NOT_SUPPORTED if scope else _set_limit(lib, index, limit_mw)


@device_entry("nvmlDeviceSetGpuLockedClocks")
def _lock_sm(lib: StandIn, index: int, low: Any, high: Any) -> int:
    top = lib.info(index).profile.clocks.sm_max_mhz.value
    return _lock(lib, index, "sm_lock_mhz", (cabi.number(low), cabi.number(high), top))


@device_entry("nvmlDeviceSetMemoryLockedClocks")
def _lock_mem(lib: StandIn, index: int, low: Any, high: Any) -> int:
    clocks = lib.info(index).profile.clocks
    if not clocks.mem_switch:
        return cabi.NOT_SUPPORTED
    wanted = (cabi.number(low), cabi.number(high), clocks.mem_max_mhz.value)
    return _lock(lib, index, "mem_lock_mhz", wanted)


def _lock(lib: StandIn, index: int, name: str, wanted: tuple[int, int, float]) -> int:
    low, high, top = wanted
    if not lib.root:
        return cabi.NO_PERMISSION
    if not 0 < low <= high or low > top:
        return cabi.INVALID_ARGUMENT
    setattr(lib.settables[index], name, (low, min(high, round(top))))
    return _changed(lib, index)


@device_entry("nvmlDeviceResetGpuLockedClocks")
def _unlock_sm(lib: StandIn, index: int) -> int:
    return _unlock(lib, index, "sm_lock_mhz")


@device_entry("nvmlDeviceResetMemoryLockedClocks")
def _unlock_mem(lib: StandIn, index: int) -> int:
    if not lib.info(index).profile.clocks.mem_switch:
        return cabi.NOT_SUPPORTED
    return _unlock(lib, index, "mem_lock_mhz")


def _unlock(lib: StandIn, index: int, name: str) -> int:
    if not lib.root:
        return cabi.NO_PERMISSION
    setattr(lib.settables[index], name, None)
    return _changed(lib, index)


@device_entry("nvmlDeviceGetPersistenceMode")
def _persistence(lib: StandIn, index: int, out: Any) -> int:
    cabi.put_u32(out, int(lib.settables[index].persistence))
    return cabi.SUCCESS


@device_entry("nvmlDeviceSetPersistenceMode")
def _set_persistence(lib: StandIn, index: int, mode: Any) -> int:
    if not lib.root:
        return cabi.NO_PERMISSION
    lib.settables[index].persistence = bool(cabi.number(mode))
    return _changed(lib, index)
