"""Drawings of the page: one SVG a GPU, made of few short paths.

Coordinates are numbers of buckets: a transform stretches them to the width of the plot.
"""

from __future__ import annotations

import html
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from analysis.classify import STATES
from analysis.offline_model import GpuResult
from analysis.offline_series import GpuSeries, Series
from dashboard import format as fmt
from dashboard.offline import words
from idlewatt.clock import utc_from_us
from idlewatt.model import State
from idlewatt.units import MS_PER_S, US_PER_S

WIDTH: Final = 1_000
LEFT: Final = 48
RIGHT: Final = 72
PLOT: Final = WIDTH - LEFT - RIGHT
STRIP: Final = 26
BAND_TOP: Final = STRIP + 10
BAND: Final = 64
HEIGHT: Final = BAND_TOP + BAND + 20
_MOST_TICKS: Final = 9
_TICKS_S: Final = (
    *(1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1_800),
    *(3_600, 7_200, 10_800, 21_600, 43_200, 86_400, 172_800, 604_800, 2_592_000),
)
STACK: Final = (State.ACTIVE, State.EXECUTION_IDLE, State.UNKNOWN, State.DEEP_IDLE)
"""From the bottom up."""


@dataclass(frozen=True, slots=True)
class Scale:
    """Watts to the y axis of the band."""

    top_w: float

    def y(self, watts: float) -> int:
        """Return the y coordinate of a power."""
        return BAND_TOP + BAND - round(min(watts / self.top_w, 1.0) * BAND)


def scale_of(item: GpuResult) -> Scale:
    """Return the scale of one GPU: from zero to its limit, or to its peak if that is far below."""
    peak_w = item.peak_w or 0.0
    limit_w = item.limit_w or 0.0
    return Scale(max(limit_w if limit_w <= 2.5 * peak_w else 0.0, peak_w, 1.0) * 1.06)


def gpu_chart(item: GpuResult, series: GpuSeries, whole: Series, summary: str) -> str:
    """Return the drawing of one GPU: states above, power below, one time axis.

    Args:
        item: the GPU.
        series: its buckets.
        whole: all buckets, for the axis.
        summary: one sentence that says the same in words.
    """
    stretch = f'transform="translate({LEFT} 0) scale({PLOT / whole.buckets:.6g} 1)"'
    parts = [
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{_label(summary)}">',
        f'<rect class="none" x="{LEFT}" y="0" width="{PLOT}" height="{STRIP}"/>',
        _axis(whole),
        f"<g {stretch}>",
        _strip(series, whole.bucket_s * MS_PER_S),
        _band(series, scale_of(item)),
        "</g>",
        _marks(item, whole),
        "</svg>",
    ]
    return "".join(parts)


def _label(text: str) -> str:
    return html.escape(words.clean(text))


def _strip(series: GpuSeries, bucket_ms: int) -> str:
    """Return a path a state; each column's height is shared in proportion to time."""
    below = np.zeros(series.state_ms.shape[1])
    paths = []
    for state in STACK:
        above = below + series.state_ms[STATES.index(state)] / bucket_ms * STRIP
        bottom, top = (np.clip(np.rint(v), 0, STRIP).astype(int) for v in (below, above))
        path = _columns(STRIP - top, STRIP - bottom)
        if path:
            paths.append(f'<path class="{state.value}" d="{path}"/>')
        below = above
    return "".join(paths)


def _columns(top: NDArray[np.int64], bottom: NDArray[np.int64]) -> str:
    """Return rectangles from top to bottom, one for neighbours that are alike."""
    new = np.ones(len(top), dtype=np.bool_)
    new[1:] = (top[1:] != top[:-1]) | (bottom[1:] != bottom[:-1])
    first = np.flatnonzero(new)
    last = np.append(first[1:], len(top))
    return "".join(
        f"M{x} {top[x]}h{end - x}v{bottom[x] - top[x]}h{x - end}z"
        for x, end in zip(first.tolist(), last.tolist(), strict=True)
        if bottom[x] > top[x]
    )


def _band(series: GpuSeries, scale: Scale) -> str:
    """Return the band from the lowest to the highest reading, and the line of the mean."""
    band, line = [], []
    for first, end in _stretches(~np.isnan(series.mean_w)):
        high, low, mean = (
            [scale.y(value) for value in values[first:end]]
            for values in (series.high_w, series.low_w, series.mean_w)
        )
        # A band is never thinner than a pixel, or flat power would be invisible.
        low = [max(one, other + 1) for one, other in zip(low, high, strict=True)]
        back = _steps(list(reversed(low)), -1)
        band.append(f"M{first} {high[0]}{_steps(high, 1)}V{low[-1]}{back}z")
        line.append(f"M{first} {mean[0]}{_steps(mean, 1)}")
    if not band:
        return ""
    return f'<path class="band" d="{"".join(band)}"/><path class="mean" d="{"".join(line)}"/>'


