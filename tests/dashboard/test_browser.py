"""The Fleet page in a real browser: what it shows, whom it asks, whether it can be read."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import expect

from idlewatt.clock import VirtualClock

pytestmark = pytest.mark.browser

MODE = "data-mantine-color-scheme"
PAINT = """node => {
    let paint = "rgba(0, 0, 0, 0)";
    for (; node && paint === "rgba(0, 0, 0, 0)"; node = node.parentElement) {
        paint = getComputedStyle(node).backgroundColor;
    }
    return paint;
}"""


def open_fleet(watched: Any, url: str) -> Any:
    watched.page.goto(url)
    watched.page.wait_for_selector("#fleet-tile-power")
    watched.page.wait_for_selector("#fleet-band .scatterlayer .js-line")
    return watched.page


def expect_state(page: Any, text: str) -> None:
    """Wait until the freshness strip says it; it is written once a second."""
    expect(page.locator("#shell-state")).to_have_text(text, timeout=10_000)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_page_in_a_foreign_zone(watch: Any, page_url: str, scheme: str, tmp_path: Path) -> None:
    with watch(color_scheme=scheme) as watched:
        page = open_fleet(watched, f"{page_url}/?window=1h")
        expect(page.locator("#fleet-band-caption")).not_to_be_empty()
        html = page.locator("html")
        assert html.get_attribute(MODE) == scheme
        assert html.get_attribute("lang") == "en"
        # Numbers of the fixture, and UTC although the browser lives elsewhere.
        assert "4 GPUs" in page.inner_text("#fleet-tile-execution_idle")
        assert "480\u202fW" in page.inner_text("#fleet-tile-execution_idle")
        assert re.fullmatch(r"12:3[45]:\d\d UTC", page.inner_text("#shell-clock"))
        expect_state(page, "Data is live")
        ticks = page.locator("#fleet-band .xtick text").all_text_contents()
        assert "12:30" in ticks
        assert "Peak 19.6\u202fkW at 12:06:07" in page.text_content("#fleet-band")
        # The name of a job is text, never markup.
        assert page.locator("#fleet-waste .job a").count() == 3
        assert "notebook <b>x</b>" in page.inner_text("#fleet-waste")
        titles = page.locator("#fleet-band .modebar-btn").evaluate_all(
            "buttons => buttons.map(button => button.getAttribute('data-title'))"
        )
        assert titles
        assert not [title for title in titles if re.search("share|cloud", title, re.I)]
        page.screenshot(path=str(tmp_path / f"fleet-{scheme}.png"), full_page=True)
        assert watched.serious() == []
        assert watched.errors == []
        assert watched.hosts == {page_url.split("/")[2]}


def test_window_lives_in_the_url_and_theme_is_remembered(watch: Any, page_url: str) -> None:
    with watch(color_scheme="light") as watched:
        page = open_fleet(watched, page_url)
        page.click("#fleet-window label:has-text('6 h')")
        expect(page).to_have_url(re.compile(r"\?window=6h$"))
        expect(page.locator("#fleet-band-caption")).to_contain_text("30 s bucket", timeout=10_000)
        page.go_back()
        expect(page.locator("#fleet-band-caption")).to_contain_text(" 2 s bucket", timeout=10_000)
        page.click("#shell-theme label:has-text('Dark')")
        expect(page.locator("html")).to_have_attribute(MODE, "dark")
        page.reload()
        page.wait_for_selector("#fleet-band .scatterlayer .js-line")
        expect(page.locator("html")).to_have_attribute(MODE, "dark")
        page.emulate_media(color_scheme="light")
        assert page.locator("html").get_attribute(MODE) == "dark"
        page.click("#shell-theme label:has-text('System')")
        expect(page.locator("html")).to_have_attribute(MODE, "light")
        assert watched.errors == []


def test_hover_and_tables_show_the_same_numbers(watch: Any, page_url: str) -> None:
    with watch(color_scheme="dark") as watched:
        page = open_fleet(watched, page_url)
        box = page.locator("#fleet-map .nsewdrag").bounding_box()
        # Seven rows: two racks of three nodes and the row between; the third row waits.
        page.mouse.move(box["x"] + box["width"] / 16, box["y"] + box["height"] * 2.5 / 7)
        page.wait_for_selector(".tip dl")
        tip = page.inner_text(".tip dl")
        assert "gpu02.example / 0" in tip
        assert "Execution-idle for over 1\u202fmin" in tip
        assert "120\u202fW of 700\u202fW" in tip
        assert "102 notebook <b>x</b> (user-02)" in tip
        # The tip takes the theme's colours, and can be read.
        paint = page.locator(".tip dl").evaluate(PAINT)
        assert paint == "rgb(21, 27, 35)"
        page.click("#fleet-map-open")
        page.wait_for_selector("#fleet-map-table tbody tr")
        first = page.locator("#fleet-map-table tbody tr").first.inner_text().split("\t")
        assert first == ["R01", "gpu02.example", "0", "4", "4", "0", "0", "760\u202fW"]
        page.click("#fleet-band-open")
        page.wait_for_selector("#fleet-band-table tbody tr")
        newest = page.locator("#fleet-band-table tbody tr").first.inner_text().split("\t")
        assert newest == ["12:34:52", *["16.1\u202fkW"] * 3, "92\u202f%"]
        assert watched.serious() == []
        assert watched.errors == []


def test_nothing_sticks_out(watch: Any, page_url: str) -> None:
    with watch() as watched:
        page = open_fleet(watched, page_url)
        for width in (1280, 768):
            page.set_viewport_size({"width": width, "height": 800})
            expect(page.locator("#fleet-map .main-svg").first).to_be_visible()
            assert page.evaluate("document.documentElement.scrollWidth") <= width
            for selector in ("#fleet-map .main-svg", "#fleet-band .main-svg"):
                box = page.locator(selector).first.bounding_box()
                assert box["width"] > 250
                assert box["x"] + box["width"] <= width


def test_a_dead_server_shows(
    watch: Any,
    filled: Any,
    make_models: Callable[..., Any],
    serve_models: Callable[..., Any],
) -> None:
    with watch() as watched:
        with serve_models(make_models(filled)[0]) as url:
            page = open_fleet(watched, url)
            assert page.locator("#shell-banner").is_hidden()
        page.wait_for_selector("#shell-banner:not(.is-hidden)", timeout=20_000)
        assert "This page is not live" in page.inner_text("#shell-banner")
        assert "12:34:56 UTC" in page.inner_text("#shell-banner")
        expect_state(page, "Not live")


def test_stale_data_shows(
    watch: Any,
    filled: Any,
    make_models: Callable[..., tuple[Any, VirtualClock]],
    serve_models: Callable[..., Any],
) -> None:
    models, _ = make_models(filled, late_s=300.0)
    with serve_models(models) as url, watch() as watched:
        page = open_fleet(watched, url)
        page.wait_for_selector("#shell-banner:not(.is-hidden)")
        expect_state(page, "Data is stale")
        assert "newest sample 5\u202fmin old" in page.inner_text("#shell-age")
        assert watched.errors == []


def test_an_empty_store_says_what_to_do(
    watch: Any,
    store: Any,
    make_models: Callable[..., Any],
    serve_models: Callable[..., Any],
) -> None:
    with serve_models(make_models(store)[0]) as url, watch() as watched:
        watched.page.goto(url)
        watched.page.wait_for_selector("#fleet-empty:not(.is-hidden)")
        assert "idlewatt demo" in watched.page.inner_text("#fleet-empty")
        expect_state(watched.page, "No data")
        assert watched.serious() == []
        assert watched.errors == []
