"""The table of jobs: who held GPUs, what they did with them, and at what energy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from dashboard import format as fmt
from dashboard.job_model import JobList
from dashboard.views.job import STATES
from dashboard.views.parts import Name, job_path
from dashboard.views.waste import HELD_EMPTY, LABELS
from idlewatt.clock import us_from_utc

COLUMNS: Final = (
    "Job",
    "Owner",
    "Class",
    "States",
    "GPUs",
    "GPU time",
    "Energy",
    "Execution-idle",
    "Coverage",
    "From (UTC)",
    "To",
)
NUMBERS: Final = (4, 5, 6, 7, 8)
_HOURS: Final = {
    "active": "active_h",
    "execution_idle": "execution_idle_h",
    HELD_EMPTY: "held_empty_h",
    "unknown": "unknown_h",
}


@dataclass(frozen=True, slots=True)
class JobRow:
    """One row of the table.

    Attributes:
        name: the job, with its name below and a link to its page.
        words: owner and class.
        states: (state, share of the GPU time held), those that are not 0; the rest was not seen.
        states_text: the same in words.
        cells: what stands after the bar.
    """

    name: Name
    words: tuple[str, str]
    states: list[tuple[str, float]]
    states_text: str
    cells: list[str]


def rows(found: JobList) -> list[JobRow]:
    """Return the rows, the most energy without work first."""
    return [_row(row, found.as_of_us) for row in found.rows.iter_rows(named=True)]


def _row(row: dict[str, Any], as_of_us: int | None) -> JobRow:
    whole = max(row["held_h"] or 0.0, row["seen_h"]) or 1.0
    states = [(state, row[_HOURS[state]] / whole) for state in STATES if row[_HOURS[state]] > 0]
    words = ", ".join(f"{LABELS[state].lower()} {fmt.share(share)}" for state, share in states)
    end = row["end_utc"]
    end_us = None if end is None else us_from_utc(end)
    runs = end_us is None or (as_of_us is not None and end_us > as_of_us)
    start = fmt.minute(us_from_utc(row["start_utc"]), as_of_us)
    return JobRow(
        Name(row["raw_id"] or row["job_key"], row["job_name"] or "", job_path(row["job_key"])),
        (row["user_name"] or "not known", row["job_class"] or "not known"),
        states,
        words or "not yet analysed",
        [
            fmt.count(row["gpus"]),
            fmt.gpu_hours((row["held_h"] or 0.0) * 3.6e6),
            fmt.energy(row["energy_kwh"]),
            fmt.share(row["execution_idle_share"]),
            fmt.share(row["coverage"]),
            start,
            "runs" if runs else fmt.minute(end_us, as_of_us),
        ],
    )


def summary(found: JobList) -> str:
    """Return what the table holds, in one or two sentences."""
    if found.as_of_us is None:
        return "No sample has arrived yet."
    among = f" match \u201c{found.text}\u201d" if found.text else ""
    if found.rows.is_empty():
        return f"No jobs{among} in this window." if among else "No job held a GPU in this window."
    count = int(found.rows["all_rows"][0])
    text = f"{fmt.plural(count, 'job')}{among or ' held GPUs'}"
    if count > found.rows.height:
        text += f"; the {fmt.count(found.rows.height)} with the most energy without work are shown"
    return (
        f"{text}. Numbers are of a job's whole life; execution-idle is its share of the energy in "
        "execution."
    )
