from __future__ import annotations

import os
import random
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from collector.batcher import next_batch
from collector.spool import FILE_NAME, Spool
from collector.spool_care import claim, put_aside_if_damaged
from collector.spooled import SpoolDamagedError
from idlewatt.columns import GPU_SAMPLE, TABLES
from idlewatt.errors import StoreError, UsageError
from idlewatt.model import Lane
from idlewatt.wire import decode_batch, rows_from_table

S = 1_000_000
NOW = 1_700_000_000 * S
EPOCH = NOW // 1000


@pytest.fixture
def spool(tmp_path: Path) -> Iterator[Spool]:
    opened = Spool(tmp_path)
    yield opened
    opened.close()


def sample(ts_us: int, gpu: str = "GPU-a", epoch: int = EPOCH) -> list[object]:
    known = {"ts_utc": ts_us, "obs_ms": 1000, "node_id": "n", "gpu_uuid": gpu, "epoch": epoch}
    return [known.get(column.name) for column in GPU_SAMPLE]


def stamps(body: bytes) -> list[int]:
    table = decode_batch(body).tables.get("gpu_sample")
    return [] if table is None else [row[0] for row in rows_from_table(GPU_SAMPLE, table)]


def test_epochs_grow_even_if_the_clock_does_not(spool: Spool) -> None:
    first = spool.begin_epoch(NOW)
    assert first == EPOCH
    assert spool.begin_epoch(NOW) == first + 1
    assert spool.begin_epoch(NOW - 3600 * S) == first + 2


def test_ticks_become_a_batch_that_does_not_change_until_acknowledged(spool: Spool) -> None:
    epoch = spool.begin_epoch(NOW)
    spool.append(epoch, NOW, [sample(NOW), sample(NOW, "GPU-b")])
    batch = next_batch(spool, "n", Lane.LIVE, NOW, 120)
    assert batch is not None
    assert (batch.seq, stamps(batch.body)) == (1, [NOW, NOW])
    spool.append(epoch, NOW + S, [sample(NOW + S)])
    assert next_batch(spool, "n", Lane.LIVE, NOW + S, 120) == batch
    spool.acknowledge(batch)
    following = next_batch(spool, "n", Lane.LIVE, NOW + S, 120)
    assert following is not None
    assert (following.seq, stamps(following.body)) == (2, [NOW + S])


def test_old_seconds_take_the_backfill_lane(spool: Spool) -> None:
    epoch = spool.begin_epoch(NOW)
    for age in (500, 300, 121, 120, 1):
        spool.append(epoch, NOW - age * S, [sample(NOW - age * S)])
    live = next_batch(spool, "n", Lane.LIVE, NOW, 120)
    backfill = next_batch(spool, "n", Lane.BACKFILL, NOW, 120)
    assert live is not None
    assert backfill is not None
    assert stamps(live.body) == [NOW - 120 * S, NOW - S]
    assert stamps(backfill.body) == [NOW - 500 * S, NOW - 300 * S, NOW - 121 * S]
    assert (live.seq, backfill.seq) == (1, 1)
    assert decode_batch(backfill.body).header.lane == "backfill"


def test_a_batch_holds_one_epoch(spool: Spool) -> None:
    old = spool.begin_epoch(NOW)
    spool.append(old, NOW, [sample(NOW, epoch=old)])
    new = spool.begin_epoch(NOW + S)
    spool.append(new, NOW + S, [sample(NOW + S, epoch=new)])
    first = next_batch(spool, "n", Lane.LIVE, NOW + S, 120)
    assert first is not None
    assert (first.epoch, stamps(first.body)) == (old, [NOW])
    spool.acknowledge(first)
    second = next_batch(spool, "n", Lane.LIVE, NOW + S, 120)
    assert second is not None
    assert (second.epoch, second.seq, stamps(second.body)) == (new, 1, [NOW + S])


