"""One job in numbers: what its GPUs did, how much of it was seen, and at what energy.

`JobNumbers` is what the page, the text report and the API all speak from; nothing is computed
twice.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import polars as pl

from dashboard import format as fmt
from dashboard.job_model import JobSnapshot, idlest
from dashboard.theme import HELP, Look
from dashboard.views.parts import Tile
from dashboard.views.waste import HELD_EMPTY, HELD_HELP, LABELS, MONEY_HINT
from idlewatt.clock import us_from_utc
from idlewatt.model import State
from idlewatt.units import US_PER_MS, US_PER_S

ACTIVE: Final = State.ACTIVE.value
IDLE: Final = State.EXECUTION_IDLE.value
UNKNOWN: Final = State.UNKNOWN.value
STATES: Final = (ACTIVE, IDLE, HELD_EMPTY, UNKNOWN)


@dataclass(frozen=True, slots=True)
class GpuNumbers:
    """One GPU of a job.

    Attributes:
        gpu_uuid: its identity.
        node: host name, or the node's id.
        index: its number on the node; None where nobody said.
        model: its model.
        held_ms: time for which the job held it, up to the newest analysed second.
        ms: time by state.
        kwh: energy by state.
        longest_idle_s: longest execution-idle run.
        mean_w: mean power while it had an energy; None where it never had.
    """

    gpu_uuid: str
    node: str
    index: int | None
    model: str
    held_ms: int
    ms: dict[str, int]
    kwh: dict[str, float]
    longest_idle_s: float
    mean_w: float | None

    @property
    def name(self) -> str:
        """Return node and number."""
        return f"{self.node} / {'?' if self.index is None else self.index}"

    @property
    def seen_ms(self) -> int:
        """Return the time that has a state."""
        return sum(self.ms.values())

    @property
    def energy_kwh(self) -> float | None:
        """Return its energy; None where no second had one."""
        return None if self.mean_w is None else sum(self.kwh.values())

    @property
    def workless(self) -> float:
        """Return the share of its seen time that did no work."""
        return (self.ms[IDLE] + self.ms[HELD_EMPTY]) / self.seen_ms if self.seen_ms else 0.0


@dataclass(frozen=True, slots=True)
class JobNumbers:
    """One job.

    Attributes:
        gpus: its GPUs, the largest share of time without work first.
        nodes: how many nodes they are on.
        held_ms: GPU time held so far.
        due_ms: the part of it up to the newest analysed second: what could have been seen.
        ms: seen GPU time by state.
        kwh: energy by state.
        energy_seen_ms: GPU time that has an energy.
        counter_kwh: energy that the driver's counter gave.
        by_utilisation_ms: GPU time whose state rests on utilisation.
        idle_runs: how often a GPU became execution-idle.
        longest_idle_s: longest execution-idle run of a GPU.
        longest_empty_s: longest time for which a GPU was held empty.
        reason: why states are unknown, where they are.
    """

    gpus: tuple[GpuNumbers, ...]
    nodes: int
    held_ms: int
    due_ms: int
    ms: dict[str, int]
    kwh: dict[str, float]
    energy_seen_ms: int
    counter_kwh: float
    by_utilisation_ms: int
    idle_runs: int
    longest_idle_s: float
    longest_empty_s: float
    reason: str | None

    @property
    def seen_ms(self) -> int:
        """Return the GPU time that has a state."""
        return sum(self.ms.values())

    @property
    def total_kwh(self) -> float | None:
        """Return all energy; None where no second had one."""
        return sum(self.kwh.values()) if self.energy_seen_ms else None

    @property
    def waste_kwh(self) -> float | None:
        """Return the energy of execution-idle and held empty."""
        return self.kwh[IDLE] + self.kwh[HELD_EMPTY] if self.energy_seen_ms else None

    @property
    def coverage(self) -> float:
        """Return the GPU time that has a state over the time that could have been seen."""
        whole = max(self.due_ms, self.seen_ms)
        return self.seen_ms / whole if whole else 0.0

    @property
    def unseen_ms(self) -> int:
        """Return the GPU time that could have been seen and was not."""
        return max(self.due_ms - self.seen_ms, 0)

    @property
    def workless_ms(self) -> int:
        """Return the GPU time execution-idle or held empty."""
        return self.ms[IDLE] + self.ms[HELD_EMPTY]

    @property
    def idle_energy_share(self) -> float | None:
        """Return execution-idle over execution-idle and active, in energy."""
        both = self.kwh[IDLE] + self.kwh[ACTIVE]
        return self.kwh[IDLE] / both if both else None

    def share(self, state: str) -> float:
        """Return a state's share of the seen GPU time."""
        return self.ms[state] / self.seen_ms if self.seen_ms else 0.0


