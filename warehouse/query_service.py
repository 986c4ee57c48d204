"""POST /api/v1/query: who waits, on which thread it runs, and how the answer goes out."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from idlewatt.errors import QueryError, UnavailableError
from idlewatt.units import MIB
from warehouse import answers
from warehouse.http import Request, Response, Send, common_headers
from warehouse.metrics import Metrics
from warehouse.queries import find_query, run_query
from warehouse.query_pool import QueryPool
from warehouse.relations import relation
from warehouse.store import Store
from warehouse.watchdog import WATCHDOG

log = logging.getLogger(__name__)

_MAX_BODY: Final = 1 * MIB
_THREADS: Final = 4
_SPARE_THREADS: Final = 4
_MAX_WAITING: Final = 32
_MAX_STREAMS: Final = 4
_GRACE_S: Final = 15.0
_PART_LIMIT_S: Final = 60.0
_STREAM_LIMIT_S: Final = 300.0
_SEND_LIMIT_S: Final = 15.0


class QueryRequest(msgspec.Struct, forbid_unknown_fields=True):
    """Body of POST /api/v1/query."""

    sql: str | None = None
    name: str | None = None
    params: dict[str, str | int | float | bool | None] = {}
    format: str = "json"
    max_rows: int | None = None
    timeout_s: float | None = None


@dataclass(frozen=True, slots=True)
class Streamed:
    """An answer of several parts, each made when the one before has gone out."""

    service: QueryService
    first: bytes
    rest: Iterator[bytes]
    content_type: str
    headers: Mapping[str, str]

    async def send(self, send: Send, *, head: bool = False) -> None:
        """Send it, in bounded time."""
        fields = common_headers(self.content_type) | dict(self.headers)
        encoded = [(name.encode(), value.encode("latin-1")) for name, value in fields.items()]
        started = {"type": "http.response.start", "status": 200, "headers": encoded}
        part: bytes | None = b"" if head else self.first
        self.service.streams += 1
        try:
            async with asyncio.timeout(_STREAM_LIMIT_S):
                await asyncio.wait_for(send(started), _SEND_LIMIT_S)
                while part is not None and not head:
                    body = {"type": "http.response.body", "body": part, "more_body": True}
                    await asyncio.wait_for(send(body), _SEND_LIMIT_S)
                    part = await self.service.encode(self.rest)
                await send({"type": "http.response.body", "body": b""})
        except TimeoutError:
            log.warning("msg=%r", "a client does not read its answer; it was left")
        finally:
            self.service.streams -= 1


class QueryService:
    """Runs statements for the API; one an app."""

    def __init__(self, store: Store, counts: Metrics) -> None:
        self._store = store
        self._counts = counts
        self._pool = QueryPool("query", _THREADS, _SPARE_THREADS)
        # One at a time: the other core belongs to ingest.
        self._encoders = QueryPool("encode", 1, 1)
        self._waiting = 0
        self.streams = 0

    async def answer(self, request: Request) -> Response | Streamed:
        """Return the answer to a request.

        Raises:
            QueryError: the statement is refused or failed.
            UnavailableError: too many ask at once.
        """
        body = await request.body(_MAX_BODY)
        try:
            asked = msgspec.json.decode(body, type=QueryRequest)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as exc:
            raise QueryError(f"the body is not a query in JSON: {exc}") from exc
        if asked.format not in answers.FORMATS:
            raise QueryError(f"format is {asked.format!r}; allowed: {', '.join(answers.FORMATS)}")
        if self._waiting >= _MAX_WAITING:
            raise UnavailableError("too many queries wait already", 429, 2)
        self._waiting += 1
        try:
            settings = self._store.settings
            limit_s = settings.number("query.timeout_s") + _GRACE_S
            limit_s += 5 * settings.number("query.plan_s")
            result = await self._pool.run(lambda: self._run(asked), limit_s)
            parts = answers.parts(result, asked.format)
            ready, size = [], 0
            while size < MIB:
                part = await self.encode(parts)
                if part is None:
                    break
                ready.append(part)
                size += len(part)
        finally:
            self._waiting -= 1
        whole, kind = b"".join(ready), answers.CONTENT_TYPES[asked.format]
        if size < MIB:
            return Response(200, whole, kind, answers.headers(result))
        if self.streams >= _MAX_STREAMS:
            raise UnavailableError("too many large answers are being sent already", 429, 5)
        return Streamed(self, whole, parts, kind, answers.headers(result))

    async def encode(self, parts: Iterator[bytes]) -> bytes | None:
        """Return the next part, or None after the last."""
        return await self._encoders.run(lambda: next(parts, None), _PART_LIMIT_S)

    def problem(self) -> str | None:
        """Return a sentence where queries no longer come back, else None."""
        return self._pool.problem() or self._encoders.problem()

    def close(self, wait_s: float) -> int:
        """Stop what runs, wait at most so long, and return how many statements still run."""
        WATCHDOG.stop_all("the server is ending")
        return self._pool.close(wait_s) + self._encoders.close(wait_s)

    def _run(self, asked: QueryRequest) -> Any:
        try:
            sql, params = _statement(asked)
            _check_limits(asked)
            result = run_query(
                self._store, sql, params, timeout_s=asked.timeout_s, max_rows=asked.max_rows
            )
        except QueryError:
            self._counts.add("queries_failed")
            raise
        self._counts.add("queries")
        self._counts.query_s.observe(result.elapsed_s)
        return result


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
