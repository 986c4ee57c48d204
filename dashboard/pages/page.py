"""What a page is, and the pieces that pages share."""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, cast

import dash_mantine_components as dmc
from dash import Dash, Input, Output, State, dcc, html
from dash.exceptions import PreventUpdate

from dashboard import theme
from dashboard.ids import shell
from dashboard.models import ReadModels
from dashboard.theme import HELP, LABELS, LETTERS, Look
from dashboard.views.parts import Name, Tile
from dashboard.wrap import aria, in_browser


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
    columns: Sequence[str],
    rows: Sequence[Sequence[Any]],
    label: str,
    numbers: Sequence[int] = (),
    closing: int = 0,
) -> html.Div:
    """Return a table that scrolls by itself and can be reached by keyboard.

    Args:
        columns: headers with units.
        rows: cells, as text or components.
        label: what the table is, for screen readers.
        numbers: columns that stand right.
        closing: how many rows at the end are sums.
    """
    right = set(numbers)
    sums = len(rows) - closing

    def cell(kind: Any, at: int, value: Any, **more: Any) -> Any:
        return kind(value, className="number" if at in right else "", **more)

    head = html.Thead(html.Tr([cell(html.Th, at, c, scope="col") for at, c in enumerate(columns)]))
    body = html.Tbody(
        [
            html.Tr(
                [cell(html.Td, at, value) for at, value in enumerate(row)],
                className="is-sum" if number >= sums else "",
            )
            for number, row in enumerate(rows)
        ]
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
    mark = [swatch(one.look, one.held)] if one.look else []
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


def swatch(look: Look, held: bool = False) -> html.Span:
    """Return the mark of a look: colour and letter; *no data* is an outline with a stroke.

    Args:
        look: state.
        held: a job holds the GPU empty: deep idle with strokes.
    """
    if held:
        return html.Span("H", className="swatch is-held_empty", **aria(hidden="true"))
    return html.Span(LETTERS[look], className=f"swatch is-{look.value}", **aria(hidden="true"))


def legend(found: dict[Look, str]) -> list[html.Li]:
    """Return the legend of states, each with its live number."""
    return [
        legend_entry(swatch(look), LABELS[look], text, HELP[look]) for look, text in found.items()
    ]


def legend_entry(mark: html.Span, label: str, text: str, words: str) -> html.Li:
    """Return one entry of a legend; `words` show on hover."""
    return html.Li([mark, html.Span(label), html.B(text)], title=words)


def choice(control_id: str, options: dict[str, str], label: str) -> dmc.SegmentedControl:
    """Return a control with few options; the first is the usual one."""
    return dmc.SegmentedControl(
        id=control_id,
        value=next(iter(options)),
        data=[{"value": key, "label": text} for key, text in options.items()],
        size="xs",
        **aria(label=label),
    )


def choice_in_url(app: Dash, parameter: str, control_id: str, shown_id: str) -> None:
    """Tie a control to a parameter of the URL, both ways.

    Args:
        app: the web app.
        parameter: `window` or `by`; its functions stand in `assets/idlewatt.js`.
        control_id: the control.
        shown_id: a store that takes what was written.
    """
    word = parameter.capitalize()
    in_browser(
        app,
        f"read{word}",
        Output(control_id, "value"),
        Input(shell("url"), "search"),
        State(control_id, "value"),
        State(control_id, "data"),
    )
    in_browser(
        app,
        f"write{word}",
        Output(shown_id, "data"),
        Input(control_id, "value"),
        State(control_id, "data"),
        initial=False,
    )


def name_cell(name: Name) -> html.Div:
    """Return the first cell of a row: a name, or a link, and what stands small below it."""
    head = dcc.Link(name.text, href=name.href) if name.href else html.B(name.text)
    below = [html.Span(name.below, className="dim")] if name.below else []
    return html.Div([head, *below], className="job")


def empty(empty_id: str) -> html.Div:
    """Return what a page shows before its first sample."""
    return html.Div(
        [
            html.H2("No samples yet"),
            html.P("The page fills by itself as soon as a node reports. To start one:"),
            html.Ul(
                [
                    html.Li(["on a GPU node: ", html.Code("idlewatt agent")]),
                    html.Li(["without a GPU, a simulated fleet: ", html.Code("idlewatt demo")]),
                ]
            ),
        ],
        id=empty_id,
        className="is-hidden",
    )


def tip(tip_id: str) -> dcc.Tooltip:
    """Return the tooltip of a chart, in the theme's colours."""
    return dcc.Tooltip(
        id=tip_id,
        direction="top",
        className="tip",
        background_color="var(--panel)",
        border_color="var(--outline)",
    )


def tip_body(lines: Sequence[tuple[str, str]]) -> html.Dl:
    """Return what a tooltip says, as label and text."""
    return html.Dl([part for name, text in lines for part in (html.Dt(name), html.Dd(text))])


def state_bar(parts: Sequence[tuple[str, float]], text: str, large: bool = False) -> html.Div:
    """Return a bar of states; what is left of it was not seen.

    Args:
        parts: (state, share of the whole), in order.
        text: the same in words, for hover and screen readers.
        large: True for a bar of its own, False for one in a row of a table.
    """
    return html.Div(
        [
            html.Div(style={"width": f"{share * 100:.2f}%"}, className=f"part is-{state}")
            for state, share in parts
            if share > 0
        ],
        className="states is-large" if large else "states",
        title=text,
        role="img",
        **aria(label=text),
    )
