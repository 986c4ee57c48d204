"""Zones, clock changes and the grid."""

from __future__ import annotations

import datetime as dt
import itertools

import pytest

from collector.formats import FormatError
from collector.formats.grid import holes, nominal_interval_ms, to_ticks
from collector.formats.stamps import parse_stamp, parse_zone, proven_zone
from idlewatt.errors import UsageError

HEADER = "timestamp, uuid, power.draw.instant [W]\n"


def log(*stamps: str, gpu: str = "GPU-aaaa") -> str:
    return HEADER + "".join(f"{stamp}, {gpu}, 80.00 W\n" for stamp in stamps)


def series(first: str, count: int, step_s: float = 60.0) -> list[str]:
    start = dt.datetime.strptime(first, "%Y/%m/%d %H:%M:%S")  # noqa: DTZ007
    return [
        (start + dt.timedelta(seconds=n * step_s)).strftime("%Y/%m/%d %H:%M:%S.%f")[:-3]
        for n in range(count)
    ]


def at(kit, found):
    return [row["at"][5:16] for row in kit.rows(found)]


def test_local_times_need_a_zone(kit):
    with pytest.raises(FormatError, match="--zone"):
        kit.read(log(*series("2026/07/14 08:00:00", 3)), zone=None)


def test_zone_is_applied(kit):
    found = kit.read(log(*series("2026/07/14 08:00:00", 2)), zone="Europe/Berlin")
    assert at(kit, found) == ["07-14T06:00", "07-14T06:01"]


@pytest.mark.parametrize("zone", ["Europe/Nowhere", "", "../etc", "+25:00"])
def test_unknown_zone_is_refused(zone):
    with pytest.raises(UsageError, match="zone"):
        parse_zone(zone)


def test_night_of_two_hours_is_read_by_its_order(kit):
    # 02:50 CEST .. 02:59 CEST, then 02:00 CET .. : local time falls back by an hour.
    before = series("2026/10/25 01:50:00", 70)  # up to 02:59 CEST
    after = series("2026/10/25 02:00:00", 70)  # 02:00 CET up to 03:09
    found = kit.read(log(*before, *after), zone="Europe/Berlin")
    stamps = [row["ts_utc"] for row in kit.rows(found)]
    assert len(stamps) == 140
    assert {b - a for a, b in itertools.pairwise(stamps)} == {60_000_000}
    assert any("which of the two hours" in note for note in found.notes)


def test_start_within_the_hour_is_proven_by_its_end(kit):
    found = kit.read(log(*series("2026/10/25 02:30:00", 60)), zone="Europe/Berlin")
    assert at(kit, found)[0] == "10-25T01:30"  # winter time: it runs on into 03:00


def test_end_within_the_hour_is_proven_by_its_start(kit):
    found = kit.read(log(*series("2026/10/25 01:30:00", 60)), zone="Europe/Berlin")
    assert at(kit, found)[-1] == "10-25T00:29"  # summer time


def test_hour_that_nothing_settles_is_refused(kit):
    with pytest.raises(FormatError, match="happened twice"):
        kit.read(log(*series("2026/10/25 02:10:00", 20)), zone="Europe/Berlin")
    assert at(kit, kit.read(log(*series("2026/10/25 02:10:00", 1)), zone="+02:00")) == [
        "10-25T00:10"
    ]


def test_hole_within_the_hour_is_not_guessed_over(kit):
    first = series("2026/10/25 01:50:00", 20)  # up to 02:09, summer time
    second = series("2026/10/25 02:40:00", 5)  # 02:40: of which hour?
    with pytest.raises(FormatError, match="happened twice"):
        kit.read(log(*first, *second), zone="Europe/Berlin")


def test_hour_that_does_not_exist_is_refused(kit):
    with pytest.raises(FormatError, match="does not exist"):
        kit.read(log(*series("2026/03/29 02:30:00", 2)), zone="Europe/Berlin")


def test_each_gpu_is_settled_by_its_own_order(kit):
    night = [*series("2026/10/25 01:50:00", 70), *series("2026/10/25 02:00:00", 70)]
    text = log(*night) + log(*night, gpu="GPU-bbbb").removeprefix(HEADER)
    assert len(kit.rows(kit.read(text, zone="Europe/Berlin"))) == 280


def test_clock_set_back_is_noted_and_nothing_is_doubled(kit):
    stamps = [*series("2026/07/14 08:00:00", 10, 1), *series("2026/07/14 08:00:05", 10, 1)]
    found = kit.read(log(*stamps))
    assert len(kit.rows(found)) == 15
    assert any("clock went back 1 time(s), by 4.000 s" in note for note in found.notes)


@pytest.mark.parametrize(("step_s", "obs_ms"), [(1, 1_000), (5, 5_000), (0.1, 100), (7.3, 7_300)])
def test_interval_is_found(kit, step_s, obs_ms):
    rows = kit.rows(kit.read(log(*series("2026/07/14 08:00:00", 20, step_s))))
    assert {row["obs_ms"] for row in rows} == {obs_ms}
    assert len(rows) == 20
    assert {row["energy_uj"] for row in rows} == {80_000 * obs_ms}


