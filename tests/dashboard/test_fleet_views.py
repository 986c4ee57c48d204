"""View models of the Fleet page against answers worked out by hand."""

from __future__ import annotations

import base64
import datetime as dt
import json
import sys
import time
from dataclasses import replace
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dashboard.models import EnergyOfState, FleetSnapshot, Pulse, Waste, with_looks
from dashboard.seconds import Seconds
from dashboard.theme import MAX_FIGURE_BYTES, MAX_POINTS, Look
from dashboard.views import fleet, fleet_band, fleet_map, fleet_waste
from idlewatt.clock import us_from_utc

NOON_US = us_from_utc(dt.datetime(2026, 5, 4, 12, tzinfo=dt.UTC))
S = 1_000_000


def at(hour: int, minute: int = 0) -> dt.datetime:
    """Return a time of the day as the store gives it: UTC, without a zone."""
    return dt.datetime(2026, 5, 4, hour, minute, tzinfo=dt.UTC).replace(tzinfo=None)


def gpus(rows: list[tuple[str, str, int, str | None, float | None]], **more: Any) -> pl.DataFrame:
    """Return GPUs from (rack, node, index, state or None for no data, watts)."""
    frame = pl.DataFrame(
        {
            "gpu_uuid": [f"GPU-{node}-{slot}" for _, node, slot, _, _ in rows],
            "node_id": [row[1] for row in rows],
            "hostname": "",
            "rack": [row[0] for row in rows],
            "gpu_index": [row[2] for row in rows],
            "model": "H100",
            "state": [row[3] for row in rows],
            "ts_utc": [None if row[3] is None else at(12) for row in rows],
            "power_mw": [None if row[4] is None else round(row[4] * 1e3) for row in rows],
            "power_limit_mw": 700_000,
            "job_key": None,
            "raw_id": None,
            "job_name": None,
            "user_name": None,
            "basis": "counters",
            "reason": None,
            "run_s": 7,
            "run_open": False,
            **more,
        },
        schema_overrides={"state": pl.String, "ts_utc": pl.Datetime("us"), "power_mw": pl.Int64},
    )
    return with_looks(frame)


FIVE = [
    ("R1", "a", 0, "active", 600.0),
    ("R1", "a", 1, "execution_idle", 120.0),
    ("R1", "b", 0, "deep_idle", 70.0),
    ("R2", "c", 0, "unknown", None),
    ("R2", "c", 1, None, None),
]


def seconds(watts: list[float], readings: list[int], start_us: int = NOON_US) -> Seconds:
    power = np.array(watts, dtype=np.float64) * 1e3
    return Seconds(start_us, power.astype(np.int64), np.array(readings, dtype=np.int64))


def snapshot(**more: Any) -> FleetSnapshot:
    frame = gpus(FIVE)
    return FleetSnapshot(Pulse(NOON_US, NOON_US + S, 30, 3, 3, 5, 4), frame, **more)


def test_tiles() -> None:
    shot = snapshot(
        seconds=seconds([500, 900, 700, 800], [4, 1, 4, 4], NOON_US - 3 * S),
        expected=np.full(4, 4, dtype=np.int64),
    )
    power, peak, idle, deep, none, energy = fleet.tiles(shot)
    assert (power.value, power.note) == (
        "790\u202fW",
        "23\u202f% of 3.50\u202fkW limits; 2 GPUs not counted",
    )
    assert power.level == pytest.approx(790 / 3500)
    # 900 W came from one reading of four: no second to trust.
    assert (peak.value, peak.note) == ("800\u202fW", "at 12:00:00 UTC, 23\u202f% of limits")
    assert (idle.value, idle.note) == ("1 GPU", "draw 120\u202fW, 15\u202f% of the power")
    assert (deep.value, deep.note) == (
        "1 GPU",
        "draw 70\u202fW, 8.9\u202f% of the power; 0 held by a job",
    )
    assert (none.value, none.note) == ("1 GPU", "on 1 node")
    assert (energy.value, energy.note) == ("\u2013", "not yet analysed")
    assert fleet.headline(shot) == (
        "3 of 5 GPUs draw 790\u202fW, 23\u202f% of their limits. "
        "1 GPU is execution-idle and burns 120\u202fW."
    )


def test_silent_gpus_are_never_zero_watts() -> None:
    silent = gpus([("R1", "a", 0, None, None)])
    assert fleet.power_w(silent) is None
    shown = FleetSnapshot(Pulse(NOON_US, NOON_US, 30, 1, 0, 1, 0), silent)
    assert fleet.headline(shown) == "None of 1 GPU has a power reading now."
    shot = FleetSnapshot(Pulse(NOON_US, NOON_US, 30, 1, 0, 1, 0), silent)
    assert fleet.tiles(shot)[0].value == "\u2013"


