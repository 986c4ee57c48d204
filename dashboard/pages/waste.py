"""Waste: which energy bought nothing, whose was it, and what did it cost?"""

from __future__ import annotations

from typing import Any, Final

from dash import Dash, Input, Output, State, dcc, html, no_update
from dash.exceptions import PreventUpdate

from dashboard.ids import shell, waste
from dashboard.models import ReadModels
from dashboard.pages.page import (
    Page,
    card,
    chart,
    choice,
    choice_in_url,
    empty,
    legend_entry,
    name_cell,
    numbers_view,
    only_when_open,
    swatch,
    table,
    text_table,
    tile,
    version,
)
from dashboard.theme import HELP
from dashboard.views import waste as view
from dashboard.views import waste_chart, waste_tables
from dashboard.waste_model import WasteSnapshot

WINDOWS: Final = {"24h": "24 h", "7d": "7 d"}
BY: Final = {"job": "Job", "user": "User", "gpu": "GPU"}
CHART_PX: Final = 320
OUTPUTS: Final[dict[str, Output]] = {
    "headline": Output(waste("headline"), "children"),
    "tiles": Output(waste("tiles"), "children"),
    "body_class": Output(waste("body"), "className"),
    "empty_class": Output(waste("empty"), "className"),
    "figure": Output(waste("chart"), "figure"),
    "legend": Output(waste("legend"), "children"),
    "summary": Output(waste("summary"), "children"),
    "caption": Output(waste("caption"), "children"),
    "idle": Output(waste("idle"), "children"),
    "idle_summary": Output(waste("idle-summary"), "children"),
    "held": Output(waste("held"), "children"),
    "held_summary": Output(waste("held-summary"), "children"),
    "seen": Output(waste("seen"), "data"),
}


def layout() -> html.Div:
    """Return the page, empty until its first snapshot."""
    return html.Div(
        [
            dcc.Store(id=waste("seen")),
            dcc.Store(id=waste("shown-window")),
            dcc.Store(id=waste("shown-by")),
            html.Div(
                [
                    html.Div(
                        [
                            html.H1("Waste"),
                            choice(waste("window"), WINDOWS, "Window of the page"),
                        ],
                        className="card-head",
                    ),
                    html.P("Adding up the hours\u2026", id=waste("headline")),
                ],
                className="page-head",
            ),
            empty(waste("empty")),
            html.Div(
                [
                    html.Div(id=waste("tiles"), className="tiles"),
                    _chart_card(),
                    _idle_card(),
                    _held_card(),
                ],
                id=waste("body"),
                className="is-hidden",
            ),
        ]
    )


def _chart_card() -> html.Section:
    title = "Energy by state, hour by hour"
    return card(
        html.Div(html.H2(title), className="card-head"),
        html.P(id=waste("summary"), className="summary"),
        html.Ul(id=waste("legend"), className="legend"),
        chart(waste("chart"), title, waste("summary"), CHART_PX),
        html.P(id=waste("caption"), className="caption"),
        numbers_view(waste("open"), waste("numbers"), "Same numbers as a table"),
        wide=True,
    )


def _idle_card() -> html.Section:
    return card(
        html.Div(
            [html.H2("Execution-idle by"), choice(waste("by"), BY, "Whose execution-idle energy")],
            className="card-head is-left",
        ),
        html.P(id=waste("idle-summary"), className="summary"),
        html.Div(id=waste("idle")),
        wide=True,
    )


def _held_card() -> html.Section:
    return card(
        html.Div(html.H2("Held, but empty"), className="card-head"),
        html.P(id=waste("held-summary"), className="summary"),
        html.Div(id=waste("held")),
        wide=True,
    )


