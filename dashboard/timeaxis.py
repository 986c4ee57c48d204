"""The one place that turns UTC into an axis.

Browsers draw numbers in the viewer's zone and text as it is written. So times leave the server
as ISO text in UTC, or as a text `x0` with a step; never as numbers.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from dashboard import theme
from idlewatt.clock import iso_utc


def stamp(value_us: int) -> str:
    """Return one instant as ISO text in UTC."""
    return iso_utc(value_us)


def stamps(values_us: npt.NDArray[np.int64]) -> list[str]:
    """Return instants as ISO text in UTC, whole seconds."""
    text = np.datetime_as_string(values_us.astype("datetime64[us]"), unit="s")
    return [f"{value}Z" for value in text.tolist()]


def regular(start_us: int, step_ms: int) -> dict[str, Any]:
    """Return the x encoding of equal steps: no array travels."""
    return {"x0": stamp(start_us), "dx": step_ms}


def axis(start_us: int, end_us: int, scheme: theme.Scheme | str) -> dict[str, Any]:
    """Return an x axis in UTC from start to end."""
    colours = theme.palette(scheme)
    base = theme.axis(colours)
    return base | {
        "type": "date",
        "range": [stamp(start_us), stamp(end_us)],
        "title": {"text": "Time (UTC)", "font": {"color": colours.muted, "size": 12}},
        "hoverformat": "%Y-%m-%d %H:%M:%S UTC",
        "tickformatstops": [
            {"dtickrange": [None, 60_000], "value": "%H:%M:%S"},
            {"dtickrange": [60_000, 86_399_999], "value": "%H:%M"},
            {"dtickrange": [86_400_000, None], "value": "%d %b"},
        ],
    }
