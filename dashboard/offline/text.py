"""The report about files as text for a terminal."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from analysis.offline_model import GpuResult, Offline
from dashboard.format import THIN, plural
from dashboard.offline import advice, words
from dashboard.offline.words import Context

MOST_GPUS: Final = 32
_INDENT: Final = "  "

Paint = Callable[[str, str], str]


def plain(text: str, _style: str) -> str:
    """Return a text as it is."""
    return text


def render(result: Offline, context: Context, width: int = 100, paint: Paint = plain) -> str:
    """Return the report.

    Args:
        result: what the files say.
        context: what is known beside.
        width: columns that sentences are broken at; tables may be wider.
        paint: puts a style around a text.
    """
    lines = _lines(result, context, width, paint)
    return "\n".join(line.replace(THIN, " ").rstrip() for line in lines)


def _lines(result: Offline, context: Context, width: int, paint: Paint) -> Iterator[str]:
    yield paint(_wrapped(words.verdict(result, context), width), "bold")
    yield _wrapped(words.subtitle(result, context), width)
    found = advice.finding_lines(result, context)
    if found:
        yield from _list(paint("What misleads", "yellow"), found, width)
    yield from _tables(result, paint)
    yield from _list(paint("What to do", "bold"), advice.actions(result, context), width)
    command = advice.command(result)
    if command:
        yield f"\n{_INDENT}{_INDENT}{command}"
    yield from _list(paint("What cannot be known", "bold"), advice.unknowns(result, context), width)
    yield from _list(paint("How it was read", "bold"), advice.basis_notes(result, context), width)


def _tables(result: Offline, paint: Paint) -> Iterator[str]:
    names = words.labels(result)
    if result.only_moments:
        rows = [words.moment_cells(item, names[item.gpu.name]) for item in result.moments]
        yield f"\n{paint('Moments', 'bold')}"
        yield table(words.MOMENT_HEADS, rows)
        return
    shown = _shown(result)
    yield f"\n{paint('Time', 'bold')}"
    yield table(words.HEADS, [words.time_cells(i, names[i.gpu.name]) for i in shown])
    yield f"\n{paint('Energy and power', 'bold')}"
    yield table(words.ENERGY_HEADS, [words.energy_cells(i, names[i.gpu.name]) for i in shown])
    if len(shown) < len(result.gpus):
        yield f"and {plural(len(result.gpus) - len(shown), 'more GPU')}; --json has all of them"
    if result.runs:
        yield f"\n{paint('Longest execution-idle runs', 'bold')}"
        rows = [words.run_cells(run, names[run.gpu.name]) for run in result.runs]
        yield table(words.RUN_HEADS, rows)


def _shown(result: Offline) -> Sequence[GpuResult]:
    """Return the GPUs of the table: all, or those that wasted most."""
    if len(result.gpus) <= MOST_GPUS:
        return result.gpus
    ranked = sorted(result.gpus, key=lambda i: -(i.totals.idle_time_share or 0) * i.totals.held_ms)
    return ranked[:MOST_GPUS]


def table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return an aligned table; the first column stands left, numbers stand right."""
    rows = [[words.clean(cell) for cell in row] for row in rows]
    left = [
        number == 0 or any(row[number][:1].isalpha() for row in rows)
        for number in range(len(heads))
    ]
    widths = [
        max(len(head), *(len(row[number]) for row in rows)) if rows else len(head)
        for number, head in enumerate(heads)
    ]
    lines = [heads, ["─" * width for width in widths], *rows]
    return "\n".join(
        _INDENT
        + "  ".join(
            cell.ljust(width) if is_left else cell.rjust(width)
            for cell, width, is_left in zip(line, widths, left, strict=True)
        ).rstrip()
        for line in lines
    )


def _list(title: str, items: Sequence[str], width: int) -> Iterator[str]:
    if items:
        yield f"\n{title}"
    for item in items:
        yield textwrap.fill(
            words.clean(item).replace(THIN, "\u00a0"),
            width,
            initial_indent=f"{_INDENT}• ",
            subsequent_indent=f"{_INDENT}  ",
            break_long_words=False,
            break_on_hyphens=False,
        ).replace("\u00a0", " ")


def _wrapped(text: str, width: int) -> str:
    filled = textwrap.fill(
        words.clean(text).replace(THIN, "\u00a0"),
        width,
        break_long_words=False,
        break_on_hyphens=False,
    )
    return filled.replace("\u00a0", " ")