def test_interval_can_be_given(kit):
    found = kit.read(log(*series("2026/07/14 08:00:00", 2, 9)), interval_ms=10_000)
    assert {row["obs_ms"] for row in kit.rows(found)} == {10_000}


def test_drift_leaves_no_holes_and_keeps_the_energy():
    stamps = [n * 1_015_000 + 437_000 for n in range(3_000)]
    assert nominal_interval_ms([stamps]) == 1_000
    ticks = to_ticks(stamps, 1_000)
    assert not holes(ticks.reading, 1_000)
    assert abs(len(ticks.reading) - 3_000 * 1.015) < 2
    assert len(ticks.bridged) == pytest.approx(45, abs=1)


def test_true_holes_stay_holes(kit):
    stamps = [*series("2026/07/14 08:00:00", 5, 1), *series("2026/07/14 08:01:00", 5, 1)]
    found = kit.read(log(*stamps))
    assert len(kit.rows(found)) == 10
    ((_, gpu, first, last, reason, _, _),) = found.tables["gap"]
    assert (gpu, (last - first) // 1_000_000 + 1, reason) == ("GPU-aaaa", 55, "not_recorded")


def test_grown_log_keeps_its_old_rows(kit):
    stamps = series("2026/07/14 08:00:00", 600, 1.013)
    short, long = kit.read(log(*stamps[:300])), kit.read(log(*stamps))
    assert set(short.samples) <= set(long.samples)


def test_undated_needs_a_start(kit):
    text = "uuid, power.draw.instant [W]\nGPU-aaaa, 80 W\nGPU-aaaa, 81 W\n"
    with pytest.raises(FormatError, match="timestamp"):
        kit.read(text)
    start = dt.datetime(2026, 7, 14, 8, tzinfo=dt.UTC)
    with pytest.raises(FormatError, match="--interval"):
        kit.read(text, start=start)
    found = kit.read(text, start=start, interval_ms=1_000)
    assert [row["at"][-3:] for row in kit.rows(found)] == ["00Z", "01Z"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2026/07/14 08:12:38.696", "2026-07-14T08:12:38.696000"),
        ("2026-07-14T08:12:38Z", "2026-07-14T08:12:38+00:00"),
        ("2026-07-14 08:12:38+0200", "2026-07-14T08:12:38+02:00"),
        ("Tue Jul 14 08:12:38 2026", "2026-07-14T08:12:38"),
        ("Fri Aug  4 11:44:30 2023", "2023-08-04T11:44:30"),
        ("03-17-2021 14:24:56.694", "2021-03-17T14:24:56.694000"),
        ("20260714 08:12:38", "2026-07-14T08:12:38"),
        ("1784016758.5", "2026-07-14T08:12:38.500000+00:00"),
        ("1784016758500", "2026-07-14T08:12:38.500000+00:00"),
        ("2026/13/14 08:12:38", None),
        ("soon", None),
        ("99", None),
    ],
)
def test_stamps(text, expected):
    stamp = parse_stamp(text)
    assert (stamp and stamp.isoformat()) == expected


def test_proof_of_a_zone():
    utc = dt.datetime(2026, 7, 14, 8, 12, 38, tzinfo=dt.UTC)
    local = dt.datetime(2026, 7, 14, 10, 12, 50)  # noqa: DTZ001
    assert proven_zone(utc, local) == dt.timezone(dt.timedelta(hours=2))
    assert proven_zone(utc, local + dt.timedelta(minutes=7)) is None


def test_jump_back_alone_proves_both_hours(kit):
    night = [*series("2026/10/25 02:40:00", 20), *series("2026/10/25 02:00:00", 20)]
    found = at(kit, kit.read(log(*night), zone="Europe/Berlin"))
    assert (found[0], found[19], found[20]) == ("10-25T00:40", "10-25T00:59", "10-25T01:00")


def test_small_step_back_within_the_hour_proves_nothing(kit):
    stamps = [*series("2026/10/25 02:10:00", 20, 1), *series("2026/10/25 02:10:10", 20, 1)]
    with pytest.raises(FormatError, match="happened twice"):
        kit.read(log(*stamps), zone="Europe/Berlin")


@pytest.mark.parametrize("offset_s", range(0, 3600, 150))
def test_every_start_in_the_night_gives_an_unbroken_series(kit, offset_s):
    """Local stamps made from known UTC times come back as those, or the file is refused."""
    zone = parse_zone("Europe/Berlin")
    start = dt.datetime(2026, 10, 24, 23, 30, tzinfo=dt.UTC) + dt.timedelta(seconds=offset_s)
    truth = [start + dt.timedelta(seconds=30 * n) for n in range(260)]
    stamps = [t.astimezone(zone).strftime("%Y/%m/%d %H:%M:%S.000") for t in truth]
    rows = kit.rows(kit.read(log(*stamps), zone="Europe/Berlin"))
    assert [row["ts_utc"] for row in rows] == [int(t.timestamp()) * 1_000_000 for t in truth]


@pytest.mark.parametrize(("interval_ms", "words"), [(1_000, "holes"), (30_000, "not used")])
def test_interval_that_is_not_the_files_is_pointed_out(kit, interval_ms, words):
    found = kit.read(log(*series("2026/07/14 08:00:00", 20, 5)), interval_ms=interval_ms)
    assert any("lie 5 s apart" in note and words in note for note in found.notes)
