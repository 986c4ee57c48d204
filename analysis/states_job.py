"""The job that keeps `state_run` and `state_interval` true to the samples.

`refresh` looks for hours whose samples or settings changed (`hour_change` against `analysis_run`)
and does each in a transaction of its own: the hour's raw runs are computed anew, then everything
that they can touch is stitched again, over borders of hours as far as it reaches. After every hour
`state_interval` equals the stitching of all of `state_run`; so the order in which hours arrive,
late data, restarts and a kill between two hours make no difference.

Reading and computing happen on a snapshot; only differing runs are written, and the pieces of the
GPUs that they belong to, by the store's writer. What is stored may be compared with outside the
writer's transaction: the job is the only writer of its tables, and runs once at a time.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final

import numpy as np
import pyarrow as pa

from analysis.frame import IntArray
from analysis.neighbours import Reach, reach_of
from analysis.runs import (
    Runs,
    concat,
    differing,
    empty_runs,
    firm_borders,
    stitch,
    take,
    within,
)
from analysis.samples import HourReader
from analysis.shares import PAPER_INTERVALS_S
from analysis.states_model import Period, Summary, settings_hash, thresholds_of
from analysis.tables import (
    Codes,
    Connection,
    hour_of,
    intervals_table,
    read_stored_runs,
    runs_table,
    stamp,
    stamps,
)
from idlewatt.clock import Clock, us_from_utc
from idlewatt.config import Settings
from idlewatt.model import Thresholds
from idlewatt.units import US_PER_HOUR
from warehouse.queries import load
from warehouse.store import Store

log = logging.getLogger(__name__)

ANALYSIS: Final = "power_states"
_HOURS_AT_ONCE: Final = 2
"""So many hours are read at once, threads of the database allowing."""
_ONE_AT_A_TIME: Final = threading.Lock()
Progress = Callable[[int, int], None]


def refresh(
    store: Store,
    settings: Settings,
    clock: Clock,
    *,
    budget_s: float | None = None,
    progress: Progress | None = None,
) -> Summary:
    """Bring the results up to date and return what was done; a second call finds nothing to do.

    Args:
        store: the open warehouse.
        settings: resolved settings.
        clock: time.
        budget_s: stop between two hours after this, two hours at the least; None does all.
        progress: called with (hours done, hours in all).
    """
    limits = thresholds_of(settings)
    summary = Summary()
    begin_ns = clock.monotonic_ns()
    with _ONE_AT_A_TIME:
        hours = _pending(store, limits)
        with closing(_read_ahead(store, hours, limits)) as reads:
            for number, hour in enumerate(reads):
                _store_hour(store, hour, limits, clock, summary)
                if progress is not None:
                    progress(number + 1, len(hours))
                spent_s = (clock.monotonic_ns() - begin_ns) / 1e9
                if budget_s is not None and number >= 1 and spent_s > budget_s:
                    break
        summary.pending = len(hours) - len(summary.hours)
    summary.duration_ms = (clock.monotonic_ns() - begin_ns) // 1_000_000
    return summary


def whole_period(
    store: Store,
    from_us: int,
    to_us: int,
    thresholds: Thresholds,
    *,
    progress: Progress | None = None,
) -> Period:
    """Return the power states of a half-open period, computed from its samples in one go.

    Nothing is written. Runs that go on beyond the period are followed outside it, so that the
    length rule and `run_ms` see their whole length.

    Args:
        store: the open warehouse.
        from_us: first stamp.
        to_us: first stamp after it.
        thresholds: limits of the low-activity test.
        progress: called with (hours done, hours in all).
    """
    codes = Codes.new()
    cuts = (from_us, to_us)
    first, last = hour_of(from_us), hour_of(to_us - 1)
    with store.snapshot() as cur:
        read = HourReader(cur, codes, thresholds, cuts)
        known = read.known_hours()
        hours = [hour for hour in range(first, last + 1, US_PER_HOUR) if hour in known]
        parts = [empty_runs()]
        for number, hour_us in enumerate(hours):
            parts.append(read.hour(hour_us))
            if progress is not None:
                progress(number + 1, len(hours))
        middle = concat(parts)
        # Far enough for every length that is reported beside the one asked for.
        longest = max(thresholds.min_interval_s, *PAPER_INTERVALS_S)
        before = _outside(read, known, first, -US_PER_HOUR, longest)
        after = _outside(read, known, last, US_PER_HOUR, longest)
    runs = concat([before, middle, after])
    pieces = within(stitch(runs, thresholds.min_interval_s, cuts), cuts)
    return Period(from_us, to_us, runs, pieces, codes, int(pieces.samples.sum()))


def recompute(
    store: Store,
    from_us: int,
    to_us: int,
    settings: Settings,
    clock: Clock,
    *,
    progress: Progress | None = None,
) -> Summary:
    """Compute every hour that a period touches anew, whatever was known, and store the results."""
    limits = thresholds_of(settings)
    summary = Summary()
    begin_ns = clock.monotonic_ns()
    with _ONE_AT_A_TIME:
        with store.snapshot() as cur:
            rows = cur.execute(
                "SELECT hour_utc FROM hour_change WHERE hour_utc BETWEEN ? AND ? ORDER BY hour_utc",
                [stamp(hour_of(from_us)), stamp(hour_of(to_us - 1))],
            ).fetchall()
        hours = [us_from_utc(hour) for (hour,) in rows]
        with closing(_read_ahead(store, hours, limits)) as reads:
            for number, hour in enumerate(reads):
                _store_hour(store, hour, limits, clock, summary, anew=True)
                if progress is not None:
                    progress(number + 1, len(hours))
    summary.duration_ms = (clock.monotonic_ns() - begin_ns) // 1_000_000
    return summary


def _pending(store: Store, limits: Thresholds) -> list[int]:
    with store.snapshot() as cur:
        rows = cur.execute(
            load("statements/states_pending"),
            {"analysis": ANALYSIS, "settings_hash": settings_hash(limits)},
        ).fetchall()
    return [us_from_utc(hour) for hour, _ in rows]


def _outside(
    read: HourReader, known: set[int], edge_hour_us: int, step_us: int, longest_s: int
) -> Runs:
    """Return the runs beyond an hour, as far as what happens in it can go on."""
    parts = [empty_runs()]
    hour_us = edge_hour_us + step_us
    waiting: set[int] | None = None
    while hour_us in known and (waiting is None or waiting):
        parts.append(read.hour(hour_us))
        runs = concat(parts)
        firm = firm_borders(runs, longest_s)
        there = set(parts[-1].gpu.tolist())
        waiting = there if waiting is None else waiting & there
        waiting -= set(runs.gpu[firm].tolist())
        hour_us += step_us
    return concat(parts)


@dataclass(frozen=True, slots=True)
class _Hour:
    """What the samples of an hour say.

    Attributes:
        hour_us: start of the hour.
        change_seq: state of the samples that were read.
        runs: raw runs.
        codes: names behind their numbers.
    """

    hour_us: int
    change_seq: int
    runs: Runs
    codes: Codes


def _read_hour(store: Store, hour_us: int, limits: Thresholds) -> _Hour:
    codes = Codes.new()
    with store.snapshot() as cur:
        (change_seq,) = cur.execute(
            "SELECT change_seq FROM hour_change WHERE hour_utc = ?", [stamp(hour_us)]
        ).fetchall()[0]
        return _Hour(hour_us, change_seq, HourReader(cur, codes, limits).hour(hour_us), codes)


def _read_ahead(
    store: Store, hours: Sequence[int], limits: Thresholds
) -> Generator[_Hour, None, None]:
    """Yield what the samples of each hour say, in turn; the next ones are read meanwhile.

    Samples of an hour do not depend on results of another, so that one hour can be read and
    computed on while another is stitched and written.
    """
    at_once = min(_HOURS_AT_ONCE, store.settings.integer("server.threads"))
    with ThreadPoolExecutor(at_once, thread_name_prefix="power-states") as pool:
        rest = iter(hours)
        coming = deque(pool.submit(_read_hour, store, h, limits) for h in islice(rest, at_once))
        try:
            while coming:
                hour = coming.popleft().result()
                coming.extend(pool.submit(_read_hour, store, h, limits) for h in islice(rest, 1))
                yield hour
        finally:
            for future in coming:
                future.cancel()


@dataclass(frozen=True, slots=True)
class _Change:
    """What an hour's new runs change.

    Attributes:
        gone: stored runs that are no longer so.
        added: runs that are not stored.
        gpus: GPUs whose pieces have to be made anew, ascending.
    """

    gone: Runs
    added: Runs
    gpus: IntArray


def _change(cur: Connection, codes: Codes, runs: Runs, hour_us: int, *, anew: bool) -> _Change:
    """Return what the runs of an hour change against those stored.

    Args:
        cur: cursor of the snapshot.
        codes: numbers of names.
        runs: the runs of the hour.
        hour_us: its start.
        anew: replace everything, also what is equal.
    """
    stored = read_stored_runs(cur, codes, None, (hour_us, hour_us))
    if anew or not len(stored):
        gone, added = stored, runs
    else:
        was, now = differing(stored, runs)
        gone, added = take(stored, was), take(runs, now)
    return _Change(gone, added, np.union1d(gone.gpu, added.gpu).astype(np.int64))


def _last_settings(cur: Connection, hour_us: int) -> str | None:
    """Return the hash of the settings that an hour's results were computed with."""
    found = cur.execute(
        "SELECT settings_hash FROM analysis_run WHERE analysis = ? AND hour_utc = ?",
        [ANALYSIS, stamp(hour_us)],
    ).fetchall()
    return found[0][0] if found else None


