"""What the Waste page shows: five named queries, asked in one snapshot of the store."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

import polars as pl

from dashboard import reading
from dashboard.kept import Kept
from dashboard.reading import SnapshotSource
from idlewatt.clock import Clock, us_from_utc
from idlewatt.config import Settings
from idlewatt.units import US_PER_HOUR

WINDOWS_H: Final[dict[str, int]] = {"24h": 24, "7d": 168}
ROWS: Final = 15
BY: Final = ("job", "user", "gpu")


@dataclass(frozen=True, slots=True)
class Price:
    """What a kilowatt hour costs; 0 means that nobody said."""

    per_kwh: float
    currency: str


NO_PRICE: Final = Price(0.0, "")


@dataclass(frozen=True, slots=True)
class WasteSnapshot:
    """Energy of a window of whole UTC hours, the current one last.

    Attributes:
        as_of_us: newest sample at the time of asking; None where there is none.
        from_us: first hour counted.
        to_us: first hour not counted.
        by_hour: rows of `waste_by_hour`.
        by: rows of `waste_by_job`, `waste_by_user` and `waste_by_gpu`.
        held_empty: rows of `waste_held_empty`.
        price: what a kilowatt hour costs.
    """

    as_of_us: int | None
    from_us: int = 0
    to_us: int = 0
    by_hour: pl.DataFrame = field(default_factory=pl.DataFrame)
    by: dict[str, pl.DataFrame] = field(default_factory=dict)
    held_empty: pl.DataFrame = field(default_factory=pl.DataFrame)
    price: Price = NO_PRICE

    @property
    def params(self) -> dict[str, Any]:
        """Return the parameters with which the named queries give the same numbers."""
        return {"from_utc": reading.utc(self.from_us), "to_utc": reading.utc(self.to_us)}

    @property
    def analysed_us(self) -> int | None:
        """Return the newest second that has a state."""
        newest: Any = None if self.by_hour.is_empty() else self.by_hour["analysed_utc"].max()
        return None if newest is None else us_from_utc(newest)


class WasteReader:
    """Reads snapshots of waste and keeps them a while. Thread-safe.

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
        self._kept: Kept[WasteSnapshot] = Kept(clock.monotonic_ns, len(WINDOWS_H))

    def read(self, window: str) -> WasteSnapshot:
        """Return the waste of a window; a name that is none is the first.

        Args:
            window: a key of `WINDOWS_H`.
        """
        hours = WINDOWS_H.get(window, next(iter(WINDOWS_H.values())))
        return self._kept.get(hours, lambda _old: self._read(hours))

    def _read(self, hours: int) -> WasteSnapshot:
        with self._store.snapshot() as cur:
            as_of_us = reading.newest(cur, self._clock.now_us(), None)
            if as_of_us is None:
                return WasteSnapshot(None, price=self._price)
            to_us = as_of_us - as_of_us % US_PER_HOUR + US_PER_HOUR
            from_us = to_us - hours * US_PER_HOUR
            window = {"from_utc": reading.utc(from_us), "to_utc": reading.utc(to_us)}
            return WasteSnapshot(
                as_of_us,
                from_us,
                to_us,
                reading.query(cur, "waste_by_hour", **window),
                {by: reading.query(cur, f"waste_by_{by}", **window, rows=ROWS) for by in BY},
                reading.query(cur, "waste_held_empty", **window, rows=ROWS),
                self._price,
            )
