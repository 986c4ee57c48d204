"""The DuckDB file: one owner, one writer thread, any number of snapshots.

::

    store = Store.open(data_dir, settings, clock)
    store.write(lambda con: con.execute("INSERT INTO job BY NAME ..."))   # one transaction
    with store.snapshot() as cur:                                         # one consistent view
        rows = cur.execute("SELECT count(*) FROM gpu_sample").fetchall()
    store.close()

Inside a snapshot read each result to its end (`fetchall`, `to_arrow_table`) before the next
statement: DuckDB 2 refuses a second statement while a result is open.
"""

from __future__ import annotations

import fcntl
import logging
import os
import queue
import re
import shutil
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, TypeVar

import duckdb

from idlewatt.clock import Clock, SystemClock
from idlewatt.config import Settings, resolve
from idlewatt.errors import StoreError
from warehouse import schema
from warehouse.adopt import QUARANTINE, adopt
from warehouse.layout import Layout, verify_segments
from warehouse.schema import rows_of

log = logging.getLogger(__name__)

T = TypeVar("T")
Connection = duckdb.DuckDBPyConnection
FILE_NAME: Final = "idlewatt.duckdb"
TEMP_FOLDER: Final = "tmp"
FOLDER_MODE: Final = 0o750
FILE_MODE: Final = 0o640
CHECKPOINT_THRESHOLD: Final = "64MB"
# What DuckDB raises over a file that is gone or damaged, and how it names the file.
_FILE_ERRORS: Final = (duckdb.IOException, duckdb.InvalidInputException)
_SEGMENT: Final = re.compile(r"day=[0-9-]{10}/hour=[0-9]{2}/[A-Za-z0-9_-]+\.parquet")


