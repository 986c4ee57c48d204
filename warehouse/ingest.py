"""Batches in, exactly once: check, group, commit, acknowledge.

::

    ingestor = Ingestor(store)
    future = ingestor.submit(body, node_id="node-1")     # node_id: whose token it came with
    ack = future.result()                                # after commit
    ingestor.close()

All waiting batches go into one transaction, at most every `server.commit_ms`. The last committed
seq of each (node, epoch, lane) is written in that same transaction, so a batch that arrives again
after any crash is acknowledged and not stored twice.
"""

from __future__ import annotations

import itertools
import logging
import re
import shutil
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Final

import duckdb

from idlewatt.errors import AuthError, IdlewattError, UnavailableError, WireError
from idlewatt.model import Lane
from idlewatt.units import MIB
from idlewatt.wire import Batch, claimed_bytes, decode_batch
from warehouse.commit import Committer, Outcome
from warehouse.metrics import Metrics
from warehouse.store import Store

log = logging.getLogger(__name__)

_NODE_ID: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:@-]{0,127}")
MAX_WAITING_BYTES: Final = 512 * MIB  # unpacked
MAX_WAITING: Final = 10_000
MAX_LIVE_TABLES: Final = 200  # from here on history waits for the sealer
MAX_GIVEN_UP: Final = 1_000_000
BIG_BATCH: Final = 256 << 10
_GROUP_ROWS: Final = 200_000
_BACKFILL_ROWS: Final = 20_000
_ENOUGH_ROWS: Final = 2_000
_DISK_CHECK_S: Final = 2.0


@dataclass(frozen=True, slots=True)
class Ack:
    """What the node is told after commit."""

    acked: int
    duplicate: bool
    flush_s: float


@dataclass(slots=True)
class Item:
    """A batch that waits for its commit."""

    batch: Batch
    size: int
    raw_size: int
    given_up: tuple[int, int] | None
    future: Future[Ack] = field(default_factory=Future)


