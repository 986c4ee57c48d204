from __future__ import annotations

import json
import random
import socket
import tempfile
import threading
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from collector.batcher import MAX_TICKS
from collector.http1 import parse_url
from collector.shipper import (
    Answer,
    Backoff,
    Connection,
    LaneConfig,
    LaneShipper,
    off_the_tick,
    parse_answer,
    post_batch,
)
from collector.spool import Spool
from idlewatt.clock import VirtualClock
from idlewatt.columns import GPU_SAMPLE, NODE
from idlewatt.errors import ConfigError, ServerUnreachableError
from idlewatt.model import Lane
from idlewatt.wire import SERVER_HEADER, Batch, decode_batch, rows_from_table

S = 1_000_000
OURS = {SERVER_HEADER.lower(): "0.1.0"}


def sample(ts_us: int, gpu: str, epoch: int) -> list[object]:
    known = {"ts_utc": ts_us, "obs_ms": 1000, "node_id": "n", "gpu_uuid": gpu, "epoch": epoch}
    return [known.get(column.name) for column in GPU_SAMPLE]


@dataclass
class Ledger:
    """What a server has committed, by the rules of the wire."""

    last: dict[tuple[int, str], int] = field(default_factory=dict)
    rows: Counter[tuple[int, str]] = field(default_factory=Counter)
    given_up: list[tuple[int, int]] = field(default_factory=list)
    nodes: list[tuple[Any, ...]] = field(default_factory=list)
    refuse: set[tuple[str, int]] = field(default_factory=set)

    def take(self, body: bytes, given_up: tuple[int, int] | None) -> tuple[int, dict[str, Any]]:
        batch = decode_batch(body)
        head = batch.header
        lane = (head.epoch, head.lane)
        last = self.last.get(lane, 0)
        if head.seq <= last:
            return 200, {"acked": last, "duplicate": True, "flush_s": 1.0}
        if (head.lane, head.seq) in self.refuse:
            return 400, {"error": "column power_mw is of an unknown kind"}
        if given_up is not None and given_up == (last + 1, head.seq - 1):
            self.given_up.append(given_up)
            last = given_up[1]
        if head.seq != last + 1:
            return 409, {"error": f"{last + 1} is expected", "expected": last + 1}
        self._commit(batch)
        self.last[lane] = head.seq
        return 200, {"acked": head.seq, "duplicate": False, "flush_s": 1.0}

    def _commit(self, batch: Batch) -> None:
        table = batch.tables.get("gpu_sample")
        if table is not None:
            for row in rows_from_table(GPU_SAMPLE, table):
                self.rows[row[0], row[4]] += 1
        if "node" in batch.tables:
            self.nodes += rows_from_table(NODE, batch.tables["node"])


FAULTS = ("none", "before", "after", "garbage", "503", "429", "507", "half")


