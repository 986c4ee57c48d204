"""Energy by state, hour by hour: stacked bars, hours that are not analysed marked as such."""

from __future__ import annotations

from typing import Any, Final

from dashboard import format as fmt
from dashboard import theme, timeaxis
from dashboard.views.waste import HELD_EMPTY, LABELS, STATES, Sums, look_of, sums
from dashboard.waste_model import WasteSnapshot
from idlewatt.clock import us_from_utc
from idlewatt.units import MS_PER_S, S_PER_HOUR, US_PER_HOUR

BAR_MS: Final = round(0.9 * S_PER_HOUR * MS_PER_S)
COLUMNS: Final = ("Hour (UTC)", *(LABELS[state] for state in STATES), "All", "Coverage", "Analysed")


def _hour_us(snapshot: WasteSnapshot) -> list[int]:
    return list(range(snapshot.from_us, snapshot.to_us, US_PER_HOUR))


def _by_hour(snapshot: WasteSnapshot) -> dict[int, dict[str, dict[str, Any]]]:
    """Return rows by hour and state; an hour that is not analysed has none."""
    found: dict[int, dict[str, dict[str, Any]]] = {}
    for row in snapshot.by_hour.iter_rows(named=True):
        states = found.setdefault(us_from_utc(row["hour_utc"]), {})
        if row["state"] is not None:
            states[row["state"]] = row
    return found


def figure(snapshot: WasteSnapshot, scheme: theme.Scheme | str, key: str) -> dict[str, Any]:
    """Return the stacked bars as a figure dict.

    Args:
        snapshot: the window.
        scheme: light or dark.
        key: while it stays the same, the viewer's zoom stays.
    """
    colours = theme.palette(scheme)
    hours, rows = _hour_us(snapshot), _by_hour(snapshot)
    data = [_bars(state, hours, rows, colours) for state in STATES]
    layout = theme.layout(
        scheme,
        barmode="stack",
        bargap=0,
        margin={"l": 8, "r": 16, "t": 22, "b": 8},
        xaxis=timeaxis.axis(snapshot.from_us, snapshot.to_us, scheme),
        yaxis=theme.axis(colours)
        | {
            "title": {"text": "Energy (kWh)", "font": {"color": colours.muted, "size": 12}},
            "rangemode": "tozero",
        },
        uirevision=key,
        shapes=[],
        annotations=[],
    )
    _mark(layout, [h for h in hours if h in rows and not rows[h]], "not yet analysed", colours)
    _mark(layout, [h for h in hours if h not in rows], "no samples", colours)
    return {"data": data, "layout": layout}


def _bars(
    state: str,
    hours: list[int],
    rows: dict[int, dict[str, dict[str, Any]]],
    colours: theme.Palette,
) -> dict[str, Any]:
    values = [rows.get(hour, {}).get(state, {}).get("energy_kwh") for hour in hours]
    colour = colours.states[look_of(state)]
    marker: dict[str, Any] = {"color": colour, "line": {"width": 0}}
    if state == HELD_EMPTY:
        marker["pattern"] = {
            "shape": "/",
            "fgcolor": colours.text,
            "bgcolor": colour,
            "fillmode": "replace",
            "size": 5,
            "solidity": 0.3,
        }
    return {
        "type": "bar",
        "name": LABELS[state],
        **timeaxis.regular(hours[0] if hours else 0, S_PER_HOUR * MS_PER_S),
        "y": [None if value is None else round(value, 6) for value in values],
        "offset": 0.05 * S_PER_HOUR * MS_PER_S,
        "width": BAR_MS,
        "marker": marker,
        "hovertemplate": f"hour from %{{x|%d %b %H:%M}} UTC<br>{LABELS[state]} %{{y:.3f}} kWh"
        "<extra></extra>",
    }


def _mark(layout: dict[str, Any], hours: list[int], text: str, colours: theme.Palette) -> None:
    """Mark runs of hours by a pale field with a word over it."""
    for first, last in _runs(hours):
        layout["shapes"].append(
            {
                "type": "rect",
                "yref": "paper",
                "x0": timeaxis.stamp(first),
                "x1": timeaxis.stamp(last),
                "y0": 0,
                "y1": 1,
                "layer": "below",
                "fillcolor": colours.grid,
                "opacity": 0.5,
                "line": {"width": 0},
            }
        )
        layout["annotations"].append(
            {
                "x": timeaxis.stamp((first + last) // 2),
                "yref": "paper",
                "y": 1,
                "yanchor": "bottom",
                "showarrow": False,
                "text": text,
                "font": {"color": colours.muted, "size": 12},
            }
        )


def _runs(hours: list[int]) -> list[tuple[int, int]]:
    """Return half-open runs of neighbouring hours."""
    found: list[tuple[int, int]] = []
    for hour in hours:
        if found and found[-1][1] == hour:
            found[-1] = (found[-1][0], hour + US_PER_HOUR)
        else:
            found.append((hour, hour + US_PER_HOUR))
    return found


def legend(snapshot: WasteSnapshot) -> dict[str, str]:
    """Return the energy of each state, in words."""
    found = sums(snapshot)
    return {state: fmt.energy(found.kwh.get(state, 0.0)) for state in STATES}


def summary(snapshot: WasteSnapshot) -> str:
    """Return what the bars add up to: the tiles are parts of the same sum."""
    found = sums(snapshot)
    if found.total_kwh is None:
        return "Nothing is analysed in this window yet."
    parts = " + ".join(
        f"{LABELS[state].lower()} {fmt.energy(found.kwh[state])}"
        for state in STATES
        if found.kwh.get(state) is not None
    )
    return f"All bars together: {fmt.energy(found.total_kwh)} = {parts}."


def caption(snapshot: WasteSnapshot) -> str:
    """Return how to read a bar, and what is not in it."""
    found: Sums = sums(snapshot)
    text = f"One bar an hour, as analysed. Coverage {fmt.share(found.coverage)}."
    if snapshot.analysed_us is not None and snapshot.as_of_us is not None:
        until = fmt.clock(snapshot.analysed_us, snapshot.as_of_us)
        text += f" The last bar is the current hour, up to {until} UTC."
    return text


def rows(snapshot: WasteSnapshot) -> list[list[str]]:
    """Return the same numbers as a table, newest hour first."""
    table: list[list[str]] = []
    known = _by_hour(snapshot)
    current = dict(snapshot.by_hour.select("hour_utc", "current").iter_rows())
    for hour in reversed(_hour_us(snapshot)):
        name = fmt.minute(hour, snapshot.as_of_us)
        if hour not in known:
            table.append([name, *[fmt.NOTHING] * (len(STATES) + 2), "no samples"])
            continue
        states = known[hour]
        if not states:
            table.append([name, *[fmt.NOTHING] * (len(STATES) + 2), "not yet"])
            continue
        energies = [states.get(state, {}).get("energy_kwh") for state in STATES]
        seen = sum(row["energy_seen_h"] for row in states.values())
        some = next(iter(states.values()))
        expected = max(some["expected_h"], sum(row["seen_h"] for row in states.values()))
        done = bool(current[some["hour_utc"]])
        table.append(
            [
                name,
                *(fmt.energy(0.0 if value is None else value) for value in energies),
                fmt.energy(sum(value for value in energies if value is not None)),
                fmt.share(min(seen / expected, 1.0) if expected else None),
                "yes" if done else "in part",
            ]
        )
    return table
