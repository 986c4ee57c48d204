"""The HTTP API, called as an ASGI app: status codes, bodies, limits, who may call."""

from __future__ import annotations

import asyncio
import io
import json
import random

import msgspec
import pyarrow as pa
import pytest
import zstandard

from idlewatt.units import US_PER_S
from idlewatt.wire import CONTENT_TYPE, MAX_BODY_BYTES
from warehouse.api import build_app
from warehouse.http import Route, json_response
from warehouse.ingest import Ingestor
from warehouse.tokens import Tokens


class Caller:
    """Sends requests to the app without a network."""

    def __init__(self, bench, **more):
        self.bench = bench
        self.tokens = Tokens(bench.folder / "tokens.toml")
        self.token = self.tokens.create("n1")
        self.app = build_app(
            bench.store, bench.ingestor, self.tokens, bench.settings, bench.clock, **more
        )

    def __call__(self, method, path, body=b"", chunks=None, **headers):
        sent = []
        parts = list(chunks or [body])
        given = {"host": "127.0.0.1:8050"}
        given |= {name.replace("_", "-"): value for name, value in headers.items()}
        scope = {
            "type": "http",
            "http_version": "1.1",
            "scheme": "http",
            "server": ("127.0.0.1", 8050),
            "root_path": "",
            "method": method,
            "path": path,
            "query_string": b"",
            "headers": [(name.encode(), value.encode()) for name, value in given.items()],
        }

        async def receive():
            part = parts.pop(0)
            return {"type": "http.request", "body": part, "more_body": bool(parts)}

        async def send(message):
            sent.append(message)

        asyncio.run(self.app(scope, receive, send))
        headers = {name.decode(): value.decode() for name, value in sent[0]["headers"]}
        return sent[0]["status"], headers, sent[1]["body"]

    def ingest(self, body, token=None, **headers):
        status, headers, content = self(
            "POST",
            "/api/v1/ingest",
            body,
            authorization=f"Bearer {token or self.token}",
            content_type=CONTENT_TYPE,
            **headers,
        )
        return status, headers, json.loads(content)

    def query(self, _headers=None, **asked):
        return self("POST", "/api/v1/query", json.dumps(asked).encode(), **(_headers or {}))


@pytest.fixture
def call(bench):
    return Caller(bench)


def test_batch_is_acknowledged_once(call, kit):
    body = kit.batch(1, [kit.sample(0)])
    assert call.ingest(body)[::2] == (200, {"acked": 1, "duplicate": False, "flush_s": 1.0})
    assert call.ingest(body)[::2] == (200, {"acked": 1, "duplicate": True, "flush_s": 1.0})


def test_hole_is_409_with_the_number_expected_and_can_be_given_up(call, kit):
    body = kit.batch(3, [kit.sample(0)])
    status, _, answer = call.ingest(body)
    assert (status, answer["expected"]) == (409, 1)
    assert "error" in answer
    assert call.ingest(body, idlewatt_given_up="1-2")[0] == 200
    assert call.ingest(kit.batch(4), idlewatt_given_up="x")[0] == 400
    assert call.bench.count("gap") == 1


def test_tokens_bind_a_caller_to_its_node(call, kit):
    body = kit.batch(1, [kit.sample(0, node="n2")], node="n2")
    assert call("POST", "/api/v1/ingest", body)[0] == 401
    assert call.ingest(body, token="iw_" + "x" * 43)[0] == 401
    status, headers, answer = call.ingest(body, token="wrong")
    assert (status, headers["www-authenticate"]) == (401, "Bearer")
    assert "token" in answer["error"]
    assert call.ingest(body)[0] == 403
    assert call.ingest(body, token=call.tokens.create("n2"))[0] == 200
    assert call.bench.count() == 1


