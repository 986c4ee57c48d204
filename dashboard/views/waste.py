"""Waste: which energy bought nothing, whose was it, and what did it cost."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import polars as pl

from dashboard import format as fmt
from dashboard.theme import HELP, Look
from dashboard.views.parts import Tile
from dashboard.waste_model import WasteSnapshot
from idlewatt.model import State
from idlewatt.units import US_PER_HOUR

HELD_EMPTY: Final = "held_empty"
STATES: Final = (
    State.ACTIVE.value,
    State.EXECUTION_IDLE.value,
    HELD_EMPTY,
    State.DEEP_IDLE.value,
    State.UNKNOWN.value,
)
LABELS: Final[dict[str, str]] = {
    State.ACTIVE.value: "Active",
    State.EXECUTION_IDLE.value: "Execution-idle",
    HELD_EMPTY: "Held, empty",
    State.DEEP_IDLE.value: "Deep idle, free",
    State.UNKNOWN.value: "Unknown",
}
HELD_HELP: Final = "A job holds the GPU, but no program runs on it: deep idle with an owner."
MONEY_HINT: Final = "set report.price_per_kwh to see money"


@dataclass(frozen=True, slots=True)
class Sums:
    """Time and energy of a window, added up over its hours.

    Attributes:
        kwh: energy by state; None where no second of a state had an energy.
        seen_h: GPU hours by state.
        energy_seen_h: GPU hours that have an energy.
        expected_h: GPU hours of every device known, up to the newest analysed second.
        hours: hours of the window.
        silent: hours without samples.
        waiting: hours of which nothing is analysed.
        behind: hours with samples newer than the analysis, the newest hour not counted.
    """

    kwh: dict[str, float | None]
    seen_h: dict[str, float]
    energy_seen_h: float
    expected_h: float
    hours: int
    silent: int
    waiting: int
    behind: int

    @property
    def total_kwh(self) -> float | None:
        """Return all energy."""
        known = [value for value in self.kwh.values() if value is not None]
        return sum(known) if known else None

    @property
    def waste_kwh(self) -> float | None:
        """Return the energy of execution-idle and of held but empty GPUs."""
        parts = [self.kwh.get(state) for state in (State.EXECUTION_IDLE.value, HELD_EMPTY)]
        known = [value for value in parts if value is not None]
        return sum(known) if known else None

    @property
    def coverage(self) -> float | None:
        """Return the time that has an energy over the time expected."""
        whole_h = max(self.expected_h, sum(self.seen_h.values()))
        return min(self.energy_seen_h / whole_h, 1.0) if whole_h else None


def sums(snapshot: WasteSnapshot) -> Sums:
    """Return the window added up."""
    frame = snapshot.by_hour
    hours = (snapshot.to_us - snapshot.from_us) // US_PER_HOUR
    if frame.is_empty():
        return Sums({}, {}, 0.0, 0.0, hours, hours, 0, 0)
    states = frame.filter(pl.col("state").is_not_null())
    added = states.group_by("state").agg(
        pl.when(pl.col("energy_kwh").count() > 0).then(pl.col("energy_kwh").sum()).alias("kwh"),
        pl.col("seen_h").sum(),
    )
    per_hour = frame.group_by("hour_utc").agg(
        pl.col("expected_h").first(), pl.col("state").count(), pl.col("current").first()
    )
    newest = frame["hour_utc"].max()
    analysed = pl.col("state") > 0
    return Sums(
        dict(added.select("state", "kwh").iter_rows()),
        dict(added.select("state", "seen_h").iter_rows()),
        float(frame["energy_seen_h"].sum()),
        float(per_hour["expected_h"].sum()),
        hours,
        hours - per_hour.height,
        per_hour.filter(~analysed).height,
        per_hour.filter(analysed & ~pl.col("current") & (pl.col("hour_utc") < newest)).height,
    )


def idle_share(found: Sums) -> float | None:
    """Return execution-idle over execution-idle and active, in energy."""
    idle = found.kwh.get(State.EXECUTION_IDLE.value) or 0.0
    both = idle + (found.kwh.get(State.ACTIVE.value) or 0.0)
    return idle / both if both else None


def headline(snapshot: WasteSnapshot) -> str:
    """Return the waste of the window in one or two sentences."""
    if snapshot.as_of_us is None:
        return "No sample has arrived yet."
    found = sums(snapshot)
    since = fmt.minute(snapshot.from_us, snapshot.as_of_us)
    if found.total_kwh is None:
        return f"Since {since} UTC nothing is analysed yet; hours appear as they are done."
    waste, total = found.waste_kwh or 0.0, found.total_kwh
    cost = ""
    if snapshot.price.per_kwh:
        cost = f", {fmt.money(waste, snapshot.price.per_kwh, snapshot.price.currency)}"
    return (
        f"Since {since} UTC {fmt.energy(waste)} of {fmt.energy(total)} did no work "
        f"({fmt.share(waste / total if total else 0.0)}{cost}): {_parts(found)}."
        f"{status(found)}"
    )


def _parts(found: Sums) -> str:
    idle = fmt.energy(found.kwh.get(State.EXECUTION_IDLE.value) or 0.0)
    held = fmt.energy(found.kwh.get(HELD_EMPTY) or 0.0)
    return f"{idle} execution-idle, {held} held but empty"


def status(found: Sums) -> str:
    """Return what is missing from the window: sentences, each with a space before it."""
    text = ""
    if found.waiting:
        verb = "is" if found.waiting == 1 else "are"
        text += f" {fmt.plural(found.waiting, 'hour')} {verb} not yet analysed and not counted."
    if found.behind:
        verb = "has" if found.behind == 1 else "have"
        text += f" {fmt.plural(found.behind, 'hour')} {verb} newer samples, analysed soon."
    if found.silent:
        verb = "has" if found.silent == 1 else "have"
        text += f" {fmt.plural(found.silent, 'hour')} {verb} no samples."
    return text


def tiles(snapshot: WasteSnapshot) -> list[Tile]:
    """Return the tiles; all from the same snapshot."""
    found = sums(snapshot)
    held = snapshot.held_empty
    jobs = int(held["all_rows"][0]) if held.height else 0
    empty = f"{fmt.gpu_hours(3.6e6 * found.seen_h.get(HELD_EMPTY, 0.0))}, {fmt.plural(jobs, 'job')}"
    return [
        _state_tile(
            found,
            State.EXECUTION_IDLE.value,
            f"{fmt.share(idle_share(found))} of the energy in execution",
            f"{HELP[Look.EXECUTION_IDLE]} Share: execution-idle over execution-idle and active.",
        ),
        _state_tile(found, HELD_EMPTY, empty if jobs else "none", HELD_HELP),
        _cost_tile(snapshot, found),
        _state_tile(
            found,
            State.ACTIVE.value,
            f"{_of_all(found, State.ACTIVE.value)} of all energy",
            HELP[Look.ACTIVE],
        ),
        _state_tile(
            found,
            State.UNKNOWN.value,
            fmt.gpu_hours(3.6e6 * found.seen_h.get(State.UNKNOWN.value, 0.0)),
            HELP[Look.UNKNOWN],
        ),
        _coverage_tile(snapshot, found),
    ]


def _of_all(found: Sums, state: str) -> str:
    total = found.total_kwh
    return fmt.share((found.kwh.get(state) or 0.0) / total if total else None)


def look_of(state: str) -> Look:
    """Return the look of a state; held and empty looks as deep idle does."""
    return Look.DEEP_IDLE if state == HELD_EMPTY else Look(state)


def _state_tile(found: Sums, state: str, note: str, text: str) -> Tile:
    kwh = found.kwh.get(state, 0.0 if found.kwh else None)
    held = state == HELD_EMPTY
    return Tile(state, LABELS[state], fmt.energy(kwh), note, text, look_of(state), held=held)


def _cost_tile(snapshot: WasteSnapshot, found: Sums) -> Tile:
    price = snapshot.price
    cost = fmt.money(found.waste_kwh, price.per_kwh, price.currency)
    note = MONEY_HINT
    if price.per_kwh:
        note = f"at {price.per_kwh:g} {price.currency} a kWh"
    text = (
        "Energy execution-idle and held but empty, times the price of a kilowatt hour (setting "
        "report.price_per_kwh). GPU boards only: hosts, network and cooling come on top."
    )
    return Tile("cost", "Cost of both", cost, note, text)


def _coverage_tile(snapshot: WasteSnapshot, found: Sums) -> Tile:
    counted = found.hours - found.silent - found.waiting
    until = "nothing analysed yet"
    if snapshot.analysed_us is not None:
        until = f"up to {fmt.clock(snapshot.analysed_us, snapshot.as_of_us)} UTC"
    text = (
        "GPU time that was observed with an energy, over the time of every device in the "
        "inventory, up to the newest analysed second. What was not seen is in no number here."
    )
    note = f"{fmt.count(counted)} of {fmt.plural(found.hours, 'hour')} analysed, {until}"
    return Tile("coverage", "Coverage", fmt.share(found.coverage), note, text, level=found.coverage)