def test_facts_travel_with_the_next_live_batch(spool: Spool) -> None:
    spool.begin_epoch(NOW)
    spool.add_facts({"gap": [("n", None, NOW, NOW, "agent_down", None, None)]})
    assert next_batch(spool, "n", Lane.BACKFILL, NOW, 120) is None
    batch = next_batch(spool, "n", Lane.LIVE, NOW, 120)
    assert batch is not None
    table = decode_batch(batch.body).tables["gap"]
    assert rows_from_table(TABLES["gap"], table)[0][4] == "agent_down"
    spool.acknowledge(batch)
    assert next_batch(spool, "n", Lane.LIVE, NOW, 120) is None


def test_a_tick_taken_by_the_other_lane_is_not_sent_twice(spool: Spool, tmp_path: Path) -> None:
    epoch = spool.begin_epoch(NOW)
    spool.append(epoch, NOW, [sample(NOW)])
    seen = spool.waiting(Lane.LIVE, NOW, 10)
    other = Spool(tmp_path)
    assert next_batch(other, "n", Lane.BACKFILL, NOW + 600 * S, 120) is not None
    other.close()
    assert spool.form(Lane.LIVE, epoch, seen, [], lambda seq: b"body") is None
    assert spool.outstanding(Lane.LIVE) is None
    spool.append(epoch, NOW + S, [sample(NOW + S)])
    batch = next_batch(spool, "n", Lane.LIVE, NOW + S, 120)
    assert batch is not None
    assert batch.seq == 1  # the attempt that was undone used up no number


@pytest.mark.parametrize(
    "poison",
    [
        ("no_such_table", [("x",)]),
        ("gap", [("n",)]),
        ("gap", [("n", None, "yesterday", NOW, "agent_down", None, None)]),
        ("gap", [("n", None, NOW, NOW, "agent_down", 2**63, None)]),
    ],
)
def test_what_cannot_be_packed_does_not_hold_up_the_rest(
    spool: Spool, poison: tuple[str, list[tuple[object, ...]]], caplog: pytest.LogCaptureFixture
) -> None:
    epoch = spool.begin_epoch(NOW)
    huge = sample(NOW + S)
    huge[1] = 2**40
    spool.append(epoch, NOW, [sample(NOW)])
    spool.append(epoch, NOW + S, [huge])
    spool.add_facts({poison[0]: poison[1]})
    batch = next_batch(spool, "n", Lane.LIVE, NOW + S, 120)
    assert batch is not None
    assert stamps(batch.body) == [NOW]
    gaps = rows_from_table(TABLES["gap"], decode_batch(batch.body).tables["gap"])
    assert [(row[2], row[3], row[4]) for row in gaps] == [(NOW + S, NOW + S, "unpackable")]
    assert caplog.text.count("cannot be packed") == 2
    spool.acknowledge(batch)
    assert next_batch(spool, "n", Lane.LIVE, NOW + S, 120) is None


def test_quarantine_keeps_the_body_and_declares_the_hole(spool: Spool) -> None:
    epoch = spool.begin_epoch(NOW)
    spool.append(epoch, NOW, [sample(NOW)])
    batch = next_batch(spool, "n", Lane.LIVE, NOW, 120)
    assert batch is not None
    spool.quarantine(batch, "n", "malformed", NOW)
    assert spool.quarantined() == [(epoch, "live", 1, "malformed")]
    assert spool.outstanding(Lane.LIVE) is None
    assert [fact.rows for fact in spool.facts()] == [
        [["n", None, NOW, NOW, "quarantined", None, "malformed"]]
    ]


def refuse(spool: Spool, number: int, size: int) -> None:
    epoch = spool.epoch() or spool.begin_epoch(NOW)
    spool.append(epoch, NOW + number * S, [sample(NOW + number * S)])
    ticks = spool.waiting(Lane.LIVE, 0, 10)
    batch = spool.form(Lane.LIVE, epoch, ticks, [], lambda _seq: os.urandom(size))
    assert batch is not None
    spool.quarantine(batch, "n", "malformed", NOW)