def _store_hour(
    store: Store,
    hour: _Hour,
    limits: Thresholds,
    clock: Clock,
    summary: Summary,
    *,
    anew: bool = False,
) -> None:
    """Bring the results of an hour, and of its surroundings as far as they change, up to date."""
    begin_ns = clock.monotonic_ns()
    hour_us, codes, runs = hour.hour_us, hour.codes, hour.runs
    with store.snapshot() as cur:
        # Pieces were made with these settings before: then equal runs have equal pieces.
        anew = anew or _last_settings(cur, hour_us) != settings_hash(limits)
        change = _change(cur, codes, runs, hour_us, anew=anew)
        reach = reach_of(cur, codes, runs, change.gpus, hour_us, limits.min_interval_s)
    pieces = stitch(reach.runs, limits.min_interval_s)
    note = {
        "analysis": ANALYSIS,
        "hour_utc": stamp(hour_us),
        "change_seq": hour.change_seq,
        "settings_hash": settings_hash(limits),
        "finished_utc": stamp(clock.now_us()),
        "duration_ms": (clock.monotonic_ns() - begin_ns) // 1_000_000,
    }
    tables = {
        "gone_state_run": runs_table(change.gone, codes),
        "new_state_run": runs_table(change.added, codes),
        "new_state_interval": intervals_table(pieces, codes),
        "stale_range": _ranges_table(reach, codes),
    }
    store.write(lambda con: _write_hour(con, hour_us, reach, tables, note))
    summary.hours.append(hour_us)
    summary.runs += len(runs)
    summary.pieces += len(pieces)
    summary.samples += int(runs.samples.sum())