class Ingestor:
    """Takes encoded batches; one per store.

    Attributes:
        metrics: counters, shared with the API.
    """

    def __init__(
        self,
        store: Store,
        metrics: Metrics | None = None,
        free_bytes: Callable[[], int] | None = None,
    ) -> None:
        self._store = store
        self.metrics = metrics or Metrics()
        self._free_bytes = free_bytes or (lambda: shutil.disk_usage(store.data_dir).free)
        self._min_free = store.settings.integer("server.min_free_mib") * MIB
        self._linger_s = store.settings.integer("server.commit_ms") / 1e3
        self._committer = store.write(lambda con: Committer(con, store))
        self._wake = threading.Condition()
        # Live batches first: history never delays the current second.
        self._live: deque[Item] = deque()
        self._backfill: deque[Item] = deque()
        self._waiting_bytes = 0
        self._closed = False
        self._disk_checked = float("-inf")
        self._disk_low = False
        self._last_commit = float("-inf")
        self._thread = threading.Thread(target=self._run, name="ingest", daemon=True)
        self._thread.start()

    @property
    def newest_us(self) -> int | None:
        """Return the newest `ts_utc` ever committed, in µs; None where there is none.

        A stamp ahead of this machine's clock counts as the moment it arrived.
        """
        return self._committer.newest_us

    def clocks_ahead(self) -> dict[str, int]:
        """Return which nodes heard of lately have stamps ahead of this machine, by how many µs."""
        return self._committer.clocks_ahead()

    @property
    def superseded(self) -> int:
        """Return how many rows lost against another epoch since start."""
        return self._committer.superseded

    @property
    def unknown(self) -> int:
        """Return how many kinds of unknown tables and columns were seen since start."""
        return len(self._committer.unknown_seen)

    @property
    def disk_low(self) -> bool:
        """Return True if the disk has less free space than `server.min_free_mib`."""
        now = time.monotonic()
        if now - self._disk_checked >= _DISK_CHECK_S:
            self._disk_low = self._free_bytes() < self._min_free
            self._disk_checked = now
        return self._disk_low

    def flush_s(self) -> float:
        """Return the batching interval that the server wants of its agents."""
        return 1.0 if self._committer.active_nodes() <= 100 else 5.0

    def submit(
        self,
        body: bytes,
        node_id: str | None = None,
        given_up: tuple[int, int] | None = None,
    ) -> Future[Ack]:
        """Return a future of the acknowledgement, done after commit.

        The future raises WireError (malformed), AuthError (a batch of another node),
        SequenceError (a batch before it is missing) or UnavailableError (try later).

        Args:
            body: the encoded batch.
            node_id: the node whose token it came with; None trusts the batch's own word.
            given_up: first and last seq that the node declares lost.
        """
        try:
            raw = claimed_bytes(body)
            self._reserve(raw)
            try:
                item = Item(self._check(body, node_id), len(body), raw, given_up)
                self._enqueue(item)
            except BaseException:
                self._release(raw)
                raise
        except IdlewattError as exc:
            self.metrics.rejected(type(exc).__name__)
            failed: Future[Ack] = Future()
            failed.set_exception(exc)
            return failed
        return item.future

    def close(self) -> None:
        """Commit what waits and stop."""
        with self._wake:
            self._closed = True
            self._wake.notify()
        self._thread.join()

    def _check(self, body: bytes, node_id: str | None) -> Batch:
        batch = decode_batch(body)
        header = batch.header
        if not _NODE_ID.fullmatch(header.node_id):
            raise WireError("node_id holds characters other than letters, digits and ._:@-")
        if header.seq >= 1 << 62 or header.epoch >= 1 << 62:
            raise WireError("seq or epoch is absurdly large")
        if node_id is not None and header.node_id != node_id:
            raise AuthError(f"this token belongs to another node than {header.node_id!r}")
        self._committer.check_rows(batch)
        return batch

    def _reserve(self, size: int) -> None:
        """Count a batch among those that wait, by its unpacked size, before it is unpacked."""
        with self._wake:
            if self._waiting_bytes + size > MAX_WAITING_BYTES:
                raise UnavailableError("too many batches wait for their commit", 429, 2)
            self._waiting_bytes += size

    def _release(self, size: int) -> None:
        with self._wake:
            self._waiting_bytes -= size

    def _enqueue(self, item: Item) -> None:
        if self.disk_low:
            raise UnavailableError("the server's disk is nearly full", 507, 60)
        with self._wake:
            if self._closed:
                raise UnavailableError("the server is shutting down", 503, 5)
            if len(self._live) + len(self._backfill) >= MAX_WAITING:
                raise UnavailableError("too many batches wait for their commit", 429, 2)
            backfill = item.batch.header.lane == Lane.BACKFILL
            if backfill and len(self._store.layout.live) >= MAX_LIVE_TABLES:
                raise UnavailableError("too many hours wait to be sealed", 503, 10)
            lane = self._live if item.batch.header.lane == Lane.LIVE else self._backfill
            lane.append(item)
            self._wake.notify()

    def _run(self) -> None:
        while group := self._next_group():
            started = time.monotonic()
            self._last_commit = started
            self._commit(group)
            self.metrics.commit_s.observe(time.monotonic() - started)

    def _next_group(self) -> list[Item]:
        """Return batches for one transaction; empty when closed and nothing waits."""
        with self._wake:
            while not self._live and not self._backfill and not self._closed:
                self._wake.wait()
            rest = self._last_commit + self._linger_s - time.monotonic()
            while rest > 0 and not self._closed and not self._worth_a_commit():
                self._wake.wait(rest)
                rest = self._last_commit + self._linger_s - time.monotonic()
            group = self._take(self._live, _GROUP_ROWS)
            return group + self._take(self._backfill, _BACKFILL_ROWS)

    def _take(self, lane: deque[Item], most_rows: int) -> list[Item]:
        """Return the first batches of a lane, at least one if there is one."""
        group: list[Item] = []
        rows = 0
        while lane and (not group or rows + _rows(lane[0].batch) <= most_rows):
            item = lane.popleft()
            self._waiting_bytes -= item.raw_size
            rows += _rows(item.batch)
            group.append(item)
        return group

    def _worth_a_commit(self) -> bool:
        """Return True if so many rows wait that lingering gains nothing."""
        waiting = itertools.chain(self._live, self._backfill)
        return sum(_rows(item.batch) for item in waiting) >= _ENOUGH_ROWS

    def _commit(self, group: list[Item]) -> None:
        try:
            outcomes = self._store.write(
                lambda con: self._committer.commit(
                    con, [(item.batch, item.given_up) for item in group]
                )
            )
        except Exception as exc:
            if len(group) > 1:
                # One bad batch must not hold up the others.
                for item in group:
                    self._commit([item])
                return
            self._fail(group[0], exc)
            return
        self._committer.committed()
        flush_s = self.flush_s()
        for item, outcome in zip(group, outcomes, strict=True):
            self._answer(item, outcome, flush_s)

    def _answer(self, item: Item, outcome: Outcome, flush_s: float) -> None:
        if not item.future.set_running_or_notify_cancel():
            return
        if outcome.error is not None:
            self.metrics.rejected(type(outcome.error).__name__)
            item.future.set_exception(outcome.error)
            return
        self.metrics.committed(outcome, item.size)
        item.future.set_result(Ack(outcome.acked, outcome.duplicate, flush_s))

    def _fail(self, item: Item, exc: Exception) -> None:
        self._committer.rolled_back()
        key = item.batch.header.key
        if isinstance(exc, (duckdb.DataError, duckdb.IntegrityError)) and not isinstance(
            exc, duckdb.OutOfRangeException
        ):
            error: IdlewattError = WireError(f"batch {key} cannot be stored: {exc}")
        elif isinstance(exc, IdlewattError):
            error = exc
        else:
            error = UnavailableError("the batch could not be committed; try again", 503, 5)
        log.error("batch=%s msg=%r error=%r", key, "commit failed", str(exc))
        self.metrics.rejected(type(error).__name__)
        if item.future.set_running_or_notify_cancel():
            item.future.set_exception(error)


def _rows(batch: Batch) -> int:
    return sum(table.rows for table in batch.tables.values())


def is_big(body: bytes) -> bool:
    """Return True if a batch should be decoded beside the event loop, by its unpacked size."""
    try:
        return claimed_bytes(body) > BIG_BATCH
    except WireError:
        return False  # refused at once


def parse_given_up(text: str) -> tuple[int, int]:
    """Return first and last seq from the `Idlewatt-Given-Up` header.

    Raises:
        WireError: it is not `<first>-<last>` with 1 <= first <= last.
    """
    first, _, last = text.strip().partition("-")
    if not (first.isdecimal() and last.isdecimal() and len(text) <= 40):
        raise WireError(f"Idlewatt-Given-Up is {text[:40]!r}, not <first>-<last>")
    if not 1 <= int(first) <= int(last):
        raise WireError("Idlewatt-Given-Up needs 1 <= first <= last")
    if int(last) - int(first) >= MAX_GIVEN_UP:
        raise WireError(f"Idlewatt-Given-Up may name {MAX_GIVEN_UP} batches at most")
    return int(first), int(last)