def test_quarantine_is_bounded_by_its_size_and_not_by_its_number(tmp_path: Path) -> None:
    spool = Spool(tmp_path, max_mib=4)
    for number in range(100):
        refuse(spool, number, 4_000)
    assert [entry[2] for entry in spool.quarantined()] == list(range(1, 101))
    for number in range(100, 110):
        refuse(spool, number, 150_000)
    kept = [entry[2] for entry in spool.quarantined()]
    assert kept == list(range(105, 111))  # the newest within 1 MiB: six of 150 kB
    spool.close()


def test_a_full_spool_gives_up_what_was_refused_before_what_may_yet_be_sent(tmp_path: Path) -> None:
    spool = Spool(tmp_path, max_mib=1)
    refuse(spool, 0, 200_000)
    epoch = spool.epoch()
    assert epoch is not None
    number = 0
    while spool.size_bytes() <= 1 << 20:
        number += 1
        row = sample(NOW + number * S)
        row[5] = os.urandom(150).hex()
        spool.append(epoch, NOW + number * S, [row])
    assert spool.trim("n") == 0
    assert spool.quarantined() == []
    assert spool.backlog().ticks == number
    spool.close()


def test_over_its_size_the_oldest_unsent_go_and_are_declared(tmp_path: Path) -> None:
    spool = Spool(tmp_path, max_mib=1)
    epoch = spool.begin_epoch(NOW)
    for number in range(3000):
        row = sample(NOW + number * S)
        row[5] = os.urandom(150).hex()
        spool.append(epoch, NOW + number * S, [row, row])
    assert spool.size_bytes() > 1 << 20
    dropped = spool.trim("n")
    assert dropped > 0
    assert spool.size_bytes() <= 1 << 20
    backlog = spool.backlog()
    assert (backlog.ticks, backlog.oldest_us) == (3000 - dropped, NOW + dropped * S)
    declared = [row for fact in spool.facts() for row in fact.rows]
    assert {row[4] for row in declared} == {"spool_full"}
    assert sum((row[3] - row[2]) // S + 1 for row in declared) == dropped
    assert spool.trim("n") == 0
    spool.close()


def told(spool: Spool) -> dict[str, list[list[object]]]:
    batch = next_batch(spool, "n", Lane.LIVE, NOW, 120)
    if batch is None:
        return {}
    spool.acknowledge(batch)
    tables = decode_batch(batch.body).tables
    return {
        name: [list(row) for row in rows_from_table(TABLES[name], table)]
        for name, table in tables.items()
    }


def job(key: str, end_us: int | None) -> tuple[object, ...]:
    return (key, "c", "1", 0, None, None, None, "training", None, NOW, end_us)


def test_what_is_known_can_be_told_again_as_it_is_now(spool: Spool) -> None:
    spool.begin_epoch(NOW)
    node = ("n", NOW, "host", "r1", "c", "0.1.0")
    capability = ("GPU-a", NOW, "fan_pct", False, "unsupported")
    gap = ("n", None, NOW, NOW, "agent_down", None, None)
    spool.append(
        1, NOW, [], {"node": [node], "device_capability": [capability], "gap": [gap], "job": []}
    )
    spool.add_facts({"job": [job("a", None), job("b", None)]})
    spool.add_facts({"job": [job("a", NOW + S)]})
    told(spool)
    assert spool.repeat_facts() == 4
    again = told(spool)
    assert set(again) == {"node", "device_capability", "job"}  # holes are declared once
    assert again["node"] == [list(node)]
    assert sorted((row[0], row[10]) for row in again["job"]) == [("a", NOW + S), ("b", None)]
    assert spool.repeat_facts() == 3  # what has ended was told twice, that is enough
    assert [row[0] for row in told(spool)["job"]] == ["b"]
    spool.forget_facts()
    assert spool.repeat_facts() == 0
    assert spool.epoch() == NOW // 1000


def test_state_survives(spool: Spool, tmp_path: Path) -> None:
    epoch = spool.begin_epoch(NOW)
    assert spool.last_tick_us() is None
    spool.append(epoch, NOW, [], state={"counters": {"GPU-a": [1, 2, 3]}})
    spool.close()
    again = Spool(tmp_path)
    assert again.state("counters") == {"GPU-a": [1, 2, 3]}
    assert again.last_tick_us() == NOW
    assert again.state("other") is None
    again.close()


@pytest.mark.parametrize("how", ["overwritten", "header"])
def test_a_damaged_spool_is_put_aside(tmp_path: Path, how: str) -> None:
    spool = Spool(tmp_path)
    epoch = spool.begin_epoch(NOW)
    for number in range(400):
        spool.append(epoch, NOW + number * S, [sample(NOW + number * S)])
    spool.close()
    path = tmp_path / FILE_NAME
    with path.open("r+b") as file:
        file.seek(0 if how == "header" else 8192)
        file.write(random.Random(7).randbytes(60_000))
    aside = put_aside_if_damaged(tmp_path, NOW)
    assert aside is not None
    assert aside.exists()
    assert not path.exists()
    fresh = Spool(tmp_path)
    assert fresh.backlog().ticks == 0
    fresh.close()
    assert put_aside_if_damaged(tmp_path, NOW) is None


@pytest.mark.parametrize(
    "statements",
    [
        ["CREATE TABLE songs(title TEXT)"],
        ["CREATE TABLE songs(title TEXT)", "PRAGMA user_version=1"],
        ["PRAGMA user_version=1"],
        ["CREATE TABLE meta(key TEXT)", "CREATE TABLE tick(id INT)"],
    ],
)
def test_a_database_that_is_no_spool_is_put_aside(tmp_path: Path, statements: list[str]) -> None:
    con = sqlite3.connect(tmp_path / FILE_NAME, isolation_level=None)
    for statement in statements:
        con.execute(statement)
    con.close()
    with pytest.raises(SpoolDamagedError, match="not a spool"):
        Spool(tmp_path)
    aside = put_aside_if_damaged(tmp_path, NOW)
    assert aside is not None
    con = sqlite3.connect(aside)
    assert con.execute("SELECT count(*) FROM sqlite_master").fetchone()[0] == sum(
        statement.startswith("CREATE") for statement in statements
    )
    con.close()
    Spool(tmp_path).close()
    assert put_aside_if_damaged(tmp_path, NOW) is None


def test_a_table_that_vanishes_is_damage(spool: Spool) -> None:
    con = sqlite3.connect(spool.path)
    con.execute("DROP TABLE tick")
    con.close()
    with pytest.raises(SpoolDamagedError, match="no such table"):
        spool.backlog()


def test_only_its_owner_may_read_a_spool(tmp_path: Path) -> None:
    def rights(path: Path) -> int:
        return path.stat().st_mode & 0o777

    before = os.umask(0)
    try:
        made = Spool(tmp_path / "new" / "spool")
        made.begin_epoch(NOW)
        (tmp_path / "old").mkdir(mode=0o755)
        (tmp_path / "old" / FILE_NAME).touch(0o644)
        old = Spool(tmp_path / "old")
    finally:
        os.umask(before)
    assert rights(made.path.parent) == 0o700
    assert {rights(path) for path in made.path.parent.iterdir()} == {0o600}
    assert rights(old.path) == 0o600
    assert rights(old.path.parent) == 0o755  # not ours to change
    made.close()
    old.close()


def test_a_second_connection_leaves_the_locks_of_the_first_alone(spool: Spool) -> None:
    spool.begin_epoch(NOW)
    Spool(spool.path.parent).close()
    look = "import sqlite3, sys; sqlite3.connect(sys.argv[1]).execute('PRAGMA user_version')"
    subprocess.run([sys.executable, "-c", look, str(spool.path)], check=True)
    # The last to close removes the log; it was not the last.
    assert spool.path.with_name(FILE_NAME + "-wal").exists()


def test_a_spool_with_unsent_seconds_is_of_one_node(tmp_path: Path) -> None:
    claim(tmp_path, "a")
    claim(tmp_path, "b")  # nothing in it
    spool = Spool(tmp_path)
    epoch = spool.begin_epoch(NOW)
    spool.append(epoch, NOW, [sample(NOW)])
    claim(tmp_path, "b")
    with pytest.raises(UsageError, match=r"what node 'b' has not sent yet.*--node-id b"):
        claim(tmp_path, "a")
    batch = next_batch(spool, "b", Lane.LIVE, NOW, 120)
    assert batch is not None
    with pytest.raises(UsageError):
        claim(tmp_path, "a")
    spool.acknowledge(batch)
    claim(tmp_path, "a")
    spool.close()


def test_damage_met_on_the_way_has_a_name(spool: Spool, tmp_path: Path) -> None:
    epoch = spool.begin_epoch(NOW)
    for number in range(400):
        spool.append(epoch, NOW + number * S, [sample(NOW + number * S)])
    spool.close()
    with (tmp_path / FILE_NAME).open("r+b") as file:
        file.seek(4096)
        file.write(b"\xff" * 200_000)
    with pytest.raises(SpoolDamagedError, match="damaged"):
        Spool(tmp_path).waiting(Lane.LIVE, 0, 10)


def test_a_spool_of_a_newer_version_is_left_alone(tmp_path: Path) -> None:
    Spool(tmp_path).close()
    con = sqlite3.connect(tmp_path / FILE_NAME)
    con.execute("PRAGMA user_version=99")
    con.close()
    with pytest.raises(StoreError, match="version 99"):
        Spool(tmp_path)


def test_a_folder_that_cannot_be_made_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match=r"agent\.spool_dir"):
        Spool(tmp_path / "file" / "spool")


