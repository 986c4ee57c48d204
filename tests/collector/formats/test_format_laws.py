"""Laws: spelling does not matter, and no local time is ever placed wrongly."""

from __future__ import annotations

import datetime as dt
import zoneinfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collector.formats import FormatError, Options, Source, read
from collector.formats.stamps import Local, place

FIELDS = {
    "timestamp": None,
    "uuid": None,
    "power.draw.instant": "W",
    "utilization.gpu": "%",
    "memory.used": "MiB",
    "temperature.gpu": "",
    "clocks.sm": "MHz",
}
rows = st.lists(
    st.tuples(
        st.integers(0, 700), st.integers(0, 100), st.integers(0, 80_000), st.integers(0, 90),
        st.integers(0, 2_000),
    ),
    min_size=1,
    max_size=8,
)  # fmt: skip


def write(values, order, units: bool, gap: str, end: str) -> bytes:
    names = list(FIELDS)
    lines = [
        [f"2026/07/14 08:00:{n:02}.007", "GPU-aaaa", *(str(v) for v in row)]
        for n, row in enumerate(values)
    ]
    head = [f"{name} [{unit}]" if units and unit else name for name, unit in FIELDS.items()]
    body = [
        [f"{cell} {FIELDS[name]}" if units and FIELDS[name] else cell
         for name, cell in zip(names, line, strict=True)]
        for line in lines
    ]  # fmt: skip
    return "".join(gap.join(line[n] for n in order) + end for line in [head, *body]).encode()


def samples(data: bytes):
    return read([Source("f", data)], Options(zone=dt.UTC, node_id="n")).samples


@given(rows, st.permutations(range(len(FIELDS))), st.booleans(), st.sampled_from([", ", ","]),
       st.sampled_from(["\n", "\r\n", "\n\n"]))  # fmt: skip
def test_order_units_and_line_ends_do_not_matter(values, order, units, gap, end):
    plain = write(values, range(len(FIELDS)), True, ", ", "\n")
    assert samples(write(values, order, units, gap, end)) == samples(plain)


ZONES = [
    ("Europe/Berlin", dt.datetime(2026, 10, 25, 1, tzinfo=dt.UTC)),
    ("Europe/Berlin", dt.datetime(2026, 3, 29, 1, tzinfo=dt.UTC)),
    ("America/New_York", dt.datetime(2026, 11, 1, 6, tzinfo=dt.UTC)),
    ("Australia/Lord_Howe", dt.datetime(2026, 4, 4, 15, tzinfo=dt.UTC)),
    ("Europe/Dublin", dt.datetime(2026, 10, 25, 1, tzinfo=dt.UTC)),
    ("Asia/Kathmandu", dt.datetime(2026, 5, 1, tzinfo=dt.UTC)),
]


@given(
    st.sampled_from(ZONES),
    st.integers(-7_200, 3_600),
    st.sampled_from([1, 5, 30, 60, 300]),
    st.lists(st.tuples(st.integers(1, 60), st.integers(0, 1_200)), min_size=1, max_size=5),
)
def test_local_times_come_back_as_what_they_were_or_are_refused(where, begin_s, step_s, stretches):
    """A series with holes of up to 20 minutes around the night on which clocks change."""
    name, change = where
    zone = zoneinfo.ZoneInfo(name)
    at = change + dt.timedelta(seconds=begin_s)
    truth = []
    for count, hole_s in stretches:
        for _ in range(count):
            truth.append(at)
            at += dt.timedelta(seconds=step_s)
        at += dt.timedelta(seconds=hole_s)
    series = [
        Local(moment.astimezone(zone).replace(tzinfo=None, fold=0), n)
        for n, moment in enumerate(truth)
    ]
    try:
        placed = place(series, zone, "f").at_us
    except FormatError as exc:
        message = str(exc)
        placed = None
    if placed is None:
        assert "happened twice" in message
    else:
        assert placed == [round(moment.timestamp() * 1e6) for moment in truth]


def test_refusal_is_rare_for_a_whole_night():
    """A series that begins before and ends after the doubled hour is never refused."""
    zone = zoneinfo.ZoneInfo("America/New_York")
    start = dt.datetime(2026, 11, 1, 3, tzinfo=dt.UTC)
    truth = [start + dt.timedelta(seconds=n) for n in range(0, 5 * 3_600, 10)]
    series = [Local(moment.astimezone(zone).replace(tzinfo=None), 1) for moment in truth]
    assert place(series, zone, "f").at_us == [round(m.timestamp() * 1e6) for m in truth]
    with pytest.raises(FormatError):
        place(series[:1], None, "f")
