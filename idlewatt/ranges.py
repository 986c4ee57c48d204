"""The physical range of every number of `gpu_sample`: one table for import and ingest.

What lies outside is NULL with the reason `implausible`.
"""

from __future__ import annotations

from typing import Final

MAX_POWER_MW: Final = 10_000_000
"""No device draws more."""

MAX_OBS_MS: Final = 3_600_000
_I63: Final = (1 << 63) - 1
_POWER: Final = (0, MAX_POWER_MW)
_LIMIT: Final = (1, MAX_POWER_MW)
_RATIO: Final = (0, 1.5)  # counters are read a moment apart: a full second may read a little more
_PERCENT: Final = (0, 100)
_CLOCK: Final = (0, 30_000)
_TEMP: Final = (-50, 150)
_HELD: Final = (0, 86_400_000_000)

SAMPLE_RANGES: Final[dict[str, tuple[float, float]]] = {
    "dt_ms": (0, (1 << 31) - 1),
    "power_avg_mw": _POWER,
    "power_inst_mw": _POWER,
    "power_limit_mw": _LIMIT,
    "power_limit_requested_mw": _LIMIT,
    "energy_mj": (0, _I63 // 1_000),
    "energy_epoch": (0, 1 << 30),
    "energy_uj": (0, MAX_POWER_MW * MAX_OBS_MS),
    "gr_active": _RATIO,
    "sm_active": _RATIO,
    "sm_occupancy": _RATIO,
    "tensor_active": _RATIO,
    "fp64_active": _RATIO,
    "fp32_active": _RATIO,
    "fp16_active": _RATIO,
    "dram_active": _RATIO,
    "util_gpu_pct": _PERCENT,
    "util_mem_pct": _PERCENT,
    "pcie_tx_bytes_s": (0, 3e11),
    "pcie_rx_bytes_s": (0, 3e11),
    "nvlink_tx_bytes_s": (0, 4e12),
    "nvlink_rx_bytes_s": (0, 4e12),
    "mem_used_mib": (0, 1 << 21),
    "sm_clock_mhz": _CLOCK,
    "mem_clock_mhz": _CLOCK,
    "temp_gpu_c": _TEMP,
    "temp_mem_c": _TEMP,
    "pstate": (0, 15),
    "fan_pct": _PERCENT,
    "event_reasons": (0, _I63),
    "throttle_power_us": _HELD,
    "throttle_thermal_us": _HELD,
    "throttle_brake_us": _HELD,
    "n_procs": (0, 32_767),
    "pcie_gen": (1, 10),
    "pcie_width": (0, 32),
    "late_ms": (-86_400_000, 86_400_000),
}
