"""A job over time: the state of each of its GPUs, and the power of them all.

States are drawn in equal columns, narrower than can be told apart on a screen: a column takes the
state that filled most of it. What it exactly held stands in its tooltip.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import polars as pl

from dashboard import format as fmt
from dashboard import theme, timeaxis
from dashboard.job_model import MAX_ROWS, JobSnapshot, expected_gpus
from dashboard.theme import LABELS, Look
from dashboard.views import fleet_band
from dashboard.views.job import JobNumbers
from idlewatt.clock import us_from_utc
from idlewatt.units import MS_PER_S, US_PER_MS, US_PER_S

COLUMNS_DRAWN: Final = 960
BUCKETS_DRAWN: Final = 480
STEPS_S: Final[tuple[int, ...]] = (1, 2, 3, 4, 5, 6, 10, 12, 15, 20, 30, 60, 90, 120, 180, 300)
FEW_ROWS: Final = theme.MAX_LINES
LEFT_PX: Final = 150
LOOKS: Final = (Look.ACTIVE, Look.EXECUTION_IDLE, Look.DEEP_IDLE, Look.UNKNOWN)
NO_DATA_CODE: Final = len(LOOKS) + 1

IntArray = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Course:
    """Milliseconds of each state per GPU and column.

    Attributes:
        names: GPUs, top to bottom: the largest share of time without work first.
        start_us: stamp at which the first column starts.
        step_s: width of a column.
        ms: (state, GPU, column) -> milliseconds.
        held_ms: (GPU, column) -> milliseconds for which the job held the GPU.
        more: GPUs that are not drawn.
    """

    names: list[str]
    start_us: int
    step_s: int
    ms: IntArray
    held_ms: IntArray
    more: int

    @property
    def end_us(self) -> int:
        """Return the stamp at which the last column ends."""
        return self.start_us + int(self.held_ms.shape[1]) * self.step_s * US_PER_S

    @property
    def codes(self) -> npt.NDArray[np.uint8]:
        """Return (GPU, column) -> 0 not held, place of the state + 1, or no data."""
        unseen = np.maximum(self.held_ms - self.ms.sum(axis=0), 0)
        # Of equal shares the one that asks for something wins.
        rank = np.array([1, 3, 2, 0, -1])[:, None, None]
        weight = np.concatenate([self.ms, unseen[None]]) * 8 + rank
        codes = weight.argmax(axis=0) + 1
        empty = (self.held_ms == 0) & (self.ms.sum(axis=0) == 0)
        return np.where(empty, 0, codes).astype(np.uint8)


def step_for(span_s: float, most: int) -> int:
    """Return the finest width in seconds that gives at most so many columns."""
    return min((step for step in STEPS_S if span_s <= step * most), default=max(STEPS_S))


def course(snapshot: JobSnapshot, found: JobNumbers) -> Course | None:
    """Return the states over time; None where the job never held a GPU."""
    if snapshot.shown_us is None or not found.gpus:
        return None
    start_us, end_us = snapshot.shown_us
    step_s = step_for((end_us - start_us) / US_PER_S, COLUMNS_DRAWN)
    count = -(-(end_us - start_us) // (step_s * US_PER_S))
    edges = start_us + np.arange(count + 1, dtype=np.int64) * step_s * US_PER_S
    drawn = [gpu.gpu_uuid for gpu in found.gpus][:MAX_ROWS]
    row_of = {gpu: row for row, gpu in enumerate(drawn)}
    ms = np.zeros((len(LOOKS), len(drawn), count), dtype=np.int64)
    for place, row, begin, last in _spans(snapshot.intervals, row_of):
        ms[place, row] = overlap_ms(begin, last, edges)
    held = np.zeros((len(drawn), count), dtype=np.int64)
    for gpu, begin_utc, end_utc in snapshot.holds.select(
        "gpu_uuid", "start_utc", "end_utc"
    ).iter_rows():
        if gpu in row_of:
            until = end_us if end_utc is None else us_from_utc(end_utc)
            spans = (np.array([us_from_utc(begin_utc)]), np.array([until]))
            held[row_of[gpu]] += overlap_ms(*spans, edges)
    names = {gpu.gpu_uuid: gpu.name for gpu in found.gpus}
    return Course(
        [names[gpu] for gpu in drawn], start_us, step_s, ms, held, len(found.gpus) - len(drawn)
    )


def _spans(
    intervals: pl.DataFrame, row_of: dict[str, int]
) -> Iterator[tuple[int, int, IntArray, IntArray]]:
    """Yield place of the state, row of the GPU, and begins and ends, for each of both."""
    if intervals.is_empty():
        return
    places = {look.value: place for place, look in enumerate(LOOKS)}
    row = intervals["gpu_uuid"].replace_strict(row_of, default=-1, return_dtype=pl.Int64)
    place = intervals["state"].replace_strict(places, return_dtype=pl.Int64)
    key = row.to_numpy() * len(LOOKS) + place.to_numpy()
    order = np.argsort(key, kind="stable")
    order = order[key[order] >= 0]
    last = intervals["last_ts_utc"].dt.epoch("us").to_numpy()[order]
    begin = intervals["first_ts_utc"].dt.epoch("us").to_numpy()[order]
    begin = begin - intervals["step_ms"].to_numpy()[order] * US_PER_MS
    sorted_keys = key[order]
    cuts = np.flatnonzero(np.diff(sorted_keys)) + 1
    for part in np.split(np.arange(len(order)), cuts):
        if len(part):
            at, which = divmod(int(sorted_keys[part[0]]), len(LOOKS))
            yield which, at, begin[part], last[part]


def overlap_ms(begin_us: IntArray, end_us: IntArray, edges_us: IntArray) -> IntArray:
    """Return how many ms of disjoint spans fall between neighbouring edges."""
    keep = end_us > begin_us
    order = np.argsort(begin_us[keep], kind="stable")
    begin, end = begin_us[keep][order], end_us[keep][order]
    if not len(begin):
        return np.zeros(len(edges_us) - 1, dtype=np.int64)
    done = np.concatenate(([0], np.cumsum(end - begin)))
    # Time in the spans before each edge is linear between their ends.
    at = np.column_stack([begin, end]).reshape(-1)
    value = np.column_stack([done[:-1], done[1:]]).reshape(-1)
    base = int(edges_us[0])
    before = np.interp((edges_us - base) / 1e3, (at - base) / 1e3, value / 1e3)
    return np.rint(np.diff(before)).astype(np.int64)


def figure(view: Course, scheme: theme.Scheme | str) -> dict[str, Any]:
    """Return the time line as a figure dict."""
    colours = theme.palette(scheme)
    codes = view.codes
    steps = ["rgba(0,0,0,0)", *(colours.states[look] for look in LOOKS), colours.grid]
    total = len(steps)
    heat = {
        "type": "heatmap",
        "z": {
            "dtype": "u1",
            "bdata": base64.b64encode(np.ascontiguousarray(codes).tobytes()).decode("ascii"),
            "shape": f"{codes.shape[0]}, {codes.shape[1]}",
        },
        **timeaxis.regular(view.start_us + view.step_s * US_PER_S // 2, view.step_s * MS_PER_S),
        "zmin": -0.5,
        "zmax": total - 0.5,
        "colorscale": [
            [edge / total, colour]
            for place, colour in enumerate(steps)
            for edge in (place, place + 1)
        ],
        "showscale": False,
        "xgap": 0,
        "ygap": 2 if len(view.names) <= FEW_ROWS else 1,
        "hoverinfo": "none",
    }
    rows = len(view.names)
    every = max(1, -(-rows // 40))
    ticks = list(range(0, rows, every))
    layout = theme.layout(
        scheme,
        xaxis=timeaxis.axis(view.start_us, view.end_us, scheme) | {"showgrid": False},
        yaxis=theme.axis(colours)
        | {
            "range": [rows - 0.5, -0.5],
            "tickvals": ticks,
            "ticktext": [short(view.names[at]) for at in ticks],
            "showgrid": False,
            "ticks": "",
            "fixedrange": True,
        },
        hovermode="closest",
        uirevision="course",
    )
    return aligned({"data": [heat], "layout": layout})


def aligned(drawn: dict[str, Any]) -> dict[str, Any]:
    """Return a figure with the left margin of all charts of a job, so that times stand below."""
    layout = drawn["layout"]
    layout["margin"] = layout["margin"] | {"l": LEFT_PX, "r": 16}
    layout["yaxis"] = layout["yaxis"] | {"automargin": False}
    return drawn


def short(name: str) -> str:
    """Return a row label that fits beside the chart; names from outside may be long."""
    text = name if len(name) <= 20 else "\u2026" + name[-19:]
    return text.replace("<", "\u2039").replace(">", "\u203a")


def describe(view: Course, row: int, x_us: int) -> list[tuple[str, str]]:
    """Return what one column of one GPU held, as label and text; empty beside the chart."""
    column = (x_us - view.start_us) // (view.step_s * US_PER_S)
    if not (0 <= row < len(view.names) and 0 <= column < view.held_ms.shape[1]):
        return []
    begin = view.start_us + column * view.step_s * US_PER_S
    lines = [
        ("GPU", view.names[row]),
        ("From", f"{fmt.clock(begin, view.end_us)} UTC, {fmt.duration(view.step_s)}"),
    ]
    seen = 0
    for place, look in enumerate(LOOKS):
        ms = int(view.ms[place, row, column])
        seen += ms
        if ms:
            lines.append((label(look), fmt.duration(ms / 1e3)))
    missing = int(view.held_ms[row, column]) - seen
    if missing >= MS_PER_S // 2:
        lines.append((LABELS[Look.NO_DATA], fmt.duration(missing / 1e3)))
    return lines if len(lines) > 2 else [*lines, ("State", "not held by the job")]


def label(look: Look) -> str:
    """Return the name of a state of a GPU that a job holds."""
    return "Held, empty" if look is Look.DEEP_IDLE else LABELS[look]


def summary(found: JobNumbers) -> str:
    """Return the time line in one or two sentences."""
    if not found.seen_ms:
        return "No second of the job is analysed yet."
    gpus, share = fmt.plural(len(found.gpus), "GPU"), fmt.share(found.share("active"))
    text = f"Its {gpus} worked {share} of the time"
    if not found.idle_runs:
        return f"{text} and were never execution-idle."
    lasted = fmt.duration(found.longest_idle_s)
    return f"{text}; {fmt.plural(found.idle_runs, 'execution-idle run')}, the longest {lasted}."


def caption(view: Course, snapshot: JobSnapshot) -> str:
    """Return how to read the chart, and what of the job it shows."""
    text = (
        f"One column is {fmt.duration(view.step_s)} and takes the state that filled most of it. "
        "Pale: no data. Sorted by the share of time without work."
    )
    if view.more:
        text += f" {fmt.plural(view.more, 'GPU')} that idled less are not drawn."
    span, shown = snapshot.span_us, snapshot.shown_us
    if span is not None and shown is not None and shown[0] > span[0] + US_PER_S:
        text += " The last 24 h of the job are drawn; all numbers are of the whole job."
    return text


TABLE: Final = ("From (UTC)", *(label(look) for look in LOOKS), "No data")
MAX_TABLE: Final = 96


def rows(view: Course) -> list[list[str]]:
    """Return GPU time per state over time, newest first; neighbouring columns are merged."""
    unseen = np.maximum(view.held_ms - view.ms.sum(axis=0), 0).sum(axis=0)
    states = [*view.ms.sum(axis=1), unseen]
    count = view.held_ms.shape[1]
    merge = max(1, -(-count // MAX_TABLE))
    table = []
    for first in reversed(range(0, count, merge)):
        begin = view.start_us + first * view.step_s * US_PER_S
        cells = [int(state[first : first + merge].sum()) for state in states]
        table.append(
            [
                fmt.clock(begin, view.end_us),
                *(fmt.duration(ms / 1e3) if ms else "0" for ms in cells),
            ]
        )
    return table


def band_of(snapshot: JobSnapshot) -> fleet_band.Band | None:
    """Return the power of the job's GPUs over time."""
    if snapshot.seconds is None or snapshot.shown_us is None:
        return None
    from_us, to_us = snapshot.shown_us
    if snapshot.runs:
        to_us += US_PER_S  # the newest second itself
    bucket_s = step_for((to_us - from_us) / US_PER_S, BUCKETS_DRAWN)
    count = (to_us - from_us) // (bucket_s * US_PER_S)
    to_us = from_us + count * bucket_s * US_PER_S
    if not count:
        return None
    return fleet_band.band(
        snapshot.seconds.window(from_us, to_us),
        expected_gpus(snapshot, from_us, to_us),
        bucket_s,
        limit_w(snapshot),
    )


def limit_w(snapshot: JobSnapshot) -> float | None:
    """Return the sum of the factory limits of its GPUs; None where one is not known."""
    limits = snapshot.holds.unique("gpu_uuid")["power_limit_default_mw"]
    return None if limits.null_count() or limits.is_empty() else float(limits.sum()) / 1e3


def legend(found: JobNumbers) -> dict[str, str]:
    """Return the share of the seen time of each state, by the keys of `JobNumbers`."""
    return {state: fmt.share(found.share(state)) for state in found.ms}
