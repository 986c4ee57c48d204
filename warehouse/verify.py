"""Checks in the background that segment files still hold what was written.

Every file is read once after the start and once a day, at a bounded rate, and compared with the
SHA-256 in the catalogue. A statement that could not read a file makes it check at once. A file that
differs is left out of the view, catalogued with its problem and reported on the health page; what
was there before the switch is not touched, so it can be put right and is used again then.
"""

from __future__ import annotations

import hashlib
import logging
import os
import threading
from typing import Final

from idlewatt.units import MIB
from warehouse.layout import Segment, content_problem, left_out
from warehouse.store import Connection, Store

log = logging.getLogger(__name__)

_EVERY_S: Final = 86_400.0
_CHUNK: Final = 4 * MIB
_HURRY: Final = 8  # how much faster after a read error
_REST_S: Final = 5.0  # between two rounds, whatever statements fail


class Verifier:
    """Checks the segments of one store; `start` it, or call `run_once` yourself."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._rate = store.settings.number("server.verify_mib_s") * MIB
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="verifier", daemon=True)

    def start(self) -> None:
        """Begin, unless the rate is 0."""
        if self._rate > 0:
            self._thread.start()

    def stop(self) -> None:
        """Stop after the chunk under way."""
        self._stop.set()
        self._store.suspicion.set()
        if self._thread.is_alive():
            self._thread.join()

    def run_once(self, *, paced: bool = False) -> list[str]:
        """Check every segment, the newest first; return the paths left out from now on."""
        hurry = self._store.suspicion.is_set()
        self._store.suspicion.clear()
        suspects = self._store.take_suspects()
        known = list(self._store.layout.segments.values())  # the writer changes it meanwhile
        segments = sorted(
            known,
            key=lambda item: (item.path not in suspects, -item.hour_us, item.path),
        )
        damaged = []
        for segment in segments:
            rate = (self._rate * (_HURRY if hurry else 1)) if paced else 0.0
            problem = self._check(segment, 0.0 if segment.path in suspects else rate)
            if self._stop.is_set():
                break
            if problem is not None and self._leave_out(segment, problem):
                damaged.append(segment.path)
            if paced and not hurry and self._store.suspicion.is_set():
                break  # begin anew, with what is suspected first
        return damaged

    def _check(self, segment: Segment, rate: float) -> str | None:
        """Return what is wrong with a file; None where nothing is, or while stopping."""
        file = self._store.layout.root / segment.path
        digest = hashlib.sha256()
        try:
            with file.open("rb") as stream:
                while chunk := stream.read(_CHUNK):
                    digest.update(chunk)
                    if rate and self._stop.wait(len(chunk) / rate):
                        return None
                # Nobody reads it again soon; the page cache is for the queries.
                os.posix_fadvise(stream.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        except OSError as exc:
            return f"cannot be read ({exc.strerror})"
        return content_problem(digest.hexdigest(), segment.sha256)

    def _leave_out(self, segment: Segment, problem: str) -> bool:
        def switch(con: Connection) -> bool:
            # Replaced meanwhile: the file may be gone, and nothing reads it any more.
            if self._store.layout.segments.get(segment.path) != segment:
                return False
            self._store.layout.leave_out(con, segment.path, problem)
            return True

        if not self._store.write(switch):
            return False
        text = left_out(segment.path, problem)
        self._store.problems.append(text)
        log.error("msg=%r", text)
        return True

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                self.run_once(paced=True)
            except Exception:
                # The next round tries again; the sealer reports a store that is broken.
                log.exception("msg=%r", "segments could not be checked")
            self._stop.wait(_REST_S)
            self._store.suspicion.wait(_EVERY_S)
