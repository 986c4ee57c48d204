"""Incremental results equal the whole-period run row by row, whatever the order of arrival."""

import random

import pyarrow as pa
import pytest

from analysis import states_job
from analysis.tables import intervals_table, stamp
from idlewatt.clock import VirtualClock, us_from_utc
from idlewatt.config import resolve
from idlewatt.units import US_PER_HOUR
from warehouse.store import Store

HOUR_US = 491_000 * US_PER_HOUR
S = 1_000_000
COLUMNS = (
    "gpu_uuid, node_id, hour_utc, first_ts_utc, last_ts_utc, state, basis, reason, job_key, "
    "samples, obs_ms, run_ms, energy_counter_uj, energy_power_avg_uj, energy_power_inst_uj, "
    "energy_obs_ms"
)


@pytest.fixture
def clock():
    return VirtualClock(HOUR_US + 5 * US_PER_HOUR)


@pytest.fixture
def store(tmp_path, clock):
    with Store.open(tmp_path / "data", resolve(environ={}), clock) as opened:
        yield opened


def settings(**changes):
    return resolve({f"analysis.{name}": value for name, value in changes.items()}, environ={})


def row(gpu, ts_us, what, energy=True):
    """Return one sample; `what`: Low, Active, Deep idle, Nobody knows, by Utilisation."""
    return {
        "ts_utc": stamp(ts_us),
        "obs_ms": 1000,
        "node_id": f"node-{gpu % 2}",
        "gpu_uuid": f"GPU-{gpu}",
        "epoch": 1,
        "resident": {"D": False, "N": None}.get(what, True),
        "sm_active": None if what == "U" else 0.9 if what == "A" else 0.0,
        "util_gpu_pct": 0,
        "util_mem_pct": 0,
        "energy_uj": 110_000_000 if energy else None,
        "energy_source": "counter" if energy else None,
    }


class Feed:
    """Puts rows and allocations into the store in the way that ingest does."""

    def __init__(self, store):
        self.store = store

    def rows(self, rows):
        def write(con):
            for hour_us in sorted({self.hour(item) for item in rows}):
                mine = [item for item in rows if self.hour(item) == hour_us]
                table = self.store.layout.open_table(con, hour_us).name
                con.register("fed", pa.Table.from_pylist(mine))
                con.execute(f"INSERT INTO {table} BY NAME SELECT * FROM fed")
                con.unregister("fed")
                self.bump(con, hour_us, len(mine))

        if rows:
            self.store.write(write)

    @staticmethod
    def hour(item):
        us = us_from_utc(item["ts_utc"])
        return us - us % US_PER_HOUR

    def bump(self, con, hour_us, delta):
        con.execute(
            "INSERT INTO hour_change VALUES (?, ?, ?) ON CONFLICT (hour_utc) DO UPDATE "
            "SET change_seq = excluded.change_seq, rows = hour_change.rows + excluded.rows",
            [stamp(hour_us), self.store.layout.next_change(), delta],
        )

    def hold(self, gpu, start_us, end_us, job, share=1.0):
        def write(con):
            con.execute(
                "INSERT INTO allocation (gpu_uuid, start_utc, end_utc, job_key, share) "
                "VALUES (?, ?, ?, ?, ?)",
                [f"GPU-{gpu}", stamp(start_us), end_us and stamp(end_us), job, share],
            )
            for (hour,) in con.execute("SELECT hour_utc FROM hour_change").fetchall():
                con.execute(
                    "UPDATE hour_change SET change_seq = ? WHERE hour_utc = ?",
                    [self.store.layout.next_change(), hour],
                )

        self.store.write(write)


def stored(store, where="true"):
    with store.snapshot() as cur:
        return cur.execute(
            f"SELECT {COLUMNS} FROM state_interval WHERE {where} ORDER BY gpu_uuid, first_ts_utc"
        ).fetchall()


def computed(store, minimum=5):
    limits = states_job.thresholds_of(settings(min_interval_s=minimum))
    period = states_job.whole_period(
        store, HOUR_US - 10 * US_PER_HOUR, HOUR_US + 10 * US_PER_HOUR, limits
    )
    table = intervals_table(period.pieces, period.codes).select(COLUMNS.split(", "))
    rows = [tuple(item.values()) for item in table.to_pylist()]
    return sorted(rows, key=lambda item: (item[0], item[3]))


def fleet(seed, hours=4, gpus=3):
    """Return rows near the borders of hours, with holes, of every state."""
    rng = random.Random(seed)
    found = []
    for gpu in range(gpus):
        for hour in range(1, hours):
            border_us = HOUR_US + hour * US_PER_HOUR
            at = border_us - rng.randint(1, 40) * S
            while at < border_us + rng.randint(1, 40) * S:
                what = rng.choice("LLLLAAADNU")
                for _ in range(rng.choice([1, 2, 3, 4, 5, 6, 9])):
                    found.append(row(gpu, at, what, rng.random() < 0.9))
                    at += S
                at += S * rng.choice([0, 0, 0, 0, 0, 1])
    return found


