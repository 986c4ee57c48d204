from __future__ import annotations

import socket
import sqlite3
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from collector.identity import NodeIdentity, machine_id
from collector.nvml import Nvml
from collector.poller import Poller, PollerConfig, sample_once
from collector.simulator.constant import install_constant
from collector.simulator.standin import uninstall
from collector.spool import Spool
from collector.ticks import Due
from idlewatt.cli import build_parser, flag_settings
from idlewatt.cli.agent import poller_argv
from idlewatt.clock import VirtualClock
from idlewatt.columns import GAP, TABLES
from idlewatt.config import resolve
from idlewatt.errors import ConfigError
from idlewatt.model import Lane

S = 1_000_000
JOB = ("sim:1:0", "sim", "1", 0, "u", "p", "j", "training", 1, 2, None)


class Source:
    """An allocation source that says one thing a tick, and may fail."""

    def __init__(self) -> None:
        self.broken = False
        self.asked: list[int] = []

    def poll(self, now_us: int) -> dict[str, list[tuple[Any, ...]]]:
        self.asked.append(now_us)
        if self.broken:
            raise RuntimeError("scheduler is away")
        return {"job": [JOB]}


class Bench:
    """A poller on a virtual clock that stops after some ticks."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.clock = VirtualClock()
        install_constant(2, "H100", self.clock)
        self.nvml = Nvml()
        self.source = Source()
        self.beats = 0
        self.begin()

    def begin(self) -> None:
        config = PollerConfig(NodeIdentity("n", "r", "c"), self.folder, 64)
        self.poller = Poller(config, self.nvml, self.source, self.clock, self.beat)

    def beat(self) -> None:
        self.beats += 1
        if self.beats >= self.limit:
            self.stop.set()

    def run(self, ticks: int) -> None:
        self.clock.advance(0.25)  # a fresh grid starts at the next whole second
        self.stop = threading.Event()
        self.limit = self.beats + ticks
        self.poller.run(self.stop)

    def ticks(self) -> list[tuple[int, int]]:
        """Return (epoch, stamp) of what is spooled."""
        spool = Spool(self.folder)
        con = sqlite3.connect(spool.path)
        found = con.execute("SELECT epoch, ts_us FROM tick ORDER BY id").fetchall()
        con.close()
        spool.close()
        return found

    def facts(self, name: str) -> list[list[Any]]:
        spool = Spool(self.folder)
        found = [row for fact in spool.facts() if fact.name == name for row in fact.rows]
        spool.close()
        return found

    def gaps(self) -> list[dict[str, Any]]:
        names = [column.name for column in GAP]
        return [dict(zip(names, row, strict=True)) for row in self.facts("gap")]


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    made = Bench(tmp_path)
    yield made
    made.poller.close()
    uninstall()


def test_each_second_is_on_disk_before_it_is_announced(bench: Bench) -> None:
    seen: list[int] = []
    beat = bench.beat
    bench.poller._beat = lambda: (seen.append(len(bench.ticks())), beat())
    bench.run(5)
    assert seen == [1, 2, 3, 4, 5]
    stamps = [stamp for _, stamp in bench.ticks()]
    assert stamps == list(range(stamps[0], stamps[0] + 5 * S, S))
    assert all(stamp % S == 0 for stamp in stamps)


def test_inventory_and_jobs_are_spooled_in_column_order(bench: Bench) -> None:
    bench.run(1)
    for name in ("node", "device", "device_capability", "job"):
        rows = bench.facts(name)
        assert rows
        assert {len(row) for row in rows} == {len(TABLES[name])}
    assert len(bench.facts("device")) == 2


def test_between_two_agents_there_is_a_gap_with_energy(bench: Bench) -> None:
    bench.run(3)
    epoch, last = bench.ticks()[-1]
    bench.poller.close()
    bench.clock.advance(20)
    bench.begin()
    bench.run(1)
    assert bench.ticks()[-1][0] > epoch
    gaps = bench.gaps()
    assert {gap["gpu_uuid"] is None for gap in gaps} == {False}
    assert [gap["reason"] for gap in gaps] == ["agent_down"] * 2
    for gap in gaps:
        assert gap["from_utc"] == last + S
        assert gap["to_utc"] == bench.ticks()[-1][1] - S
        assert gap["energy_uj"] > 0


def test_a_clock_set_back_while_running(bench: Bench) -> None:
    stepped = threading.Event()
    beat = bench.beat

    def step() -> None:
        if bench.beats == 2 and not stepped.is_set():
            stepped.set()
            bench.clock.step_wall(-3600)
        beat()

    bench.poller._beat = step
    bench.run(5)
    found = bench.ticks()
    assert len(set(found)) == 5
    assert len({epoch for epoch, _ in found}) == 2
    assert found[3][1] < found[2][1]
    assert [gap["reason"] for gap in bench.gaps()] == ["clock_step"]


def test_a_source_that_fails_costs_no_sample(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    bench.source.broken = True
    bench.run(2)
    assert len(bench.ticks()) == 2
    assert bench.facts("job") == []
    assert "scheduler is away" in caplog.text


def test_a_second_that_cannot_be_written_is_declared(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.run(1)
    append = Spool.append

    def full(*_: Any, **__: Any) -> None:
        raise sqlite3.OperationalError("database or disk is full")

    monkeypatch.setattr(Spool, "append", full)
    bench.run(2)
    monkeypatch.setattr(Spool, "append", append)
    bench.run(1)
    stamps = [stamp for _, stamp in bench.ticks()]
    assert len(stamps) == 2
    holes = [gap for gap in bench.gaps() if gap["reason"] == "spool_error"]
    assert [(gap["from_utc"], gap["to_utc"]) for gap in holes] == [(stamps[0] + S, stamps[1] - S)]
    assert len(bench.facts("job")) == 4  # nothing said meanwhile is lost


def test_it_trims_now_and_then(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []
    monkeypatch.setattr(Spool, "trim", lambda _self, node: calls.append(node) or 0)
    bench.run(120)
    assert calls == ["n", "n"]


def test_stop_before_the_first_tick(bench: Bench) -> None:
    stop = threading.Event()
    stop.set()
    bench.poller.run(stop)
    assert bench.ticks() == []


def test_no_gpu_at_all_is_no_error(tmp_path: Path) -> None:
    clock = VirtualClock()
    install_constant(0, "H100", clock)
    try:
        config = PollerConfig(NodeIdentity("n"), tmp_path, 64)
        poller = Poller(config, Nvml(), Source(), clock)
        poller.tick(Due(clock.now_us(), 0, clock.monotonic_ns()))
        poller.close()
        spool = Spool(tmp_path)
        assert spool.waiting(Lane.LIVE, 0, 10) == []
        assert spool.last_tick_us() == clock.now_us()
        spool.close()
    finally:
        uninstall()


def test_once_waits_for_a_baseline() -> None:
    clock = VirtualClock()
    install_constant(1, "H100", clock)
    try:
        second = sample_once(NodeIdentity("n"), clock)
        assert len(second.rows) == 1
        assert second.facts["device"]
        assert clock.monotonic_ns() >= 1_000_000_000
    finally:
        uninstall()


def test_machine_id(tmp_path: Path) -> None:
    path = tmp_path / "id"
    path.write_text("abc\n")
    assert machine_id((tmp_path / "no", path)) == "abc"
    with pytest.raises(ConfigError, match=r"agent\.node_id"):
        machine_id((tmp_path / "no",))


def test_the_host_name_shown_can_be_set_and_reaches_the_poller() -> None:
    shown = [NodeIdentity("n", hostname=name).row(0)[2] for name in ("rack7-n3", "")]
    assert shown == ["rack7-n3", socket.gethostname()]
    words = ["agent", "--node-id", "n", "--set", "agent.hostname=rack7-n3"]
    args = build_parser("agent").parse_args(words)
    argv = poller_argv(args, resolve(flag_settings(args), {}))
    again = build_parser("agent").parse_args(argv[argv.index("agent") :])
    assert resolve(flag_settings(again), {}).text("agent.hostname") == "rack7-n3"


def test_what_is_known_outlives_a_clock_step_and_not_the_poller(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.run(1)
    spool = Spool(tmp_path)
    everything = spool.repeat_facts()
    bench.poller._set_back("set back", bench.stop)
    assert spool.repeat_facts() == everything  # replaced key by key, jobs included
    bench.poller.close()
    bench.begin()
    assert spool.repeat_facts() == everything - 1  # the source has not spoken yet
    spool.close()
    bench.poller.close()
