"""Palettes, time axis and number format."""

from __future__ import annotations

import datetime as dt
import itertools
import re
from pathlib import Path

import numpy as np
import pytest

from dashboard import format as fmt
from dashboard import theme, timeaxis
from dashboard.app import ASSETS
from dashboard.theme import Look, Scheme
from idlewatt.clock import us_from_utc

START_US = us_from_utc(dt.datetime(2026, 10, 25, 0, 30, tzinfo=dt.UTC))


def test_contrast_of_known_pairs() -> None:
    assert theme.contrast("#000000", "#FFFFFF") == pytest.approx(21.0)
    assert theme.contrast("#777777", "#FFFFFF") == pytest.approx(4.48, abs=0.01)
    assert theme.contrast("#123456", "#123456") == 1.0


@pytest.mark.parametrize("scheme", list(Scheme))
def test_every_state_stands_out_from_the_panel(scheme: Scheme) -> None:
    colours = theme.palette(scheme)
    # *No data* is the panel itself, drawn by its outline.
    assert colours.states[Look.NO_DATA] == colours.panel
    drawn = [colour for look, colour in colours.states.items() if look is not Look.NO_DATA]
    for colour in [*drawn, colours.outline, colours.line, colours.limit, colours.fault]:
        assert theme.contrast(colour, colours.panel) >= 2.98, colour
    for colour in (colours.text, colours.muted, colours.limit):
        assert theme.contrast(colour, colours.panel) >= 4.5, colour
        assert theme.contrast(colour, colours.background) >= 4.5, colour


@pytest.mark.parametrize("scheme", list(Scheme))
def test_letters_can_be_read_on_their_cells(scheme: Scheme) -> None:
    for look, colour in theme.palette(scheme).states.items():
        assert theme.contrast(theme.ink(colour), colour) >= 4.5, look


@pytest.mark.parametrize("scheme", list(Scheme))
def test_execution_idle_is_louder_than_deep_idle(scheme: Scheme) -> None:
    colours = theme.palette(scheme)
    loud = theme.contrast(colours.states[Look.EXECUTION_IDLE], colours.panel)
    assert loud > theme.contrast(colours.states[Look.DEEP_IDLE], colours.panel)


def test_letters_differ() -> None:
    shown = [theme.LETTERS[look] for look in Look]
    assert all(a != b for a, b in itertools.combinations(shown, 2))


def test_style_sheet_and_palettes_agree() -> None:
    css = (Path(ASSETS) / "idlewatt.css").read_text("utf-8").lower()
    blocks = re.findall(r":root[^{]*\{([^}]*)\}", css)
    for scheme, block in zip((Scheme.LIGHT, Scheme.DARK), blocks, strict=True):
        colours = theme.palette(scheme)
        for look in (Look.ACTIVE, Look.EXECUTION_IDLE, Look.DEEP_IDLE, Look.UNKNOWN):
            assert f"--{look.value}: {colours.states[look].lower()}" in block
        assert f"--panel: {colours.panel.lower()}" in block
        assert f"--text: {colours.text.lower()}" in block


def test_graph_configuration_sends_nothing_away() -> None:
    assert theme.GRAPH_CONFIG["showSendToCloud"] is False
    assert theme.GRAPH_CONFIG["plotlyServerURL"] == ""
    assert theme.GRAPH_CONFIG["displaylogo"] is False


def test_times_leave_as_text_in_utc() -> None:
    assert timeaxis.stamp(START_US) == "2026-10-25T00:30:00Z"
    assert timeaxis.regular(START_US, 5_000) == {"x0": "2026-10-25T00:30:00Z", "dx": 5_000}
    # Across the hour that repeats in many zones: UTC goes on evenly.
    hours = START_US + np.arange(3, dtype=np.int64) * 3_600_000_000
    assert timeaxis.stamps(hours) == [f"2026-10-25T0{hour}:30:00Z" for hour in range(3)]
    axis = timeaxis.axis(START_US, START_US + 1_000_000, "dark")
    assert axis["range"] == ["2026-10-25T00:30:00Z", "2026-10-25T00:30:01Z"]
    assert "UTC" in axis["title"]["text"]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "\u2013"),
        (0.0, "0 W"),
        (812.4, "812 W"),
        (999.6, "1.00 kW"),
        (12_449.0, "12.4 kW"),
        (123_456.0, "123 kW"),
        (999_600.0, "1.00 MW"),
        (1_234_567.0, "1.23 MW"),
    ],
)
def test_power(value: float | None, text: str) -> None:
    assert fmt.power(value) == text.replace(" ", fmt.THIN)


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.0, "0 %"), (0.0004, "< 0.1 %"), (0.034, "3.4 %"), (0.5, "50 %"), (0.9996, "99.9 %")],
)
def test_share_never_rounds_up_to_all(value: float, text: str) -> None:
    assert fmt.share(value) == text.replace(" ", fmt.THIN)


def test_durations_and_counts() -> None:
    thin = fmt.THIN
    assert fmt.duration(47 * 60) == f"47{thin}min"
    assert fmt.duration(11_100) == f"3{thin}h 05{thin}min"
    assert fmt.duration(2.2 * 86_400) == f"2{thin}d 4{thin}h"
    assert fmt.count(10_240) == f"10{thin}240"
    assert fmt.plural(1, "GPU") == "1 GPU"
    assert fmt.plural(0, "GPU") == "0 GPUs"
    assert fmt.gpu_hours(1.2e6) == f"20{thin}GPU-min"
    assert fmt.gpu_hours(2.64e7) == f"7.33{thin}GPU-h"
    assert fmt.energy(1234.5) == f"1{thin}234{thin}kWh"
    assert fmt.clock(START_US, START_US + 86_400_000_000) == "25 Oct 00:30:00"
    assert fmt.minute(START_US, START_US) == "00:30"
