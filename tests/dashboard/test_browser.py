"""The Fleet page in a real browser: what it shows, whom it asks, whether it can be read."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import axe_playwright_python
import pytest
from playwright.sync_api import expect, sync_playwright

from idlewatt.clock import VirtualClock

pytestmark = pytest.mark.browser

FLAGS = [
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
]
MODE = "data-mantine-color-scheme"
PAINT = """node => {
    let paint = "rgba(0, 0, 0, 0)";
    for (; node && paint === "rgba(0, 0, 0, 0)"; node = node.parentElement) {
        paint = getComputedStyle(node).backgroundColor;
    }
    return paint;
}"""
AXE = Path(axe_playwright_python.__file__).parent / "axe.min.js"


@pytest.fixture(scope="module")
def browser(chromium: Path) -> Iterator[Any]:
    with sync_playwright() as driver:
        found = driver.chromium.launch(executable_path=str(chromium), args=FLAGS)
        yield found
        found.close()


class Watched:
    """A page whose console errors, failures and requests are kept."""

    def __init__(self, browser: Any, **context: Any) -> None:
        wanted = {"viewport": {"width": 1280, "height": 800}, "timezone_id": "America/New_York"}
        self.context = browser.new_context(**(wanted | context))
        self.page = self.context.new_page()
        self.page.set_default_timeout(15_000)
        self.errors: list[str] = []
        self.hosts: set[str] = set()
        self.page.on("console", self._console)
        self.page.on("pageerror", lambda error: self.errors.append(str(error)))
        self.page.on("request", lambda asked: self.hosts.add(asked.url.split("/")[2]))

    def _console(self, message: Any) -> None:
        if message.type in ("error", "warning"):
            self.errors.append(message.text)

    def open(self, url: str) -> Any:
        self.page.goto(url)
        self.page.wait_for_selector("#fleet-tile-power")
        self.page.wait_for_selector("#fleet-band .scatterlayer .js-line")
        return self.page

    def __enter__(self) -> Watched:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.context.close()


def expect_state(page: Any, text: str) -> None:
    """Wait until the freshness strip says it; it is written once a second."""
    expect(page.locator("#shell-state")).to_have_text(text, timeout=10_000)


def serious(page: Any) -> list[str]:
    """Return axe's serious and critical findings, one line each."""
    # Debugger evaluation is not under the page's content policy, so nothing is relaxed for it.
    page.evaluate(AXE.read_text("utf-8"))
    found = page.evaluate("axe.run(document, {resultTypes: ['violations']})")
    return [
        f"{one['id']}: {node['target']} {node.get('failureSummary', '')}"
        for one in found["violations"]
        if one["impact"] in ("serious", "critical")
        for node in one["nodes"]
    ]


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_page_in_a_foreign_zone(browser: Any, page_url: str, scheme: str, tmp_path: Path) -> None:
    with Watched(browser, color_scheme=scheme) as watched:
        page = watched.open(f"{page_url}/?window=1h")
        expect(page.locator("#fleet-band-caption")).not_to_be_empty()
        html = page.locator("html")
        assert html.get_attribute(MODE) == scheme
        assert html.get_attribute("lang") == "en"
        # Numbers of the fixture, and UTC although the browser lives elsewhere.
        assert "4 GPUs" in page.inner_text("#fleet-tile-execution_idle")
        assert "480\u2009W" in page.inner_text("#fleet-tile-execution_idle")
        assert re.fullmatch(r"12:3[45]:\d\d UTC", page.inner_text("#shell-clock"))
        expect_state(page, "Data is live")
        ticks = page.locator("#fleet-band .xtick text").all_text_contents()
        assert "12:30" in ticks
        assert "Peak 19.6\u2009kW at 12:06:07" in page.text_content("#fleet-band")
        # The name of a job is text, never markup.
        assert page.locator("#fleet-waste .job b").count() == 4
        assert "notebook <b>x</b>" in page.inner_text("#fleet-waste")
        titles = page.locator("#fleet-band .modebar-btn").evaluate_all(
            "buttons => buttons.map(button => button.getAttribute('data-title'))"
        )
        assert titles
        assert not [title for title in titles if re.search("share|cloud", title, re.I)]
        page.screenshot(path=str(tmp_path / f"fleet-{scheme}.png"), full_page=True)
        assert serious(page) == []
        assert watched.errors == []
        assert watched.hosts == {page_url.split("/")[2]}


