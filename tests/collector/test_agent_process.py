from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import psutil
import pytest

from collector import agent as agent_module
from collector import poller as poller_module
from collector.agent import AgentConfig, Supervisor, TokenFile
from collector.poller import SLICE_NS
from collector.spool import FILE_NAME, Spool
from collector.spooled import Backlog
from idlewatt.clock import VirtualClock
from idlewatt.columns import GAP, GPU_SAMPLE
from idlewatt.errors import ConfigError, UsageError
from idlewatt.wire import decode_batch, rows_from_table

S = 1_000_000
AGENT = (sys.executable, "-m", "idlewatt", "agent")


class Receiver:
    """A server that keeps every row it has committed."""

    def __init__(self) -> None:
        self.rows: Counter[tuple[int, int, str]] = Counter()  # epoch, ts, gpu
        self.gaps: list[dict[str, Any]] = []
        self.last: dict[tuple[int, str], int] = {}
        self.holes: list[str] = []
        self.down = False
        self.flush_s = 0.2
        lock = threading.Lock()
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                with lock:
                    status, content = outer.take(body)
                raw = json.dumps(content).encode()
                self.send_response(status)
                self.send_header("Idlewatt-Server", "0.1.0")
                self.send_header("Content-Length", str(len(raw)))
                self.end_headers()
                self.wfile.write(raw)

            def log_message(self, *_: Any) -> None:
                return

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.thread = threading.Thread(target=self.http.serve_forever, args=(0.02,), daemon=True)
        self.thread.start()
        self.url = f"http://127.0.0.1:{self.http.server_port}"

    def take(self, body: bytes) -> tuple[int, dict[str, Any]]:
        if self.down:
            return 503, {"error": "down"}
        batch = decode_batch(body)
        lane = (batch.header.epoch, batch.header.lane)
        last = self.last.get(lane, 0)
        if batch.header.seq > last:
            if batch.header.seq != last + 1:
                self.holes.append(str(batch.header.key))
            self.last[lane] = batch.header.seq
            if "gpu_sample" in batch.tables:
                for row in rows_from_table(GPU_SAMPLE, batch.tables["gpu_sample"]):
                    self.rows[row[6], row[0], row[4]] += 1
            if "gap" in batch.tables:
                names = [column.name for column in GAP]
                for row in rows_from_table(GAP, batch.tables["gap"]):
                    self.gaps.append(dict(zip(names, row, strict=True)))
        return 200, {"acked": self.last[lane], "duplicate": False, "flush_s": self.flush_s}

    @property
    def stamps(self) -> list[int]:
        return sorted({ts for _, ts, _ in self.rows})

    def close(self) -> None:
        self.http.shutdown()
        self.http.server_close()
        self.thread.join()


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    running = Receiver()
    yield running
    running.close()


class Agent:
    """`idlewatt agent` as a process."""

    def __init__(self, folder: Path, *flags: str, driver: str = "constant") -> None:
        self.child = subprocess.Popen(
            [
                *AGENT,
                *("--driver", driver, "--gpus", "2", "--node-id", "n"),
                *("--spool-dir", str(folder), "--set", "agent.flush_s=0.2"),
                *flags,
            ],
            stderr=subprocess.PIPE,
            text=True,
        )

    def poller(self) -> psutil.Process:
        found: list[psutil.Process] = []

        def look() -> bool:
            found[:] = psutil.Process(self.child.pid).children()
            return bool(found) and "--poller" in found[0].cmdline()

        until(look)
        return found[0]

    def end(self) -> tuple[int, str]:
        """Stop it politely and return its exit code and what it said."""
        self.child.send_signal(signal.SIGTERM)
        _, said = self.child.communicate(timeout=8)
        return self.child.returncode, said

    def kill(self) -> None:
        if self.child.poll() is None:
            self.child.kill()
        self.child.communicate(timeout=8)


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Agent]]:
    agents: list[Agent] = []

    def begin(*flags: str, driver: str = "constant") -> Agent:
        agents.append(Agent(tmp_path / "spool", *flags, driver=driver))
        return agents[-1]

    yield begin
    for one in agents:
        one.kill()


def backlog(folder: Path) -> Backlog:
    """Return what waits in a spool that others may use."""
    spool = Spool(folder)
    try:
        return spool.backlog()
    finally:
        spool.close()


def until(condition: Callable[[], Any], seconds: float = 20) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "did not happen in time"
        time.sleep(0.02)


