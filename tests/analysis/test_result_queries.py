"""The named queries on results run in the sandbox and agree with the views."""

import pytest

from analysis import states_job
from analysis.shares import shares
from analysis.tables import stamp
from idlewatt.clock import VirtualClock
from idlewatt.config import resolve
from idlewatt.model import State
from idlewatt.units import US_PER_HOUR
from warehouse.queries import named_queries, named_query, run_query
from warehouse.store import Store

HOUR_US = 491_000 * US_PER_HOUR
S = 1_000_000
NAMES = (
    "energy_by_state_and_node",
    "execution_idle_by_gpu",
    "execution_idle_by_hour",
    "execution_idle_by_job",
    "execution_idle_by_user",
    "execution_idle_runs",
    "execution_idle_shares",
    "results_coverage",
    "top_waste",
)
PATTERN = "A" * 6 + "L" * 7 + "A" * 4 + "L" * 3 + "A" * 5 + "L" * 12 + "A" * 3 + "D" * 5


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    settings, clock = resolve(environ={}), VirtualClock(HOUR_US)
    path = tmp_path_factory.mktemp("queries") / "data"
    with Store.open(path, settings, clock) as opened:
        opened.write(lambda con: fill(opened, con))
        states_job.refresh(opened, settings, clock)
        yield opened


def fill(store, con):
    """Two GPUs over an hour's border, one of them held by a job; and a MIG instance."""
    con.execute(
        "INSERT INTO job (job_key, user_name, job_class) VALUES ('c:1:0', 'somebody', 'training')"
    )
    con.execute(
        "INSERT INTO allocation (gpu_uuid, start_utc, job_key, share) VALUES ('GPU-0', ?, ?, 1)",
        [stamp(HOUR_US - US_PER_HOUR), "c:1:0"],
    )
    con.execute(
        "INSERT INTO device_history (gpu_uuid, node_id, valid_from_utc, parent_uuid) "
        "VALUES ('MIG-0', 'n', ?, 'GPU-1')",
        [stamp(HOUR_US)],
    )
    begin = -18
    for hour_us in (HOUR_US - US_PER_HOUR, HOUR_US):
        table = store.layout.open_table(con, hour_us).name
        rows = []
        for at, what in enumerate(PATTERN):
            ts_us = HOUR_US + (begin + at) * S
            if ts_us - ts_us % US_PER_HOUR == hour_us:
                for gpu in ("GPU-0", "GPU-1", "MIG-0"):
                    energy = None if gpu == "MIG-0" else {"A": 400, "L": 120, "D": 70}[what]
                    rows.append(
                        [stamp(ts_us), gpu, what != "D", 0.9 if what == "A" else 0.0, energy]
                    )
        con.executemany(
            f"INSERT INTO {table} (ts_utc, obs_ms, node_id, gpu_uuid, epoch, resident, sm_active, "
            "energy_uj, energy_source) SELECT ts, 1000, 'n', gpu, 1, resident, sm, e * 1000000, "
            "CASE WHEN e IS NOT NULL THEN 'counter' END FROM (SELECT ?::TIMESTAMP AS ts, ? AS gpu, "
            "?::BOOLEAN AS resident, ?::FLOAT AS sm, ?::BIGINT AS e)",
            rows,
        )
        con.execute(
            "INSERT INTO hour_change VALUES (?, ?, ?)",
            [stamp(hour_us), store.layout.next_change(), len(rows)],
        )


def ask(store, name, **params):
    query = named_query(name)
    return run_query(store, query.sql, query.bind(params)).table.to_pylist()


def test_all_named_queries_on_results_are_known():
    assert set(NAMES) <= {query.name for query in named_queries()}


@pytest.mark.parametrize("name", NAMES)
def test_a_named_query_answers_with_its_defaults_and_in_an_empty_period(store, name):
    assert ask(store, name)
    empty = ask(store, name, from_utc="2001-01-01", to_utc="2001-01-02")
    assert empty == []


def test_by_job_counts_what_the_job_held(store):
    (row,) = ask(store, "execution_idle_by_job")
    assert row["user_name"] == "somebody"
    assert row["gpus"] == 1
    assert row["execution_idle_h"] == pytest.approx(19 / 3600, abs=1e-4)
    assert row["time_share"] == pytest.approx(19 / 40)
    assert row["execution_idle_kwh"] == pytest.approx(19 * 120 / 3.6e6)
    assert row["energy_share"] == pytest.approx(19 * 120 / (19 * 120 + 3 * 120 + 18 * 400))
    assert ask(store, "execution_idle_by_job", min_job_s=46) == []


def test_instances_are_not_counted_beside_their_device(store):
    assert {row["gpu_uuid"] for row in ask(store, "execution_idle_by_gpu")} == {"GPU-0", "GPU-1"}
    rows = ask(store, "energy_by_state_and_node")
    assert sum(row["seen_h"] for row in rows) == pytest.approx(2 * len(PATTERN) / 3600)


def test_shares_by_length_equal_the_vectorised_ones(store):
    period = states_job.whole_period(
        store,
        HOUR_US - US_PER_HOUR,
        HOUR_US + US_PER_HOUR,
        states_job.thresholds_of(resolve(environ={})),
    )
    expected = {item.min_interval_s: item.time for item in shares(period.runs, (1, 5, 10, 30, 60))}
    found = {
        row["min_interval_s"]: row["time_share"] for row in ask(store, "execution_idle_shares")
    }
    assert found == pytest.approx(expected)
    assert expected[1] > expected[5] > expected[10] > expected[30] == 0


def test_held_but_empty_counts_as_waste_and_free_does_not(store):
    rows = ask(store, "top_waste")
    assert [(row["job_key"], row["waste"]) for row in rows] == [
        ("c:1:0", State.EXECUTION_IDLE),
        (None, State.EXECUTION_IDLE),
        ("c:1:0", "held_empty"),
    ]
    assert rows[2]["waste_h"] == pytest.approx(5 / 3600)
    assert rows[2]["power_w"] == pytest.approx(70)


def test_coverage_says_what_was_seen_and_that_it_is_current(store):
    rows = ask(store, "results_coverage")
    assert [row["samples"] for row in rows] == [row["samples_classified"] for row in rows]
    assert all(row["current"] for row in rows)
    assert [row["coverage"] for row in rows] == [1, 1]  # expected since each device is known


def test_the_longest_runs_come_first(store):
    rows = ask(store, "execution_idle_runs", min_run_s=5)
    assert [row["run_s"] for row in rows] == sorted((row["run_s"] for row in rows), reverse=True)
    assert rows[0]["run_s"] == 12
    assert rows[0]["power_w"] == pytest.approx(120)