def test_share_of_energy_and_its_coverage() -> None:
    hour = 3_600_000
    waste = Waste(
        NOON_US - 3_600 * S,
        NOON_US,
        {
            "execution_idle": EnergyOfState(hour, 3.6e11, hour),
            "active": EnergyOfState(hour, 3.24e12, hour),
            "deep_idle": EnergyOfState(hour, 9e11, hour),
        },
        pl.DataFrame(),
    )
    count = 3_601
    shot = snapshot(
        seconds=seconds([0] * count, [0] * count, NOON_US - 3_600 * S),
        expected=np.full(count, 5, dtype=np.int64),
        waste=waste,
    )
    tile = fleet.tiles(shot)[-1]
    # 0.1 of 1.0 kWh; deep idle stays out. 3 GPU hours analysed of 5 expected.
    assert tile.value == "10\u202f%"
    assert tile.note == "of the energy in execution, 0.10\u202fkWh; coverage 60\u202f%"
    late = replace(shot, waste=replace(waste, analysed_us=NOON_US - 301 * S))
    assert fleet.tiles(late)[-1].note.endswith("; analysed up to 11:54 UTC")


def test_band_of_two_buckets_and_a_gap() -> None:
    data = seconds([10, 20, 30, 40, 50, 60], [10, 10, 10, 4, 10, 9])
    view = fleet_band.band(data, np.full(6, 10, dtype=np.int64), 2, 100.0)
    assert view.low_w.tolist()[0] == 10
    assert view.high_w.tolist()[0] == 20
    assert view.mean_w.tolist()[0] == 15
    # Bucket 2: (10 + 4) of 20 readings is 70 %: nothing is drawn.
    assert view.coverage.tolist() == pytest.approx([1.0, 0.7, 0.95])
    assert np.isnan([view.low_w[1], view.high_w[1], view.mean_w[1]]).all()
    assert view.mean_w.tolist()[2] == 55
    assert view.peak == fleet_band.Peak(60.0, NOON_US + 5 * S)
    assert view.covered == pytest.approx(2.65 / 3)


def test_peak_is_never_in_a_gap() -> None:
    data = seconds([10, 10, 99, 0, 20, 20], [2, 2, 2, 0, 2, 2])
    view = fleet_band.band(data, np.full(6, 2, dtype=np.int64), 2, None)
    assert view.peak == fleet_band.Peak(20.0, NOON_US + 4 * S)


def test_gap_is_not_joined_in_the_figure() -> None:
    data = seconds([1000, 2000, 3000, 4000, 5000, 6000], [2, 2, 0, 0, 2, 2])
    view = fleet_band.band(data, np.full(6, 2, dtype=np.int64), 2, 7000.0)
    drawn = fleet_band.figure(view, "light", "w")
    fill, mean, peak = drawn["data"]
    first, second = "2026-05-04T12:00:00Z", "2026-05-04T12:00:04Z"
    assert fill["x"] == [first, first, None, second, second]
    assert fill["y"] == [2.0, 1.0, None, 6.0, 5.0]
    assert mean["y"] == [1.5, None, 5.5]
    assert mean["connectgaps"] is False
    assert (mean["x0"], mean["dx"]) == (first, 2_000)
    assert peak["marker"]["symbol"] == "diamond"
    assert peak["x"] == ["2026-05-04T12:00:05Z"]
    limit = drawn["layout"]["shapes"][0]
    assert (limit["y0"], limit["line"]["dash"]) == (7.0, "dash")
    assert drawn["layout"]["yaxis"]["range"][0] == 0
    assert drawn["layout"]["uirevision"] == "w"
    assert "left blank" in fleet_band.summary(view)
    assert "2 s bucket" in fleet_band.caption(view)


def test_band_table_merges_only_what_was_seen() -> None:
    count = 240
    data = seconds([1000 + at for at in range(count)], [2] * 200 + [0] * 40)
    view = fleet_band.band(data, np.full(count, 2, dtype=np.int64), 2, None)
    table = fleet_band.rows(view)
    assert len(table) == 120
    assert table[0] == ["12:03:58", "\u2013", "\u2013", "\u2013", "0\u202f%"]
    assert table[-1] == ["12:00:00", "1.00\u202fkW", "1.00\u202fkW", "1.00\u202fkW", "100\u202f%"]


