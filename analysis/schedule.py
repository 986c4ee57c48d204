"""When analyses run: every `analysis.every_s` seconds, over whatever hours changed since.

::

    schedule = start(store, settings, clock)
    app = build_app(..., health=[schedule.health], metrics=[schedule.metrics])
    ...
    schedule.shutdown()
"""

from __future__ import annotations

import datetime as dt
import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from apscheduler.schedulers.background import BackgroundScheduler

from analysis import states_job
from analysis.states_model import Summary
from idlewatt.clock import Clock
from idlewatt.config import Settings
from idlewatt.units import US_PER_S
from warehouse.metrics import sample
from warehouse.store import Store

log = logging.getLogger(__name__)

FAILURES_UNTIL_RED: Final = 3
"""So many failures in a row turn the health red."""

Refresh = Callable[..., Summary]


@dataclass(slots=True)
class Counts:
    """What the schedule did so far."""

    runs: int = 0
    failures: int = 0
    failures_in_a_row: int = 0
    hours: int = 0
    samples: int = 0
    pending_hours: int = 0
    last_ms: int | None = None
    last_success_us: int | None = None
    last_error: str = ""


class Schedule:
    """Runs the analyses in the background. An error is logged and counted, and stops nothing."""

    def __init__(
        self,
        store: Store,
        settings: Settings,
        clock: Clock,
        refresh: Refresh = states_job.refresh,
    ) -> None:
        self.counts = Counts()
        self._store, self._settings, self._clock = store, settings, clock
        self._refresh = refresh
        self._every_s = settings.number("analysis.every_s")
        self._lock = threading.Lock()
        self._scheduler = BackgroundScheduler(
            timezone=dt.UTC,
            job_defaults={"max_instances": 1, "coalesce": True, "misfire_grace_time": None},
        )

    def start(self) -> None:
        """Start; the first run is at once."""
        self._scheduler.add_job(
            self.run_once,
            "interval",
            seconds=self._every_s,
            id=states_job.ANALYSIS,
            next_run_time=dt.datetime.now(dt.UTC),
        )
        self._scheduler.start()

    def shutdown(self) -> None:
        """Stop, after the run under way has ended; safe to call twice."""
        if self._scheduler.running:
            self._scheduler.shutdown(wait=True)

    def run_once(self) -> None:
        """Bring every result up to date, as far as the time between two runs allows."""
        try:
            summary = self._refresh(
                self._store, self._settings, self._clock, budget_s=self._every_s
            )
        except Exception as exc:
            log.exception("analysis=%s msg=%r", states_job.ANALYSIS, "run failed")
            with self._lock:
                self.counts.runs += 1
                self.counts.failures += 1
                self.counts.failures_in_a_row += 1
                self.counts.last_error = f"{type(exc).__name__}: {exc}"
            return
        with self._lock:
            counts = self.counts
            counts.runs += 1
            counts.failures_in_a_row = 0
            counts.hours += len(summary.hours)
            counts.samples += summary.samples
            counts.pending_hours = summary.pending
            counts.last_ms = summary.duration_ms
            counts.last_success_us = self._clock.now_us()
        if summary.hours:
            log.info(
                "analysis=%s hours=%d samples=%d pieces=%d pending=%d duration_ms=%d",
                states_job.ANALYSIS,
                len(summary.hours),
                summary.samples,
                summary.pieces,
                summary.pending,
                summary.duration_ms,
            )

    def health(self) -> str | None:
        """Return one sentence where the analysis keeps failing, else None."""
        with self._lock:
            if self.counts.failures_in_a_row < FAILURES_UNTIL_RED:
                return None
            return (
                f"the power-state analysis failed {self.counts.failures_in_a_row} times in a row "
                f"({self.counts.last_error})"
            )

    def metrics(self) -> list[str]:
        """Return lines in Prometheus text form."""
        with self._lock:
            counts = self.counts
            age_s = (
                None
                if counts.last_success_us is None
                else (self._clock.now_us() - counts.last_success_us) / US_PER_S
            )
            table: tuple[tuple[str, str, str, float | int | None], ...] = (
                ("runs_total", "runs of the analysis", "counter", counts.runs),
                ("failures_total", "runs that failed", "counter", counts.failures),
                ("hours_total", "hours computed anew", "counter", counts.hours),
                ("samples_total", "samples read", "counter", counts.samples),
                ("pending_hours", "hours that wait", "gauge", counts.pending_hours),
                (
                    "last_duration_seconds",
                    "time of the last run",
                    "gauge",
                    None if counts.last_ms is None else counts.last_ms / 1000,
                ),
                ("last_success_age_seconds", "time since the last success", "gauge", age_s),
            )
        out: list[str] = []
        for name, text, kind, value in table:
            out += sample(f"idlewatt_analysis_{name}", text, kind, value)
        return out


def start(store: Store, settings: Settings, clock: Clock) -> Schedule:
    """Return a running schedule of all analyses."""
    schedule = Schedule(store, settings, clock)
    schedule.start()
    return schedule