def test_a_token_tells_whose_it_is_and_nothing_is_written(call, kit):
    status, _, body = call("GET", "/api/v1/whoami", authorization=f"Bearer {call.token}")
    assert (status, json.loads(body)) == (
        200,
        {"node_id": "n1", "now_us": call.bench.clock.now_us()},
    )
    for header in ({}, {"authorization": "Bearer iw_of-nobody-at-all"}):
        status, _, body = call("GET", "/api/v1/whoami", **header)
        assert status == 401
        assert "idlewatt token create" in json.loads(body)["error"]
    assert kit.rows(call.bench.store, "FROM node") == []


def test_malformed_batches_are_400_and_never_more(call, kit):
    good = kit.batch(1, [kit.sample(k, power_scope="gpu", resident=True) for k in range(5)])
    rng = random.Random(7)
    raw = bytearray(zstandard.ZstdDecompressor().decompress(good))
    statuses = set()
    for _ in range(150):
        broken = bytearray(raw)
        for _ in range(rng.randint(1, 4)):
            broken[rng.randrange(len(broken))] = rng.randrange(256)
        statuses.add(call.ingest(zstandard.compress(bytes(broken)))[0])
    for _ in range(50):
        broken = bytearray(good)
        broken[rng.randrange(len(broken))] ^= 1 << rng.randrange(8)
        statuses.add(call.ingest(bytes(broken))[0])
    for text in (b"", b"{}", b"\x28\xb5\x2f\xfd", good[:-1], zstandard.compress(b"")):
        status, _, answer = call.ingest(text)
        statuses.add(status)
        assert status == 400
        assert answer["error"]
    # Some changed bytes still make a valid batch: of this node, another node, or a later number.
    assert statuses <= {200, 400, 403, 409}
    assert 400 in statuses


def test_bomb_and_oversize_are_refused_without_holding_them(call):
    bomb = zstandard.compress(bytes(200 << 20))
    assert call.ingest(bomb)[0] == 400
    status, _, content = call(
        "POST",
        "/api/v1/ingest",
        chunks=[bytes(1 << 20)] * 40,
        authorization=f"Bearer {call.token}",
    )
    assert status == 413
    assert "limit" in json.loads(content)["error"]
    claimed = call(
        "POST",
        "/api/v1/ingest",
        authorization=f"Bearer {call.token}",
        content_length=str(MAX_BODY_BYTES + 1),
    )
    assert claimed[0] == 413


def test_full_disk_is_507_while_queries_go_on(bench, kit):
    bench.ingestor.close()
    bench.ingestor = Ingestor(bench.store, free_bytes=lambda: -1)
    call = Caller(bench)
    status, headers, answer = call.ingest(kit.batch(1, [kit.sample(0)]))
    assert (status, headers["retry-after"]) == (507, "60")
    assert "disk" in answer["error"]
    assert call.query(sql="SELECT 1")[0] == 200
    assert call("GET", "/healthz")[0] == 503


def test_query_formats_carry_the_same_rows(call, kit):
    call.ingest(kit.batch(1, [kit.sample(0, sm_active=0.213), kit.sample(1)]))
    sql = "SELECT ts_utc, sm_active, resident, energy_uj FROM gpu_sample ORDER BY ts_utc"
    status, headers, body = call.query(sql=sql)
    answer = json.loads(body)
    assert (status, headers["idlewatt-rows"], answer["row_count"]) == (200, "2", 2)
    assert answer["rows"] == [
        ["2026-03-01T10:00:00Z", 0.213, None, 100_000_000],
        ["2026-03-01T10:00:01Z", None, None, 100_000_000],
    ]
    lines = call.query(sql=sql, format="csv")[2].decode().splitlines()
    assert lines[0] == "ts_utc,sm_active,resident,energy_uj"
    assert lines[1] == "2026-03-01T10:00:00Z,0.213,,100000000"
    table = pa.ipc.open_stream(io.BytesIO(call.query(sql=sql, format="arrow")[2])).read_all()
    assert table.num_rows == 2
    assert table["energy_uj"].to_pylist() == [100_000_000, 100_000_000]


