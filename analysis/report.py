"""The answer of a power-state analysis of a period, as plain values."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

import numpy as np

from analysis.classify import VERDICTS
from analysis.frame import ENERGY_SOURCES
from analysis.shares import share, shares, totals
from analysis.states_job import Progress, recompute, whole_period
from analysis.states_model import Period, thresholds_of
from idlewatt.clock import Clock, iso_utc
from idlewatt.config import Settings
from idlewatt.errors import UsageError
from idlewatt.model import Basis
from idlewatt.units import MS_PER_S, US_PER_MS, US_PER_S, kwh_from_uj
from warehouse.store import Store

MAX_PERIOD_DAYS: Final = 400


def power_states(
    store: Store,
    settings: Settings,
    clock: Clock,
    asked: dict[str, Any],
    *,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Return the power states of a period, computed from its samples.

    Args:
        store: the open warehouse.
        settings: resolved settings.
        clock: time.
        asked: from_us and to_us (half-open stamps), min_interval_s (None: the setting's), and
            dry_run: whether the stored results stay as they are.
        progress: called with (hours done, hours in all).

    Raises:
        UsageError: the period is empty or too long.
    """
    from_us, to_us = int(asked["from_us"]), int(asked["to_us"])
    if to_us <= from_us:
        raise UsageError("the period is empty: --to must be later than --from")
    if to_us - from_us > MAX_PERIOD_DAYS * 86_400 * US_PER_S:
        raise UsageError(f"the period is over {MAX_PERIOD_DAYS} days; ask for a shorter one")
    limits = thresholds_of(settings)
    minimum = asked.get("min_interval_s")
    chosen = limits if minimum is None else replace(limits, min_interval_s=int(minimum))
    # Results under other limits than the warehouse's own would mix with the ones that are there.
    stored = not asked.get("dry_run") and chosen == limits
    if stored:
        recompute(store, from_us, to_us, settings, clock, progress=progress)
        progress = None
    period = whole_period(store, from_us, to_us, chosen, progress=progress)
    return describe(period, chosen.min_interval_s) | {"stored": stored}


def describe(period: Period, min_interval_s: int) -> dict[str, Any]:
    """Return a period's figures: states, in-execution share, shares by length, coverage."""
    pieces = period.pieces
    seen_ms = int(pieces.obs_ms.sum())
    gpus = len(np.unique(pieces.gpu))
    expected_ms = gpus * (period.to_us - period.from_us) // US_PER_MS
    by_utilisation = np.array([verdict.basis is Basis.UTILISATION for verdict in VERDICTS])
    states = [
        {
            "state": total.state.value,
            "seconds": total.obs_ms / MS_PER_S,
            "time_share": total.obs_ms / seen_ms if seen_ms else None,
            "by_utilisation_s": int(
                pieces.obs_ms[(pieces.state == code) & by_utilisation[pieces.kind]].sum()
            )
            / MS_PER_S,
            "energy_kwh": None if total.energy_uj is None else kwh_from_uj(total.energy_uj),
            "energy_kwh_by_source": {
                source.value: None if value is None else kwh_from_uj(value)
                for source, value in zip(ENERGY_SOURCES, total.energy_by_source_uj, strict=True)
            },
            "energy_coverage": total.energy_obs_ms / total.obs_ms if total.obs_ms else None,
        }
        for code, total in enumerate(totals(pieces))
    ]
    own = share(pieces, min_interval_s)
    return {
        "from_utc": iso_utc(period.from_us),
        "to_utc": iso_utc(period.to_us),
        "min_interval_s": min_interval_s,
        "gpus": gpus,
        "samples": period.samples,
        "seen_s": seen_ms / MS_PER_S,
        "coverage": seen_ms / expected_ms if expected_ms else None,
        "states": states,
        "in_execution": {"time_share": own.time, "energy_share": own.energy},
        "by_min_interval": [
            {
                "min_interval_s": item.min_interval_s,
                "time_share": item.time,
                "energy_share": item.energy,
                "execution_idle_s": item.execution_idle_ms / MS_PER_S,
            }
            for item in shares(period.runs, period_us=(period.from_us, period.to_us))
        ],
    }