WRITER = """
import sys
from pathlib import Path
from collector.batcher import next_batch
from collector.spool import Spool
from idlewatt.columns import GPU_SAMPLE
from idlewatt.model import Lane
spool = Spool(Path(sys.argv[1]))
start = int(sys.argv[2])
epoch = spool.begin_epoch(start)
for number in range(1_000_000):
    ts = start + number * 1_000_000
    row = [None] * len(GPU_SAMPLE)
    row[0], row[2], row[3], row[4], row[6] = ts, 1000, "n", "GPU-a", epoch
    spool.append(epoch, ts, [row])
    print(ts, flush=True)
    if number % 3 == 2:
        batch = next_batch(spool, "n", Lane.LIVE, ts, 10**9)
        if number % 2:
            print("sent", batch.last_us, flush=True)
            spool.acknowledge(batch)
"""


@pytest.mark.integration
def test_kill_9_at_any_moment_loses_nothing_that_was_spooled(tmp_path: Path) -> None:
    rng = random.Random(20)
    start = NOW
    for _ in range(5):
        child = subprocess.Popen(
            [sys.executable, "-c", WRITER, str(tmp_path), str(start)],
            stdout=subprocess.PIPE,
            text=True,
        )
        assert child.stdout is not None
        child.stdout.readline()
        time.sleep(rng.uniform(0.01, 0.25))
        child.send_signal(signal.SIGKILL)
        said = child.stdout.read().split("\n")
        child.wait()
        child.stdout.close()
        told = [start, *(int(line) for line in said if len(line) == 16 and line.isdigit())]
        sent = [int(line[5:]) for line in said if len(line) == 21 and line.startswith("sent ")]

        assert put_aside_if_damaged(tmp_path, NOW) is None
        spool = Spool(tmp_path)
        held: list[int] = []
        seqs: list[int] = []
        while (batch := next_batch(spool, "n", Lane.LIVE, start, 10**9)) is not None:
            held += stamps(batch.body)
            seqs.append(batch.seq)
            spool.acknowledge(batch)
        spool.close()
        assert held == sorted(set(held))
        # Everything told and not sent is there; at most one more was in the making.
        assert held[-1] - told[-1] in (0, S)
        assert held == list(range(held[0], held[-1] + 1, S))
        assert seqs == list(range(seqs[0], seqs[0] + len(seqs)))
        assert held[0] <= (sent[-1] + S if sent else start)
        start = held[-1] + 10 * S