def test_window_lives_in_the_url_and_theme_is_remembered(browser: Any, page_url: str) -> None:
    with Watched(browser, color_scheme="light") as watched:
        page = watched.open(page_url)
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


def test_hover_and_tables_show_the_same_numbers(browser: Any, page_url: str) -> None:
    with Watched(browser, color_scheme="dark") as watched:
        page = watched.open(page_url)
        box = page.locator("#fleet-map .nsewdrag").bounding_box()
        # Seven rows: two racks of three nodes and the row between; the third row waits.
        page.mouse.move(box["x"] + box["width"] / 16, box["y"] + box["height"] * 2.5 / 7)
        page.wait_for_selector(".tip dl")
        tip = page.inner_text(".tip dl")
        assert "gpu02.example / 0" in tip
        assert "Execution-idle for over 1\u2009min" in tip
        assert "120\u2009W of 700\u2009W" in tip
        assert "102 notebook <b>x</b> (user-02)" in tip
        # The tip takes the theme's colours, and can be read.
        paint = page.locator(".tip dl").evaluate(PAINT)
        assert paint == "rgb(21, 27, 35)"
        page.click("#fleet-map-open")
        page.wait_for_selector("#fleet-map-table tbody tr")
        first = page.locator("#fleet-map-table tbody tr").first.inner_text().split("\t")
        assert first == ["R01", "gpu02.example", "0", "4", "4", "0", "0", "760\u2009W"]
        page.click("#fleet-band-open")
        page.wait_for_selector("#fleet-band-table tbody tr")
        newest = page.locator("#fleet-band-table tbody tr").first.inner_text().split("\t")
        assert newest == ["12:34:52", *["16.1\u2009kW"] * 3, "92\u2009%"]
        assert serious(page) == []
        assert watched.errors == []


def test_nothing_sticks_out(browser: Any, page_url: str) -> None:
    with Watched(browser) as watched:
        page = watched.open(page_url)
        for width in (1280, 768):
            page.set_viewport_size({"width": width, "height": 800})
            expect(page.locator("#fleet-map .main-svg").first).to_be_visible()
            assert page.evaluate("document.documentElement.scrollWidth") <= width
            for selector in ("#fleet-map .main-svg", "#fleet-band .main-svg"):
                box = page.locator(selector).first.bounding_box()
                assert box["width"] > 250
                assert box["x"] + box["width"] <= width


def test_a_dead_server_shows(
    browser: Any,
    filled: Any,
    make_models: Callable[..., Any],
    serve_models: Callable[..., Any],
) -> None:
    with Watched(browser) as watched:
        with serve_models(make_models(filled)[0]) as url:
            page = watched.open(url)
            assert page.locator("#shell-banner").is_hidden()
        page.wait_for_selector("#shell-banner:not(.is-hidden)", timeout=20_000)
        assert "This page is not live" in page.inner_text("#shell-banner")
        assert "12:34:56 UTC" in page.inner_text("#shell-banner")
        expect_state(page, "Not live")


def test_stale_data_shows(
    browser: Any,
    filled: Any,
    make_models: Callable[..., tuple[Any, VirtualClock]],
    serve_models: Callable[..., Any],
) -> None:
    models, _ = make_models(filled, late_s=300.0)
    with serve_models(models) as url, Watched(browser) as watched:
        page = watched.open(url)
        page.wait_for_selector("#shell-banner:not(.is-hidden)")
        expect_state(page, "Data is stale")
        assert "newest sample 5\u2009min old" in page.inner_text("#shell-age")
        assert watched.errors == []


def test_an_empty_store_says_what_to_do(
    browser: Any,
    store: Any,
    make_models: Callable[..., Any],
    serve_models: Callable[..., Any],
) -> None:
    with serve_models(make_models(store)[0]) as url, Watched(browser) as watched:
        watched.page.goto(url)
        watched.page.wait_for_selector("#fleet-empty:not(.is-hidden)")
        assert "idlewatt demo" in watched.page.inner_text("#fleet-empty")
        expect_state(watched.page, "No data")
        assert serious(watched.page) == []
        assert watched.errors == []
