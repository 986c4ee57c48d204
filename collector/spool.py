"""The spool: every sample is on the node's disk before it is sent.

One SQLite file in WAL mode, opened by the poller (which appends ticks) and by the shipper's lanes
(which turn ticks into batches, and forget batches once the server has them). Each step is one
transaction, so that a kill at any moment loses nothing that was spooled and sends nothing twice.

A batch is formed only when its lane is free, and its body never changes afterwards. Forming syncs
the disk (`synchronous=FULL`): a sequence number that the server may have seen must never be used
again for other rows, not even after a power cut. Everything else runs with `NORMAL`.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from collector import facts as known
from collector.spooled import (
    SCHEMA,
    Backlog,
    Fact,
    SpoolDamagedError,
    StoredBatch,
    Tick,
    check_schema,
    damage,
    gap_row,
    open_file,
    stretches,
)
from idlewatt.errors import StoreError
from idlewatt.model import Lane
from idlewatt.units import MIB, US_PER_MS

if TYPE_CHECKING:
    from collections.abc import Iterator

FILE_NAME: Final = "spool.db"
SCHEMA_VERSION: Final = 1
QUARANTINE_SHARE: Final = 4  # of the spool's size; the newest are kept
# The supervisor checkpoints long before that; this bounds the log when it does not.
AUTOCHECKPOINT_PAGES: Final = 16_384
EXIT_SPOOL_DAMAGED: Final = 7  # exit code of a process that found the spool damaged
_TRIM_TO: Final = 0.95
_INSERT_FACT: Final = "INSERT INTO fact(name, body) VALUES (?,?)"

Row = Sequence[Any]
Facts = dict[str, list[tuple[Any, ...]]]

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder().decode


class Spool:
    """One connection to the spool; each thread opens its own.

    Args:
        folder: where the file lives; made if it is not there.
        max_mib: size from which the oldest unsent ticks go.

    Raises:
        SpoolDamagedError: the file is not a readable SQLite database.
        StoreError: the folder cannot be used, or a newer idlewatt wrote the file.
    """

    def __init__(self, folder: Path, max_mib: int = 1024) -> None:
        self.path = folder / FILE_NAME
        self._max_bytes = max_mib * MIB
        try:
            self._con = open_file(self.path)
        except (OSError, sqlite3.Error) as exc:
            raise StoreError(f"spool {folder} cannot be used: {exc}; set agent.spool_dir") from exc
        try:
            with damage(self.path):
                self._prepare()
        except BaseException:
            self._con.close()
            raise

    def _prepare(self) -> None:
        for pragma in ("journal_mode=WAL", "synchronous=NORMAL", "cache_size=-512"):
            self._con.execute(f"PRAGMA {pragma}")
        self._con.execute(f"PRAGMA journal_size_limit={8 * MIB}")
        self._con.execute(f"PRAGMA wal_autocheckpoint={AUTOCHECKPOINT_PAGES}")
        with self._transaction():
            version = self._value("PRAGMA user_version")
            if version > SCHEMA_VERSION:
                raise StoreError(
                    f"spool {self.path} has version {version}, this idlewatt knows up to"
                    f" {SCHEMA_VERSION}; upgrade, or move the file away"
                )
            if version == 0 and self._value("SELECT count(*) FROM sqlite_master") == 0:
                for statement in (*SCHEMA, f"PRAGMA user_version={SCHEMA_VERSION}"):
                    self._con.execute(statement)
            check_schema(self._con, self.path)

    def close(self) -> None:
        """Close the connection."""
        self._con.close()

    def check(self) -> None:
        """Read every page once.

        Raises:
            SpoolDamagedError: SQLite finds the file damaged.
        """
        with damage(self.path):
            answer = self._value("PRAGMA quick_check(1)")
            if answer != "ok":
                raise SpoolDamagedError(f"spool {self.path} is damaged: {answer}")

    def checkpoint(self) -> bool:
        """Move the log into the file; return whether all of it was moved.

        Nobody is kept waiting: what others still use stays in the log until the next time.
        """
        with damage(self.path):
            busy, logged, moved = self._con.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
            return bool(busy == 0 and logged == moved)

    def begin_epoch(self, now_us: int) -> int:
        """Return a new epoch, greater than each before, and persist it."""
        with damage(self.path), self._transaction():
            last = int(self._meta("epoch") or 0)
            epoch = max(now_us // US_PER_MS, last + 1)
            self._put("epoch", epoch)
            return epoch

    def last_tick_us(self) -> int | None:
        """Return the newest nominal second ever spooled."""
        with damage(self.path):
            return _maybe_int(self._meta("last_tick_us"))

    def state(self, key: str) -> Any:
        """Return a value kept with `append(state=...)`, or None."""
        with damage(self.path):
            body = self._meta(f"state.{key}")
            return None if body is None else _decode(body)

    def keep(self, key: str, value: Any) -> None:
        """Keep a value for `state(key)`."""
        with damage(self.path), self._transaction():
            self._put(f"state.{key}", _encode(value))

    def append(
        self,
        epoch: int,
        ts_us: int,
        rows: Sequence[Row],
        facts: Facts | None = None,
        state: dict[str, Any] | None = None,
    ) -> None:
        """Add one second, the facts found in it and the sampler's state, in one transaction."""
        with damage(self.path), self._transaction():
            if rows:
                self._con.execute(
                    "INSERT INTO tick(epoch, ts_us, n, body) VALUES (?,?,?,?)",
                    (epoch, ts_us, len(rows), _encode(rows)),
                )
            self._put("last_tick_us", ts_us)
            self._insert_facts(facts or {})
            for key, value in (state or {}).items():
                self._put(f"state.{key}", _encode(value))

    def add_facts(self, facts: Facts) -> None:
        """Add rows of tables other than gpu_sample; they travel with the next batch."""
        with damage(self.path), self._transaction():
            self._insert_facts(facts)

    def forget_facts(self) -> None:
        """Forget what was known beside the samples: a poller that starts tells it anew."""
        with damage(self.path), self._transaction():
            known.forget_all(self._con)

    def repeat_facts(self) -> int:
        """Let everything known beside the samples travel once more; return how many rows."""
        count = 0
        with damage(self.path), self._transaction():
            for name, rows in list(known.repeat(self._con)):
                self._con.execute(_INSERT_FACT, (name, _encode(rows)))
                count += len(rows)
        return count

    def size_bytes(self) -> int:
        """Return the bytes in use, free pages not counted."""
        with damage(self.path):
            pages = self._value("PRAGMA page_count") - self._value("PRAGMA freelist_count")
            return int(pages * self._value("PRAGMA page_size"))

    def trim(self, node_id: str) -> int:
        """Drop the oldest unsent ticks while the spool is over its size; return how many.

        What goes is declared as gaps in the same transaction.
        """
        dropped = 0
        if self.size_bytes() <= self._max_bytes:
            return dropped
        while self.size_bytes() > self._max_bytes * _TRIM_TO:
            with damage(self.path), self._transaction():
                waiting = self._value("SELECT count(*) FROM tick")
                held = self._value("SELECT coalesce(sum(length(body)), 0) FROM quarantine")
                if self._thin_quarantine(held // 2):
                    continue  # refused for good and declared: it goes before what may yet be sent
                if waiting == 0:
                    break
                oldest = self._con.execute(
                    "SELECT id, ts_us FROM tick ORDER BY ts_us LIMIT ?", (max(waiting // 20, 1),)
                ).fetchall()
                self._delete("tick", [row[0] for row in oldest])
                gaps = [
                    gap_row(node_id, first, last, "spool_full", "oldest unsent seconds dropped")
                    for first, last in stretches([row[1] for row in oldest])
                ]
                self._insert_facts({"gap": gaps})
                dropped += len(oldest)
        return dropped

    def outstanding(self, lane: Lane) -> StoredBatch | None:
        """Return the lane's oldest batch that is not acknowledged."""
        with damage(self.path):
            row = self._con.execute(
                "SELECT epoch, lane, seq, first_us, last_us, n, body FROM batch"
                " WHERE lane = ? ORDER BY epoch, seq LIMIT 1",
                (lane.value,),
            ).fetchone()
        return None if row is None else StoredBatch(row[0], Lane(row[1]), *row[2:])

    def waiting(self, lane: Lane, live_from_us: int, limit: int) -> list[Tick]:
        """Return up to `limit` ticks for the lane, oldest first, all of one epoch."""
        compare = ">=" if lane is Lane.LIVE else "<"
        query = f"SELECT id, epoch, ts_us, body FROM tick WHERE ts_us {compare} ?"  # noqa: S608
        with damage(self.path):
            rows = self._con.execute(
                query + " ORDER BY ts_us, epoch LIMIT ?", (live_from_us, limit)
            ).fetchall()
        ticks = [Tick(*row) for row in rows]
        return [tick for tick in ticks if tick.epoch == ticks[0].epoch]

    def facts(self, limit: int = 2_000) -> list[Fact]:
        """Return the oldest facts that wait for a batch."""
        with damage(self.path):
            rows = self._con.execute(
                "SELECT id, name, body FROM fact ORDER BY id LIMIT ?", (limit,)
            ).fetchall()
        return [Fact(number, name, _decode(body)) for number, name, body in rows]

    def epoch(self) -> int | None:
        """Return the newest epoch."""
        with damage(self.path):
            return _maybe_int(self._meta("epoch"))

    def form(
        self,
        lane: Lane,
        epoch: int,
        ticks: Sequence[Tick],
        facts: Sequence[Fact],
        encode: Callable[[int], bytes],
    ) -> StoredBatch | None:
        """Turn ticks and facts into the lane's next batch, in one synced transaction.

        Args:
            lane: lane of the batch.
            epoch: epoch of the batch.
            ticks: what goes into it.
            facts: what travels along.
            encode: returns the body for a sequence number; must be quick, the lock is held.

        Returns:
            The batch, or None if somebody else took some of it meanwhile.
        """
        times = [tick.ts_us for tick in ticks]
        first_us, last_us = (min(times), max(times)) if times else (0, 0)
        self._con.execute("PRAGMA synchronous=FULL")
        try:
            with damage(self.path), self._transaction():
                seq = self._next_seq(epoch, lane)
                batch = StoredBatch(epoch, lane, seq, first_us, last_us, len(ticks), encode(seq))
                taken = self._delete("tick", [tick.id for tick in ticks])
                taken += self._delete("fact", [fact.id for fact in facts])
                if taken != len(ticks) + len(facts):
                    raise _TakenError
                self._con.execute(
                    "INSERT INTO batch VALUES (?,?,?,?,?,?,?)",
                    (epoch, lane.value, seq, first_us, last_us, len(ticks), batch.body),
                )
                return batch
        except _TakenError:
            return None
        finally:
            self._con.execute("PRAGMA synchronous=NORMAL")

    def discard(self, node_id: str, ticks: Sequence[Tick], facts: Sequence[Fact]) -> None:
        """Drop what can never be sent, and declare the seconds."""
        with damage(self.path), self._transaction():
            self._delete("tick", [tick.id for tick in ticks])
            self._delete("fact", [fact.id for fact in facts])
            gaps = [
                gap_row(node_id, first, last, "unpackable", "seconds that no batch can hold")
                for first, last in stretches([tick.ts_us for tick in ticks])
            ]
            self._insert_facts({"gap": gaps})

    def acknowledge(self, batch: StoredBatch) -> None:
        """Forget a batch: the server has it."""
        with damage(self.path), self._transaction():
            self._forget(batch)

    def quarantine(self, batch: StoredBatch, node_id: str, reason: str, now_us: int) -> None:
        """Put a batch that the server will never take aside, and declare the hole it leaves."""
        with damage(self.path), self._transaction():
            self._forget(batch)
            self._con.execute(
                "INSERT INTO quarantine(epoch, lane, seq, reason, created_us, body)"
                " VALUES (?,?,?,?,?,?)",
                (batch.epoch, batch.lane.value, batch.seq, reason, now_us, batch.body),
            )
            self._thin_quarantine(self._max_bytes // QUARANTINE_SHARE)
            if batch.rows:
                gap = gap_row(node_id, batch.first_us, batch.last_us, "quarantined", reason)
                self._insert_facts({"gap": [gap]})

    def _thin_quarantine(self, most_bytes: int) -> int:
        """Drop the oldest batches put aside until `most_bytes` are left; return how many went."""
        query = "SELECT id, sum(length(body)) OVER (ORDER BY id DESC) FROM quarantine"
        found = self._con.execute(query).fetchall()
        return self._delete("quarantine", [number for number, size in found if size > most_bytes])

    def quarantined(self) -> list[tuple[int, str, int, str]]:
        """Return (epoch, lane, seq, reason) of the batches put aside."""
        with damage(self.path):
            return self._con.execute(
                "SELECT epoch, lane, seq, reason FROM quarantine ORDER BY id"
            ).fetchall()

    def backlog(self) -> Backlog:
        """Return what still waits."""
        with damage(self.path):
            ticks, oldest = self._con.execute("SELECT count(*), min(ts_us) FROM tick").fetchone()
            batches = self._value("SELECT count(*) FROM batch")
            return Backlog(ticks, batches, self._value("SELECT count(*) FROM quarantine"), oldest)

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        self._con.execute("BEGIN IMMEDIATE")
        try:
            yield
            self._con.execute("COMMIT")
        except BaseException:
            if self._con.in_transaction:
                self._con.execute("ROLLBACK")
            raise

    def _value(self, query: str) -> Any:
        return self._con.execute(query).fetchone()[0]

    def _meta(self, key: str) -> Any:
        row = self._con.execute("SELECT value FROM meta WHERE key = ?", (key,)).fetchone()
        return None if row is None else row[0]

    def _put(self, key: str, value: Any) -> None:
        self._con.execute("INSERT OR REPLACE INTO meta VALUES (?,?)", (key, value))

    def _insert_facts(self, facts: Facts) -> None:
        known.remember(self._con, facts)
        for name, rows in facts.items():
            if rows:
                self._con.execute(_INSERT_FACT, (name, _encode(rows)))

    def _delete(self, table: str, ids: Sequence[int]) -> int:
        query = f"DELETE FROM {table} WHERE id = ?"  # noqa: S608  # table is one of our two
        return self._con.executemany(query, [(number,) for number in ids]).rowcount if ids else 0

    def _next_seq(self, epoch: int, lane: Lane) -> int:
        row = self._con.execute(
            "SELECT last_seq FROM lane WHERE epoch = ? AND lane = ?", (epoch, lane.value)
        ).fetchone()
        seq = 1 if row is None else int(row[0]) + 1
        self._con.execute("INSERT OR REPLACE INTO lane VALUES (?,?,?)", (epoch, lane.value, seq))
        return seq

    def _forget(self, batch: StoredBatch) -> None:
        self._con.execute(
            "DELETE FROM batch WHERE epoch = ? AND lane = ? AND seq = ?",
            (batch.epoch, batch.lane.value, batch.seq),
        )


def _maybe_int(value: Any) -> int | None:
    return None if value is None else int(value)


class _TakenError(Exception):
    """Another lane took a tick first."""
