"""Statements from outside: one SELECT, read-only, with limits on time and rows.

Fences, each enough for what it covers: the statement itself (`warehouse.statement`), a plan made in
a child process that can be killed (`warehouse.preflight`), a READ ONLY transaction on a cursor of
its own, the locked-down instance (no external access, configuration locked), and a thread that
interrupts what takes too long or too much memory (`warehouse.watchdog`).
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import duckdb
import pyarrow as pa

from idlewatt.errors import QueryError
from idlewatt.units import MIB
from warehouse.preflight import PREFLIGHT
from warehouse.statement import check_statement, one_sentence
from warehouse.watchdog import WATCHDOG, Watched

if TYPE_CHECKING:
    from warehouse.store import Store

MAX_ANSWER_BYTES: Final = 256 * MIB
_BATCH_ROWS: Final = 16_384


@dataclass(frozen=True, slots=True)
class QueryResult:
    """An answer.

    Attributes:
        table: the rows.
        truncated: True where more rows existed than the limit lets through.
        elapsed_s: how long it ran.
    """

    table: pa.Table
    truncated: bool
    elapsed_s: float


def run_sandboxed(
    store: Store,
    sql: str,
    params: Mapping[str, Any],
    *,
    timeout_s: float | None = None,
    max_rows: int | None = None,
) -> QueryResult:
    """Return the answer to one SELECT; see `warehouse.queries.run_query`."""
    longest, most = (
        store.settings.number("query.timeout_s"),
        store.settings.integer("query.max_rows"),
    )
    timeout_s = longest if timeout_s is None else min(timeout_s, longest)
    max_rows = most if max_rows is None else min(max_rows, most)
    settings = store.settings
    check_statement(sql, settings.integer("query.max_sql_kb"))
    PREFLIGHT.check(sql, params, settings.number("query.plan_s"))
    started = time.monotonic()
    limit_bytes = settings.integer("query.memory_mib") * MIB
    ceiling = settings.integer("server.memory_mib") * MIB + 2 * limit_bytes
    with (
        store.snapshot() as cursor,
        contextlib.closing(store.cursor()) as meter,
        WATCHDOG.watch(
            cursor, timeout_s, limit_bytes, lambda: _accounted(meter), ceiling
        ) as watched,
    ):
        try:
            table, truncated = _fetch(cursor, sql, params, max_rows, watched)
        except (duckdb.Error, pa.ArrowException, ValueError, MemoryError) as exc:
            text = one_sentence(exc).replace(f"{store.data_dir}/", "")
            raise QueryError(watched.reason or text) from exc
    return QueryResult(table, truncated, time.monotonic() - started)


def _accounted(meter: duckdb.DuckDBPyConnection) -> int:
    """Return the bytes that the database counts as its own."""
    try:
        found = meter.execute("SELECT sum(memory_usage_bytes) FROM duckdb_memory()").fetchall()
    except duckdb.Error:
        return 0
    return int(found[0][0] or 0)


def _fetch(
    cursor: duckdb.DuckDBPyConnection,
    sql: str,
    params: Mapping[str, Any],
    max_rows: int,
    watched: Watched,
) -> tuple[pa.Table, bool]:
    relation = cursor.sql(sql, params=dict(params)) if params else cursor.sql(sql)
    if relation is None:
        raise QueryError("the statement gives no rows; only a SELECT is answered")
    reader = relation.to_arrow_reader(_BATCH_ROWS)
    batches: list[Any] = []
    rows = size = 0
    truncated = False
    try:
        for full in reader:
            if watched.stopped:
                raise ValueError("stopped")
            truncated = full.num_rows > max_rows - rows
            batch = full.slice(0, max_rows - rows)
            batches.append(batch)
            rows += batch.num_rows
            size += batch.nbytes
            if size > MAX_ANSWER_BYTES:
                raise QueryError(f"the answer is over {MAX_ANSWER_BYTES // MIB} MiB; ask for less")
            if truncated:
                break
        return pa.Table.from_batches(batches, schema=reader.schema), truncated
    finally:
        reader.close()
