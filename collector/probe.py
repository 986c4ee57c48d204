"""What this node has: inventory, and what each device can give at all."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from collector import nvml as nv
from idlewatt.columns import Group
from idlewatt.model import PowerScope
from idlewatt.units import MIB

_SM_CLOCK, _MEM_CLOCK = 1, 2
_TEMPERATURE_GPU = 0


@dataclass(frozen=True, slots=True)
class DirectCall:
    """A value that has no field of its own: one call, one unsigned number.

    Attributes:
        column: where it goes.
        group: its column group.
        names: C functions, newest first.
        before: the argument between handle and answer, if any.
        most: largest plausible value.
        wide: whether the answer has 64 bits.
    """

    column: str
    group: Group
    names: tuple[str, ...]
    before: int | None = None
    most: int = 2**31 - 1
    wide: bool = False

    def getter(self, nvml: nv.Nvml, handle: Any) -> nv.Getter:
        """Return the call bound to a device."""
        buffer = ctypes.c_ulonglong() if self.wide else ctypes.c_uint()
        before = () if self.before is None else (ctypes.c_uint(self.before),)
        return nv.Getter(nvml, handle, self.names, buffer, before)


def _clock(column: str, which: int) -> DirectCall:
    return DirectCall(column, Group.CLOCKS_HEAT, ("nvmlDeviceGetClockInfo",), which, 10_000)


DIRECT: Final = (
    _clock("sm_clock_mhz", _SM_CLOCK),
    _clock("mem_clock_mhz", _MEM_CLOCK),
    DirectCall(
        "temp_gpu_c", Group.CLOCKS_HEAT, ("nvmlDeviceGetTemperature",), _TEMPERATURE_GPU, 150
    ),
    DirectCall("pstate", Group.CLOCKS_HEAT, ("nvmlDeviceGetPerformanceState",), most=15),
    DirectCall("fan_pct", Group.CLOCKS_HEAT, ("nvmlDeviceGetFanSpeed",), most=200),
    DirectCall(
        "event_reasons",
        Group.LIMITS,
        (
            "nvmlDeviceGetCurrentClocksEventReasons",
            "nvmlDeviceGetCurrentClocksThrottleReasons",
        ),
        most=2**63 - 1,
        wide=True,
    ),
    DirectCall("pcie_gen", Group.LINK_STATE, ("nvmlDeviceGetCurrPcieLinkGeneration",), most=15),
    DirectCall("pcie_width", Group.LINK_STATE, ("nvmlDeviceGetCurrPcieLinkWidth",), most=64),
)
FIELD_OF: Final = {
    "power_avg_mw": nv.FI_POWER_AVERAGE,
    "power_inst_mw": nv.FI_POWER_INSTANT,
    "power_limit_mw": nv.FI_POWER_CURRENT_LIMIT,
    "power_limit_requested_mw": nv.FI_POWER_REQUESTED_LIMIT,
    "energy_mj": nv.FI_ENERGY,
    "temp_mem_c": nv.FI_MEMORY_TEMP,
}
# Where an older driver lacks the field, a call of its own gives the same.
FALLBACK: Final = {
    "power_limit_mw": DirectCall(
        "power_limit_mw", Group.POWER, ("nvmlDeviceGetEnforcedPowerLimit",)
    ),
    "power_limit_requested_mw": DirectCall(
        "power_limit_requested_mw", Group.POWER, ("nvmlDeviceGetPowerManagementLimit",)
    ),
    "energy_mj": DirectCall(
        "energy_mj",
        Group.POWER,
        ("nvmlDeviceGetTotalEnergyConsumption",),
        most=2**63 - 1,
        wide=True,
    ),
}
THROTTLE_OF: Final = {
    "throttle_power_us": ((nv.FI_PERF_POLICY_POWER,),),
    "throttle_thermal_us": ((nv.FI_SW_THERMAL, nv.FI_HW_THERMAL), (nv.FI_PERF_POLICY_THERMAL,)),
    "throttle_brake_us": ((nv.FI_HW_BRAKE,),),
}
_SCOPED: Final = frozenset(
    {
        nv.FI_POWER_AVERAGE,
        nv.FI_POWER_INSTANT,
        nv.FI_POWER_CURRENT_LIMIT,
        nv.FI_POWER_REQUESTED_LIMIT,
    }
)


@dataclass(frozen=True, slots=True)
class Device:
    """One GPU as found.

    Attributes:
        ga100: Ampere's data-centre chip, whose power reading is a 25 ms window: it has no field
            185, and so it is told from the other Ampere chips.
    """

    uuid: str
    index: int
    model: str | None
    arch: str | None
    ga100: bool
    pci_bus_id: str | None
    driver_version: str | None
    mem_total_mib: int | None
    limit_default_mw: int | None
    limit_min_mw: int | None
    limit_max_mw: int | None
    sm_clock_max_mhz: int | None
    mem_clock_max_mhz: int | None

    def row(self, node_id: str, now_us: int) -> tuple[Any, ...]:
        """Return its row of the device table."""
        return (
            self.uuid,
            node_id,
            now_us,
            None,
            self.model,
            self.arch,
            self.index,
            self.pci_bus_id,
            self.driver_version,
            self.mem_total_mib,
            self.limit_default_mw,
            self.limit_min_mw,
            self.limit_max_mw,
            self.sm_clock_max_mhz,
            self.mem_clock_max_mhz,
        )


@dataclass(slots=True)
class Plan:
    """What to ask of one device each second.

    Attributes:
        scope: what its power readings cover.
        fields: column to field.
        throttle: column to the fields whose sum it is.
        direct: calls of their own.
        gpm: whether the device has GPM counters.
        gpm_refused: why it has none.
        utilisation: whether it tells its utilisation.
        memory: whether it tells its memory.
        refused: column to the reason why the device will not give it.
    """

    scope: PowerScope = PowerScope.GPU
    fields: dict[str, nv.Field] = field(default_factory=dict)
    throttle: dict[str, tuple[nv.Field, ...]] = field(default_factory=dict)
    direct: list[DirectCall] = field(default_factory=list)
    gpm: bool = False
    gpm_refused: str = "unsupported"
    utilisation: bool = False
    memory: bool = False
    refused: dict[str, str] = field(default_factory=dict)

    def all_fields(self) -> list[nv.Field]:
        """Return every field to read in the one batched call."""
        wanted = list(self.fields.values())
        for parts in self.throttle.values():
            wanted.extend(parts)
        return list(dict.fromkeys(wanted))


class LostError(Exception):
    """The device cannot be asked now.

    Attributes:
        code: NVML's return code.
    """

    def __init__(self, code: int) -> None:
        super().__init__(f"NVML code {code}")
        self.code = code


def identity(nvml: nv.Nvml, index: int) -> tuple[str, Any]:
    """Return UUID and handle of the device at `index`.

    Raises:
        LostError: the driver does not hand it out.
    """
    try:
        handle = nvml.lib.nvmlDeviceGetHandleByIndex(index)
        return str(nvml.lib.nvmlDeviceGetUUID(handle)), handle
    except nvml.lib.NVMLError as exc:
        raise LostError(int(exc.value)) from exc


def inventory(nvml: nv.Nvml, handle: Any, uuid: str, index: int, plan: Plan) -> Device:
    """Return what the driver says about a device."""
    arch = nv.ARCHITECTURES.get(nvml.ask("nvmlDeviceGetArchitecture", handle) or 0)
    limits = nvml.ask("nvmlDeviceGetPowerManagementLimitConstraints", handle) or (None, None)
    memory = nvml.ask("nvmlDeviceGetMemoryInfo", handle)
    pci = nvml.ask("nvmlDeviceGetPciInfo", handle)
    has_instant = "power_inst_mw" in plan.fields
    return Device(
        uuid=uuid,
        index=index,
        model=nvml.ask("nvmlDeviceGetName", handle),
        arch=arch,
        ga100=arch == "ampere" and has_instant and "power_avg_mw" not in plan.fields,
        pci_bus_id=None if pci is None else _text(pci.busId),
        driver_version=nvml.ask("nvmlSystemGetDriverVersion"),
        mem_total_mib=None if memory is None else _sane(int(memory.total) // MIB),
        limit_default_mw=_sane(nvml.ask("nvmlDeviceGetPowerManagementDefaultLimit", handle)),
        limit_min_mw=_sane(limits[0]),
        limit_max_mw=_sane(limits[1]),
        sm_clock_max_mhz=_sane(nvml.ask("nvmlDeviceGetMaxClockInfo", handle, _SM_CLOCK), 10_000),
        mem_clock_max_mhz=_sane(nvml.ask("nvmlDeviceGetMaxClockInfo", handle, _MEM_CLOCK), 10_000),
    )


def _sane(value: Any, most: int = 100_000_000) -> int | None:
    """Return a number of the inventory; None for a sentinel or nonsense."""
    return value if isinstance(value, int) and 0 < value <= most else None


def _text(value: Any) -> str:
    return value.decode("ascii", "replace") if isinstance(value, bytes) else str(value)


def probe(nvml: nv.Nvml, handle: Any) -> Plan:
    """Return what the device gives, found by asking once for everything.

    Raises:
        LostError: the device is gone.
    """
    plan = Plan()
    codes = _probe_fields(nvml, handle, _every_field(nv.SCOPE_GPU))
    scope = nv.SCOPE_GPU
    powers = (nv.FI_POWER_AVERAGE, nv.FI_POWER_INSTANT)
    if all(codes[number, scope] in nv.CAPABILITY for number in powers):
        module = [(number, nv.SCOPE_MODULE) for number in sorted(_SCOPED)]
        more = _probe_fields(nvml, handle, module)
        if any(more[number, nv.SCOPE_MODULE] == nv.SUCCESS for number in powers):
            scope, plan.scope = nv.SCOPE_MODULE, PowerScope.MODULE
            codes.update(more)
    _plan_fields(plan, codes, scope)
    for call in DIRECT:
        _plan_direct(plan, nvml, handle, call)
    _plan_power_usage(plan, nvml, handle)
    _plan_structs(plan, nvml, handle)
    return plan


def _every_field(scope: int) -> list[nv.Field]:
    numbers = list(FIELD_OF.values())
    for choices in THROTTLE_OF.values():
        for parts in choices:
            numbers.extend(parts)
    return [(number, scope if number in _SCOPED else nv.SCOPE_GPU) for number in numbers]


def _probe_fields(nvml: nv.Nvml, handle: Any, fields: Sequence[nv.Field]) -> dict[nv.Field, int]:
    """Return each field's code; a call that fails as a whole is repeated field by field."""
    code, found = nv.FieldReader(nvml, handle, fields).read()
    if code == nv.SUCCESS:
        return {one: answer[0] for one, answer in found.items()}
    if code in nv.LOST:
        raise LostError(code)
    codes: dict[nv.Field, int] = {}
    for one in fields:
        code, found = nv.FieldReader(nvml, handle, [one]).read()
        codes[one] = code or found[one][0]
    return codes


