"""Facts: what is known beside the samples, kept so that it can be told again.

The spool sends inventory, jobs and allocations once, when they change. A server that has lost its
database (or went back to an older copy) would then never hear of them again; so the newest row of
each is kept here, and repeated when the server is found to have forgotten something, and once an
hour anyway. Repeating is harmless: the server keeps one row a key.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec

from idlewatt.columns import TABLES
from idlewatt.units import S_PER_HOUR

REPEAT_EVERY_S: Final = S_PER_HOUR
PREFIX: Final = "known."
# What makes a row the successor of another one.
KEYS: Final = {
    "node": ("node_id",),
    "device": ("gpu_uuid",),
    "device_capability": ("gpu_uuid", "column_name"),
    "job": ("job_key",),
    "allocation": ("gpu_uuid", "start_utc", "job_key"),
}
_ENDS: Final = ("job", "allocation")
_MOST_ROWS: Final = 2_000  # rows of one repeated fact

_AT: Final = {
    name: {column.name: place for place, column in enumerate(TABLES[name])} for name in KEYS
}
_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder().decode


def remember(con: sqlite3.Connection, facts: Mapping[str, Sequence[Sequence[Any]]]) -> None:
    """Keep the newest row of each key; within the caller's transaction."""
    con.executemany(
        "INSERT OR REPLACE INTO meta VALUES (?,?)",
        [
            (_name(table, row), _encode(row))
            for table, rows in facts.items()
            if table in KEYS
            for row in rows
            if len(row) == len(_AT[table])
        ],
    )


def forget_all(con: sqlite3.Connection) -> None:
    """Forget every fact: a poller that starts tells them anew."""
    con.execute("DELETE FROM meta WHERE key >= ? AND key < ?", (PREFIX, PREFIX[:-1] + "/"))


def repeat(con: sqlite3.Connection) -> Iterator[tuple[str, list[Any]]]:
    """Yield (table, rows) of what is known; what has ended is forgotten afterwards."""
    for table in KEYS:
        low = f"{PREFIX}{table}."
        found = con.execute(
            "SELECT key, value FROM meta WHERE key >= ? AND key < ?", (low, low[:-1] + "/")
        ).fetchall()
        rows = [_decode(value) for _, value in found]
        for begin in range(0, len(rows), _MOST_ROWS):
            yield table, rows[begin : begin + _MOST_ROWS]
        if table in _ENDS:
            end = _AT[table]["end_utc"]
            over = [(key,) for (key, _), row in zip(found, rows, strict=True) if row[end]]
            con.executemany("DELETE FROM meta WHERE key = ?", over)


def _name(table: str, row: Sequence[Any]) -> str:
    parts = (str(row[_AT[table][name]]) for name in KEYS[table])
    return f"{PREFIX}{table}." + "\x1f".join(parts)
