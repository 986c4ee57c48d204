"""The tables of a job's page: where time and energy went, and each of its GPUs."""

from __future__ import annotations

from typing import Final

from dash import html

from dashboard import format as fmt
from dashboard.pages.page import state_bar, swatch, table
from dashboard.theme import HELP
from dashboard.views import job as view
from dashboard.views import waste
from dashboard.views.job import JobNumbers

GPUS_SHOWN: Final = 64


def mark(state: str) -> html.Span:
    """Return the mark of a state of a GPU that a job holds."""
    return swatch(waste.look_of(state))


def words(state: str) -> str:
    """Return what a state means."""
    return waste.HELD_HELP if state == waste.HELD_EMPTY else HELP[waste.look_of(state)]


def where(found: JobNumbers) -> html.Div:
    """Return time and energy as two bars of the same parts, and the numbers below."""
    bars = view.bars(found)
    total = found.total_kwh
    time = [(bar.state, bar.share) for bar in bars]
    energy = [(bar.state, (bar.kwh or 0.0) / total) for bar in bars] if total else []
    rows = []
    for bar in bars:
        share = fmt.share(bar.kwh / total) if total and bar.kwh is not None else fmt.NOTHING
        signs = [] if bar.state == "unseen" else [mark(bar.state)]
        rows.append(
            [
                html.Span([*signs, bar.label], className="kind"),
                fmt.gpu_hours(bar.ms),
                fmt.share(bar.share),
                fmt.energy(bar.kwh),
                share,
            ]
        )
    rows.append(
        [
            "All",
            fmt.gpu_hours(sum(bar.ms for bar in bars)),
            "",
            fmt.energy(total),
            "",
        ]
    )
    columns = ("State", "GPU time", "Share of time", "Energy", "Share of energy")
    return html.Div(
        [
            html.Div("Time", className="caption"),
            state_bar(time, _spoken(time, bars), large=True),
            html.Div("Energy", className="caption"),
            state_bar(energy, _spoken(energy, bars), large=True),
            table(columns, rows, "Time and energy by state", (1, 2, 3, 4), closing=1),
        ]
    )


def _spoken(parts: list[tuple[str, float]], bars: list[view.Bar]) -> str:
    label = {bar.state: bar.label for bar in bars}
    return ", ".join(f"{label[state]} {fmt.share(share)}" for state, share in parts) or "not known"


def gpu_table(found: JobNumbers) -> html.Div:
    """Return the table of its GPUs, the idlest first."""
    rows = []
    for gpu in found.gpus[:GPUS_SHOWN]:
        whole = max(gpu.held_ms, gpu.seen_ms) or 1
        states = [(state, gpu.ms[state] / whole) for state in view.STATES if gpu.ms[state]]
        spoken = ", ".join(f"{waste.LABELS[state]} {fmt.share(share)}" for state, share in states)
        longest = fmt.duration(gpu.longest_idle_s) if gpu.longest_idle_s else fmt.NOTHING
        rows.append(
            [
                html.Span(gpu.name, title=gpu.gpu_uuid),
                gpu.model,
                state_bar(states, spoken or "not observed"),
                fmt.gpu_hours(gpu.held_ms),
                fmt.share(gpu.seen_ms / whole),
                fmt.share(gpu.workless if gpu.seen_ms else None),
                longest,
                fmt.energy(gpu.energy_kwh),
                fmt.power(gpu.mean_w),
            ]
        )
    columns = (
        "GPU",
        "Model",
        "States",
        "Held",
        "Coverage",
        "Without work",
        "Longest idle run",
        "Energy",
        "Mean power",
    )
    return table(columns, rows, "GPUs of the job", (3, 4, 5, 6, 7, 8))


def gpus_summary(found: JobNumbers) -> str:
    """Return what the table of GPUs holds."""
    text = f"{fmt.plural(len(found.gpus), 'GPU')}, together {fmt.energy(found.total_kwh)}."
    if len(found.gpus) > GPUS_SHOWN:
        text += f" The {GPUS_SHOWN} idlest are listed."
    return text
