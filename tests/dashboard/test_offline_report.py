"""The report about files: its text as a whole, its page as a document."""

import dataclasses
import datetime as dt
import os
import re
from pathlib import Path
from xml.etree import ElementTree

import pytest

from analysis.offline import analyse
from analysis.offline_model import Offline
from analysis.offline_rows import Gatherer
from analysis.offline_series import MOST_CELLS
from collector.formats import Options, Source, read
from dashboard.offline import advice, page, words
from dashboard.offline.text import render as render_text
from dashboard.offline.words import Context
from dashboard.theme import PALETTES, Look, Scheme

GOLDEN = Path(__file__).with_name("golden")
HEAD = (
    "timestamp, index, uuid, name, utilization.gpu [%], utilization.memory [%], "
    "memory.used [MiB], power.draw [W], enforced.power.limit [W]\n"
)
BEGIN = dt.datetime(2026, 7, 14, 11, 50, tzinfo=dt.UTC)
WORK, WAIT, EMPTY = (80, 40, 5_000, 300), (0, 0, 5_000, 100), (0, 0, 0, 50)
SVG = "{http://www.w3.org/1999/xhtml}"


def log(*gpus, name="NVIDIA A100-SXM4-80GB"):
    """Return a log; each GPU is a list of (seconds, values)."""
    series = [[values for seconds, values in gpu for _ in range(seconds)] for gpu in gpus]
    lines = [HEAD]
    for second, row in enumerate(zip(*series, strict=True), 1):
        stamp = (BEGIN + dt.timedelta(seconds=second)).strftime("%Y/%m/%d %H:%M:%S.000")
        lines += [
            f"{stamp}, {gpu}, GPU-{gpu:08d}-aaaa-bbbb-cccc-dddddddddddd, {name}, {use} %, "
            f"{mem} %, {mib} MiB, {watts:.2f} W, 400.00 W\n"
            for gpu, (use, mem, mib, watts) in enumerate(row)
        ]
    return "".join(lines)


def analysed(text):
    gatherer = Gatherer()
    gatherer.begin_file("gpus")
    found = read([Source("gpus.csv", text.encode())], Options(zone=dt.UTC))
    gatherer.add(found.samples, found.tables["device"])
    context = Context(
        files={"gpus.csv": "nvidia-smi-csv"}, rules=frozenset(found.identity.values())
    )
    return analyse(gatherer.finish()), context


@pytest.fixture(scope="module")
def mixed():
    """Return the results of four GPUs: waiting, pausing, empty, and one that misleads."""
    return analysed(
        log(
            [(300, WORK), (600, WAIT), (300, EMPTY)],
            [(20, WORK), (10, WAIT)] * 40,
            [(1_200, EMPTY)],
            [(1_000, WORK), (200, (100, 0, 0, 145))],
        )
    )


def golden(name, text):
    path = GOLDEN / name
    if os.environ.get("WRITE_GOLDEN"):
        path.write_text(text + "\n", "utf-8")
    assert text + "\n" == path.read_text("utf-8")


def test_the_text_as_a_whole(mixed):
    result, context = mixed
    priced = dataclasses.replace(context, price_per_kwh=0.3, currency="EUR")
    golden("offline.txt", render_text(result, priced, 100))


def test_the_text_of_moments():
    result, context = analysed(log([(1, WORK)], [(1, WAIT)], [(1, EMPTY)]))
    text = render_text(result, context, 100)
    assert text.startswith(
        "3 GPUs at the newest reading (14 Jul 11:50:01): 1 at work, 1 held by a program and doing "
        "nothing, 1\nheld by nobody; single readings"
    )
    assert "Time line" not in page.render(result, context)


@pytest.mark.parametrize(
    ("gpus", "words_there"),
    [
        ([[(60, EMPTY)]], "no program was seen to hold it; the energy was"),
        ([[(60, WORK)]], "no stretch of 5 s or more without work was seen (by utilisation)"),
        ([[(60, (100, 0, 0, 145))]], "whether it did any work cannot be told"),
        ([[(60, WORK), (40, (100, 0, 0, 145))]], "In 40 % of all time the state is unknown."),
    ],
)
def test_the_verdict_fits(gpus, words_there):
    result, context = analysed(log(*gpus))
    assert words_there in words.verdict(result, context).replace("\u202f", " ")


def test_what_is_told_to_do_fits(mixed):
    result, context = mixed
    told = [text.replace("\u202f", " ") for text in advice.actions(result, context)]
    firsts = [text.split()[:3] for text in told]
    assert firsts[0] == ["Release", "GPU", "0"]
    assert firsts[1] == ["Feed", "GPU", "1"]
    assert firsts[2] == ["Give", "GPU", "2"]
    assert "the longest is 10 min from 14 Jul 11:55:00 on" in told[0]
    assert "A held board drew 100 W, an empty one 50 W." in told[0]