def test_query_errors_are_400_in_one_sentence(call):
    for asked in (
        {"sql": "DROP VIEW gpu_sample"},
        {"sql": "SELECT nonsense"},
        {"name": "no_such_query"},
        {"name": "gpu_seconds"},
        {"name": "gaps", "params": {"nope": "1"}},
        {"sql": "SELECT 1", "name": "gaps"},
        {},
        {"sql": "SELECT 1", "format": "xml"},
        {"sql": "SELECT 1", "max_rows": 0},
        {"sql": "SELECT 1", "timeout_s": -1},
        {"sql": "SELECT 1", "typo": 1},
    ):
        status, _, body = call.query(**asked)
        assert status == 400, asked
        assert "\n" not in json.loads(body)["error"]
    assert call("POST", "/api/v1/query", b"not json")[0] == 400


def test_cut_answer_says_truncated(call):
    status, headers, body = call.query(sql="FROM range(10)", max_rows=3)
    assert (status, headers["idlewatt-truncated"]) == (200, "true")
    assert json.loads(body)["truncated"] is True
    assert len(json.loads(body)["rows"]) == 3


def test_large_and_special_values_survive_json(call):
    sql = (
        "SELECT 9007199254740993 AS a, 'NaN'::DOUBLE AS b, [1, NULL] AS c, {'x': 1} AS d, "
        "sum(x::HUGEINT) AS e, true AS f, TIMESTAMP '2026-01-01 00:00:00.5' AS g "
        "FROM range(3) AS t (x)"
    )
    row = json.loads(call.query(sql=sql)[2])["rows"][0]
    assert row == [
        "9007199254740993", "nan", [1, None], {"x": 1}, 3, True, "2026-01-01T00:00:00.500000Z",
    ]  # fmt: skip


def test_foreign_pages_and_rebound_names_are_refused(call):
    evil = {"host": "evil.example"}
    assert call.query({"host": "evil.example:8050"}, sql="SELECT 1")[0] == 421
    assert call("GET", "/healthz", **evil)[0] == 421
    assert call.query({"sec_fetch_site": "cross-site"}, sql="SELECT 1")[0] == 403
    assert call.query({"origin": "http://evil.example"}, sql="SELECT 1")[0] == 403
    assert call.query({"origin": "http://127.0.0.1:8050"}, sql="SELECT 1")[0] == 200
    for host in ("localhost:8050", "[::1]:8050", "127.0.0.1"):
        assert call.query({"host": host}, sql="SELECT 1")[0] == 200


def test_health_is_red_without_data_and_when_stale(call, kit):
    status, _, body = call("GET", "/healthz")
    assert status == 503
    assert json.loads(body)["problems"] == ["no sample has arrived yet"]
    now_s = call.bench.clock.now_us() // US_PER_S - kit.T0_S
    call.ingest(kit.batch(1, [kit.sample(now_s)]))
    assert call("GET", "/healthz")[0] == 200
    call.bench.clock.advance(31)
    status, _, body = call("GET", "/healthz")
    assert status == 503
    assert "31 s old" in json.loads(body)["problems"][0]


def test_a_clock_ahead_is_named_and_hides_no_silence(call, kit):
    now_s = call.bench.clock.now_us() // US_PER_S - kit.T0_S
    call.ingest(kit.batch(1, [kit.sample(now_s + 290)]))
    status, _, body = call("GET", "/healthz")
    health = json.loads(body)
    assert (status, health["newest_sample_age_s"]) == (503, 0)
    assert health["problems"] == ["a node's clock is ahead: n1 by 290 s"]
    # All is silent now: the stamps of the future do not count as fresh.
    call.bench.clock.advance(45)
    health = json.loads(call("GET", "/healthz")[2])
    assert health["newest_sample_age_s"] == 45
    assert "45 s old" in health["problems"][0]
    call.bench.clock.advance(60)
    assert len(json.loads(call("GET", "/healthz")[2])["problems"]) == 1  # heard too long ago
    call.ingest(kit.batch(2, [kit.sample(now_s + 105)]))
    assert call("GET", "/healthz")[0] == 200
    call.bench.reopen()
    assert call.bench.ingestor.newest_us == call.bench.clock.now_us()


