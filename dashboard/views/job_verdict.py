"""What happened to a job, and what to do about it: one verdict, and notes that begin with a verb.

Where too little was seen, or the counters could not tell, the verdict says that and nothing more.
"""

from __future__ import annotations

from typing import Final

from dashboard import format as fmt
from dashboard.job_model import JobSnapshot
from dashboard.views.job import IDLE, UNKNOWN, JobNumbers, title
from dashboard.views.waste import HELD_EMPTY

MIN_COVERAGE: Final = 0.5
FULL_COVERAGE: Final = 0.9
WORTH_A_NOTE: Final = 0.05
WORTH_SAYING: Final = 0.01
WORTH_A_NOTE_MS: Final = 300_000
LONG_WAIT_S: Final = 600
SHORT_WAIT_S: Final = 120
UNUSED: Final = 0.9
USED: Final = 0.5
REASONS: Final = {
    "no_residency": "the driver would not say whether a program holds the GPU",
    "no_activity": "the GPU gave neither activity counters nor utilisation",
    "zero_activity_at_power": "the counters read zero while the GPU drew half its limit or more",
}


def verdict(snapshot: JobSnapshot, found: JobNumbers) -> str:
    """Return what happened, how much energy it took, how much did no work, and how sure that is."""
    name = title(snapshot)
    verb = "has held" if snapshot.runs else "held"
    text = f"{name} {verb} {fmt.plural(len(found.gpus), 'GPU')} for {fmt.gpu_hours(found.held_ms)}"
    if not found.gpus:
        return f"{name} is known, but no GPU was ever allocated to it: there is nothing to judge."
    if not found.seen_ms:
        return f"{text}. Nothing of it is analysed yet, so there is no verdict."
    seen = f"Coverage {fmt.share(found.coverage)}."
    if found.coverage < MIN_COVERAGE:
        return (
            f"{text}, but only {fmt.share(found.coverage)} of that time was observed: too little "
            f"for a verdict. What was seen used {fmt.energy(found.total_kwh)}."
        )
    if found.share(UNKNOWN) > MIN_COVERAGE:
        why = REASONS.get(found.reason or "", "counters are missing or contradict each other")
        return (
            f"{text} and used {fmt.energy(found.total_kwh)}. For "
            f"{fmt.share(found.share(UNKNOWN))} of the time nobody can tell whether it worked "
            f"({why}): no verdict. {seen}"
        )
    return f"{text} and used {fmt.energy(found.total_kwh)}. {_waste(found)} {seen}"


def _waste(found: JobNumbers) -> str:
    if found.workless_ms < WORTH_A_NOTE * found.seen_ms:
        share = fmt.share(1 - (found.workless_ms + found.ms[UNKNOWN]) / found.seen_ms)
        return f"Its GPUs worked {share} of the time seen: there is little to win."
    time = fmt.share(found.workless_ms / found.seen_ms)
    parts = []
    if found.share(IDLE) >= WORTH_SAYING:
        parts.append(f"{fmt.gpu_hours(found.ms[IDLE])} execution-idle")
    if found.share(HELD_EMPTY) >= WORTH_SAYING:
        parts.append(f"{fmt.gpu_hours(found.ms[HELD_EMPTY])} held empty")
    of = f"{' and '.join(parts)}, {time} of the time"
    if found.waste_kwh is None or not found.total_kwh:
        return f"No work was done in {of}; its energy is not known."
    share = fmt.share(found.waste_kwh / found.total_kwh)
    return f"{fmt.energy(found.waste_kwh)} of it ({share}) did no work: {of}."


def notes(snapshot: JobSnapshot, found: JobNumbers) -> list[str]:
    """Return what to do, the weightiest first; then what to keep in mind about the numbers."""
    if not found.seen_ms:
        return ["Come back in a minute: results follow the samples by some seconds."]
    todo = []
    if found.coverage >= MIN_COVERAGE:
        todo = [*_held_empty(snapshot, found), *_unused(found), *_idle(snapshot, found)]
    doubts = _doubts(found)
    if not todo and not doubts:
        todo = ["Change nothing: its GPUs were at work."]
    return [*todo, *doubts]