class Server:
    """A real HTTP server on loopback that fails as told."""

    def __init__(self) -> None:
        self.ledger = Ledger()
        self.faults: list[str] = []
        self.seen: list[dict[str, str]] = []
        self.reply: tuple[int, dict[str, Any], dict[str, str]] | None = None
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True

            def do_POST(self) -> None:
                outer.handle(self)

            def log_message(self, *_: Any) -> None:
                return

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.thread = threading.Thread(target=self.http.serve_forever, args=(0.01,), daemon=True)
        self.thread.start()
        self.url = f"http://127.0.0.1:{self.http.server_port}"

    def close(self) -> None:
        self.http.shutdown()
        self.http.server_close()
        self.thread.join()

    def handle(self, request: BaseHTTPRequestHandler) -> None:
        body = request.rfile.read(int(request.headers["Content-Length"]))
        self.seen.append({name.lower(): value for name, value in request.headers.items()})
        fault = self.faults.pop(0) if self.faults else "none"
        if fault == "before":
            request.close_connection = True
            request.connection.shutdown(socket.SHUT_RDWR)
            return
        if self.reply is not None:
            status, content, headers = self.reply
        elif fault.isdigit():
            status, content, headers = int(fault), {"error": "later"}, {"Retry-After": "0"}
        else:
            words = request.headers.get("Idlewatt-Given-Up")
            given_up = None if words is None else tuple(int(word) for word in words.split("-"))
            status, content = self.ledger.take(body, given_up)  # type: ignore[arg-type]
            headers = {}
        if fault == "none":
            headers = {SERVER_HEADER: "0.1.0", **headers}
        raw = json.dumps(content).encode()
        if fault == "after":
            request.close_connection = True
            request.connection.shutdown(socket.SHUT_RDWR)
            return
        if fault == "garbage":
            raw = b"<html>a proxy's page</html>"
        request.send_response(status)
        for name, value in headers.items():
            request.send_header(name, value)
        request.send_header("Content-Length", str(len(raw)))
        request.end_headers()
        request.wfile.write(raw[: len(raw) // 2] if fault == "half" else raw)
        if fault == "half":
            request.close_connection = True


@pytest.fixture
def server() -> Iterator[Server]:
    running = Server()
    yield running
    running.close()


@dataclass
class Node:
    """A spool with two lanes that go nowhere by themselves."""

    folder: Path
    transports: dict[Lane, Any]
    clock: VirtualClock
    rng: random.Random
    written: Counter[tuple[int, str]] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self.open(new_epoch=True)

    def open(self, *, new_epoch: bool) -> None:
        self.spool = Spool(self.folder)
        if new_epoch:
            self.epoch = self.spool.begin_epoch(self.clock.now_us())
        self.lanes = {
            lane: LaneShipper(
                self.spool,
                self.transports[lane],
                LaneConfig("n", lane, 120, 1.0),
                self.clock,
                self.rng,
            )
            for lane in Lane
        }

    def restart(self, *, new_epoch: bool) -> None:
        self.spool.close()
        self.open(new_epoch=new_epoch)

    def tick(self) -> None:
        self.clock.advance(1)
        ts_us = self.clock.now_us()
        self.spool.append(
            self.epoch, ts_us, [sample(ts_us, gpu, self.epoch) for gpu in ("GPU-a", "GPU-b")]
        )
        self.written.update([(ts_us, "GPU-a"), (ts_us, "GPU-b")])

    def drain(self, steps: int = 2_000) -> None:
        for _ in range(steps):
            left = self.spool.backlog()
            if left.ticks == 0 and left.batches == 0 and not self.spool.facts():
                return
            for lane in self.lanes.values():
                lane.step()
        raise AssertionError(f"never empty: {self.spool.backlog()}")


@pytest.mark.integration
def test_every_row_arrives_exactly_once_over_a_bad_network(server: Server, tmp_path: Path) -> None:
    rng = random.Random(11)
    lanes = {lane: Connection(server.url, lambda: "secret", 5) for lane in Lane}
    node = Node(tmp_path, lanes, VirtualClock(), rng)
    server.faults = [rng.choice(FAULTS) for _ in range(200)]
    for _ in range(500):
        node.tick()
        if rng.random() < 0.4:
            node.lanes[Lane.LIVE].step()
        if rng.random() < 0.2:
            node.lanes[Lane.BACKFILL].step()
        if rng.random() < 0.05:
            node.restart(new_epoch=rng.random() < 0.5)
        if rng.random() < 0.01:
            for _ in range(200):
                node.tick()
    node.drain()
    assert not server.faults
    assert server.ledger.rows == node.written
    assert {lane for _, lane in server.ledger.last} == {"live", "backfill"}
    node.spool.close()
    for connection in lanes.values():
        connection.close()


class FlakyTransport:
    """A transport over a ledger, with one fault for each post."""

    def __init__(self, ledger: Ledger) -> None:
        self.ledger = ledger
        self.fault = "none"

    def post(self, body: bytes, given_up: tuple[int, int] | None = None) -> Answer:
        fault, self.fault = self.fault, "none"
        if fault == "before":
            raise ServerUnreachableError("cut")
        if fault.isdigit():
            return Answer(int(fault), error="later", retry_after_s=1.0)
        status, content = self.ledger.take(body, given_up)
        if fault in ("after", "half"):
            raise ServerUnreachableError("cut")
        if fault == "garbage":
            return parse_answer(status, {}, json.dumps(content).encode())
        return parse_answer(status, OURS, json.dumps(content).encode())

    def close(self) -> None:
        return


class ExactlyOnce(RuleBasedStateMachine):
    """Whatever fails in whatever order: each row is committed once, or declared as a gap."""

    @initialize()
    def begin(self) -> None:
        self.folder = tempfile.TemporaryDirectory()
        self.ledger = Ledger()
        self.transports = {lane: FlakyTransport(self.ledger) for lane in Lane}
        self.node = Node(
            Path(self.folder.name), dict(self.transports), VirtualClock(), random.Random(1)
        )

    @rule(count=st.integers(1, 5))
    def ticks(self, count: int) -> None:
        for _ in range(count):
            self.node.tick()

    @rule(lane=st.sampled_from(list(Lane)), fault=st.sampled_from(FAULTS))
    def ship(self, lane: Lane, fault: str) -> None:
        self.transports[lane].fault = fault
        assert self.node.lanes[lane].step() >= 0

    @rule(seconds=st.sampled_from([100, 200]))
    def sleep(self, seconds: int) -> None:
        self.node.clock.advance(seconds)

    @rule(new_epoch=st.booleans())
    def restart(self, new_epoch: bool) -> None:
        self.node.restart(new_epoch=new_epoch)

    @precondition(lambda self: len(self.ledger.refuse) < 3)
    @rule(lane=st.sampled_from(["live", "backfill"]), seq=st.integers(1, 4))
    def server_will_refuse(self, lane: str, seq: int) -> None:
        self.ledger.refuse.add((lane, seq))

    @invariant()
    def nothing_twice(self) -> None:
        assert all(count == 1 for count in self.ledger.rows.values())

    def teardown(self) -> None:
        if not hasattr(self, "node"):
            return
        try:
            self.node.drain()
            lost = set(self.node.written) - set(self.ledger.rows)
            assert set(self.ledger.rows) <= set(self.node.written)
            refused = self.node.spool.quarantined()
            assert bool(lost) <= bool(refused)
            for ts_us, _ in lost:
                assert self.node.clock.now_us() >= ts_us
            assert len(lost) % 2 == 0  # whole seconds
        finally:
            self.node.spool.close()
            self.folder.cleanup()


TestExactlyOnce = ExactlyOnce.TestCase
TestExactlyOnce.settings = hypothesis_settings(max_examples=40, stateful_step_count=30)


def lane(tmp_path: Path, transport: Any, which: Lane = Lane.LIVE) -> tuple[Node, LaneShipper]:
    node = Node(tmp_path, dict.fromkeys(Lane, transport), VirtualClock(), random.Random(3))
    return node, node.lanes[which]


class Scripted:
    """A transport that answers from a list and keeps what it was given."""

    def __init__(self, *answers: Answer | Exception) -> None:
        self.answers = list(answers)
        self.posts: list[tuple[bytes, tuple[int, int] | None]] = []

    def post(self, body: bytes, given_up: tuple[int, int] | None = None) -> Answer:
        self.posts.append((body, given_up))
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    def close(self) -> None:
        return


def test_a_refused_batch_is_kept_aside_declared_and_given_up(tmp_path: Path) -> None:
    ledger = Ledger(refuse={("live", 2)})
    node, _ = lane(tmp_path, FlakyTransport(ledger))
    for _ in range(3):
        node.tick()
        node.lanes[Lane.LIVE].step()
    node.drain()
    assert ledger.given_up == [(2, 2)]
    assert [entry[1:] for entry in node.spool.quarantined()] == [
        ("live", 2, "column power_mw is of an unknown kind")
    ]
    assert sum(ledger.rows.values()) == len(node.written) - 2
    node.spool.close()


def known_node(tmp_path: Path, ledger: Ledger) -> Node:
    """Return a node that has shipped its inventory and three more seconds."""
    node, live = lane(tmp_path, FlakyTransport(ledger))
    node.spool.add_facts({"node": [("n", S, "host", "r1", "c", "0.1.0")]})
    for _ in range(4):
        node.tick()
        live.step()
    assert len(ledger.nodes) == 1
    return node


@pytest.mark.parametrize("left", [0, 2])
def test_a_server_that_lost_its_database_hears_the_inventory_again(
    tmp_path: Path, left: int, caplog: pytest.LogCaptureFixture
) -> None:
    ledger = Ledger()
    node = known_node(tmp_path, ledger)
    ledger.nodes.clear()
    ledger.last[node.epoch, "live"] = left  # nothing, or an older copy
    for _ in range(3):
        node.tick()
        node.lanes[Lane.LIVE].step()
    assert [row[3] for row in ledger.nodes] == ["r1"]
    assert ledger.given_up == [(left + 1, 4)]
    assert caplog.text.count("told again") == 1
    node.spool.close()


def test_a_batch_given_up_is_no_reason_to_tell_the_inventory_again(tmp_path: Path) -> None:
    ledger = Ledger()
    node = known_node(tmp_path, ledger)
    ledger.refuse.add(("live", 5))
    for _ in range(3):
        node.tick()
        node.lanes[Lane.LIVE].step()
    assert ledger.given_up == [(5, 5)]
    assert len(ledger.nodes) == 1
    node.spool.close()


def test_the_inventory_is_told_again_each_hour(tmp_path: Path) -> None:
    ledger = Ledger()
    node = known_node(tmp_path, ledger)
    for _ in range(4 * 6 + 1):
        node.clock.advance(599)
        node.tick()
        node.lanes[Lane.LIVE].step()
        node.lanes[Lane.BACKFILL].step()
    assert len(ledger.nodes) in (1 + 3, 1 + 4)  # four hours; the first at the node's own moment
    node.spool.close()


def test_flush_interval_of_the_server_is_honoured(tmp_path: Path) -> None:
    transport = Scripted(Answer(200, acked=1, flush_s=5.0))
    node, live = lane(tmp_path, transport)
    node.tick()
    live.step()
    waits = []
    for _ in range(3):
        wait = live.step()
        node.clock.advance(wait)
        waits.append(wait)
    assert waits[1:] == pytest.approx([5.0, 5.0])
    node.spool.close()


@pytest.mark.parametrize("status", [429, 503, 507])
def test_retry_after_is_the_least_wait(tmp_path: Path, status: int) -> None:
    transport = Scripted(Answer(status, error="busy", retry_after_s=17.0))
    node, live = lane(tmp_path, transport)
    node.tick()
    assert 17.0 <= live.step() <= 17.5
    assert node.spool.backlog().batches == 1
    node.spool.close()


PROXY = [
    (400, b'{"error": "bad_request", "message": "upstream policy"}'),
    (400, b""),
    (413, b"<html>413</html>"),
    (413, b'{"error": "too large"}'),
    (409, b'{"error": "conflict", "expected": 0}'),
    (200, b'{"acked": 1000}'),
    (200, b"<html>sign in</html>"),
    (403, b'{"error": "forbidden"}'),
]


@pytest.mark.parametrize(("status", "raw"), PROXY)
def test_what_something_on_the_way_says_settles_no_batch(
    tmp_path: Path, status: int, raw: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    theirs = parse_answer(status, {"server": "proxy"}, raw)
    transport = Scripted(theirs, theirs, theirs, Answer(200, acked=1))
    node, live = lane(tmp_path, transport)
    node.tick()
    waits = [live.step() for _ in range(3)]
    backlog = node.spool.backlog()
    assert (backlog.batches, backlog.quarantined, node.spool.facts()) == (1, 0, [])
    assert min(waits) > 0
    messages = [record.getMessage() for record in caplog.records]
    assert len(messages) == 1  # once, not each time
    assert f"HTTP status {status} of something that is not an idlewatt server" in messages[0]
    live.step()
    assert node.spool.backlog().batches == 0
    assert set(transport.posts) == {transport.posts[0]}  # nothing declared lost
    node.spool.close()


@pytest.mark.parametrize("status", [400, 413])
def test_a_servers_own_refusal_settles_the_batch(tmp_path: Path, status: int) -> None:
    transport = Scripted(parse_answer(status, OURS, b'{"error": "no such kind"}'))
    node, live = lane(tmp_path, transport)
    node.tick()
    live.step()
    backlog = node.spool.backlog()
    assert (backlog.batches, backlog.quarantined) == (0, 1)
    node.spool.close()


@pytest.mark.parametrize("status", [401, 403])
def test_a_wrong_token_is_said_clearly_and_tried_rarely(
    tmp_path: Path, status: int, caplog: pytest.LogCaptureFixture
) -> None:
    transport = Scripted(*[Answer(status, error="no such token")] * 3)
    node, live = lane(tmp_path, transport)
    node.tick()
    assert min(live.step() for _ in range(3)) >= 30
    assert node.spool.backlog().batches == 1
    messages = [record.getMessage() for record in caplog.records]
    assert len(messages) == 1  # once, not each time
    assert "no such token" in messages[0]
    assert "agent.token_file" in messages[0]
    node.spool.close()


def test_an_unreachable_server_is_tried_ever_more_rarely(tmp_path: Path) -> None:
    transport = Scripted(*[ServerUnreachableError("refused")] * 40)
    node, live = lane(tmp_path, transport)
    node.tick()
    waits = [live.step() for _ in range(40)]
    assert all(0 <= wait <= 30 for wait in waits)
    assert max(waits[:2]) <= 1
    assert sum(waits[10:]) / 30 > 10
    assert len({body for body, _ in transport.posts}) == 1  # always the same bytes
    node.spool.close()


def test_the_last_flush_empties_the_lane_and_ends_at_the_first_failure(tmp_path: Path) -> None:
    down = ServerUnreachableError("refused")
    transport = Scripted(down, *[Answer(200, acked=number) for number in (1, 2)], down)
    node, live = lane(tmp_path, transport)
    node.tick()
    live.step()  # a batch is formed and waits
    node.tick()
    live.finish(2.0)
    left = node.spool.backlog()
    assert (left.ticks, left.batches, live.sent) == (0, 0, 2)
    node.tick()
    live.finish(2.0)
    assert len(transport.posts) == 4  # one try, not one for each instant of its patience
    node.tick()
    live.finish(0.0)
    assert (node.spool.backlog().ticks, node.spool.backlog().batches) == (1, 1)
    node.spool.close()


@given(st.floats(0, 1, exclude_max=True), st.sampled_from([0.2, 1.0, 5.0, 60.0]))
def test_batches_are_not_formed_at_whole_seconds(share: float, flush_s: float) -> None:
    phase_us = off_the_tick(round(share * flush_s * S))
    assert 100_000 <= phase_us % S <= 900_000
    assert 0 <= phase_us <= flush_s * S + 100_000


def test_backoff_is_spread_over_its_whole_range() -> None:
    waits = [Backoff(random.Random(seed)).next_s() for seed in range(200)]
    assert min(waits) < 0.05
    assert max(waits) > 0.45


def test_after_an_outage_old_seconds_go_in_large_batches(tmp_path: Path) -> None:
    ledger = Ledger()
    node, _ = lane(tmp_path, FlakyTransport(ledger))
    for _ in range(900):
        node.tick()
    node.drain()
    assert ledger.rows == node.written
    live, backfill = ledger.last[node.epoch, "live"], ledger.last[node.epoch, "backfill"]
    assert live <= 121 // MAX_TICKS[Lane.LIVE] + 1
    assert backfill == 3  # 780 seconds in batches of up to 300
    node.spool.close()


@pytest.mark.integration
def test_headers_of_a_post_and_keep_alive(server: Server, tmp_path: Path) -> None:
    connection = Connection(server.url + "/", lambda: "secret", 5)
    node, live = lane(tmp_path, connection)
    for _ in range(3):
        node.tick()
        live.step()
    seen = server.seen[0]
    assert seen["authorization"] == "Bearer secret"
    assert seen["content-type"] == "application/vnd.idlewatt.batch"
    assert "idlewatt-given-up" not in seen
    assert server.ledger.rows == node.written
    node.spool.close()
    connection.close()


@pytest.mark.integration
def test_a_kept_connection_that_dies_after_the_commit_doubles_nothing(
    server: Server, tmp_path: Path
) -> None:
    connection = Connection(server.url, lambda: "secret", 5)
    node, live = lane(tmp_path, connection)
    node.tick()
    live.step()
    server.faults = ["after"]
    node.tick()
    live.step()
    assert len(server.seen) == 3  # the second batch went twice, the other time by a new connection
    assert server.ledger.last[node.epoch, "live"] == 2
    assert server.ledger.rows == node.written
    assert (node.spool.backlog().batches, live.sent) == (0, 2)
    node.spool.close()
    connection.close()


@pytest.mark.integration
def test_a_fresh_connection_that_dies_is_not_tried_again_at_once(
    server: Server, tmp_path: Path
) -> None:
    connection = Connection(server.url, lambda: "secret", 5)
    node, live = lane(tmp_path, connection)
    server.faults = ["after", "before"]
    node.tick()
    for sent in (0, 0, 1):
        live.step()
        assert live.sent == sent
    assert len(server.seen) == 3
    assert server.ledger.rows == node.written
    node.spool.close()
    connection.close()


@pytest.mark.integration
def test_post_batch_gives_the_answer(server: Server) -> None:
    server.reply = (409, {"error": "3 is expected", "expected": 3}, {})
    answer = post_batch(server.url, "t", b"body", given_up=(1, 2))
    assert (answer.status, answer.expected, answer.error) == (409, 3, "3 is expected")
    assert server.seen[0]["idlewatt-given-up"] == "1-2"
    server.reply = (200, {"acked": 7, "duplicate": True, "flush_s": 2}, {})
    assert post_batch(server.url, "t", b"body") == Answer(200, 7, True, 2.0)
    server.faults, server.reply = ["garbage"], (400, {}, {})
    assert post_batch(server.url, "t", b"body").ours is False


def test_no_server_is_one_sentence() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{free.getsockname()[1]}"
    with pytest.raises(ServerUnreachableError, match=r"no answer from http://127\.0\.0\.1"):
        post_batch(url, "t", b"body")


@pytest.mark.parametrize(
    "reply",
    [
        b"HTTP/1.1 200 OK\r\nIdlewatt-Server: 1\r\nTransfer-Encoding: chunked\r\n\r\n"
        b'5\r\n{"ack\r\n6;x=y\r\ned": 4\r\n1\r\n}\r\n0\r\n\r\n',
        b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nIDLEWATT-SERVER: 1\r\n"
        b'content-length: 12\r\n\r\n{"acked": 4}',
        b'HTTP/1.0 200 OK\r\nidlewatt-server: 1\r\n\r\n{"acked": 4}',
    ],
)
def test_forms_an_answer_can_have(reply: bytes) -> None:
    assert raw_answer(reply).acked == 4


@pytest.mark.parametrize(
    "reply",
    [
        b"",
        b"SSH-2.0-OpenSSH_9.2\r\n",
        b"HTTP/1.1 abc\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: -4\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 99999999\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 40\r\n\r\n{",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"HTTP/1.1 200 OK\r\n" + b"a: b\r\n" * 300 + b"\r\n",
    ],
)
def test_what_is_no_answer_is_no_acknowledgement(reply: bytes) -> None:
    with pytest.raises(ServerUnreachableError):
        raw_answer(reply)


def raw_answer(reply: bytes) -> Answer:
    """Return what a client makes of these bytes."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            peer, _ = listener.accept()
            with peer:
                peer.recv(65_536)
                peer.sendall(reply)

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            return post_batch(f"http://127.0.0.1:{listener.getsockname()[1]}", "t", b"x", None, 5)
        finally:
            thread.join()


@pytest.mark.parametrize(
    ("status", "headers", "raw", "expected"),
    [
        (200, OURS, b"<html>", 502),
        (200, OURS, b"[]", 502),
        (200, OURS, b'{"acked": true}', 502),
        (200, {}, b'{"acked": 3}', 502),
        (200, OURS, b'{"acked": 3}', 200),
        (503, {}, b"", 503),
    ],
)
def test_only_a_servers_own_200_acknowledges(
    status: int, headers: dict[str, str], raw: bytes, expected: int
) -> None:
    answer = parse_answer(status, {**headers, "retry-after": "soon"}, raw)
    assert answer.status == expected
    assert answer.retry_after_s is None
    assert answer.ok is (expected == 200)


@pytest.mark.parametrize(
    ("url", "authority", "path"),
    [
        ("http://h:8050", "h:8050", ""),
        ("https://h/", "h", ""),
        ("http://h:80/idle/", "h", "/idle"),
        ("https://[::1]:9/x", "[::1]:9", "/x"),
        ("http://[::1]", "[::1]", ""),
    ],
)
def test_addresses(url: str, authority: str, path: str) -> None:
    address = parse_url(url)
    assert (address.authority, address.path) == (authority, path)


@pytest.mark.parametrize(
    "url",
    [
        "",
        "h:8050",
        "ftp://h",
        "http://",
        "http://h:x",
        "http://h:99999",
        "http://u@h",
        "http://a b",
    ],
)
def test_addresses_that_make_no_sense(url: str) -> None:
    with pytest.raises(ConfigError, match="server address"):
        parse_url(url)
