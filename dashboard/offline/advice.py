"""What files leave unknown, what in them misleads, and what to do about both."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from analysis.offline_findings import Finding
from analysis.offline_model import GpuResult, Offline
from dashboard import format as fmt
from dashboard.offline.words import Context, cost, energy, labels, length, source_words, time
from idlewatt.model import Basis, State
from idlewatt.units import MS_PER_S, US_PER_MS

COMMAND: Final = (
    "TZ=UTC nvidia-smi --format=csv -l 1 -f gpus.csv --query-gpu=timestamp,index,uuid,name,"
    "utilization.gpu,utilization.memory,memory.used,power.draw,enforced.power.limit,"
    "clocks.current.sm,temperature.gpu"
)
_SHOWN: Final = 5
_NOTABLE: Final = 0.01


def command(result: Offline) -> str | None:
    """Return the command that records all that is needed; None where more is recorded already."""
    return None if Basis.COUNTERS in result.totals.basis_ms else COMMAND


def unknowns(result: Offline, context: Context) -> list[str]:
    """Return what cannot be known from these files, most telling first."""
    sums = result.totals
    found = _unknown_states(result)
    if Basis.UTILISATION in sums.basis_ms and Basis.COUNTERS not in sums.basis_ms:
        found.append(
            "How full the GPUs were: utilisation counts any running kernel, however small, as "
            "work. Time without work is at least what is shown; activity counters would tell."
        )
    if sums.seen_ms and sums.energy_ms < (1 - _NOTABLE) * sums.seen_ms:
        share = fmt.share(1 - sums.energy_ms / sums.seen_ms)
        found.append(f"Energy of {share} of the time: no power was recorded there.")
    if not result.only_moments and (sums.coverage or 0) < 1 - _NOTABLE:
        found.append(
            f"What happened in {fmt.share(1 - (sums.coverage or 0))} of the time between the first "
            "and the last reading: there is none. Holes count for no state."
        )
    longest_ms = max((item.interval_ms for item in result.gpus), default=0)
    if not result.only_moments and longest_ms > MS_PER_S * result.min_interval_s:
        found.append(
            f"Stretches shorter than {longest_ms / MS_PER_S:g}{fmt.THIN}s: readings lie that far "
            "apart."
        )
    found.append(
        "Who held the GPUs: such files name no job and no user. The server, with its agents, does."
    )
    if not context.zone_known:
        found.append(
            "The time zone: the file's stamps name none and are shown as they stand; give --zone."
        )
    return found


def _unknown_states(result: Offline) -> list[str]:
    sums = result.totals
    words = {
        "no_residency": "whether a program held the GPU ("
        + (
            "neither memory.used nor a process list)"
            if "memory.used" in result.lacking
            else "busy, but without memory in use and without a process; or such cells are empty)"
        ),
        "no_activity": "whether the GPU worked (no utilisation, no activity counters)",
        "zero_activity_at_power": "which reading is wrong: activity 0 at half the power limit or "
        "more",
    }
    if result.only_moments:
        return []
    return [
        f"The state in {fmt.share(time_ms / sums.seen_ms)} of the time "
        f"({fmt.gpu_hours(time_ms)}): the readings do not show {words.get(reason, reason)}."
        for reason, time_ms in sorted(sums.unknown_ms.items(), key=lambda pair: -pair[1])
    ]


def basis_notes(result: Offline, context: Context) -> list[str]:
    """Return how the numbers came about."""
    found = [None if result.only_moments else source_words(result)]
    if result.rows_by_memory:
        share = fmt.share(result.rows_by_memory / result.rows)
        found.append(
            f"In {share} of the readings memory in use shows whether a program holds the GPU "
            f"(over 100{fmt.THIN}MiB: yes)."
        )
    lengths = [item for item in result.by_length if item.time is not None]
    if lengths and result.totals.of(State.EXECUTION_IDLE).obs_ms:
        told = ", ".join(
            f"{item.min_interval_s}{fmt.THIN}s: {fmt.share(item.time)}" for item in lengths
        )
        found.append(
            f"Low stretches count as execution-idle from {result.min_interval_s}{fmt.THIN}s on. "
            f"Share of held time for other lengths: {told}."
        )
    found += _newcomers(result)
    found += _file_notes(context)
    if context.skipped_count:
        file, line, why = context.skipped[0]
        found.append(
            f"{fmt.plural(context.skipped_count, 'line')} not used; the first: "
            f"{file}, line {line}: {why}."
        )
    return [text for text in found if text]


def _newcomers(result: Offline) -> list[str]:
    """Return which GPUs were not there from the start of their node."""
    names = labels(result)
    begins: dict[str, int] = {}
    for item in result.gpus:
        node_id = item.gpu.node_id
        begins[node_id] = min(item.first_us, begins.get(node_id, item.first_us))
    return [
        f"{names[item.gpu.name]} appears only at {time(item.first_us)}."
        for item in result.gpus
        if item.first_us - begins[item.gpu.node_id] > 2 * item.interval_ms * US_PER_MS
    ]


def _file_notes(context: Context) -> list[str]:
    """Return how the files were understood, without what was simply not needed.

    What holds for several files is said once.
    """
    files: dict[str, list[str]] = {}
    for note in context.notes:
        name = next((name for name in _prefixes(note) if name in context.files), "")
        text = note.removeprefix(name).removeprefix(":").strip()
        if not text.partition(": ")[0].endswith("not used") and ": not used: " not in note:
            files.setdefault(text, []).append(name)
    return [_for_files(text, names, len(context.files)) for text, names in files.items()]


def _prefixes(note: str) -> list[str]:
    """Return what may be a file's name at the beginning of a note."""
    before = note.partition(": ")[0]
    return [before, before.rpartition(" (")[0]]