@pytest.mark.integration
def test_poller_and_supervisor_killed_no_row_lost_or_doubled(
    receiver: Receiver, start: Callable[..., Agent], tmp_path: Path
) -> None:
    agent = start("--server", receiver.url)
    until(lambda: len(receiver.stamps) >= 2)
    agent.poller().kill()
    killed = len(receiver.stamps)
    until(lambda: len(receiver.stamps) >= killed + 2)
    receiver.down = True
    poller = agent.poller()
    time.sleep(1.5)
    agent.child.kill()
    until(lambda: not poller.is_running() or poller.status() == psutil.STATUS_ZOMBIE, 5)
    agent.child.communicate()
    receiver.down = False
    agent = start("--server", receiver.url)
    killed = len(receiver.stamps)
    until(lambda: len(receiver.stamps) >= killed + 4)
    poller = agent.poller()
    begun = time.monotonic()
    code, said = agent.end()
    assert time.monotonic() - begun < 5
    assert code == 0, said
    assert not poller.is_running()

    spool = Spool(tmp_path / "spool")
    waiting = spool.backlog()
    spool.close()
    assert waiting.ticks + waiting.batches <= 3
    assert receiver.holes == []
    assert set(receiver.rows.values()) == {1}
    assert len({epoch for epoch, _, _ in receiver.rows}) == 3
    seen, declared = set(receiver.stamps), set()
    for gap in receiver.gaps:
        assert gap["reason"] in ("agent_down", "late_tick")
        assert gap["energy_uj"] is None  # this driver's counter began anew
        declared |= set(range(gap["from_utc"], gap["to_utc"] + 1, S))
    everything = set(range(min(seen), max(seen) + 1, S))
    assert seen | declared == everything
    assert not seen & declared


@pytest.mark.integration
def test_it_works_without_a_server_and_only_once_on_a_spool(
    start: Callable[..., Agent], tmp_path: Path
) -> None:
    first = start("--server", "http://127.0.0.1:9")
    path = tmp_path / "spool"
    until(lambda: (path / FILE_NAME).exists() and first.poller().is_running())
    second = start("--server", "http://127.0.0.1:9")
    _, said = second.child.communicate(timeout=10)
    assert second.child.returncode == 2
    assert said.strip() == f"idlewatt: another agent already uses the spool {path}"

    until(lambda: backlog(path).ticks >= 2)
    code, said = first.end()
    assert code == 0
    assert said.count("no answer from http://127.0.0.1:9") == 1  # once, not at each try


@pytest.mark.integration
def test_a_hang_up_ends_nothing_and_another_node_may_not_take_the_spool(
    start: Callable[..., Agent], tmp_path: Path
) -> None:
    agent = start("--server", "")
    poller = agent.poller()
    folder = tmp_path / "spool"
    until(lambda: (folder / FILE_NAME).exists() and backlog(folder).ticks >= 1)
    for process in (psutil.Process(agent.child.pid), poller):
        process.send_signal(signal.SIGHUP)
    before = backlog(folder).ticks
    until(lambda: backlog(folder).ticks >= before + 2)
    assert poller.is_running()
    code, said = agent.end()
    assert (code, said) == (0, "")
    other = start("--server", "", "--node-id", "m")
    _, said = other.child.communicate(timeout=10)
    assert other.child.returncode == 2
    assert said.startswith(f"idlewatt: spool {folder} holds what node 'n' has not sent yet")
    assert said.count("\n") == 1


@pytest.mark.integration
def test_a_clean_stop_sends_what_is_left(
    receiver: Receiver, start: Callable[..., Agent], tmp_path: Path
) -> None:
    receiver.flush_s = 60.0  # nothing more would go within this test
    agent = start("--server", receiver.url)
    until(lambda: receiver.last and backlog(tmp_path / "spool").ticks >= 2)
    begun = time.monotonic()
    code, said = agent.end()
    assert time.monotonic() - begun < 5
    assert code == 0, said
    left = backlog(tmp_path / "spool")
    assert (left.ticks, left.batches) == (0, 0)
    assert len(receiver.stamps) >= 2


