"""What a statement from outside may be: one SELECT, harmless by its syntax tree, and of a size.

DuckDB's own parser decides what it is. Binding and planning cannot be interrupted, so whatever
makes them explode is refused here as far as the tree shows it (long chains of names, deep nesting,
hundreds of joined tables, generators of huge values); `warehouse.preflight` covers the rest.
"""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any, Final

import duckdb

from idlewatt.errors import QueryError
from warehouse.queries import sql_root

DEFAULT_MAX_SQL_KB: Final = 64
MAX_DEPTH: Final = 400
MAX_NODES: Final = 40_000
MAX_NAME_PARTS: Final = 12
MAX_RELATIONS: Final = 100
MAX_LIST_ITEMS: Final = 1_000_000
MAX_TEXT_CHARS: Final = 1_000_000

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
        "json_serialize_sql",
        "json_serialize_plan",
        "current_setting",
        "query",
        "query_table",
        "read_text",
        "read_blob",
        "sleep",
        "sleep_ms",
        "pg_sleep",
        "pg_get_viewdef",
        # Quadratic in one value, where no interrupt is heard.
        "levenshtein",
        "editdist3",
        "damerau_levenshtein",
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


def check_statement(sql: str, max_kb: int = DEFAULT_MAX_SQL_KB) -> None:
    """Let through exactly one harmless SELECT.

    Raises:
        QueryError: anything else; the message says why.
    """
    if len(sql) > max_kb * 1000 or len(sql.encode("utf-8", "replace")) > max_kb * 1000:
        raise QueryError(f"the statement is longer than {max_kb} kB (setting query.max_sql_kb)")
    try:
        tree = _parse(sql)
    except RecursionError:
        raise QueryError("the statement is nested too deeply; split it by WITH") from None
    if tree.get("error"):
        raise QueryError(f"only a plain SELECT is answered here: {tree.get('error_message')}")
    budget = _Budget()
    streamed: set[int] = set()
    for node, depth in _nodes(tree):
        budget.count(node, depth)
        _check_node(node)
        if node.get("type") == "TABLE_FUNCTION":
            streamed.add(id(node.get("function")))
        elif node.get("class") == "FUNCTION" and id(node) not in streamed:
            _check_generator(node, budget)


def _parse(sql: str) -> Any:
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
        try:
            text = parser.execute("SELECT json_serialize_sql($1)", [sql]).fetchall()[0][0]
        except (duckdb.Error, ValueError, UnicodeError) as exc:
            raise QueryError(one_sentence(exc)) from exc
    return json.loads(text)


class _Budget:
    """Counts what makes a plan explode, over one statement."""

    def __init__(self) -> None:
        self.nodes = self.relations = 0
        self.text_factor = 1

    def count(self, node: Mapping[str, Any], depth: int) -> None:
        self.nodes += 1
        if depth > MAX_DEPTH:
            raise QueryError("the statement is nested too deeply; split it by WITH")
        if self.nodes > MAX_NODES:
            raise QueryError("the statement has too many parts; ask in several statements")
        if len(node.get("column_names") or ()) > MAX_NAME_PARTS:
            raise QueryError(f"a name has more than {MAX_NAME_PARTS} parts joined by dots")
        if node.get("type") in ("BASE_TABLE", "TABLE_FUNCTION", "SUBQUERY"):
            self.relations += 1
            if self.relations > MAX_RELATIONS:
                raise QueryError(f"the statement names more than {MAX_RELATIONS} tables")

    def grow(self, factor: int) -> None:
        """Take a repetition; repetitions of repetitions multiply."""
        self.text_factor *= max(factor, 1)
        if self.text_factor > MAX_TEXT_CHARS:
            raise QueryError(
                f"the statement would make texts of more than {MAX_TEXT_CHARS} characters"
            )


# Functions that make one huge value: which argument says how large.
_TEXT_SIZES: Final = {"repeat": 1, "lpad": 1, "rpad": 1}
_LIST_SIZES: Final = {"list_resize": 1, "array_resize": 1}
_LISTS: Final = frozenset({"range", "generate_series"})


def _check_generator(node: Mapping[str, Any], budget: _Budget) -> None:
    name = _function_name(node)
    arguments = [item.get("expression") for item in node.get("arguments") or ()]
    if name in _TEXT_SIZES or name in _LIST_SIZES:
        at = (_TEXT_SIZES | _LIST_SIZES)[name]
        size = _bound(arguments[at]) if len(arguments) > at else 0
        if size is None:
            raise QueryError(
                f"the size given to {name!r} must be a number, or least(..., number) around it"
            )
        if name in _LIST_SIZES and size > MAX_LIST_ITEMS:
            raise QueryError(f"{name!r} makes more than {MAX_LIST_ITEMS} items")
        text = arguments[0].get("literal", {}).get("text") if name == "repeat" else None
        budget.grow(size * max(len(text or ""), 1) if name in _TEXT_SIZES else 1)
    elif name in _LISTS:
        _check_list(name, arguments)
    elif name in ("format", "printf") and arguments:
        pattern = arguments[0].get("literal", {}).get("text")
        if pattern is None or re.search(r"[0-9]{4,}|\*", pattern):
            raise QueryError(f"the pattern of {name!r} must be a text without widths of 1000 on")


def _check_list(name: str, arguments: list[Any]) -> None:
    """Check a list made inside an expression: all of it is held at once, unlike FROM range()."""
    numbers = [_bound(item) for item in arguments]
    if None in numbers:
        if len(numbers) < 3:  # three may be times and an interval
            raise QueryError(
                f"the ends given to {name!r} must be numbers, or least(..., number) around them; "
                f"or use FROM {name}(...)"
            )
    elif numbers:
        first, last = (0, numbers[0]) if len(numbers) == 1 else numbers[:2]
        step = numbers[2] if len(numbers) > 2 else 1
        size = abs((last or 0) - (first or 0)) // max(abs(step or 1), 1)
        if size > MAX_LIST_ITEMS:
            raise QueryError(
                f"{name!r} makes a list of more than {MAX_LIST_ITEMS} items; use FROM {name}(...)"
            )


def _bound(node: Any) -> int | None:
    """Return the largest whole number that an expression can be, or None."""
    while isinstance(node, Mapping) and node.get("type") == "OPERATOR_CAST":
        node = node.get("child")
    if not isinstance(node, Mapping):
        return None
    literal = node.get("literal")
    if isinstance(literal, Mapping):
        try:
            return int(float(str(literal.get("text")).replace("_", "")))
        except (ValueError, OverflowError):
            return None
    name = _function_name(node)
    given = [_bound(item.get("expression")) for item in node.get("arguments") or ()]
    known = [value for value in given if value is not None]
    if name == "-" and len(given) == len(known) == 1:
        return -known[0]
    return min(known, default=None) if name == "least" else None


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


def _nodes(tree: Any) -> Iterator[tuple[Mapping[str, Any], int]]:
    """Yield every mapping of a syntax tree and its depth, without recursion."""
    stack: list[tuple[Any, int]] = [(tree, 0)]
    while stack:
        item, depth = stack.pop()
        if isinstance(item, Mapping):
            yield item, depth
            stack.extend((value, depth + 1) for value in item.values())
        elif isinstance(item, list):
            stack.extend((value, depth + 1) for value in item)


def one_sentence(exc: BaseException) -> str:
    """Return the first line of an error, without the echo of the statement."""
    text = str(exc).strip()
    head = re.split(r"\n+LINE |\n*Possible solutions:", text, maxsplit=1)[0]
    return " ".join(head.split())[:600] or type(exc).__name__
