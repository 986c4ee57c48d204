"""Power band: minimum, maximum and mean of the fleet's power per bucket, against the limit."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from dashboard import format as fmt
from dashboard import theme, timeaxis
from dashboard.seconds import Seconds
from idlewatt.units import MS_PER_S, US_PER_S

MIN_COVERAGE: Final = 0.9
BUCKETS_S: Final[dict[int, int]] = {900: 2, 3_600: 5, 21_600: 30, 86_400: 120}
WINDOWS: Final[dict[str, tuple[int, str]]] = {
    "15m": (900, "15 min"),
    "1h": (3_600, "1 h"),
    "6h": (21_600, "6 h"),
    "24h": (86_400, "24 h"),
}
DEFAULT_WINDOW: Final = "15m"

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Peak:
    """The highest second: power and stamp."""

    power_w: float
    ts_us: int


@dataclass(frozen=True, slots=True)
class Band:
    """Fleet power in equal buckets; NaN where coverage is below 90 %.

    Attributes:
        start_us: stamp at which the first bucket starts.
        bucket_s: width of a bucket.
        coverage: readings over readings expected, per bucket.
        peak: highest second of the shown buckets, if there is one.
        expected: devices expected at the end of the window.
        limit_w: sum of limits; None where no device tells one.
    """

    start_us: int
    bucket_s: int
    low_w: FloatArray
    high_w: FloatArray
    mean_w: FloatArray
    coverage: FloatArray
    peak: Peak | None
    expected: int
    limit_w: float | None

    @property
    def end_us(self) -> int:
        """Return the stamp at which the last bucket ends."""
        return self.start_us + len(self.mean_w) * self.bucket_s * US_PER_S

    @property
    def covered(self) -> float:
        """Return the coverage of the whole window."""
        return float(self.coverage.mean()) if len(self.coverage) else 0.0


def usable_seconds(readings: IntArray, expected: IntArray) -> BoolArray:
    """Return True where a second has readings of at least 90 % of the devices expected."""
    return np.asarray((readings > 0) & (readings >= MIN_COVERAGE * expected))


def highest(seconds: Seconds, expected: IntArray) -> Peak | None:
    """Return the highest second among those that are covered."""
    usable = usable_seconds(seconds.readings, expected)
    if not usable.any():
        return None
    at = int(np.argmax(np.where(usable, seconds.power_mw, -1)))
    return Peak(float(seconds.power_mw[at]) / 1e3, seconds.start_us + at * US_PER_S)


def band(seconds: Seconds, expected: IntArray, bucket_s: int, limit_w: float | None) -> Band:
    """Return the band over whole buckets.

    Args:
        seconds: fleet power; starts at a multiple of the bucket.
        expected: devices expected in each of these seconds.
        bucket_s: width of a bucket.
        limit_w: sum of limits.
    """
    count = len(seconds.power_mw) // bucket_s
    shape = (count, bucket_s)
    power = seconds.power_mw[: count * bucket_s].reshape(shape) / 1e3
    readings = seconds.readings[: count * bucket_s].reshape(shape)
    wanted = np.maximum(expected[: count * bucket_s].reshape(shape), readings)
    usable = usable_seconds(readings, wanted)
    coverage = readings.sum(axis=1) / np.maximum(wanted.sum(axis=1), 1)
    shown = (coverage >= MIN_COVERAGE) & usable.any(axis=1)
    low = np.where(usable, power, np.inf).min(axis=1, initial=np.inf)
    high = np.where(usable, power, -np.inf).max(axis=1, initial=-np.inf)
    mean = np.where(usable, power, 0).sum(axis=1) / np.maximum(usable.sum(axis=1), 1)
    whole = seconds.window(seconds.start_us, seconds.start_us + count * bucket_s * US_PER_S)
    seen = Seconds(
        whole.start_us, whole.power_mw, np.where(shown.repeat(bucket_s), whole.readings, 0)
    )
    return Band(
        seconds.start_us,
        bucket_s,
        np.where(shown, low, np.nan),
        np.where(shown, high, np.nan),
        np.where(shown, mean, np.nan),
        coverage,
        highest(seen, wanted.reshape(-1)),
        int(expected[-1]) if len(expected) else 0,
        limit_w,
    )


def segments(shown: BoolArray) -> list[tuple[int, int]]:
    """Return the half-open runs of True; what lies between is never joined."""
    edges = np.flatnonzero(np.diff(np.concatenate(([False], shown, [False])).astype(np.int8)))
    return [(int(a), int(b)) for a, b in zip(edges[::2], edges[1::2], strict=True)]


def _outline(view: Band) -> tuple[list[str | None], list[float | None]]:
    """Return one closed outline per run of covered buckets, apart by None."""
    xs: list[str | None] = []
    ys: list[float | None] = []
    for first, last in segments(~np.isnan(view.mean_w)):
        at = view.start_us + np.arange(first, last, dtype=np.int64) * view.bucket_s * US_PER_S
        times = timeaxis.stamps(at)
        if xs:
            xs.append(None)
            ys.append(None)
        xs += times + times[::-1]
        ys += _round(view.high_w[first:last]) + _round(view.low_w[first:last][::-1])
    return xs, ys


def _round(values: FloatArray) -> list[float | None]:
    """Return kW with a watt's precision; None where there is nothing."""
    return [None if math.isnan(v) else round(v / 1e3, 3) for v in values.tolist()]