def _held_empty(snapshot: JobSnapshot, found: JobNumbers) -> list[str]:
    empty_ms = found.ms[HELD_EMPTY]
    if empty_ms < WORTH_A_NOTE_MS or found.share(HELD_EMPTY) < WORTH_A_NOTE:
        return []
    gpus = sum(1 for gpu in found.gpus if gpu.ms[HELD_EMPTY])
    spent = fmt.energy(found.kwh[HELD_EMPTY]) if found.energy_seen_ms else "energy not known"
    what = f"{fmt.plural(gpus, 'GPU')} without any program for {fmt.gpu_hours(empty_ms)}, {spent}"
    if snapshot.runs and found.share(HELD_EMPTY) > USED:
        return [f"Release the GPUs or start the program: {what} so far."]
    return [f"Request GPUs when the program is ready to start: {what}."]


def _unused(found: JobNumbers) -> list[str]:
    """Return a note where some GPUs did nothing while others worked."""
    seen = [gpu for gpu in found.gpus if gpu.seen_ms >= WORTH_A_NOTE_MS]
    unused = [gpu for gpu in seen if gpu.workless >= UNUSED]
    if not unused or not any(gpu.workless <= USED for gpu in seen):
        return []
    names = ", ".join(gpu.name for gpu in unused[:4]) + (" and more" if len(unused) > 4 else "")
    return [
        f"Ask for fewer GPUs, or find why {len(unused)} of {len(seen)} did no work while others "
        f"did: {names}."
    ]


def _idle(snapshot: JobSnapshot, found: JobNumbers) -> list[str]:
    execution_ms = found.ms[IDLE] + found.ms["active"]
    share = found.ms[IDLE] / execution_ms if execution_ms else 0.0
    if share < WORTH_A_NOTE or found.ms[IDLE] < WORTH_A_NOTE_MS:
        return []
    waits = (
        f"{fmt.share(share)} of the time in execution, {fmt.plural(found.idle_runs, 'run')}, the "
        f"longest {fmt.duration(found.longest_idle_s)}"
    )
    mean_s = found.ms[IDLE] / 1e3 / max(found.idle_runs, 1)
    match snapshot.facts.get("job_class") or "other":
        case "interactive":
            verb = "Close" if snapshot.runs else "Set an idle limit for"
            tail = " when nobody computes" if snapshot.runs else " next time"
            return [f"{verb} the session{tail}: it held GPUs and waited {waits}."]
        case "serving":
            return [f"Scale with the requests, or share the GPUs: gaps between them took {waits}."]
        case "training":
            found_notes = []
            if found.longest_idle_s >= LONG_WAIT_S:
                lasted = fmt.duration(found.longest_idle_s)
                found_notes.append(
                    f"Look into the log for a stop: for {lasted} a GPU held the program and did "
                    "nothing."
                )
            if mean_s < SHORT_WAIT_S:
                found_notes.append(
                    "Check input loading and checkpoints: many short waits, "
                    f"{fmt.duration(mean_s)} on average; {waits}."
                )
            return found_notes or [f"Check what the training waits for: {waits}."]
        case "batch":
            return [
                f"Prepare the next piece while one computes, or run several on a GPU: it waited "
                f"{waits}."
            ]
        case _:
            return [f"Find what the job waits for: {waits}."]


def _doubts(found: JobNumbers) -> list[str]:
    """Return what weakens the numbers."""
    doubts = []
    if found.coverage < FULL_COVERAGE:
        doubts.append(
            f"Check the agents of its nodes: {fmt.share(1 - found.coverage)} of its GPU time was "
            "not observed or is not analysed yet, and is in no number here."
        )
    if found.share(UNKNOWN) >= WORTH_A_NOTE:
        why = REASONS.get(found.reason or "", "counters are missing or contradict each other")
        doubts.append(
            f"Give the agent access to the counters: {fmt.share(found.share(UNKNOWN))} of the time "
            f"is unknown, since {why}."
        )
    if found.by_utilisation_ms >= WORTH_A_NOTE * found.seen_ms:
        share = fmt.share(found.by_utilisation_ms / found.seen_ms)
        doubts.append(
            f"Take the states as a weaker statement: {share} of the time rests on utilisation "
            "(any kernel running), since these boards give no activity counters."
        )
    total = found.total_kwh or 0.0
    if total and found.counter_kwh < (1 - WORTH_A_NOTE) * total:
        share = fmt.share(1 - found.counter_kwh / total)
        doubts.append(
            f"Allow for a wider error: {share} of the energy is from power readings, not from the "
            "energy counter."
        )
    return doubts
