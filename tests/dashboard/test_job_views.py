"""One job: numbers, verdict, notes, course over time, and the report as text."""

from __future__ import annotations

import datetime as dt
import json
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from dash.exceptions import PreventUpdate
from hypothesis import given
from hypothesis import strategies as st

from dashboard import format as fmt
from dashboard import theme
from dashboard.job_model import JobList, JobSnapshot, expected_gpus
from dashboard.pages import jobs as jobs_page
from dashboard.pages.job import render, tooltip
from dashboard.seconds import Seconds
from dashboard.theme import Look
from dashboard.views import fleet_band, job, job_course, job_report, jobs
from dashboard.views.job import GpuNumbers, JobNumbers
from dashboard.views.job_verdict import notes, verdict
from dashboard.views.parts import job_of_path, job_path
from dashboard.waste_model import NO_PRICE
from idlewatt.clock import us_from_utc

S = 1_000_000
HOUR_MS = 3_600_000
GOLDEN = Path(__file__).parent / "golden" / "job-104.txt"
UTC = dt.UTC


@pytest.fixture
def shot(filled: Any, make_models: Callable[..., Any]) -> JobSnapshot:
    found: JobSnapshot = make_models(filled)[0].jobs.read("alpha:104:0")
    return found


def utc(hour: int, us: int = 0) -> dt.datetime:
    """Return a time as the warehouse gives it: UTC without saying so."""
    return dt.datetime(2026, 5, 4, hour, 0, 0, us, tzinfo=UTC).replace(tzinfo=None)


def gpu(**ms: int) -> GpuNumbers:
    times = dict.fromkeys(job.STATES, 0) | ms
    kwh = {state: value / HOUR_MS * 0.1 for state, value in times.items()}
    return GpuNumbers("GPU", "n", 0, "H100", sum(times.values()), times, kwh, 0.0, 100.0)


def numbers(*gpus: GpuNumbers, **more: Any) -> JobNumbers:
    ms = {state: sum(one.ms[state] for one in gpus) for state in job.STATES}
    kwh = {state: sum(one.kwh[state] for one in gpus) for state in job.STATES}
    seen = sum(ms.values())
    usual: dict[str, Any] = {
        "gpus": gpus,
        "nodes": 1,
        "held_ms": seen,
        "due_ms": seen,
        "ms": ms,
        "kwh": kwh,
        "energy_seen_ms": seen,
        "counter_kwh": sum(kwh.values()),
        "by_utilisation_ms": 0,
        "idle_runs": 10,
        "longest_idle_s": 60.0,
        "longest_empty_s": 0.0,
        "reason": None,
    }
    return JobNumbers(**(usual | more))


def snapshot(job_class: str = "training", ended: bool = True) -> JobSnapshot:
    start = utc(8)
    holds = pl.DataFrame(
        {"gpu_uuid": ["GPU"], "start_utc": [start], "end_utc": [start.replace(hour=10)]},
        schema={"gpu_uuid": pl.String, "start_utc": pl.Datetime, "end_utc": pl.Datetime},
    )
    if not ended:
        holds = holds.with_columns(end_utc=pl.lit(None, dtype=pl.Datetime))
    as_of = us_from_utc(dt.datetime(2026, 5, 4, 12, tzinfo=UTC))
    facts = {"known": True, "raw_id": "7", "job_class": job_class}
    return JobSnapshot("c:7:0", as_of, as_of, facts, holds)


def test_numbers_of_the_fixture(shot: JobSnapshot) -> None:
    found = job.numbers(shot)
    assert found.ms == {
        "active": 8 * 3600_000,
        "execution_idle": 8 * 3300_000,
        "held_empty": 0,
        "unknown": 0,
    }
    assert found.kwh["execution_idle"] == pytest.approx(8 * 3300 * 130 / 3.6e6)
    assert found.kwh["active"] == pytest.approx(8 * 3600 * 400 / 3.6e6)
    assert (found.idle_runs, found.longest_idle_s) == (16, 1800)
    # Held since 10:00:00, analysed up to 12:34:40.
    assert found.due_ms == 8 * (2 * 3600 + 2080) * 1000
    assert found.coverage == pytest.approx(6900 / 9280)
    assert sum(bar.share for bar in job.bars(found)) == pytest.approx(1.0)
    assert [gpu.name for gpu in found.gpus][:2] == ["gpu03.example / 0", "gpu03.example / 1"]


