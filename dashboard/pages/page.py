"""What a page is, and the pieces that pages share."""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, cast

import dash_mantine_components as dmc
from dash import Dash, dcc, html
from dash.exceptions import PreventUpdate

from dashboard import theme
from dashboard.models import ReadModels
from dashboard.theme import LABELS, LETTERS, Look
from dashboard.views.parts import Tile
from dashboard.wrap import aria


@dataclass(frozen=True, slots=True)
class Page:
    """One page of the web app.

    Attributes:
        path: URL path.
        title: name in the navigation and in the browser's tab.
        layout: returns its components.
        register: adds its callbacks.
        below: True where the page answers every path below `path`, and stands in no navigation.
    """

    path: str
    title: str
    layout: Callable[[], html.Div]
    register: Callable[[Dash, ReadModels], None]
    below: bool = False

    def handles(self, path: str) -> bool:
        """Return True where this page answers the path."""
        return path.startswith(f"{self.path}/") if self.below else path == self.path


def table(
    columns: Sequence[str], rows: Sequence[Sequence[Any]], label: str, numbers: Sequence[int] = ()
) -> html.Div:
    """Return a table that scrolls by itself and can be reached by keyboard.

    Args:
        columns: headers with units.
        rows: cells, as text or components.
        label: what the table is, for screen readers.
        numbers: columns that stand right.
    """
    right = set(numbers)

    def cell(kind: Any, at: int, value: Any, **more: Any) -> Any:
        return kind(value, className="number" if at in right else "", **more)

    head = html.Thead(html.Tr([cell(html.Th, at, c, scope="col") for at, c in enumerate(columns)]))
    body = html.Tbody(
        [html.Tr([cell(html.Td, at, value) for at, value in enumerate(row)]) for row in rows]
    )
    return html.Div(
        html.Table([head, body], className="table"),
        className="table-scroll",
        tabIndex=0,
        role="region",
        **aria(label=label),
    )


def text_table(
    columns: Sequence[str], rows: Sequence[Sequence[str]], label: str, texts: int = 1
) -> html.Div:
    """Return a long table of plain text as one component: many small ones draw slowly.

    Args:
        columns: headers with units.
        rows: cells.
        label: what the table is, for screen readers.
        texts: how many columns stand left; the others are numbers and stand right.
    """
    return html.Div(
        dmc.Table(
            data={"head": list(columns), "body": [list(row) for row in rows]},
            className=f"table has-{texts}-texts",
            withRowBorders=False,
        ),
        className="table-scroll",
        tabIndex=0,
        role="region",
        **aria(label=label),
    )


def chart(graph_id: str, label: str, described_by: str, height_px: int) -> html.Div:
    """Return an empty graph with the one configuration, named for screen readers."""
    return html.Div(
        dcc.Graph(
            id=graph_id,
            figure={"data": [], "layout": theme.layout("light", height=height_px)},
            config=cast(Any, theme.GRAPH_CONFIG),
            clear_on_unhover=True,
            style={"height": f"{height_px}px"},
        ),
        role="group",
        className="chart",
        **aria(label=label, describedby=described_by),
    )


def numbers_view(summary_id: str, body_id: str, text: str) -> html.Details:
    """Return the collapsed table view of a chart; its rows are made when it is opened."""
    return html.Details(
        [html.Summary(text, id=summary_id, n_clicks=0), html.Div(id=body_id)],
        className="numbers",
    )


def version(value: Any) -> str:
    """Return a short mark that changes when the value does."""
    return f"{zlib.crc32(json.dumps(value, sort_keys=True, default=str).encode()):08x}"


def card(title: Any, *parts: Any, wide: bool = False) -> html.Section:
    """Return one card of a page; a wide one takes a row of its own."""
    return html.Section([title, *parts], className="card is-wide" if wide else "card")


def only_when_open(clicks: int | None) -> None:
    """Leave the numbers of a closed table alone.

    Raises:
        PreventUpdate: it is closed.
    """
    if not clicks or clicks % 2 == 0:
        raise PreventUpdate


def tile(one: Tile, id_of: Callable[[str], str]) -> html.Div:
    """Return one tile; its definition shows on hover and is read out with it."""
    mark = [swatch(one.look)] if one.look else []
    bar = []
    if one.level is not None:
        width = f"{min(max(one.level, 0), 1) * 100:.1f}%"
        bar = [html.Div(html.Div(style={"width": width}), className="bar")]
    return html.Div(
        [
            html.Div([*mark, html.H2(one.title)], className="tile-title"),
            html.Div(one.value, className="tile-value"),
            *bar,
            html.Div(one.note, className="tile-note"),
            html.Div(one.help, className="tile-help", role="tooltip"),
        ],
        className="tile",
        id=id_of(f"tile-{one.key}"),
        tabIndex=0,
        role="group",
        **aria(label=f"{one.title}: {one.value}, {one.note}"),
    )


def swatch(look: Look) -> html.Span:
    """Return the mark of a look: colour and letter; *no data* is an outline with a stroke."""
    return html.Span(LETTERS[look], className=f"swatch is-{look.value}", **aria(hidden="true"))


def legend(found: dict[Look, str]) -> list[html.Li]:
    """Return the legend of states, each with its live number."""
    return [
        html.Li(
            [swatch(look), html.Span(LABELS[look]), html.B(text)],
            title=theme.HELP[look],
        )
        for look, text in found.items()
    ]
