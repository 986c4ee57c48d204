"""The page about files in a real browser: both themes, a narrow window, no request, readable."""

import datetime as dt

import pytest

from analysis.offline import analyse
from analysis.offline_rows import Gatherer
from collector.formats import Options, Source, read
from dashboard.offline import page
from dashboard.offline.words import Context
from dashboard.theme import PALETTES, Look, Scheme

pytestmark = pytest.mark.browser

HEAD = "timestamp, index, uuid, utilization.gpu, utilization.memory, memory.used, power.draw\n"
BEGIN = dt.datetime(2026, 7, 14, 11, 50, tzinfo=dt.UTC)


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    lines = [HEAD]
    for second in range(900):
        stamp = (BEGIN + dt.timedelta(seconds=second)).strftime("%Y/%m/%d %H:%M:%S")
        for gpu in range(2):
            use, mib, watts = ((80, 900, 300), (0, 900, 90), (0, 0, 50))[(second // 200 + gpu) % 3]
            lines.append(f"{stamp}, {gpu}, GPU-0000000{gpu}-aaaa, {use}, {use}, {mib}, {watts}\n")
    found = read([Source("f", "".join(lines).encode())], Options(zone=dt.UTC))
    gatherer = Gatherer()
    gatherer.begin_file("f")
    gatherer.add(found.samples, found.tables["device"])
    path = tmp_path_factory.mktemp("page") / "report.html"
    path.write_text(page.render(analyse(gatherer.finish()), Context({"f": "csv"})), "utf-8")
    return path.as_uri()


def colour(text):
    return "#" + "".join(f"{int(part):02X}" for part in text[4:-1].split(","))


@pytest.mark.parametrize("scheme", list(Scheme))
def test_both_themes_draw_and_can_be_read(watch, report, scheme):
    with watch(color_scheme=scheme.value) as seen:
        seen.page.goto(report)
        fill = seen.page.evaluate(
            "getComputedStyle(document.querySelector('path.execution_idle')).fill"
        )
        assert colour(fill) == PALETTES[scheme].states[Look.EXECUTION_IDLE]
        boxes = seen.page.locator("figure svg path.mean")
        assert boxes.count() == 2
        assert boxes.first.bounding_box()["width"] > 500
        assert seen.serious() == []
        assert seen.errors == []
        assert seen.hosts == {""}  # the file itself


def test_a_narrow_window_scrolls_inside_and_not_as_a_whole(watch, report):
    with watch(viewport={"width": 390, "height": 800}) as seen:
        seen.page.goto(report)
        assert seen.page.evaluate("document.documentElement.scrollWidth") == 390