def figure(view: Band, scheme: theme.Scheme | str, key: str) -> dict[str, Any]:
    """Return the band as a figure dict.

    Args:
        view: the band.
        scheme: light or dark.
        key: while it stays the same, the viewer's zoom stays.
    """
    colours = theme.palette(scheme)
    xs, ys = _outline(view)
    unit = {"hoverinfo": "skip", "mode": "lines", "type": "scatter", "line": {"width": 0}}
    data: list[dict[str, Any]] = [
        unit
        | {"x": xs, "y": ys, "fill": "toself", "fillcolor": colours.band, "name": "min to max"},
        {
            "type": "scatter",
            "mode": "lines",
            "name": "mean",
            **timeaxis.regular(view.start_us, view.bucket_s * MS_PER_S),
            "y": _round(view.mean_w),
            "connectgaps": False,
            "line": {"color": colours.line, "width": 1.75},
            "hovertemplate": "%{x|%d %b %H:%M:%S} UTC<br>mean %{y:.2f} kW<extra></extra>",
        },
    ]
    layout = theme.layout(
        scheme,
        margin={"l": 8, "r": 16, "t": 26, "b": 8},
        xaxis=timeaxis.axis(view.start_us, view.end_us, scheme),
        yaxis=theme.axis(colours)
        | {
            "title": {"text": "GPU power (kW)", "font": {"color": colours.muted, "size": 12}},
            "range": [0, _top_kw(view)],
        },
        uirevision=key,
        shapes=[],
        annotations=[],
    )
    _add_limit(layout, view, colours)
    if view.peak is not None:
        data.append(_peak_marker(view.peak, colours))
        layout["annotations"].append(_peak_label(view.peak, view, colours))
    return {"data": data, "layout": layout}


def _top_kw(view: Band) -> float:
    high = np.nanmax(view.high_w) if not np.isnan(view.high_w).all() else 0.0
    return max(float(high), view.limit_w or 0.0, 1.0) / 1e3 * 1.12


def _add_limit(layout: dict[str, Any], view: Band, colours: theme.Palette) -> None:
    if view.limit_w is None:
        return
    level = view.limit_w / 1e3
    line = {"color": colours.limit, "width": 1.5, "dash": "dash"}
    layout["shapes"].append(
        {"type": "line", "xref": "paper", "x0": 0, "x1": 1, "y0": level, "y1": level, "line": line}
    )
    layout["annotations"].append(
        {
            "xref": "paper",
            "x": 0.004,
            "xanchor": "left",
            "y": level,
            "yanchor": "bottom",
            "showarrow": False,
            "text": f"Sum of GPU limits {fmt.power(view.limit_w)}",
            "font": {"color": colours.limit, "size": 12},
        }
    )


