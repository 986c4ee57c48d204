"""`analyst.duckdb`: a small file that any DuckDB shell or notebook may open while ingest runs.

It holds views over the sealed segments (absolute paths) and copies of the small tables and of the
results, is written beside the warehouse in the oldest storage format, and takes the place of the
last one by rename. It ends at the last sealed hour: results of hours that are not sealed stay out,
so that samples and results speak of the same time.
"""

from __future__ import annotations

import logging
import os
from pathlib import Path
from typing import Any, Final

import duckdb

from warehouse import schema
from warehouse.layout import naive
from warehouse.queries import load
from warehouse.schema import rows_of
from warehouse.store import FILE_MODE, Store

log = logging.getLogger(__name__)

FILE_NAME: Final = "analyst.duckdb"
STORAGE_VERSION: Final = "v1.0.0"
# The warehouse's own bookkeeping; everything else is worth an analyst's while.
INTERNAL: Final = frozenset(
    {
        "schema_migration",
        "ingest_cursor",
        "live_table",
        "retired_file",
        "quarantine",
        "set_aside",
    }
)
# What is derived from the samples of an hour goes along with them.
BY_HOUR: Final = frozenset({"hour_change", "state_run", "state_interval", "analysis_run"})
SEALED: Final = "SELECT DISTINCT hour_utc FROM segment WHERE problem IS NULL"


def write_analyst_file(store: Store) -> Path:
    """Write `analyst.duckdb` from one snapshot and return its path."""
    target = store.data_dir / FILE_NAME
    draft = store.data_dir / f"{FILE_NAME}.new"
    for leftover in (draft, draft.with_name(draft.name + ".wal")):
        leftover.unlink(missing_ok=True)
    with store.snapshot() as source:
        names = [name for name in _tables(source) if name not in INTERNAL]
        segments = [
            str(store.layout.root / row[0])
            for row in rows_of(source, load("statements/segments_usable"))
        ]
        con = duckdb.connect(":memory:", config={"threads": 1})
        try:
            quoted = str(draft).replace("'", "''")
            con.execute(f"ATTACH '{quoted}' AS analyst (STORAGE_VERSION '{STORAGE_VERSION}')")
            con.execute("USE analyst")
            for name in names:
                _copy(source, con, name)
            con.execute("CREATE TABLE written (written_utc TIMESTAMP)")
            con.execute("INSERT INTO written VALUES (?)", [naive(store.clock.now_us())])
            schema.create_views(con, [], sorted(segments))
            con.execute("USE memory")
            con.execute("DETACH analyst")
        finally:
            con.close()
    draft.chmod(FILE_MODE)
    with draft.open("rb") as file:
        os.fsync(file.fileno())
    draft.replace(target)
    log.info("file=%s segments=%d msg=%r", target, len(segments), "renewed")
    return target


def _tables(cursor: duckdb.DuckDBPyConnection) -> list[str]:
    """Return the base tables but the live ones."""
    return [
        name
        for (name,) in rows_of(cursor, load("statements/base_tables"))
        if not name.startswith("live_2")
    ]


def _copy(source: duckdb.DuckDBPyConnection, target: duckdb.DuckDBPyConnection, name: str) -> None:
    # Names come from the warehouse's own catalogue.
    wanted = "" if name not in BY_HOUR else f" SEMI JOIN ({SEALED}) AS sealed USING (hour_utc)"
    rows: Any = source.sql(f'SELECT * FROM "{name}"{wanted}').to_arrow_table()  # noqa: S608
    target.register("arrived", rows)
    try:
        target.execute(f'CREATE TABLE "{name}" AS SELECT * FROM arrived')  # noqa: S608
    finally:
        target.unregister("arrived")
