"""Statements from outside: one SELECT, read-only, with limits on time and rows.

Three fences, each enough for what it covers: DuckDB's own parser (exactly one statement of type
SELECT, whose syntax tree holds no node that changes data and no function that reaches out), a
READ ONLY transaction on a cursor of its own, and the locked-down instance (no external access,
configuration locked). A timer interrupts what runs too long.
"""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, Final

import duckdb
import pyarrow as pa

from idlewatt.errors import QueryError
from idlewatt.units import MIB
from warehouse.queries import sql_root

if TYPE_CHECKING:
    from warehouse.store import Store

MAX_SQL_CHARS: Final = 200_000
MAX_ANSWER_BYTES: Final = 512 * MIB
_BATCH_ROWS: Final = 16_384

# Table functions that read nothing but their arguments or the catalogue.
ALLOWED_TABLE_FUNCTIONS: Final = frozenset(
    {
        "range",
        "generate_series",
        "unnest",
        "repeat",
        "repeat_row",
        "json_each",
        "json_tree",
        "summary",
        "duckdb_columns",
        "duckdb_constraints",
        "duckdb_functions",
        "duckdb_indexes",
        "duckdb_keywords",
        "duckdb_schemas",
        "duckdb_sequences",
        "duckdb_tables",
        "duckdb_types",
        "duckdb_optimizers",
        "pragma_table_info",
        "pragma_version",
        "histogram",
        "histogram_values",
    }
)
# Scalar functions that change something, run text as SQL, or look at the server's surroundings.
REFUSED_FUNCTIONS: Final = frozenset(
    {
        "nextval",
        "setseed",
        "getenv",
        "write_log",
        "json_execute_serialized_sql",
        "json_deserialize_sql",
        "current_setting",
        "query",
        "query_table",
        "read_text",
        "read_blob",
        "sleep",
        "sleep_ms",
    }
)
# Catalogue views that tell where the server keeps its files (also within the text of a view).
HIDDEN_VIEWS: Final = frozenset(
    {
        "duckdb_databases",
        "duckdb_views",
        "duckdb_logs",
        "pragma_database_list",
        "sqlite_master",
        "sqlite_schema",
        "pg_views",
        "pg_settings",
        "information_schema.views",
    }
)
_WRITE_NODE: Final = re.compile(r"(INSERT|UPDATE|DELETE|MERGE|COPY)\w*_NODE|.*_STATEMENT")

_parser_lock = threading.Lock()
_parser: list[duckdb.DuckDBPyConnection] = []


@cache
def own_macros() -> frozenset[str]:
    """Return the names of the macros of `sql/macros/`; those that give tables may be queried."""
    return frozenset(path.stem for path in (sql_root() / "macros").glob("*.sql"))


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
    check_statement(sql)
    started = time.monotonic()
    with store.snapshot() as cursor:
        expired = threading.Event()

        def stop() -> None:
            expired.set()
            cursor.interrupt()

        timer = threading.Timer(timeout_s, stop)
        timer.daemon = True
        timer.start()
        try:
            table, truncated = _fetch(cursor, sql, params, max_rows, expired)
        except (duckdb.Error, pa.ArrowException, ValueError) as exc:
            if expired.is_set():
                raise QueryError(
                    f"the query was stopped after {timeout_s:g} s; ask for less, or raise "
                    "query.timeout_s"
                ) from exc
            text = one_sentence(exc).replace(str(store.data_dir), "<data_dir>")
            raise QueryError(text) from exc
        finally:
            timer.cancel()
            timer.join()
    return QueryResult(table, truncated, time.monotonic() - started)


def _fetch(
    cursor: duckdb.DuckDBPyConnection,
    sql: str,
    params: Mapping[str, Any],
    max_rows: int,
    expired: threading.Event,
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
            if expired.is_set():
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


def check_statement(sql: str) -> None:
    """Let through exactly one harmless SELECT.

    Raises:
        QueryError: anything else; the message says why.
    """
    if len(sql) > MAX_SQL_CHARS:
        raise QueryError(f"the statement is longer than {MAX_SQL_CHARS} characters")
    with _parser_lock:
        if not _parser:
            _parser.append(duckdb.connect(":memory:", config={"threads": 1}))
        parser = _parser[0]
        try:
            statements = parser.extract_statements(sql)
        except (duckdb.Error, ValueError, UnicodeError) as exc:
            raise QueryError(one_sentence(exc)) from exc
        if len(statements) != 1:
            found = "none" if not statements else f"{len(statements)}"
            raise QueryError(f"one statement is expected, {found} arrived")
        kind = statements[0].type.name
        if kind != "SELECT":
            raise QueryError(f"only SELECT is answered here, not {kind.replace('_', ' ')}")
        text = parser.execute("SELECT json_serialize_sql($1)", [sql]).fetchall()[0][0]
    tree = json.loads(text)
    if tree.get("error"):
        raise QueryError(f"only a plain SELECT is answered here: {tree.get('error_message')}")
    for node in _nodes(tree):
        _check_node(node)


def _check_node(node: Mapping[str, Any]) -> None:
    kind = str(node.get("type", ""))
    if _WRITE_NODE.fullmatch(kind):
        verb = kind.partition("_")[0]
        raise QueryError(f"only SELECT is answered here, not {verb}, not even inside WITH")
    if kind == "TABLE_FUNCTION":
        name = _function_name(node.get("function"))
        if name not in ALLOWED_TABLE_FUNCTIONS and name not in own_macros():
            raise QueryError(f"table function {name!r} is not allowed in queries")
    elif kind == "BASE_TABLE":
        name = str(node.get("table_name") or node.get("table") or "")
        if re.search(r"[/\\.*:]", name):
            raise QueryError(f"files cannot be read by name ({name[:80]!r}); use the tables")
        schema = str(node.get("schema_name") or "")
        if {name.lower(), f"{schema}.{name}".lower()} & HIDDEN_VIEWS:
            raise QueryError(f"catalogue view {name!r} is not allowed in queries")
    elif node.get("class") == "FUNCTION" and _function_name(node) in REFUSED_FUNCTIONS:
        raise QueryError(f"function {_function_name(node)!r} is not allowed in queries")


def _function_name(node: Any) -> str:
    return str(node.get("function_name", "")).lower() if isinstance(node, Mapping) else ""


def _nodes(tree: Any) -> Iterator[Mapping[str, Any]]:
    """Yield every mapping of a syntax tree, without recursion (statements may nest deeply)."""
    stack = [tree]
    while stack:
        item = stack.pop()
        if isinstance(item, Mapping):
            yield item
            stack.extend(item.values())
        elif isinstance(item, list):
            stack.extend(item)


def one_sentence(exc: BaseException) -> str:
    """Return the first line of an error, without the echo of the statement."""
    text = str(exc).strip()
    head = text.split("\n\nLINE", 1)[0].split("\nLINE", 1)[0]
    return " ".join(head.split())[:600] or type(exc).__name__
