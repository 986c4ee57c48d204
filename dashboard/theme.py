"""Palettes, figure templates, the one graph configuration, and the limits of a chart.

One palette a theme: colours that hold 3:1 against white and near-black alike fall into one
lightness band, where colour-blind viewers cannot tell five of them apart.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

MAX_LINES: Final = 16
MAX_POINTS: Final = 2_000
MAX_FIGURE_BYTES: Final = 200_000

GRAPH_CONFIG: Final[dict[str, Any]] = {
    "displaylogo": False,
    "showSendToCloud": False,
    "plotlyServerURL": "",
    "responsive": True,
    "displayModeBar": "hover",
    "modeBarButtonsToRemove": ["lasso2d", "select2d", "autoScale2d", "toImage"],
}
STATIC_GRAPH_CONFIG: Final[dict[str, Any]] = GRAPH_CONFIG | {"displayModeBar": False}

FONT: Final = (
    '"Inter", "Segoe UI", -apple-system, "Helvetica Neue", "Liberation Sans", Arial, sans-serif'
)


class Scheme(StrEnum):
    """Which of the two themes a page is drawn in."""

    LIGHT = "light"
    DARK = "dark"


class Look(StrEnum):
    """What a cell of the map can look like: the states, and *no data*, which is none."""

    ACTIVE = "active"
    EXECUTION_IDLE = "execution_idle"
    DEEP_IDLE = "deep_idle"
    UNKNOWN = "unknown"
    NO_DATA = "no_data"


LABELS: Final[dict[Look, str]] = {
    Look.ACTIVE: "Active",
    Look.EXECUTION_IDLE: "Execution-idle",
    Look.DEEP_IDLE: "Deep idle",
    Look.UNKNOWN: "Unknown",
    Look.NO_DATA: "No data",
}
LETTERS: Final[dict[Look, str]] = {
    Look.ACTIVE: "A",
    Look.EXECUTION_IDLE: "E",
    Look.DEEP_IDLE: "D",
    Look.UNKNOWN: "?",
    Look.NO_DATA: "",
}
HELP: Final[dict[Look, str]] = {
    Look.ACTIVE: "Compute, memory or links are at work.",
    Look.EXECUTION_IDLE: (
        "A program holds the GPU, but compute, memory and links have all been quiet for "
        "5 s or more."
    ),
    Look.DEEP_IDLE: "No program holds the GPU.",
    Look.UNKNOWN: "The counters needed to tell are missing or contradict each other.",
    Look.NO_DATA: "In the inventory, but no sample for 15 s. Not a state, and not 0 W.",
}


@dataclass(frozen=True, slots=True)
class Palette:
    """Colours of one theme, as `#RRGGBB`."""

    states: dict[Look, str]
    fault: str
    background: str
    panel: str
    text: str
    muted: str
    grid: str
    outline: str
    line: str
    band: str
    limit: str


PALETTES: Final[dict[Scheme, Palette]] = {
    Scheme.LIGHT: Palette(
        states={
            Look.ACTIVE: "#0B3C7D",
            Look.EXECUTION_IDLE: "#D97706",
            Look.DEEP_IDLE: "#8A96A3",
            Look.UNKNOWN: "#3CA064",
            Look.NO_DATA: "#FFFFFF",
        },
        fault="#7A0F1E",
        background="#F3F5F8",
        panel="#FFFFFF",
        text="#17202B",
        muted="#566273",
        grid="#E3E8EE",
        outline="#6B7684",
        line="#0B3C7D",
        band="rgba(11,60,125,0.24)",
        limit="#7A0F1E",
    ),
    Scheme.DARK: Palette(
        states={
            Look.ACTIVE: "#79B8F2",
            Look.EXECUTION_IDLE: "#FFC03D",
            Look.DEEP_IDLE: "#6A7480",
            Look.UNKNOWN: "#C8DCB4",
            Look.NO_DATA: "#151B23",
        },
        fault="#E23B4E",
        background="#0D1117",
        panel="#151B23",
        text="#E6EDF3",
        muted="#9BA7B4",
        grid="#2A323D",
        outline="#8B97A5",
        line="#79B8F2",
        band="rgba(121,184,242,0.28)",
        limit="#FF8A96",
    ),
}


def palette(scheme: Scheme | str) -> Palette:
    """Return the palette of a theme; anything that is not `dark` is light."""
    return PALETTES[Scheme.DARK if scheme == Scheme.DARK else Scheme.LIGHT]


def axis(colours: Palette) -> dict[str, Any]:
    """Return what every axis has in common."""
    return {
        "gridcolor": colours.grid,
        "linecolor": colours.grid,
        "zeroline": False,
        "tickfont": {"color": colours.muted, "size": 12},
        "title": {"font": {"color": colours.muted, "size": 12}},
        "automargin": True,
    }


def layout(scheme: Scheme | str, **more: Any) -> dict[str, Any]:
    """Return the layout that every figure starts from, as a plain dict."""
    colours = palette(scheme)
    base: dict[str, Any] = {
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
        "font": {"family": FONT, "size": 12, "color": colours.text},
        "margin": {"l": 8, "r": 8, "t": 8, "b": 8},
        "showlegend": False,
        "hoverlabel": {
            "bgcolor": colours.panel,
            "bordercolor": colours.outline,
            "font": {"family": FONT, "size": 12, "color": colours.text},
        },
        "modebar": {
            "bgcolor": "rgba(0,0,0,0)",
            "color": colours.muted,
            "activecolor": colours.text,
        },
    }
    return base | more


def luminance(colour: str) -> float:
    """Return the relative luminance of `#RRGGBB` (WCAG 2)."""
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def ink(colour: str) -> str:
    """Return the text colour that stands out more from a fill: near-black or white."""
    return max(("#0D1117", "#FFFFFF"), key=lambda text: contrast(text, colour))


def contrast(one: str, other: str) -> float:
    """Return the contrast ratio of two colours, 1 to 21."""
    high, low = sorted((luminance(one), luminance(other)), reverse=True)
    return (high + 0.05) / (low + 0.05)
