"""The Waste, Jobs and Job pages in a real browser."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import expect

pytestmark = pytest.mark.browser

MODE = "data-mantine-color-scheme"


def open_waste(watched: Any, url: str) -> Any:
    watched.page.goto(url)
    watched.page.wait_for_selector("#waste-tile-execution_idle")
    watched.page.wait_for_selector("#waste-chart .barlayer .point path", state="attached")
    return watched.page


def open_job(watched: Any, url: str) -> Any:
    watched.page.goto(url)
    watched.page.wait_for_selector("#job-tile-energy")
    watched.page.wait_for_selector("#job-course .heatmaplayer image")
    watched.page.wait_for_selector("#job-band .scatterlayer .js-line")
    return watched.page


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_waste_in_a_foreign_zone(watch: Any, page_url: str, scheme: str, tmp_path: Path) -> None:
    with watch(color_scheme=scheme) as watched:
        page = open_waste(watched, f"{page_url}/waste")
        assert page.locator("html").get_attribute(MODE) == scheme
        assert "1.74\u202fkWh" in page.inner_text("#waste-tile-execution_idle")
        assert "0.16\u202fkWh" in page.inner_text("#waste-tile-held_empty")
        assert "report.price_per_kwh" in page.inner_text("#waste-tile-cost")
        ticks = page.locator("#waste-chart .xtick text").all_text_contents()
        assert "12:00" in ticks
        assert "09:00" in ticks
        assert "no samples" in page.text_content("#waste-chart")
        rows = page.locator("#waste-idle tbody tr")
        assert rows.count() == 4
        assert rows.last.inner_text().split("\t")[4:6] == ["14.0\u202fGPU-h", "1.74\u202fkWh"]
        # The name of a job is text, never markup.
        assert "notebook <b>x</b>" in page.inner_text("#waste-idle")
        assert page.locator("#waste-idle b b").count() == 0
        expect(page).to_have_title("Waste \u00b7 idlewatt")
        page.screenshot(path=str(tmp_path / f"waste-{scheme}.png"), full_page=True)
        assert watched.serious() == []
        assert watched.errors == []
        assert watched.hosts == {page_url.split("/")[2]}


def test_choices_of_waste_live_in_the_url(watch: Any, page_url: str) -> None:
    with watch() as watched:
        page = open_waste(watched, f"{page_url}/waste?by=gpu")
        expect(page.locator("#waste-idle")).to_contain_text("gpu03.example / 0")
        page.click("#waste-by label:has-text('User')")
        expect(page).to_have_url(re.compile(r"/waste\?by=user$"))
        expect(page.locator("#waste-idle")).to_contain_text("user-04")
        page.click("#waste-window label:has-text('7 d')")
        expect(page).to_have_url(re.compile(r"by=user&window=7d$"))
        expect(page.locator("#waste-tile-coverage")).to_contain_text("of 168 hours")
        page.go_back()
        expect(page.locator("#waste-tile-coverage")).to_contain_text("of 24 hours")
        page.click("#waste-open")
        page.wait_for_selector("#waste-numbers tbody tr")
        newest = page.locator("#waste-numbers tbody tr").first.inner_text().split("\t")
        assert newest[0] == "12:00"
        assert newest[-1] == "in part"
        assert watched.errors == []


def test_from_fleet_and_waste_to_the_job(watch: Any, page_url: str) -> None:
    with watch() as watched:
        page = open_waste(watched, f"{page_url}/waste")
        page.click("#waste-idle a:has-text('102')")
        page.wait_for_selector("#job-tile-energy")
        expect(page).to_have_url(re.compile(r"/jobs/alpha%3A102%3A0$"))
        expect(page.locator("#job-title")).to_have_text("Job 102")
        page.click("#shell-nav a:has-text('Fleet')")
        page.wait_for_selector("#fleet-waste a")
        page.click("#fleet-waste a:has-text('104')")
        expect(page.locator("#job-title")).to_have_text("Job 104")
        page.wait_for_selector("#job-tile-energy")
        expect(page).to_have_title("Job 104 \u00b7 idlewatt")
        current = page.locator("#shell-nav .is-current").all_text_contents()
        assert current == ["Jobs"]
        assert watched.errors == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_job_in_a_foreign_zone(watch: Any, page_url: str, scheme: str, tmp_path: Path) -> None:
    with watch(color_scheme=scheme) as watched:
        page = open_job(watched, f"{page_url}/jobs/alpha%3A104%3A0")
        said = page.inner_text("#job-verdict")
        assert said.startswith("Job 104 has held 8 GPUs")
        assert "0.95\u202fkWh of it (23\u202f%) did no work" in said
        for chart in ("#job-course", "#job-band"):
            ticks = page.locator(f"{chart} .xtick text").all_text_contents()
            assert "10:30" in ticks
            assert "12:00" in ticks
        labels = page.locator("#job-course .ytick text").all_text_contents()
        assert labels[0] == "gpu03.example / 0"
        page.locator("#job-course").scroll_into_view_if_needed()
        box = page.locator("#job-course .nsewdrag").bounding_box()
        # 11:45 of 10:00 to 12:34:56, third of eight GPUs.
        page.mouse.move(box["x"] + box["width"] * 105 / 155, box["y"] + box["height"] * 2.5 / 8)
        page.wait_for_selector(".tip dl")
        tip = page.inner_text(".tip dl")
        assert "gpu03.example / 2" in tip
        assert "Execution-idle" in tip
        assert re.search(r"11:4[4-6]:\d0 UTC", tip)
        page.mouse.move(0, 0)
        page.click("#job-course-open")
        page.wait_for_selector("#job-course-table tbody tr")
        page.click("#job-band-open")
        page.wait_for_selector("#job-band-table tbody tr")
        page.screenshot(path=str(tmp_path / f"job-{scheme}.png"), full_page=True)
        assert watched.serious() == []
        assert watched.errors == []
        assert watched.hosts == {page_url.split("/")[2]}


def test_search_for_jobs_lives_in_the_url(watch: Any, page_url: str) -> None:
    with watch(color_scheme="dark") as watched:
        page = watched.page
        page.goto(f"{page_url}/jobs?q=serv")
        expect(page.locator("#jobs-table tbody tr")).to_have_count(1)
        assert page.input_value("#jobs-search") == "serv"
        page.fill("#jobs-search", "notebook")
        expect(page.locator("#jobs-table tbody tr")).to_contain_text(["notebook <b>x</b>"])
        expect(page).to_have_url(re.compile(r"/jobs\?q=notebook$"))
        page.fill("#jobs-search", "nobody at all")
        expect(page.locator("#jobs-summary")).to_contain_text("No jobs match")
        page.fill("#jobs-search", "")
        expect(page.locator("#jobs-table tbody tr")).to_have_count(4)
        assert watched.serious() == []
        assert watched.errors == []


def test_an_unknown_job_says_so(watch: Any, page_url: str) -> None:
    with watch() as watched:
        page = watched.page
        page.goto(f"{page_url}/jobs/%3Cscript%3Ealert(1)%3C%2Fscript%3E")
        page.wait_for_selector("#job-empty:not(.is-hidden)")
        assert "<script>alert(1)</script>" in page.inner_text("#job-empty")
        assert page.locator("#job-body").is_hidden()
        assert watched.serious() == []
        page.click("#job-empty a")
        expect(page.locator("#jobs-table tbody tr")).to_have_count(4)
        assert watched.errors == []


def narrow(page: Any, width: int) -> bool:
    """Return whether the page fits; charts follow the width a moment later."""
    for _ in range(40):
        if page.evaluate("document.documentElement.scrollWidth") <= width:
            return True
        page.wait_for_timeout(100)
    return False


def test_nothing_sticks_out(watch: Any, page_url: str) -> None:
    with watch() as watched:
        for path in ("/waste", "/jobs", "/jobs/alpha%3A104%3A0"):
            watched.page.goto(f"{page_url}{path}")
            watched.page.wait_for_selector(".table tbody tr")
            for width in (1280, 768):
                watched.page.set_viewport_size({"width": width, "height": 800})
                assert narrow(watched.page, width), path


def test_hostile_names(
    watch: Any,
    store: Any,
    make_models: Callable[..., Any],
    serve_models: Callable[..., Any],
) -> None:
    store.con.execute(
        "INSERT INTO job BY NAME SELECT 'c:/:0' AS job_key, '=1+1' AS raw_id, "
        "'<script>window.hit = 1</script><img src=x onerror=window.hit=1>' AS job_name, "
        "'@SUM(A1)' AS user_name"
    )
    store.con.execute(
        "INSERT INTO gpu_sample BY NAME SELECT TIMESTAMP '2026-05-04 12:34:56' AS ts_utc, "
        "'<i>n</i>' AS node_id, 'GPU-a' AS gpu_uuid, 1000 AS obs_ms, 1 AS epoch"
    )
    store.con.execute(
        "INSERT INTO allocation BY NAME SELECT 'GPU-a' AS gpu_uuid, 'c:/:0' AS job_key, "
        "TIMESTAMP '2026-05-04 12:00:00' AS start_utc, 1.0 AS share"
    )
    store.count_hours()
    with serve_models(make_models(store)[0]) as url, watch() as watched:
        page = watched.page
        page.goto(f"{url}/jobs")
        expect(page.locator("#jobs-table tbody tr")).to_have_count(1)
        assert "<script>window.hit = 1</script>" in page.inner_text("#jobs-table")
        page.click("#jobs-table a")
        page.wait_for_selector("#job-tile-energy")
        expect(page.locator("#job-title")).to_have_text("Job =1+1")
        assert "<img src=x" in page.inner_text("#job-who")
        assert "Nothing of it is analysed yet" in page.inner_text("#job-verdict")
        assert page.evaluate("window.hit") is None
        assert watched.errors == []
