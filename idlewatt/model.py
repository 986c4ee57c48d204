"""Identities, states and enumerations that all parts share."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum, StrEnum


class State(StrEnum):
    """What a GPU was doing over a second; exclusive and exhaustive where a sample exists."""

    ACTIVE = "active"
    EXECUTION_IDLE = "execution_idle"
    DEEP_IDLE = "deep_idle"
    UNKNOWN = "unknown"


class Basis(StrEnum):
    """What evidence a state rests on."""

    COUNTERS = "counters"
    UTILISATION = "utilisation"
    RESIDENCY = "residency"
    NONE = "none"


class ActivitySource(StrEnum):
    """Where the activity ratios of a row come from."""

    GPM = "gpm"
    DCGM = "dcgm"
    NVML_UTIL = "nvml_util"
    NONE = "none"


class EnergySource(StrEnum):
    """Where a row's `energy_uj` comes from; NULL where it has none."""

    COUNTER = "counter"
    POWER_AVG = "power_avg"
    POWER_INST = "power_inst"


class PowerScope(StrEnum):
    """What hardware a power reading covers; scopes are never mixed."""

    GPU = "gpu"
    MODULE = "module"


class Missing(IntEnum):
    """Transient reasons why a column group is NULL; 4 bits a group in the `missing` column."""

    OBSERVED = 0
    STALE = 3
    IMPLAUSIBLE = 4
    LOST = 5
    PAUSED = 6


class Lane(StrEnum):
    """Which of a node's two queues a batch travels in."""

    LIVE = "live"
    BACKFILL = "backfill"


@dataclass(frozen=True, slots=True, order=True)
class BatchKey:
    """Identity of a batch: fixed in the spool before it is first sent, never changed."""

    node_id: str
    epoch: int
    lane: Lane
    seq: int

    def __str__(self) -> str:
        return f"{self.node_id}/{self.epoch}/{self.lane.value}/{self.seq}"


@dataclass(frozen=True, slots=True)
class Thresholds:
    """Settings of the low-activity test (arXiv 2604.04745, section on definitions).

    Attributes:
        activity: ratio below which a compute or memory signal is low (strict `<`).
        comm_bytes_s: per-direction rate below which a link is low (strict `<`).
        min_interval_s: length from which a low run is execution-idle.
    """

    activity: float = 0.05
    comm_bytes_s: float = 1e9
    min_interval_s: int = 5
