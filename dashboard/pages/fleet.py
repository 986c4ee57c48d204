"""Fleet: is the floor all right now, and how near the limit are we?"""

from __future__ import annotations

from typing import Any, Final

from dash import Dash, Input, Output, State, dcc, html, no_update
from dash.exceptions import PreventUpdate

from dashboard import format as fmt
from dashboard.ids import fleet, shell
from dashboard.models import FleetSnapshot, ReadModels
from dashboard.pages.page import (
    Page,
    card,
    chart,
    choice,
    choice_in_url,
    empty,
    legend,
    name_cell,
    numbers_view,
    only_when_open,
    swatch,
    table,
    text_table,
    tile,
    tip,
    tip_body,
    version,
)
from dashboard.theme import Look
from dashboard.views import fleet as view
from dashboard.views import fleet_band, fleet_map, fleet_waste
from dashboard.views.parts import Name

BAND_PX: Final = 340
ROW_PX: Final = 44
FEW_ROWS_PX: Final = 300
MAP_PX: Final = (150, 460)
OUTPUTS: Final[dict[str, Output]] = {
    "headline": Output(fleet("headline"), "children"),
    "tiles": Output(fleet("tiles"), "children"),
    "body_class": Output(fleet("body"), "className"),
    "empty_class": Output(fleet("empty"), "className"),
    "map_figure": Output(fleet("map"), "figure"),
    "map_style": Output(fleet("map"), "style"),
    "map_title": Output(fleet("map-title"), "children"),
    "map_summary": Output(fleet("map-summary"), "children"),
    "legend": Output(fleet("legend"), "children"),
    "band_figure": Output(fleet("band"), "figure"),
    "band_summary": Output(fleet("band-summary"), "children"),
    "band_caption": Output(fleet("band-caption"), "children"),
    "waste": Output(fleet("waste"), "children"),
    "waste_summary": Output(fleet("waste-summary"), "children"),
    "seen": Output(fleet("seen"), "data"),
}


def layout() -> html.Div:
    """Return the page, empty until its first snapshot."""
    return html.Div(
        [
            dcc.Store(id=fleet("seen")),
            dcc.Store(id=fleet("shown-window")),
            html.Div(
                [
                    html.H1("Fleet"),
                    html.P("Reading the newest second\u2026", id=fleet("headline")),
                ],
                className="page-head",
            ),
            empty(fleet("empty")),
            html.Div(
                [
                    html.Div(id=fleet("tiles"), className="tiles"),
                    html.Div([_map_card(), _band_card()], className="cards"),
                    _waste_card(),
                ],
                id=fleet("body"),
                className="is-hidden",
            ),
        ]
    )


def _map_card() -> html.Section:
    title = "State of every GPU now"
    return card(
        html.Div(html.H2(title, id=fleet("map-title")), className="card-head"),
        html.P(id=fleet("map-summary"), className="summary"),
        html.Ul(id=fleet("legend"), className="legend"),
        html.Div(
            [
                chart(fleet("map"), title, fleet("map-summary"), MAP_PX[0]),
                tip(fleet("tip")),
            ],
            className="map-box",
        ),
        numbers_view(fleet("map-open"), fleet("map-table"), "Same numbers as a table"),
    )


def _band_card() -> html.Section:
    control = choice(
        fleet("window"),
        {key: text for key, (_, text) in fleet_band.WINDOWS.items()},
        "Window of the power chart",
    )
    title = "GPU power against the limit"
    return card(
        html.Div([html.H2(title), control], className="card-head"),
        html.P(id=fleet("band-summary"), className="summary"),
        chart(fleet("band"), title, fleet("band-summary"), BAND_PX),
        html.P(id=fleet("band-caption"), className="caption"),
        numbers_view(fleet("band-open"), fleet("band-table"), "Same numbers as a table"),
    )


def _waste_card() -> html.Section:
    return card(
        html.Div(html.H2("Top waste, last 24 h"), className="card-head"),
        html.P(id=fleet("waste-summary"), className="summary"),
        html.Div(id=fleet("waste")),
        wide=True,
    )


def register(app: Dash, models: ReadModels) -> None:
    """Add the callbacks of the page."""
    choice_in_url(app, "window", fleet("window"), fleet("shown-window"))

    @app.callback(
        output=OUTPUTS,
        inputs={
            "pulse": Input(shell("pulse"), "data"),
            "scheme": Input(shell("scheme"), "data"),
            "window": Input(fleet("window"), "value"),
            "seen": State(fleet("seen"), "data"),
        },
    )
    def refresh(pulse: Any, scheme: str, window: str, seen: Any) -> dict[str, Any]:
        snapshot = _snapshot(models, pulse, window)
        return render(snapshot, scheme, seen or {}, window)

    @app.callback(
        Output(fleet("tip"), "show"),
        Output(fleet("tip"), "bbox"),
        Output(fleet("tip"), "children"),
        Input(fleet("map"), "hoverData"),
        State(shell("pulse"), "data"),
        prevent_initial_call=True,
    )
    def hover(hovered: Any, pulse: Any) -> tuple[bool, Any, Any]:
        gpus = _snapshot(models, pulse, fleet_band.DEFAULT_WINDOW).gpus
        return tooltip(hovered, gpus)

    @app.callback(
        Output(fleet("map-table"), "children"),
        Input(fleet("map-open"), "n_clicks"),
        Input(shell("pulse"), "data"),
        prevent_initial_call=True,
    )
    def map_table(clicks: int, pulse: Any) -> Any:
        only_when_open(clicks)
        gpus = _snapshot(models, pulse, fleet_band.DEFAULT_WINDOW).gpus
        found = fleet_map.rows(gpus)
        return text_table(fleet_map.COLUMNS, found, "State of every node", 2)

    @app.callback(
        Output(fleet("band-table"), "children"),
        Input(fleet("band-open"), "n_clicks"),
        Input(fleet("seen"), "data"),
        State(shell("pulse"), "data"),
        State(fleet("window"), "value"),
        prevent_initial_call=True,
    )
    def band_table(clicks: int, _seen: Any, pulse: Any, window: str) -> Any:
        only_when_open(clicks)
        band = view.band_of(_snapshot(models, pulse, window))
        found = [] if band is None else fleet_band.rows(band)
        return text_table(fleet_band.COLUMNS, found, "Power per bucket")


