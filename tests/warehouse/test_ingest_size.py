"""A batch counts by what it is unpacked, before it is unpacked."""

from __future__ import annotations

import asyncio
import threading

import pytest
import zstandard

from idlewatt.errors import UnavailableError, WireError
from idlewatt.wire import MAX_RAW_BYTES, claimed_bytes
from warehouse import api, ingest


def test_claim_is_the_unpacked_size():
    body = zstandard.ZstdCompressor().compress(bytes(3_000_000))
    assert len(body) < 1_000
    assert claimed_bytes(body) == 3_000_000
    with pytest.raises(WireError, match="claims"):
        claimed_bytes(zstandard.ZstdCompressor().compress(bytes(MAX_RAW_BYTES + 1)))
    with pytest.raises(WireError, match="cannot be read"):
        claimed_bytes(b"no frame at all")


def test_waiting_bytes_are_those_unpacked_and_are_given_back(bench, kit, monkeypatch):
    rows = [kit.sample(at, f"G{g}") for at in range(300) for g in range(4)]
    body = kit.batch(1, rows)
    raw = claimed_bytes(body)
    assert raw > 3 * len(body)
    monkeypatch.setattr(ingest, "MAX_WAITING_BYTES", raw + len(body))
    hold = threading.Event()
    blocker = bench.store.submit(lambda con: hold.wait(10))
    first = bench.ingestor.submit(body)  # is being committed
    while bench.ingestor._live:
        pass
    second = bench.ingestor.submit(kit.batch(2, rows))
    third = bench.ingestor.submit(kit.batch(3, rows))
    assert isinstance(third.exception(timeout=5), UnavailableError)
    hold.set()
    blocker.result()
    assert (first.result(10).acked, second.result(10).acked) == (1, 2)
    assert bench.ingestor._waiting_bytes == 0


def test_refused_batch_gives_its_bytes_back(bench, kit):
    bad = zstandard.ZstdCompressor().compress(b"\x93garbage")
    for body, error in ((bad, WireError), (kit.batch(5, [kit.sample(0)]), Exception)):
        with pytest.raises(error):
            bench.send(body)
    assert bench.ingestor._waiting_bytes == 0


def test_small_body_with_a_large_claim_is_decoded_beside_the_event_loop(bench, kit, monkeypatch):
    rows = [kit.sample(at, f"G{g}") for at in range(900) for g in range(12)]
    body = kit.batch(1, rows)
    assert len(body) < 64 << 10 < ingest.BIG_BATCH < claimed_bytes(body)
    seen = []
    submit = bench.ingestor.submit

    def watched(*args):
        seen.append(threading.current_thread())
        return submit(*args)

    monkeypatch.setattr(bench.ingestor, "submit", watched)

    class Known:
        def node_of(self, token):
            return "n1"

    app = api.build_app(bench.store, bench.ingestor, Known(), bench.settings, bench.clock)

    async def ask():
        sent = []
        parts = [{"type": "http.request", "body": body, "more_body": False}]

        async def receive():
            return parts.pop(0)

        async def send(message):
            sent.append(message)

        scope = {
            "type": "http",
            "method": "POST",
            "path": "/api/v1/ingest",
            "query_string": b"",
            "headers": [(b"host", b"localhost"), (b"authorization", b"Bearer x")],
        }
        await app(scope, receive, send)
        return sent

    sent = asyncio.run(ask())
    assert sent[0]["status"] == 200
    assert seen[0] is not threading.main_thread()
