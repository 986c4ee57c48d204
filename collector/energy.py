"""The energy of one row, from the cumulative counter or from power: pure integer arithmetic.

The rule in one sentence: between two readings of one counter epoch the whole difference is given
out, to the row and, where seconds are missing in between, to the gap; nothing is invented and
nothing is lost. Only where the counter cannot be trusted does power stand in for a row. A counter
that stands still while the device draws power is not trusted: zero would be a lie.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from idlewatt.model import EnergySource
from idlewatt.units import MS_PER_S, UJ_PER_MJ, energy_uj

# A counter difference above this multiple of the highest possible power is no energy.
PLAUSIBLE_FACTOR: Final = 1.5
UNKNOWN_MAX_MW: Final = 2_000_000
# Energy by power from which a counter that has not moved cannot be right: 1 W for a second.
STILL_UJ: Final = 1_000_000
# After a stand-still a counter has gone on counting if it holds this share of what power says.
_CAUGHT_UP: Final = 0.5


@dataclass(frozen=True, slots=True)
class CounterState:
    """What must be remembered of a GPU's counter between rows.

    Attributes:
        energy_epoch: how often the counter has started anew.
        last_mj: the counter at the last row that had one; None before the first.
        covered_ms: time since then that rows have covered by power.
        covered_uj: energy given to those rows.
    """

    energy_epoch: int = 0
    last_mj: int | None = None
    covered_ms: int = 0
    covered_uj: int = 0


@dataclass(frozen=True, slots=True)
class Interval:
    """What was read for one row.

    Attributes:
        obs_ms: nominal interval of the row.
        span_ms: true time since the last counter reading; None where there was none.
        first: whether this is the first row of the agent's epoch.
        hole: whether nominal seconds are missing between the previous row and this one.
        counter_mj: the counter now.
        power_avg_mw: the driver's average.
        power_inst_mw: the latest reading.
        max_mw: highest power the device can draw.
    """

    obs_ms: int
    span_ms: int | None
    hole: bool
    counter_mj: int | None
    power_avg_mw: int | None
    power_inst_mw: int | None
    max_mw: int = UNKNOWN_MAX_MW
    first: bool = False


@dataclass(frozen=True, slots=True)
class RowEnergy:
    """The energy of a row, and what the hole before it held.

    Attributes:
        energy_uj: the row's own energy.
        source: what it was taken from.
        gap_uj: what the hole before the row held; None without a hole, or where nobody knows.
        implausible: whether the counter leapt.
        state: for the next row.
        still: whether the counter stands still although the device draws power.
    """

    energy_uj: int | None
    source: EnergySource | None
    gap_uj: int | None
    implausible: bool
    state: CounterState
    still: bool = False


def from_power(interval: Interval) -> tuple[int | None, EnergySource | None]:
    """Return the energy of the row by power, and which reading it came from."""
    if interval.power_avg_mw is not None:
        return energy_uj(interval.power_avg_mw, interval.obs_ms), EnergySource.POWER_AVG
    if interval.power_inst_mw is not None:
        return energy_uj(interval.power_inst_mw, interval.obs_ms), EnergySource.POWER_INST
    return None, None


def row_energy(state: CounterState, interval: Interval) -> RowEnergy:
    """Return the energy of one row and the state for the next."""
    now_mj = interval.counter_mj
    value, source = from_power(interval)
    still = now_mj == state.last_mj is not None and (value or 0) >= STILL_UJ
    if now_mj is None or still:
        kept = CounterState(
            state.energy_epoch,
            state.last_mj,
            state.covered_ms + interval.obs_ms,
            state.covered_uj + (value or 0),
        )
        return RowEnergy(value, source, None, False, kept, still)
    if state.last_mj is None or interval.span_ms is None:
        return RowEnergy(value, source, None, False, CounterState(state.energy_epoch, now_mj))
    total_uj = (now_mj - state.last_mj) * UJ_PER_MJ
    backwards = total_uj < 0
    if backwards or total_uj > _most_uj(interval):
        fresh = CounterState(state.energy_epoch + 1, now_mj)
        return RowEnergy(value, source, None, not backwards, fresh)
    after = CounterState(state.energy_epoch, now_mj)
    if interval.first:  # what an earlier agent left off, and power for the row itself
        rest = max(total_uj - state.covered_uj - (value or 0), 0) if interval.hole else None
        return RowEnergy(value, source, rest, False, after)
    if total_uj < state.covered_uj * _CAUGHT_UP:  # it did not count while it stood still
        return RowEnergy(value, source, None, False, after)
    own, rest = _divide(total_uj, state, interval)
    return RowEnergy(own, EnergySource.COUNTER, rest, False, after)


def _most_uj(interval: Interval) -> float:
    # One second more than the span: the counter moves in steps of up to 100 ms and more.
    span_ms = (interval.span_ms or 0) + MS_PER_S
    return PLAUSIBLE_FACTOR * interval.max_mw * span_ms


def _divide(total_uj: int, state: CounterState, interval: Interval) -> tuple[int, int | None]:
    """Return the row's own energy and the remainder for the gap (None without a hole)."""
    span_ms = interval.span_ms or 0
    if span_ms <= interval.obs_ms or not (interval.hole or state.covered_ms):
        return total_uj, (0 if interval.hole else None)
    own = total_uj * interval.obs_ms // span_ms
    if not interval.hole:
        return own, None  # the rest is what rows have already covered by power
    return own, max(total_uj - own - state.covered_uj, 0)