def _snapshot(models: ReadModels, pulse: Any, window: str) -> FleetSnapshot:
    if pulse is None:
        raise PreventUpdate
    window_s = fleet_band.WINDOWS.get(window, fleet_band.WINDOWS[fleet_band.DEFAULT_WINDOW])[0]
    return models.fleet(window_s, pulse["as_of_us"])


def render(
    snapshot: FleetSnapshot, scheme: str, seen: dict[str, str], window: str
) -> dict[str, Any]:
    """Return every output of the page; parts that did not change are left alone."""
    if snapshot.as_of_us is None:
        return dict.fromkeys(OUTPUTS, no_update) | {
            "headline": view.headline(snapshot),
            "body_class": "is-hidden",
            "empty_class": "card empty",
        }
    out: dict[str, Any] = {
        "headline": view.headline(snapshot),
        "tiles": [tile(one, fleet) for one in view.tiles(snapshot)],
        "body_class": "",
        "empty_class": "is-hidden",
    }
    marks = {
        "map": _render_map(out, snapshot, scheme),
        "band": _render_band(out, snapshot, scheme, window),
        "waste": _render_waste(out, snapshot),
    }
    for part, names in PARTS.items():
        if seen.get(part) == marks[part]:
            out |= dict.fromkeys(names, no_update)
    return out | {"seen": marks}


PARTS: Final = {
    "map": ("map_figure", "map_style"),
    "band": ("band_figure",),
    "waste": ("waste",),
}


def _render_map(out: dict[str, Any], snapshot: FleetSnapshot, scheme: str) -> str:
    cells = fleet_map.fleet_map(snapshot.gpus)
    low, high = MAP_PX
    rows = len(cells.rows)
    row_px = max(ROW_PX, min(FEW_ROWS_PX // max(rows, 1), 2 * ROW_PX))
    height = min(max(rows * row_px + 20, low), high)
    out["map_figure"] = fleet_map.figure(cells, scheme)
    out["map_style"] = {"height": f"{height}px"}
    out["map_title"] = f"State of every GPU now, by {cells.by}"
    out["map_summary"] = fleet_map.summary(snapshot.gpus)
    found = fleet_map.counts(snapshot.gpus)
    out["legend"] = legend({look: fmt.count(number) for look, number in found.items()})
    return version([out["map_figure"], height])


def _render_band(out: dict[str, Any], snapshot: FleetSnapshot, scheme: str, window: str) -> str:
    band = view.band_of(snapshot)
    if band is None:
        raise PreventUpdate
    out["band_figure"] = fleet_band.figure(band, scheme, window)
    out["band_summary"] = fleet_band.summary(band, snapshot.pending_hours)
    out["band_caption"] = fleet_band.caption(band)
    return version(out["band_figure"])


def _render_waste(out: dict[str, Any], snapshot: FleetSnapshot) -> str:
    found = fleet_waste.rows(snapshot.waste, snapshot.as_of_us)
    out["waste"] = waste_table(found) if found else ""
    out["waste_summary"] = fleet_waste.summary(snapshot.waste, snapshot.as_of_us)
    return version([vars_of(row) for row in found])


def vars_of(row: fleet_waste.WasteRow) -> list[str]:
    """Return the cells of a row as plain text."""
    return [str(getattr(row, name)) for name in row.__dataclass_fields__]


def waste_table(found: list[fleet_waste.WasteRow]) -> html.Div:
    """Return the table of waste."""
    cells = []
    for row in found:
        look = Look.DEEP_IDLE if row.kind.startswith("Held") else Look.EXECUTION_IDLE
        job = name_cell(Name(row.job, row.name, row.href))
        kind = html.Span([swatch(look), row.kind], className="kind")
        since = html.Span(row.since, className="is-ongoing" if row.ongoing else "dim")
        step = html.Span(row.next_step, className="step")
        cells.append([job, row.owner, kind, row.gpus, row.time, row.energy, row.share, since, step])
    return table(fleet_waste.COLUMNS, cells, "Top waste", (3, 4, 5, 6))


def tooltip(hovered: Any, gpus: Any) -> tuple[bool, Any, Any]:
    """Return whether the tooltip shows, where, and what it says."""
    points = (hovered or {}).get("points") or []
    if not points or points[0].get("curveNumber") != 0 or gpus.is_empty():
        return False, no_update, no_update
    cells = fleet_map.fleet_map(gpus)
    row, column = round(points[0]["y"]), round(points[0]["x"])
    height, width = cells.index.shape
    if not (0 <= row < height and 0 <= column < width) or cells.index[row, column] < 0:
        return False, no_update, no_update
    lines = fleet_map.describe(gpus, int(cells.index[row, column]))
    return True, points[0]["bbox"], tip_body(lines)


PAGE: Final = Page("/", "Fleet", layout, register)
