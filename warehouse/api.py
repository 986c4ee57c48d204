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
from typing import Any, Final

from idlewatt.clock import Clock, iso_utc
from idlewatt.config import Settings
from idlewatt.errors import AuthError, IdlewattError, UnavailableError
from idlewatt.units import US_PER_S
from idlewatt.wire import MAX_BODY_BYTES
from warehouse import metrics
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
from warehouse.ingest import Ingestor, is_big, parse_given_up
from warehouse.queries import named_queries
from warehouse.query_service import QueryService, Streamed
from warehouse.relations import relations
from warehouse.store import Store
from warehouse.tokens import Tokens

log = logging.getLogger(__name__)

HealthCheck = Callable[[], "str | None"]
MetricSource = Callable[[], Iterable[str]]

_SAFE_METHODS: Final = frozenset({"GET", "HEAD", "OPTIONS"})


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
        self._queries = QueryService(store, ingestor.metrics)
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
        if is_big(body):
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

    async def _query(self, request: Request) -> Response | Streamed:
        return await self._queries.answer(request)

    def close(self, wait_s: float = 2.0) -> int:
        """Stop the queries that run; return how many did not end within `wait_s`."""
        return self._queries.close(wait_s)

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
        problems += [text for text in (self._queries.problem(),) if text]
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
