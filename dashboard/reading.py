"""How read models ask the warehouse: a SQL file, named parameters, rows or a frame."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any, Final, Protocol

import duckdb
import polars as pl

from idlewatt.clock import us_from_utc, utc_from_us
from idlewatt.units import US_PER_S
from warehouse.queries import load, named_query

AHEAD_S: Final = 5
RECENT_S: Final = 600


class SnapshotSource(Protocol):
    """What the web app needs of the store."""

    def snapshot(self) -> AbstractContextManager[duckdb.DuckDBPyConnection]:
        """Return a cursor inside one read-only transaction."""
        ...


def rows(cur: duckdb.DuckDBPyConnection, name: str, **params: Any) -> list[tuple[Any, ...]]:
    """Return the rows of `sql/statements/<name>.sql`."""
    return cur.execute(load(f"statements/{name}"), naive(params)).fetchall()


def arrow(cur: duckdb.DuckDBPyConnection, name: str, **params: Any) -> Any:
    """Return the answer of `sql/statements/<name>.sql` as an Arrow table."""
    return cur.sql(load(f"statements/{name}"), params=naive(params)).to_arrow_table()


def frame(cur: duckdb.DuckDBPyConnection, name: str, **params: Any) -> pl.DataFrame:
    """Return the answer of `sql/statements/<name>.sql` as a frame."""
    return as_frame(arrow(cur, name, **params))


def query(cur: duckdb.DuckDBPyConnection, name: str, **params: Any) -> pl.DataFrame:
    """Return the answer of a named query: what `idlewatt sql <name>` would give."""
    asked = named_query(name)
    return as_frame(cur.sql(asked.sql, params=asked.bind(naive(params))).to_arrow_table())


def utc(value_us: int) -> Any:
    """Return an instant as a TIMESTAMP parameter."""
    return utc_from_us(value_us).replace(tzinfo=None)


def naive(params: dict[str, Any]) -> dict[str, Any]:
    """Return times without a zone: TIMESTAMP columns are UTC by contract."""
    return {
        name: value.replace(tzinfo=None) if hasattr(value, "tzinfo") else value
        for name, value in params.items()
    }


def as_frame(table: Any) -> pl.DataFrame:
    """Return an Arrow table as a frame."""
    found = pl.from_arrow(table)
    return found if isinstance(found, pl.DataFrame) else found.to_frame()


def newest(cur: duckdb.DuckDBPyConnection, now_us: int, last_us: int | None) -> int | None:
    """Return the newest stamp: among recent rows, else since the last one known, else of all."""
    end = utc(now_us + AHEAD_S * US_PER_S)
    for from_us in (now_us - RECENT_S * US_PER_S, last_us or 0):
        from_utc = utc(from_us)
        ((value,),) = rows(cur, "page_fleet_as_of", from_utc=from_utc, to_utc=end)
        if value is not None:
            return us_from_utc(value)
    return None
