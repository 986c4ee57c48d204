"""Execution-idle by job, user and GPU, and held but empty: rows that add up to their tile."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import polars as pl

from dashboard import format as fmt
from dashboard.views.parts import Name, job_path
from dashboard.waste_model import Price, WasteSnapshot

NOBODY: Final = "No job held the GPU"


@dataclass(frozen=True, slots=True)
class WasteTable:
    """A table whose last row is the sum of all others.

    Attributes:
        columns: headers.
        rows: names and cells.
        summary: what the rows add up to.
        texts: how many columns hold words; the others are numbers.
    """

    columns: tuple[str, ...]
    rows: list[tuple[Name, list[str]]]
    summary: str
    texts: int


_HEADS: Final[dict[str, tuple[str, ...]]] = {
    "job": ("Job", "Owner", "Class", "GPUs"),
    "user": ("User", "Jobs", "GPUs"),
    "gpu": ("GPU", "Model", "Basis", "Jobs"),
}
_TEXTS: Final = {"job": 3, "user": 1, "gpu": 3}
_NUMBERS: Final = ("GPU time", "Energy")
_TAIL: Final = ("Share of its energy", "Longest run", "Coverage")


def execution_idle(snapshot: WasteSnapshot, by: str) -> WasteTable:
    """Return the table of execution-idle energy.

    Args:
        snapshot: the window.
        by: job, user or gpu.
    """
    frame, price = snapshot.by.get(by, pl.DataFrame()), snapshot.price
    money = ("Cost",) if price.per_kwh else ()
    columns = (*_HEADS[by], *_NUMBERS, *money, *_TAIL)
    if frame.is_empty():
        return WasteTable(columns, [], "No GPU was execution-idle in this window.", _TEXTS[by])
    table = []
    for row in frame.iter_rows(named=True):
        name, words = _WORDS[by](row)
        numbers = _numbers(row["execution_idle_h"], row["execution_idle_kwh"], price)
        tail = [fmt.share(row["energy_share"]), fmt.duration(row["longest_run_s"])]
        table.append((name, [*words, *numbers, *tail, fmt.share(row["coverage"])]))
    blank = len(_HEADS[by]) - 1
    table += _closing(frame, "execution_idle", price, (blank, len(_TAIL)))
    count, kwh = int(frame["all_rows"][0]), frame["all_execution_idle_kwh"][0]
    noun = {"job": "entry", "user": "user", "gpu": "GPU"}[by]
    many = {"job": "entries", "user": "users", "gpu": "GPUs"}[by]
    text = (
        f"{fmt.plural(count, noun, many)} add up to {fmt.energy(kwh)}, "
        "the number of the tile Execution-idle."
    )
    return WasteTable(columns, table, text, _TEXTS[by])


def held_empty(snapshot: WasteSnapshot) -> WasteTable:
    """Return the table of GPUs that jobs held without any program on them."""
    frame, price = snapshot.held_empty, snapshot.price
    money = ("Cost",) if price.per_kwh else ()
    columns = (
        *_HEADS["job"],
        *_NUMBERS,
        *money,
        "Share of its time",
        "Longest run",
        "Energy known for",
    )
    if frame.is_empty():
        return WasteTable(columns, [], "No job held a GPU without a program on it.", 3)
    table = []
    for row in frame.iter_rows(named=True):
        name, words = _job(row)
        numbers = _numbers(row["held_empty_h"], row["held_empty_kwh"], price)
        tail = [fmt.share(row["time_share"]), fmt.duration(row["longest_run_s"])]
        table.append((name, [*words, *numbers, *tail, fmt.share(row["coverage"])]))
    table += _closing(frame, "held_empty", price, (3, 3))
    kwh = frame["all_held_empty_kwh"][0]
    text = (
        f"{fmt.plural(int(frame['all_rows'][0]), 'job')} held GPUs on which no program ran: "
        f"{fmt.energy(kwh)}, the number of the tile Held, empty. Not counted as execution-idle."
    )
    return WasteTable(columns, table, text, 3)


def _numbers(hours: float, kwh: float | None, price: Price) -> list[str]:
    cost = [fmt.money(kwh, price.per_kwh, price.currency)] if price.per_kwh else []
    return [fmt.gpu_hours(hours * 3.6e6), fmt.energy(kwh), *cost]


def _closing(
    frame: pl.DataFrame, what: str, price: Price, blanks: tuple[int, int]
) -> list[tuple[Name, list[str]]]:
    """Return the rows that make the table whole: what is beyond its limit, and the sum."""
    before, after = blanks
    hours, kwh = frame[f"all_{what}_h"][0], frame[f"all_{what}_kwh"][0]
    rest = int(frame["all_rows"][0]) - frame.height
    rows = []
    if rest:
        shown_h, shown_kwh = float(frame[f"{what}_h"].sum()), float(frame[f"{what}_kwh"].sum())
        numbers = _numbers(hours - shown_h, max((kwh or 0.0) - shown_kwh, 0.0), price)
        name = Name(f"{fmt.plural(rest, 'other')} with less")
        rows.append((name, [""] * before + numbers + [""] * after))
    rows.append((Name("All"), [""] * before + _numbers(hours, kwh, price) + [""] * after))
    return rows


def _job(row: dict[str, Any]) -> tuple[Name, list[str]]:
    gpus = fmt.count(row["gpus"])
    if row["job_key"] is None:
        return Name(NOBODY, "a program outside any job"), ["none", "", gpus]
    name = Name(row["raw_id"] or row["job_key"], row["job_name"] or "", job_path(row["job_key"]))
    return name, [row["user_name"] or "not known", row["job_class"] or "not known", gpus]


def _user(row: dict[str, Any]) -> tuple[Name, list[str]]:
    name = Name(row["user_name"] or "Owner not known") if row["held_by_job"] else Name(NOBODY)
    return name, [fmt.count(row["jobs"]), fmt.count(row["gpus"])]


def _gpu(row: dict[str, Any]) -> tuple[Name, list[str]]:
    index = "?" if row["gpu_index"] is None else row["gpu_index"]
    name = Name(f"{row['hostname'] or row['node_id']} / {index}", row["gpu_uuid"])
    basis = "utilisation" if row["by_utilisation"] else "counters"
    return name, [row["model"] or "not known", basis, fmt.count(row["jobs"])]


_WORDS: Final = {"job": _job, "user": _user, "gpu": _gpu}