@given(
    st.lists(st.tuples(st.integers(0, 5_000), st.integers(0, 8)), min_size=4, max_size=80),
    st.integers(1, 8),
)
def test_band_holds_its_mean_and_its_limits(samples: list[tuple[int, int]], expected: int) -> None:
    data = seconds([float(watts) for watts, _ in samples], [count for _, count in samples])
    view = fleet_band.band(data, np.full(len(samples), expected, dtype=np.int64), 4, None)
    shown = ~np.isnan(view.mean_w)
    assert len(view.mean_w) == len(samples) // 4
    assert (view.low_w[shown] <= view.mean_w[shown] + 1e-9).all()
    assert (view.mean_w[shown] <= view.high_w[shown] + 1e-9).all()
    assert (view.coverage[shown] >= 0.9).all()
    assert (view.peak is None) == (not shown.any())
    if view.peak:
        assert view.peak.power_w == view.high_w[shown].max()


@pytest.mark.parametrize("key", list(fleet_band.WINDOWS))
def test_windows_stay_within_the_limits_of_a_chart(key: str) -> None:
    window_s, _ = fleet_band.WINDOWS[key]
    bucket_s = fleet_band.BUCKETS_S[window_s]
    assert window_s % bucket_s == 0
    assert 86_400 % bucket_s == 0
    assert window_s // bucket_s <= MAX_POINTS
    data = seconds([5e6] * window_s, [9] * window_s)
    view = fleet_band.band(data, np.full(window_s, 9, dtype=np.int64), bucket_s, 7e6)
    size = len(json.dumps(fleet_band.figure(view, "dark", key)))
    assert size <= MAX_FIGURE_BYTES


def test_last_second_still_fills_and_is_not_drawn() -> None:
    count = 3_600 * 25
    reads = np.full(count, 4, dtype=np.int64)
    last = (NOON_US - (NOON_US - NOON_US % (3_600 * S) - 24 * 3_600 * S)) // S
    reads[last:] = 0
    reads[last] = 1
    data = Seconds(NOON_US - 24 * 3_600 * S, np.full(count, 4_000, dtype=np.int64), reads)
    shot = snapshot(seconds=data, expected=np.full(count, 4, dtype=np.int64))
    view = fleet.band_of(shot)
    assert view is not None
    assert view.end_us == NOON_US
    assert not np.isnan(view.mean_w).any()


def test_map_by_rack_and_node() -> None:
    cells = fleet_map.fleet_map(gpus(FIVE))
    number = {look: at + 1 for at, look in enumerate(fleet_map.LOOKS)}
    assert cells.by == "rack and node"
    assert cells.rows == ["R1  a", "R1  b", "", "R2  c"]
    assert cells.codes.tolist() == [
        [number[Look.ACTIVE], number[Look.EXECUTION_IDLE]],
        [number[Look.DEEP_IDLE], 0],
        [0, 0],
        [number[Look.UNKNOWN], number[Look.NO_DATA]],
    ]
    assert cells.index.tolist() == [[0, 1], [2, -1], [-1, -1], [3, 4]]
    assert fleet_map.summary(gpus(FIVE)) == (
        "5 GPUs: 1 active, 1 execution-idle, 1 deep idle, 1 unknown, 1 no data."
    )


def test_map_by_rack_separates_nodes() -> None:
    rows = [(f"R{n // 10}", f"n{n:02d}", g, "active", 1.0) for n in range(20) for g in range(2)]
    cells = fleet_map.fleet_map(gpus(rows))
    assert cells.by == "rack"
    assert cells.rows == ["R0", "R1"]
    assert cells.codes.shape == (2, 29)
    assert cells.codes[1].tolist() == [1, 1, 0] * 9 + [1, 1]
    assert cells.index[1, 3] == 22


def test_host_names_that_several_nodes_share_name_none() -> None:
    shared = gpus(FIVE, hostname=["vm", "vm", "vm", "own", "own"])
    assert fleet_map.fleet_map(shared).rows == ["R1  a", "R1  b", "", "R2  own"]


def test_no_data_has_an_outline_and_states_have_letters() -> None:
    drawn = fleet_map.figure(fleet_map.fleet_map(gpus(FIVE)), "light")
    heat, letters, crosses = drawn["data"]
    assert base64.b64decode(heat["z"]["bdata"]) == bytes([1, 2, 3, 0, 0, 0, 4, 5])
    assert heat["z"]["shape"] == "4, 2"
    assert letters["text"] == ["A", "E", "D", "?", ""]
    assert crosses["x"].count(None) == 1
    assert min(x for x in crosses["x"] if x is not None) > 0.5
    assert {y for y in crosses["y"] if y is not None} == {2.62, 3.38}