@pytest.mark.parametrize("seed", range(4))
def test_any_order_of_arrival_gives_the_whole_period_run(store, clock, seed):
    rng = random.Random(100 + seed)
    feed = Feed(store)
    rows = fleet(seed)
    late = [item for item in rows if rng.random() < 0.1]
    hours = sorted({feed.hour(item) for item in rows}, reverse=bool(seed % 2))
    if seed > 1:
        rng.shuffle(hours)
    feed.hold(0, HOUR_US, HOUR_US + 2 * US_PER_HOUR + 3 * S, "job-a")
    for hour_us in hours:
        feed.rows([item for item in rows if feed.hour(item) == hour_us and item not in late])
        states_job.refresh(store, settings(), clock)
        assert stored(store) == computed(store)
    for item in rng.sample(late, len(late)):
        feed.rows([item])
        if rng.random() < 0.3:
            states_job.refresh(store, settings(), clock)
    feed.hold(1, HOUR_US + 2 * US_PER_HOUR - 3 * S, None, "job-b")
    states_job.refresh(store, settings(), clock)
    assert stored(store) == computed(store)
    assert sum(item[9] for item in stored(store)) == len(rows)


def test_a_run_over_many_hours_is_followed_to_its_ends(store, clock):
    feed = Feed(store)
    rows = [
        row(gpu, HOUR_US + second * S, "A" if gpu else "D")
        for gpu in range(2)
        for second in range(0, 5 * 3600, 1)
        if second % 3600 < 3 or second % 3600 > 3596
    ]
    # Two seconds around each border, and an interval of an hour less six seconds between them.
    for item in rows:
        if item["ts_utc"].minute == 59 and item["ts_utc"].second == 57:
            item["obs_ms"] = (3600 - 6 + 1) * 1000
    for hour in (2, 0, 4, 3, 1):
        feed.rows([item for item in rows if feed.hour(item) == HOUR_US + hour * US_PER_HOUR])
        states_job.refresh(store, settings(), clock)
        assert stored(store) == computed(store)
    assert {item[11] for item in stored(store)} == {5 * 3600 * 1000}


def test_a_second_refresh_finds_nothing_to_do(store, clock):
    feed = Feed(store)
    feed.rows(fleet(1))
    first = states_job.refresh(store, settings(), clock)
    before = stored(store)
    assert len(first.hours) >= 3
    assert states_job.refresh(store, settings(), clock).hours == []
    assert stored(store) == before


def test_changing_a_threshold_computes_every_hour_again(store, clock):
    Feed(store).rows(fleet(2))
    hours = states_job.refresh(store, settings(), clock).hours
    changed = settings(min_interval_s=1)
    assert states_job.refresh(store, changed, clock).hours == hours
    assert stored(store) == computed(store, minimum=1)
    assert stored(store) != computed(store, minimum=5)
    states_job.refresh(store, settings(), clock)
    assert stored(store) == computed(store)


def test_newest_hours_come_first_and_the_rest_waits_for_its_turn(store, clock):
    feed = Feed(store)
    feed.rows([row(0, HOUR_US + hour * US_PER_HOUR, "A") for hour in range(5)])
    clock.advance(1)

    def slow(done, _total):
        clock.advance(10)

    first = states_job.refresh(store, settings(), clock, budget_s=1, progress=slow)
    assert first.hours == [HOUR_US + 4 * US_PER_HOUR, HOUR_US + 3 * US_PER_HOUR]
    assert first.pending == 3
    second = states_job.refresh(store, settings(), clock)
    assert len(second.hours) == 3
    assert stored(store) == computed(store)


def test_the_owner_is_who_held_the_gpu_half_a_second_before_the_stamp(store, clock):
    feed = Feed(store)
    feed.hold(0, HOUR_US + 10 * S, HOUR_US + 20 * S, "job-a")
    feed.rows([row(0, HOUR_US + second * S, "A") for second in range(30)])
    states_job.refresh(store, settings(), clock)
    pieces = [(item[8], item[3].second, item[4].second) for item in stored(store)]
    assert pieces == [(None, 0, 10), ("job-a", 11, 20), (None, 21, 29)]


def test_of_two_owners_the_higher_share_then_the_lower_key_counts(store, clock):
    feed = Feed(store)
    feed.hold(0, HOUR_US - S, None, "job-c", share=0.25)
    feed.hold(0, HOUR_US - S, None, "job-b", share=0.25)
    feed.hold(0, HOUR_US + 10 * S, None, "job-z", share=0.5)
    feed.rows([row(0, HOUR_US + second * S, "A") for second in range(20)])
    states_job.refresh(store, settings(), clock)
    assert [item[8] for item in stored(store)] == ["job-b", "job-z"]


