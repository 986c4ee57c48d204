"""How read models ask the warehouse: a SQL file, named parameters, rows or a frame."""

from __future__ import annotations

from typing import Any

import duckdb
import polars as pl

from idlewatt.clock import utc_from_us
from warehouse.queries import load, named_query


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