def _for_files(text: str, names: list[str], everyone: int) -> str:
    if everyone == 1 or not names[0]:
        return text
    whose = names[0] if len(names) == 1 else fmt.plural(len(names), "file")
    return f"{whose}: {text}"


def finding_lines(result: Offline, context: Context) -> list[str]:
    """Return what looks wrong or misleads."""
    names = labels(result)
    ours = [f"{names[item.gpu.name]}: {_finding(item)}" for item in result.findings]
    return [*ours, *context.file_findings]


def _finding(item: Finding) -> str:
    often = (
        f"at {time(item.first_us)}"
        if item.rows == 1
        else f"in {fmt.plural(item.rows, 'reading')} ({length(item.time_ms)}), "
        f"first at {time(item.first_us)}"
    )
    power = fmt.power(item.power_w)
    if item.kind == "busy_but_empty":
        return (
            f"reads {item.util_pct}{fmt.THIN}% utilisation at {power} with "
            f"{item.mem_mib}{fmt.THIN}MiB in use and no process, {often}. Busy, although nothing "
            "holds it: neither idle nor a job; its state is unknown."
        )
    if item.kind == "zero_at_power":
        return (
            f"reads no activity at {power}, half its limit of {fmt.power(item.limit_w)} or more, "
            f"{often}. That is not taken as idle; its state is unknown."
        )
    return (
        f"reads {item.util_pct}{fmt.THIN}% utilisation at {power} of {fmt.power(item.limit_w)}, "
        f"{often}. Busy by utilisation, nearly idle by power: small kernels, or one that waits in "
        "a loop. It counts as active."
    )


def actions(result: Offline, context: Context) -> list[str]:
    """Return what to do, verb first, largest waste first."""
    if result.only_moments:
        return ["Record a log over some hours, then run `idlewatt analyze` on it:"]
    counters = Basis.COUNTERS in result.totals.basis_ms
    found = [
        *_release(result, context),
        *_feed(result),
        *_empty(result, context),
        *_spinning(result),
    ]
    if any(f.kind == "busy_but_empty" for f in result.findings):
        found.append(
            "Look for who uses the GPU outside of what was recorded (another container, a video "
            "encoder): run `nvidia-smi` on the host itself."
        )
    lacking = [*result.lacking, *(["uuid"] if context.rules - {"uuid"} else [])]
    if counters:
        found.append("Keep recording, so that a week can be compared with the next.")
    elif lacking:
        found.append(f"Record {', '.join(lacking)} as well next time:")
    else:
        found.append("Keep recording, so that a week can be compared with the next:")
    return found


