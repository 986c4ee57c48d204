"""Wire columns to Arrow: many small batches become one table by joining buffers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from idlewatt.columns import Column, Kind
from idlewatt.wire import ColumnData, Table

IntArray = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]

ARROW_TYPE: Final[dict[Kind, Any]] = {
    Kind.TS: pa.timestamp("us"),
    Kind.I64: pa.int64(),
    Kind.I32: pa.int32(),
    Kind.I16: pa.int16(),
    Kind.F32: pa.float32(),
    Kind.F64: pa.float64(),
    Kind.BOOL: pa.bool_(),
    Kind.STR: pa.string(),
}
_DTYPE: Final[dict[Kind, str]] = {
    Kind.TS: "<i8",
    Kind.I64: "<i8",
    Kind.I32: "<i4",
    Kind.I16: "<i2",
    Kind.F32: "<f4",
    Kind.F64: "<f8",
    Kind.STR: "<u2",
}
_FLOATS: Final = frozenset({Kind.F32, Kind.F64})


def gather(spec: Sequence[Column], tables: Sequence[Table]) -> pa.Table:
    """Return the rows of several wire tables as one Arrow table; NaN and infinity are NULL.

    Columns that are NULL in all of them are left out.
    """
    arrays: list[Any] = []
    names: list[str] = []
    for column in spec:
        array = _gather_column(column, tables)
        if array is not None:
            arrays.append(array)
            names.append(column.name)
    return pa.table(arrays, names=names)


def values_i64(name: str, tables: Sequence[Table]) -> IntArray:
    """Return a column that every table has, without NULLs, as int64."""
    parts = [np.frombuffer(table.columns[name].data, "<i8") for table in tables if table.rows]
    return np.concatenate(parts) if parts else np.empty(0, np.int64)


def codes_of(name: str, tables: Sequence[Table], known: dict[str, int]) -> IntArray:
    """Return a text column without NULLs as numbers of `known`, which grows by new words."""
    parts = []
    for table in tables:
        if table.rows:
            data = table.columns[name]
            numbers = [known.setdefault(word, len(known)) for word in data.words]
            parts.append(np.array(numbers, np.int64)[np.frombuffer(data.data, "<u2")])
    return np.concatenate(parts) if parts else np.empty(0, np.int64)


def used_words(data: ColumnData) -> set[str]:
    """Return the words of a text column that some row uses."""
    used = np.unique(np.frombuffer(data.data, "<u2"))
    return {data.words[code] for code in used}


def _gather_column(column: Column, tables: Sequence[Table]) -> Any:
    found = [table.columns.get(column.name) for table in tables]
    if all(data is None for data in found):
        return None
    rows = [table.rows for table in tables]
    valid = _validity(found, rows)
    if column.kind is Kind.BOOL:
        flags = np.concatenate(
            [
                np.zeros(count, bool) if data is None else bits(data.data, count)
                for data, count in zip(found, rows, strict=True)
            ]
        )
        return pa.array(flags, mask=None if valid is None else ~valid)
    if column.kind is Kind.STR:
        return _text(found, rows, valid)
    width = np.dtype(_DTYPE[column.kind]).itemsize
    joined = b"".join(
        bytes(width * count) if data is None else data.data
        for data, count in zip(found, rows, strict=True)
    )
    if column.kind in _FLOATS:
        finite = np.isfinite(np.frombuffer(joined, _DTYPE[column.kind]))
        if not finite.all():
            valid = finite if valid is None else valid & finite
    return pa.Array.from_buffers(
        ARROW_TYPE[column.kind], sum(rows), [_bitmap(valid), pa.py_buffer(joined)]
    )


def _text(found: Sequence[ColumnData | None], rows: Sequence[int], valid: BoolArray | None) -> Any:
    known: dict[str, int] = {}
    parts = []
    for data, count in zip(found, rows, strict=True):
        if data is None or not data.words:
            parts.append(np.zeros(count, np.int32))
            continue
        numbers = [known.setdefault(word, len(known)) for word in data.words]
        parts.append(np.array(numbers, np.int32)[np.frombuffer(data.data, "<u2")])
    codes = pa.array(np.concatenate(parts), mask=None if valid is None else ~valid)
    return pa.DictionaryArray.from_arrays(codes, pa.array(list(known), pa.string()))


def _validity(found: Sequence[ColumnData | None], rows: Sequence[int]) -> BoolArray | None:
    if all(data is not None and not len(data.valid) for data in found):
        return None
    return np.concatenate(
        [
            np.zeros(count, bool)
            if data is None
            else bits(data.valid, count)
            if len(data.valid)
            else np.ones(count, bool)
            for data, count in zip(found, rows, strict=True)
        ]
    )


def bits(data: bytes, rows: int) -> BoolArray:
    """Return the first `rows` bits of a bitmap, least significant first."""
    return np.unpackbits(np.frombuffer(data, np.uint8), count=rows, bitorder="little").view(
        np.bool_
    )


def _bitmap(valid: BoolArray | None) -> Any:
    return None if valid is None else pa.py_buffer(np.packbits(valid, bitorder="little").tobytes())
