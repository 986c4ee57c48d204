"""The batch codec: round trips, and refusal of anything damaged."""

from __future__ import annotations

import math

import msgspec
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from idlewatt.columns import ALLOCATION, GPU_SAMPLE, TABLES, Column, Kind
from idlewatt.errors import WireError
from idlewatt.wire import (
    MAGIC,
    WIRE_VERSION,
    ColumnData,
    Header,
    Table,
    decode_batch,
    encode_batch,
    pack_bits,
    pack_column,
    rows_from_table,
    table_from_rows,
    unpack_column,
)

VALUES = {
    Kind.TS: st.integers(0, 2**62),
    Kind.I64: st.integers(-(2**63), 2**63 - 1),
    Kind.I32: st.integers(-(2**31), 2**31 - 1),
    Kind.I16: st.integers(-(2**15), 2**15 - 1),
    Kind.F32: st.floats(width=32, allow_nan=False),
    Kind.F64: st.floats(allow_nan=False),
    Kind.BOOL: st.booleans(),
    Kind.STR: st.text(max_size=12),
}


def header(**changes: object) -> Header:
    fields: dict[str, object] = {
        "version": WIRE_VERSION, "node_id": "n1", "epoch": 5, "lane": "live", "seq": 1,
    }  # fmt: skip
    return Header(**(fields | changes))  # type: ignore[arg-type]


def sample_rows(count: int) -> list[tuple[object, ...]]:
    names = [column.name for column in GPU_SAMPLE]
    rows = []
    for number in range(count):
        row = dict.fromkeys(names)
        row |= {
            "ts_utc": 1_700_000_000_000_000 + number * 1_000_000, "obs_ms": 1000,
            "node_id": "n1", "gpu_uuid": f"GPU-{number % 2}", "epoch": 5,
            "resident": None if number % 3 == 0 else number % 2 == 0,
        }  # fmt: skip
        rows.append(tuple(row[name] for name in names))
    return rows


@st.composite
def columns_of_values(draw: st.DrawFn) -> tuple[Kind, list[object]]:
    kind = draw(st.sampled_from(list(Kind)))
    return kind, draw(st.lists(st.none() | VALUES[kind], min_size=1, max_size=40))


@given(columns_of_values())
def test_column_round_trip(case: tuple[Kind, list[object]]) -> None:
    kind, values = case
    packed = pack_column(kind, values)
    if packed is None:
        assert all(value is None for value in values)
    else:
        assert unpack_column(packed, len(values)) == values


def test_batch_round_trip_keeps_nulls_and_leaves_out_empty_columns() -> None:
    rows = sample_rows(17)
    body = encode_batch(header(seq=9), {"gpu_sample": table_from_rows(GPU_SAMPLE, rows)})
    batch = decode_batch(body)
    assert batch.header.key.seq == 9
    assert "power_avg_mw" not in batch.tables["gpu_sample"].columns
    assert rows_from_table(GPU_SAMPLE, batch.tables["gpu_sample"]) == rows


def test_bitmap_is_least_significant_bit_first() -> None:
    assert pack_bits([True, False, True] + [False] * 5 + [True]) == bytes([0b101, 1])


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"version": 99}, "wire version 99"),
        ({"lane": "slow"}, "neither live nor backfill"),
        ({"seq": 0}, "seq >= 1"),
        ({"node_id": ""}, "node_id"),
    ],
)
def test_bad_headers_are_refused(changes: dict[str, object], words: str) -> None:
    with pytest.raises(WireError, match=words):
        decode_batch(encode_batch(header(**changes), {}))


def replace(table: Table, **columns: ColumnData) -> dict[str, Table]:
    return {"gpu_sample": Table(table.rows, table.columns | columns)}


def test_inconsistent_tables_are_refused() -> None:
    good = table_from_rows(GPU_SAMPLE, sample_rows(4))
    bad = {
        "bytes for 4 rows": ColumnData("i64", b"\0" * 8),
        "unknown kind": ColumnData("i128", b"\0" * 64),
        "here, i64 in the schema": ColumnData("i32", b"\0" * 16),
        "validity of 2 bytes": ColumnData("i64", b"\0" * 32, b"\0\0"),
        "required and has NULLs": ColumnData("i64", b"\0" * 32, b"\x07"),
    }
    for words, column in bad.items():
        with pytest.raises(WireError, match=words):
            decode_batch(encode_batch(header(), replace(good, epoch=column)))
    with pytest.raises(WireError, match="points past"):
        decode_batch(
            encode_batch(
                header(), replace(good, node_id=ColumnData("str", b"\5\0" * 4, b"", ["a"]))
            )
        )
    with pytest.raises(WireError, match="claims"):
        decode_batch(encode_batch(header(), {"gpu_sample": Table(10**9, {})}))


def test_a_missing_required_column_is_refused() -> None:
    table = table_from_rows(GPU_SAMPLE, sample_rows(2))
    columns = {name: data for name, data in table.columns.items() if name != "gpu_uuid"}
    with pytest.raises(WireError, match="gpu_uuid is required"):
        decode_batch(encode_batch(header(), {"gpu_sample": Table(2, columns)}))


def test_unknown_tables_and_columns_pass_the_codec() -> None:
    extra = {"later": Table(1, {"x_w": ColumnData("f32", b"\0\0\0\0")})}
    assert decode_batch(encode_batch(header(), extra)).tables["later"].rows == 1


def test_a_zip_bomb_is_refused_before_it_unfolds() -> None:
    bomb = zstandard.ZstdCompressor().compress(b"\0" * (200 << 20))
    assert len(bomb) < 100_000
    with pytest.raises(WireError, match="unpacked"):
        decode_batch(bomb)


def test_another_magic_is_refused() -> None:
    raw = msgspec.msgpack.encode(("nope", header(), {}))
    with pytest.raises(WireError, match=MAGIC):
        decode_batch(zstandard.ZstdCompressor().compress(raw))


@settings(max_examples=200)
@given(st.data())
def test_damage_never_crashes_and_never_passes_as_something_else(data: st.DataObject) -> None:
    body = encode_batch(header(), {"gpu_sample": table_from_rows(GPU_SAMPLE, sample_rows(3))})
    kind = data.draw(st.sampled_from(["flip", "cut", "noise"]))
    if kind == "noise":
        damaged = data.draw(st.binary(max_size=200))
    else:
        at = data.draw(st.integers(0, len(body) - 1))
        damaged = body[:at] if kind == "cut" else body[:at] + bytes([body[at] ^ 1]) + body[at + 1 :]
    try:
        batch = decode_batch(damaged)
    except WireError:
        return
    assert batch.header.node_id  # a flip inside the data may still decode; the shape holds
    for name, table in batch.tables.items():
        for row in rows_from_table(TABLES.get(name, ()), table):
            assert len(row) == len(TABLES[name])


def test_floats_survive_as_float32() -> None:
    column = (Column("share", Kind.F32, ""),)
    table = table_from_rows(column, [(0.1,), (None,), (math.inf,)])
    (first,), second, third = rows_from_table(column, table)
    assert first == pytest.approx(0.1, rel=1e-7)
    assert (second, third) == ((None,), (math.inf,))
    assert ALLOCATION[4].kind is Kind.F32
