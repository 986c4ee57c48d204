"""`analyst.duckdb` is opened by other processes while ingest and renewal run."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from contextlib import closing

import duckdb
import pytest

from analysis import states_job
from warehouse.queries import named_query
from warehouse.sealer import Sealer
from warehouse.segments import seal

READER = """
import sys, time, duckdb
end = time.monotonic() + float(sys.argv[2])
opened = 0
while time.monotonic() < end:
    con = duckdb.connect(sys.argv[1], read_only=True)
    rows, distinct = con.execute(
        "SELECT count(*), count(DISTINCT (gpu_uuid, ts_utc)) FROM gpu_sample"
    ).fetchall()[0]
    assert rows == distinct and rows >= 4, rows
    con.close()
    opened += 1
print(opened)
"""


def test_holds_sealed_rows_dimensions_and_views(bench, kit):
    tables = kit.tables(
        gpu_sample=[kit.sample(0), kit.sample(3600)],
        node=[kit.row("node", node_id="n1", valid_from_utc=kit.T0_S * 10**6, rack="r7")],
    )
    bench.send(kit.batch(1, tables=tables))
    seal(bench.store, min(bench.store.layout.live))
    Sealer(bench.store).renew_analyst()
    con = duckdb.connect(str(bench.folder / "analyst.duckdb"), read_only=True)
    try:
        assert con.execute("SELECT count(*) FROM gpu_sample").fetchall() == [(1,)]
        assert con.execute("SELECT rack FROM node").fetchall() == [("r7",)]
        names = {row[0] for row in con.execute("SHOW TABLES").fetchall()}
    finally:
        con.close()
    assert {"job", "allocation", "gap", "device", "hour_change"} <= names
    assert not {"ingest_cursor", "live_table", "quarantine"} & names


def test_results_end_where_the_samples_do(bench, kit):
    bench.send(kit.batch(1, [kit.sample(at, resident=False) for at in (0, 1, 3600, 3601, 7200)]))
    hours = sorted(bench.store.layout.live)
    for name in (hours[0], hours[1]):
        seal(bench.store, name)
    states_job.refresh(bench.store, bench.settings, bench.clock)
    assert bench.count("state_interval") == 3
    Sealer(bench.store).renew_analyst()
    con = duckdb.connect(str(bench.folder / "analyst.duckdb"), read_only=True)
    try:
        last = con.execute("SELECT max(ts_utc) FROM gpu_sample").fetchall()[0][0]
        for table, column in (
            ("state_interval", "last_ts_utc"),
            ("state_run", "last_ts_utc"),
            ("hour_change", "hour_utc"),
            ("analysis_run", "hour_utc"),
        ):
            assert con.execute(
                f"SELECT count(*), max({column}) <= ? FROM {table}", [last]
            ).fetchall() == [(2, True)], table
        # Macros came along, and so did what they say of the same two hours.
        asked = named_query("results_coverage")
        assert len(con.execute(asked.sql, asked.bind({})).fetchall()) == 2
        assert con.execute("SELECT seen_s FROM energy_by_gpu").fetchall() == [(4.0,)]
    finally:
        con.close()


def test_files_are_for_owner_and_group_only(kit, make_bench, tmp_path):
    before = os.umask(0)
    try:
        bench = make_bench(tmp_path / "deep" / "data")
    finally:
        os.umask(before)
    with closing(bench):
        bench.send(kit.batch(1, [kit.sample(0)]))
        Sealer(bench.store).run_once()
        modes = {"": 0o750, "idlewatt.duckdb": 0o640, "analyst.duckdb": 0o640}
        (segment,) = bench.folder.rglob("*.parquet")
        modes[str(segment.relative_to(bench.folder))] = 0o640
        for name, mode in modes.items():
            assert stat.S_IMODE((bench.folder / name).stat().st_mode) == mode, name


def test_a_folder_that_is_there_keeps_its_mode(make_bench, tmp_path):
    tmp_path.chmod(0o700)
    make_bench(tmp_path).close()
    assert stat.S_IMODE(tmp_path.stat().st_mode) == 0o700


@pytest.mark.integration
def test_other_processes_read_it_while_ingest_runs(bench, kit):
    sealer = Sealer(bench.store)
    bench.send(kit.batch(1, [kit.sample(k) for k in range(4)]))
    sealer.run_once()
    file = bench.folder / "analyst.duckdb"
    reader = subprocess.Popen(
        [sys.executable, "-W", "error", "-c", READER, str(file), "2"],
        stdout=subprocess.PIPE,
        text=True,
    )
    seq = 1
    while reader.poll() is None:
        seq += 1
        bench.send(kit.batch(seq, [kit.sample(seq * 4 + k) for k in range(4)]))
        if seq % 4 == 0:
            sealer.run_once()
            sealer.renew_analyst()
    printed, _ = reader.communicate()
    assert reader.returncode == 0
    assert int(printed) >= 3
    assert bench.count() == seq * 4