def _named(state: str) -> str:
    return HELD_EMPTY if state == State.DEEP_IDLE.value else state


def numbers(snapshot: JobSnapshot) -> JobNumbers:
    """Return the numbers of a job."""
    frame = snapshot.states
    states, holds = _rows_by_gpu(frame), _rows_by_gpu(snapshot.holds)
    gpus = tuple(
        _gpu(gpu, states.get(gpu, []), holds.get(gpu, []), snapshot.analysed_us)
        for gpu in _order(snapshot)
    )
    ms, kwh = dict.fromkeys(STATES, 0), dict.fromkeys(STATES, 0.0)
    for gpu in gpus:
        for state in STATES:
            ms[state] += gpu.ms[state]
            kwh[state] += gpu.kwh[state]
    idle = frame.filter(pl.col("state") == IDLE) if frame.height else frame
    empty = frame.filter(pl.col("state") == State.DEEP_IDLE.value) if frame.height else frame
    unknown = frame.filter(pl.col("state") == UNKNOWN) if frame.height else frame
    return JobNumbers(
        gpus,
        len({gpu.node for gpu in gpus}),
        sum(_held_ms(rows, snapshot.as_of_us) for rows in holds.values()),
        sum(gpu.held_ms for gpu in gpus),
        ms,
        kwh,
        int(frame["energy_seen_ms"].sum()) if frame.height else 0,
        float(frame["counter_kwh"].sum()) if frame.height else 0.0,
        int(frame["by_utilisation_ms"].sum()) if frame.height else 0,
        int(idle["runs"].sum()) if idle.height else 0,
        float(idle["longest_run_s"].max() or 0.0) if idle.height else 0.0,  # type: ignore[arg-type]
        float(empty["longest_run_s"].max() or 0.0) if empty.height else 0.0,  # type: ignore[arg-type]
        unknown.sort("seen_ms", descending=True)["reason"][0] if unknown.height else None,
    )


def _order(snapshot: JobSnapshot) -> list[str]:
    """Return every GPU held or seen, the idlest first, those never seen last."""
    ranked = idlest(snapshot.states)
    held = [] if snapshot.holds.is_empty() else snapshot.holds["gpu_uuid"].to_list()
    return list(dict.fromkeys([*ranked, *held]))


def _rows_by_gpu(frame: pl.DataFrame) -> dict[str, list[dict[str, Any]]]:
    found: dict[str, list[dict[str, Any]]] = {}
    for row in frame.iter_rows(named=True):
        found.setdefault(row["gpu_uuid"], []).append(row)
    return found


def _held_ms(holds: list[dict[str, Any]], until_us: int | None) -> int:
    """Return the time held up to an instant, which is the end of those that last."""
    total_us = 0
    if until_us is None:
        return 0
    for row in holds:
        end = row["end_utc"]
        last_us = until_us if end is None else min(us_from_utc(end), until_us)
        total_us += max(last_us - us_from_utc(row["start_utc"]), 0)
    return total_us // US_PER_MS


def _gpu(
    gpu: str, rows: list[dict[str, Any]], held: list[dict[str, Any]], until_us: int | None
) -> GpuNumbers:
    place = (rows or held)[0]
    ms, kwh, longest, energy_ms = dict.fromkeys(STATES, 0), dict.fromkeys(STATES, 0.0), 0.0, 0
    for row in rows:
        state = _named(row["state"])
        ms[state] += row["seen_ms"]
        kwh[state] += row["energy_kwh"] or 0.0
        energy_ms += row["energy_seen_ms"]
        if state == IDLE:
            longest = float(row["longest_run_s"])
    return GpuNumbers(
        gpu,
        place["hostname"] or place["node_id"] or "node not known",
        place["gpu_index"],
        place["model"] or "not known",
        _held_ms(held, until_us),
        ms,
        kwh,
        longest,
        sum(kwh.values()) * 3.6e9 / energy_ms if energy_ms else None,
    )


def title(snapshot: JobSnapshot) -> str:
    """Return the name of the job as its owner knows it."""
    return f"Job {snapshot.facts.get('raw_id') or snapshot.key}"