def test_verdict_says_what_happened_and_how_sure(shot: JobSnapshot) -> None:
    text = verdict(shot, job.numbers(shot)).replace(fmt.THIN, " ")
    assert text == (
        "Job 104 has held 8 GPUs for 20.7 GPU-h and used 4.15 kWh. 0.95 kWh of it (23 %) did no "
        "work: 7.33 GPU-h execution-idle, 48 % of the time. Coverage 74 %."
    )


@pytest.mark.parametrize(
    ("found", "words", "never"),
    [
        (numbers(), "no GPU was ever allocated", "Coverage"),
        (numbers(gpu(), held_ms=HOUR_MS), "Nothing of it is analysed yet", "no work"),
        (
            numbers(gpu(active=HOUR_MS), due_ms=4 * HOUR_MS),
            "only 25 % of that time was observed: too little for a verdict",
            "did no work",
        ),
        (
            numbers(gpu(active=HOUR_MS, unknown=3 * HOUR_MS), reason="no_activity"),
            "For 75 % of the time nobody can tell whether it worked (the GPU gave neither",
            "did no work",
        ),
        (numbers(gpu(active=99 * HOUR_MS, execution_idle=HOUR_MS)), "worked 99 %", "did no work"),
        (
            numbers(gpu(execution_idle=HOUR_MS), energy_seen_ms=0),
            "its energy is not known",
            "0 kWh of it",
        ),
    ],
)
def test_verdicts_are_honest(found: JobNumbers, words: str, never: str) -> None:
    text = verdict(snapshot(), found).replace(fmt.THIN, " ")
    assert words in text
    assert never not in text


@pytest.mark.parametrize(
    ("found", "job_class", "ended", "words"),
    [
        (numbers(gpu(active=HOUR_MS)), "training", True, "Change nothing"),
        (numbers(gpu(active=HOUR_MS, held_empty=HOUR_MS)), "batch", True, "Request GPUs when"),
        (numbers(gpu(active=60_000, held_empty=HOUR_MS)), "batch", False, "Release the GPUs"),
        (numbers(gpu(active=HOUR_MS, execution_idle=HOUR_MS)), "serving", True, "Scale with"),
        (numbers(gpu(active=HOUR_MS, execution_idle=HOUR_MS)), "interactive", False, "Close the"),
        (numbers(gpu(active=HOUR_MS, execution_idle=HOUR_MS)), "interactive", True, "Set an idle"),
        (
            numbers(gpu(active=HOUR_MS, execution_idle=HOUR_MS), idle_runs=400),
            "training",
            True,
            "Check input loading and checkpoints: many short waits, 9 s on average",
        ),
        (
            numbers(
                gpu(active=HOUR_MS, execution_idle=HOUR_MS), idle_runs=1, longest_idle_s=3600.0
            ),
            "training",
            True,
            "Look into the log for a stop: for 1 h 00 min",
        ),
        (numbers(gpu(active=HOUR_MS, execution_idle=HOUR_MS)), "batch", True, "Prepare the next"),
        (numbers(gpu(active=HOUR_MS, execution_idle=HOUR_MS)), "", True, "Find what the job"),
        (
            numbers(gpu(active=HOUR_MS), gpu(active=HOUR_MS), gpu(execution_idle=HOUR_MS)),
            "training",
            True,
            "Ask for fewer GPUs, or find why 1 of 3 did no work",
        ),
        (numbers(gpu(active=HOUR_MS), due_ms=2 * HOUR_MS), "", True, "Check the agents"),
        (
            numbers(gpu(active=HOUR_MS, unknown=HOUR_MS), reason="no_residency"),
            "",
            True,
            "Give the agent access to the counters: 50 % of the time is unknown, since the driver",
        ),
        (
            numbers(gpu(active=HOUR_MS), by_utilisation_ms=HOUR_MS),
            "",
            True,
            "Take the states as a weaker statement: 100 %",
        ),
        (numbers(gpu(active=HOUR_MS), counter_kwh=0.05), "", True, "Allow for a wider error: 50 %"),
    ],
)
def test_notes_begin_with_a_verb(
    found: JobNumbers, job_class: str, ended: bool, words: str
) -> None:
    told = [one.replace(fmt.THIN, " ") for one in notes(snapshot(job_class, ended), found)]
    assert [one for one in told if one.startswith(words)], told


