"""Statements that would take the server's time or memory: refused before, or stopped."""

from __future__ import annotations

import contextlib
import resource
import threading
import time

import pytest

from idlewatt.errors import QueryError
from warehouse import statement
from warehouse.preflight import Preflight
from warehouse.queries import run_query
from warehouse.statement import check_statement
from warehouse.watchdog import Watchdog, resident_bytes

TOO_LARGE = {
    "kB": "SELECT '" + "a" * 70_000 + "'",
    "kB ": "SELECT a" + ".a" * 90_000,
    "parts joined by dots": "SELECT a" + ".a" * 100,
    "tables|nested": "SELECT count(*) FROM job " + "JOIN job USING(job_key) " * 2_000,
    "more than 100 tables": "SELECT 1 FROM " + ",".join(f"job j{k}" for k in range(101)),
    "nested|depth|stack": "SELECT " + "abs(" * 9_000 + "1" + ")" * 9_000,
    "nested |depth|stack": "SELECT * FROM " + "(SELECT * FROM " * 800 + "job" + ")" * 800,
    "too many parts": "SELECT 1 IN (" + ",".join(["1"] * 30_000) + ")",
}
HUGE_VALUES = [
    "SELECT length(repeat('x', 2000000000))",
    "SELECT sum(length(repeat('x', 20000000) || range)) FROM range(100000)",
    "SELECT repeat(repeat('x', 5000), 5000)",
    "SELECT repeat('x', range::INTEGER) FROM range(100000)",
    "SELECT lpad('x', 2000000000, 'y'), rpad('x', 2000000000, 'y')",
    "SELECT count(*) FROM (SELECT unnest(range(1000000000)))",
    "SELECT count(*) FROM unnest(range(1000000000))",
    "SELECT len(generate_series(1, 1_000_000_000))",
    "SELECT len(range(-1000000000, 0))",
    "SELECT range(0, range) FROM range(100000)",
    "SELECT len(list_resize([1], 1000000000, 0))",
    "SELECT printf('%1000000000d', 1)",
    "SELECT format('{:>1000000000}', 1)",
    "SELECT levenshtein('a' || range, 'b') FROM range(5)",
    "SELECT pg_sleep(3)",
]
# Small statements over which the planner of DuckDB does not come back.
UNPLANNABLE = {
    "aliases": "SELECT 1 AS a0, "
    + ", ".join(f"a{k} + a{k} AS a{k + 1}" for k in range(40))
    + " FROM job",
    "copies of WITH": "WITH a0 AS (SELECT 1 x), "
    + ", ".join(
        f"a{k} AS NOT MATERIALIZED (SELECT * FROM a{k - 1} UNION ALL SELECT * FROM a{k - 1})"
        for k in range(1, 40)
    )
    + " SELECT count(*) FROM a39",
}


@pytest.fixture(scope="module")
def bench(tmp_path_factory, make_bench):
    folder = tmp_path_factory.mktemp("limits")
    with contextlib.closing(make_bench(folder, query__plan_s=1.0, query__memory_mib=128)) as made:
        yield made


@pytest.mark.parametrize("why", sorted(TOO_LARGE))
def test_statement_out_of_size_is_refused_at_once(bench, why):
    started = time.monotonic()
    with pytest.raises(QueryError, match=f"(?i){why.strip()}") as caught:
        run_query(bench.store, TOO_LARGE[why])
    assert "\n" not in str(caught.value)
    assert time.monotonic() - started < 5


@pytest.mark.parametrize("sql", HUGE_VALUES)
def test_huge_value_is_refused_before_it_exists(bench, sql):
    before = resident_bytes()
    with pytest.raises(QueryError):
        check_statement(sql)
    with pytest.raises(QueryError):
        run_query(bench.store, sql)
    assert resident_bytes() - before < 64 << 20


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT repeat('#', 20), lpad('7', 2, '0'), repeat('#', least(range, 50)) FROM range(3)",
        "SELECT unnest(range(1000)), repeat('ab', 3::INTEGER)",
        "SELECT count(*) FROM range(100000000)",
        "SELECT count(*) FROM generate_series(TIMESTAMP '2026-01-01', '2026-01-02', "
        "INTERVAL 1 SECOND)",
        "SELECT unnest(range(TIMESTAMP '2026-01-01', '2026-01-02', INTERVAL 1 SECOND))",
        "SELECT format('{:.2f} W', 1.5), printf('%5d', 7)",
        "SELECT range(-5, 5), range(10, 0, -1)",
    ],
)
def test_generators_of_usual_size_are_answered(bench, sql):
    assert run_query(bench.store, sql).table.num_rows >= 1


