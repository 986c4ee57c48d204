"""Rows of `meter`, and the energy of the stretches that a log marks."""

from __future__ import annotations

import datetime as dt
import itertools
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from collector.formats.grid import DEFAULT_MS, holes, nominal_interval_ms, to_ticks
from collector.formats.meter import CHANNEL
from collector.formats.model import FormatError, Parsed, PowerReading, Window
from collector.formats.rows import Row
from collector.formats.stamps import Local, place
from idlewatt.columns import METER
from idlewatt.units import energy_uj

if TYPE_CHECKING:
    from collector.formats.importing import Import, Options

_MS_PER_DAY: Final = 86_400_000


@dataclass(frozen=True, slots=True)
class WindowResult:
    """What a meter measured over a marked stretch.

    Attributes:
        name: what marks it.
        meter_id: which meter.
        seconds: its length.
        readings: readings inside.
        mean_w: their mean.
        energy_j: by the trapezoid rule between the first and the last of them.
        covered_s: from the first to the last of them.
    """

    name: str
    meter_id: str
    seconds: float
    readings: int
    mean_w: float
    energy_j: float
    covered_s: float


def rows(result: Import, parsed: Sequence[Parsed], options: Options) -> None:
    """Add the rows of all meters, and the results of all windows.

    Raises:
        FormatError: a window without a meter, or times that cannot be placed.
    """
    parts = [item for item in parsed if item.power]
    windows = [window for item in parsed for window in item.windows]
    if windows and not parts:
        result.notes.append(
            "the log marks a stretch, but no meter's readings are given; name the power log "
            "(spl.txt) beside it"
        )
    made: dict[tuple[str, int], Row] = {}
    for part in parts:
        by_meter: dict[str, list[PowerReading]] = defaultdict(list)
        for reading in part.power:
            by_meter[reading.meter].append(reading)
        placed = {
            name: _place(result, part, readings, options) for name, readings in by_meter.items()
        }
        interval_ms = options.interval_ms or nominal_interval_ms(placed.values()) or DEFAULT_MS
        result.interval_ms[part.where] = interval_ms
        for name, readings in by_meter.items():
            _meter(result, part, (name, readings, placed[name]), interval_ms, made)
            for window in windows:
                if readings[0].scope != CHANNEL:
                    _window(result, window, name, readings)
    if made:
        result.tables["meter"] = [made[key] for key in sorted(made, key=lambda key: key[::-1])]


def _place(
    result: Import, part: Parsed, readings: Sequence[PowerReading], options: Options
) -> list[int]:
    series = [Local(reading.stamp, reading.line) for reading in readings]
    placed = place(series, options.zone or part.zone, part.where)
    result.notes += [note for note in placed.notes if note not in result.notes]
    return placed.at_us


def _meter(
    result: Import,
    part: Parsed,
    series: tuple[str, Sequence[PowerReading], Sequence[int]],
    interval_ms: int,
    made: dict[tuple[str, int], Row],
) -> None:
    name, readings, stamps = series
    ticks = to_ticks(stamps, interval_ms)
    missing = holes(ticks.reading, interval_ms)
    if ticks.repeated or ticks.bridged or missing:
        result.notes.append(
            f"{part.where}, {name}: {ticks.repeated} reading(s) repeated a tick, "
            f"{len(ticks.bridged)} tick(s) have the reading after them, {len(missing)} hole(s)"
        )
    for ts_us, position in ticks.reading.items():
        reading = readings[position]
        power = reading.power_mw
        values: dict[str, Any] = {
            "node_id": result.node_id,
            "meter_id": name,
            "ts_utc": ts_us,
            "obs_ms": min(interval_ms, _MS_PER_DAY),
            "power_mw": power,
            "energy_uj": None if power is None else energy_uj(power, interval_ms),
            "scope": reading.scope,
            "source": part.format.value,
        }
        made[name, ts_us] = tuple(values.get(column.name) for column in METER)


def _window(result: Import, window: Window, meter: str, readings: Sequence[PowerReading]) -> None:
    """Measure a stretch on the raw readings, between their own times."""
    inside: list[tuple[dt.datetime, int]] = []
    for reading in readings:
        if (reading.stamp.tzinfo is None) != (window.begin.tzinfo is None):
            raise FormatError(
                "the power log and the MLPerf log do not both name their zone, so their times "
                "cannot be compared"
            )
        if window.begin <= reading.stamp <= window.end and reading.power_mw is not None:
            inside.append((reading.stamp, reading.power_mw))
    if len(inside) < 2:
        result.notes.append(f"{window.name}: the meter {meter} has no readings within it")
        return
    energy_mj = sum(
        (first[1] + second[1]) / 2 * (second[0] - first[0]).total_seconds()
        for first, second in itertools.pairwise(inside)
    )
    result.windows.append(
        WindowResult(
            window.name,
            meter,
            (window.end - window.begin).total_seconds(),
            len(inside),
            sum(power for _, power in inside) / len(inside) / 1e3,
            energy_mj / 1e3,
            (inside[-1][0] - inside[0][0]).total_seconds(),
        )
    )