def test_little_seen_gives_no_advice_on_waste() -> None:
    found = numbers(gpu(execution_idle=HOUR_MS), due_ms=10 * HOUR_MS)
    told = notes(snapshot("serving"), found)
    assert len(told) == 1
    assert told[0].startswith("Check the agents")


spans = st.lists(st.integers(1, 400), min_size=2, max_size=40, unique=True).map(sorted)


@given(spans, st.integers(1, 50))
def test_columns_hold_every_millisecond_once(cuts: list[int], step_s: int) -> None:
    half = len(cuts) // 2
    begin = np.array(cuts[: 2 * half : 2], dtype=np.int64) * S
    end = np.array(cuts[1 : 2 * half : 2], dtype=np.int64) * S
    edges = np.arange(0, 402 + step_s, step_s, dtype=np.int64) * S
    found = job_course.overlap_ms(begin, end, edges)
    assert found.sum() == (end - begin).sum() // 1_000
    # Second by second, slowly.
    busy = np.zeros(int(edges[-1] // S), dtype=np.int64)
    for a, b in zip(begin // S, end // S, strict=True):
        busy[a:b] += 1_000
    assert found.tolist() == busy.reshape(-1, step_s).sum(axis=1).tolist()


def test_course_of_the_fixture(shot: JobSnapshot) -> None:
    found = job.numbers(shot)
    view = job_course.course(shot, found)
    assert view is not None
    assert (fmt.clock(view.start_us), view.step_s) == ("10:00:00", 10)
    assert view.held_ms.sum() == 8 * (2 * 3600 + 2096) * 1000
    totals = dict(zip(job_course.LOOKS, view.ms.sum(axis=(1, 2)).tolist(), strict=True))
    # The row stamped 10:00:00 describes the second before, in which nobody held the GPUs.
    assert totals[Look.ACTIVE] == found.ms["active"] - 8 * 1_000
    assert totals[Look.EXECUTION_IDLE] == found.ms["execution_idle"]
    codes = view.codes
    assert codes[0, 0] == 1 + job_course.LOOKS.index(Look.ACTIVE)
    assert codes[0, 181] == job_course.NO_DATA_CODE  # 10:30:10, nothing was recorded
    assert codes[0, 300] == 1 + job_course.LOOKS.index(Look.EXECUTION_IDLE)
    lines = dict(job_course.describe(view, 0, view.start_us + 300 * 10 * S))
    assert lines["Execution-idle"] == "10\u202fs"
    assert job_course.describe(view, 99, view.start_us) == []


def test_of_equal_halves_the_one_that_asks_for_something_wins() -> None:
    ms = np.zeros((4, 1, 1), dtype=np.int64)
    ms[0], ms[1] = 500, 500
    view = job_course.Course(["a"], 0, 1, ms, np.full((1, 1), 1_000, dtype=np.int64), 0)
    assert view.codes[0, 0] == 1 + job_course.LOOKS.index(Look.EXECUTION_IDLE)


def test_power_of_the_job(shot: JobSnapshot) -> None:
    band = job_course.band_of(shot)
    assert band is not None
    # Serving works at 400 W in even minutes, waits at 130 W in odd ones; 8 GPUs.
    assert np.nanmax(band.high_w) == 8 * 400
    assert np.nanmin(band.low_w) == 8 * 130
    assert band.limit_w == 8 * 700
    assert "left blank" in fleet_band.summary(band, shot.pending_hours)


def test_a_second_is_expected_where_it_is_owned() -> None:
    start = utc(8, 400_000)
    shot = replace(
        snapshot(),
        holds=pl.DataFrame(
            {"start_utc": [start], "end_utc": [start.replace(second=3, microsecond=600_000)]}
        ),
    )
    from_us = us_from_utc(dt.datetime(2026, 5, 4, 8, tzinfo=UTC))
    # Owner of a second: who held the GPU half a second before its stamp.
    assert expected_gpus(shot, from_us, from_us + 7 * S).tolist() == [0, 1, 1, 1, 1, 0, 0]


def test_report_as_text_is_the_golden_page(shot: JobSnapshot) -> None:
    text = job_report.text(shot)
    assert max(map(len, text.splitlines())) <= 80
    assert text.isascii()
    assert text == GOLDEN.read_text("utf-8")


def test_report_holds_the_numbers_of_the_page(shot: JobSnapshot) -> None:
    found = job.numbers(shot)
    data = json.loads(json.dumps(job_report.report(shot)))
    assert data["energy_kwh"] == found.total_kwh
    assert data["verdict"] == verdict(shot, found)
    assert sum(one["kwh"] or 0 for one in data["states"]) == pytest.approx(found.total_kwh)
    assert len(data["per_gpu"]) == 8
    assert data["end_utc"] is None
    assert data["cost"] is None


def test_names_from_outside_stay_data(store: Any, make_models: Callable[..., Any]) -> None:
    store.con.execute(
        "INSERT INTO job BY NAME SELECT 'c:<b>:0' AS job_key, '=1+1' AS raw_id, "
        "'<script>x()</script>' || chr(27) || '[31m' || chr(10) || 'two' AS job_name, "
        "'@SUM(A1)' AS user_name"
    )
    store.con.execute(
        "INSERT INTO gpu_sample BY NAME SELECT TIMESTAMP '2026-05-04 12:34:56' AS ts_utc, "
        "'n' AS node_id, 'GPU-a' AS gpu_uuid, 1000 AS obs_ms, 1 AS epoch"
    )
    shot = make_models(store)[0].jobs.read("c:<b>:0")
    assert shot.exists
    text = job_report.text(shot)
    assert "<script>x()</script>?[31m?two" in text
    assert "\x1b" not in text
    out = render(shot, "light", {})
    assert out["title"] == "Job =1+1"
    assert out["course_summary"] == "It never held a GPU."


def test_paths_of_jobs() -> None:
    for key in ("alpha:104:0", "a/b?c#d%:1", "<script>"):
        assert "/" not in job_path(key).removeprefix("/jobs/")
        assert job_of_path(job_path(key)) == key
    assert job_of_path("/jobs") is None
    assert job_of_path("/jobs/") is None
    assert job_of_path(None) is None


def test_unknown_job(filled: Any, make_models: Callable[..., Any]) -> None:
    shot = make_models(filled)[0].jobs.read("alpha:999:0")
    assert not shot.exists
    out = render(shot, "light", {})
    assert (out["body_class"], out["empty_class"]) == ("is-hidden", "card empty")
    assert tooltip({"points": [{"x": "2026-05-04 12:00", "y": 0, "bbox": {}}]}, shot)[0] is False


def test_page_sends_only_what_changed(shot: JobSnapshot) -> None:
    first = render(shot, "light", {})
    with pytest.raises(PreventUpdate):
        render(shot, "light", first["seen"])
    dark = render(shot, "dark", first["seen"])
    assert type(dark["tiles"]).__name__ == "NoUpdate"
    assert dark["course"]["data"]
    x = "2026-05-04 10:50:05"
    shown, _, body = tooltip({"points": [{"x": x, "y": 2.2, "bbox": {}}]}, shot)
    assert shown
    assert [one.children for one in body.children][1] == "gpu03.example / 2"


def test_an_ended_job_is_not_read_again(
    store: Any, filled: Any, make_models: Callable[..., Any]
) -> None:
    models, clock = make_models(filled)
    running = models.jobs.read("alpha:104:0")
    assert not running.is_final
    clock.advance(6.0)
    assert models.jobs.read("alpha:104:0") is not running
    end = utc(12)
    ended = replace(running, holds=running.holds.with_columns(end_utc=pl.lit(end)))
    assert ended.is_final
    assert not replace(ended, pending_hours=1).is_final
    assert "still runs" not in dict(job.header(ended, job.numbers(ended)))["End"]


def test_list_of_jobs(filled: Any, make_models: Callable[..., Any]) -> None:
    models, _ = make_models(filled)
    found = models.jobs.search("", "24h")
    rows = jobs.rows(found)
    assert [row.name.text for row in rows] == ["104", "102", "103", "101"]
    assert rows[1].states == [("execution_idle", pytest.approx(4 * 5681 / (4 * 9280)))]
    assert rows[0].cells[-1] == "runs"
    for text, ids in (("SERV", ["104"]), ("user-02", ["102"]), ("%", []), ("alpha:101", ["101"])):
        hit = models.jobs.search(text, "all")
        assert [row.name.text for row in jobs.rows(hit)] == ids
    assert "No jobs match" in jobs.summary(models.jobs.search("nothing", "all"))
    first = jobs_page.render(found, None)
    with pytest.raises(PreventUpdate):
        jobs_page.render(found, first["seen"])
    assert jobs.summary(JobList(None)) == "No sample has arrived yet."


def long_job(gpus: int, pieces: int) -> JobSnapshot:
    """Return a day of a job whose GPUs change state all the time."""
    start = utc(0)
    step = 86_400 // pieces
    frame = pl.DataFrame({"gpu": range(gpus)}).join(
        pl.DataFrame({"piece": range(pieces)}), how="cross"
    )
    first = pl.lit(start) + pl.duration(seconds=pl.col("piece") * step + 1)
    state = pl.when(pl.col("piece") % 2 == 0).then(pl.lit("active"))
    intervals = frame.select(
        gpu_uuid=pl.format("GPU-{}", "gpu"),
        state=state.otherwise(pl.lit("execution_idle")),
        first_ts_utc=first,
        last_ts_utc=first + pl.duration(seconds=step - 1),
        step_ms=pl.lit(1_000, dtype=pl.Int64),
    )
    each = pl.DataFrame({"gpu": range(gpus)}).select(
        gpu_uuid=pl.format("GPU-{}", "gpu"),
        node_id=pl.lit("n"),
        hostname=pl.lit("a-node-with-a-long-name.example"),
        gpu_index=pl.col("gpu").cast(pl.Int16),
        model=pl.lit("H100"),
    )
    states = each.join(pl.DataFrame({"state": ["active", "execution_idle"]}), how="cross")
    numbers = states.with_columns(
        seen_ms=43_200_000,
        energy_seen_ms=43_200_000,
        energy_kwh=3.0,
        counter_kwh=3.0,
        by_utilisation_ms=0,
        runs=pieces // 2,
        longest_run_s=float(step),
        reason=pl.lit(None, dtype=pl.String),
        first_utc=pl.lit(start),
        last_utc=pl.lit(start),
    )
    holds = each.with_columns(
        start_utc=pl.lit(start),
        end_utc=pl.lit(start) + pl.duration(days=1),
        power_limit_default_mw=pl.lit(700_000),
    )
    end_us = us_from_utc(start) + 86_400 * S
    power = np.full(86_400, gpus * 500_000, dtype=np.int64)
    power[::7] = gpus * 120_000
    seconds = Seconds(us_from_utc(start), power, np.full(86_400, gpus, dtype=np.int64))
    facts = {"known": True, "raw_id": "1", "job_class": "training"}
    return JobSnapshot(
        "c:1:0", end_us, end_us, facts, holds, numbers, intervals, seconds, 0, NO_PRICE
    )


@pytest.mark.parametrize(("gpus", "pieces"), [(32, 1_440), (160, 288)])
def test_a_day_of_a_job_is_small_and_fast(gpus: int, pieces: int) -> None:
    shot = long_job(gpus, pieces)
    took = []
    for _ in range(3):
        begin = time.perf_counter()
        out = render(shot, "light", {})
        took.append(time.perf_counter() - begin)
    sizes = {name: len(json.dumps(out[name])) for name in ("course", "band")}
    assert min(took) < 0.3
    assert max(sizes.values()) <= theme.MAX_FIGURE_BYTES
    course = job_course.course(shot, job.numbers(shot))
    assert course is not None
    assert (len(course.names), course.more) == (min(gpus, 128), max(gpus - 128, 0))