def _write_hour(
    con: Connection, hour_us: int, reach: Reach, tables: dict[str, Any], note: dict[str, Any]
) -> None:
    """Replace what differs; runs inside the writer's transaction."""
    lowest = int(reach.from_us.min()) if len(reach.from_us) else hour_us
    highest = int(reach.to_us.max()) if len(reach.to_us) else hour_us
    span = {
        "first_hour_utc": stamp(hour_of(lowest)),
        "last_hour_utc": stamp(hour_of(highest)),
    }
    with _registered(con, tables):
        if tables["gone_state_run"].num_rows:
            con.execute(load("statements/states_run_delete"), {"hour_utc": stamp(hour_us)})
        if tables["new_state_run"].num_rows:
            con.execute(load("statements/states_run_insert"))
        if tables["stale_range"].num_rows:
            con.execute(load("statements/states_interval_delete"), span)
            con.execute(load("statements/states_interval_insert"))
    con.execute(load("statements/analysis_run_upsert"), note)


@contextmanager
def _registered(con: Connection, tables: dict[str, Any]) -> Iterator[None]:
    for name, table in tables.items():
        con.register(name, table)
    try:
        yield
    finally:
        for name in tables:
            con.unregister(name)


def _ranges_table(reach: Reach, codes: Codes) -> Any:
    return pa.table(
        {
            "gpu_uuid": codes.gpus.to_arrow(reach.gpus.astype(np.int32)),
            "from_utc": stamps(reach.from_us),
            "to_utc": stamps(reach.to_us),
        }
    )
