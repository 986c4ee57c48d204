"""The physical range of every number that an import may give: one table.

What lies outside is NULL with the reason `implausible`. Names are columns of `gpu_sample`,
`device` and `meter`, and a few readings that become such columns later.
"""

from __future__ import annotations

from typing import Final

from collector.formats.model import Absent, Reason
from idlewatt.ranges import SAMPLE_RANGES

POWER_FACTOR: Final = 1.5
"""A power reading above this multiple of the highest limit known is no reading."""

MAX_POWER_MW: Final = 3_000_000
_MIB_MAX: Final = 1 << 21
_I63: Final = (1 << 63) - 1
_ROUND_UP: Final = 1.01  # counters are read a moment apart: a full second may read 1.004

_POWER: Final = (0, MAX_POWER_MW)
_LIMIT: Final = (1, MAX_POWER_MW)
_RATIO: Final = (0, 1)
_PERCENT: Final = (0, 100)
_CLOCK: Final = (0, 30_000)

RANGES: Final[dict[str, tuple[float, float]]] = {
    **SAMPLE_RANGES,
    "obs_ms": (1, 86_400_000),
    "power_avg_mw": _POWER,
    "power_inst_mw": _POWER,
    "power_limit_mw": _LIMIT,
    "power_limit_requested_mw": _LIMIT,
    "energy_uj": (0, MAX_POWER_MW * 86_400_000),
    "gr_active": _RATIO,
    "sm_active": _RATIO,
    "sm_occupancy": _RATIO,
    "tensor_active": _RATIO,
    "fp64_active": _RATIO,
    "fp32_active": _RATIO,
    "fp16_active": _RATIO,
    "dram_active": _RATIO,
    # readings that become columns: power.draw by model, module power, counters of held time
    "power_draw_mw": _POWER,
    "module_avg_mw": _POWER,
    "module_inst_mw": _POWER,
    "held_power_us": (0, _I63),
    "held_sw_thermal_us": (0, _I63),
    "held_hw_thermal_us": (0, _I63),
    "held_brake_us": (0, _I63),
    "held_power_pct": _PERCENT,
    "event_bits": (0, 0x1FF),
    # device
    "gpu_index": (0, 1_023),
    "gpu_count": (0, 1_024),
    "mem_total_mib": (1, _MIB_MAX),
    "power_limit_default_mw": _LIMIT,
    "power_limit_min_mw": _LIMIT,
    "power_limit_max_mw": _LIMIT,
    "sm_clock_max_mhz": _CLOCK,
    "mem_clock_max_mhz": _CLOCK,
    # meter
    "power_mw": (0, 1_000_000_000_000),
}
_FLOATS: Final = frozenset(name for name, span in RANGES.items() if span is _RATIO)


def within(name: str, value: float) -> int | float | Absent:
    """Return the value as the column holds it, or why it cannot be one."""
    low, high = RANGES[name]
    if name in _FLOATS:
        if low <= value <= high * _ROUND_UP:
            return min(float(value), 1.0)
        return Absent(Reason.IMPLAUSIBLE)
    if not low <= value <= high:  # NaN fails too
        return Absent(Reason.IMPLAUSIBLE)
    return round(value)
