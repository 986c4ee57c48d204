"""The query service: its threads, answers in parts, and a server that ends in time."""

from __future__ import annotations

import asyncio
import contextlib
import csv
import io
import json
import os
import signal
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request

import duckdb
import pyarrow as pa
import pytest

from idlewatt.errors import UnavailableError
from warehouse import answers, query_service
from warehouse.api import build_app
from warehouse.query_pool import QueryPool
from warehouse.query_service import QueryService, Streamed
from warehouse.sandbox import QueryResult
from warehouse.tokens import Tokens

SPECIAL = {
    "DATE 'infinity'": "infinity",
    "TIMESTAMP '-infinity'": "-infinity",
    "TIMESTAMP '290000-01-01'": "290000-01-01 00:00:00",
    "DATE '-5000-01-01'": "5001-01-01 (BC)",
    "DATE '2026-01-02'": "2026-01-02",
    "TIMESTAMPTZ '2026-01-01 00:00:00+05'": "2025-12-31T19:00:00Z",
    "TIMESTAMP_NS '2026-01-01 00:00:00.25'": "2026-01-01T00:00:00.250000Z",
    "TIME '24:00:00'": "24:00:00",
    "INTERVAL '1 month 2 days'": "1 month 2 days",
    "1e308::DOUBLE * 10": "inf",
    "0.213::FLOAT": 0.213,
    "100::DOUBLE": 100.0,
    "1.25::DECIMAL(9, 2)": 1.25,
    "170141183460469231731687303715884105727": "170141183460469231731687303715884105727",
    "-9007199254740993": "-9007199254740993",
    "'x'::BLOB": "78",
    "NULL": None,
    "''": "",
    "'a\"\\' || chr(10) || chr(0) || ',ü'": 'a"\\\n\0,ü',
    "{'a''\"': [TIMESTAMP '2026-01-01', NULL], 'b': NULL}": {
        "a'\"": ["2026-01-01T00:00:00Z", None],
        "b": None,
    },
    "MAP {'k': ['nan'::DOUBLE]}": {"k": ["nan"]},
    "[]::INTEGER[]": [],
}


def result_of(sql):
    with contextlib.closing(duckdb.connect(":memory:")) as con:
        return QueryResult(con.sql(sql).to_arrow_table(), False, 0.1)


def encoded(result, form):
    return b"".join(answers.parts(result, form))


def test_every_kind_of_value_has_its_text():
    result = result_of("SELECT " + ", ".join(f"{sql} AS c{k}" for k, sql in enumerate(SPECIAL)))
    row = json.loads(encoded(result, "json"))["rows"][0]
    assert dict(zip(SPECIAL, row, strict=True)) == SPECIAL
    lines = list(csv.reader(io.StringIO(encoded(result, "csv").decode(), newline="")))
    by_sql = dict(zip(SPECIAL, lines[1], strict=True))
    assert by_sql["DATE 'infinity'"] == "infinity"
    assert json.loads(by_sql["MAP {'k': ['nan'::DOUBLE]}"]) == {"k": ["nan"]}
    assert b',"",' in encoded(result, "csv")  # the empty text is not NULL


def test_parts_make_the_same_rows_in_every_format(monkeypatch):
    monkeypatch.setattr(answers, "_PART_CELLS", 14)
    result = result_of("SELECT range AS a, 't' || range AS b FROM range(50)")
    parts = list(answers.parts(result, "json"))
    assert len(parts) > 5
    rows = json.loads(b"".join(parts))["rows"]
    assert rows == [[k, f"t{k}"] for k in range(50)]
    lines = list(csv.reader(io.StringIO(encoded(result, "csv").decode())))
    assert lines == [["a", "b"], *([str(k), f"t{k}"] for k in range(50))]
    table = pa.ipc.open_stream(io.BytesIO(encoded(result, "arrow"))).read_all()
    assert table.to_pydict() == result.table.to_pydict()


def test_empty_answers_are_whole():
    result = result_of("SELECT 1 AS a, 's' AS b WHERE false")
    assert json.loads(encoded(result, "json"))["rows"] == []
    assert encoded(result, "csv") == b"a,b\n"
    assert pa.ipc.open_stream(io.BytesIO(encoded(result, "arrow"))).read_all().num_rows == 0


