"""The HTTP API as a plain ASGI app.

==========================  ======================================================
POST /api/v1/ingest         one batch of one node; 200 after commit
POST /api/v1/query          one SELECT, or one query, view or table by name; Arrow, CSV or JSON
GET  /api/v1/queries        the named queries, views and tables
GET  /api/v1/whoami         the node that the bearer token belongs to, and the server's time
GET  /healthz               200, or 503 and why
GET  /metrics               Prometheus text
==========================  ======================================================

Everything else goes to the injected routes, then to the WSGI app (the pages).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

import msgspec

from idlewatt.clock import Clock, iso_utc
from idlewatt.config import Settings
from idlewatt.errors import AuthError, IdlewattError, QueryError, UnavailableError
from idlewatt.units import MIB, US_PER_S
from idlewatt.wire import MAX_BODY_BYTES
from warehouse import answers, metrics
from warehouse.http import (
    AsgiApp,
    HttpError,
    Receive,
    Request,
    Response,
    Route,
    Scope,
    Send,
    check_host,
    check_same_site,
    error_response,
    find_route,
    is_loopback,
    json_response,
)
from warehouse.ingest import Ingestor, parse_given_up
from warehouse.queries import find_query, named_queries, run_query
from warehouse.relations import relation, relations
from warehouse.store import Store
from warehouse.tokens import Tokens

log = logging.getLogger(__name__)

HealthCheck = Callable[[], "str | None"]
MetricSource = Callable[[], Iterable[str]]

_MAX_QUERY_BODY: Final = 1 * MIB
_QUERY_THREADS: Final = 4
_MAX_WAITING_QUERIES: Final = 32
_BIG_BODY: Final = 64 << 10
_SAFE_METHODS: Final = frozenset({"GET", "HEAD", "OPTIONS"})


class QueryRequest(msgspec.Struct, forbid_unknown_fields=True):
    """Body of POST /api/v1/query."""

    sql: str | None = None
    name: str | None = None
    params: dict[str, str | int | float | bool | None] = {}
    format: str = "json"
    max_rows: int | None = None
    timeout_s: float | None = None


class Api:
    """The ASGI app; see `build_app`."""

    def __init__(
        self,
        store: Store,
        ingestor: Ingestor,
        tokens: Tokens,
        extras: tuple[Sequence[Route], Sequence[HealthCheck], Sequence[MetricSource]],
        wsgi: AsgiApp | None,
    ) -> None:
        self._store = store
        self._ingestor = ingestor
        self._tokens = tokens
        routes, self._health, self._metrics = extras
        self._wsgi = wsgi
        self._settings = store.settings
        self._any_host = not is_loopback(self._settings.text("server.bind"))
        self._hosts = frozenset(
            name.strip().lower() for name in self._settings.text("server.hosts").split(",")
        ) - {""}
        self._pool = ThreadPoolExecutor(_QUERY_THREADS, "query")
        self._queries_waiting = 0
        self._routes = (
            Route("POST", "/api/v1/ingest", self._ingest),
            Route("POST", "/api/v1/query", self._query),
            Route("GET", "/api/v1/queries", self._list_queries),
            Route("GET", "/api/v1/whoami", self._whoami),
            Route("GET", "/healthz", self._healthz),
            Route("GET", "/metrics", self._metrics_page),
            *routes,
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one ASGI connection."""
        if scope["type"] == "lifespan":
            await _lifespan(receive, send)
            return
        if scope["type"] != "http":
            await send({"type": "websocket.close", "code": 1000})
            return
        request = Request.from_scope(scope, receive)
        try:
            if not self._any_host:
                check_host(request, self._hosts)
            if request.method not in _SAFE_METHODS:
                check_same_site(request, self._hosts)
            route = find_route(self._routes, request.method, request.path)
            if route is None and self._wsgi is not None:
                await self._wsgi(scope, _coroutine(receive), send)
                return
            if route is None:
                raise HttpError(404, f"there is nothing at {request.path[:200]!r}")
            response = await route.handler(request)
        except IdlewattError as exc:
            response = error_response(exc)
        except Exception:
            log.exception("path=%r msg=%r", request.path, "request failed")
            response = json_response({"error": "the server failed; its log says why"}, 500)
        await response.send(send, head=request.method == "HEAD")

    async def _ingest(self, request: Request) -> Response:
        node_id = self._node(request)
        given_up = None
        if text := request.headers.get("idlewatt-given-up"):
            given_up = parse_given_up(text)
        if self._ingestor.disk_low:
            raise UnavailableError("the server's disk is nearly full", 507, 60)
        body = await request.body(MAX_BODY_BYTES)
        if len(body) > _BIG_BODY:
            future = await asyncio.to_thread(self._ingestor.submit, body, node_id, given_up)
        else:
            future = self._ingestor.submit(body, node_id, given_up)
        ack = await asyncio.wrap_future(future)
        return json_response(
            {"acked": ack.acked, "duplicate": ack.duplicate, "flush_s": ack.flush_s}
        )

    def _node(self, request: Request) -> str:
        token = request.bearer()
        node_id = self._tokens.node_of(token) if token else None
        if node_id is None:
            self._ingestor.metrics.rejected(AuthError.__name__)
            what = "is not known here" if token else "is missing"
            raise HttpError(401, f"the bearer token {what}; `idlewatt token create NODE` makes one")
        return node_id

    async def _query(self, request: Request) -> Response:
        body = await request.body(_MAX_QUERY_BODY)
        try:
            asked = msgspec.json.decode(body, type=QueryRequest)
        except (msgspec.MsgspecError, UnicodeDecodeError) as exc:
            raise QueryError(f"the body is not a query in JSON: {exc}") from exc
        if asked.format not in answers.FORMATS:
            raise QueryError(f"format is {asked.format!r}; allowed: {', '.join(answers.FORMATS)}")
        if self._queries_waiting >= _MAX_WAITING_QUERIES:
            raise UnavailableError("too many queries wait already", 429, 2)
        self._queries_waiting += 1
        try:
            loop = asyncio.get_running_loop()
            return await loop.run_in_executor(self._pool, self._run_query, asked)
        finally:
            self._queries_waiting -= 1

    def _run_query(self, asked: QueryRequest) -> Response:
        counts = self._ingestor.metrics
        try:
            sql, params = _statement(asked)
            _check_limits(asked)
            result = run_query(
                self._store, sql, params, timeout_s=asked.timeout_s, max_rows=asked.max_rows
            )
            response = answers.encode(result, asked.format)
        except QueryError:
            counts.add("queries_failed")
            raise
        counts.add("queries")
        counts.query_s.observe(result.elapsed_s)
        return response

    async def _list_queries(self, _request: Request) -> Response:
        return json_response(
            {
                "queries": [
                    {
                        "name": query.name,
                        "purpose": query.purpose,
                        "grain": query.grain,
                        "units": query.units,
                        "params": [
                            {
                                "name": param.name,
                                "type": param.type,
                                "default": param.default,
                                "help": param.help,
                            }
                            for param in query.params
                        ],
                    }
                    for query in named_queries()
                ],
                "relations": [
                    {
                        "name": item.name,
                        "kind": item.kind,
                        "purpose": item.purpose,
                        "grain": item.grain,
                        "units": item.units,
                    }
                    for item in relations()
                ],
            }
        )

    async def _whoami(self, request: Request) -> Response:
        return json_response({"node_id": self._node(request), "now_us": self._store.clock.now_us()})

    async def _healthz(self, _request: Request) -> Response:
        body = self.health()
        return json_response(body, 200 if body["status"] == "ok" else 503)

    def health(self) -> dict[str, Any]:
        """Return the state of the server: `status` ok or red, and why."""
        now_us, newest = self._store.clock.now_us(), self._ingestor.newest_us
        age_s = None if newest is None else round(max(now_us - newest, 0) / US_PER_S, 3)
        stale_s = self._settings.integer("server.stale_s")
        problems = []
        if age_s is None:
            problems.append("no sample has arrived yet")
        elif age_s > stale_s:
            problems.append(f"the newest sample is {age_s:.0f} s old; {stale_s} s are allowed")
        if self._ingestor.disk_low:
            problems.append("the disk is nearly full, so ingest is refused")
        problems += [
            f"a node's clock is ahead: {node} by {ahead_us / US_PER_S:.0f} s"
            for node, ahead_us in sorted(self._ingestor.clocks_ahead().items())
        ]
        problems += self._store.problems
        problems += [text for check in self._health if (text := check())]
        return {
            "status": "red" if problems else "ok",
            "problems": problems,
            "newest_sample_utc": None if newest is None else iso_utc(newest),
            "newest_sample_age_s": age_s,
            "now_utc": iso_utc(now_us),
        }

    async def _metrics_page(self, _request: Request) -> Response:
        lines = self._ingestor.metrics.lines() + await asyncio.to_thread(self._gauges)
        for source in self._metrics:
            lines += source()
        return Response(200, metrics.exposition(lines), metrics.CONTENT_TYPE)

    def _gauges(self) -> list[str]:
        newest, layout = self._ingestor.newest_us, self._store.layout
        age = None if newest is None else max(self._store.clock.now_us() - newest, 0) / US_PER_S
        segments = list(layout.segments.values())
        with self._store.snapshot() as cursor:
            rows = cursor.execute("SELECT coalesce(sum(rows), 0) FROM hour_change").fetchall()[0][0]
        sealed = sum(segment.rows for segment in segments)
        gauges = {
            "newest_sample_age_seconds": (age, "age of the newest sample"),
            "live_rows": (int(rows) - sealed, "samples not yet sealed"),
            "live_tables": (len(layout.live), "tables of hours not yet sealed"),
            "segments": (len(segments), "sealed files"),
            "segment_rows": (sealed, "samples in sealed files"),
            "segment_bytes": (sum(item.size_bytes for item in segments), "size of sealed files"),
            "superseded_rows": (self._ingestor.superseded, "samples that lost to another epoch"),
            "unknown_columns": (self._ingestor.unknown, "kinds of unknown columns seen"),
        }
        out: list[str] = []
        for name, (value, text) in gauges.items():
            out += metrics.sample(f"idlewatt_{name}", text, "gauge", value)
        return out


