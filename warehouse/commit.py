"""What one ingest transaction does: order, samples, dimensions, oddities, cursors."""

from __future__ import annotations

import functools
import logging
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import duckdb
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from idlewatt.clock import us_from_utc
from idlewatt.columns import GPU_SAMPLE, TABLES
from idlewatt.errors import SequenceError, WireError
from idlewatt.model import Lane
from idlewatt.units import US_PER_MS, US_PER_S
from idlewatt.wire import Batch, Table, encode_batch, rows_from_table
from warehouse import columnar
from warehouse.dimensions import (
    DIMENSIONS,
    Row,
    note_hours,
    split_impossible,
    store_rows,
)
from warehouse.given_up import Lost, gap_row
from warehouse.layout import naive
from warehouse.owners import Owners
from warehouse.queries import load
from warehouse.refusals import Refusals
from warehouse.schema import rows_of
from warehouse.screen import FOREIGN, REASONS, plausible, refused
from warehouse.store import Store
from warehouse.uniqueness import Unique

log = logging.getLogger(__name__)

LaneKey = tuple[str, int, str]
GivenUp = tuple[int, int] | None

MAX_EPOCH_AHEAD_US: Final = 86_400 * US_PER_S
_AHEAD_US: Final = 5 * US_PER_S  # clocks that differ by less are not worth a word
_ACTIVE_US: Final = 60 * US_PER_S
_MAX_NAME: Final = 128


@dataclass(slots=True)
class Outcome:
    """What became of one batch."""

    acked: int = 0
    duplicate: bool = False
    rows: int = 0
    quarantined: int = 0
    unknown: int = 0
    error: SequenceError | None = None


@dataclass(slots=True)
class _Work:
    """What a group of batches adds up to; `spans` holds seq, first and last stamp of batches."""

    seqs: dict[LaneKey, int] = field(default_factory=dict)
    samples: list[tuple[Batch, Table]] = field(default_factory=list)
    sample_outcomes: list[Outcome] = field(default_factory=list)
    rows: dict[str, list[Row]] = field(default_factory=dict)
    gaps: list[tuple[Batch, tuple[int, int]]] = field(default_factory=list)
    spans: dict[LaneKey, list[tuple[int, int, int]]] = field(default_factory=dict)
    refusals: Refusals = field(default_factory=Refusals)
    aside: list[Row] = field(default_factory=list)