@pytest.mark.integration
def test_a_server_that_never_answers_does_not_hold_up_the_end(
    start: Callable[..., Agent], tmp_path: Path
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as deaf:
        agent = start("--server", f"http://127.0.0.1:{deaf.getsockname()[1]}")
        until(lambda: agent.poller().is_running() and (tmp_path / "spool" / FILE_NAME).exists())
        until(lambda: backlog(tmp_path / "spool").batches >= 1)
        begun = time.monotonic()
        code, said = agent.end()
        assert time.monotonic() - begun < 5
        assert code == 0, said
    assert backlog(tmp_path / "spool").batches >= 1  # it is sent by the next agent


@pytest.mark.integration
def test_a_damaged_spool_is_replaced_while_running(
    receiver: Receiver, start: Callable[..., Agent], tmp_path: Path
) -> None:
    folder = tmp_path / "spool"
    folder.mkdir()
    (folder / FILE_NAME).write_bytes(b"this is no database" * 1000)
    agent = start("--server", receiver.url)
    until(lambda: receiver.rows)
    code, said = agent.end()
    assert code == 0
    assert "the spool was damaged; it is kept as" in said
    assert len(list(folder.glob("spool.db.damaged-*"))) >= 1


@pytest.mark.integration
def test_without_a_driver_it_waits_and_says_why(start: Callable[..., Agent]) -> None:
    agent = start("--server", "", driver="nvml")
    poller = agent.poller()
    until(lambda: not poller.is_running())
    code, said = agent.end()
    assert code == 0
    assert "idlewatt: the GPU driver cannot be opened" in said
    assert "next start in" in said


@pytest.mark.integration
@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--server", "nowhere"], "server address 'nowhere' is not http(s)://HOST[:PORT]"),
        (["--driver", "sim", "--sim", "{"], "--sim is not JSON"),
        (["--driver", "sim", "--sim", '{"no": 1}'], "--sim does not describe a cluster"),
        (["--driver", "quantum"], "invalid choice"),
        (["--token-file", "/nonexistent/token"], "token file /nonexistent/token cannot be read"),
        (["--set", "agent.spol_dir=x"], "did you mean 'agent.spool_dir'"),
    ],
)
def test_wrong_usage_ends_with_one_sentence(flags: list[str], words: str, tmp_path: Path) -> None:
    done = subprocess.run(
        [*AGENT, "--node-id", "n", "--spool-dir", str(tmp_path / "spool"), *flags],
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert done.returncode == 2
    assert words in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.integration
def test_once_prints_a_second_and_leaves_nothing(tmp_path: Path) -> None:
    done = subprocess.run(
        [
            *(*AGENT, "--once", "--json", "--driver", "constant", "--gpus", "3"),
            *("--node-id", "n", "--spool-dir", str(tmp_path / "spool")),
        ],
        capture_output=True,
        text=True,
        timeout=30,
        check=True,
    )
    rows = json.loads(done.stdout)
    assert len(rows) == 3
    assert rows[0]["sm_active"] == pytest.approx(0.6)
    assert not (tmp_path / "spool").exists()


def test_quick_wakeups_are_asked_for_and_the_weight_stays() -> None:
    code = (
        "import os, pathlib\n"
        "from collector.poller import ask_for_quick_wakeups\n"
        "os.nice(3)\n"
        "print(ask_for_quick_wakeups(), os.getpriority(os.PRIO_PROCESS, 0))\n"
        "print(pathlib.Path('/proc/self/sched').read_text())\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    taken, nice = done.stdout.split()[:2]
    assert nice == "3"
    kernel = tuple(int(word) for word in os.uname().release.split(".")[:2])
    if kernel < (6, 12) or "se.slice" not in done.stdout or taken == "False":
        pytest.skip("this kernel does not tell its slices")
    line = next(line for line in done.stdout.splitlines() if "se.slice" in line)
    assert int(line.split(":")[1]) == SLICE_NS


def test_quick_wakeups_on_a_machine_of_unknown_kind(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(poller_module.os, "uname", lambda: os.uname_result(("", "", "", "", "abc")))
    assert not poller_module.ask_for_quick_wakeups()


def config(folder: Path, url: str = "") -> AgentConfig:
    return AgentConfig("n", folder, 64, url, lambda: "", 1.0, 120)


def test_a_silent_poller_is_killed_and_started_again_ever_more_slowly(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    clock = VirtualClock()
    silent = [sys.executable, "-c", "import time; time.sleep(60)"]
    supervisor = Supervisor(config(tmp_path), silent, clock)
    pids = []
    for pause in (0.5, 1.0, 2.0):
        assert supervisor._look() == 0
        poller = supervisor._poller
        assert poller is not None
        pids.append(poller.pid)
        clock.advance(agent_module.START_SILENCE_S - 61)
        supervisor._look()
        assert supervisor._poller is poller
        supervisor._backoff_s = pause
        clock.advance(62)
        supervisor._look()
        assert supervisor._poller is None
        assert not psutil.pid_exists(poller.pid)
        clock.advance(0.4)
        supervisor._look()
        assert supervisor._poller is None  # not yet
        clock.advance(pause)
    assert len(set(pids)) == 3
    assert "silent" in caplog.text
    os.close(supervisor._lock)


def test_the_log_of_the_spool_is_moved_now_and_then(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    moved: list[bool] = []
    checkpoint = Spool.checkpoint
    monkeypatch.setattr(Spool, "checkpoint", lambda spool: moved.append(checkpoint(spool)))
    clock = VirtualClock()
    supervisor = Supervisor(config(tmp_path), ["true"], clock)
    writer = Spool(tmp_path)
    for second in range(95):
        writer.append(1, second * S, [[1, "row"]])
        clock.advance(1)
        supervisor._checkpoint()
    assert moved == [True, True, True]
    writer.close()
    os.close(supervisor._lock)


def test_the_poller_never_sees_the_token(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("IDLEWATT_AGENT_TOKEN", "secret")
    supervisor = Supervisor(config(tmp_path), ["true"], VirtualClock())
    assert "secret" not in json.dumps(supervisor._environ)
    with pytest.raises(UsageError, match="another agent"):
        Supervisor(config(tmp_path), ["true"], VirtualClock())
    os.close(supervisor._lock)


def test_a_token_file_is_read_again_when_it_changes(tmp_path: Path) -> None:
    path = tmp_path / "token"
    with pytest.raises(ConfigError, match="cannot be read"):
        TokenFile(path)
    path.write_text("one\n")
    token = TokenFile(path)
    assert token() == "one"
    path.write_text("two\n")
    os.utime(path, ns=(1, 1))
    assert token() == "two"
    path.unlink()
    assert token() == "two"
