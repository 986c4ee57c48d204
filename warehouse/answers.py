"""Query answers as Arrow stream, CSV or JSON; NULL stays distinct in each.

Rows become text inside a small in-memory DuckDB of this thread, so that Python's one lock is free
for ingest meanwhile, and in parts of a few thousand rows, so that nothing is held twice.
"""

from __future__ import annotations

import io
import threading
from collections.abc import Iterator
from typing import Any, Final

import duckdb
import msgspec
import pyarrow as pa

from warehouse.http import JSON
from warehouse.sandbox import QueryResult

FORMATS: Final = ("arrow", "csv", "json")
ARROW_TYPE: Final = "application/vnd.apache.arrow.stream"
CSV_TYPE: Final = "text/csv; charset=utf-8"
CONTENT_TYPES: Final = {"arrow": ARROW_TYPE, "csv": CSV_TYPE, "json": JSON}
_PART_CELLS: Final = 400_000
_PART_BYTES: Final = 8 << 20
_EXACT: Final = 2**53 - 1
_FIRST_DAY, _LAST_DAY = "DATE '0001-01-01'", "DATE '9999-12-31'"

_own = threading.local()


def headers(result: QueryResult) -> dict[str, str]:
    """Return the counts of an answer as HTTP headers."""
    return {
        "idlewatt-rows": str(result.table.num_rows),
        "idlewatt-truncated": "true" if result.truncated else "false",
        "idlewatt-elapsed-s": f"{result.elapsed_s:.3f}",
    }


def parts(result: QueryResult, form: str) -> Iterator[bytes]:
    """Yield the answer in one of `FORMATS`, a part at a time."""
    if form == "arrow":
        return _arrow(result.table)
    if form == "csv":
        return _csv(result.table)
    return _json(result)


