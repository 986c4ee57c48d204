"""How an hour is read (batches, ranges of GPUs, live or sealed) never shows in its results."""

import random

import numpy as np
import pyarrow as pa
import pytest

from analysis import samples, states_job
from analysis.frame import ArrowColumns, columns_from_arrow
from analysis.samples import HourReader, ranges
from analysis.tables import Codes, runs_table, stamp
from idlewatt.clock import VirtualClock, us_from_utc
from idlewatt.config import resolve
from idlewatt.units import US_PER_HOUR
from warehouse.sealer import Sealer
from warehouse.store import Store

HOUR_US = 491_000 * US_PER_HOUR
S = 1_000_000
SETTINGS = resolve(environ={})
LIMITS = states_job.thresholds_of(SETTINGS)


@pytest.fixture
def store(tmp_path):
    clock = VirtualClock(HOUR_US + 9 * US_PER_HOUR)
    with Store.open(tmp_path / "data", SETTINGS, clock) as opened:
        yield opened


def hour_rows(seed, hour, gpus=5, length=40):
    """Return rows of an hour in the order of arrival: every state, holes, every energy source."""
    rng = random.Random(f"{seed}/{hour}")
    found = []
    for gpu in range(gpus):
        at_us = HOUR_US + hour * US_PER_HOUR + rng.choice([0, 0, 5]) * S
        while at_us < HOUR_US + hour * US_PER_HOUR + length * S:
            what = rng.choice("LLLAADNUZ")
            source = rng.choice(["counter", "counter", "power_avg", "power_inst", None])
            for _ in range(rng.randint(1, 7)):
                found.append(sample(gpu, at_us, what, source))
                at_us += S
            at_us += rng.choice([0, 0, 0, 2]) * S
    return sorted(found, key=lambda row: (row["ts_utc"], row["gpu_uuid"]))


def sample(gpu, at_us, what, source):
    """Return a row: Low, Active, Deep idle, Nobody knows, Utilisation only, Zero at power."""
    activity = {"A": 0.9, "U": None}.get(what, 0.0)
    return {
        "ts_utc": stamp(at_us),
        "obs_ms": 1000,
        "node_id": f"node-{gpu % 2}",
        "gpu_uuid": f"GPU-{gpu}",
        "epoch": 1,
        "resident": {"D": False, "N": None}.get(what, True),
        "sm_active": activity,
        "dram_active": activity,
        "util_gpu_pct": 0,
        "util_mem_pct": 0,
        "power_limit_mw": 700_000,
        "power_avg_mw": 600_000 if what == "Z" else 100_000,
        "power_inst_mw": 600_000 if what == "Z" else 100_000,
        "energy_uj": None if source is None else 100_000_000 + gpu,
        "energy_source": source,
    }


def put(store, rows):
    """Bring rows of one hour in, as ingest does."""

    def write(con):
        hour_us = us_from_utc(rows[0]["ts_utc"]) // US_PER_HOUR * US_PER_HOUR
        name = store.layout.open_table(con, hour_us).name
        con.register("fed", pa.Table.from_pylist(rows))
        con.execute(f"INSERT INTO {name} BY NAME SELECT * FROM fed")
        con.unregister("fed")
        con.execute(
            "INSERT INTO hour_change VALUES (?, ?, ?) ON CONFLICT (hour_utc) DO UPDATE "
            "SET change_seq = excluded.change_seq, rows = hour_change.rows + excluded.rows",
            [stamp(hour_us), store.layout.next_change(), len(rows)],
        )

    store.write(write)


def hold(store, gpu, from_s, to_s, job):
    store.write(
        lambda con: con.execute(
            "INSERT INTO allocation (gpu_uuid, start_utc, end_utc, job_key, share) "
            "VALUES (?, ?, ?, ?, 1)",
            [f"GPU-{gpu}", stamp(HOUR_US + from_s * S), stamp(HOUR_US + to_s * S), job],
        )
    )


def read(store, hour=0, **how):
    """Return the runs of an hour, as rows in the order (gpu, first)."""
    codes = Codes.new()
    with store.snapshot() as cur:
        runs = HourReader(cur, codes, LIMITS, **how).hour(HOUR_US + hour * US_PER_HOUR)
    return runs_table(runs, codes).to_pylist()


def tables(store):
    """Return everything stored, in order."""
    with store.snapshot() as cur:
        return [
            cur.execute(f"SELECT * FROM {name} ORDER BY gpu_uuid, first_ts_utc").fetchall()
            for name in ("state_run", "state_interval")
        ]


@pytest.mark.parametrize("seed", range(3))
def test_batches_ranges_and_sealing_do_not_show(store, monkeypatch, seed):
    put(store, hour_rows(seed, 0))
    hold(store, 0, 3, 17, "job-a")
    hold(store, 3, -5, 20, "job-b")
    live = read(store)
    assert {row["raw_state"] for row in live} == {"active", "low", "deep_idle", "unknown"}
    assert {row["job_key"] for row in live} == {None, "job-a", "job-b"}
    assert read(store, range_rows=50) == live
    assert Sealer(store).run_once() > 0
    assert read(store) == live
    assert read(store, range_rows=50) == live
    for rows in (1, 7, 64):
        monkeypatch.setattr(samples, "_BATCH_ROWS", rows)
        assert read(store) == live


def test_rows_that_come_late_to_a_sealed_hour_are_sorted_in(store):
    rows = hour_rows(7, 0)
    put(store, rows)
    whole = read(store)
    late = rows[::9]
    store.write(lambda con: con.execute("DELETE FROM " + store.layout.live_names()[0]))
    put(store, [row for row in rows if row not in late])
    Sealer(store).run_once()
    assert read(store) != whole
    put(store, late)
    assert read(store) == whole