class Store:
    """An open warehouse. Make one with `Store.open`.

    Attributes:
        data_dir: absolute folder of the warehouse.
        settings: resolved settings.
        clock: time.
        layout: which live tables and segments make up `gpu_sample`; touched by the writer only.
        problems: what was found wrong, one sentence each.
        suspicion: set when a statement failed as it does over a damaged segment.
    """

    def __init__(
        self, con: Connection, data_dir: Path, settings: Settings, clock: Clock, lock_fd: int
    ) -> None:
        self.data_dir = data_dir
        self.settings = settings
        self.clock = clock
        self.problems: list[str] = []
        self.layout = Layout(data_dir / "segments" / "gpu_sample")
        self.suspicion = threading.Event()
        self._suspects: set[str] = set()
        self._root = con
        self._lock_fd = lock_fd
        self._jobs: queue.SimpleQueue[tuple[Callable[[Connection], Any], Future[Any]] | None]
        self._jobs = queue.SimpleQueue()
        self._closed = False
        self._fatal = False
        self._close_lock = threading.Lock()
        self._writer = threading.Thread(target=self._run_writer, name="writer", daemon=True)

    @classmethod
    def open(
        cls, data_dir: Path | str, settings: Settings | None = None, clock: Clock | None = None
    ) -> Store:
        """Return the warehouse in `data_dir`, made if it is not there yet.

        Raises:
            StoreError: another process owns it, it is damaged, or newer than this program.
        """
        settings = resolve(environ={}) if settings is None else settings
        clock = clock or SystemClock()
        root = Path(data_dir).expanduser().absolute()
        if set(str(root)) & set("*?["):
            # DuckDB reads them as patterns, in the names of files too.
            raise StoreError(f"data folder {root} may not have *, ? or [ in its path")
        try:
            _make_private(root)
            (root / "segments" / "gpu_sample").mkdir(parents=True, exist_ok=True)
        except OSError as exc:
            raise StoreError(f"data folder {root} cannot be made: {exc}") from exc
        lock_fd = _lock(root)
        problems: list[str] = []
        try:
            shutil.rmtree(root / TEMP_FOLDER, ignore_errors=True)
            con = _connect(root / FILE_NAME, settings, clock, problems)
            store = cls(con, root, settings, clock, lock_fd)
            store.problems += problems
            store._prepare()
            (root / FILE_NAME).chmod(FILE_MODE)
        except BaseException:
            os.close(lock_fd)
            raise
        store._writer.start()
        return store

    def _prepare(self) -> None:
        con, segments = self._root, self.data_dir / "segments"
        try:
            con.execute("LOAD icu")
            con.execute("SET GLOBAL TimeZone = 'UTC'")
            con.execute("SET GLOBAL parquet_metadata_cache = true")
            schema.migrate(con, self.clock)
            self.problems += verify_segments(con, self.layout.root)
            self.layout.load(con)
            self._adopt(con)
            self._create_views(con)
            quoted = str(segments).replace("'", "''")
            con.execute(f"SET GLOBAL allowed_directories = ['{quoted}']")
            con.execute("SET GLOBAL enable_external_access = false")
            con.execute("SET GLOBAL lock_configuration = true")
        except BaseException as exc:
            con.close()
            if isinstance(exc, duckdb.Error):
                raise StoreError(f"the warehouse in {self.data_dir} cannot be used: {exc}") from exc
            raise
        for problem in self.problems:
            log.error("msg=%r", problem)

    def _adopt(self, con: Connection) -> None:
        """Take in segment files that the catalogue does not name."""
        con.execute("BEGIN")
        try:
            adopted = adopt(con, self.layout, self.clock.now_us())
            con.execute("COMMIT")
        except BaseException:
            self._roll_back(con)
            raise
        adopted.settle(self.data_dir / QUARANTINE)
        self.problems += adopted.problems

    def _create_views(self, con: Connection) -> None:
        """Make all views, without the segments whose files cannot be read any more."""
        layout = self.layout
        while True:
            try:
                schema.create_views(con, layout.live_names(), layout.segment_paths())
                break
            except _FILE_ERRORS as exc:
                # An error that names no file may be over any of them.
                named = _SEGMENT.findall(str(exc)) or layout.segments
                if not layout.leave_out_broken(con, named):
                    raise
        self.problems += layout.news
        layout.news = []

    def write(self, fn: Callable[[Connection], T]) -> T:
        """Run `fn(con)` on the writer thread in its own transaction and return its result.

        Raises:
            StoreError: the warehouse is closed.
            Exception: whatever `fn` raised; nothing of it is kept then.
        """
        if threading.current_thread() is self._writer:
            raise RuntimeError("Store.write called from inside a write")
        return self.submit(fn).result()

    def submit(self, fn: Callable[[Connection], T]) -> Future[T]:
        """Like `write`, but return at once with a future."""
        future: Future[T] = Future()
        with self._close_lock:
            if self._closed:
                raise StoreError("the warehouse is closed")
            self._jobs.put((fn, future))
        return future

    @contextmanager
    def snapshot(self) -> Iterator[Connection]:
        """Yield a cursor inside one READ ONLY transaction: all statements see one state."""
        if self._closed:
            raise StoreError("the warehouse is closed")
        cursor = self._root.cursor()
        try:
            cursor.execute("BEGIN TRANSACTION READ ONLY")
            # The snapshot of a database starts at its first use, so use it now.
            rows_of(cursor, "SELECT 1 FROM hour_change LIMIT 1")
            yield cursor
        except Exception as exc:
            self._suspect(exc)
            raise
        finally:
            cursor.close()

    def take_suspects(self) -> set[str]:
        """Return the segments that errors named since the last call."""
        taken, self._suspects = self._suspects, set()
        return taken

    def _suspect(self, exc: Exception) -> None:
        """Have segments checked where reading one failed."""
        cause = exc if isinstance(exc, duckdb.Error) else exc.__cause__
        if not isinstance(cause, _FILE_ERRORS):
            return
        self._suspects.update(_SEGMENT.findall(str(cause)))
        self.suspicion.set()

    def cursor(self) -> Connection:
        """Return a bare cursor, for the warehouse's own copies; the caller closes it."""
        return self._root.cursor()

    def close(self) -> None:
        """Finish the writes that wait, checkpoint and let go of the file."""
        with self._close_lock:
            if self._closed:
                return
            self._closed = True
            self._jobs.put(None)
        self._writer.join()
        self._root.close()
        os.close(self._lock_fd)

    def __enter__(self) -> Store:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.close()

    def _run_writer(self) -> None:
        con = self._root.cursor()
        while (job := self._jobs.get()) is not None:
            fn, future = job
            if not future.set_running_or_notify_cancel():
                continue
            try:
                result = self._attempt(con, fn)
            except BaseException as exc:
                self._note_fatal(exc)
                future.set_exception(exc)
                del exc
            else:
                future.set_result(result)
            del job, fn, future
        con.close()

    def _note_fatal(self, exc: BaseException) -> None:
        """Turn the health red where DuckDB gave the whole instance up (a full disk does that)."""
        cause: BaseException | None = exc
        while cause is not None and not isinstance(cause, duckdb.FatalException):
            cause = cause.__context__
        if cause is not None and not self._fatal:
            self._fatal = True
            self.problems.append(
                f"the database gave up and the server must be restarted ({cause}); nothing "
                "acknowledged is lost, agents keep the rest"
            )
            log.critical("msg=%r", self.problems[-1])

    def _attempt(self, con: Connection, fn: Callable[[Connection], T]) -> T:
        """Run a transaction; once more where it failed over a segment that is left out now."""
        try:
            return self._transaction(con, fn)
        except _FILE_ERRORS as exc:
            named = _SEGMENT.findall(str(exc))
            if not self._transaction(con, lambda con: self.layout.leave_out_broken(con, named)):
                raise
        return self._transaction(con, fn)

    def _transaction(self, con: Connection, fn: Callable[[Connection], T]) -> T:
        con.execute("BEGIN")
        try:
            result = fn(con)
            self.layout.finish(con)
            con.execute("COMMIT")
        except BaseException:
            self._roll_back(con)
            raise
        self._tell_news()
        return result

    def _tell_news(self) -> None:
        """Report the segments that the last transaction left out."""
        for text in self.layout.news:
            self.problems.append(text)
            log.error("msg=%r", text)
        self.layout.news = []

    def _roll_back(self, con: Connection) -> None:
        try:
            con.execute("ROLLBACK")
        except duckdb.Error as exc:
            # A failed COMMIT has already ended the transaction.
            log.info("msg=%r error=%r", "nothing to roll back", str(exc))
        self.layout.load(con)


