"""A job as a report: plain data for JSON, and a page of text that fits a mail."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from typing import Any, Final

from dashboard import format as fmt
from dashboard.job_model import JobSnapshot
from dashboard.views import job as view
from dashboard.views.job import Bar, GpuNumbers, JobNumbers
from dashboard.views.job_verdict import notes, verdict
from dashboard.views.waste import HELD_EMPTY
from idlewatt.clock import iso_utc
from idlewatt.units import MS_PER_S

WIDTH: Final = 80
BAR: Final = 26
GPUS_SHOWN: Final = 32
NAME_WIDTH: Final = 16
_PLAIN: Final = str.maketrans({fmt.THIN: " ", fmt.NOTHING: "-"})


def report(snapshot: JobSnapshot) -> dict[str, Any]:
    """Return the report of a job as plain data; what is not known is None."""
    found = view.numbers(snapshot)
    span = snapshot.span_us
    price = snapshot.price
    return {
        "job_key": snapshot.key,
        "title": view.title(snapshot),
        "as_of_utc": None if snapshot.as_of_us is None else iso_utc(snapshot.as_of_us),
        "analysed_utc": None if snapshot.analysed_us is None else iso_utc(snapshot.analysed_us),
        "start_utc": None if span is None else iso_utc(span[0]),
        "end_utc": None if snapshot.end_us is None else iso_utc(snapshot.end_us),
        "runs": snapshot.runs,
        "job_name": snapshot.facts.get("job_name"),
        "user_name": snapshot.facts.get("user_name"),
        "project": snapshot.facts.get("project"),
        "job_class": snapshot.facts.get("job_class"),
        "verdict": verdict(snapshot, found),
        "notes": notes(snapshot, found),
        "gpus": len(found.gpus),
        "nodes": found.nodes,
        "held_s": found.held_ms / MS_PER_S,
        "seen_s": found.seen_ms / MS_PER_S,
        "coverage": found.coverage if found.due_ms else None,
        "energy_kwh": found.total_kwh,
        "energy_seen_s": found.energy_seen_ms / MS_PER_S,
        "energy_counter_kwh": found.counter_kwh,
        "without_work_kwh": found.waste_kwh,
        "execution_idle_energy_share": found.idle_energy_share,
        "execution_idle_runs": found.idle_runs,
        "execution_idle_longest_s": found.longest_idle_s,
        "cost": _cost(found.total_kwh, price.per_kwh),
        "cost_without_work": _cost(found.waste_kwh, price.per_kwh),
        "currency": price.currency if price.per_kwh else None,
        "states": [
            {"state": bar.state, "share": bar.share, "gpu_s": bar.ms / MS_PER_S, "kwh": bar.kwh}
            for bar in view.bars(found)
        ],
        "per_gpu": [_gpu(gpu) for gpu in found.gpus],
    }


def _cost(kwh: float | None, per_kwh: float) -> float | None:
    return None if kwh is None or not per_kwh else kwh * per_kwh


def _gpu(gpu: GpuNumbers) -> dict[str, Any]:
    return {
        "gpu_uuid": gpu.gpu_uuid,
        "node": gpu.node,
        "gpu_index": gpu.index,
        "model": gpu.model,
        "held_s": gpu.held_ms / MS_PER_S,
        **{f"{state}_s": gpu.ms[state] / MS_PER_S for state in view.STATES},
        "energy_kwh": gpu.energy_kwh,
        "execution_idle_longest_s": gpu.longest_idle_s,
        "mean_power_w": gpu.mean_w,
    }


def plain(text: str) -> str:
    """Return text for a mail or a terminal: no thin spaces, no control characters."""
    return clean(text).translate(_PLAIN)


def clean(text: str) -> str:
    """Return text without control characters; thin spaces stay, so that units stay in the line."""
    return "".join(c if c.isprintable() or c == fmt.THIN else "?" for c in text)


def text(snapshot: JobSnapshot) -> str:
    """Return the report as a page of text, at most 80 columns wide."""
    found = view.numbers(snapshot)
    head = plain(view.title(snapshot))
    lines = ["=" * WIDTH, _fit(f"idlewatt job report: {head}", WIDTH), "=" * WIDTH]
    lines += _header(view.header(snapshot, found))
    lines += ["", *_wrapped(verdict(snapshot, found), "")]
    if found.seen_ms:
        lines += ["", *_title("Where the GPU time went"), *map(_bar_line, view.bars(found))]
        lines += ["", *_title("GPUs, the idlest first"), *_gpu_lines(found)]
    lines += ["", *_title("What to do")]
    for note in notes(snapshot, found):
        lines += _wrapped(note, "* ")
    return "\n".join([*lines, "", *_foot(snapshot), "=" * WIDTH]) + "\n"


def _header(pairs: Sequence[tuple[str, str]]) -> list[str]:
    lines = []
    for label, value in pairs:
        body = textwrap.wrap(plain(value), WIDTH - 10, break_long_words=True) or [""]
        lines += [f"{label if not number else '':<9} {part}" for number, part in enumerate(body)]
    return lines


def _title(words: str) -> list[str]:
    return [words, "-" * len(words)]


def _wrapped(words: str, mark: str) -> list[str]:
    lines = textwrap.wrap(
        clean(words), WIDTH, initial_indent=mark, subsequent_indent=" " * len(mark)
    )
    return [plain(line) for line in lines]


def _fit(words: str, width: int) -> str:
    return words if len(words) <= width else words[: width - 3] + "..."


def _bar_line(bar: Bar) -> str:
    filled = min(max(round(bar.share * BAR), 1 if bar.share > 0 else 0), BAR)
    drawn = "#" * filled + "." * (BAR - filled)
    cells = f"{fmt.share(bar.share):>7} {fmt.gpu_hours(bar.ms):>13} {fmt.energy(bar.kwh):>11}"
    return plain(f"{bar.label:<15} [{drawn}] {cells}").rstrip()


def _gpu_lines(found: JobNumbers) -> list[str]:
    head = ("GPU", "Active", "Idle", "Empty", "Unknown", "Energy", "Power", "Longest idle")
    lines = [_gpu_line(head)]
    for gpu in found.gpus[:GPUS_SHOWN]:
        seen = max(gpu.seen_ms, 1)
        shares = [
            fmt.share(gpu.ms[state] / seen if gpu.seen_ms else None)
            for state in ("active", "execution_idle", HELD_EMPTY, "unknown")
        ]
        longest = fmt.duration(gpu.longest_idle_s) if gpu.longest_idle_s else fmt.NOTHING
        cells = (*shares, fmt.energy(gpu.energy_kwh), fmt.power(gpu.mean_w), longest)
        lines.append(_gpu_line((_gpu_name(gpu), *map(plain, cells))))
    rest = len(found.gpus) - GPUS_SHOWN
    if rest > 0:
        lines.append(plain(f"and {fmt.plural(rest, 'GPU')} more that idled less"))
    return lines


def _gpu_name(gpu: GpuNumbers) -> str:
    """Return node and number; of a long name the end goes, never the number."""
    number = gpu.name.removeprefix(gpu.node)
    return plain(_fit(gpu.node, NAME_WIDTH - len(number)) + number)


def _gpu_line(cells: Sequence[str]) -> str:
    name, *numbers = cells
    widths = (8, 8, 8, 8, 10, 8, 13)
    return f"{name:<17}" + "".join(
        f"{cell:>{width}}" for cell, width in zip(numbers, widths, strict=True)
    )


def _foot(snapshot: JobSnapshot) -> list[str]:
    """Return how the numbers came about."""
    as_of = "no sample yet" if snapshot.as_of_us is None else f"{fmt.day(snapshot.as_of_us)} UTC"
    done = "nothing"
    if snapshot.analysed_us is not None:
        done = f"up to {fmt.day(snapshot.analysed_us)} UTC"
    words = (
        f"As of {as_of}; analysed {done}. Idle: a program holds the GPU, but compute, memory and "
        "links were all quiet for 5 s or more. Empty: the job holds the GPU, and no program runs "
        "on it. Energy is that of the GPU boards; hosts, network and cooling come on top."
    )
    return _wrapped(words, "")