def _stretches(known: NDArray[np.bool_]) -> list[tuple[int, int]]:
    """Return first and end of each stretch without a hole."""
    edges = np.diff(np.concatenate(([0], known.astype(np.int8), [0])))
    return list(
        zip(np.flatnonzero(edges == 1).tolist(), np.flatnonzero(edges == -1).tolist(), strict=True)
    )


def _steps(values: list[int], direction: int) -> str:
    """Return a staircase over values, one bucket each."""
    out, run = [], 0
    for before, value in zip([values[0], *values], values, strict=False):
        if value != before:
            out.append(f"h{run * direction}v{value - before}")
            run = 0
        run += 1
    return "".join(out) + f"h{run * direction}"


def _x(at_us: int, whole: Series) -> float:
    return LEFT + PLOT * (at_us - whole.from_us) / (whole.bucket_s * US_PER_S * whole.buckets)


def _axis(whole: Series) -> str:
    """Return lines and labels of the time axis."""
    span_s = whole.bucket_s * whole.buckets
    step_s = next((step for step in _TICKS_S if span_s / step <= _MOST_TICKS), _TICKS_S[-1])
    first = -(-whole.from_us // (step_s * US_PER_S)) * step_s * US_PER_S
    parts, day = [], None
    for number in range(_MOST_TICKS + 1):
        at_us = first + number * step_s * US_PER_S
        if at_us > whole.from_us + span_s * US_PER_S:
            break
        x = f"{_x(at_us, whole):.1f}"
        when = utc_from_us(at_us)
        text = f"{when:%H:%M:%S}" if step_s < 60 else f"{when:%H:%M}"
        if when.date() != day:
            text = f"{when:%d %b}" if step_s >= 86_400 else f"{when:%d %b} {text}"
            day = when.date()
        parts.append(f'<path class="grid" d="M{x} 0V{BAND_TOP + BAND}"/>')
        parts.append(f'<text x="{x}" y="{HEIGHT - 4}" text-anchor="middle">{text}</text>')
    return "".join(parts)


def _marks(item: GpuResult, whole: Series) -> str:
    """Return the limit, the peak and the labels of the power axis."""
    if item.peak_w is None or item.peak_us is None:
        return f'<text x="{LEFT + 4}" y="{BAND_TOP + BAND // 2}">no power recorded</text>'
    scale, end = scale_of(item), LEFT + PLOT
    base = BAND_TOP + BAND
    parts = [
        f'<path class="grid" d="M{LEFT} {base}H{end}"/>',
        f'<text x="{LEFT - 6}" y="{base}" text-anchor="end">0{fmt.THIN}W</text>',
    ]
    limit_y = peak_y = scale.y(item.peak_w)
    if item.limit_w is not None and item.limit_w <= scale.top_w:
        limit_y = scale.y(item.limit_w)
        parts.append(f'<path class="limit" d="M{LEFT} {limit_y}H{end}"/>')
        text = f"limit {fmt.power(item.limit_w)}"
        parts.append(f'<text class="limit" x="{end + 6}" y="{limit_y + 4}">{text}</text>')
    x = min(max(_x(item.peak_us, whole), LEFT), end)
    parts.append(f'<path class="peak" d="M{x:.1f} {peak_y - 4}l4 4l-4 4l-4 -4z"/>')
    label_y = limit_y + 18 if abs(peak_y - limit_y) < 14 and limit_y != peak_y else peak_y + 4
    parts.append(f'<text x="{end + 6}" y="{label_y}">peak {fmt.power(item.peak_w)}</text>')
    return "".join(parts)


def bar(values: dict[State, float], summary: str) -> str:
    """Return one bar, split by state in proportion to the values."""
    total = sum(values.values()) or 1.0
    x, parts = 0.0, []
    for state in STACK:
        width = values.get(state, 0.0) / total * WIDTH
        if width:
            parts.append(
                f'<rect class="{state.value}" x="{x:.1f}" y="0" width="{width:.1f}" height="26"/>'
            )
        x += width
    return (
        f'<svg class="bar" viewBox="0 0 {WIDTH} 26" preserveAspectRatio="none" role="img" '
        f'aria-label="{_label(summary)}">{"".join(parts)}</svg>'
    )
