"""`analyst.duckdb` is opened by other processes while ingest and renewal run."""

from __future__ import annotations

import subprocess
import sys

import duckdb
import pytest

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
