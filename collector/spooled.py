"""What lies in the spool: ticks, facts and batches."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import msgspec

from idlewatt.errors import StoreError
from idlewatt.model import Lane
from idlewatt.units import US_PER_S

BUSY_TIMEOUT_S: Final = 5.0
# The tables of the file; `tick` and `batch` hold what is not yet acknowledged.
SCHEMA: Final = (
    "CREATE TABLE meta(key TEXT PRIMARY KEY, value) WITHOUT ROWID",
    "CREATE TABLE tick(id INTEGER PRIMARY KEY, epoch INT, ts_us INT, n INT, body BLOB)",
    "CREATE UNIQUE INDEX tick_time ON tick(ts_us, epoch)",
    "CREATE TABLE fact(id INTEGER PRIMARY KEY, name TEXT, body BLOB)",
    "CREATE TABLE lane(epoch INT, lane TEXT, last_seq INT, PRIMARY KEY(epoch, lane))",
    "CREATE TABLE batch(epoch INT, lane TEXT, seq INT, first_us INT, last_us INT, n INT,"
    " body BLOB, PRIMARY KEY(epoch, lane, seq))",
    "CREATE TABLE quarantine(id INTEGER PRIMARY KEY, epoch INT, lane TEXT, seq INT,"
    " reason TEXT, created_us INT, body BLOB)",
)
_decode = msgspec.msgpack.Decoder().decode


class SpoolDamagedError(StoreError):
    """The spool file cannot be read as SQLite any more."""


@dataclass(frozen=True, slots=True)
class Tick:
    """One spooled second."""

    id: int
    epoch: int
    ts_us: int
    body: bytes

    @property
    def rows(self) -> list[list[Any]]:
        """Return its samples in the order of `columns.GPU_SAMPLE`."""
        rows: list[list[Any]] = _decode(self.body)
        return rows


@dataclass(frozen=True, slots=True)
class Fact:
    """Rows of a table other than gpu_sample, waiting for the next batch."""

    id: int
    name: str
    rows: list[list[Any]]


@dataclass(frozen=True, slots=True)
class StoredBatch:
    """A batch that waits for the server's acknowledgement; its body never changes."""

    epoch: int
    lane: Lane
    seq: int
    first_us: int
    last_us: int
    rows: int
    body: bytes


@dataclass(frozen=True, slots=True)
class Backlog:
    """What still waits in the spool."""

    ticks: int
    batches: int
    quarantined: int
    oldest_us: int | None


def gap_row(
    node_id: str, from_us: int, to_us: int, reason: str, detail: str | None = None
) -> tuple[Any, ...]:
    """Return a row of the gap table that concerns the whole node."""
    return (node_id, None, from_us, to_us, reason, None, detail)


def stretches(times_us: Iterable[int]) -> list[tuple[int, int]]:
    """Return (first, last) of each run of successive seconds."""
    runs: list[tuple[int, int]] = []
    for ts_us in sorted(times_us):
        if runs and ts_us <= runs[-1][1] + US_PER_S:
            runs[-1] = (runs[-1][0], ts_us)
        else:
            runs.append((ts_us, ts_us))
    return runs


def open_file(path: Path) -> sqlite3.Connection:
    """Return a connection to a file that only its owner may read; folder and file are made.

    A folder that is there already keeps its rights: others may use it too. A file that is there is
    not opened here: closing it would drop the locks that SQLite holds for this process's other
    connections.
    """
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with suppress(FileExistsError):
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
    if path.stat().st_mode & 0o077:
        with suppress(PermissionError):  # it belongs to somebody else
            path.chmod(0o600)
    return sqlite3.connect(
        path, timeout=BUSY_TIMEOUT_S, isolation_level=None, check_same_thread=False
    )


def check_schema(con: sqlite3.Connection, path: Path) -> None:
    """Make sure of the tables.

    Raises:
        SpoolDamagedError: it is a database, and not a spool.
    """
    found = {row[0] for row in con.execute("SELECT sql FROM sqlite_master")}
    if not found.issuperset(SCHEMA):
        raise SpoolDamagedError(f"{path} is a database, but not a spool")


@contextmanager
def damage(path: Path) -> Iterator[None]:
    """Give what SQLite says about a damaged file its own name; what passes stays as it is."""
    try:
        yield
    except sqlite3.OperationalError as exc:
        if str(exc).startswith("no such "):  # the file was exchanged for another one
            raise SpoolDamagedError(f"spool {path} is damaged: {exc}") from exc
        raise  # busy, disk full: passes
    except sqlite3.DatabaseError as exc:
        if isinstance(exc, sqlite3.IntegrityError):
            raise
        raise SpoolDamagedError(f"spool {path} is damaged: {exc}") from exc
