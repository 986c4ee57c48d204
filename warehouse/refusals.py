"""Rows that cannot be true: some of each batch are kept with their values, all counted."""

from __future__ import annotations

import json
import logging
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, Final

import duckdb
import pyarrow as pa

from warehouse.queries import load

log = logging.getLogger(__name__)

KEPT: Final = 1_000
_MAX_CONTENT: Final = 65_536
_COLUMNS: Final = [
    "received_utc",
    "node_id",
    "epoch",
    "lane",
    "seq",
    "table_name",
    "reason",
    "content",
    "row_count",
]


class Refusals:
    """The refused rows of one transaction."""

    def __init__(self) -> None:
        self._rows: list[tuple[Any, ...]] = []

    def add(
        self,
        origin: tuple[Any, ...],
        table: str,
        reasons: Sequence[str],
        values: Callable[[int], Sequence[dict[str, Any]]],
    ) -> None:
        """Note rows of a batch.

        Args:
            origin: when and in which batch they came.
            table: their table.
            reasons: why, row by row.
            values: returns the first so many of the rows.
        """
        log.warning("node=%s table=%s refused=%r", origin[1], table, dict(Counter(reasons)))
        for reason, row in zip(reasons[:KEPT], values(KEPT), strict=True):
            content = json.dumps(row, default=str)[:_MAX_CONTENT]
            self._rows.append((*origin, table, reason, content, 1))
        for reason, rows in Counter(reasons[KEPT:]).items():
            self._rows.append((*origin, table, reason, "{}", rows))

    def store(self, con: duckdb.DuckDBPyConnection) -> None:
        """Insert them."""
        if not self._rows:
            return
        arrays = [pa.array(values) for values in zip(*self._rows, strict=True)]
        con.register("refused_in", pa.table(arrays, names=_COLUMNS))
        try:
            con.execute(load("statements/quarantine_insert"))
        finally:
            con.unregister("refused_in")
