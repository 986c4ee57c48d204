"""Read models over a store with hand-made numbers, and the web app's HTTP side."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from dashboard import security
from dashboard.app import build
from dashboard.pages import PAGES
from dashboard.pages.fleet import render
from dashboard.seconds import SecondsCache
from dashboard.shell import freshness
from dashboard.theme import Look
from dashboard.views import fleet, fleet_map, fleet_waste
from idlewatt.config import resolve

HOUR = 3_600_000_000
S = 1_000_000


def test_fleet_of_the_fixture(filled: Any, make_models: Callable[..., Any]) -> None:
    models, _ = make_models(filled)
    shot = models.fleet(3_600)
    assert shot.pulse.nodes == shot.pulse.nodes_fresh == 6
    assert (shot.pulse.gpus, shot.pulse.gpus_fresh) == (48, 44)
    assert shot.pulse.age_s == 1.0
    # 12:34 is even: serving works. 2 x 8 + 8 + 4 work, 4 wait, 4 + 8 are empty, 4 are silent.
    assert fleet_map.counts(shot.gpus) == {
        Look.ACTIVE: 28,
        Look.EXECUTION_IDLE: 4,
        Look.DEEP_IDLE: 12,
        Look.UNKNOWN: 0,
        Look.NO_DATA: 4,
    }
    watts = 16 * 600 + 8 * 400 + 4 * 500 + 4 * 120 + 12 * 70
    assert fleet.power_w(shot.gpus) == watts
    assert fleet.limit_w(shot.gpus) == 48 * 700
    peak = fleet.peak_today(shot)
    assert peak is not None
    assert peak.power_w == 16 * 690 + 8 * 500 + 8 * 400 + 4 * 120 + 12 * 70
    assert fleet.fmt.clock(peak.ts_us) == "12:06:07"
    holders = dict(shot.gpus.select("gpu_uuid", "user_name").iter_rows())
    assert (holders["GPU-02-0"], holders["GPU-02-4"], holders["GPU-05-0"]) == (
        "user-02",
        "user-03",
        None,
    )


def test_band_has_the_hole_of_the_fixture(filled: Any, make_models: Callable[..., Any]) -> None:
    view = fleet.band_of(make_models(filled)[0].fleet(3_600))
    assert view is not None
    empty = np.flatnonzero(np.isnan(view.mean_w))
    # 12:10:00 to 12:13:59 with 24 of 48 GPUs: 48 buckets of 5 s.
    assert len(empty) == 48
    first_us = view.start_us + int(empty[0]) * view.bucket_s * S
    assert fleet.fmt.clock(first_us) == "12:10:00"
    assert view.coverage[empty[0]] == 0.5


def test_waste_of_the_fixture(filled: Any, make_models: Callable[..., Any]) -> None:
    shot = make_models(filled)[0].fleet(900)
    rows = fleet_waste.rows(shot.waste, shot.as_of_us)
    # Energy: 8 x 3300 s x 130 W > 4 x 5681 s x 120 W > 4 x 2081 s x 70 W > 1201 s x 90 W.
    assert [row.job for row in rows] == ["104", "102", "103", "no job, on node-04"]
    assert rows[0].energy == "0.95\u202fkWh"
    assert rows[1].since == "10:00, still"
    assert rows[2].kind == "Held, empty"
    assert rows[0].share == "48\u202f%"
    idle_j = 8 * 3300 * 130 + 4 * 5681 * 120 + 1201 * 90
    active_j = 8 * 2 * 1800 * 400 + 16 * 3600 * 600
    assert shot.waste is not None
    share = fleet.in_execution_share(shot.waste.by_state)
    assert share == pytest.approx(idle_j / (idle_j + active_j))


def test_one_snapshot_serves_all_who_ask(filled: Any, make_models: Callable[..., Any]) -> None:
    models, clock = make_models(filled)
    before = filled.snapshots
    pulse = models.pulse()
    shown = [models.fleet(window_s, pulse.as_of_us) for window_s in (900, 3_600, 900) * 20]
    assert filled.snapshots == before + 1
    assert all(shot.gpus is shown[0].gpus for shot in shown)
    assert {shot.window_s for shot in shown} == {900, 3_600}
    clock.advance(1.0)
    models.pulse()
    assert filled.snapshots == before + 2


def test_a_page_keeps_its_instant(filled: Any, make_models: Callable[..., Any]) -> None:
    models, clock = make_models(filled)
    old = models.fleet(900)
    clock.advance(2.0)
    models.pulse()
    assert models.fleet(900, old.as_of_us).as_of_us == old.as_of_us


def test_empty_store(store: Any, make_models: Callable[..., Any]) -> None:
    models, _ = make_models(store)
    shot = models.fleet(900)
    assert shot.as_of_us is None
    assert shot.pulse.age_s is None
    out = render(shot, "light", {}, "15m")
    assert out["body_class"] == "is-hidden"
    assert out["empty_class"] == "card empty"


def test_clock_that_runs_ahead_is_not_now(store: Any, make_models: Callable[..., Any]) -> None:
    row = (
        "INSERT INTO gpu_sample (ts_utc, obs_ms, node_id, gpu_uuid, epoch) "
        "VALUES (TIMESTAMP '{}', 1000, 'n', 'g', 1)"
    )
    store.con.execute(row.format("2026-05-04 12:34:50"))
    store.con.execute(row.format("2026-05-04 13:34:50"))
    store.count_hours()
    models, _ = make_models(store)
    assert models.pulse().age_s == 7.0


def test_after_silence_nobody_reports_and_the_age_grows(
    filled: Any, make_models: Callable[..., Any]
) -> None:
    models, clock = make_models(filled)
    first = models.pulse()
    clock.advance(3_600.0)
    later = models.pulse()
    assert later.as_of_us == first.as_of_us
    assert later.age_s == 3_601.0
    assert freshness(later) == "\u25b2 0 of 6 nodes and 0 of 48 GPUs report"
    assert set(models.fleet(900).gpus["look"]) == {Look.NO_DATA.value}


def test_unchanged_parts_are_not_sent_again(filled: Any, make_models: Callable[..., Any]) -> None:
    from dash import no_update

    shot = make_models(filled)[0].fleet(900)
    first = render(shot, "light", {}, "15m")
    again = render(shot, "light", first["seen"], "15m")
    for name in ("map_figure", "band_figure", "waste"):
        assert first[name] is not no_update
        assert again[name] is no_update
    dark = render(shot, "dark", first["seen"], "15m")
    assert dark["map_figure"] is not no_update
    assert dark["waste"] is no_update


class Seconds:
    """A loader that counts what it is asked."""

    def __init__(self) -> None:
        self.asked: list[tuple[int, int]] = []
        self.watts = 1

    def __call__(self, from_us: int, to_us: int) -> tuple[Any, Any, Any]:
        self.asked.append((from_us, to_us))
        at = np.arange(from_us, min(to_us, 2 * HOUR + 100 * S), S, dtype=np.int64)
        ones = np.ones(len(at), dtype=np.int64)
        return at, ones * self.watts, ones


def test_cache_reads_only_what_changed() -> None:
    load, now_ns = Seconds(), [0]
    cache = SecondsCache(lambda: now_ns[0])
    assert cache.refresh([(2 * HOUR, 5), (HOUR, 3)], 2 * HOUR + 90 * S, load) == 0
    assert load.asked == [(2 * HOUR, 3 * HOUR), (HOUR, 2 * HOUR)]
    load.asked.clear()
    load.watts = 7
    cache.refresh([(2 * HOUR, 6), (HOUR, 3)], 2 * HOUR + 99 * S, load)
    assert load.asked == [(2 * HOUR, 3 * HOUR)]
    found = cache.seconds(2 * HOUR + 99 * S)
    assert found.start_us == 2 * HOUR - 24 * HOUR
    assert found.window(2 * HOUR, 2 * HOUR + 2 * S).power_mw.tolist() == [7, 7]
    assert found.window(HOUR, HOUR + 2 * S).power_mw.tolist() == [1, 1]
    # An hour long past changed: all of it is read again.
    load.asked.clear()
    cache.refresh([(2 * HOUR, 6), (HOUR, 7)], 2 * HOUR + 99 * S, load)
    assert load.asked[-1] == (HOUR, 2 * HOUR)


def test_hour_that_ended_is_read_whole_once_more() -> None:
    load = Seconds()
    cache = SecondsCache(lambda: 0)
    cache.refresh([(2 * HOUR, 5)], 2 * HOUR + 3_500 * S, load)
    cache.refresh([(2 * HOUR, 6)], 2 * HOUR + 3_550 * S, load)
    assert load.asked[-1] == (2 * HOUR + 3_350 * S, 3 * HOUR)
    for _ in range(2):
        cache.refresh([(3 * HOUR, 7), (2 * HOUR, 6)], 3 * HOUR + S, load)
    assert load.asked[2:] == [(3 * HOUR, 4 * HOUR), (2 * HOUR, 3 * HOUR)]


def test_cache_stops_at_its_budget_and_says_so() -> None:
    ticks = iter(range(0, 10**12, 200_000_000))
    cache = SecondsCache(lambda: next(ticks), budget_s=0.5)
    hours = [(hour * HOUR, 1) for hour in range(9, 0, -1)]
    pending = cache.refresh(hours, 9 * HOUR, Seconds())
    assert 0 < pending < 9
    while pending:
        left = cache.refresh(hours, 9 * HOUR, Seconds())
        assert left < pending
        pending = left


def test_window_beyond_what_is_known_is_empty() -> None:
    cache = SecondsCache(lambda: 0)
    found = cache.seconds(10 * HOUR).window(10 * HOUR + 3_590 * S, 10 * HOUR + 3_610 * S)
    assert len(found.power_mw) == 20
    assert found.readings.sum() == 0


@pytest.fixture(scope="module")
def client(filled: Any, make_models: Callable[..., Any]) -> Any:
    return build(make_models(filled)[0], resolve(environ={})).server.test_client()


def test_headers(client: Any) -> None:
    with client.get("/") as answer:
        policy = answer.headers["Content-Security-Policy"]
        assert "unsafe-eval" not in policy
        assert "script-src 'self' 'sha256-" in policy
        assert "frame-ancestors 'none'" in policy
        assert answer.headers["X-Content-Type-Options"] == "nosniff"
        text = answer.get_data(as_text=True)
        assert '<html lang="en">' in text
        assert "https://" not in text
        assert "http://" not in text


def test_other_sites_are_refused(client: Any) -> None:
    asked = {"Sec-Fetch-Site": "cross-site"}
    with client.post("/_dash-update-component", json={}, headers=asked) as answer:
        assert answer.status_code == 403
    assert security.SAME_SITE == ("same-origin", "none", None)


@pytest.mark.parametrize(
    "body",
    [
        b"{}",
        b"[]",
        b"null",
        b"not json",
        b"[" * 100_000,
        b'{"a":' * 50_000,
        b'{"output": 1}',
        b'{"output": "x.y", "outputs": {"id": "x", "property": "y"}, "inputs": []}',
    ],
)
def test_callbacks_that_no_page_sends_are_400(client: Any, body: bytes) -> None:
    kind = "application/json"
    with client.post("/_dash-update-component", data=body, content_type=kind) as answer:
        assert answer.status_code == 400


def test_agents_endpoint_is_off_whatever_the_environment_says(
    filled: Any, make_models: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DASH_MCP_ENABLED", "true")
    app = build(make_models(filled)[0], resolve(environ={}))
    assert not [rule.rule for rule in app.server.url_map.iter_rules() if "mcp" in rule.rule]


def test_pages_have_distinct_paths() -> None:
    assert PAGES[0].path == "/"
    assert len({(page.path, page.below) for page in PAGES}) == len(PAGES)
    for path in ("/", "/waste", "/jobs", "/jobs/alpha%3A7%3A0"):
        assert len([page for page in PAGES if page.handles(path)]) == 1