def build_app(  # noqa: PLR0913 - this is where everything meets
    store: Store,
    ingestor: Ingestor,
    tokens: Tokens,
    settings: Settings,
    clock: Clock,
    *,
    routes: Sequence[Route] = (),
    health: Sequence[HealthCheck] = (),
    metrics: Sequence[MetricSource] = (),
    wsgi: Any = None,
) -> Api:
    """Return the ASGI app.

    Args:
        store: the open warehouse; its settings and clock are used.
        ingestor: takes the batches.
        tokens: who may write which node's rows.
        settings: resolved settings (the store's own).
        clock: time (the store's own).
        routes: further routes, each an exact path.
        health: checks that return None, or one sentence that turns the health red.
        metrics: functions that return further lines for /metrics.
        wsgi: WSGI app that answers every other path, such as a Flask server.
    """
    fallback: AsgiApp | None = None
    if wsgi is not None:
        from a2wsgi import WSGIMiddleware

        fallback = WSGIMiddleware(wsgi, workers=8)  # type: ignore[assignment]
    if settings is not store.settings or clock is not store.clock:
        log.info("msg=%r", "the app uses the settings and the clock of its store")
    return Api(store, ingestor, tokens, (routes, health, metrics), fallback)


def _statement(asked: QueryRequest) -> tuple[str, dict[str, Any]]:
    if (asked.sql is None) == (asked.name is None):
        raise QueryError("give either sql or name")
    if asked.name is not None:
        query = find_query(asked.name)
        if query is not None:
            return query.sql, query.bind(asked.params)
        found = relation(asked.name)
        if asked.params:
            raise QueryError(f"{found.kind} {found.name} takes no parameters")
        return found.sql, {}
    return asked.sql or "", dict(asked.params)


def _check_limits(asked: QueryRequest) -> None:
    if asked.max_rows is not None and asked.max_rows < 1:
        raise QueryError("max_rows is at least 1")
    if asked.timeout_s is not None and not 0 < asked.timeout_s < 1e6:
        raise QueryError("timeout_s is a positive number")


def _coroutine(receive: Receive) -> Receive:
    """Return `receive` as a coroutine function: granian's gives another kind of awaitable."""

    async def pull() -> Any:
        return await receive()

    return pull


async def _lifespan(receive: Receive, send: Send) -> None:
    while True:
        message = await receive()
        await send({"type": f"{message['type']}.complete"})
        if message["type"] == "lifespan.shutdown":
            return