def register(app: Dash, models: ReadModels) -> None:
    """Add the callbacks of the page."""
    choice_in_url(app, "window", waste("window"), waste("shown-window"))
    choice_in_url(app, "by", waste("by"), waste("shown-by"))

    @app.callback(
        output=OUTPUTS,
        inputs={
            "pulse": Input(shell("pulse"), "data"),
            "scheme": Input(shell("scheme"), "data"),
            "window": Input(waste("window"), "value"),
            "by": Input(waste("by"), "value"),
            "seen": State(waste("seen"), "data"),
        },
    )
    def refresh(pulse: Any, scheme: str, window: str, by: str, seen: Any) -> dict[str, Any]:
        if pulse is None:
            raise PreventUpdate
        return render(models.waste.read(window), (scheme, window, by), seen or {})

    @app.callback(
        Output(waste("numbers"), "children"),
        Input(waste("open"), "n_clicks"),
        Input(waste("seen"), "data"),
        State(waste("window"), "value"),
        prevent_initial_call=True,
    )
    def numbers(clicks: int, _seen: Any, window: str) -> Any:
        only_when_open(clicks)
        found = waste_chart.rows(models.waste.read(window))
        return text_table(waste_chart.COLUMNS, found, "Energy by state and hour")


def render(
    snapshot: WasteSnapshot, shown: tuple[str, str, str], seen: dict[str, str]
) -> dict[str, Any]:
    """Return every output of the page; parts that did not change are left alone.

    Args:
        snapshot: the window.
        shown: theme, window, and by whom the table goes.
        seen: marks of the parts that the browser has.
    """
    scheme, window, by = shown
    if snapshot.as_of_us is None:
        return dict.fromkeys(OUTPUTS, no_update) | {
            "headline": view.headline(snapshot),
            "body_class": "is-hidden",
            "empty_class": "card empty",
        }
    marks = {
        "page": version([snapshot.as_of_us, snapshot.from_us, snapshot.analysed_us, window]),
        "chart": version([snapshot.as_of_us, snapshot.from_us, scheme]),
        "idle": version([snapshot.as_of_us, snapshot.from_us, by]),
    }
    if seen == marks:
        raise PreventUpdate
    out: dict[str, Any] = dict.fromkeys(OUTPUTS, no_update)
    out |= {"body_class": "", "empty_class": "is-hidden", "seen": marks}
    if seen.get("page") != marks["page"]:
        held = waste_tables.held_empty(snapshot)
        out |= {
            "headline": view.headline(snapshot),
            "tiles": [tile(one, waste) for one in view.tiles(snapshot)],
            "legend": legend(snapshot),
            "summary": waste_chart.summary(snapshot),
            "caption": waste_chart.caption(snapshot),
            "held": waste_table(held, "Held, but empty"),
            "held_summary": held.summary,
        }
    if seen.get("chart") != marks["chart"]:
        out["figure"] = waste_chart.figure(snapshot, scheme, window)
    if seen.get("idle") != marks["idle"]:
        idle = waste_tables.execution_idle(snapshot, by if by in BY else "job")
        out["idle"] = waste_table(idle, f"Execution-idle by {by}")
        out["idle_summary"] = idle.summary
    return out


def legend(snapshot: WasteSnapshot) -> list[html.Li]:
    """Return the legend: the energy of each state."""
    return [
        legend_entry(
            swatch(view.look_of(state), state == view.HELD_EMPTY),
            view.LABELS[state],
            text,
            _help(state),
        )
        for state, text in waste_chart.legend(snapshot).items()
    ]


def _help(state: str) -> str:
    return view.HELD_HELP if state == view.HELD_EMPTY else HELP[view.look_of(state)]


def waste_table(found: waste_tables.WasteTable, label: str) -> Any:
    """Return a table of waste; its last row is the sum."""
    if not found.rows:
        return ""
    rows = [[name_cell(name), *cells] for name, cells in found.rows]
    numbers = range(found.texts, len(found.columns))
    return table(found.columns, rows, label, tuple(numbers), closing=1)


PAGE: Final = Page("/waste", "Waste", layout, register)
