"""Which live tables and segment files make up `gpu_sample`, and what start-up checks of them."""

from __future__ import annotations

import datetime as dt
import hashlib
import logging
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import duckdb

from idlewatt.clock import Clock, us_from_utc, utc_from_us
from warehouse import schema
from warehouse.queries import load
from warehouse.schema import parquet_list, rows_of

log = logging.getLogger(__name__)

DRAFT: Final = ".part"  # ending of a file that is being written


def naive(value_us: int) -> dt.datetime:
    """Return the naive UTC datetime that DuckDB's TIMESTAMP takes."""
    return utc_from_us(value_us).replace(tzinfo=None)


@dataclass(frozen=True, slots=True)
class LiveTable:
    """A table that holds rows of one hour; a frozen one waits to become a segment."""

    name: str
    hour_us: int
    generation: int
    frozen: bool = False
    revision: int = 0


@dataclass(frozen=True, slots=True)
class Segment:
    """A catalogued Parquet file; `path` is relative to the folder of its table."""

    path: str
    hour_us: int
    rows: int
    max_ts_us: int
    min_gpu_uuid: str
    max_gpu_uuid: str
    size_bytes: int
    sha256: str


class Layout:
    """The writer's picture of `live_table` and `segment`.

    Attributes:
        root: folder of the segments of `gpu_sample`.
        live: live tables by name.
        segments: usable segments by path.
        last_write_us: when each live table last took rows, as far as this process saw.
        news: segments left out in this transaction, one sentence each.

    Methods that take a connection run on the writer thread, inside its transaction. The store
    calls `finish` before it commits and `load` after it rolled back.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self.live: dict[str, LiveTable] = {}
        self.segments: dict[str, Segment] = {}
        self.last_write_us: dict[str, int] = {}
        self.news: list[str] = []
        self._change_seq = 0
        self._dirty = False

    def load(self, con: duckdb.DuckDBPyConnection) -> None:
        """Read everything anew from the database."""
        self.live = {
            name: LiveTable(name, us_from_utc(hour), generation, frozen, revision)
            for name, hour, generation, frozen, revision in rows_of(
                con, "SELECT name, hour_utc, generation, frozen, revision FROM live_table"
            )
        }
        self.segments = {
            row[0]: Segment(row[0], us_from_utc(row[1]), row[2], us_from_utc(row[3]), *row[4:])
            for row in rows_of(con, load("statements/segments_usable"))
        }
        newest = rows_of(con, "SELECT coalesce(max(change_seq), 0) FROM hour_change")
        self._change_seq = int(newest[0][0])
        self.news = []
        self._dirty = False

    def live_names(self) -> list[str]:
        """Return the live tables, oldest hour first."""
        return sorted(self.live)

    def segment_paths(self) -> list[str]:
        """Return the absolute paths of the usable segments, oldest hour first."""
        return [str(self.root / path) for path in sorted(self.segments)]

    def live_of(self, hour_us: int) -> list[LiveTable]:
        """Return the live tables of an hour."""
        return [table for table in self.live.values() if table.hour_us == hour_us]

    def segments_of(self, hour_us: int) -> list[Segment]:
        """Return the segments of an hour."""
        return [segment for segment in self.segments.values() if segment.hour_us == hour_us]

    def open_table(self, con: duckdb.DuckDBPyConnection, hour_us: int) -> LiveTable:
        """Return the hour's table that takes rows, made if there is none."""
        tables = self.live_of(hour_us)
        for table in tables:
            if not table.frozen:
                return table
        generation = max((table.generation for table in tables), default=0) + 1
        name = f"live_{utc_from_us(hour_us):%Y%m%d%H}_{generation}"
        con.execute(f"CREATE TABLE {name} AS SELECT * FROM gpu_sample_none")  # noqa: S608
        con.execute(
            "INSERT INTO live_table VALUES (?, ?, ?, false, 0)", [name, naive(hour_us), generation]
        )
        self.live[name] = table = LiveTable(name, hour_us, generation)
        self._dirty = True
        return table

    def freeze(self, con: duckdb.DuckDBPyConnection, name: str) -> LiveTable:
        """Return the table, frozen: later rows of its hour go to a further generation."""
        return self._alter(con, name, frozen=True)

    def touch_frozen(self, con: duckdb.DuckDBPyConnection, name: str) -> None:
        """Note that a frozen table lost rows, so that a copy under way is thrown away."""
        self._alter(con, name, frozen=self.live[name].frozen)

    def _alter(self, con: duckdb.DuckDBPyConnection, name: str, *, frozen: bool) -> LiveTable:
        old = self.live[name]
        table = LiveTable(name, old.hour_us, old.generation, frozen, old.revision + 1)
        con.execute(
            "UPDATE live_table SET frozen = ?, revision = ? WHERE name = ?",
            [frozen, table.revision, name],
        )
        self.live[name] = table
        self._dirty = True
        return table

    def drop_table(self, con: duckdb.DuckDBPyConnection, name: str) -> None:
        """Drop a live table."""
        con.execute("DELETE FROM live_table WHERE name = ?", [name])
        con.execute(f"DROP TABLE {name}")
        del self.live[name]
        self.last_write_us.pop(name, None)
        self._dirty = True

    def add_segment(
        self, con: duckdb.DuckDBPyConnection, segment: Segment, row: dict[str, Any]
    ) -> None:
        """Catalogue a segment file; `row` holds its catalogue columns."""
        con.execute(load("statements/segment_insert"), row)
        self.segments[segment.path] = segment
        self._dirty = True

    def retire_segment(self, con: duckdb.DuckDBPyConnection, path: str, now_us: int) -> None:
        """Take a segment out of the catalogue; its file is unlinked much later."""
        con.execute("DELETE FROM segment WHERE path = ?", [path])
        con.execute("INSERT INTO retired_file VALUES (?, ?)", [path, naive(now_us)])
        del self.segments[path]
        self._dirty = True

    def leave_out(self, con: duckdb.DuckDBPyConnection, path: str, problem: str) -> None:
        """Keep a segment in the catalogue with its problem, but out of every answer."""
        con.execute("UPDATE segment SET problem = ? WHERE path = ?", [problem, path])
        del self.segments[path]
        self._dirty = True

    def leave_out_broken(
        self, con: duckdb.DuckDBPyConnection, named: Collection[str] = ()
    ) -> list[str]:
        """Leave out segments whose file is gone or of another size; return their paths.

        The files `named` are also read and compared with their checksum.
        """
        broken = []
        for segment in list(self.segments.values()):
            file = self.root / segment.path
            problem = _problem(file, segment.size_bytes)
            if problem is None and segment.path in named:
                problem = content_problem(digest_of(file), segment.sha256)
            if problem is not None:
                self.leave_out(con, segment.path, problem)
                self.news.append(left_out(segment.path, problem))
                broken.append(segment.path)
        return broken

    def next_change(self) -> int:
        """Return the next number of the counter behind `hour_change`."""
        self._change_seq += 1
        return self._change_seq

    def finish(self, con: duckdb.DuckDBPyConnection) -> None:
        """Write the view anew where tables or segments changed; call before COMMIT."""
        if self._dirty:
            self.leave_out_broken(con)
            schema.create_sample_view(con, self.live_names(), self.segment_paths())
            self._dirty = False


