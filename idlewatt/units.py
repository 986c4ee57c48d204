"""Unit constants and conversions; every quantity in the code carries its unit in its name."""

from __future__ import annotations

from typing import Final

MS_PER_S: Final = 1_000
US_PER_S: Final = 1_000_000
US_PER_MS: Final = 1_000
S_PER_HOUR: Final = 3_600
US_PER_HOUR: Final = S_PER_HOUR * US_PER_S
UJ_PER_J: Final = 1_000_000
UJ_PER_MJ: Final = 1_000  # microjoule per millijoule: driver counters are in mJ
J_PER_KWH: Final = 3_600_000
MIB: Final = 1 << 20


def energy_uj(power_mw: int, interval_ms: int) -> int:
    """Return the energy in µJ of a constant power over an interval (1 mW x 1 ms = 1 µJ)."""
    return power_mw * interval_ms


def kwh_from_uj(value_uj: float) -> float:
    """Return kWh from µJ."""
    return value_uj / UJ_PER_J / J_PER_KWH