def test_large_answer_goes_out_in_parts(bench):
    service = QueryService(bench.store, bench.ingestor.metrics)
    sent = []

    class Asked:
        async def body(self, _limit):
            return json.dumps({"sql": "SELECT range, repeat('x', 500) FROM range(9000)"}).encode()

    async def send(message):
        sent.append(message)

    async def both():
        answer = await service.answer(Asked())
        assert isinstance(answer, Streamed)
        await answer.send(send)

    asyncio.run(both())
    assert len(sent) >= 4
    assert b"idlewatt-server" in dict(sent[0]["headers"])
    rows = json.loads(b"".join(part["body"] for part in sent[1:]))["rows"]
    assert (len(rows), rows[-1][0], service.streams) == (9000, 8999, 0)
    assert service.close(5) == 0


def test_a_client_that_does_not_read_is_left(bench, monkeypatch):
    monkeypatch.setattr(query_service, "_SEND_LIMIT_S", 0.05)
    service = QueryService(bench.store, bench.ingestor.metrics)
    answer = Streamed(service, b"first", iter([b"second"]), "text/csv", {})

    async def deaf(_message):
        await asyncio.sleep(60)

    started = time.monotonic()
    asyncio.run(answer.send(deaf))
    assert time.monotonic() - started < 10
    assert (service.streams, service.close(5)) == (0, 0)


def test_stuck_threads_are_replaced_up_to_a_bound_and_then_the_health_is_red():
    pool, let_go = QueryPool("t", 1, 1), threading.Event()

    async def story():
        for lost in (1, 2):
            with pytest.raises(UnavailableError, match="given up"):
                await pool.run(lambda: let_go.wait(30), 0.05)
            assert pool.reap() == lost
            if lost == 1:
                assert pool.problem() is None
                assert await pool.run(lambda: 7, 5) == 7
        assert "2 queries do not stop" in pool.problem()
        let_go.set()
        assert await pool.run(lambda: 8, 5) == 8
        for _ in range(200):
            if pool.reap() == 0:
                break
            await asyncio.sleep(0.02)
        assert pool.problem() is None

    asyncio.run(story())
    assert pool.close(5) == 0
    assert "t" not in {thread.name for thread in threading.enumerate()}
    with pytest.raises(UnavailableError, match="ending"):
        asyncio.run(pool.run(lambda: 1, 1))


def test_health_tells_of_queries_that_do_not_stop(bench, monkeypatch):
    app = build_app(
        bench.store, bench.ingestor, Tokens(bench.folder / "t.toml"), bench.settings, bench.clock
    )
    monkeypatch.setattr(app._queries._pool, "problem", lambda: "3 queries do not stop")
    assert "3 queries do not stop" in app.health()["problems"]
    assert app.close() == 0


# A server whose queries hear no interrupt at all.
DEAF = """
import sys, time
import warehouse.query_service as service
service.run_query = lambda *a, **k: time.sleep(120)
from idlewatt.cli import main
sys.exit(main(sys.argv[1:]))
"""


@pytest.mark.integration
def test_sigterm_ends_the_server_although_queries_are_stuck(tmp_path):
    words = ["serve", "--port", "0", "--data-dir", str(tmp_path / "data")]
    server = subprocess.Popen(
        [sys.executable, "-c", DEAF, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    try:
        url = server.stdout.readline().split()[-1].decode()

        def ask():
            with contextlib.suppress(OSError, urllib.error.URLError):
                urllib.request.urlopen(f"{url}/api/v1/query", b'{"sql": "SELECT 1"}', timeout=60)

        askers = [threading.Thread(target=ask, daemon=True) for _ in range(5)]
        for asker in askers:
            asker.start()
        time.sleep(1)
        started = time.monotonic()
        os.kill(server.pid, signal.SIGTERM)
        assert server.wait(30) == 0
        assert time.monotonic() - started < 10
        assert b"do not stop" in server.stderr.read()
        assert not (tmp_path / "data" / "idlewatt.duckdb.wal").exists()
    finally:
        server.kill()
        server.wait()
        server.stdout.close()
        server.stderr.close()
