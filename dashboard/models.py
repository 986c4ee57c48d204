"""Read models: everything a page shows, from one snapshot of the store and one `as_of`.

`ReadModels` computes a `FleetSnapshot` at most once per newest sample, whoever asks, and keeps the
last few, so that the parts of one page that ask one after another speak of the same instant.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Any, Final

import duckdb
import numpy as np
import numpy.typing as npt
import polars as pl

from analysis.power_states import states_now
from dashboard import reading
from dashboard.job_model import JobReader
from dashboard.reading import SnapshotSource
from dashboard.seconds import Seconds, SecondsCache
from dashboard.theme import Look
from dashboard.waste_model import WasteReader
from idlewatt.clock import Clock, us_from_utc, utc_from_us
from idlewatt.config import Settings
from idlewatt.model import Thresholds
from idlewatt.units import S_PER_HOUR, US_PER_HOUR, US_PER_S
from warehouse.queries import load

NO_DATA_AFTER_S: Final = 15
LOOK_BACK_S: Final = 75
LOOK_BACK_LARGE_S: Final = 20  # enough for the length rule, at a quarter of the cost
LARGE_FLEET: Final = 4_000
WASTE_HOURS: Final = 24
WASTE_ROWS: Final = 20
WASTE_EVERY_S: Final = 15
RECOMPUTE_NS: Final = 900_000_000
KEPT: Final = 6


@dataclass(frozen=True, slots=True)
class Pulse:
    """Whether the data is alive.

    Attributes:
        as_of_us: newest stamp; None where there is no sample at all.
        now_us: the server's clock when it looked.
        stale_s: age from which data counts as stale.
        nodes: nodes of the inventory.
        nodes_fresh: those with a sample in the last 15 s.
        gpus: devices of the inventory.
        gpus_fresh: those with a sample in the last 15 s.
    """

    as_of_us: int | None
    now_us: int
    stale_s: int
    nodes: int = 0
    nodes_fresh: int = 0
    gpus: int = 0
    gpus_fresh: int = 0

    @property
    def age_s(self) -> float | None:
        """Return the age of the newest sample."""
        return None if self.as_of_us is None else max(self.now_us - self.as_of_us, 0) / US_PER_S


@dataclass(frozen=True, slots=True)
class EnergyOfState:
    """Time and energy of one state in the analysed window."""

    obs_ms: int
    energy_uj: float
    energy_obs_ms: int


@dataclass(frozen=True, slots=True)
class Waste:
    """What the last 24 h of analysed intervals say.

    Attributes:
        from_us: first stamp counted: 23 whole hours and the current one.
        analysed_us: newest stamp that has a state; None where nothing is analysed yet.
        by_state: time and energy per state.
        top: rows of `page_fleet_waste`, most energy first.
    """

    from_us: int
    analysed_us: int | None
    by_state: dict[str, EnergyOfState]
    top: pl.DataFrame


@dataclass(frozen=True, slots=True)
class FleetSnapshot:
    """One instant of the fleet.

    Attributes:
        pulse: freshness.
        gpus: one row per device: place, `look`, power, limit, holder; see `page_fleet_gpus.sql`.
        seconds: fleet power of the last 25 hours.
        expected: devices expected in each of these seconds.
        pending_hours: hours of history that are still to be read.
        waste: the last 24 h as analysed.
        window_s: what the power band shows.
    """

    pulse: Pulse
    gpus: pl.DataFrame = field(default_factory=pl.DataFrame)
    seconds: Seconds | None = None
    expected: npt.NDArray[np.int64] | None = None
    pending_hours: int = 0
    waste: Waste | None = None
    window_s: int = 900

    @property
    def as_of_us(self) -> int | None:
        """Return the newest stamp."""
        return self.pulse.as_of_us

    def for_window(self, window_s: int) -> FleetSnapshot:
        """Return the same instant with another window."""
        return FleetSnapshot(
            self.pulse,
            self.gpus,
            self.seconds,
            self.expected,
            self.pending_hours,
            self.waste,
            window_s,
        )


class ReadModels:
    """All that the pages read. Thread-safe; one per process.

    Args:
        store: the warehouse.
        clock: time.
        settings: resolved settings.
    """

    def __init__(self, store: SnapshotSource, clock: Clock, settings: Settings) -> None:
        self._store = store
        self._clock = clock
        self._stale_s = settings.integer("server.stale_s")
        self._thresholds = Thresholds(
            settings.number("analysis.activity"),
            settings.number("analysis.comm_bytes_s"),
            settings.integer("analysis.min_interval_s"),
        )
        self.waste = WasteReader(store, clock, settings)
        self.jobs = JobReader(store, clock, settings)
        self._lock = threading.Lock()
        self._seconds = SecondsCache(clock.monotonic_ns)
        self._kept: OrderedDict[int, FleetSnapshot] = OrderedDict()
        self._waste: tuple[int, Waste] | None = None
        self._silent: tuple[tuple[int, frozenset[str]], pl.DataFrame] | None = None
        self._computed_ns: int | None = None

    def pulse(self) -> Pulse:
        """Return how fresh the data is now; this is what moves a page to the next instant."""
        return self.fleet(900).pulse

    def fleet(self, window_s: int, as_of_us: int | None = None) -> FleetSnapshot:
        """Return the fleet at its newest instant, or at one that was shown just now.

        Args:
            window_s: window of the power band.
            as_of_us: instant that the page shows already; the newest where it is gone.
        """
        with self._lock:
            kept = None if as_of_us is None else self._kept.get(as_of_us)
            if kept is None:
                kept = self._newest()
        return kept.for_window(window_s)

    def _newest(self) -> FleetSnapshot:
        last = next(reversed(self._kept.values()), None)
        now_ns = self._clock.monotonic_ns()
        if (
            last is not None
            and self._computed_ns is not None
            and now_ns - self._computed_ns < RECOMPUTE_NS
        ):
            return last
        now_us = self._clock.now_us()
        with self._store.snapshot() as cur:
            as_of_us = reading.newest(cur, now_us, None if last is None else last.as_of_us)
            if as_of_us is None:
                return FleetSnapshot(Pulse(None, now_us, self._stale_s, *_inventory(cur)))
            snapshot = self._compute(cur, as_of_us, now_us)
        self._computed_ns = now_ns
        self._kept.pop(as_of_us, None)
        self._kept[as_of_us] = snapshot
        while len(self._kept) > KEPT:
            self._kept.popitem(last=False)
        return snapshot

    def _compute(self, cur: duckdb.DuckDBPyConnection, as_of_us: int, now_us: int) -> FleetSnapshot:
        gpus = self._gpus(cur, as_of_us, now_us)
        hour_us = as_of_us - as_of_us % US_PER_HOUR
        first = utc_from_us(hour_us - 24 * US_PER_HOUR)
        rows = reading.rows(
            cur, "page_fleet_hours", from_utc=first, as_of_utc=utc_from_us(as_of_us)
        )
        hours = [(us_from_utc(hour), int(seq)) for hour, seq in rows]

        def read(from_us: int, to_us: int) -> tuple[Any, Any, Any]:
            return _read_seconds(cur, from_us, to_us)

        pending = self._seconds.refresh(hours, as_of_us, read)
        seconds = self._seconds.seconds(as_of_us)
        fresh = gpus["ts_utc"].is_not_null()
        pulse = Pulse(
            as_of_us,
            now_us,
            self._stale_s,
            gpus["node_id"].n_unique(),
            gpus.filter(fresh)["node_id"].n_unique(),
            gpus.height,
            int(fresh.sum()),
        )
        expected = expected_devices(gpus, seconds)
        return FleetSnapshot(pulse, gpus, seconds, expected, pending, self._waste_of(cur, as_of_us))

    def _gpus(self, cur: duckdb.DuckDBPyConnection, as_of_us: int, now_us: int) -> pl.DataFrame:
        as_of = utc_from_us(as_of_us)
        # Once the newest sample is stale, nobody reports: what was last seen is not *now*.
        live_us = as_of_us if now_us - as_of_us <= self._stale_s * US_PER_S else now_us
        silent = utc_from_us(live_us - NO_DATA_AFTER_S * US_PER_S)
        gpus = reading.frame(cur, "page_fleet_gpus", as_of_utc=as_of, from_utc=silent)
        back_s = LOOK_BACK_LARGE_S if gpus.height > LARGE_FLEET else LOOK_BACK_S
        back_s = max(back_s, 2 * self._thresholds.min_interval_s)
        back = utc_from_us(as_of_us - back_s * US_PER_S)
        recent = reading.arrow(cur, "page_fleet_recent", as_of_utc=as_of, from_utc=back)
        now = states_now(recent, self._thresholds)
        known = pl.DataFrame(
            {
                "gpu_uuid": list(now),
                "state": [one.state.value for one in now.values()],
                "basis": [one.basis.value for one in now.values()],
                "reason": [one.reason for one in now.values()],
                "run_s": [one.run_ms // 1_000 for one in now.values()],
                "run_open": [one.run_ms // 1_000 >= back_s - 2 for one in now.values()],
            },
            schema={
                "gpu_uuid": pl.String,
                "state": pl.String,
                "basis": pl.String,
                "reason": pl.String,
                "run_s": pl.Int64,
                "run_open": pl.Boolean,
            },
        )
        gpus = gpus.join(known, on="gpu_uuid", how="left", maintain_order="left")
        last = self._last_seen(cur, as_of_us, gpus.filter(pl.col("ts_utc").is_null())["gpu_uuid"])
        return with_looks(gpus.join(last, on="gpu_uuid", how="left", maintain_order="left"))

    def _last_seen(
        self, cur: duckdb.DuckDBPyConnection, as_of_us: int, silent: pl.Series
    ) -> pl.DataFrame:
        """Return gpu_uuid and last_utc of silent devices; asked anew when they change."""
        key = (as_of_us // (WASTE_EVERY_S * US_PER_S), frozenset(silent.to_list()))
        if self._silent is None or self._silent[0] != key:
            found = reading.frame(
                cur,
                "page_fleet_silent",
                from_utc=utc_from_us(as_of_us - 24 * US_PER_HOUR),
                recent_utc=utc_from_us(as_of_us - US_PER_HOUR),
                as_of_utc=utc_from_us(as_of_us),
                gpus=silent.to_list(),
            )
            self._silent = (key, found)
        return self._silent[1]

    def _waste_of(self, cur: duckdb.DuckDBPyConnection, as_of_us: int) -> Waste:
        turn = as_of_us // (WASTE_EVERY_S * US_PER_S)
        if self._waste is None or self._waste[0] != turn:
            self._waste = (turn, _read_waste(cur, as_of_us))
        return self._waste[1]


def with_looks(gpus: pl.DataFrame) -> pl.DataFrame:
    """Return the frame with `look`: the state, or *no data* where no sample is recent."""
    look = (
        pl.when(pl.col("ts_utc").is_null())
        .then(pl.lit(Look.NO_DATA.value))
        .otherwise(pl.col("state").fill_null(Look.UNKNOWN.value))
    )
    return gpus.with_columns(look=look)


def expected_devices(gpus: pl.DataFrame, seconds: Seconds) -> npt.NDArray[np.int64]:
    """Return how many devices each second should have: those known by then.

    A device counts from its first entry in the inventory; more readings than that in an hour
    count as that many devices for the whole hour.
    """
    first_us = np.sort(
        gpus["first_utc"].drop_nulls().dt.epoch("us").to_numpy().astype(np.int64, copy=False)
    )
    at_us = seconds.start_us + np.arange(len(seconds.readings), dtype=np.int64) * US_PER_S
    known = np.searchsorted(first_us, at_us, side="right").astype(np.int64)
    if len(seconds.readings) % S_PER_HOUR == 0:
        seen = seconds.readings.reshape(-1, S_PER_HOUR).max(axis=1).repeat(S_PER_HOUR)
        known = np.maximum(known, seen)
    return known


def _inventory(cur: duckdb.DuckDBPyConnection) -> tuple[int, int, int, int]:
    """Return nodes, fresh nodes, GPUs, fresh GPUs where no sample has come yet."""
    ((nodes, gpus),) = cur.execute(load("statements/page_fleet_inventory")).fetchall()
    return int(nodes), 0, int(gpus), 0


def _read_seconds(cur: duckdb.DuckDBPyConnection, from_us: int, to_us: int) -> tuple[Any, Any, Any]:
    frame = reading.frame(
        cur, "page_fleet_seconds", from_utc=utc_from_us(from_us), to_utc=utc_from_us(to_us)
    )
    return (
        frame["ts_utc"].dt.epoch("us").to_numpy(),
        frame["power_mw"].fill_null(0).to_numpy(),
        frame["readings"].to_numpy(),
    )


def _read_waste(cur: duckdb.DuckDBPyConnection, as_of_us: int) -> Waste:
    hour_us = as_of_us - as_of_us % US_PER_HOUR
    from_us = hour_us - (WASTE_HOURS - 1) * US_PER_HOUR
    window = {"from_utc": utc_from_us(from_us), "as_of_utc": utc_from_us(as_of_us)}
    states = reading.rows(cur, "page_fleet_energy", **window)
    newest = max((us_from_utc(row[4]) for row in states), default=None)
    ongoing = utc_from_us((newest or as_of_us) - 60 * US_PER_S)
    top = reading.frame(cur, "page_fleet_waste", **window, ongoing_utc=ongoing, rows=WASTE_ROWS)
    by_state = {
        row[0]: EnergyOfState(int(row[1]), float(row[2]), int(row[3] or 0)) for row in states
    }
    return Waste(from_us, newest, by_state, top)