def header(snapshot: JobSnapshot, found: JobNumbers) -> list[tuple[str, str]]:
    """Return who, what, where and when, as label and text."""
    facts, as_of = snapshot.facts, snapshot.as_of_us
    span = snapshot.span_us
    start = None if span is None else span[0]
    end = "not known"
    if snapshot.runs:
        end = f"still runs, {fmt.clock(as_of, start)} UTC"
    elif span is not None:
        end = f"{fmt.clock(span[1], start)} UTC"
    models = sorted({gpu.model for gpu in found.gpus})
    held = f"{fmt.plural(len(found.gpus), 'GPU')} on {fmt.plural(found.nodes, 'node')}"
    return [
        ("Name", facts.get("job_name") or "not known"),
        ("Owner", facts.get("user_name") or "not known"),
        ("Class", facts.get("job_class") or "not known"),
        ("Project", facts.get("project") or "not known"),
        ("Key", snapshot.key),
        ("Held", f"{held}, {fmt.gpu_hours(found.held_ms)}"),
        ("Model", ", ".join(models) or "not known"),
        ("Start", "not known" if start is None else f"{fmt.day(start)} UTC"),
        ("End", end),
        ("Lasted", "not known" if span is None else fmt.duration((span[1] - span[0]) / US_PER_S)),
    ]


@dataclass(frozen=True, slots=True)
class Bar:
    """One bar of the report; the bars are parts of the GPU time that could have been seen.

    Attributes:
        state: key; `unseen` is time without samples.
        label: in words.
        share: of the GPU time, 0 to 1.
        ms: GPU time.
        kwh: energy; None where there is none to know.
    """

    state: str
    label: str
    share: float
    ms: int
    kwh: float | None


def bars(found: JobNumbers) -> list[Bar]:
    """Return where the GPU time went; the shares add up to 1."""
    whole = found.seen_ms + found.unseen_ms
    parts = [
        Bar(
            state,
            LABELS[state],
            found.ms[state] / whole if whole else 0.0,
            found.ms[state],
            found.kwh[state] if found.energy_seen_ms else None,
        )
        for state in STATES
    ]
    unseen = Bar(
        "unseen", "Not observed", found.unseen_ms / whole if whole else 0.0, found.unseen_ms, None
    )
    return [*parts, unseen] if found.unseen_ms >= 1_000 else parts


def tiles(snapshot: JobSnapshot, found: JobNumbers) -> list[Tile]:
    """Return the tiles; all from the same snapshot."""
    return [*_energy_tiles(found), _longest_tile(found), *_account_tiles(snapshot, found)]


def _energy_tiles(found: JobNumbers) -> list[Tile]:
    known = found.seen_ms > 0 and found.energy_seen_ms > 0
    return [
        Tile(
            "energy",
            "Energy",
            fmt.energy(found.total_kwh),
            f"{fmt.gpu_hours(found.seen_ms)} seen",
            "Energy of its GPU boards while the job held them, as far as observed. Hosts, network "
            "and cooling are not in it.",
        ),
        Tile(
            IDLE,
            LABELS[IDLE],
            fmt.energy(found.kwh[IDLE] if known else None),
            "no energy in execution"
            if found.idle_energy_share is None
            else f"{fmt.share(found.idle_energy_share)} of the energy in execution",
            HELP[Look.EXECUTION_IDLE],
            Look.EXECUTION_IDLE,
        ),
        Tile(
            HELD_EMPTY,
            LABELS[HELD_EMPTY],
            fmt.energy(found.kwh[HELD_EMPTY] if known else None),
            fmt.gpu_hours(found.ms[HELD_EMPTY]) if found.ms[HELD_EMPTY] else "none",
            HELD_HELP,
            Look.DEEP_IDLE,
            held=True,
        ),
    ]


def _longest_tile(found: JobNumbers) -> Tile:
    return Tile(
        "longest",
        "Longest idle run",
        fmt.duration(found.longest_idle_s) if found.idle_runs else fmt.NOTHING,
        f"{fmt.plural(found.idle_runs, 'run')} in all" if found.idle_runs else "none",
        "Longest time for which one of its GPUs was execution-idle without a break. A mean "
        "hides it: many short waits and one long one ask for different things.",
    )


def _account_tiles(snapshot: JobSnapshot, found: JobNumbers) -> list[Tile]:
    price, nothing = snapshot.price, found.seen_ms == 0
    cost_note = MONEY_HINT
    if price.per_kwh:
        no_work = fmt.money(found.waste_kwh, price.per_kwh, price.currency)
        cost_note = f"{no_work} of it without work"
    until = "nothing analysed yet"
    if snapshot.analysed_us is not None and not nothing:
        until = f"of {fmt.gpu_hours(max(found.due_ms, found.seen_ms))} due"
    return [
        Tile(
            "cost",
            "Cost",
            fmt.money(found.total_kwh, price.per_kwh, price.currency),
            cost_note,
            "Energy times the price of a kilowatt hour (setting report.price_per_kwh).",
        ),
        Tile(
            "coverage",
            "Coverage",
            fmt.share(found.coverage) if not nothing else fmt.NOTHING,
            until,
            "GPU time that was observed and analysed, over the time for which the job held GPUs up "
            "to the newest analysed second.",
            level=found.coverage,
        ),
    ]