class Committer:
    """Turns batches into rows; everything but `check_rows` runs on the writer thread.

    Attributes:
        newest_us: newest `ts_utc` committed, in µs, but never after the moment it arrived.
        implausible: values that could not be true and became NULL.
        superseded: rows that lost against a higher or equal epoch, or were replaced by one.
        unknown_seen: tables and columns that this version does not know.
    """

    def __init__(self, con: duckdb.DuckDBPyConnection, store: Store) -> None:
        self._store = store
        self._unique = Unique(store.layout)
        move_s = store.settings.integer("server.gpu_move_s")
        self._owners = Owners(con, store.clock.now_us(), move_s)
        self._seqs: dict[LaneKey, int] = {}
        self._newest_by_lane: dict[LaneKey, int] = {}
        for node, epoch, lane, seq, stamp in rows_of(
            con, "SELECT node_id, epoch, lane, seq, newest_utc FROM ingest_cursor"
        ):
            self._seqs[node, int(epoch), lane] = int(seq)
            if stamp is not None:
                self._newest_by_lane[node, int(epoch), lane] = us_from_utc(stamp)
        newest = rows_of(con, "SELECT max(ts_utc) FROM gpu_sample")[0][0]
        self.newest_us: int | None = None
        if newest is not None:
            self.newest_us = min(us_from_utc(newest), store.clock.now_us())
        self._heard_us: dict[str, int] = {}
        self._ahead_us: dict[str, int] = {}
        self.superseded = 0
        self.implausible = 0
        self.unknown_seen: Counter[str] = Counter()
        self._pending = _Work()

    def check_rows(self, batch: Batch) -> None:
        """Refuse rows of another node or epoch than the batch's; safe on any thread.

        Raises:
            WireError: there are some, or the epoch lies in the future.
        """
        header = batch.header
        if header.epoch * US_PER_MS > self._store.clock.now_us() + MAX_EPOCH_AHEAD_US:
            raise WireError(
                f"epoch {header.epoch} lies more than a day in the future; set the node's clock"
            )
        samples = batch.tables.get("gpu_sample")
        data = b"" if samples is None or not samples.rows else samples.columns["epoch"].data
        # All rows of one epoch is one value over and over: compared as bytes.
        if data != header.epoch.to_bytes(8, "little") * (len(data) // 8):
            raise WireError(f"gpu_sample holds rows of another epoch than {header.epoch}")
        for name, table in batch.tables.items():
            column = table.columns.get("node_id")
            if name not in TABLES or column is None or not table.rows:
                continue
            if set(column.words) - {batch.header.node_id}:
                strangers = columnar.used_words(column) - {batch.header.node_id}
                if strangers:
                    raise WireError(
                        f"{name} of node {batch.header.node_id!r} holds rows of another node"
                    )

    def active_nodes(self) -> int:
        """Return how many nodes sent something within the last minute."""
        since = self._store.clock.now_us() - _ACTIVE_US
        return sum(heard >= since for heard in list(self._heard_us.values()))

    def clocks_ahead(self) -> dict[str, int]:
        """Return which nodes of the last minute have stamps ahead of this clock, by how many µs."""
        since = self._store.clock.now_us() - _ACTIVE_US
        return {
            node: ahead
            for node, ahead in list(self._ahead_us.items())
            if self._heard_us.get(node, 0) >= since
        }

    def commit(
        self, con: duckdb.DuckDBPyConnection, group: Sequence[tuple[Batch, GivenUp]]
    ) -> list[Outcome]:
        """Store what is new in `group` and return what became of each batch."""
        work = _Work()
        self._owners.begin()
        outcomes = [self._admit(work, batch, given_up) for batch, given_up in group]
        now_us = self._store.clock.now_us()
        self._store_samples(con, work, now_us)
        for batch, seqs in work.gaps:
            lost = self._lost(work, batch, seqs)
            work.rows.setdefault("gap", []).append(gap_row(con, lost, now_us))
        for dimension in DIMENSIONS:
            store_rows(con, self._store.layout, dimension, work.rows.get(dimension.wire, []))
        self._store_odd(con, work)
        self._owners.store(con, now_us)
        if work.seqs:
            self._store_cursors(con, work, now_us)
        self._pending = work
        return outcomes

    def committed(self) -> None:
        """Take over what the last transaction changed; call after its commit."""
        work, self._pending = self._pending, _Work()
        self._owners.committed()
        self._seqs.update(work.seqs)
        now_us = self._store.clock.now_us()
        for node, _, _ in work.seqs:
            self._heard_us[node] = now_us
        for key in work.spans:
            stamp = _last_of(work, key)
            self._newest_by_lane[key] = max(stamp, self._newest_by_lane.get(key, stamp))
            arrived = min(stamp, now_us)
            self.newest_us = max(arrived, self.newest_us or arrived)
            if key[2] == Lane.LIVE:
                self._note_ahead(key[0], stamp - now_us)

    def _note_ahead(self, node: str, ahead_us: int) -> None:
        if ahead_us > _AHEAD_US:
            self._ahead_us[node] = ahead_us
        else:
            self._ahead_us.pop(node, None)

    def rolled_back(self) -> None:
        """Forget what the last transaction would have changed."""
        self._pending = _Work()

    def _admit(self, work: _Work, batch: Batch, given_up: GivenUp) -> Outcome:
        header = batch.header
        key = _lane(batch)
        last = work.seqs.get(key, self._seqs.get(key, 0))
        if header.seq <= last:
            return Outcome(acked=header.seq, duplicate=True)
        if header.seq > last + 1:
            bridged = given_up is not None and given_up[0] <= last + 1 <= given_up[1]
            if not bridged or given_up is None or given_up[1] + 1 != header.seq:
                return Outcome(error=SequenceError(last + 1, header.seq))
            work.gaps.append((batch, (last + 1, given_up[1])))
        work.seqs[key] = header.seq
        outcome = Outcome(acked=header.seq)
        for name, table in batch.tables.items():
            self._sort_out(work, batch, name, table, outcome)
        return outcome

    def _sort_out(
        self, work: _Work, batch: Batch, name: str, table: Table, outcome: Outcome
    ) -> None:
        spec = TABLES.get(name, ())
        known = {column.name for column in spec}
        strange = {key: data for key, data in table.columns.items() if key not in known}
        if strange:
            # With the required columns, so that the rows can be found again later.
            needed = {column.name for column in spec if column.required}
            kept = {key: data for key, data in table.columns.items() if key in needed}
            self._set_aside(work, batch, name, Table(table.rows, {**kept, **strange}), strange)
            outcome.unknown += 1
        if not spec or not table.rows:
            return
        if name == "gpu_sample":
            work.samples.append((batch, table))
            work.sample_outcomes.append(outcome)
            return
        good, bad = split_impossible(spec, rows_from_table(spec, table))
        good, foreign = self._owners.split(
            batch.header.node_id, name, good, self._store.clock.now_us()
        )
        refused = bad + [(row, FOREIGN) for row in foreign]
        work.rows.setdefault(name, []).extend(good)
        if refused:
            names = [column.name for column in spec]
            whys = [why for _, why in refused]
            work.refusals.add(
                self._origin(batch),
                name,
                whys,
                lambda most: [dict(zip(names, row, strict=True)) for row, _ in refused[:most]],
            )
        outcome.rows += len(good)
        outcome.quarantined += len(refused)

    def _set_aside(
        self, work: _Work, batch: Batch, name: str, table: Table, strange: Iterable[str]
    ) -> None:
        header = batch.header
        columns = sorted(strange)
        label = f"{name[:_MAX_NAME]}({', '.join(columns)[:512]})"
        if not self.unknown_seen[label]:
            log.warning("node=%s unknown=%r msg=%r", header.node_id, label, "kept in set_aside")
        self.unknown_seen[label] += 1
        content = encode_batch(header, {name: table})
        work.aside.append((*self._origin(batch), name, columns, content))

    def _origin(self, batch: Batch) -> Row:
        header = batch.header
        now = naive(self._store.clock.now_us())
        return (now, header.node_id, header.epoch, header.lane, header.seq)

    def _store_samples(self, con: duckdb.DuckDBPyConnection, work: _Work, now_us: int) -> None:
        """Insert the samples of the group and note which time each batch covers."""
        if not work.samples:
            return
        tables = [table for _, table in work.samples]
        samples = columnar.gather(GPU_SAMPLE, tables)
        stamps = columnar.values_i64("ts_utc", tables)
        epochs = columnar.values_i64("epoch", tables)
        gpus = columnar.codes_of("gpu_uuid", tables, self._unique.gpu_numbers)
        obs = samples["obs_ms"].to_numpy().astype(np.int64)
        own = self._own(work.samples, stamps, now_us)
        reasons = refused(work.samples, (stamps, gpus, obs), own, now_us)
        good: columnar.BoolArray = reasons == 0
        counts = [table.rows for table in tables]
        if not good.all():
            self._refuse_samples(work, samples, reasons)
            samples = samples.filter(pa.array(good))
        samples, nulled = plausible(samples)
        self.implausible += nulled
        kept = np.add.reduceat(good, np.cumsum([0, *counts[:-1]]), dtype=np.int64)
        for outcome, total, fine in zip(work.sample_outcomes, counts, kept, strict=True):
            outcome.rows += int(fine)
            outcome.quarantined += total - int(fine)
        placed = self._unique.place(con, samples, (stamps[good], gpus[good], epochs[good]), now_us)
        self.superseded += sum(place.superseded + place.replaced for place in placed)
        note_hours(
            con,
            self._store.layout,
            {place.hour_us: place.inserted - place.replaced for place in placed if place.inserted},
        )
        self._note_spans(work, stamps, good)

    def _note_spans(self, work: _Work, stamps: columnar.IntArray, good: columnar.BoolArray) -> None:
        begin = 0
        for batch, table in work.samples:
            part = stamps[begin : begin + table.rows][good[begin : begin + table.rows]]
            begin += table.rows
            if len(part):
                span = (batch.header.seq, int(part.min()), int(part.max()))
                work.spans.setdefault(_lane(batch), []).append(span)

    def _refuse_samples(
        self, work: _Work, samples: pa.Table, reasons: npt.NDArray[np.int8]
    ) -> None:
        """Put rows aside that cannot be true."""
        begin = 0
        for batch, table in work.samples:
            part = reasons[begin : begin + table.rows]
            rows = np.nonzero(part)[0]
            if len(rows):
                whys = [REASONS[number] for number in part[rows]]
                values = functools.partial(_plain, samples, begin + rows)
                work.refusals.add(self._origin(batch), "gpu_sample", whys, values)
            begin += table.rows

    def _own(
        self, samples: Iterable[tuple[Batch, Table]], stamps: columnar.IntArray, now_us: int
    ) -> columnar.BoolArray:
        """Return which rows are of GPUs that their sender may write."""
        own = np.ones(len(stamps), bool)
        begin = 0
        for batch, table in samples:
            part = slice(begin, begin + table.rows)
            begin += table.rows
            data = table.columns["gpu_uuid"]
            codes = np.frombuffer(data.data, "<u2")
            mine = self._owners.allowed(
                batch.header.node_id, data.words, (codes, stamps[part]), now_us
            )
            if mine is not None:
                own[part] = mine
        return own

    def _lost(self, work: _Work, batch: Batch, seqs: tuple[int, int]) -> Lost:
        """Return what is known of batches that were declared lost before `batch`."""
        header, key = batch.header, _lane(batch)
        spans = work.spans.get(key, [])
        before = [last for seq, _, last in spans if seq < header.seq]
        before += [self._newest_by_lane[key]] if key in self._newest_by_lane else []
        after = next((first for seq, first, _ in spans if seq == header.seq), None)
        newest = max(before, default=None)
        return Lost(header.node_id, header.epoch, header.lane, seqs, newest, after)

    def _store_odd(self, con: duckdb.DuckDBPyConnection, work: _Work) -> None:
        work.refusals.store(con)
        for row in work.aside:
            con.execute("INSERT INTO set_aside VALUES (?, ?, ?, ?, ?, ?, ?, ?)", row)

    def _store_cursors(self, con: duckdb.DuckDBPyConnection, work: _Work, now_us: int) -> None:
        keys = list(work.seqs)
        newest = [_last_of(work, key) if key in work.spans else None for key in keys]
        table = pa.table(
            {
                "node_id": pa.array([node for node, _, _ in keys], pa.string()),
                "epoch": pa.array([epoch for _, epoch, _ in keys], pa.int64()),
                "lane": pa.array([lane for _, _, lane in keys], pa.string()),
                "seq": pa.array([work.seqs[key] for key in keys], pa.int64()),
                "committed_utc": pa.array([now_us] * len(keys), pa.timestamp("us")),
                "newest_utc": pa.array(newest, pa.timestamp("us")),
            }
        )
        con.register("cursor_in", table)
        try:
            con.execute(load("statements/cursor_upsert"))
        finally:
            con.unregister("cursor_in")


def _lane(batch: Batch) -> LaneKey:
    return (batch.header.node_id, batch.header.epoch, batch.header.lane)


def _last_of(work: _Work, key: LaneKey) -> int:
    return max(last for _, _, last in work.spans[key])


def _plain(samples: pa.Table, rows: columnar.IntArray, most: int) -> list[dict[str, Any]]:
    found = samples.take(pa.array(rows[:most]))
    # Python cannot hold every time that the wire can.
    stamps = found["ts_utc"].cast("int64")
    found = found.set_column(found.column_names.index("ts_utc"), "ts_utc_us", stamps)
    values: list[dict[str, Any]] = found.to_pylist()
    return values
