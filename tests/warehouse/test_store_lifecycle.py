"""The store: transactions, snapshots, ownership, and what start-up finds."""

from __future__ import annotations

import threading
from contextlib import closing

import duckdb
import pytest

from idlewatt.columns import TABLES
from idlewatt.errors import QueryError, StoreError
from warehouse.dimensions import DIMENSIONS
from warehouse.queries import run_query
from warehouse.segments import seal
from warehouse.store import Store


def test_write_returns_its_result_and_keeps_it(bench):
    def insert(con):
        con.execute("INSERT INTO job (job_key) VALUES ('a:1:0')")
        return 7

    assert bench.store.write(insert) == 7
    bench.reopen()
    assert bench.rows("SELECT job_key FROM job") == [("a:1:0",)]


def test_failed_write_leaves_nothing_behind_and_the_writer_alive(bench):
    def half(con):
        con.execute("INSERT INTO job (job_key) VALUES ('a:1:0')")
        bench.store.layout.open_table(con, 0)
        raise KeyError("no")

    with pytest.raises(KeyError):
        bench.store.write(half)
    assert bench.count("job") == 0
    assert bench.store.layout.live == {}
    assert bench.store.write(lambda con: 1) == 1


def test_write_inside_a_write_is_refused_instead_of_hanging(bench):
    with pytest.raises(RuntimeError, match="inside a write"):
        bench.store.write(lambda con: bench.store.write(lambda inner: 1))


def test_snapshot_sees_one_state_and_cannot_write(bench, kit):
    bench.send(kit.batch(1, [kit.sample(0)]))
    with bench.store.snapshot() as cursor:
        bench.send(kit.batch(2, [kit.sample(1)]))
        assert cursor.execute("SELECT count(*) FROM gpu_sample").fetchall() == [(1,)]
        with pytest.raises(duckdb.Error, match="read-only"):
            cursor.execute("INSERT INTO job (job_key) VALUES ('x')")
    assert bench.count() == 2


def test_snapshot_outlives_a_seal(bench, kit):
    bench.send(kit.batch(1, [kit.sample(second) for second in range(5)]))
    (name,) = bench.store.layout.live
    with bench.store.snapshot() as cursor:
        assert seal(bench.store, name) == 5
        assert cursor.execute("SELECT count(*) FROM gpu_sample").fetchall() == [(5,)]
        assert cursor.execute(f"SELECT count(*) FROM {name}").fetchall() == [(5,)]
    assert bench.count() == 5
    assert not bench.store.layout.live


def test_second_owner_is_refused_in_one_sentence(bench):
    with pytest.raises(StoreError, match="another idlewatt process owns"):
        Store.open(bench.folder, bench.settings)


def test_closed_store_says_so(tmp_path, make_bench):
    bench = make_bench(tmp_path)
    bench.close()
    with pytest.raises(StoreError, match="closed"):
        bench.store.write(lambda con: 1)
    with pytest.raises(StoreError, match="closed"), bench.store.snapshot():
        pass
    bench.store.close()


def test_newer_warehouse_is_refused(bench):
    bench.store.write(
        lambda con: con.execute(
            "INSERT INTO schema_migration VALUES (9999, 'x', 'y', TIMESTAMP '2026-01-01')"
        )
    )
    bench.close()
    with pytest.raises(StoreError, match="newer idlewatt"):
        bench.open()
    # Leave something that the fixture can close.
    con = duckdb.connect(str(bench.folder / "idlewatt.duckdb"))
    con.execute("DELETE FROM schema_migration WHERE version = 9999")
    con.close()
    bench.open()


def test_columns_in_the_database_are_those_of_the_contract(bench):
    stored = {dimension.wire: dimension.stored for dimension in DIMENSIONS}
    stored["gpu_sample"] = "gpu_sample_none"
    for wire, columns in TABLES.items():
        for name in (stored[wire], wire):
            found = bench.rows(f"SELECT column_name, column_type FROM (DESCRIBE {name})")
            assert found == [(column.name, column.kind.sql) for column in columns], name