def test_fields_that_are_lacking_are_named():
    lines = [row.split(", ") for row in log([(20, WORK), (20, WAIT)]).splitlines()]
    text = "\n".join(", ".join(cells[:2] + cells[4:6]) for cells in lines) + "\n"
    result, context = analysed(text)
    assert advice.actions(result, context)[-1] == (
        "Record memory.used, power.draw, enforced.power.limit, name, uuid as well next time:"
    )
    assert "whether they did any work" not in words.verdict(result, context)
    assert "whether it did any work cannot be told" in words.verdict(result, context)
    fields = advice.COMMAND.partition("--query-gpu=")[2].split(",")
    assert {*result.lacking, "uuid", "timestamp", "index"} <= set(fields)


def test_notes_that_hold_for_many_files_are_said_once(mixed):
    result, context = mixed
    many = dataclasses.replace(
        context,
        files={"a": "x", "b": "x", "c": "x"},
        notes=(
            "a: one moment",
            "b: one moment",
            "c: not used: pstate",
            "c (idle): cut",
            "all well",
        ),
    )
    notes = [text.replace("\u2009", " ") for text in advice.basis_notes(result, many)]
    assert notes[-3:] == ["2 files: one moment", "c: (idle): cut", "all well"]


def parsed(html):
    assert html.startswith("<!DOCTYPE html>")
    return ElementTree.fromstring(html)


def test_the_page_is_well_formed_and_asks_for_nothing(mixed):
    html = page.render(*mixed)
    root = parsed(html)
    tags = {element.tag.removeprefix(SVG) for element in root.iter()}
    assert not tags & {"script", "link", "img", "iframe", "object", "embed", "form"}
    outside = set(re.findall(r"https?://[^\s\"'<)]+", html))
    assert outside == {"http://www.w3.org/1999/xhtml"}  # a name, never asked for
    assert "url(" not in html
    assert "@import" not in html
    for element in root.iter():
        assert not set(element.attrib) & {"src", "href", "onload", "onclick", "style"}


def test_the_page_says_in_words_and_tables_what_it_draws(mixed):
    root = parsed(page.render(*mixed))
    assert root.attrib["lang"] == "en"
    headings = [e.text for e in root.iter(f"{SVG}h2")]
    assert headings == [
        "What misleads",
        "What to do",
        "Time and energy by state",
        "Time lines",
        "GPUs",
        "Longest execution-idle runs",
        "What cannot be known",
        "How it was read",
    ]
    drawings = list(root.iter(f"{SVG}svg"))
    assert len(drawings) == 2 + 4
    for drawing in drawings:
        assert drawing.attrib["role"] == "img"
        assert len(drawing.attrib["aria-label"]) > 20
    assert sum(1 for e in root.iter(f"{SVG}th") if e.attrib.get("scope") == "row") >= 4 + 4 + 4
    assert "Time axis: UTC." in "".join(root.itertext())


def test_both_palettes_are_in_the_page(mixed):
    html = page.render(*mixed)
    dark = html.index("prefers-color-scheme:dark")
    for scheme, place in ((Scheme.LIGHT, html[:dark]), (Scheme.DARK, html[dark:])):
        for look in (Look.ACTIVE, Look.EXECUTION_IDLE, Look.DEEP_IDLE, Look.UNKNOWN):
            assert f"--{look.value}:{PALETTES[scheme].states[look]}" in place


def test_names_from_outside_are_data():
    name = "<img src=x onerror=alert(1)>&\"'\x1b[31m"
    text = log([(20, WORK), (20, WAIT)], name=name)
    result, context = analysed(text)
    gpu = dataclasses.replace(result.gpus[0].gpu, index=None, name=name, model=name)
    result = dataclasses.replace(
        result,
        gpus=(dataclasses.replace(result.gpus[0], gpu=gpu),),
        runs=tuple(dataclasses.replace(run, gpu=gpu) for run in result.runs),
    )
    html = page.render(result, dataclasses.replace(context, files={name: "x"}, notes=(name,)))
    assert "<img" not in html
    assert "\x1b" not in html
    parsed(html)
    assert "\x1b" not in render_text(result, dataclasses.replace(context, notes=(name,)))


def test_a_zone_that_is_not_known_is_said(mixed):
    result, context = mixed
    unzoned = dataclasses.replace(context, zone_known=False)
    assert "zone not known" in page.render(result, unzoned)
    assert any("time zone" in text for text in advice.unknowns(result, unzoned))
    assert not any("time zone" in text for text in advice.unknowns(result, context))


def test_the_worst_page_is_small():
    # Every bucket differs from its neighbours, for as many buckets as there can be.
    cycle = [(3, WORK), (7, WAIT), (2, (100, 0, 0, 145)), (5, EMPTY), (11, (60, 9, 800, 390))]
    gpus = [cycle[number % 5 :] + cycle[: number % 5] for number in range(8)]
    result, context = analysed(log(*(gpu * 70 for gpu in gpus)))
    buckets = result.series.buckets * len(result.series.gpus)
    html = page.render(result, context)
    drawn = sum(len(match) for match in re.findall(r"<svg.*?</svg>", html))
    rest = len(html.encode()) - drawn
    assert rest + drawn / buckets * MOST_CELLS < 300_000


def test_nothing_is_still_a_report():
    assert isinstance(render_text(Offline(), Context()), str)