def _plan_fields(plan: Plan, codes: dict[nv.Field, int], scope: int) -> None:
    for column, number in FIELD_OF.items():
        one = (number, scope if number in _SCOPED else nv.SCOPE_GPU)
        if codes[one] in nv.CAPABILITY:
            plan.refused[column] = nv.CAPABILITY[codes[one]]
        else:
            plan.fields[column] = one
    for column, choices in THROTTLE_OF.items():
        for parts in choices:
            wanted = tuple((number, nv.SCOPE_GPU) for number in parts)
            if not any(codes[one] in nv.CAPABILITY for one in wanted):
                plan.throttle[column] = wanted
                break
        else:
            plan.refused[column] = nv.CAPABILITY[codes[(choices[0][0], nv.SCOPE_GPU)]]


def _plan_direct(plan: Plan, nvml: nv.Nvml, handle: Any, call: DirectCall) -> bool:
    code = call.getter(nvml, handle)()
    if code in nv.LOST:
        raise LostError(code)
    if code in nv.CAPABILITY:
        plan.refused[call.column] = nv.CAPABILITY[code]
        return False
    plan.refused.pop(call.column, None)
    plan.direct.append(call)
    return True


def _plan_power_usage(plan: Plan, nvml: nv.Nvml, handle: Any) -> None:
    """Fill from older calls what the driver does not have as a field."""
    for column, call in FALLBACK.items():
        if column not in plan.fields:
            _plan_direct(plan, nvml, handle, call)
    if "power_avg_mw" in plan.fields or "power_inst_mw" in plan.fields:
        return
    arch = nvml.ask("nvmlDeviceGetArchitecture", handle) or 0
    name = str(nvml.ask("nvmlDeviceGetName", handle) or "")
    sparse = any(word in name for word in ("A100", "A800", "A30 ", "A30X")) or name.endswith("A30")
    averaged = 7 <= arch < 2**31 and not sparse
    column = "power_avg_mw" if averaged else "power_inst_mw"
    _plan_direct(plan, nvml, handle, DirectCall(column, Group.POWER, ("nvmlDeviceGetPowerUsage",)))


