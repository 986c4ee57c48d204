"""The batch codec between agent and server.

A body is ``zstd(msgpack([magic, header, tables]))``. A table is columns; a column is a raw
little-endian buffer plus a validity bitmap (least significant bit first, Arrow's layout), so that
the server wraps it without a copy and the node needs neither Arrow nor numpy. A column that is
NULL throughout is left out. Layout and sizes were chosen by measurement: ``docs/decisions.md``.
"""

from __future__ import annotations

import array
import sys
from collections.abc import Iterable, Sequence
from typing import Any, Final

import msgspec
import zstandard

from idlewatt.columns import TABLES, Column, Kind
from idlewatt.errors import WireError
from idlewatt.model import BatchKey, Lane

MAGIC: Final = "iwb"
WIRE_VERSION: Final = 1
MAX_BODY_BYTES: Final = 16 << 20
MAX_RAW_BYTES: Final = 128 << 20
MAX_ROWS: Final = 1_000_000
CONTENT_TYPE: Final = "application/vnd.idlewatt.batch"
# In every answer of a server: what lacks it was said by something on the way.
SERVER_HEADER: Final = "Idlewatt-Server"

_TYPECODE: Final = {
    Kind.TS: "q",
    Kind.I64: "q",
    Kind.I32: "i",
    Kind.I16: "h",
    Kind.F32: "f",
    Kind.F64: "d",
    Kind.STR: "H",
}
_MAX_CODE: Final = 65_535

Buffer = bytes


class ColumnData(msgspec.Struct, array_like=True, frozen=True):
    """One column on the wire.

    Attributes:
        kind: tag of `idlewatt.columns.Kind`.
        data: little-endian values; for BOOL a bitmap, for STR uint16 codes.
        valid: bitmap of non-NULL rows; empty where every row has a value.
        words: dictionary of a STR column.
    """

    kind: str
    data: Buffer
    valid: Buffer = b""
    words: list[str] = []


class Table(msgspec.Struct, array_like=True, frozen=True):
    """Named columns of equal length."""

    rows: int
    columns: dict[str, ColumnData]


class Header(msgspec.Struct, array_like=True, frozen=True):
    """Who sent the batch and where it stands in its lane."""

    version: int
    node_id: str
    epoch: int
    lane: str
    seq: int
    agent_version: str = ""
    created_ms: int = 0

    @property
    def key(self) -> BatchKey:
        """Return the identity of the batch."""
        return BatchKey(self.node_id, self.epoch, Lane(self.lane), self.seq)


class Batch(msgspec.Struct, frozen=True):
    """A decoded batch."""

    header: Header
    tables: dict[str, Table]


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(tuple[str, Header, dict[str, Table]])


def encode_batch(header: Header, tables: dict[str, Table], level: int = 3) -> bytes:
    """Return the body of a batch, ready to be spooled and sent."""
    raw = _encoder.encode((MAGIC, header, tables))
    return zstandard.ZstdCompressor(level=level).compress(raw)


def claimed_bytes(body: bytes) -> int:
    """Return how large a body says it is unpacked; nothing is unpacked.

    Raises:
        WireError: it is too large, or does not say.
    """
    if len(body) > MAX_BODY_BYTES:
        raise WireError(f"body of {len(body)} bytes is over the limit of {MAX_BODY_BYTES}")
    try:
        size = int(zstandard.frame_content_size(body))
    except zstandard.ZstdError as exc:
        raise WireError(f"batch cannot be read: {exc}") from exc
    if size < 0 or size > MAX_RAW_BYTES:
        raise WireError(f"batch claims {size} bytes unpacked; at most {MAX_RAW_BYTES}")
    return size


def decode_batch(body: bytes) -> Batch:
    """Return the batch in `body`.

    Raises:
        WireError: the body is too large, damaged, of an unknown version, or inconsistent.
    """
    claimed_bytes(body)
    try:
        raw = zstandard.ZstdDecompressor().decompress(body, max_output_size=MAX_RAW_BYTES)
        magic, header, tables = _decoder.decode(raw)
    except (zstandard.ZstdError, msgspec.MsgspecError, UnicodeDecodeError) as exc:
        raise WireError(f"batch cannot be read: {exc}") from exc
    if magic != MAGIC:
        raise WireError(f"batch starts with {magic!r}, not {MAGIC!r}")
    _check_header(header)
    for name, table in tables.items():
        _check_table(name, table)
    return Batch(header, tables)


def _check_header(header: Header) -> None:
    if header.version < 1 or header.version > WIRE_VERSION:
        raise WireError(f"wire version {header.version} is unknown here (up to {WIRE_VERSION})")
    if header.lane not in (Lane.LIVE, Lane.BACKFILL):
        raise WireError(f"lane {header.lane!r} is neither live nor backfill")
    if header.seq < 1 or header.epoch < 0 or not header.node_id:
        raise WireError("header needs a node_id, an epoch >= 0 and a seq >= 1")


