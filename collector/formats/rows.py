"""From readings on a grid to rows of `gpu_sample`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from collector.energy import CounterState, Interval, row_energy
from collector.formats.model import Reading, Reason, Value
from collector.formats.models import Draw, architecture, default_draw
from collector.formats.ranges import MAX_POWER_MW, POWER_FACTOR
from idlewatt.columns import COMPUTE_SIGNALS, GPU_SAMPLE, MEMORY_SIGNALS, Group, missing_bits
from idlewatt.model import ActivitySource, EnergySource, Missing, PowerScope
from idlewatt.units import US_PER_MS

Row = tuple[Any, ...]

FLOOR_MIB: Final = 100
"""Memory in use above this means that a program holds a context: bare boards use 0 to 60 MiB, a
context takes 150 MiB or more."""

BUSY_PCT: Final = 5
BUSY_RATIO: Final = 0.05
_COLUMNS: Final = tuple(column.name for column in GPU_SAMPLE)
REPORTED: Final = frozenset(
    column.name for column in GPU_SAMPLE if column.group not in (Group.KEY, Group.QUALITY)
) - {"energy_uj", "energy_epoch", "energy_source", "activity_source", "power_scope", "resident"}
"""Columns of which a device is said to give them or not."""

_GROUPS: Final = {column.name: column.group for column in GPU_SAMPLE} | {
    "power_draw_mw": Group.POWER,
    "module_avg_mw": Group.POWER,
    "module_inst_mw": Group.POWER,
    "held_power_us": Group.LIMITS,
    "held_sw_thermal_us": Group.LIMITS,
    "held_hw_thermal_us": Group.LIMITS,
    "held_brake_us": Group.LIMITS,
    "held_power_pct": Group.LIMITS,
    "event_bits": Group.LIMITS,
}
_TRANSIENT: Final = {
    Reason.LOST: Missing.LOST,
    Reason.IMPLAUSIBLE: Missing.IMPLAUSIBLE,
    Reason.STALE: Missing.STALE,
}
_COPIED: Final = (
    "power_limit_mw",
    "power_limit_requested_mw",
    *("gr_active", "sm_active", "sm_occupancy", "tensor_active"),
    *("fp64_active", "fp32_active", "fp16_active", "dram_active"),
    *("util_gpu_pct", "util_mem_pct"),
    *("pcie_tx_bytes_s", "pcie_rx_bytes_s", "nvlink_tx_bytes_s", "nvlink_rx_bytes_s"),
    *("mem_used_mib", "sm_clock_mhz", "mem_clock_mhz", "temp_gpu_c", "temp_mem_c"),
    *("pstate", "fan_pct", "pcie_gen", "pcie_width"),
)
_ACTIVITIES: Final = (*COMPUTE_SIGNALS, *MEMORY_SIGNALS, "gr_active")
_POWER_READINGS: Final = (
    "power_avg_mw",
    "power_inst_mw",
    "power_draw_mw",
    "module_avg_mw",
    "module_inst_mw",
)
_HELD: Final = (
    ("throttle_power_us", ("held_power_us",)),
    ("throttle_thermal_us", ("held_sw_thermal_us", "held_hw_thermal_us")),
    ("throttle_brake_us", ("held_brake_us",)),
)


@dataclass(frozen=True, slots=True)
class Tick:
    """A reading on its place in the grid.

    Attributes:
        ts_us: the tick.
        at_us: when it was read.
        obs_ms: nominal interval.
        reading: what was read.
        bridged: whether the reading stands in for a tick that drift jumped over.
        exact: whether the stamp has parts of a second.
    """

    ts_us: int
    at_us: int
    obs_ms: int
    reading: Reading
    bridged: bool = False
    exact: bool = True


@dataclass(slots=True)
class Made:
    """The rows of one GPU and what came up on the way.

    Attributes:
        rows: in the order of `GPU_SAMPLE`; `epoch` is 0 until they are shipped.
        by_memory: rows whose residency rests on memory in use.
        contradicting: rows that are busy although nothing holds the GPU, with the reading.
        zero_at_power: rows with utilisation 0 at half the limit or above, with the reading.
        implausible: values refused, by name.
        gap_uj: energy that the counter saw before a tick, across a hole.
        filled: columns that have a value somewhere.
    """

    rows: list[Row] = field(default_factory=list)
    by_memory: int = 0
    contradicting: list[Tick] = field(default_factory=list)
    zero_at_power: list[Tick] = field(default_factory=list)
    implausible: Counter[str] = field(default_factory=Counter)
    gap_uj: dict[int, int] = field(default_factory=dict)
    filled: set[str] = field(default_factory=set)


@dataclass(frozen=True, slots=True)
class Board:
    """What is known of a GPU beside its readings."""

    node_id: str
    gpu_uuid: str
    parent_uuid: str | None
    facts: Mapping[str, Value]

    @property
    def arch(self) -> str | None:
        """Return its architecture."""
        facts = self.facts
        return architecture(
            str(facts.get("model", "")),
            str(facts.get("architecture", "")),
            str(facts.get("compute_cap", "")),
        )

    @property
    def draw(self) -> Draw:
        """Return what its default power reading is."""
        facts = self.facts
        return default_draw(
            str(facts.get("model", "")),
            self.arch,
            str(facts.get("driver_version", "")),
            str(facts.get("compute_cap", "")),
        )


class RowMaker:
    """Makes the rows of one GPU, tick after tick."""

    def __init__(self, board: Board, limits_mw: Iterable[int]) -> None:
        self._board = board
        self._draw = board.draw
        highest = max(limits_mw, default=0)
        self._most_mw = min(highest * POWER_FACTOR, MAX_POWER_MW) if highest else MAX_POWER_MW
        self._counter = CounterState()
        self._counter_us: int | None = None
        self._before: Tick | None = None
        self._held: dict[str, tuple[int, int]] = {}
        self._unfilled = set(REPORTED)
        self.made = Made()

    def add(self, tick: Tick) -> None:
        """Append the row of a tick."""
        values = dict(tick.reading.values)
        absent = dict(tick.reading.absent)
        self._bound_power(values, absent)
        row: dict[str, Any] = {
            "ts_utc": tick.ts_us,
            "obs_ms": tick.obs_ms,
            "node_id": self._board.node_id,
            "gpu_uuid": self._board.gpu_uuid,
            "parent_uuid": self._board.parent_uuid,
            "epoch": 0,
            "late_ms": (tick.at_us - tick.ts_us) // US_PER_MS if tick.exact else None,
        }
        row |= {name: values[name] for name in _COPIED if name in values}
        self._power(row, values)
        self._limits(row, values, tick)
        self._energy(row, values, tick)
        _activity_source(row)
        self._residency(row, tick)
        row["event_reasons"] = values.get("event_reasons", values.get("event_bits"))
        row["missing"] = self._missing(absent) or None
        self._before = tick
        filled = {name for name in row.keys() & self._unfilled if row[name] is not None}
        if filled:
            self.made.filled |= filled
            self._unfilled -= filled
        self.made.rows.append(tuple(map(row.get, _COLUMNS)))

    def _bound_power(self, values: dict[str, Value], absent: dict[str, Reason]) -> None:
        for name in _POWER_READINGS:
            value = values.get(name)
            if value is not None and float(value) > self._most_mw:
                del values[name]
                absent[name] = Reason.IMPLAUSIBLE
        if absent:
            self.made.implausible.update(
                name for name, reason in absent.items() if reason is Reason.IMPLAUSIBLE
            )

    def _power(self, row: dict[str, Any], values: Mapping[str, Value]) -> None:
        if self._board.parent_uuid is not None:
            for name in ("power_limit_mw", "power_limit_requested_mw"):
                row.pop(name, None)
            return
        average, instant = values.get("power_avg_mw"), values.get("power_inst_mw")
        drawn = values.get("power_draw_mw")
        if drawn is not None:
            if self._draw is Draw.AVERAGE:
                average = drawn if average is None else average
            elif instant is None:
                instant = drawn
        scope = PowerScope.GPU
        if average is None and instant is None:
            average, instant = values.get("module_avg_mw"), values.get("module_inst_mw")
            scope = PowerScope.MODULE
        row["power_avg_mw"], row["power_inst_mw"] = average, instant
        if average is not None or instant is not None:
            row["power_scope"] = scope.value
        if row.get("power_limit_mw") is None and "power_limit_requested_mw" in row:
            row["power_limit_mw"] = row["power_limit_requested_mw"]

    def _limits(self, row: dict[str, Any], values: Mapping[str, Value], tick: Tick) -> None:
        """Turn counters of held time into the time within this interval."""
        length_us = tick.obs_ms * US_PER_MS
        percent = values.get("held_power_pct")
        if percent is not None:
            row["throttle_power_us"] = round(float(percent) * length_us / 100)
        if tick.bridged:  # the reading comes again at its own tick
            return
        steps_us = (length_us, 2 * length_us if self._was_bridged() else length_us)
        for column, names in _HELD:
            if any(name not in values for name in names):
                continue
            now = sum(int(values[name]) for name in names)
            before = self._held.get(column)
            self._held[column] = (tick.ts_us, now)
            if before is None or tick.ts_us - before[0] not in steps_us:
                continue
            held = now - before[1]
            if 0 <= held <= 2 * length_us:
                row[column] = min(held, length_us)

    def _was_bridged(self) -> bool:
        return self._before is not None and self._before.bridged

    def _energy(self, row: dict[str, Any], values: Mapping[str, Value], tick: Tick) -> None:
        if self._board.parent_uuid is not None:
            return
        counter = values.get("energy_mj")
        before = self._before
        hole = before is not None and tick.ts_us - before.ts_us > tick.obs_ms * US_PER_MS
        span_us = None if self._counter_us is None else tick.at_us - self._counter_us
        result = row_energy(
            self._counter,
            Interval(
                obs_ms=tick.obs_ms,
                span_ms=None if span_us is None or span_us <= 0 else span_us // US_PER_MS,
                hole=hole,
                counter_mj=None if counter is None else int(counter),
                power_avg_mw=row.get("power_avg_mw"),
                power_inst_mw=row.get("power_inst_mw"),
                max_mw=int(self._most_mw / POWER_FACTOR),
            ),
        )
        if counter is not None:
            row["energy_mj"] = counter
            row["energy_epoch"] = result.state.energy_epoch
        if not tick.bridged:  # the reading comes again at its own tick
            self._counter = result.state
            self._counter_us = self._counter_us if counter is None else tick.at_us
        row["energy_uj"] = result.energy_uj
        if result.source is EnergySource.COUNTER and not hole:
            row["energy_uj"] = _to_nominal(result.energy_uj, tick.obs_ms, span_us)
        row["energy_source"] = None if result.source is None else result.source.value
        if result.gap_uj:
            self.made.gap_uj[tick.ts_us] = result.gap_uj
        if result.implausible:
            self.made.implausible["energy_mj"] += 1

    def _residency(self, row: dict[str, Any], tick: Tick) -> None:
        processes, used = tick.reading.processes, row.get("mem_used_mib")
        blind = processes == 0 and used is not None and used > FLOOR_MIB  # seen from a container
        row["n_procs"] = None if processes is None or blind else min(processes, 32_767)
        busy = is_busy(row)
        if processes:
            row["resident"] = True
        elif used is not None and used > FLOOR_MIB:
            row["resident"] = True
            self.made.by_memory += 1
        elif processes == 0 or used is not None:
            row["resident"] = None if busy else False
            self.made.by_memory += processes is None and not busy
            if busy:
                self.made.contradicting.append(tick)
        if _all_zero(row) and _at_half_limit(row):
            self.made.zero_at_power.append(tick)

    def _missing(self, absent: Mapping[str, Reason]) -> int:
        reasons = {
            _GROUPS[name]: int(_TRANSIENT[reason])
            for name, reason in absent.items()
            if reason in _TRANSIENT and name in _GROUPS
        }
        return missing_bits(reasons)


def _to_nominal(energy_uj: int | None, obs_ms: int, span_us: int | None) -> int | None:
    """Return the energy of the nominal interval from that of the time between two readings."""
    if energy_uj is None or not span_us:
        return energy_uj
    nominal_us = obs_ms * US_PER_MS
    if not nominal_us / 2 < span_us < nominal_us * 2:
        return energy_uj
    return energy_uj * nominal_us // span_us


def is_busy(row: Mapping[str, Any]) -> bool:
    """Return whether a row shows work beyond noise."""
    if (row.get("util_gpu_pct") or 0) >= BUSY_PCT:
        return True
    return any((row.get(name) or 0.0) >= BUSY_RATIO for name in _ACTIVITIES)


def _all_zero(row: Mapping[str, Any]) -> bool:
    """Return whether every activity there is says exactly 0; utilisation where there is none."""
    known = [row[name] for name in _ACTIVITIES if row.get(name) is not None]
    known = known or [row[name] for name in ("util_gpu_pct", "util_mem_pct") if name in row]
    return bool(known) and not any(known)


def _at_half_limit(row: Mapping[str, Any]) -> bool:
    limit = row.get("power_limit_mw")
    powers = [row.get("power_avg_mw"), row.get("power_inst_mw")]
    known = [power for power in powers if power is not None]
    return limit is not None and bool(known) and min(known) >= limit / 2


def _activity_source(row: dict[str, Any]) -> None:
    if any(row.get(name) is not None for name in _ACTIVITIES):
        row["activity_source"] = ActivitySource.DCGM.value
    elif row.get("util_gpu_pct") is not None:
        row["activity_source"] = ActivitySource.NVML_UTIL.value
    else:
        row["activity_source"] = ActivitySource.NONE.value