def test_a_foreign_page_can_post_neither_to_the_api_nor_to_the_pages(bench):
    posted = []

    def wsgi(environ, start_response):
        posted.append(environ["REQUEST_METHOD"])
        start_response("200 OK", [("content-type", "text/plain")])
        return [b"page"]

    async def touch(_request):
        return json_response({"done": True})

    call = Caller(bench, wsgi=wsgi, routes=[Route("POST", "/api/v1/touch", touch)])
    foreign = ("http://evil.example", "http://127.0.0.1:9999", "null", "http://[")
    for path in ("/api/v1/query", "/api/v1/ingest", "/api/v1/touch", "/_dash-update-component"):
        for origin in foreign:
            status, _, body = call("POST", path, b"{}", origin=origin)
            assert (status, "error" in json.loads(body)) == (403, True), (path, origin)
        assert call("POST", path, b"{}", sec_fetch_site="cross-site")[0] == 403
        assert call("PUT", path, b"{}", origin=foreign[0])[0] == 403
    assert posted == []
    assert call("POST", "/page", b"{}", origin="http://127.0.0.1:8050")[0] == 200
    assert call("POST", "/page", b"{}")[0] == 200
    # Behind a proxy the host differs, but the browser itself says that it is the same site.
    proxied = {"origin": "https://gpus.example", "sec_fetch_site": "same-origin"}
    assert call("POST", "/page", b"{}", **proxied)[0] == 200
    assert call("GET", "/page", origin=foreign[0])[0] == 200


def test_injected_routes_checks_metrics_and_pages(bench):
    async def hello(request):
        return json_response({"path": request.path})

    def page(_environ, start_response):
        start_response("200 OK", [("Content-Type", "text/plain")])
        return [b"page"]

    call = Caller(
        bench,
        routes=[Route("GET", "/api/v1/hello", hello)],
        health=[lambda: "the moon is missing"],
        metrics=[lambda: ["idlewatt_extra 1"]],
    )
    assert json.loads(call("GET", "/api/v1/hello")[2]) == {"path": "/api/v1/hello"}
    assert "the moon is missing" in json.loads(call("GET", "/healthz")[2])["problems"]
    assert b"idlewatt_extra 1\n" in call("GET", "/metrics")[2]
    assert call("GET", "/nowhere")[0] == 404
    assert call("DELETE", "/healthz")[0] == 405
    assert call("HEAD", "/api/v1/queries")[2] == b""
    bench_page = build_app(
        bench.store, bench.ingestor, call.tokens, bench.settings, bench.clock, wsgi=page
    )
    call.app = bench_page
    assert call("GET", "/anything")[::2] == (200, b"page")


def test_metrics_count_what_happened(call, kit):
    call.ingest(kit.batch(1, [kit.sample(0), kit.sample(1)]))
    call.ingest(kit.batch(1, [kit.sample(0), kit.sample(1)]))
    call.ingest(b"junk")
    call.query(sql="SELECT 1")
    call.query(sql="DROP TABLE x")
    text = call("GET", "/metrics")[2].decode()
    for line in (
        "idlewatt_ingest_batches_total 2",
        "idlewatt_ingest_duplicates_total 1",
        "idlewatt_ingest_rows_total 2",
        'idlewatt_ingest_rejected_total{error="WireError"} 1',
        "idlewatt_queries_total 1",
        "idlewatt_queries_failed_total 1",
        "idlewatt_live_rows 2",
        "idlewatt_segments 0",
    ):
        assert f"{line}\n" in text


def test_list_of_queries_names_their_parameters(call):
    listed = msgspec.json.decode(call("GET", "/api/v1/queries")[2])["queries"]
    by_name = {query["name"]: query for query in listed}
    assert by_name["fleet_power_by_minute"]["params"][0]["default"] == "60"
    assert by_name["gpu_seconds"]["params"][0]["default"] is None