def _release(result: Offline, context: Context) -> list[str]:
    """Return what to do about programs that wait for long."""
    items = sorted((i for i in result.devices if i.idle_long_ms), key=lambda i: -i.idle_long_ms)
    if not items:
        return []
    names = labels(result)
    long_ms = sum(item.idle_long_ms for item in items)
    known = [item.idle_long_uj for item in items if item.idle_long_uj is not None]
    took = f" ({energy(sum(known))}{cost(sum(known), context)})" if known else ""
    longest = max((i.longest for i in items if i.longest), key=lambda run: run.length_ms)
    program = "its program waits" if len(items) == 1 else "their programs wait"
    where = f" on {names[longest.gpu.name]}" if len(items) > 1 else ""
    return [
        f"Release {_some(items, names)} while {program}: {length(long_ms)} without work{took} in "
        f"stretches of 5{fmt.THIN}min or more; the longest is {length(longest.length_ms)}"
        f"{where} from {time(longest.begin_us)} on.{_saving(items)}"
    ]


def _feed(result: Offline) -> list[str]:
    """Return what to do about pauses within work."""
    pauses = {
        item.gpu.name: item.totals.of(State.EXECUTION_IDLE).obs_ms - item.idle_long_ms
        for item in result.devices
    }
    items = [i for i in result.devices if pauses[i.gpu.name] > _NOTABLE * i.totals.held_ms]
    items.sort(key=lambda item: -pauses[item.gpu.name])
    if not items:
        return []
    pause_ms = sum(pauses[item.gpu.name] for item in items)
    held_ms = sum(item.totals.held_ms for item in items)
    return [
        f"Feed {_some(items, labels(result))} without pauses: pauses of {result.min_interval_s}"
        f"{fmt.THIN}s to 5{fmt.THIN}min add up to {length(pause_ms)}, "
        f"{fmt.share(pause_ms / held_ms)} of the time held. Look at data loading, checkpoints and "
        "waiting for requests."
    ]


def _some(items: Sequence[GpuResult], names: dict[str, str]) -> str:
    """Return the first few names, and how many more there are."""
    first = [names[item.gpu.name] for item in items[:_SHOWN]]
    if len(items) > _SHOWN:
        return f"{', '.join(first)} and {len(items) - _SHOWN} more"
    return " and ".join([", ".join(first[:-1]), first[-1]]) if len(first) > 1 else first[0]


def _saving(items: Sequence[GpuResult]) -> str:
    """Return what the board that draws most above its empty power draws."""
    best: tuple[float, float] | None = None
    for item in items:
        held_w, empty_w = (
            item.totals.mean_w(state) for state in (State.EXECUTION_IDLE, State.DEEP_IDLE)
        )
        if held_w is None or empty_w is None or held_w <= empty_w * 1.05:
            continue
        if best is None or held_w - empty_w > best[0] - best[1]:
            best = held_w, empty_w
    if best is None:
        return ""
    up_to = "up to " if len(items) > 1 else ""
    return f" A held board drew {up_to}{fmt.power(best[0])}, an empty one {fmt.power(best[1])}."


def _empty(result: Offline, context: Context) -> list[str]:
    never = [i for i in result.devices if i.totals.of(State.DEEP_IDLE).obs_ms == i.totals.seen_ms]
    never = [item for item in never if item.totals.seen_ms]
    if not never:
        return []
    known = [item.totals.energy_uj for item in never if item.totals.energy_uj is not None]
    took = f" ({energy(sum(known))}{cost(sum(known), context)})" if known else ""
    return [
        f"Give {_some(never, labels(result))} to someone who needs it: no program was there all "
        f"the time{took}."
    ]


def _spinning(result: Offline) -> list[str]:
    low = [item for item in result.findings if item.kind == "busy_at_low_power"]
    if not low:
        return []
    names = labels(result)
    some = ", ".join(names[item.gpu.name] for item in low[:_SHOWN])
    return [
        f"Profile what runs on {some}: utilisation is full while power is low. `idlewatt agent` "
        "reads activity counters and tells."
    ]