def verify_segments(con: duckdb.DuckDBPyConnection, root: Path) -> list[str]:
    """Mark segments that are missing or of another size; return one sentence for each.

    A file that is right again later, by its checksum too, is used again. The checksums of the
    others are looked at in the background, see `warehouse.verify`.
    """
    problems = []
    catalogue = rows_of(con, "SELECT path, size_bytes, sha256, problem FROM segment")
    for path, size, digest, before in catalogue:
        problem = _problem(root / path, size)
        if before and problem is None:
            problem = content_problem(digest_of(root / path), digest)
        if before and problem is None and _arrived_anew(con, root, path):
            problem = "its rows arrived anew meanwhile"
        if problem != before:
            con.execute("UPDATE segment SET problem = ? WHERE path = ?", [problem, path])
        if problem:
            problems.append(left_out(path, problem))
    return problems


def left_out(path: str, problem: str) -> str:
    """Return the sentence that tells of a segment that is not used."""
    return f"segment {path} is left out of every answer: {problem}"


def content_problem(found: str, written: str) -> str | None:
    """Return what a checksum says; None where it is the one that was written."""
    if found == written:
        return None
    return f"its content changed (sha256 {found[:12]}…, {written[:12]}… was written)"


def digest_of(file: Path) -> str:
    """Return the SHA-256 of a file."""
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _arrived_anew(con: duckdb.DuckDBPyConnection, root: Path, path: str) -> bool:
    """Return True if a file that is right again holds keys that are elsewhere by now."""
    file = "SELECT gpu_uuid, ts_utc FROM " + parquet_list([str(root / path)])  # noqa: S608
    hour = rows_of(con, "SELECT hour_utc FROM segment WHERE path = ?", [path])[0][0]
    live = rows_of(con, "SELECT name FROM live_table WHERE hour_utc = ?", [hour])
    sealed = rows_of(con, "SELECT path FROM segment WHERE hour_utc = ? AND problem IS NULL", [hour])
    others = [f"SELECT gpu_uuid, ts_utc FROM {name}" for (name,) in live]  # noqa: S608
    others += [
        "SELECT gpu_uuid, ts_utc FROM " + parquet_list([str(root / other)])  # noqa: S608
        for (other,) in sealed
        if other != path
    ]
    return any(rows_of(con, f"({file}) INTERSECT ({other}) LIMIT 1") for other in others)


def _problem(file: Path, size: int) -> str | None:
    try:
        found = file.stat().st_size
    except OSError as exc:
        return f"cannot be read ({exc.strerror})"
    return None if found == size else f"holds {found} bytes, {size} were written"


def unlink_retired(
    con: duckdb.DuckDBPyConnection, root: Path, clock: Clock, keep_s: float
) -> list[str]:
    """Unlink files retired more than `keep_s` ago and forget them; return their paths."""
    limit = naive(clock.now_us() - round(keep_s * 1e6))
    old = [
        path
        for (path,) in rows_of(con, "SELECT path FROM retired_file WHERE retired_utc < ?", [limit])
    ]
    for path in old:
        (root / path).unlink(missing_ok=True)
        con.execute("DELETE FROM retired_file WHERE path = ?", [path])
    return old