def test_rows_that_come_while_an_hour_is_computed_are_seen_next_time(store, clock, monkeypatch):
    feed = Feed(store)
    feed.rows([row(0, HOUR_US + second * S, "L") for second in range(4)])
    original = states_job.reach_of

    def meanwhile(*args):
        monkeypatch.setattr(states_job, "reach_of", original)
        feed.rows([row(0, HOUR_US + 4 * S, "L")])
        return original(*args)

    monkeypatch.setattr(states_job, "reach_of", meanwhile)
    states_job.refresh(store, settings(), clock)
    assert [item[5] for item in stored(store)] == ["active"]
    assert len(states_job.refresh(store, settings(), clock).hours) == 1
    assert [item[5] for item in stored(store)] == ["execution_idle"]


def test_a_failing_write_leaves_the_old_results_and_is_done_again(store, clock, monkeypatch):
    feed = Feed(store)
    feed.rows(fleet(3))
    states_job.refresh(store, settings(), clock)
    before = stored(store)
    feed.rows([row(9, HOUR_US + second * S, "L") for second in range(9)])
    original = states_job._write_hour

    def torn(*args):
        original(*args)
        raise RuntimeError("power cut")

    monkeypatch.setattr(states_job, "_write_hour", torn)
    with pytest.raises(RuntimeError, match="power cut"):
        states_job.refresh(store, settings(), clock)
    assert stored(store) == before
    monkeypatch.setattr(states_job, "_write_hour", original)
    states_job.refresh(store, settings(), clock)
    assert stored(store) == computed(store)
    assert stored(store, "gpu_uuid = 'GPU-9'")


def test_the_node_of_an_hour_is_the_one_that_held_the_gpu_last(store, clock):
    feed = Feed(store)
    moved = [row(0, HOUR_US + second * S, "A") for second in range(6)]
    for item in moved[:4]:
        item["node_id"] = "node-9"
    feed.rows([*moved, row(0, HOUR_US + US_PER_HOUR, "A"), row(1, HOUR_US, "A")])
    states_job.refresh(store, settings(), clock)
    assert [item[:2] for item in stored(store)] == [
        ("GPU-0", "node-0"),
        ("GPU-0", "node-0"),
        ("GPU-1", "node-1"),
    ]
    assert stored(store) == computed(store)


def test_an_import_of_another_interval_and_a_row_without_energy(store, clock):
    feed = Feed(store)
    rows = [row(0, HOUR_US + step * 15 * S, "L", energy=step != 2) for step in range(1, 5)]
    for item in rows:
        item["obs_ms"] = 15_000
    feed.rows(rows)
    states_job.refresh(store, settings(min_interval_s=60), clock)
    (piece,) = stored(store)
    assert piece[5] == "execution_idle"
    assert piece[10:] == (60_000, 60_000, 330_000_000, None, None, 45_000)


def test_a_period_inside_hours_is_cut_and_keeps_the_length_of_the_run(store):
    feed = Feed(store)
    feed.rows([row(0, HOUR_US + second * S, "L") for second in range(-20, 20)])
    period = states_job.whole_period(
        store, HOUR_US + 2 * S, HOUR_US + 5 * S, states_job.thresholds_of(settings())
    )
    assert period.samples == 3
    assert period.pieces.obs_ms.tolist() == [3000]
    assert period.pieces.run_ms.tolist() == [40_000]


def test_views_of_energy_add_up(store, clock):
    feed = Feed(store)
    feed.hold(0, HOUR_US - S, None, "job-a")
    rows = [row(gpu, HOUR_US + second * S, what) for gpu in range(2) for second, what in
            enumerate("AAALLLLLLDDN")]  # fmt: skip
    feed.rows(rows)
    states_job.refresh(store, settings(), clock)
    with store.snapshot() as cur:

        def one(sql):
            return cur.execute(sql).fetchall()

        assert one("SELECT state, seen_s, energy_j FROM energy_by_state ORDER BY state") == [
            ("active", 6.0, 660.0),
            ("deep_idle", 4.0, 440.0),
            ("execution_idle", 12.0, 1320.0),
            ("unknown", 2.0, 220.0),
        ]
        for view, count in (("gpu", 2), ("node", 2), ("job", 1)):
            found = one(
                "SELECT seen_s, execution_idle_s, energy_j, energy_counter_j, energy_coverage, "
                f"time_coverage, execution_idle_time_share FROM energy_by_{view}"
            )
            assert found == [(12.0, 6.0, 1320.0, 1320.0, 1.0, 1.0, 6 / 9)] * count
