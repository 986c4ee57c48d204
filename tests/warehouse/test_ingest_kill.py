"""kill -9 while ingesting: what was acknowledged is there, once; at most one batch more."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import time

import pytest

ROWS = 24
CHILD = """
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[2])
from conftest import Bench, Kit
from warehouse.sealer import Sealer

bench = Bench(Path(sys.argv[1]))
sealer = Sealer(bench.store)
seq = int(sys.argv[3])
while True:
    seq += 1
    rows = [Kit.sample(seq * 60 + k, f"GPU-{k % 4}") for k in range(24)]
    assert bench.send(Kit.batch(seq, rows)).acked == seq
    sys.stdout.write(f"{seq}\\n")
    sys.stdout.flush()
    if seq % 5 == 0:
        sealer.run_once()
"""


@pytest.mark.integration
def test_killed_process_keeps_what_it_acknowledged(make_bench, kit, tmp_path, request):
    folder, rng = tmp_path / "data", random.Random(11)
    here = str(request.path.parent)
    seq = 0
    for _ in range(4):
        child = subprocess.Popen(
            [sys.executable, "-c", CHILD, str(folder), here, str(seq)],
            stdout=subprocess.PIPE,
            text=True,
        )
        assert child.stdout is not None
        first = child.stdout.readline()
        assert first, "the child ended before its first batch"
        time.sleep(rng.uniform(0.05, 0.6))
        child.send_signal(signal.SIGKILL)
        acked = [int(first), *(int(line) for line in child.stdout if line.endswith("\n"))][-1]
        child.stdout.close()
        assert child.wait() == -signal.SIGKILL
        bench = make_bench(folder)
        try:
            total, distinct, last = bench.rows(
                "SELECT count(*), count(DISTINCT (gpu_uuid, ts_utc)), "
                "(SELECT max(seq) FROM ingest_cursor) FROM gpu_sample"
            )[0]
            assert acked <= last <= acked + 1
            assert (total, distinct) == (last * ROWS, last * ROWS)
            assert bench.store.problems == []
            on_disk = {
                str(file.relative_to(bench.store.layout.root))
                for file in bench.store.layout.root.rglob("*.parquet")
            }
            assert on_disk == set(bench.store.layout.segments)
        finally:
            bench.close()
        seq = last
    assert seq > 4
