"""The fields of `nvidia-smi --query-gpu`, under all the names they have had."""

from __future__ import annotations

import re
from typing import Final

# What a reading keeps beside columns: names with a dot in front are not values of the row.
STAMP: Final = ".stamp"
PID: Final = ".pid"
UUID: Final = ".uuid"
BUS_ID: Final = ".bus_id"
INDEX: Final = ".index"

FACTS: Final = frozenset(
    {
        "model",
        "driver_version",
        "hostname",
        "compute_cap",
        "mig_mode",
        "mem_total_mib",
        "power_limit_default_mw",
        "power_limit_min_mw",
        "power_limit_max_mw",
        "sm_clock_max_mhz",
        "mem_clock_max_mhz",
        "gpu_count",
    }
)
TEXT_FACTS: Final = frozenset({"model", "driver_version", "hostname", "compute_cap", "mig_mode"})

_NAMES: Final[dict[str, tuple[str, ...]]] = {
    STAMP: ("timestamp",),
    UUID: ("uuid", "gpu_uuid"),
    BUS_ID: ("pci.bus_id", "gpu_bus_id"),
    INDEX: ("index", "gpu_index"),
    PID: ("pid",),
    "model": ("name", "gpu_name"),
    "driver_version": ("driver_version",),
    "hostname": ("hostname",),
    "compute_cap": ("compute_cap",),
    "mig_mode": ("mig.mode.current",),
    "gpu_count": ("count",),
    "power_draw_mw": ("power.draw",),
    "power_avg_mw": ("power.draw.average", "gpu.power.draw.average"),
    "power_inst_mw": ("power.draw.instant", "gpu.power.draw.instant"),
    "module_avg_mw": ("module.power.draw.average",),
    "module_inst_mw": ("module.power.draw.instant",),
    "power_limit_requested_mw": ("power.limit", "gpu.power.requested_limit"),
    "power_limit_mw": ("enforced.power.limit", "gpu.power.current_limit"),
    "power_limit_default_mw": ("power.default_limit", "gpu.power.default_limit"),
    "power_limit_min_mw": ("power.min_limit", "gpu.power.min_limit"),
    "power_limit_max_mw": ("power.max_limit", "gpu.power.max_limit"),
    "util_gpu_pct": ("utilization.gpu",),
    "util_mem_pct": ("utilization.memory",),
    "mem_used_mib": ("memory.used",),
    "mem_total_mib": ("memory.total",),
    "sm_clock_mhz": ("clocks.current.sm", "clocks.sm"),
    "mem_clock_mhz": ("clocks.current.memory", "clocks.mem", "clocks.memory"),
    "sm_clock_max_mhz": ("clocks.max.sm",),
    "mem_clock_max_mhz": ("clocks.max.memory", "clocks.max.mem"),
    "temp_gpu_c": ("temperature.gpu",),
    "temp_mem_c": ("temperature.memory",),
    "pstate": ("pstate",),
    "fan_pct": ("fan.speed",),
    "pcie_gen": ("pcie.link.gen.current", "pcie.link.gen.gpucurrent"),
    "pcie_width": ("pcie.link.width.current",),
}
_REASONS_PREFIX: Final = ("clocks_event_reasons.", "clocks_throttle_reasons.")
REASON_BITS: Final[dict[str, int]] = {
    "gpu_idle": 0x1,
    "idle": 0x1,
    "applications_clocks_setting": 0x2,
    "sw_power_cap": 0x4,
    "hw_slowdown": 0x8,
    "sync_boost": 0x10,
    "sw_thermal_slowdown": 0x20,
    "hw_thermal_slowdown": 0x40,
    "hw_power_brake_slowdown": 0x80,
    "display_clock_setting": 0x100,
    "display_clocks_setting": 0x100,
}
BIT: Final = ".bit."
"""Prefix of the targets of fields that say of one bit whether it is set."""

HELD: Final[dict[str, str]] = {
    "sw_power_cap": "held_power_us",
    "sw_thermal_slowdown": "held_sw_thermal_us",
    "hw_thermal_slowdown": "held_hw_thermal_us",
    "hw_power_brake_slowdown": "held_brake_us",
}


def _targets() -> dict[str, str]:
    found = {name: target for target, names in _NAMES.items() for name in names}
    for prefix in _REASONS_PREFIX:
        found[f"{prefix}active"] = "event_reasons"
        found |= {f"{prefix}{name}": f"{BIT}{name}" for name in REASON_BITS}
    found |= {f"clocks_event_reasons_counters.{name}": to for name, to in HELD.items()}
    return found


TARGETS: Final[dict[str, str]] = _targets()
"""Field name in lower case -> column, fact, or one of the dotted names."""

_HEADER_CELL: Final = re.compile(r"([A-Za-z][A-Za-z0-9_.]*)\s*(?:\[([^\]]*)\])?$")


def header_cell(text: str) -> tuple[str, str] | None:
    """Return (field name in lower case, unit) of a header's cell, or None if it is none."""
    found = _HEADER_CELL.match(text.strip())
    return (found.group(1).lower(), found.group(2) or "") if found else None


def parse_header(cells: list[str]) -> list[tuple[str, str]] | None:
    """Return the (field, unit) pairs of a header line, or None if the line is not one."""
    if header_cell(cells[0]) is None:
        return None
    found = [header_cell(cell) for cell in cells]
    fields = [pair for pair in found if pair is not None]
    if len(fields) != len(found) or not any(name in TARGETS for name, _ in fields):
        return None
    return fields
