"""Statements from outside: what is let through, what is refused, and in which words."""

from __future__ import annotations

import contextlib
import time

import duckdb
import pytest

from idlewatt.errors import QueryError
from warehouse.queries import run_query

HOSTILE = {
    "DROP VIEW gpu_sample": "only SELECT",
    "INSERT INTO job (job_key) VALUES ('x')": "only SELECT",
    "UPDATE job SET cluster = 'x'": "only SELECT",
    "DELETE FROM job": "only SELECT",
    "CREATE TABLE x (a INTEGER)": "only SELECT",
    "COPY job TO 'x.csv'": "only SELECT",
    "COPY (SELECT 1) TO '/tmp/x.parquet'": "only SELECT",
    "ATTACH '/tmp/x.duckdb'": "only SELECT",
    "DETACH idlewatt": "only SELECT",
    "EXPORT DATABASE 'x'": "only SELECT",
    "SET threads = 1": "only SELECT",
    "RESET threads": "only SELECT",
    "PRAGMA database_list": "only SELECT",
    "CALL checkpoint()": "only SELECT",
    "CHECKPOINT": "only SELECT",
    "VACUUM": "only SELECT",
    "LOAD httpfs": "only SELECT",
    "INSTALL httpfs": "only SELECT",
    "USE memory": "only SELECT",
    "BEGIN": "only SELECT",
    "PREPARE p AS SELECT 1": "only SELECT",
    "EXPLAIN ANALYZE SELECT 1": "only SELECT",
    "WITH a AS (INSERT INTO job (job_key) VALUES ('x') RETURNING *) SELECT * FROM a": "only SELECT",
    "WITH a AS (DELETE FROM job RETURNING *) SELECT * FROM a": "only SELECT|error",
    "SELECT 1; SELECT 2": "one statement",
    "SELECT 1; DROP VIEW gpu_sample": "one statement",
    "": "one statement",
    "-- only a remark": "one statement",
    "SELECT * FROM checkpoint()": "not allowed",
    "SELECT * FROM force_checkpoint()": "not allowed",
    "SELECT * FROM read_text('/etc/hostname')": "not allowed",
    "SELECT * FROM read_csv('/etc/hostname')": "not allowed",
    "SELECT * FROM read_parquet('/tmp/*.parquet')": "not allowed",
    "SELECT * FROM glob('/etc/*')": "not allowed",
    "SELECT (SELECT content FROM read_text('/etc/hostname'))": "not allowed",
    "SELECT * FROM job, LATERAL (SELECT * FROM read_blob('/etc/hostname'))": "not allowed",
    "SELECT * FROM query('DROP VIEW gpu_sample')": "not allowed",
    "SELECT * FROM query_table('job')": "not allowed",
    "SELECT * FROM duckdb_secrets()": "not allowed",
    "SELECT * FROM duckdb_settings()": "not allowed",
    "SELECT path FROM duckdb_databases()": "not allowed",
    "SELECT path FROM duckdb_databases": "not allowed",
    "SELECT sql FROM duckdb_views()": "not allowed",
    "FROM main.DuckDB_Views": "not allowed",
    "SELECT file FROM pragma_database_list": "not allowed",
    "SELECT sql FROM sqlite_master": "not allowed",
    "SELECT definition FROM pg_views": "not allowed",
    'SELECT view_definition FROM "Information_Schema".views': "not allowed",
    "SELECT view_definition FROM system.information_schema.views": "not allowed",
    "SELECT setting FROM pg_settings": "not allowed",
    "SELECT nextval('s')": "not allowed",
    "SELECT getenv('HOME')": "not allowed",
    "SELECT current_setting('allowed_directories')": "not allowed",
    "FROM '/etc/hostname'": "cannot be read by name",
    "FROM 'segments/x.parquet'": "cannot be read by name",
    "SELECT * FROM bench": "does not exist",
    "SELECT * FROM sniff_csv('/etc/hostname')": "not allowed",
    "FROM parquet_metadata('x')": "not allowed",
    "FROM seq_scan('job')": "not allowed",
    "FROM pandas_scan(1)": "not allowed",
    "FROM python_map_function(1)": "not allowed",
    "FROM duckdb_databases()": "not allowed",
    "FROM duckdb_views()": "not allowed",
    "FROM duckdb_memory()": "not allowed",
    "FROM duckdb_extensions()": "not allowed",
    "FROM duckdb_temporary_files()": "not allowed",
    "FROM pg_settings": "not allowed",
    "FROM pg_catalog.pg_settings": "not allowed",
    "FROM pragma_database_list": "not allowed",
    "FROM sqlite_master": "not allowed",
    "SELECT sql FROM duckdb_views WHERE view_name = 'gpu_sample'": "not allowed",
    "SELECT pg_sleep(3)": "not allowed",
    "SELECT pg_get_viewdef(1)": "not allowed",
    "SELECT write_log('x')": "not allowed",
    "FROM enable_logging()": "not allowed",
    "SELECT json_serialize_plan('FROM gpu_sample')": "not allowed",
    "SELECT * FROM json_execute_serialized_sql('x')": "not allowed",
    "PIVOT job ON cluster USING count(*)": "only SELECT",
    "CREATE MACRO m() AS 1": "only SELECT",
    "EXPLAIN SELECT 1": "only SELECT",
    "SELECT error('boom')": "boom",
    "SELECT $1": "not provided",
    "SELECT nonsense FROM": "syntax error",
    "SELECT 'a": "unterminated|error",
}


