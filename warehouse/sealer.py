"""The background thread that seals quiet hours, renews `analyst.duckdb` and unlinks old files.

It has the segments checked beside that, see `warehouse.verify`.
"""

from __future__ import annotations

import logging
import threading
from typing import Final

from idlewatt.errors import IdlewattError
from idlewatt.units import US_PER_S
from warehouse.analyst import write_analyst_file
from warehouse.layout import unlink_retired
from warehouse.metrics import Metrics
from warehouse.segments import due_tables, seal_several
from warehouse.store import Store
from warehouse.verify import Verifier

log = logging.getLogger(__name__)

_EVERY_S: Final = 2.0
_AT_ONCE: Final = 16  # tables sealed in one transaction
_S_PER_HOUR: Final = 3600


class Sealer:
    """Does the housekeeping of one store; use as a context manager, or call `run_once` yourself.

    Attributes:
        problem: what went wrong last, one sentence; None while all is well.
    """

    def __init__(self, store: Store, metrics: Metrics | None = None) -> None:
        self._store = store
        self._metrics = metrics or Metrics()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="sealer", daemon=True)
        self._analyst_due_us = 0
        self._once = threading.Lock()
        self._verifier = Verifier(store)
        self.problem: str | None = None

    def __enter__(self) -> Sealer:
        self._thread.start()
        self._verifier.start()
        return self

    def __exit__(self, *_exc: object) -> None:
        self.stop()

    def stop(self) -> None:
        """Finish the step under way and stop."""
        self._stop.set()
        self._verifier.stop()
        if self._thread.is_alive():
            self._thread.join()

    def run_once(self) -> int:
        """Seal, unlink and renew what is due; return how many rows were sealed."""
        with self._once:
            rows = self._seal_due()
            store = self._store
            keep_s = store.settings.integer("server.keep_replaced_h") * _S_PER_HOUR
            store.write(lambda con: unlink_retired(con, store.layout.root, store.clock, keep_s))
            if store.clock.now_us() >= self._analyst_due_us:
                self.renew_analyst()
            return rows

    def renew_analyst(self) -> None:
        """Write `analyst.duckdb` anew."""
        write_analyst_file(self._store)
        every_s = self._store.settings.integer("server.analyst_every_s")
        self._analyst_due_us = self._store.clock.now_us() + every_s * US_PER_S

    def _seal_due(self) -> int:
        rows = 0
        due = due_tables(self._store, self._store.layout.last_write_us)
        for begin in range(0, len(due), _AT_ONCE):
            if self._stop.is_set():
                break
            names = [table.name for table in due[begin : begin + _AT_ONCE]]
            for name, sealed in seal_several(self._store, names, self._stop.is_set).items():
                rows += sealed
                self._metrics.add("sealed_hours")
                self._metrics.add("sealed_rows", sealed)
                log.info("table=%s rows=%d msg=%r", name, sealed, "sealed")
        return rows

    def _run(self) -> None:
        while not self._store.clock.wait(_EVERY_S, self._stop):
            try:
                self.run_once()
                self.problem = None
            except IdlewattError as exc:
                self._failed(str(exc))
            except Exception as exc:
                self._failed(f"housekeeping of the warehouse failed: {exc}")

    def _failed(self, text: str) -> None:
        if text != self.problem:
            log.exception("msg=%r", text)
        self.problem = text

    def check(self) -> str | None:
        """Return what is wrong, for the health page; None while all is well."""
        return self.problem