def _plan_structs(plan: Plan, nvml: nv.Nvml, handle: Any) -> None:
    lib = nvml.lib
    util = nv.Getter(nvml, handle, ("nvmlDeviceGetUtilizationRates",), lib.c_nvmlUtilization_t())()
    plan.utilisation = util not in nv.CAPABILITY
    if not plan.utilisation:
        for column in ("util_gpu_pct", "util_mem_pct"):
            plan.refused[column] = nv.CAPABILITY[util]
    memory = memory_getter(nvml, handle)()
    plan.memory = memory not in nv.CAPABILITY
    if not plan.memory:
        plan.refused["mem_used_mib"] = nv.CAPABILITY[memory]
    try:
        plan.gpm = bool(lib.nvmlGpmQueryDeviceSupport(handle).isSupportedDevice)
    except lib.NVMLError as exc:
        plan.gpm_refused = nv.CAPABILITY.get(int(exc.value), plan.gpm_refused)


def memory_getter(nvml: nv.Nvml, handle: Any) -> nv.Getter:
    """Return the call that tells memory used without the driver's reserve."""
    buffer = nvml.lib.c_nvmlMemory_v2_t()
    buffer.version = nvml.lib.nvmlMemory_v2
    return nv.Getter(nvml, handle, ("nvmlDeviceGetMemoryInfo_v2",), buffer)
