"""From spooled seconds to batches on the wire."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from typing import Any, Final

from collector.spool import Spool
from collector.spooled import Fact, StoredBatch, Tick
from idlewatt import __version__
from idlewatt.columns import GPU_SAMPLE, TABLES
from idlewatt.errors import WireError
from idlewatt.model import Lane
from idlewatt.units import US_PER_MS, US_PER_S
from idlewatt.wire import WIRE_VERSION, Header, Table, encode_batch, table_from_rows

# What packing a row of the wrong width, type or range raises.
UNPACKABLE: Final = (ArithmeticError, LookupError, TypeError, ValueError, AttributeError, WireError)
MAX_TICKS: Final = {Lane.LIVE: 120, Lane.BACKFILL: 300}

_log = logging.getLogger(__name__)


def build_tables(ticks: Iterable[Tick], facts: Iterable[Fact]) -> dict[str, Table]:
    """Return the wire tables of a batch."""
    samples = [row for tick in ticks for row in tick.rows]
    tables = {"gpu_sample": table_from_rows(GPU_SAMPLE, samples)} if samples else {}
    rows: dict[str, list[Sequence[Any]]] = {}
    for fact in facts:
        rows.setdefault(fact.name, []).extend(fact.rows)
    tables.update({name: table_from_rows(TABLES[name], found) for name, found in rows.items()})
    return tables


def next_batch(
    spool: Spool, node_id: str, lane: Lane, now_us: int, live_horizon_s: int
) -> StoredBatch | None:
    """Return the batch that the lane must send now, or None if nothing waits.

    A batch that is not yet acknowledged comes first, unchanged. Facts travel in the live lane.
    The packing is done before the spool is locked, so that it never delays the poller.
    """
    stored = spool.outstanding(lane)
    if stored is not None:
        return stored
    live_from_us = now_us - live_horizon_s * US_PER_S
    while True:
        ticks = spool.waiting(lane, live_from_us, MAX_TICKS[lane])
        facts = spool.facts() if lane is Lane.LIVE else []
        if not ticks and not facts:
            return None
        epoch = ticks[0].epoch if ticks else spool.epoch()
        try:
            tables = build_tables(ticks, facts)
        except UNPACKABLE:
            _put_out(spool, node_id, ticks, facts)
            continue
        packed = _Packed(node_id, epoch or 0, lane, now_us, tables)
        batch = spool.form(lane, epoch or 0, ticks, facts, packed.encode)
        if batch is not None:
            return batch


def _put_out(spool: Spool, node_id: str, ticks: list[Tick], facts: list[Fact]) -> None:
    """Take out of the spool what cannot be packed, so that the rest goes on."""
    bad_ticks = [tick for tick in ticks if _fault([tick], []) is not None]
    bad_facts = [fact for fact in facts if _fault([], [fact]) is not None]
    for item in (*bad_ticks, *bad_facts):
        _log.error("%r cannot be packed and is dropped", item)
    spool.discard(node_id, bad_ticks, bad_facts)


def _fault(ticks: list[Tick], facts: list[Fact]) -> Exception | None:
    try:
        build_tables(ticks, facts)
    except UNPACKABLE as exc:
        return exc
    return None


class _Packed:
    def __init__(
        self, node_id: str, epoch: int, lane: Lane, now_us: int, tables: dict[str, Table]
    ) -> None:
        self._head = (node_id, epoch, lane.value)
        self._created_ms = now_us // US_PER_MS
        self._tables = tables

    def encode(self, seq: int) -> bytes:
        """Return the body with its sequence number."""
        header = Header(WIRE_VERSION, *self._head, seq, __version__, self._created_ms)
        return encode_batch(header, self._tables)
