"""Which node may write the rows of which GPU.

A GPU belongs to the node that first sent it. Another node's rows of it are refused, so that no
token can replace samples, inventory or allocations of a GPU elsewhere. A board that is put into
another machine moves once its old node has not sent it for `server.gpu_move_s`: from then on the
new node may write seconds after the moment when the old one was last heard with it, and the old
node may still bring what it held before.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Final

import duckdb
import numpy as np
import pyarrow as pa

from idlewatt.clock import us_from_utc
from idlewatt.columns import TABLES
from idlewatt.units import US_PER_S
from warehouse.columnar import BoolArray, IntArray
from warehouse.dimensions import Row
from warehouse.queries import load
from warehouse.schema import rows_of

log = logging.getLogger(__name__)

_EVER: Final = -(1 << 62)
_OPEN: Final = 1 << 62
_MAX_NAME: Final = 128
# Tables that speak of a GPU without naming its node, or may name any GPU; and their time.
_FROM: Final = {
    "device": "valid_from_utc",
    "device_capability": "valid_from_utc",
    "allocation": "start_utc",
}

Tenure = tuple[int, str]  # since when (µs), node
Span = tuple[int, int]  # half-open, µs


class Owners:
    """Holders of GPUs; used on the writer thread only. `begin` before each transaction."""

    def __init__(self, con: duckdb.DuckDBPyConnection, now_us: int, move_s: int) -> None:
        self._move_us = move_s * US_PER_S
        self._held: dict[str, list[Tenure]] = {}
        text = "SELECT gpu_uuid, from_utc, node_id FROM gpu_owner ORDER BY from_utc"
        for gpu, since, node in rows_of(con, text):
            since_us = us_from_utc(since) if gpu in self._held else _EVER
            self._held.setdefault(gpu, []).append((since_us, node))
        # The usual GPU has had one node ever.
        self._sole: dict[str, str] = {}
        for gpu, held in self._held.items():
            self._note_sole(gpu, held)
        # When a GPU was last sent is not kept: after a restart its node has the whole time anew.
        self._started_us = now_us
        self._heard: dict[str, int] = {}
        self._claims: dict[str, list[Tenure]] = {}

    def begin(self) -> None:
        """Forget claims of a transaction that was not committed."""
        self._claims = {}

    def committed(self) -> None:
        """Keep the claims of the last transaction."""
        self._held.update(self._claims)
        for gpu, held in self._claims.items():
            self._note_sole(gpu, held)
        self._claims = {}

    def _note_sole(self, gpu: str, held: list[Tenure]) -> None:
        self._sole.pop(gpu, None)
        if len(held) == 1:
            self._sole[gpu] = held[0][1]

    def spans(self, gpu: str, node: str, now_us: int) -> list[Span]:
        """Return the times whose rows the node may write; a GPU unknown so far becomes its own."""
        held = self._claims.get(gpu) or self._held.get(gpu)
        if held is None:
            if not (0 < len(gpu) <= _MAX_NAME and gpu.isprintable()):
                return [(_EVER, _OPEN)]  # refused by its name, and not worth a note
            self._claims[gpu] = held = [(_EVER, node)]
        last_us, owner = held[-1]
        if owner == node:
            self._heard[gpu] = now_us
            if len(held) == 1:
                return [(_EVER, _OPEN)]
        else:
            heard_us = max(self._heard.get(gpu, self._started_us), last_us)
            if now_us - heard_us > self._move_us:
                self._claims[gpu] = held = [*held, (heard_us + 1, node)]
                self._heard[gpu] = now_us
                log.warning("gpu=%s from=%s to=%s msg=%r", gpu, owner, node, "GPU moved")
        ends = [since for since, _ in held[1:]] + [_OPEN]
        return [(a, b) for (a, holder), b in zip(held, ends, strict=True) if holder == node]

    def allowed(
        self, node: str, words: list[str], rows: tuple[IntArray, IntArray], now_us: int
    ) -> BoolArray | None:
        """Return which rows the node may write; None where it may write all.

        Args:
            node: the sender.
            words: names of GPUs.
            rows: number in `words` and stamp of each row.
            now_us: the time.
        """
        if set(map(self._sole.get, words)) == {node}:
            self._heard.update(dict.fromkeys(words, now_us))
            return None
        spans = [self.spans(word, node, now_us) for word in words]
        if all(span == [(_EVER, _OPEN)] for span in spans):
            return None
        codes, stamps = rows
        good = np.zeros(len(codes), bool)
        for number, mine in enumerate(spans):
            for begin, end in mine:
                good |= (codes == number) & (stamps >= begin) & (stamps < end)
        return good

    def split(
        self, node: str, table: str, rows: list[Row], now_us: int
    ) -> tuple[list[Row], list[Row]]:
        """Return the rows that the node may write, and those of GPUs of another node."""
        if table not in _FROM:
            return rows, []
        names = [column.name for column in TABLES[table]]
        gpu_at, time_at = names.index("gpu_uuid"), names.index(_FROM[table])
        split: tuple[list[Row], list[Row]] = ([], [])
        for row in rows:
            spans = self.spans(row[gpu_at], node, now_us)
            split[not any(a <= row[time_at] < b for a, b in spans)].append(row)
        return split

    def store(self, con: duckdb.DuckDBPyConnection, now_us: int) -> None:
        """Write the claims of this transaction."""
        if not self._claims:
            return
        claims: Iterable[tuple[str, list[Tenure]]] = self._claims.items()
        last = [(gpu, *held[-1]) for gpu, held in claims]
        table = pa.table(
            {
                "gpu_uuid": pa.array([gpu for gpu, _, _ in last], pa.string()),
                "from_utc": pa.array([max(since, 0) for _, since, _ in last], pa.timestamp("us")),
                "node_id": pa.array([node for _, _, node in last], pa.string()),
                "noted_utc": pa.array([now_us] * len(last), pa.timestamp("us")),
            }
        )
        con.register("owner_in", table)
        try:
            con.execute(load("statements/gpu_owner_insert"))
        finally:
            con.unregister("owner_in")