@pytest.fixture(scope="module")
def bench(tmp_path_factory, make_bench):
    """One warehouse for all statements: none of them may change it."""
    with contextlib.closing(make_bench(tmp_path_factory.mktemp("sandbox"))) as made:
        yield made


@pytest.mark.parametrize("sql", sorted(HOSTILE))
def test_hostile_statement_is_refused_in_one_sentence(bench, sql):
    before = bench.rows("SELECT table_name FROM duckdb_tables() ORDER BY 1")
    with pytest.raises(QueryError, match=f"(?i){HOSTILE[sql]}") as caught:
        run_query(bench.store, sql)
    assert "\n" not in str(caught.value)
    assert bench.rows("SELECT table_name FROM duckdb_tables() ORDER BY 1") == before
    assert bench.count("job") == 0
    assert bench.count() == 0


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT 1",
        "VALUES (1)",
        "FROM range(1)",
        "WITH a AS (SELECT 1) SELECT * FROM a",
        "WITH RECURSIVE a AS (SELECT 1 AS n UNION ALL SELECT n + 1 FROM a WHERE n < 1) FROM a",
        "SELECT 1 UNION SELECT 1",
        "SELECT unnest([1])",
        "SELECT count(*) FROM gpu_sample",
    ],
)
def test_harmless_statement_is_answered(bench, sql):
    assert run_query(bench.store, sql).table.num_rows == 1


def test_catalogue_may_be_described(bench):
    assert run_query(bench.store, "DESCRIBE gpu_sample").table.num_rows == 48
    assert run_query(bench.store, "SHOW TABLES").table.num_rows > 5
    assert run_query(bench.store, "SELECT * FROM information_schema.columns").table.num_rows > 48


def test_macros_may_be_called_and_a_name_of_ones_own_stands_for_itself(bench):
    sql = "WITH views AS (SELECT 1 AS a) SELECT a, (SELECT count(*) FROM state_totals('gpu', "
    sql += "window_from(NULL), window_to(NULL))) AS n FROM views"
    assert run_query(bench.store, sql).table.to_pylist() == [{"a": 1, "n": 0}]


def test_the_instance_itself_is_locked(bench):
    """The second fence holds without the first."""
    for sql in ("SELECT * FROM read_text('/etc/hostname')", "SET threads = 1"):
        with (
            bench.store.snapshot() as cursor,
            pytest.raises(duckdb.Error, match=r"(?i)permission|locked|disabled|cannot"),
        ):
            cursor.execute(sql)


def test_long_query_is_stopped_and_the_next_one_runs(bench):
    sql = "SELECT sum(a.range * b.range % 7) FROM range(1000000) a, range(10000000) b"
    started = time.monotonic()
    with pytest.raises(QueryError, match=r"stopped after 0\.2 s"):
        run_query(bench.store, sql, timeout_s=0.2)
    assert time.monotonic() - started < 3
    assert run_query(bench.store, "SELECT 1").table.num_rows == 1


def test_answer_is_cut_at_max_rows_and_says_so(bench):
    cut = run_query(bench.store, "FROM range(100000)", max_rows=20_000)
    assert (cut.table.num_rows, cut.truncated) == (20_000, True)
    whole = run_query(bench.store, "FROM range(20000)", max_rows=20_000)
    assert (whole.table.num_rows, whole.truncated) == (20_000, False)


def test_parameters_are_values_never_text(bench):
    answer = run_query(bench.store, "SELECT $a AS a", {"a": "x'; DROP VIEW gpu_sample; --"})
    assert answer.table["a"].to_pylist() == ["x'; DROP VIEW gpu_sample; --"]
    with pytest.raises(QueryError):
        run_query(bench.store, "SELECT $a", {"b": 1})


def test_deeply_nested_statement_does_no_harm(bench):
    sql = "SELECT " + "(" * 900 + "1" + ")" * 900
    with contextlib.suppress(QueryError):
        run_query(bench.store, sql)
    assert run_query(bench.store, "SELECT 1").table.num_rows == 1
