"""Query answers as Arrow stream, CSV or JSON; NULL stays distinct in each."""

from __future__ import annotations

import csv
import datetime as dt
import io
import math
from decimal import Decimal
from typing import Any, Final

import msgspec
import numpy as np
import pyarrow as pa

from warehouse.http import JSON, Response
from warehouse.sandbox import QueryResult

FORMATS: Final = ("arrow", "csv", "json")
ARROW_TYPE: Final = "application/vnd.apache.arrow.stream"
CSV_TYPE: Final = "text/csv; charset=utf-8"
_SLICE: Final = 10_000


def encode(result: QueryResult, form: str) -> Response:
    """Return the answer in one of `FORMATS`; counts travel in headers too."""
    headers = {
        "idlewatt-rows": str(result.table.num_rows),
        "idlewatt-truncated": "true" if result.truncated else "false",
        "idlewatt-elapsed-s": f"{result.elapsed_s:.3f}",
    }
    if form == "arrow":
        return Response(200, _arrow(result.table), ARROW_TYPE, headers)
    if form == "csv":
        return Response(200, _csv(result.table), CSV_TYPE, headers)
    return Response(200, _json(result), JSON, headers)


def plain(value: Any) -> Any:  # noqa: PLR0911 - one line a type
    """Return a value as JSON can hold it: times as ISO text in UTC, NaN as text, bytes as hex."""
    match value:
        case None | bool() | str():
            return value
        case int():
            return value if abs(value) < 1 << 53 else str(value)
        case float():
            return value if math.isfinite(value) else str(value)
        case Decimal():
            return int(value) if value == value.to_integral_value() else float(value)
        case dt.datetime():
            return iso(value)
        case dt.timedelta():
            return value.total_seconds()
        case bytes():
            return value.hex()
        case list() | tuple():
            return [plain(item) for item in value]
        case dict():
            return {str(key): plain(item) for key, item in value.items()}
        case _:
            return str(value)


def iso(value: dt.datetime) -> str:
    """Return `YYYY-MM-DDTHH:MM:SS[.ffffff]Z`; a naive time is UTC by contract."""
    aware = value.replace(tzinfo=dt.UTC) if value.tzinfo is None else value.astimezone(dt.UTC)
    return aware.replace(tzinfo=None).isoformat() + "Z"


def _arrow(table: pa.Table) -> bytes:
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue()


def _rows(table: pa.Table) -> Any:
    for begin in range(0, table.num_rows, _SLICE):
        part = table.slice(begin, _SLICE)
        columns = [_values(column) for column in part.columns]
        yield from zip(*columns, strict=True)


def _values(column: Any) -> list[Any]:
    if pa.types.is_timestamp(column.type) and column.type.unit == "ns":
        column = column.cast(pa.timestamp("us", column.type.tz), safe=False)
    if pa.types.is_float32(column.type):
        # The shortest text that is the same 32-bit number: 0.213, not 0.21299999952316284.
        return [
            None if value is None else plain(float(str(np.float32(value))))
            for value in column.to_pylist()
        ]
    return [plain(value) for value in column.to_pylist()]


def _csv(table: pa.Table) -> bytes:
    sink = io.StringIO()
    writer = csv.writer(sink, lineterminator="\n")
    writer.writerow(table.column_names)
    for row in _rows(table):
        writer.writerow(["" if value is None else _cell(value) for value in row])
    return sink.getvalue().encode("utf-8", "replace")


def _cell(value: Any) -> Any:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (list, dict)):
        return msgspec.json.encode(value).decode()
    return value


def _json(result: QueryResult) -> bytes:
    table = result.table
    return msgspec.json.encode(
        {
            "columns": table.column_names,
            "types": [str(field.type) for field in table.schema],
            "rows": list(_rows(table)),
            "row_count": table.num_rows,
            "truncated": result.truncated,
            "elapsed_s": round(result.elapsed_s, 3),
        }
    )
