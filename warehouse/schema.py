"""Migrations, views and the statement that makes a live table."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Sequence
from typing import Any, Final

import duckdb

from idlewatt.clock import Clock, utc_from_us
from idlewatt.columns import GPU_SAMPLE
from idlewatt.errors import StoreError
from warehouse.queries import load, sql_root

log = logging.getLogger(__name__)

SAMPLE_VIEW: Final = "gpu_sample"
SOURCES_MARK: Final = "/* sources */"
SAMPLE_COLUMNS: Final = ", ".join(column.name for column in GPU_SAMPLE)


def rows_of(
    con: duckdb.DuckDBPyConnection, sql: str, params: Sequence[Any] | dict[str, Any] | None = None
) -> list[tuple[Any, ...]]:
    """Return all rows of a statement; the connection is free again afterwards."""
    result = con.execute(sql) if params is None else con.execute(sql, params)
    return list(result.fetchall())


def migrate(con: duckdb.DuckDBPyConnection, clock: Clock) -> list[str]:
    """Bring the schema up to date and return the names of the migrations applied.

    Raises:
        StoreError: the warehouse is newer than this program, or an applied migration changed.
    """
    files = sorted((sql_root() / "migrations").glob("[0-9][0-9][0-9][0-9]_*.sql"))
    known = {int(path.name[:4]): path for path in files}
    if len(known) != len(files):
        raise StoreError("two migrations share a number")
    con.execute(load("migrations/0001_schema_migration"))
    done = {
        int(version): str(digest)
        for version, digest in rows_of(con, "SELECT version, sha256 FROM schema_migration")
    }
    unknown = sorted(set(done) - set(known))
    if unknown:
        raise StoreError(
            f"the warehouse was written by a newer idlewatt (migration {unknown[-1]}); upgrade"
        )
    applied = []
    for version, path in sorted(known.items()):
        text = path.read_text("utf-8")
        digest = hashlib.sha256(text.encode()).hexdigest()
        if version in done:
            if done[version] != digest:
                log.warning("migration=%s msg=%r", path.stem, "file changed after it was applied")
            continue
        con.execute("BEGIN")
        try:
            con.execute(text)
            con.execute(
                "INSERT INTO schema_migration VALUES (?, ?, ?, ?)",
                [version, path.stem, digest, utc_from_us(clock.now_us()).replace(tzinfo=None)],
            )
            con.execute("COMMIT")
        except duckdb.Error as exc:
            con.execute("ROLLBACK")
            raise StoreError(f"migration {path.stem} failed: {exc}") from exc
        applied.append(path.stem)
    return applied


def create_views(
    con: duckdb.DuckDBPyConnection, live: Sequence[str], segments: Sequence[str]
) -> None:
    """(Re)create every macro and view, in whatever order they need each other.

    Raises:
        StoreError: one cannot be made.
    """
    create_sample_view(con, live, segments)
    waiting = [
        f"{folder}/{path.stem}"
        for folder in ("macros", "views")
        for path in sorted((sql_root() / folder).glob("*.sql"))
        if path.stem != SAMPLE_VIEW
    ]
    while waiting:
        failed: dict[str, duckdb.Error] = {}
        for name in waiting:
            try:
                con.execute(load(name))
            except duckdb.Error as exc:
                failed[name] = exc
        if len(failed) == len(waiting):
            first, why = next(iter(failed.items()))
            raise StoreError(f"{first} cannot be made: {why}") from why
        waiting = list(failed)


def create_sample_view(
    con: duckdb.DuckDBPyConnection, live: Sequence[str], segments: Sequence[str]
) -> None:
    """(Re)create the view `gpu_sample` over the given live tables and segment files."""
    con.execute(sample_view_sql(live, segments))


def sample_view_sql(live: Sequence[str], segments: Sequence[str]) -> str:
    """Return the statement that makes the view; names and paths are the warehouse's own."""
    # Names and paths are made by this program (hours, numbers, hexadecimal), never from outside.
    parts = [f"UNION ALL SELECT {SAMPLE_COLUMNS} FROM {name}" for name in live]  # noqa: S608
    if segments:
        files = parquet_list(segments)
        parts.append(f"UNION ALL SELECT {SAMPLE_COLUMNS} FROM {files}")  # noqa: S608
    return load(f"views/{SAMPLE_VIEW}").replace(SOURCES_MARK, "\n".join(parts))


def parquet_list(paths: Sequence[str]) -> str:
    """Return the table expression that reads the given segment files."""
    quoted = ", ".join("'" + path.replace("'", "''") + "'" for path in paths)
    return f"read_parquet([{quoted}], hive_partitioning = false)"