def test_missing_and_resized_segments_are_left_out_reported_and_used_again(bench, kit):
    bench.send(kit.batch(1, [kit.sample(0), kit.sample(3600)]))
    for name in list(bench.store.layout.live):
        seal(bench.store, name)
    first, second = (bench.store.layout.root / p for p in sorted(bench.store.layout.segments))
    content = first.read_bytes()
    bench.close()
    first.write_bytes(content[:-1])
    second.rename(second.with_suffix(".away"))
    bench.open()
    assert bench.count() == 0
    assert len(bench.store.problems) == 2
    assert any("bytes" in problem for problem in bench.store.problems)
    bench.close()
    first.write_bytes(content)
    second.with_suffix(".away").rename(second)
    bench.open()
    assert bench.count() == 2
    assert bench.store.problems == []


def test_segment_that_comes_back_after_its_rows_arrived_anew_stays_out(bench, kit):
    bench.send(kit.batch(1, [kit.sample(0), kit.sample(1)]))
    (name,) = bench.store.layout.live
    seal(bench.store, name)
    (path,) = bench.store.layout.segments
    file = bench.store.layout.root / path
    bench.close()
    file.rename(file.with_suffix(".away"))
    bench.open()
    bench.send(kit.batch(1, [kit.sample(at, epoch=2) for at in (1, 2)], epoch=2))
    bench.close()
    file.with_suffix(".away").rename(file)
    bench.open()
    assert bench.rows("SELECT count(*), count(DISTINCT ts_utc) FROM gpu_sample") == [(2, 2)]
    assert any("arrived anew" in problem for problem in bench.store.problems)


def test_log_that_cannot_be_replayed_is_put_aside(bench, kit):
    bench.reopen()  # the schema is in the file now, what follows is in its log
    bench.send(kit.batch(1, [kit.sample(0)]))
    file, log = bench.folder / "idlewatt.duckdb", bench.folder / "idlewatt.duckdb.wal"
    content, entries = file.read_bytes(), bytearray(log.read_bytes())
    bench.close()
    entries[len(entries) // 2] ^= 0xFF
    file.write_bytes(content)
    log.write_bytes(entries)
    bench.open()
    assert any("put aside" in problem for problem in bench.store.problems)
    assert list(bench.folder.glob("*.damaged-*"))
    assert bench.count() == 0
    assert not bench.send(kit.batch(1, [kit.sample(0)])).duplicate
    assert bench.count() == 1


def test_database_that_gave_up_turns_the_health_red_once(bench):
    def fail(con):
        raise duckdb.FatalException("disk full")

    for _ in range(2):
        with pytest.raises(duckdb.FatalException):
            bench.store.write(fail)
    assert len(bench.store.problems) == 1
    assert "must be restarted (disk full)" in bench.store.problems[0]


def test_many_threads_read_while_one_writes(bench, kit):
    errors: list[BaseException] = []
    stop = threading.Event()

    def read() -> None:
        try:
            while not stop.is_set():
                total, distinct = bench.rows(
                    "SELECT count(*), count(DISTINCT (gpu_uuid, ts_utc)) FROM gpu_sample"
                )[0]
                assert total == distinct
                assert total % 3 == 0
        except BaseException as exc:
            errors.append(exc)

    threads = [threading.Thread(target=read) for _ in range(3)]
    for thread in threads:
        thread.start()
    for seq in range(1, 31):
        bench.send(kit.batch(seq, [kit.sample(seq * 3 + k) for k in range(3)]))
    stop.set()
    for thread in threads:
        thread.join()
    assert errors == []
    assert bench.count() == 90


def test_what_queries_spill_is_bounded_and_gone_after_a_restart(make_bench, tmp_path):
    folder = tmp_path / "data"
    sql = (
        "WITH t AS MATERIALIZED (SELECT hash(i) AS a, hash(i + 1)::VARCHAR || repeat('x', 40) AS b "
        "FROM range(1_500_000) AS r (i)) SELECT max(a), count(*) "
        "FROM (SELECT a, row_number() OVER (ORDER BY b) AS n FROM t) WHERE n % 7 = 1"
    )
    limits = {"server__memory_mib": 100, "server__threads": 1}
    with closing(make_bench(folder, server__temp_mib=1, **limits)) as bench:
        with pytest.raises(QueryError, match=r"max_temp_directory_size|temp"):
            run_query(bench.store, sql)
        assert bench.count() == 0
        (folder / "tmp").mkdir(exist_ok=True)
        (folder / "tmp" / "duckdb_temp_storage_left-0.tmp").write_bytes(b"x" * 1000)
    with closing(make_bench(folder, server__temp_mib=2000, **limits)) as bench:
        assert not (folder / "tmp" / "duckdb_temp_storage_left-0.tmp").exists()
        assert run_query(bench.store, sql).table.num_rows == 1
