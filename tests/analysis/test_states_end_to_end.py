"""From batches of the simulated fleet to stored states: late data, sealing, restarts, kills."""

import os
import random
import signal
import subprocess
import sys
import textwrap
import time
from collections import Counter

import pytest

from analysis import states_job
from analysis.tables import intervals_table
from collector.simulator.cluster import ClusterSpec
from collector.simulator.history import epoch_of, generate, truth
from idlewatt.clock import VirtualClock
from idlewatt.columns import GPU_SAMPLE
from idlewatt.config import resolve
from idlewatt.units import US_PER_HOUR
from idlewatt.wire import Header, encode_batch, rows_from_table, table_from_rows
from warehouse.ingest import Ingestor
from warehouse.sealer import Sealer
from warehouse.store import Store

ORIGIN_US = 491_000 * US_PER_HOUR
HOURS = 3
END_US = ORIGIN_US + HOURS * US_PER_HOUR
SPEC = ClusterSpec(seed=3, nodes=2, gpus_per_node=2, origin_us=ORIGIN_US)
COLUMNS = (
    "gpu_uuid, node_id, hour_utc, first_ts_utc, last_ts_utc, state, basis, reason, job_key, "
    "samples, obs_ms, run_ms, energy_counter_uj, energy_power_avg_uj, energy_power_inst_uj, "
    "energy_obs_ms"
)


class Nodes:
    """Sends batches as the nodes would, each lane counted on."""

    def __init__(self):
        self.seq = Counter()

    def send(self, ingestor, node, tables, epoch_add=0):
        key = (node, epoch_add)
        self.seq[key] += 1
        header = Header(1, f"sim-{node:03d}", epoch_of(SPEC) + epoch_add, "backfill", self.seq[key])
        return ingestor.submit(encode_batch(header, tables)).result(60)


def stored(store):
    with store.snapshot() as cur:
        return cur.execute(
            f"SELECT {COLUMNS} FROM state_interval ORDER BY gpu_uuid, first_ts_utc"
        ).fetchall()


def computed(store):
    limits = states_job.thresholds_of(resolve(environ={}))
    period = states_job.whole_period(store, ORIGIN_US - US_PER_HOUR, END_US + US_PER_HOUR, limits)
    table = intervals_table(period.pieces, period.codes).select(COLUMNS.split(", "))
    rows = [tuple(item.values()) for item in table.to_pylist()]
    return sorted(rows, key=lambda item: (item[0], item[3]))


def split_late(tables, rng):
    """Return tables without some rows, and a table of those rows."""
    rows = rows_from_table(GPU_SAMPLE, tables["gpu_sample"])
    late = set(rng.sample(range(len(rows)), len(rows) // 50))
    kept = [row for at, row in enumerate(rows) if at not in late]
    held = [row for at, row in enumerate(rows) if at in late]
    return (
        tables | {"gpu_sample": table_from_rows(GPU_SAMPLE, kept)},
        {"gpu_sample": table_from_rows(GPU_SAMPLE, held)},
    )


def test_late_rows_sealing_and_restarts_give_the_whole_day_run(tmp_path):
    """Hours arrive newest first, 2 % of the rows later; the server restarts in between."""
    settings, clock, rng = resolve(environ={}), VirtualClock(END_US), random.Random(5)
    nodes, late = Nodes(), []
    hours = {
        node: list(generate(SPEC, node, ORIGIN_US, END_US, newest_first=True))
        for node in range(SPEC.nodes)
    }
    for step in range(HOURS):
        with Store.open(tmp_path / "data", settings, clock) as store:
            ingestor = Ingestor(store)
            for node, own in hours.items():
                tables, rest = split_late(own[step], rng)
                nodes.send(ingestor, node, tables)
                late.append((node, rest))
            states_job.refresh(store, settings, clock)
            assert stored(store) == computed(store)
            if step == 1:
                clock.advance(3 * 3600)
                Sealer(store).run_once()
                assert stored(store) == computed(store)
            ingestor.close()
    rng.shuffle(late)
    with Store.open(tmp_path / "data", settings, clock) as store:
        ingestor = Ingestor(store)
        for number, (node, rest) in enumerate(late):
            nodes.send(ingestor, node, rest)
            if number % 3 == 0:
                states_job.refresh(store, settings, clock)
        summary = states_job.refresh(store, settings, clock)
        assert stored(store) == computed(store)
        assert states_job.refresh(store, settings, clock).hours == []
        samples = SPEC.gpus * HOURS * 3600
        assert sum(row[9] for row in stored(store)) == samples
        assert summary.pending == 0
        owners(store)
        ingestor.close()


def owners(store):
    """Compare the seconds of each job with the truth of the schedule."""
    what_is = truth(SPEC, ORIGIN_US, END_US)
    expected = Counter(
        what_is.job_keys[code] if code >= 0 else None for code in what_is.job.ravel().tolist()
    )
    with store.snapshot() as cur:
        rows = cur.execute(
            "SELECT job_key, sum(samples)::BIGINT FROM state_interval GROUP BY job_key"
        ).fetchall()
    found = dict(rows)
    assert set(found) == {key for key, count in expected.items() if count}
    # The truth asks who holds the GPU in the middle of a second, and so does the analysis.
    for key, count in expected.items():
        assert found[key] == pytest.approx(count, abs=2 * SPEC.gpus)


WORKER = """
    import sys
    from analysis import states_job
    from idlewatt.clock import SystemClock
    from idlewatt.config import resolve
    from warehouse.store import Store

    settings, clock = resolve(environ={}), SystemClock()
    with Store.open(sys.argv[1], settings, clock) as store:
        for length in range(1, 1000):
            changed = resolve({"analysis.min_interval_s": 1 + length % 9}, environ={})
            states_job.refresh(store, changed, clock, progress=lambda *_: print("hour", flush=True))
"""


@pytest.mark.integration
def test_a_kill_between_and_inside_hours_does_no_harm(tmp_path):
    settings, clock, nodes = resolve(environ={}), VirtualClock(END_US), Nodes()
    with Store.open(tmp_path / "data", settings, clock) as store:
        ingestor = Ingestor(store)
        for node in range(SPEC.nodes):
            for tables in generate(SPEC, node, ORIGIN_US, END_US):
                nodes.send(ingestor, node, tables)
        ingestor.close()
    rng = random.Random(11)
    for _ in range(3):
        worker = subprocess.Popen(
            [sys.executable, "-c", textwrap.dedent(WORKER), str(tmp_path / "data")],
            stdout=subprocess.PIPE,
        )
        for _ in range(rng.randint(1, 7)):
            assert worker.stdout.readline() == b"hour\n"
        time.sleep(rng.random() * 0.1)
        os.kill(worker.pid, signal.SIGKILL)
        worker.wait()
        worker.stdout.close()
    with Store.open(tmp_path / "data", settings, clock) as store:
        states_job.refresh(store, settings, clock)
        assert stored(store) == computed(store)
        with store.snapshot() as cur:
            doubled = cur.execute(
                "SELECT count(*) - count(DISTINCT (gpu_uuid, first_ts_utc)) FROM state_run"
            ).fetchall()
        assert doubled == [(0,)]
