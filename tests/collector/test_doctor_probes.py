"""What doctor finds out: driver, machine, server; against stand-ins and loopback servers."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pynvml
import pytest

from collector import nvml as nv
from collector.doctor import driver, host
from collector.doctor.driver import ask_child, encode, probe_driver
from collector.doctor.facts import DriverFacts, Trouble
from collector.doctor.server import probe_server
from collector.simulator.constant import ConstantLoad, ConstantProvider
from collector.simulator.standin import StandIn, install, uninstall
from collector.spool import Spool
from idlewatt.clock import VirtualClock, iso_utc


@pytest.fixture(autouse=True)
def _no_driver_left_behind() -> Iterator[None]:
    yield
    uninstall()


class Node:
    """A stand-in with constant GPUs on a virtual clock."""

    def __init__(self, model: str = "H100", gpus: int = 2, **more: Any) -> None:
        self.clock = VirtualClock()
        provider = ConstantProvider(gpus, model, self.clock, ConstantLoad(power_w=250.0))
        self.standin = StandIn(provider, **more)
        install(self.standin)

    def facts(self) -> DriverFacts:
        return probe_driver(self.clock)


def test_an_h100_gives_everything() -> None:
    facts = Node().facts()
    assert facts.trouble is None
    assert (facts.driver_version, facts.cuda_version) == ("590.48.01", "13.1")
    assert facts.library == "a stand-in"
    one = facts.devices[1]
    assert (one.index, one.model, one.arch) == (1, "NVIDIA H100 80GB HBM3", "hopper")
    assert one.gpm
    assert set(one.refused) == {"fan_pct"}
    assert one.silent == ()
    assert one.power_mw == 250_000
    assert one.energy_mj[0] is not None
    assert one.energy_mj[1] - one.energy_mj[0] == pytest.approx(250_000 * driver.SPAN_S, rel=0.01)
    assert one.lists == dict.fromkeys(("compute", "graphics", "mps"), "ok")
    assert (one.persistence, one.mig, one.error) == (True, False, None)


def test_the_gpm_buffers_are_given_back() -> None:
    node = Node()
    node.facts()
    assert node.standin.samples == {}
    assert node.standin.initialised == 0


@pytest.mark.parametrize("model", ["A100", "L40S"])
def test_before_hopper_there_is_no_activity(model: str) -> None:
    one = Node(model).facts().devices[0]
    assert not one.gpm
    assert one.refused["sm_active"] == "unsupported"
    assert ("power_avg_mw" in one.refused) is (model == "A100")


def test_a_lost_gpu_leaves_the_others_alone() -> None:
    node = Node(gpus=3)
    node.standin.settables[1].fault = nv.GPU_IS_LOST
    found = node.facts().devices
    assert [one.error for one in found] == [None, "gpu_is_lost", None]


def test_a_gpu_lost_between_two_readings() -> None:
    node = Node()

    def lose(_seconds: float, _wake: object = None) -> bool:
        node.standin.settables[0].fault = nv.GPU_IS_LOST
        return False

    node.clock.wait = lose  # type: ignore[method-assign]
    assert [one.error for one in node.facts().devices] == ["gpu_is_lost", None]


def test_a_gpu_that_is_not_permitted() -> None:
    node = Node()
    node.standin.settables[0].fault = nv.NO_PERMISSION
    assert node.facts().devices[0].error == "no_permission"


def test_profiling_without_permission(monkeypatch: pytest.MonkeyPatch) -> None:
    node = Node()
    monkeypatch.setattr(
        node.standin, "nvmlGpmQueryDeviceSupport", lambda *_: nv.NO_PERMISSION, raising=False
    )
    one = node.facts().devices[0]
    assert not one.gpm
    assert one.refused["sm_active"] == "no_permission"


def test_profiling_that_is_refused_at_the_first_sample(monkeypatch: pytest.MonkeyPatch) -> None:
    node = Node()
    monkeypatch.setattr(
        node.standin, "nvmlGpmSampleGet", lambda *_: nv.NO_PERMISSION, raising=False
    )
    one = node.facts().devices[0]
    assert one.gpm
    assert one.refused["sm_active"] == one.refused["pcie_tx_bytes_s"] == "no_permission"
    assert one.silent == ()


def test_a_counter_that_stands_still(monkeypatch: pytest.MonkeyPatch) -> None:
    node = Node()
    read = node.standin.provider.read
    still = lambda index: replace(read(index), energy_mj=7)  # noqa: E731
    monkeypatch.setattr(node.standin.provider, "read", still)
    assert node.facts().devices[0].energy_mj == (7, 7)


def test_process_lists_that_hold_nonsense(monkeypatch: pytest.MonkeyPatch) -> None:
    node = Node()
    read = node.standin.provider.read
    monkeypatch.setattr(
        node.standin.provider, "read", lambda index: replace(read(index), compute=((0, 1),))
    )
    assert not node.facts().devices[0].pids_plausible


@pytest.mark.parametrize(
    ("code", "trouble"),
    [
        (9, Trouble.NOT_LOADED),
        (12, Trouble.NO_LIBRARY),
        (4, Trouble.NO_PERMISSION),
        (18, Trouble.MISMATCH),
        (999, Trouble.OTHER),
    ],
)
def test_a_driver_that_does_not_open(
    code: int, trouble: Trouble, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse() -> None:
        raise pynvml.NVMLError(code)

    monkeypatch.setattr(pynvml, "nvmlInit", refuse)
    facts = probe_driver(VirtualClock())
    assert facts.trouble is trouble
    assert facts.words.startswith("the GPU driver cannot be opened: ")


def test_a_foreign_pynvml_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(pynvml, "nvmlDeviceGetFieldValues")
    facts = probe_driver(VirtualClock())
    assert facts.trouble is Trouble.SHADOWED
    assert "pip uninstall pynvml" in facts.words


# ── the child ───────────────────────────────────────────────────────────────────────────────────


def python(code: str) -> list[str]:
    return [sys.executable, "-c", code]


def test_facts_survive_the_way_from_the_child() -> None:
    facts = Node().facts()
    code = f"import sys; sys.stdout.buffer.write({encode(facts)!r})"
    assert ask_child(python(code)) == facts


def test_a_driver_that_hangs_is_left_behind() -> None:
    pids: list[int] = []

    def popen(*args: Any, **more: Any) -> subprocess.Popen[bytes]:
        child = subprocess.Popen(*args, **more)
        pids.append(child.pid)
        return child

    begun = time.monotonic()
    facts = ask_child(python("import time; time.sleep(60)"), 0.3, popen)
    assert time.monotonic() - begun < 3
    assert facts.trouble is Trouble.HANGS
    assert not Path(f"/proc/{pids[0]}").exists()


@pytest.mark.parametrize(
    ("code", "trouble", "words"),
    [
        ("import os; os.kill(os.getpid(), 11)", Trouble.CRASHED, "SIGSEGV"),
        ("raise SystemExit(3)", Trouble.OTHER, "code 3"),
        ("print('nonsense')", Trouble.OTHER, "code 0"),
    ],
)
def test_a_child_that_fails(code: str, trouble: Trouble, words: str) -> None:
    facts = ask_child(python(code))
    assert facts.trouble is trouble
    assert words in facts.words


# ── the machine ─────────────────────────────────────────────────────────────────────────────────


def test_a_spool_in_use_is_looked_at_without_touching_it(tmp_path: Path) -> None:
    spool = Spool(tmp_path)
    code = (
        "import fcntl, sys, time\n"
        f"lock = open({str(tmp_path / 'agent.lock')!r}, 'w')\n"
        "fcntl.flock(lock, fcntl.LOCK_EX)\n"
        "print('held', flush=True)\n"
        "time.sleep(60)\n"
    )
    with subprocess.Popen(python(code), stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        before = sorted(os.listdir(tmp_path))
        facts = host.probe_spool(tmp_path, 64, now_s=time.time() + 500)
        holder.kill()
    assert facts.holder_pid == holder.pid
    assert facts.silent_s == pytest.approx(500, abs=30)
    assert sorted(os.listdir(tmp_path)) == before
    assert (facts.exists, facts.error) == (True, None)
    assert len(facts.sync_ms) == host.SYNCS
    assert min(facts.sync_ms) > 0
    assert facts.free_bytes is not None
    assert facts.free_bytes > 0
    spool.close()
    assert host.probe_spool(tmp_path, 64).holder_pid is None


def test_a_spool_that_will_be_made(tmp_path: Path) -> None:
    facts = host.probe_spool(tmp_path / "a" / "b", 64)
    assert (facts.exists, facts.error, facts.sync_ms) == (False, None, ())
    assert facts.free_bytes is not None
    assert os.listdir(tmp_path) == []


def test_a_spool_that_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(**_: Any) -> None:
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr(host.tempfile, "TemporaryFile", refuse)
    assert host.probe_spool(tmp_path, 64).error == "Read-only file system"
    monkeypatch.setattr(host.os, "access", lambda *_: False)
    assert host.probe_spool(tmp_path / "new", 64).error == f"{tmp_path} cannot be written"
    (tmp_path / "file").touch()
    assert host.probe_spool(tmp_path / "file" / "spool", 64).error is not None


def test_rights_are_read_from_proc(tmp_path: Path) -> None:
    (tmp_path / "self").mkdir()
    params = tmp_path / "driver" / "nvidia" / "params"
    params.parent.mkdir(parents=True)
    assert host.probe_rights(tmp_path).sys_admin is None
    assert host.probe_rights(tmp_path).profiling_restricted is None
    (tmp_path / "self" / "status").write_text("Name:\tx\nCapEff:\t0000000000200000\n")
    params.write_text("ResmanDebugLevel: 4294967295\nRmProfilingAdminOnly: 1\n")
    rights = host.probe_rights(tmp_path)
    assert (rights.sys_admin, rights.profiling_restricted) == (True, True)
    (tmp_path / "self" / "status").write_text("CapEff:\t0000000000000400\n")
    params.write_text("RmProfilingAdminOnly: 0\n")
    rights = host.probe_rights(tmp_path)
    assert (rights.sys_admin, rights.profiling_restricted) == (False, False)


def test_device_files_that_may_not_be_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("nvidiactl", "nvidia0", "nvidia1", "nvidia-uvm"):
        (tmp_path / name).touch()
    monkeypatch.setattr(host.os, "access", lambda path, _mode: path.name != "nvidia1")
    assert host.probe_rights(dev=tmp_path).closed_nodes == (str(tmp_path / "nvidia1"),)


def test_the_clock_is_asked_not_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = host.probe_clock(tmp_path)
    assert kernel.source in ("kernel", None)
    (tmp_path / "systemd" / "timesync").mkdir(parents=True)
    (tmp_path / "systemd" / "timesync" / "synchronized").touch()
    found = host.probe_clock(tmp_path)
    assert (found.synchronised, found.source) == (True, "systemd-timesyncd")

    def gone(_name: object) -> None:
        raise OSError

    monkeypatch.setattr(host.ctypes, "CDLL", gone)
    assert host.probe_clock(tmp_path / "none").synchronised is None


def test_token_file(tmp_path: Path) -> None:
    path = tmp_path / "token"
    facts, token = host.probe_token(str(path), "")
    assert "cannot be read: No such file" in str(facts.error)
    assert token == ""
    path.write_text("iw_secret\n")
    path.chmod(0o644)
    facts, token = host.probe_token(str(path), "")
    assert (facts.mode, facts.present, token) == (0o644, True, "iw_secret")
    assert "iw_secret" not in repr(facts)
    assert host.probe_token("", "given")[1] == "given"


def test_a_question_that_hangs_or_fails() -> None:
    never = threading.Event()
    assert host.Asked(lambda: never.wait(30)).result(0.05, "late") == "late"
    assert host.Asked(lambda: "answer").result(5, "late") == "answer"
    with pytest.raises(ZeroDivisionError):
        host.Asked(lambda: 1 // 0).result(5, 0)
    never.set()


# ── the server ──────────────────────────────────────────────────────────────────────────────────


class Page(BaseHTTPRequestHandler):
    """Answers from a table of path to (status, content)."""

    protocol_version = "HTTP/1.1"
    pages: dict[str, Any]
    seen: list[tuple[str, str | None]]

    def do_GET(self) -> None:
        self.seen.append((self.path, self.headers["Authorization"]))
        status, content = self.pages[self.path]
        raw = content if isinstance(content, bytes) else json.dumps(content).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(raw)))
        self.end_headers()
        self.wfile.write(raw)

    def log_message(self, *_: Any) -> None:
        return


@pytest.fixture
def serve() -> Iterator[Callable[[dict[str, Any]], tuple[str, list[tuple[str, str | None]]]]]:
    running: list[tuple[ThreadingHTTPServer, threading.Thread]] = []

    def begin(pages: dict[str, Any]) -> tuple[str, list[tuple[str, str | None]]]:
        seen: list[tuple[str, str | None]] = []
        handler = type("Handler", (Page,), {"pages": pages, "seen": seen})
        http = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        thread = threading.Thread(target=http.serve_forever, args=(0.02,), daemon=True)
        thread.start()
        running.append((http, thread))
        return f"http://127.0.0.1:{http.server_port}", seen

    yield begin
    for http, thread in running:
        http.shutdown()
        http.server_close()
        thread.join()


HEALTH = "/healthz"
WHO = "/api/v1/whoami"


@pytest.mark.integration
def test_a_server_that_knows_the_token(serve: Callable[..., Any]) -> None:
    clock = VirtualClock()
    red = {"status": "red", "problems": ["no sample"], "now_utc": iso_utc(clock.now_us())}
    who = {"node_id": "n7", "now_us": clock.now_us() + 2_500_000}
    url, seen = serve({HEALTH: (503, red), WHO: (200, who)})
    answer = probe_server(url, "iw_t", clock)
    assert answer.facts.error is None
    assert (answer.facts.health, answer.facts.problems) == ("red", ("no sample",))
    assert (answer.facts.status, answer.facts.token_node) == (200, "n7")
    assert answer.skew_s == pytest.approx(2.5)
    assert (answer.facts.local, answer.facts.encrypted) == (True, False)
    assert seen == [(HEALTH, None), (WHO, "Bearer iw_t")]


@pytest.mark.integration
def test_a_wrong_token_still_tells_the_time_roughly(serve: Callable[..., Any]) -> None:
    clock = VirtualClock()
    ok = {"status": "ok", "problems": [], "now_utc": iso_utc(clock.now_us() + 90_000_000)}
    url, _ = serve({HEALTH: (200, ok), WHO: (401, {"error": "unknown"})})
    answer = probe_server(url, "iw_wrong", clock)
    assert (answer.facts.status, answer.facts.token_node) == (401, None)
    assert answer.skew_s == pytest.approx(90.5)
    assert answer.skew_error_s == pytest.approx(0.5)


@pytest.mark.integration
def test_what_is_no_idlewatt_server(serve: Callable[..., Any]) -> None:
    url, _ = serve({HEALTH: (200, b"<html>hello</html>"), WHO: (404, b"")})
    facts = probe_server(url, "t", VirtualClock()).facts
    assert (facts.health, facts.error) == (None, None)
    url, _ = serve({HEALTH: (421, {"error": "not my name"}), WHO: (421, b"")})
    assert probe_server(url, "t", VirtualClock()).facts.error == f"{url} refuses: not my name"


@pytest.mark.integration
def test_a_server_that_is_away_or_silent() -> None:
    with socket.create_server(("127.0.0.1", 0)) as deaf:
        url = f"http://127.0.0.1:{deaf.getsockname()[1]}"
        begun = time.monotonic()
        facts = probe_server(url, "", VirtualClock(), timeout_s=0.2).facts
        assert time.monotonic() - begun < 2
        assert "timed out" in str(facts.error)
    assert "refused" in str(probe_server(url, "", VirtualClock()).facts.error)
    assert "is not http" in str(probe_server("nowhere", "", VirtualClock()).facts.error)
    assert probe_server("", "", VirtualClock()).facts.error is None
