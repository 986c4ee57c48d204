"""Wall power: CSV of meters, and logs."""

from __future__ import annotations

import pytest

from collector.formats import Format, FormatError


@pytest.mark.parametrize(
    "text",
    [
        "timestamp,power_w\n2026-07-14 08:00:00,1500.5\n2026-07-14 08:00:01,1500.5\n",
        "Time;Power (kW)\n2026-07-14 08:00:00;1.5005\n2026-07-14 08:00:01;1.5005\n",
        "date\ttime\twatts\n2026-07-14\t08:00:00\t1500.5\n2026-07-14\t08:00:01\t1500.5\n",
        "ts_utc,Total Power [W]\n2026-07-14 08:00:00,1500.5\n2026-07-14 08:00:01,1500.5\n",
        "epoch,power_mw\n1784016000,1500500\n1784016001,1500500\n",
    ],
)
def test_columns_by_name_and_unit(kit, text):
    found = kit.read(text, node_id="n1")
    assert list(found.formats.values()) == [Format.METER_CSV]
    rows = kit.meters(found)
    assert [row["power_mw"] for row in rows] == [1_500_500] * 2
    assert [row["energy_uj"] for row in rows] == [1_500_500_000] * 2
    assert {(row["node_id"], row["scope"]) for row in rows} == {("n1", "wall")}


def test_several_meters_and_missing_values(kit):
    text = (
        "timestamp,outlet,power_w,scope\n2026-07-14 08:00:00,A,100,rack\n"
        "2026-07-14 08:00:00,B,,rack\n2026-07-14 08:00:01,A,-1,rack\n2026-07-14 08:00:01,B,7,rack\n"
    )
    rows = kit.meters(kit.read(text))
    found = {(row["meter_id"], row["ts_utc"] % 10_000_000): row["power_mw"] for row in rows}
    assert found == {("A", 0): 100_000, ("B", 0): None, ("A", 1_000_000): None,
                     ("B", 1_000_000): 7_000}  # fmt: skip
    assert all((row["energy_uj"] is None) == (row["power_mw"] is None) for row in rows)
    assert {row["scope"] for row in rows} == {"rack"}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("timestamp,power\n2026-07-14 08:00:00,1500\n", "names no unit"),
        ("timestamp;power_w\n2026-07-14 08:00:00;1500,5\n", "decimal comma"),
        ("when,power_w\n2026-07-14 08:00:00,1500\n", "column for the time"),
        ("timestamp,power_w\nsoon,1500\n", "no line holds"),
        (':::MLLOG {"key": "power_begin", "value": "03-17-2021 14:25:33.909"}\n', "power_end"),
        (":::MLLOG {broken\n", "power_end"),
    ],
)
def test_unclear_files_are_refused(kit, text, words):
    with pytest.raises(FormatError, match=words):
        kit.read(text)


def test_window_without_a_meter_says_so(kit):
    text = (
        ':::MLLOG {"key": "power_begin", "value": "03-17-2021 14:25:33.909"}\n'
        ':::MLLOG {"key": "power_end", "value": "03-17-2021 14:26:33.909"}\n'
    )
    assert any("spl.txt" in note for note in kit.read(text).notes)