def _make_private(root: Path) -> None:
    """Make the data folder for its owner and group only; one that is there keeps its mode."""
    if not root.is_dir():
        root.mkdir(parents=True)
        root.chmod(FOLDER_MODE)


def _lock(root: Path) -> int:
    """Return the descriptor that holds the folder's lock; it goes when the process ends."""
    descriptor = os.open(root / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as exc:
        os.close(descriptor)
        raise StoreError(
            f"another idlewatt process owns the warehouse in {root}; "
            "ask it with `idlewatt sql`, or stop it first"
        ) from exc
    return descriptor


def _connect(file: Path, settings: Settings, clock: Clock, problems: list[str]) -> Connection:
    """Return a connection; a log that cannot be replayed is put aside and the rest opens."""
    config: dict[str, str | bool | int | float | list[str]] = {
        "memory_limit": f"{settings.integer('server.memory_mib')}MiB",
        "threads": settings.integer("server.threads"),
        "checkpoint_threshold": CHECKPOINT_THRESHOLD,
        "temp_directory": str(file.parent / TEMP_FOLDER),
        "max_temp_directory_size": f"{settings.integer('server.temp_mib')}MiB",
        "python_enable_replacements": False,
        "autoinstall_known_extensions": False,
    }
    try:
        return duckdb.connect(str(file), config=config)
    except duckdb.Error as exc:
        wal = file.with_name(file.name + ".wal")
        if "lock" in str(exc).lower() or not wal.exists():
            raise StoreError(f"the warehouse {file} cannot be opened: {exc}") from exc
        aside = wal.with_name(f"{wal.name}.damaged-{clock.now_us()}")
        wal.rename(aside)
        problems.append(
            f"the write-ahead log could not be replayed ({exc}); it was put aside as {aside.name} "
            "and agents replay what they still hold"
        )
    try:
        return duckdb.connect(str(file), config=config)
    except duckdb.Error as exc:
        raise StoreError(f"the warehouse {file} is damaged: {exc}") from exc