def _slices(table: pa.Table) -> Iterator[pa.Table]:
    rows = table.num_rows
    per_row = max(table.nbytes // max(rows, 1), 1)
    step = max(min(_PART_CELLS // max(table.num_columns, 1), _PART_BYTES // per_row), 1)
    for begin in range(0, rows, step):
        yield table.slice(begin, step)


def _arrow(table: pa.Table) -> Iterator[bytes]:
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        for part in _slices(table):
            writer.write_table(part)
            yield _drained(sink)
    yield _drained(sink)


def _drained(sink: io.BytesIO) -> bytes:
    value = sink.getvalue()
    sink.seek(0)
    sink.truncate()
    return value


def _csv(table: pa.Table) -> Iterator[bytes]:
    yield ",".join(_csv_name(name) for name in table.column_names).encode("utf-8", "replace")
    for part in _slices(table):
        yield b"\n" + _rows(part, _csv_row, "\n")
    yield b"\n"


def _json(result: QueryResult) -> Iterator[bytes]:
    table = result.table
    encode = msgspec.json.encode
    yield b'{"columns":%b,"types":%b,"rows":[' % (
        encode(table.column_names),
        encode([str(field.type) for field in table.schema]),
    )
    before = b""
    for part in _slices(table):
        yield before + _rows(part, _json_row, ",")
        before = b","
    yield b'],"row_count":%d,"truncated":%b,"elapsed_s":%b}' % (
        table.num_rows,
        encode(result.truncated),
        encode(round(result.elapsed_s, 3)),
    )


def _rows(table: pa.Table, row: Any, between: str) -> bytes:
    """Return the rows as text."""
    con = getattr(_own, "con", None)
    if con is None:
        con = _own.con = duckdb.connect(":memory:", config={"threads": 1})
    columns = [_plain_times(column) for column in table.columns]
    named = pa.table(columns, names=[f"c{at}" for at in range(len(columns))])
    con.register("answer", named)
    try:
        types = con.sql("FROM answer").types
        text = row([(f"c{at}", kind) for at, kind in enumerate(types)])
        # The expressions name columns c0, c1, ... only; nothing of an answer is part of them.
        made = con.sql(f"SELECT {text} AS line FROM answer").to_arrow_table()  # noqa: S608
        con.register("lines", made)
        whole = con.sql("SELECT string_agg(line, $1) FROM lines", params=[between]).to_arrow_table()
        return bytes(whole.column(0).chunk(0).cast(pa.large_binary())[0].as_buffer())
    finally:
        for name in ("answer", "lines"):
            con.unregister(name)


def _plain_times(column: Any) -> Any:
    """Return a column of times with a zone as times in UTC without one."""
    if pa.types.is_timestamp(column.type) and column.type.tz is not None:
        return column.cast(pa.timestamp(column.type.unit), safe=False)
    return column


def _json_row(columns: list[tuple[str, Any]]) -> str:
    cells = ", ',', ".join(json_text(name, kind) for name, kind in columns)
    return f"concat('[', {cells}, ']')"


def _csv_row(columns: list[tuple[str, Any]]) -> str:
    return "concat(" + ", ',', ".join(_csv_text(name, kind) for name, kind in columns) + ")"


def json_text(name: str, kind: Any, depth: int = 0) -> str:
    """Return the SQL expression that gives a value of this type as JSON text, never NULL."""
    of = str(kind.id)
    if of in ("list", "array"):
        item = f"e{depth}"
        inner = json_text(item, dict(kind.children)["child"], depth + 1)
        listed = f"list_transform({name}, lambda {item}: {inner})"
        text = f"concat('[', array_to_string({listed}, ','), ']')"
    elif of == "map":
        item, children = f"e{depth}", dict(kind.children)
        key = _scalar_text(f"{item}.key", str(children["key"].id))
        inner = json_text(f"{item}.value", children["value"], depth + 1)
        listed = (
            f"list_transform(map_entries({name}), "
            f"lambda {item}: concat(to_json(({key})::VARCHAR)::VARCHAR, ':', {inner}))"
        )
        text = f"concat('{{', array_to_string({listed}, ','), '}}')"
    elif of == "struct" and kind.children:
        fields = [
            f"'{_sql(msgspec.json.encode(field).decode())}:', "
            + json_text(f"struct_extract({name}, '{_sql(field)}')", child, depth)
            for field, child in kind.children
        ]
        text = "concat('{', " + ", ',', ".join(fields) + ", '}')"
    else:
        text = _json_scalar(name, of)
    return f"CASE WHEN {name} IS NULL THEN 'null' ELSE {text} END"


def _json_scalar(name: str, of: str) -> str:
    plain = _scalar_text(name, of)
    quoted = f"to_json({plain})::VARCHAR"
    match of:
        case "boolean" | "tinyint" | "smallint" | "integer" | "utinyint" | "usmallint" | "uinteger":
            return plain
        case "bigint" | "ubigint" | "hugeint" | "uhugeint":
            return f"CASE WHEN {name} BETWEEN -{_EXACT} AND {_EXACT} THEN {plain} ELSE {quoted} END"
        case "decimal":
            whole = f"{name} BETWEEN -{_EXACT} AND {_EXACT}"
            return f"CASE WHEN {whole} THEN {plain} ELSE {quoted} END"
        case "float" | "double":
            return f"CASE WHEN isfinite({name}) THEN {plain} ELSE {quoted} END"
        case "date" | "timestamp" | "timestamp_s" | "timestamp_ms" | "timestamp_ns" | "time":
            return f"concat('\"', {plain}, '\"')"
        case _:
            return quoted


def _scalar_text(name: str, of: str) -> str:
    match of:
        case "timestamp" | "timestamp_s" | "timestamp_ms" | "timestamp_ns":
            at = f"{name}::TIMESTAMP"
            iso = (
                f"CASE WHEN microsecond({at}) % 1000000 = 0 "
                f"THEN strftime({at}, '%Y-%m-%dT%H:%M:%SZ') "
                f"ELSE strftime({at}, '%Y-%m-%dT%H:%M:%S.%fZ') END"
            )
            usual = f"isfinite({at}) AND {at}::DATE BETWEEN {_FIRST_DAY} AND {_LAST_DAY}"
            return f"CASE WHEN {usual} THEN {iso} ELSE {name}::VARCHAR END"
        case "blob":
            return f"lower(hex({name}))"
        case _:
            return f"{name}::VARCHAR"


def _csv_text(name: str, kind: Any) -> str:
    of = str(kind.id)
    if of in ("list", "array", "map", "struct"):
        text = json_text(name, kind)
    else:
        text = _scalar_text(name, of)
    if of in ("varchar", "list", "array", "map", "struct", "enum", "union", "interval"):
        quoted = f"concat('\"', replace({text}, '\"', '\"\"'), '\"')"
        special = f"{text} = '' OR regexp_matches({text}, '[\",\\n\\r]')"
        text = f"CASE WHEN {special} THEN {quoted} ELSE {text} END"
    return f"CASE WHEN {name} IS NULL THEN '' ELSE {text} END"


def _csv_name(name: str) -> str:
    if not name or any(mark in name for mark in '",\n\r'):
        return '"' + name.replace('"', '""') + '"'
    return name


def _sql(text: str) -> str:
    return text.replace("'", "''")
