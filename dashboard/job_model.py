"""What the pages of jobs show: each from one snapshot of the store."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass, field
from typing import Any, Final, cast

import duckdb
import numpy as np
import numpy.typing as npt
import polars as pl

from dashboard import reading
from dashboard.kept import LOAD, Kept
from dashboard.reading import SnapshotSource
from dashboard.seconds import Seconds, SecondsCache
from dashboard.waste_model import NO_PRICE, Price
from idlewatt.clock import Clock, us_from_utc
from idlewatt.config import Settings
from idlewatt.units import US_PER_HOUR, US_PER_S

MAX_ROWS: Final = 128
SHOWN_H: Final = 24
JOBS_SHOWN: Final = 50
JOBS_KEPT: Final = 8
LIVE_KEEP_NS: Final = 5_000_000_000
ENDED_KEEP_NS: Final = 120_000_000_000
LOADING_KEEP_NS: Final = 500_000_000
SETTLED_US: Final = 120 * US_PER_S
LISTS_H: Final[dict[str, int | None]] = {"24h": 24, "7d": 168, "all": None}

IntArray = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class JobSnapshot:
    """One job at one instant.

    Attributes:
        key: its job_key.
        as_of_us: newest sample of any GPU; None where there is none.
        analysed_us: newest second of any GPU that has a state.
        facts: row of `page_job_facts`.
        holds: rows of `page_job_holds`.
        states: rows of `job_states`.
        intervals: rows of `page_job_intervals`: the shown hours of the GPUs with the most idle.
        seconds: power of its GPUs in the shown hours.
        pending_hours: hours of power that are still to be read.
        price: what a kilowatt hour costs.
    """

    key: str
    as_of_us: int | None = None
    analysed_us: int | None = None
    facts: dict[str, Any] = field(default_factory=dict)
    holds: pl.DataFrame = field(default_factory=pl.DataFrame)
    states: pl.DataFrame = field(default_factory=pl.DataFrame)
    intervals: pl.DataFrame = field(default_factory=pl.DataFrame)
    seconds: Seconds | None = None
    pending_hours: int = 0
    price: Price = NO_PRICE

    @property
    def exists(self) -> bool:
        """Return True where anything is known of the job."""
        known = bool(self.facts.get("known"))
        return known or not self.holds.is_empty() or not self.states.is_empty()

    @property
    def runs(self) -> bool:
        """Return True while it holds a GPU."""
        return self.end_us is None and not self.holds.is_empty()

    @property
    def end_us(self) -> int | None:
        """Return when it gave its last GPU back; None while it holds one or where nobody knows."""
        if self.holds.is_empty() or self.holds["end_utc"].null_count():
            return None
        last_us = us_from_utc(cast(dt.datetime, self.holds["end_utc"].max()))
        return None if self.as_of_us is not None and last_us > self.as_of_us else last_us

    @property
    def span_us(self) -> tuple[int, int] | None:
        """Return its first and last instant; the newest sample while it runs."""
        if not self.holds.is_empty():
            start = us_from_utc(cast(dt.datetime, self.holds["start_utc"].min()))
            end = self.end_us or self.as_of_us or start
            return start, max(start, end)
        if self.states.is_empty():
            return None
        first = us_from_utc(cast(dt.datetime, self.states["first_utc"].min()))
        return first, us_from_utc(cast(dt.datetime, self.states["last_utc"].max()))

    @property
    def shown_us(self) -> tuple[int, int] | None:
        """Return the part of its span that is drawn: whole seconds, the last 24 hours."""
        if self.span_us is None:
            return None
        start, end = self.span_us
        end += -end % US_PER_S
        start = max(start - start % US_PER_S, end - SHOWN_H * US_PER_HOUR)
        return start, max(end, start + 60 * US_PER_S)

    @property
    def is_final(self) -> bool:
        """Return True where it has ended, is analysed, and its power is read."""
        end, done = self.end_us, self.analysed_us
        return end is not None and done is not None and done >= end and not self.pending_hours


@dataclass(frozen=True, slots=True)
class JobList:
    """Jobs that match a search.

    Attributes:
        as_of_us: newest sample of any GPU; None where there is none.
        rows: rows of `jobs`.
        text: what was searched for.
    """

    as_of_us: int | None
    rows: pl.DataFrame = field(default_factory=pl.DataFrame)
    text: str = ""


class JobReader:
    """Reads jobs and keeps them a while. Thread-safe.

    Args:
        store: the warehouse.
        clock: time.
        settings: resolved settings.
    """

    def __init__(self, store: SnapshotSource, clock: Clock, settings: Settings) -> None:
        self._store = store
        self._clock = clock
        self._price = Price(
            settings.number("report.price_per_kwh"), settings.text("report.currency")
        )
        self._jobs: Kept[tuple[JobSnapshot, SecondsCache]] = Kept(clock.monotonic_ns, JOBS_KEPT)
        self._lists: Kept[JobList] = Kept(clock.monotonic_ns, JOBS_KEPT)

    def read(self, key: str) -> JobSnapshot:
        """Return a job; `exists` is False where there is none of that key."""
        return self._jobs.get(key, lambda old: self._read(key, old), self._keep_ns)[0]

    def search(self, text: str, window: str) -> JobList:
        """Return the jobs that match.

        Args:
            text: part of a key, id, name, user, project or class.
            window: a key of `LISTS_H`.
        """
        hours = LISTS_H.get(window, next(iter(LISTS_H.values())))
        return self._lists.get((text, hours), lambda _old: self._search(text, hours))

    def _search(self, text: str, hours: int | None) -> JobList:
        with self._store.snapshot() as cur:
            as_of_us = reading.newest(cur, self._clock.now_us(), None)
            if as_of_us is None:
                return JobList(None, text=text)
            from_utc = None if hours is None else reading.utc(as_of_us - hours * US_PER_HOUR)
            rows = reading.query(cur, "jobs", text=text, from_utc=from_utc, rows=JOBS_SHOWN)
            return JobList(as_of_us, rows, text)

    @staticmethod
    def _keep_ns(value: tuple[JobSnapshot, SecondsCache], took_ns: int) -> int:
        snapshot = value[0]
        if snapshot.pending_hours:
            return LOADING_KEEP_NS
        return max(ENDED_KEEP_NS if snapshot.is_final else LIVE_KEEP_NS, LOAD * took_ns)

    def _read(
        self, key: str, old: tuple[JobSnapshot, SecondsCache] | None
    ) -> tuple[JobSnapshot, SecondsCache]:
        cache = SecondsCache(self._clock.monotonic_ns) if old is None else old[1]
        with self._store.snapshot() as cur:
            as_of_us = reading.newest(cur, self._clock.now_us(), None)
            ((analysed,),) = reading.rows(cur, "page_analysed")
            bare = JobSnapshot(
                key,
                as_of_us,
                None if analysed is None else us_from_utc(analysed),
                reading.frame(cur, "page_job_facts", job=key).row(0, named=True),
                reading.frame(cur, "page_job_holds", job=key),
                reading.query(cur, "job_states", job=key),
                price=self._price,
            )
            if bare.shown_us is None:
                return bare, cache
            return self._with_course(cur, bare, cache), cache

    def _with_course(
        self, cur: duckdb.DuckDBPyConnection, bare: JobSnapshot, cache: SecondsCache
    ) -> JobSnapshot:
        """Return the snapshot with its course over time."""
        from_us, to_us = bare.shown_us or (0, 0)
        intervals = reading.frame(
            cur,
            "page_job_intervals",
            job=bare.key,
            gpus=idlest(bare.states)[:MAX_ROWS],
            from_utc=reading.utc(from_us),
        )
        rows = reading.rows(
            cur,
            "page_fleet_hours",
            from_utc=reading.utc(from_us - from_us % US_PER_HOUR),
            as_of_utc=reading.utc(to_us),
        )

        def read(first_us: int, last_us: int) -> tuple[Any, Any, Any]:
            frame = reading.frame(
                cur,
                "page_job_seconds",
                job=bare.key,
                from_utc=reading.utc(first_us),
                to_utc=reading.utc(last_us),
            )
            return (
                frame["ts_utc"].dt.epoch("us").to_numpy(),
                frame["power_mw"].fill_null(0).to_numpy(),
                frame["readings"].to_numpy(),
            )

        pending = cache.refresh([(us_from_utc(hour), int(seq)) for hour, seq in rows], to_us, read)
        return JobSnapshot(
            bare.key,
            bare.as_of_us,
            bare.analysed_us,
            bare.facts,
            bare.holds,
            bare.states,
            intervals,
            cache.seconds(to_us),
            pending,
            bare.price,
        )


def idlest(states: pl.DataFrame) -> list[str]:
    """Return the GPUs of a job, the largest share of time without work first."""
    if states.is_empty():
        return []
    without = pl.col("state").is_in(["execution_idle", "deep_idle"])
    shares = states.group_by("gpu_uuid").agg(
        (pl.col("seen_ms").filter(without).sum() / pl.col("seen_ms").sum()).alias("share"),
        pl.col("hostname").first(),
        pl.col("gpu_index").first(),
    )
    ranked = shares.sort(
        "share", "hostname", "gpu_index", "gpu_uuid", descending=[True] + [False] * 3
    )
    return ranked["gpu_uuid"].to_list()


def expected_gpus(snapshot: JobSnapshot, from_us: int, to_us: int) -> IntArray:
    """Return how many GPUs the job held in each second of [from, to)."""
    count = max((to_us - from_us) // US_PER_S, 0)
    step = np.zeros(count + 1, dtype=np.int64)
    for start, end in snapshot.holds.select("start_utc", "end_utc").iter_rows():
        # A second belongs to who held the GPU half a second before its stamp.
        first = (us_from_utc(start) + 1_500_000 - 1 - from_us) // US_PER_S
        last = count if end is None else (us_from_utc(end) + 1_500_000 - 1 - from_us) // US_PER_S
        step[min(max(first, 0), count)] += 1
        step[min(max(last, 0), count)] -= 1
    return np.cumsum(step)[:count]
