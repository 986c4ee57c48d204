"""Server and agent killed at random moments while live: nothing spooled is lost or doubled."""

from __future__ import annotations

import random
import sqlite3
import time
from contextlib import closing
from pathlib import Path

import psutil
import pytest
from harness import IDLEWATT, Process, Server, wait_until

pytestmark = pytest.mark.integration
NODE = "n1"
# Each spooled tick is copied by the database itself, inside the agent's own transaction, so that
# the test knows what was spooled even after the agent has shipped and forgotten it.
AUDIT = (
    "CREATE TABLE audit(epoch INT, ts_us INT, n INT)",
    "CREATE TRIGGER audit_tick AFTER INSERT ON tick BEGIN"
    " INSERT INTO audit VALUES (NEW.epoch, NEW.ts_us, NEW.n); END",
)


def agent(tmp_path: Path, server: Server) -> Process:
    words = [
        *IDLEWATT, "agent", "--driver", "constant", "--server", server.url, "--node-id", NODE,
        "--token-file", str(tmp_path / "token"), "--spool-dir", str(tmp_path / "spool"),
    ]  # fmt: skip
    return Process(words, tmp_path / "agent.log", cwd=tmp_path)


def spool(tmp_path: Path) -> closing[sqlite3.Connection]:
    return closing(sqlite3.connect(tmp_path / "spool" / "spool.db", timeout=10))


def has_tables(tmp_path: Path) -> bool:
    if not (tmp_path / "spool" / "spool.db").exists():
        return False
    with spool(tmp_path) as con:
        return bool(con.execute("SELECT 1 FROM sqlite_master WHERE name = 'batch'").fetchone())


def audited(tmp_path: Path) -> dict[int, tuple[int, int]]:
    """Return second -> (epoch, rows); the higher epoch wins."""
    with spool(tmp_path) as con:
        rows = con.execute("SELECT ts_us, epoch, n FROM audit ORDER BY epoch").fetchall()
    return {ts_us: (epoch, n) for ts_us, epoch, n in rows}


def committed(server: Server) -> dict[int, tuple[int, int]]:
    rows = server.sql(
        "SELECT epoch_us(ts_utc) AS ts_us, epoch, count(*) AS n, count(DISTINCT gpu_uuid) AS gpus"
        f" FROM gpu_sample WHERE node_id = '{NODE}' GROUP BY ALL"
    )
    assert all(row["n"] == row["gpus"] for row in rows), "a GPU has two rows for one second"
    assert len({row["ts_us"] for row in rows}) == len(rows), "a second has rows of two epochs"
    return {row["ts_us"]: (row["epoch"], row["n"]) for row in rows}


def poller_of(process: Process) -> psutil.Process | None:
    children = psutil.Process(process.pid).children()
    return children[0] if children else None


def run_rounds(tmp_path: Path, rounds: int, seed: int) -> None:
    dice = random.Random(seed)
    server = Server(tmp_path).start()
    (tmp_path / "token").write_text(server.token(NODE))
    node = agent(tmp_path, server).start()
    try:
        wait_until(lambda: has_tables(tmp_path), 20, "a spool with tables")
        with spool(tmp_path) as con:
            for statement in AUDIT:
                con.execute(statement)
        victims = ["server"] * rounds + ["agent"] * rounds
        dice.shuffle(victims)
        for number, victim in enumerate(victims):
            time.sleep(dice.uniform(0.3, 4.0))
            if victim == "server":
                assert server.process is not None
                server.process.kill()
                time.sleep(dice.uniform(0.0, 0.5))
                server.start(wait=False)
            elif number % 3 == 0 and (poller := poller_of(node)) is not None:
                poller.kill()  # the supervisor starts another
            else:
                poller = poller_of(node)
                node.kill()
                if poller is not None:
                    poller.wait(10)  # it must not outlive its supervisor
                node.start()
        wait_until(server.answers, 60, "server answers")
        time.sleep(1.5)
        assert node.stop() == 0
        truth = audited(tmp_path)
        node.start()  # ships what the last stop left in the spool
        wait_until(lambda: truth.keys() <= committed(server).keys(), 30, "everything spooled is in")
        seen = committed(server)
        assert {ts: seen[ts] for ts in truth} == truth
        assert {ts for ts in seen if min(truth) <= ts <= max(truth)} == truth.keys()
        assert len(truth) > 2 * rounds
    finally:
        node.end()
        server.end()


def test_ten_kills_of_each(tmp_path: Path) -> None:
    run_rounds(tmp_path, rounds=10, seed=20)


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_a_hundred_kills_of_each(tmp_path: Path) -> None:
    run_rounds(tmp_path, rounds=100, seed=21)
