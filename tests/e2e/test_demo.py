"""The demo as a newcomer meets it: live page, history, SQL, and nothing left behind."""

from __future__ import annotations

import os
import re
import signal
import urllib.error
import urllib.request
from pathlib import Path

import psutil
import pytest
from harness import IDLEWATT, Process, Server, free_port, wait_until

pytestmark = pytest.mark.integration


def family(pid: int) -> list[psutil.Process]:
    return [psutil.Process(pid), *psutil.Process(pid).children(recursive=True)]


def start(tmp_path: Path, *flags: str) -> tuple[Process, Server]:
    server = Server(tmp_path, port=free_port())
    words = [*IDLEWATT, "demo", "--port", str(server.port), "--seed", "3", *flags]
    demo = Process(words, tmp_path / "demo.log", {"TMPDIR": str(tmp_path)}).start()
    return demo, server


def gone(processes: list[psutil.Process]) -> bool:
    return not any(process.is_running() for process in processes)


def test_demo_is_live_complete_and_leaves_nothing(tmp_path: Path) -> None:
    demo, server = start(tmp_path, "--nodes", "2", "--gpus", "4", "--hours", "2")
    try:
        wait_until(lambda: "history complete" in demo.output() or not alive(demo), 120, "history")
        assert "live after" in demo.output(), demo.output()
        (asked,) = re.findall(r"complete after \d+ s: ([\d,]+) samples", demo.output())
        counted = server.sql(
            "SELECT count(*) AS n, count(DISTINCT (gpu_uuid, ts_utc)) AS pairs,"
            " count(DISTINCT gpu_uuid) AS gpus, count(DISTINCT epoch) AS epochs FROM gpu_sample"
        )[0]
        assert counted["n"] == counted["pairs"] >= int(asked.replace(",", "")) > 2 * 8 * 3600
        assert (counted["gpus"], counted["epochs"]) == (8, 3)  # two live agents and the history
        holes = server.sql(
            "SELECT gpu_uuid, ts_utc FROM (SELECT gpu_uuid, ts_utc, lead(ts_utc) OVER"
            " (PARTITION BY gpu_uuid ORDER BY ts_utc) AS next_utc FROM gpu_sample)"
            " WHERE next_utc - ts_utc > INTERVAL 1 SECOND"
        )
        assert holes == []
        states = server.sql("FROM energy_by_state")
        assert {"active", "execution_idle"} <= {row["state"] for row in states}
        assert server.sql("SELECT count(*) AS n FROM job WHERE job_class = 'training'")[0]["n"] > 0
        with urllib.request.urlopen(server.url + "/healthz", timeout=10) as answer:
            assert answer.status == 200
        with urllib.request.urlopen(server.url + "/", timeout=10) as answer:
            assert b"idlewatt" in answer.read()
        processes = family(demo.pid)
        verbs = [verb for one in processes for verb in ("agent", "serve") if verb in one.cmdline()]
        assert verbs.count("agent") == 2 * 2  # supervisor and poller
        assert verbs.count("serve") == 1  # beside it, its own helpers
        os.kill(demo.pid, signal.SIGINT)
        assert demo.child is not None
        assert demo.child.wait(20) == 130
        assert gone(processes)
        assert not [path for path in tmp_path.iterdir() if path.name.startswith("idlewatt-demo-")]
    finally:
        demo.end()


def alive(demo: Process) -> bool:
    return demo.child is not None and demo.child.poll() is None


def test_a_demo_without_history_takes_the_callers_settings(tmp_path: Path) -> None:
    config = tmp_path / "mine.toml"
    config.write_text("[server]\nstale_s = 47\ntokens_file = 'other.toml'\nport = 1\n")
    demo, server = start(
        tmp_path,
        *("--nodes", "1", "--gpus", "2", "--hours", "0", "--data-dir", str(tmp_path / "kept")),
        *(
            "--config",
            str(config),
            "--set",
            "server.min_free_mib=33",
            "--set",
            "analysis.every_s=2",
        ),
        *("--set", "server.data_dir=elsewhere", "--set", "agent.cluster=other"),
    )
    try:
        wait_until(lambda: "no history" in demo.output() or not alive(demo), 60, "live")
        wait_until(
            lambda: server.sql("SELECT count(*) AS n FROM gpu_sample")[0]["n"] >= 4, 20, "rows"
        )
        known = server.sql(
            "SELECT count(DISTINCT epoch) AS epochs,"
            " date_diff('second', min(ts_utc), max(ts_utc)) AS span_s FROM gpu_sample"
        )[0]
        assert known["epochs"] == 1  # the live agent's
        assert known["span_s"] < 60
        words = psutil.Process(demo.pid).children()[0].cmdline()
        given = [pair.split("=", 1) for pair in words if "=" in pair]
        last = dict(given)
        assert last["server.min_free_mib"] == "33"
        assert last["analysis.every_s"] == "2"
        assert last["server.port"] == str(server.port)
        assert last["server.data_dir"] == str(tmp_path / "kept" / "data")
        assert "history complete" not in demo.output()
    finally:
        demo.end()


def test_a_killed_demo_takes_its_processes_along(tmp_path: Path) -> None:
    demo, _ = start(tmp_path, "--nodes", "1", "--gpus", "1", "--hours", "1")
    try:
        wait_until(lambda: "live after" in demo.output() or not alive(demo), 90, "live")
        assert alive(demo), demo.output()
        processes = family(demo.pid)
        assert len(processes) >= 4  # demo, server, and two processes of the agent
        demo.kill()
        wait_until(lambda: gone(processes), 20, "the children are gone")
        assert gone(processes)
    finally:
        demo.end()


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--nodes", "0"], "at least one node"),
        (["--data-dir", "kept"], "already holds a demo"),
        (["--data-dir", "file/demo"], "the demo's folder cannot be made: Not a directory"),
        (["--data-dir", "/proc/demo"], "the demo's folder cannot be made: "),
        (["--set", "server.min_fre_mib=1"], "did you mean 'server.min_free_mib'"),
    ],
)
def test_impossible_demos_are_one_sentence(tmp_path: Path, flags: list[str], words: str) -> None:
    (tmp_path / "kept" / "data").mkdir(parents=True)
    (tmp_path / "file").touch()
    words_in = [*IDLEWATT, "demo", "--port", str(free_port()), *flags]
    demo = Process(words_in, tmp_path / "demo.log", cwd=tmp_path).start()
    assert demo.child is not None
    assert demo.child.wait(30) == 2
    assert words in demo.output()
    assert demo.output().count("\n") == 1
    assert "Traceback" not in demo.output()
