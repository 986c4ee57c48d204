"""Job: did I use what I asked for, and what should I change?"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from dash import Dash, Input, Output, State, dcc, html, no_update
from dash.exceptions import PreventUpdate

from dashboard.ids import job, shell
from dashboard.job_model import JobSnapshot
from dashboard.models import ReadModels
from dashboard.pages.job_tables import gpu_table, gpus_summary, mark, where, words
from dashboard.pages.page import (
    Page,
    card,
    chart,
    legend_entry,
    numbers_view,
    only_when_open,
    text_table,
    tile,
    tip,
    tip_body,
    version,
)
from dashboard.views import fleet_band, job_course, waste
from dashboard.views import job as view
from dashboard.views.job import JobNumbers
from dashboard.views.job_verdict import notes, verdict
from dashboard.views.parts import JOBS_PATH, job_of_path

ROW_PX: Final = 26
COURSE_PX: Final = (130, 620)
BAND_PX: Final = 260
OUTPUTS: Final[dict[str, Output]] = {
    "title": Output(job("title"), "children"),
    "who": Output(job("who"), "children"),
    "verdict": Output(job("verdict"), "children"),
    "tiles": Output(job("tiles"), "children"),
    "body_class": Output(job("body"), "className"),
    "empty_class": Output(job("empty"), "className"),
    "empty": Output(job("empty-text"), "children"),
    "notes": Output(job("notes"), "children"),
    "where": Output(job("where"), "children"),
    "course": Output(job("course"), "figure"),
    "course_style": Output(job("course"), "style"),
    "course_summary": Output(job("course-summary"), "children"),
    "course_caption": Output(job("course-caption"), "children"),
    "legend": Output(job("legend"), "children"),
    "band": Output(job("band"), "figure"),
    "band_summary": Output(job("band-summary"), "children"),
    "band_caption": Output(job("band-caption"), "children"),
    "gpus": Output(job("gpus"), "children"),
    "gpus_summary": Output(job("gpus-summary"), "children"),
    "seen": Output(job("seen"), "data"),
}


def layout() -> html.Div:
    """Return the page, empty until its first snapshot."""
    return html.Div(
        [
            dcc.Store(id=job("seen")),
            html.Div(
                [
                    html.H1("Job", id=job("title")),
                    html.P("Looking the job up\u2026", id=job("who")),
                ],
                className="page-head",
            ),
            html.Div(
                [
                    html.H2("No such job"),
                    html.P(id=job("empty-text")),
                    dcc.Link("Search all jobs", href=f"{JOBS_PATH}?window=all"),
                ],
                id=job("empty"),
                className="is-hidden",
            ),
            html.Div(
                [
                    html.Div(id=job("tiles"), className="tiles"),
                    html.Div([_verdict_card(), _where_card()], className="cards"),
                    _course_card(),
                    _band_card(),
                    _gpus_card(),
                ],
                id=job("body"),
                className="is-hidden",
            ),
        ]
    )


def _verdict_card() -> html.Section:
    return card(
        html.Div(html.H2("What happened"), className="card-head"),
        html.P(id=job("verdict"), className="verdict"),
        html.Div(html.H2("What to do"), className="card-head"),
        html.Ul(id=job("notes"), className="notes"),
    )


def _where_card() -> html.Section:
    return card(
        html.Div(html.H2("Where the GPU time and the energy went"), className="card-head"),
        html.Div(id=job("where")),
    )


def _course_card() -> html.Section:
    title = "State of each GPU over time"
    return card(
        html.Div(html.H2(title), className="card-head"),
        html.P(id=job("course-summary"), className="summary"),
        html.Ul(id=job("legend"), className="legend"),
        html.Div(
            [chart(job("course"), title, job("course-summary"), COURSE_PX[0]), tip(job("tip"))],
            className="map-box",
        ),
        html.P(id=job("course-caption"), className="caption"),
        numbers_view(job("course-open"), job("course-table"), "Same numbers as a table"),
        wide=True,
    )


def _band_card() -> html.Section:
    title = "Power of its GPUs"
    return card(
        html.Div(html.H2(title), className="card-head"),
        html.P(id=job("band-summary"), className="summary"),
        chart(job("band"), title, job("band-summary"), BAND_PX),
        html.P(id=job("band-caption"), className="caption"),
        numbers_view(job("band-open"), job("band-table"), "Same numbers as a table"),
        wide=True,
    )


def _gpus_card() -> html.Section:
    return card(
        html.Div(html.H2("GPUs, the idlest first"), className="card-head"),
        html.P(id=job("gpus-summary"), className="summary"),
        html.Div(id=job("gpus")),
        wide=True,
    )


def register(app: Dash, models: ReadModels) -> None:
    """Add the callbacks of the page."""

    def snapshot_of(path: str | None) -> JobSnapshot:
        key = job_of_path(path)
        if key is None:
            raise PreventUpdate
        return models.jobs.read(key)

    @app.callback(
        output=OUTPUTS,
        inputs={
            "pulse": Input(shell("pulse"), "data"),
            "scheme": Input(shell("scheme"), "data"),
            "path": Input(shell("url"), "pathname"),
            "seen": State(job("seen"), "data"),
        },
    )
    def refresh(pulse: Any, scheme: str, path: str | None, seen: Any) -> dict[str, Any]:
        if pulse is None:
            raise PreventUpdate
        return render(snapshot_of(path), scheme, seen or {})

    @app.callback(
        Output(job("tip"), "show"),
        Output(job("tip"), "bbox"),
        Output(job("tip"), "children"),
        Input(job("course"), "hoverData"),
        State(shell("url"), "pathname"),
        prevent_initial_call=True,
    )
    def hover(hovered: Any, path: str | None) -> tuple[bool, Any, Any]:
        return tooltip(hovered, snapshot_of(path))

    @app.callback(
        Output(job("course-table"), "children"),
        Input(job("course-open"), "n_clicks"),
        Input(job("seen"), "data"),
        State(shell("url"), "pathname"),
        prevent_initial_call=True,
    )
    def course_table(clicks: int, _seen: Any, path: str | None) -> Any:
        only_when_open(clicks)
        snapshot = snapshot_of(path)
        course = job_course.course(snapshot, view.numbers(snapshot))
        found = [] if course is None else job_course.rows(course)
        return text_table(job_course.TABLE, found, "GPU time per state over time")

    @app.callback(
        Output(job("band-table"), "children"),
        Input(job("band-open"), "n_clicks"),
        Input(job("seen"), "data"),
        State(shell("url"), "pathname"),
        prevent_initial_call=True,
    )
    def band_table(clicks: int, _seen: Any, path: str | None) -> Any:
        only_when_open(clicks)
        band = job_course.band_of(snapshot_of(path))
        found = [] if band is None else fleet_band.rows(band)
        return text_table(fleet_band.COLUMNS, found, "Power per bucket")


def render(snapshot: JobSnapshot, scheme: str, seen: dict[str, str]) -> dict[str, Any]:
    """Return every output of the page; parts that did not change are left alone."""
    out: dict[str, Any] = dict.fromkeys(OUTPUTS, no_update)
    if not snapshot.exists:
        return out | {
            "title": "Job",
            "who": "",
            "empty": [
                "Nothing is known of ",
                html.Code(snapshot.key),
                ". Keys read cluster:id:attempt; the scheduler's number alone is not enough.",
            ],
            "body_class": "is-hidden",
            "empty_class": "card empty",
            "seen": {},
        }
    found = view.numbers(snapshot)
    text, todo = verdict(snapshot, found), notes(snapshot, found)
    marks = {
        "page": version([snapshot.key, text, todo, str(view.tiles(snapshot, found))]),
        "course": version([snapshot.key, _course_mark(snapshot), scheme]),
        "band": version([snapshot.key, _band_mark(snapshot), scheme]),
    }
    if seen == marks:
        raise PreventUpdate
    out |= {"body_class": "", "empty_class": "is-hidden", "seen": marks}
    if seen.get("page") != marks["page"]:
        out |= {
            "title": view.title(snapshot),
            "who": _who(snapshot, found),
            "verdict": text,
            "tiles": [tile(one, job) for one in view.tiles(snapshot, found)],
            "notes": [html.Li(note) for note in todo],
            "where": where(found),
            "gpus": gpu_table(found),
            "gpus_summary": gpus_summary(found),
        }
    if seen.get("course") != marks["course"]:
        _render_course(out, snapshot, found, scheme)
    if seen.get("band") != marks["band"]:
        _render_band(out, snapshot, scheme)
    return out


def _course_mark(snapshot: JobSnapshot) -> list[Any]:
    intervals = snapshot.intervals
    newest = None if intervals.is_empty() else str(intervals["last_ts_utc"].max())
    return [snapshot.shown_us if newest is None else None, newest, intervals.height]


def _band_mark(snapshot: JobSnapshot) -> list[Any]:
    return [snapshot.shown_us, snapshot.pending_hours]


def _render_course(
    out: dict[str, Any], snapshot: JobSnapshot, found: JobNumbers, scheme: str
) -> None:
    course = job_course.course(snapshot, found)
    if course is None:
        out["course_summary"] = "It never held a GPU."
        return
    low, high = COURSE_PX
    height = min(max(len(course.names) * ROW_PX + 56, low), high)
    out["course"] = job_course.figure(course, scheme)
    out["course_style"] = {"height": f"{height}px"}
    out["course_summary"] = job_course.summary(found)
    out["course_caption"] = job_course.caption(course, snapshot)
    out["legend"] = [
        legend_entry(mark(state), waste.LABELS[state], text, words(state))
        for state, text in job_course.legend(found).items()
    ]


def _render_band(out: dict[str, Any], snapshot: JobSnapshot, scheme: str) -> None:
    band = job_course.band_of(snapshot)
    if band is None:
        out["band_summary"] = "No power to show."
        return
    out["band"] = job_course.aligned(fleet_band.figure(band, scheme, snapshot.key))
    out["band_summary"] = fleet_band.summary(band, snapshot.pending_hours)
    out["band_caption"] = fleet_band.caption(band)


def _who(snapshot: JobSnapshot, found: JobNumbers) -> list[Any]:
    pairs = [pair for pair in view.header(snapshot, found) if pair[1] != "not known"]
    return [
        html.Span([html.Span(f"{label} ", className="dim"), html.Span(text)], className="fact")
        for label, text in pairs
    ]


def tooltip(hovered: Any, snapshot: JobSnapshot) -> tuple[bool, Any, Any]:
    """Return whether the tooltip shows, where, and what it says."""
    points = (hovered or {}).get("points") or []
    if not points or not snapshot.exists:
        return False, no_update, no_update
    course = job_course.course(snapshot, view.numbers(snapshot))
    if course is None:
        return False, no_update, no_update
    stamp = np.datetime64(str(points[0]["x"]).rstrip("Z").replace(" ", "T"), "us")
    lines = job_course.describe(course, round(points[0]["y"]), int(stamp.astype(np.int64)))
    if not lines:
        return False, no_update, no_update
    return True, points[0]["bbox"], tip_body(lines)


PAGE: Final = Page(JOBS_PATH, "Job", layout, register, below=True)