def _check_table(name: str, table: Table) -> None:
    rows = table.rows
    if not 0 <= rows <= MAX_ROWS:
        raise WireError(f"table {name} claims {rows} rows; at most {MAX_ROWS}")
    bitmap = (rows + 7) // 8
    for column, data in table.columns.items():
        where = f"{name}.{column}"
        if data.kind not in Kind.__members__.values():
            raise WireError(f"{where}: unknown kind {data.kind!r}")
        kind = Kind(data.kind)
        width = bitmap if kind is Kind.BOOL else rows * array.array(_TYPECODE[kind]).itemsize
        if len(data.data) != width:
            raise WireError(f"{where}: {len(data.data)} bytes for {rows} rows, {width} expected")
        if len(data.valid) not in (0, bitmap):
            raise WireError(f"{where}: validity of {len(data.valid)} bytes, {bitmap} expected")
        if kind is Kind.STR and rows and _max_code(data.data) >= len(data.words):
            raise WireError(f"{where}: a code points past its {len(data.words)} words")
    for spec in TABLES.get(name, ()):
        found = table.columns.get(spec.name)
        if found is not None and found.kind != spec.kind:
            raise WireError(f"{name}.{spec.name} is {found.kind} here, {spec.kind} in the schema")
        if spec.required and rows and (found is None or not _all_valid(found, rows)):
            raise WireError(f"{name}.{spec.name} is required and has NULLs")


def _max_code(data: Buffer) -> int:
    return int(max(_native(array.array("H", data))))


def _all_valid(column: ColumnData, rows: int) -> bool:
    if not len(column.valid):
        return True
    bits = int.from_bytes(column.valid, "little") & ((1 << rows) - 1)
    return bits.bit_count() == rows


def _native(values: array.array[Any]) -> array.array[Any]:
    if sys.byteorder == "big":
        values.byteswap()
    return values


def pack_bits(flags: Sequence[bool]) -> bytes:
    """Return a bitmap, least significant bit first."""
    if not flags:
        return b""
    text = "".join("1" if flag else "0" for flag in reversed(flags))
    return int(text, 2).to_bytes((len(flags) + 7) // 8, "little")


def pack_column(kind: Kind, values: Sequence[Any]) -> ColumnData | None:
    """Return a column from Python values (None is NULL), or None if all are NULL."""
    present = [value is not None for value in values]
    if not any(present):
        return None
    valid = b"" if all(present) else pack_bits(present)
    if kind is Kind.BOOL:
        return ColumnData(kind.value, pack_bits([bool(value) for value in values]), valid)
    if kind is Kind.STR:
        words = list(dict.fromkeys(value for value in values if value is not None))
        if len(words) > _MAX_CODE:
            raise WireError(f"a column holds {len(words)} different strings; at most {_MAX_CODE}")
        code = {word: number for number, word in enumerate(words)}
        packed = array.array("H", [code.get(value, 0) for value in values])
        return ColumnData(kind.value, _native(packed).tobytes(), valid, words)
    filled = values if not valid else [0 if value is None else value for value in values]
    return ColumnData(kind.value, _native(array.array(_TYPECODE[kind], filled)).tobytes(), valid)


def table_from_rows(columns: Sequence[Column], rows: Sequence[Sequence[Any]]) -> Table:
    """Return a wire table from rows of Python values in the order of `columns`."""
    packed: dict[str, ColumnData] = {}
    for position, column in enumerate(columns):
        data = pack_column(column.kind, [row[position] for row in rows])
        if data is not None:
            packed[column.name] = data
    return Table(len(rows), packed)


def unpack_column(data: ColumnData, rows: int) -> list[Any]:
    """Return a column's Python values; NULL is None."""
    kind = Kind(data.kind)
    values: list[Any]
    if kind is Kind.BOOL:
        values = _bits(data.data, rows)
    else:
        codes = _native(array.array(_TYPECODE[kind], data.data))
        values = [data.words[code] for code in codes] if kind is Kind.STR else list(codes)
    if not len(data.valid):
        return values
    return [
        value if ok else None for value, ok in zip(values, _bits(data.valid, rows), strict=True)
    ]


def _bits(data: Buffer, rows: int) -> list[bool]:
    number = int.from_bytes(data, "little")
    return [bool(number >> row & 1) for row in range(rows)]


def rows_from_table(columns: Iterable[Column], table: Table) -> list[tuple[Any, ...]]:
    """Return rows of Python values in the order of `columns`; a missing column is None."""
    unpacked = [
        unpack_column(table.columns[column.name], table.rows)
        if column.name in table.columns
        else [None] * table.rows
        for column in columns
    ]
    return list(zip(*unpacked, strict=True))
