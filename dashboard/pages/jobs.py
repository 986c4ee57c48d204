"""Jobs: which jobs need attention?"""

from __future__ import annotations

from typing import Any, Final

import dash_mantine_components as dmc
from dash import Dash, Input, Output, State, dcc, html, no_update
from dash.exceptions import PreventUpdate

from dashboard.ids import jobs, shell
from dashboard.job_model import JobList
from dashboard.models import ReadModels
from dashboard.pages.page import (
    Page,
    card,
    choice,
    choice_in_url,
    name_cell,
    state_bar,
    table,
    version,
)
from dashboard.views import jobs as view
from dashboard.views.parts import JOBS_PATH
from dashboard.wrap import aria, in_browser

WINDOWS: Final = {"24h": "24 h", "7d": "7 d", "all": "All"}
TYPING_MS: Final = 350
OUTPUTS: Final[dict[str, Output]] = {
    "summary": Output(jobs("summary"), "children"),
    "table": Output(jobs("table"), "children"),
    "seen": Output(jobs("seen"), "data"),
}


def layout() -> html.Div:
    """Return the page, empty until its first answer."""
    search = dmc.TextInput(
        id=jobs("search"),
        value="",
        debounce=TYPING_MS,
        placeholder="id, name, user, project or class",
        size="xs",
        className="search",
        **aria(label="Search jobs"),
    )
    return html.Div(
        [
            dcc.Store(id=jobs("seen")),
            dcc.Store(id=jobs("shown-window")),
            dcc.Store(id=jobs("shown-search")),
            html.Div(
                [
                    html.Div(
                        [
                            html.H1("Jobs"),
                            html.Div(
                                [search, choice(jobs("window"), WINDOWS, "Window of the page")],
                                className="controls",
                            ),
                        ],
                        className="card-head",
                    ),
                    html.P("Looking up jobs\u2026", id=jobs("summary")),
                ],
                className="page-head",
            ),
            card(html.Div(id=jobs("table")), wide=True),
        ]
    )


def register(app: Dash, models: ReadModels) -> None:
    """Add the callbacks of the page."""
    choice_in_url(app, "window", jobs("window"), jobs("shown-window"))
    in_browser(
        app,
        "readSearch",
        Output(jobs("search"), "value"),
        Input(shell("url"), "search"),
        State(jobs("search"), "value"),
    )
    in_browser(
        app,
        "writeSearch",
        Output(jobs("shown-search"), "data"),
        Input(jobs("search"), "value"),
        initial=False,
    )

    @app.callback(
        output=OUTPUTS,
        inputs={
            "pulse": Input(shell("pulse"), "data"),
            "window": Input(jobs("window"), "value"),
            "text": Input(jobs("search"), "value"),
            "seen": State(jobs("seen"), "data"),
        },
    )
    def refresh(pulse: Any, window: str, text: str | None, seen: Any) -> dict[str, Any]:
        if pulse is None:
            raise PreventUpdate
        return render(models.jobs.search((text or "").strip()[:200], window), seen)


def render(found: JobList, seen: str | None) -> dict[str, Any]:
    """Return every output of the page; nothing where nothing changed."""
    rows = view.rows(found)
    summary = view.summary(found)
    mark = version([summary, [str(row) for row in rows]])
    if mark == seen:
        raise PreventUpdate
    return {"summary": summary, "table": jobs_table(rows), "seen": mark} | (
        {"seen": no_update} if found.as_of_us is None else {}
    )


def jobs_table(rows: list[view.JobRow]) -> Any:
    """Return the table; empty where there is no job."""
    if not rows:
        return html.P("Nothing to show. Try another window or another word.", className="dim")
    cells = [
        [name_cell(row.name), *row.words, state_bar(row.states, row.states_text), *row.cells]
        for row in rows
    ]
    return table(view.COLUMNS, cells, "Jobs", view.NUMBERS)


PAGE: Final = Page(JOBS_PATH, "Jobs", layout, register)