@pytest.mark.parametrize("what", sorted(UNPLANNABLE))
def test_plan_that_never_ends_is_refused_and_the_next_statement_runs(bench, what):
    check_statement(UNPLANNABLE[what])  # nothing in its tree gives it away
    before, started = resident_bytes(), time.monotonic()
    with pytest.raises(QueryError, match=r"planned|planning"):
        run_query(bench.store, UNPLANNABLE[what])
    assert time.monotonic() - started < 8
    assert resident_bytes() - before < 64 << 20
    assert run_query(bench.store, "SELECT 1").table.num_rows == 1


def test_lost_planning_process_is_replaced(monkeypatch):
    preflight = Preflight(1)
    with contextlib.closing(preflight):
        preflight.check("SELECT 1", {}, 5.0)
        preflight._idle[0]._process.kill()
        preflight._idle[0]._process.wait()
        preflight.check("SELECT $a", {"a": 1}, 5.0)
        with pytest.raises(QueryError, match="nonsense"):
            preflight.check("SELECT nonsense", {}, 5.0)
        assert len(preflight._idle) == 1
    assert preflight._idle == []


class Stubborn:
    """A cursor that hears the third interrupt only."""

    def __init__(self):
        self.heard, self.ended = 0, threading.Event()

    def interrupt(self):
        self.heard += 1
        if self.heard == 3:
            self.ended.set()


def test_interrupt_is_repeated_until_the_statement_ends():
    cursor = Stubborn()
    with Watchdog().watch(cursor, 0.01, 1 << 40) as item:
        assert cursor.ended.wait(10)
        assert "stopped after 0.01 s" in item.reason


def test_memory_beyond_the_limit_stops_but_the_databases_own_does_not():
    held = [100 << 20]
    dog = Watchdog(lambda: held[0])
    guilty, own = Stubborn(), Stubborn()
    counted = [0]
    with (
        dog.watch(own, 60, 64 << 20, lambda: counted[0]) as innocent,
        dog.watch(guilty, 60, 64 << 20) as item,
    ):
        counted[0] = 80 << 20
        held[0] += 100 << 20
        assert guilty.ended.wait(10)
    assert "64 MiB" in item.reason
    assert (innocent.reason, own.heard) == ("", 0)


def test_growing_value_is_stopped_by_memory(bench):
    """A list that an aggregate collects is nobody's generator."""
    sql = "SELECT length(string_agg(repeat('x', 100000) || range, '')) FROM range(40000)"
    before = resident_bytes()
    with pytest.raises(QueryError, match=r"MiB|memory|Memory"):
        run_query(bench.store, sql)
    assert resident_bytes() - before < 1 << 30


def test_ceiling_holds_only_while_statements_run():
    dog, before = Watchdog(), resource.getrlimit(resource.RLIMIT_DATA)
    with dog.watch(Stubborn(), 60, 1 << 40, ceiling_bytes=512 << 20):
        with dog.watch(Stubborn(), 60, 1 << 40, ceiling_bytes=1 << 40):
            within = resource.getrlimit(resource.RLIMIT_DATA)
            with pytest.raises(MemoryError):
                bytearray(1 << 30)
        assert resource.getrlimit(resource.RLIMIT_DATA) == within != before
    assert resource.getrlimit(resource.RLIMIT_DATA) == before
    assert len(bytearray(1 << 30)) == 1 << 30


def test_rows_that_one_step_multiplies_end_the_statement_and_nothing_else(bench, kit):
    """2,048 lists of 300,000 items are one vector: 4.7 GiB of which no interrupt is heard."""
    before = resident_bytes()
    with pytest.raises(QueryError, match=r"memory|MiB"):
        run_query(
            bench.store,
            "SELECT sum(len(list_concat(l, [range]))) "
            "FROM (SELECT list(range) AS l FROM range(300000)), range(2048)",
        )
    assert resident_bytes() - before < 3 << 30
    assert bench.send(kit.batch(1, [kit.sample(0)])).acked == 1


def test_all_named_queries_pass_the_limits():
    from warehouse.queries import named_queries
    from warehouse.relations import relations

    assert statement.MAX_DEPTH < 1000
    for query in named_queries():
        check_statement(query.sql)
    for item in relations():
        check_statement(item.sql)