def test_cell_is_described() -> None:
    found = dict(fleet_map.describe(gpus(FIVE), 1))
    assert found["GPU"] == "a / 1"
    assert found["State"] == "Execution-idle for 7\u202fs"
    assert found["Power"] == "120\u202fW of 700\u202fW"
    assert found["Job"] == "none"
    silent = dict(fleet_map.describe(gpus(FIVE), 4))
    assert silent["Power"] == "not known"
    assert silent["State"] == "No data: no sample for 15 s"


def test_ten_thousand_gpus(capsys: pytest.CaptureFixture[str]) -> None:
    states = ["active"] * 6 + ["execution_idle", "deep_idle", "unknown", None]
    rows = [
        (f"R{n // 16:02d}", f"n{n:04d}", g, states[(n * 7 + g) % 10], 400.0)
        for n in range(1280)
        for g in range(8)
    ]
    frame = gpus(rows)
    started = time.perf_counter()
    cells = fleet_map.fleet_map(frame)
    text = json.dumps(fleet_map.figure(cells, "dark"))
    took_s = time.perf_counter() - started
    with capsys.disabled():
        sys.stdout.write(f"\n10,240 GPUs: map {len(text)} B in {took_s * 1e3:.0f} ms\n")
    assert cells.codes.shape == (80, 143)
    assert sum(fleet_map.counts(frame).values()) == 10_240
    assert len(text) <= MAX_FIGURE_BYTES
    assert took_s < 1.0


def waste_row(**more: Any) -> dict[str, Any]:
    row: dict[str, Any] = {
        "job_key": "alpha:7:0",
        "state": "execution_idle",
        "node_id": None,
        "gpus": 4,
        "waste_ms": 7_200_000,
        "energy_uj": 3.6e12,
        "energy_obs_ms": 7_200_000,
        "ongoing_gpus": 4,
        "ongoing_since_utc": at(11, 13),
        "first_utc": at(9, 0),
        "last_utc": at(12, 0),
        "job_ms": 14_400_000,
        "raw_id": "7",
        "job_name": "x",
        "user_name": "user-01",
        "job_class": "training",
        "end_utc": None,
    }
    return row | more


@pytest.mark.parametrize(
    ("more", "text"),
    [
        (
            {"state": "deep_idle", "ongoing_gpus": 64},
            "Release 64 GPUs of job 7: no process for 47 min, 1.00 kWh so far.",
        ),
        (
            {},
            "Check input loading and checkpoints of job 7: its GPUs wait 50 % of their time.",
        ),
        (
            {"job_class": "interactive"},
            "Ask user-01 to close or shrink job 7: an open session and 4 GPUs wait for 47 min.",
        ),
        (
            {"job_class": "serving"},
            "Share GPUs or scale job 7 down between requests: it waits 50 % of its time.",
        ),
        (
            {"job_key": None, "node_id": "n1", "job_ms": None},
            "Find what runs on n1: 4 GPUs held by a program outside any job.",
        ),
        (
            {"end_utc": at(11, 59)},
            "Check input loading before the next run: job 7 waited 50 % of its time.",
        ),
    ],
)
def test_next_step(more: dict[str, Any], text: str) -> None:
    found = fleet_waste.next_step(waste_row(**more), NOON_US)
    assert found.replace("\u202f", " ") == text


def test_day_of_a_period_stands_once() -> None:
    def since(**more: Any) -> str:
        waste = Waste(NOON_US, NOON_US, {}, pl.DataFrame([waste_row(ongoing_gpus=0, **more)]))
        return fleet_waste.rows(waste, NOON_US)[0].since

    yesterday = at(20) - dt.timedelta(days=1)
    assert since() == "09:00 to 12:00"
    assert since(first_utc=yesterday) == "03 May 20:00 to 12:00"
    assert since(first_utc=yesterday, last_utc=yesterday + dt.timedelta(hours=2)) == (
        "03 May 20:00 to 22:00"
    )


def test_waste_rows() -> None:
    waste = Waste(NOON_US, NOON_US, {}, pl.DataFrame([waste_row()]))
    (row,) = fleet_waste.rows(waste, NOON_US)
    assert (row.job, row.owner, row.gpus, row.since) == ("7", "user-01", "4", "11:13, still")
    assert row.share == "50\u202f%"
    assert fleet_waste.rows(None, NOON_US) == []
    assert "Not yet analysed" in fleet_waste.summary(None, NOON_US)
