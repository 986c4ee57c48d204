"""The shell around every page: navigation, freshness strip, banner, theme, URL."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any, Final

import dash_mantine_components as dmc
from dash import Dash, Input, Output, State, dcc, html

from dashboard import format as fmt
from dashboard.ids import shell
from dashboard.models import Pulse, ReadModels
from dashboard.pages.page import Page
from dashboard.theme import FONT
from dashboard.views.fleet import silent_nodes
from dashboard.wrap import aria, in_browser

TICK_MS: Final = 1_000
PULSE_WINDOW_S: Final = 900

INDEX: Final = """<!DOCTYPE html>
<html lang="en">
    <head>
        {%metas%}
        <title>{%title%}</title>
        {%favicon%}
        {%css%}
    </head>
    <body>
        {%app_entry%}
        <footer>
            {%config%}
            {%scripts%}
            {%renderer%}
        </footer>
    </body>
</html>
"""


def layout(pages: Sequence[Page]) -> dmc.MantineProvider:
    """Return the shell with an empty page in it."""
    return dmc.MantineProvider(
        [
            dcc.Location(id=shell("url"), refresh="callback-nav"),
            dcc.Store(id=shell("pulse")),
            dcc.Store(id=shell("request"), data=0),
            dcc.Store(id=shell("scheme"), data="light"),
            dcc.Store(id=shell("system")),
            dcc.Interval(id=shell("tick"), interval=TICK_MS),
            html.Div(
                [
                    html.A("Skip to the page", href="#main", className="skip"),
                    _header(pages),
                    html.Div(id=shell("banner"), className="banner is-hidden"),
                    html.Main(id="main", tabIndex=-1),
                ],
                id=shell("frame"),
                className="page",
            ),
        ],
        id=shell("provider"),
        forceColorScheme="light",
        theme={"fontFamily": FONT, "primaryColor": "blue"},
    )


def _header(pages: Sequence[Page]) -> html.Header:
    links = [nav_link(page, False) for page in pages if not page.below]
    control = dmc.SegmentedControl(
        id=shell("theme"),
        value="system",
        data=[
            {"value": "system", "label": "System"},
            {"value": "light", "label": "Light"},
            {"value": "dark", "label": "Dark"},
        ],
        size="xs",
        **aria(label="Theme"),
    )
    state = html.Div(
        [
            html.Span("\u25cb", id=shell("shape"), className="shape", **aria(hidden="true")),
            html.Strong("Connecting", id=shell("state"), role="status"),
            html.Span(id=shell("age")),
        ],
        id=shell("freshness"),
        className="freshness is-none",
    )
    return html.Header(
        [
            html.Div(
                [html.Span("idle", className="brand-idle"), html.Span("watt")], className="brand"
            ),
            html.Nav(links, id=shell("nav"), **aria(label="Pages")),
            html.Div(
                [state, html.Span(id=shell("fresh")), html.Span(id=shell("clock"))],
                className="strip",
            ),
            control,
        ],
        className="header",
    )


def register(app: Dash, models: ReadModels, pages: Sequence[Page]) -> None:
    """Add the callbacks of the shell."""
    _register_client(app)

    @app.callback(
        Output(shell("pulse"), "data"),
        Output(shell("fresh"), "children"),
        Output(shell("fresh"), "title"),
        Input(shell("request"), "data"),
    )
    def beat(request: int) -> tuple[dict[str, Any], str, str]:
        snapshot = models.fleet(PULSE_WINDOW_S)
        silent = [] if snapshot.as_of_us is None else silent_nodes(snapshot.gpus, snapshot.as_of_us)
        pulse = snapshot.pulse
        return asdict(pulse) | {"request": request}, freshness(pulse), "\n".join(silent)

    @app.callback(
        Output("main", "children"),
        Output(shell("nav"), "children"),
        Input(shell("url"), "pathname"),
    )
    def route(path: str | None) -> tuple[Any, list[Any]]:
        page = next((one for one in pages if one.handles(path or "/")), None)
        body = missing(path) if page is None else page.layout()
        here = "" if page is None else page.path
        return body, [nav_link(one, one.path == here) for one in pages if not one.below]


def _register_client(app: Dash) -> None:
    in_browser(
        app,
        "tick",
        Output(shell("shape"), "children"),
        Output(shell("state"), "children"),
        Output(shell("freshness"), "className"),
        Output(shell("age"), "children"),
        Output(shell("clock"), "children"),
        Output(shell("banner"), "children"),
        Output(shell("banner"), "className"),
        Output(shell("frame"), "className"),
        Output(shell("request"), "data"),
        Input(shell("tick"), "n_intervals"),
        State(shell("pulse"), "data"),
    )
    in_browser(
        app,
        "scheme",
        Output(shell("scheme"), "data"),
        Output(shell("provider"), "forceColorScheme"),
        Input(shell("theme"), "value"),
        Input(shell("system"), "data"),
        initial=False,
    )
    in_browser(
        app,
        "startChoice",
        Output(shell("theme"), "value"),
        Input(shell("nav"), "id"),
    )


def nav_link(page: Page, current: bool) -> dcc.Link:
    """Return one entry of the navigation."""
    kind = "nav-link is-current" if current else "nav-link"
    return dcc.Link(page.title, href=page.path, className=kind)


def freshness(pulse: Pulse) -> str:
    """Return how many nodes and GPUs report; a triangle stands before it where some do not."""
    if not pulse.gpus:
        return "no node known yet"
    nodes = f"{fmt.count(pulse.nodes_fresh)} of {fmt.plural(pulse.nodes, 'node')}"
    mark = "\u25b2 " if pulse.gpus_fresh < pulse.gpus else ""
    found = f"{fmt.count(pulse.gpus_fresh)} of {fmt.plural(pulse.gpus, 'GPU')}"
    return f"{mark}{nodes} and {found} report"


def missing(path: str | None) -> html.Div:
    """Return the page for a path that is none."""
    return html.Div(
        [
            html.H1("No such page"),
            html.P(["There is nothing at ", html.Code(path or ""), "."]),
            dcc.Link("Go to Fleet", href="/"),
        ],
        className="card empty",
    )
