"""Top waste: who held GPUs without using them, what it cost, and what to do next."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from dashboard import format as fmt
from dashboard.models import Waste
from dashboard.views.parts import job_path
from idlewatt.clock import us_from_utc
from idlewatt.model import State
from idlewatt.units import US_PER_S, kwh_from_uj

SHOWN: Final = 10
COLUMNS: Final = (
    "Job",
    "Owner",
    "Kind",
    "GPUs",
    "GPU time",
    "Energy",
    "Share of its time",
    "Since (UTC)",
    "Next step",
)


@dataclass(frozen=True, slots=True)
class WasteRow:
    """One row of the table; texts from outside are shown as text only."""

    job: str
    name: str
    owner: str
    kind: str
    gpus: str
    time: str
    energy: str
    share: str
    since: str
    ongoing: bool
    next_step: str
    href: str = ""


def rows(waste: Waste | None, as_of_us: int | None) -> list[WasteRow]:
    """Return the worst first, as many as are shown."""
    if waste is None or as_of_us is None:
        return []
    return [_row(row, as_of_us) for row in waste.top.head(SHOWN).iter_rows(named=True)]


def _us(value: Any) -> int | None:
    return None if value is None else us_from_utc(value)


def _row(row: dict[str, Any], as_of_us: int) -> WasteRow:
    ongoing = row["ongoing_gpus"] > 0
    since_us = _us(row["ongoing_since_utc"]) if ongoing else _us(row["first_utc"])
    since = fmt.minute(since_us, as_of_us)
    # The day stands once where both ends fall on it.
    last = fmt.minute(_us(row["last_utc"]), since_us)
    if last == fmt.minute(_us(row["last_utc"])):
        last = fmt.minute(_us(row["last_utc"]), as_of_us)
    energy = kwh_from_uj(row["energy_uj"]) if row["energy_obs_ms"] else None
    share = row["waste_ms"] / row["job_ms"] if row["job_ms"] else None
    empty = row["state"] == State.DEEP_IDLE.value
    return WasteRow(
        job=row["raw_id"] or row["job_key"] or f"no job, on {row['node_id']}",
        name=row["job_name"] or "",
        owner=row["user_name"] or ("not known" if row["job_key"] else "none"),
        kind="Held, empty" if empty else "Execution-idle",
        gpus=fmt.count(row["gpus"]),
        time=fmt.gpu_hours(row["waste_ms"]),
        energy=fmt.energy(energy),
        share=fmt.share(share),
        since=f"{since}, still" if ongoing else f"{since} to {last}",
        ongoing=ongoing,
        next_step=next_step(row, as_of_us),
        href="" if row["job_key"] is None else job_path(row["job_key"]),
    )


def next_step(row: dict[str, Any], as_of_us: int) -> str:
    """Return what to do about one row, verb first."""
    gpus = fmt.plural(row["ongoing_gpus"] or row["gpus"], "GPU")
    job = f"job {row['raw_id'] or row['job_key']}"
    owner = row["user_name"] or "its owner"
    spent = (
        fmt.energy(kwh_from_uj(row["energy_uj"])) if row["energy_obs_ms"] else "energy not known"
    )
    since_us = _us(row["ongoing_since_utc"])
    lasting = fmt.duration((as_of_us - since_us) / US_PER_S) if since_us else ""
    if row["job_key"] is None:
        return f"Find what runs on {row['node_id']}: {gpus} held by a program outside any job."
    if row["end_utc"] is not None and us_from_utc(row["end_utc"]) <= as_of_us:
        return _when_ended(row, job, owner)
    if row["state"] == State.DEEP_IDLE.value:
        if lasting:
            return f"Release {gpus} of {job}: no process for {lasting}, {spent} so far."
        return f"Ask {owner} to request GPUs later: {job} held them before it used them, {spent}."
    return _of_class(row, job, owner, gpus, lasting)


def _when_ended(row: dict[str, Any], job: str, owner: str) -> str:
    """Return the next step for a job that has ended: what the next run should do otherwise."""
    share = fmt.share(row["waste_ms"] / row["job_ms"]) if row["job_ms"] else "much"
    if row["state"] == State.DEEP_IDLE.value:
        return f"Ask {owner} to request GPUs later next time: {job} held them empty."
    match row["job_class"] or "other":
        case "interactive":
            return f"Set an idle limit for sessions of {owner}: {job} waited {share} of its time."
        case "serving":
            return f"Scale the next run to its requests: {job} waited {share} of its time."
        case "training":
            return f"Check input loading before the next run: {job} waited {share} of its time."
        case _:
            return f"Ask {owner} what {job} waited for: {share} of its time, before it runs again."


def _of_class(row: dict[str, Any], job: str, owner: str, gpus: str, lasting: str) -> str:
    """Return the next step for execution-idle time of a job that runs."""
    share = fmt.share(row["waste_ms"] / row["job_ms"]) if row["job_ms"] else "much"
    kind = row["job_class"] or "other"
    if kind == "interactive":
        verb = "waits" if row["ongoing_gpus"] == 1 else "wait"
        wait = f" and {gpus} {verb} for {lasting}" if lasting else ""
        return f"Ask {owner} to close or shrink {job}: an open session{wait}."
    if kind == "serving":
        return f"Share GPUs or scale {job} down between requests: it waits {share} of its time."
    if kind == "training":
        return f"Check input loading and checkpoints of {job}: its GPUs wait {share} of their time."
    return f"Find what {job} waits for: its GPUs do nothing for {share} of their time."


def summary(waste: Waste | None, as_of_us: int | None) -> str:
    """Return what the table covers, in one or two sentences."""
    if waste is None or waste.analysed_us is None or as_of_us is None:
        return "Not yet analysed: intervals appear a few seconds after the first samples."
    shown = waste.top.head(SHOWN)
    text = (
        f"Since {fmt.minute(waste.from_us, as_of_us)} UTC, analysed up to "
        f"{fmt.clock(waste.analysed_us)} UTC. "
    )
    if shown.is_empty():
        return f"{text}No GPU was held without being used."
    kwh = kwh_from_uj(float(shown["energy_uj"].sum()))
    entries = fmt.plural(shown.height, "entry", "entries")
    return f"{text}The {entries} below held GPUs and did not use them: {fmt.energy(kwh)}."