def test_rows_out_of_order_are_seen_whatever_the_catalogue_says(store, monkeypatch):
    """The hint that an hour is sorted saves memory; it is not trusted."""
    put(store, hour_rows(8, 0))
    expected = read(store)
    original = samples.load

    def hint(name):
        return "SELECT $hour_utc IS NULL" if name.endswith("states_sources") else original(name)

    monkeypatch.setattr(samples, "load", hint)
    for rows in (3, 1 << 16):
        monkeypatch.setattr(samples, "_BATCH_ROWS", rows)
        assert read(store) == expected


def test_the_catalogue_tells_sorted_hours_from_others(store):
    def may_be_unsorted():
        with store.snapshot() as cur:
            text = samples.load("statements/states_sources")
            return cur.execute(text, {"hour_utc": stamp(HOUR_US)}).fetchall() == [(True,)]

    rows = hour_rows(9, 0)
    put(store, rows[:50])
    assert may_be_unsorted()
    Sealer(store).run_once()
    assert not may_be_unsorted()
    put(store, rows[50:])
    assert may_be_unsorted()
    Sealer(store).run_once()
    assert may_be_unsorted()  # two files over the same GPUs


@pytest.mark.parametrize("seed", range(2))
def test_catching_up_at_once_equals_hour_by_hour(store, tmp_path, seed):
    hours = list(range(7))
    for hour in hours:
        put(store, hour_rows(seed, hour) + border(seed, hour))
    summary = states_job.refresh(store, SETTINGS, store.clock)
    assert summary.hours == [HOUR_US + hour * US_PER_HOUR for hour in reversed(hours)]
    random.Random(seed).shuffle(hours)
    with Store.open(tmp_path / "other", SETTINGS, store.clock) as other:
        for hour in hours:
            put(other, hour_rows(seed, hour) + border(seed, hour))
            states_job.refresh(other, SETTINGS, store.clock)
        assert tables(other) == tables(store)
    # Doing all of it anew, over what is there, changes nothing.
    before = tables(store)
    states_job.recompute(store, HOUR_US, HOUR_US + 7 * US_PER_HOUR, SETTINGS, store.clock)
    assert tables(store) == before


def border(seed, hour):
    """Return rows at the end of an hour, so that runs go on into the next."""
    rng = random.Random(f"border/{seed}/{hour}")
    end_us = HOUR_US + (hour + 1) * US_PER_HOUR
    return [
        sample(gpu, end_us - back * S, what, "counter")
        for gpu in range(5)
        for what in rng.choice("LLAD")
        for back in range(rng.randint(1, 4), 0, -1)
    ]


def test_a_late_row_stitches_the_pieces_of_its_gpu_only(store):
    for hour in range(2):
        put(store, hour_rows(1, hour) + border(1, hour))
    states_job.refresh(store, SETTINGS, store.clock)
    before = tables(store)
    put(store, [sample(9, HOUR_US + 99 * S, "A", "counter")])
    summary = states_job.refresh(store, SETTINGS, store.clock)
    assert (len(summary.hours), summary.pieces) == (1, 1)
    for was, now in zip(before, tables(store), strict=True):
        assert [row for row in now if "GPU-9" not in row] == was
        assert len(now) == len(was) + 1


def test_recompute_repairs_results_that_were_damaged(store):
    put(store, hour_rows(2, 0))
    states_job.refresh(store, SETTINGS, store.clock)
    before = tables(store)
    store.write(lambda con: con.execute("DELETE FROM state_interval WHERE gpu_uuid = 'GPU-2'"))
    store.write(lambda con: con.execute("UPDATE state_interval SET samples = 1"))
    states_job.recompute(store, HOUR_US, HOUR_US + 1, SETTINGS, store.clock)
    assert tables(store) == before


def test_a_gpu_whose_rows_are_gone_loses_its_results(store):
    put(store, hour_rows(3, 0))
    states_job.refresh(store, SETTINGS, store.clock)
    name = store.layout.live_names()[0]
    store.write(lambda con: con.execute(f"DELETE FROM {name} WHERE gpu_uuid = 'GPU-1'"))
    put(store, [sample(0, HOUR_US + 99 * S, "A", "counter")])
    states_job.refresh(store, SETTINGS, store.clock)
    runs, pieces = tables(store)
    assert runs
    assert not [row for row in runs + pieces if "GPU-1" in row]


def test_ranges_hold_about_so_many_rows_and_no_hash_twice():
    assert list(ranges([10, 10, 10, 10], [1, 2, 3, 4], 25)) == [(0, 2), (2, 4)]
    assert list(ranges([50, 1, 1], [1, 2, 3], 25)) == [(0, 1), (1, 3)]
    assert list(ranges([1, 1, 1, 1], [1, 2, 1, 2], 25)) == [(0, 2), (2, 4)]
    assert list(ranges([], [], 25)) == []


def test_columns_are_the_same_whether_made_at_once_or_when_asked_for():
    table = pa.Table.from_pylist(hour_rows(4, 0)).append_column(
        "fp64_active", pa.nulls(len(hour_rows(4, 0)), pa.float32())
    )
    at_once, lazy = columns_from_arrow(table), ArrowColumns(table)
    assert lazy.get("fp64_active") is None
    assert lazy.get("tensor_active") is None
    assert len(lazy["fp64_active"]) == table.num_rows
    for name, column in at_once.items():
        assert np.array_equal(lazy.get(name).present(), column.present())
        where = column.present()
        assert np.array_equal(lazy.get(name).values[where], column.values[where])