def _peak_marker(peak: Peak, colours: theme.Palette) -> dict[str, Any]:
    return {
        "type": "scatter",
        "mode": "markers",
        "cliponaxis": False,
        "name": "peak",
        "x": [timeaxis.stamp(peak.ts_us)],
        "y": [round(peak.power_w / 1e3, 3)],
        "marker": {
            "symbol": "diamond",
            "size": 11,
            "color": colours.panel,
            "line": {"color": colours.text, "width": 2},
        },
        "hovertemplate": "peak second %{x|%d %b %H:%M:%S} UTC<br>%{y:.2f} kW<extra></extra>",
    }


def _peak_label(peak: Peak, view: Band, colours: theme.Palette) -> dict[str, Any]:
    late = peak.ts_us > (view.start_us + view.end_us) // 2
    return {
        "x": timeaxis.stamp(peak.ts_us),
        "y": peak.power_w / 1e3,
        "xanchor": "right" if late else "left",
        "yanchor": "bottom",
        "xshift": -8 if late else 8,
        "yshift": 5,
        "showarrow": False,
        "text": f"Peak {fmt.power(peak.power_w)} at {fmt.clock(peak.ts_us, view.end_us)}",
        "font": {"color": colours.text, "size": 12},
        "bgcolor": colours.panel,
        "borderpad": 2,
    }


def summary(view: Band, pending_hours: int = 0) -> str:
    """Return the band in one or two sentences."""
    shown = ~np.isnan(view.mean_w)
    if not shown.any():
        return _missing(view, pending_hours) or "No power readings in this window."
    mean = float(np.nanmean(view.mean_w))
    text = f"Mean {fmt.power(mean)}, lowest second {fmt.power(float(np.nanmin(view.low_w)))}"
    if view.peak is not None:
        when = fmt.clock(view.peak.ts_us, view.end_us)
        text += f", peak {fmt.power(view.peak.power_w)} at {when} UTC"
        if view.limit_w:
            text += f" ({fmt.share(view.peak.power_w / view.limit_w)} of the limit)"
    return f"{text}. {_missing(view, pending_hours)}".strip()


def _missing(view: Band, pending_hours: int) -> str:
    if pending_hours:
        return f"History is still loading: {fmt.plural(pending_hours, 'hour')} to go."
    gaps = int(np.isnan(view.mean_w).sum()) * view.bucket_s
    if not gaps:
        return ""
    return f"{fmt.duration(gaps)} of this window is left blank: under 90 % of the GPUs reported."


def caption(view: Band) -> str:
    """Return what a bucket is, and how much of the window was observed."""
    return (
        f"Fill: lowest to highest second of each {view.bucket_s} s bucket. Line: mean. "
        f"Coverage {fmt.share(view.covered)} of {fmt.plural(view.expected, 'GPU')}."
    )


def rows(view: Band) -> list[list[str]]:
    """Return the same numbers as a table, newest first; at most 120 rows.

    Neighbouring buckets are merged: lowest of the lowest, highest of the highest, mean of means.
    """
    merge = max(1, -(-len(view.mean_w) // MAX_ROWS))
    table: list[list[str]] = []
    for first in reversed(range(0, len(view.mean_w), merge)):
        part = slice(first, first + merge)
        start = view.start_us + first * view.bucket_s * US_PER_S
        shown = ~np.isnan(view.mean_w[part])
        cells = [fmt.NOTHING] * 3
        if shown.any():
            low, high = np.nanmin(view.low_w[part]), np.nanmax(view.high_w[part])
            mean = np.nanmean(view.mean_w[part])
            cells = [fmt.power(float(value)) for value in (low, mean, high)]
        coverage = float(view.coverage[part].mean())
        table.append([fmt.clock(start, view.end_us), *cells, fmt.share(coverage)])
    return table


MAX_ROWS: Final = 120
COLUMNS: Final = ("From (UTC)", "Lowest", "Mean", "Highest", "Coverage")
