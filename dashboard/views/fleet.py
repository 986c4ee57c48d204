"""Headline and tiles of the Fleet page: pure functions of one snapshot."""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt
import polars as pl

from dashboard import format as fmt
from dashboard.models import EnergyOfState, FleetSnapshot, Waste
from dashboard.seconds import cut
from dashboard.theme import HELP, Look
from dashboard.views import fleet_band
from dashboard.views.parts import Tile
from idlewatt.clock import us_from_utc
from idlewatt.model import State
from idlewatt.units import US_PER_S, kwh_from_uj

DAY_US: Final = 86_400 * US_PER_S
LAG_WORTH_SAYING_S: Final = 300
SILENT_SHOWN: Final = 8


def power_w(gpus: pl.DataFrame, look: Look | None = None) -> float | None:
    """Return the power of all GPUs, or of those with one look; None where none has a reading."""
    chosen = gpus if look is None else gpus.filter(pl.col("look") == look.value)
    readings = chosen["power_mw"].drop_nulls()
    return float(readings.sum()) / 1e3 if readings.len() else None


def limit_w(gpus: pl.DataFrame) -> float | None:
    """Return the sum of the limits in force; None where no device tells one."""
    limits = gpus["power_limit_mw"].drop_nulls()
    return float(limits.sum()) / 1e3 if limits.len() else None


def peak_today(snapshot: FleetSnapshot) -> fleet_band.Peak | None:
    """Return the highest second since 00:00 UTC."""
    if snapshot.seconds is None or snapshot.expected is None or snapshot.as_of_us is None:
        return None
    midnight_us = snapshot.as_of_us - snapshot.as_of_us % DAY_US
    until_us = snapshot.as_of_us + US_PER_S
    today = snapshot.seconds.window(midnight_us, until_us)
    return fleet_band.highest(today, _expected(snapshot, midnight_us, until_us))


def _expected(snapshot: FleetSnapshot, from_us: int, to_us: int) -> npt.NDArray[np.int64]:
    """Return how many devices each second of [from, to) should have."""
    if snapshot.seconds is None or snapshot.expected is None:
        return np.zeros(max((to_us - from_us) // US_PER_S, 0), dtype=np.int64)
    return cut(snapshot.expected, snapshot.seconds.start_us, from_us, to_us)


def band_of(snapshot: FleetSnapshot) -> fleet_band.Band | None:
    """Return the power band of the snapshot's window: whole buckets up to its newest second."""
    if snapshot.seconds is None or snapshot.expected is None or snapshot.as_of_us is None:
        return None
    seconds, bucket_s = snapshot.seconds, fleet_band.BUCKETS_S[snapshot.window_s]
    bucket_us = bucket_s * US_PER_S
    settled_us = _settled_us(snapshot) + US_PER_S
    end_us = settled_us - settled_us % bucket_us
    start_us = end_us - snapshot.window_s * US_PER_S
    return fleet_band.band(
        seconds.window(start_us, end_us),
        _expected(snapshot, start_us, end_us),
        bucket_s,
        limit_w(snapshot.gpus),
    )


def _settled_us(snapshot: FleetSnapshot) -> int:
    """Return the newest second that is covered, at most 15 s back: the last one still fills."""
    if snapshot.seconds is None or snapshot.expected is None or snapshot.as_of_us is None:
        raise ValueError("a snapshot without samples has no newest second")
    from_us, to_us = snapshot.as_of_us - 15 * US_PER_S, snapshot.as_of_us + US_PER_S
    tail = snapshot.seconds.window(from_us, to_us)
    usable = fleet_band.usable_seconds(tail.readings, _expected(snapshot, from_us, to_us))
    if not usable.any():
        return snapshot.as_of_us
    back = int(np.flatnonzero(usable[::-1])[0])
    return snapshot.as_of_us - back * US_PER_S


def headline(snapshot: FleetSnapshot) -> str:
    """Return the state of the floor in one or two sentences."""
    if snapshot.as_of_us is None:
        return "No sample has arrived yet."
    gpus = snapshot.gpus
    total, limit = power_w(gpus), limit_w(gpus)
    read = gpus["power_mw"].count()
    who = fmt.plural(gpus.height, "GPU")
    if total is None:
        return f"None of {who} has a power reading now."
    who = who if read == gpus.height else f"{fmt.count(read)} of {who}"
    text = f"{who} draw {fmt.power(total)}"
    if limit:
        text += f", {fmt.share(total / limit)} of their limits"
    idle = int((gpus["look"] == Look.EXECUTION_IDLE.value).sum())
    if not idle:
        return f"{text}. No GPU is execution-idle."
    verbs = ("is", "burns") if idle == 1 else ("are", "burn")
    burn = fmt.power(power_w(gpus, Look.EXECUTION_IDLE))
    return f"{text}. {fmt.plural(idle, 'GPU')} {verbs[0]} execution-idle and {verbs[1]} {burn}."


def tiles(snapshot: FleetSnapshot) -> list[Tile]:
    """Return the tiles; all from the same snapshot."""
    gpus = snapshot.gpus
    return [
        _power_tile(snapshot),
        _peak_tile(snapshot),
        _state_tile(gpus, Look.EXECUTION_IDLE, "Execution-idle"),
        _state_tile(gpus, Look.DEEP_IDLE, "Deep idle"),
        _no_data_tile(gpus, snapshot.as_of_us),
        _energy_tile(snapshot),
    ]


def _power_tile(snapshot: FleetSnapshot) -> Tile:
    total, limit = power_w(snapshot.gpus), limit_w(snapshot.gpus)
    level = None if total is None or not limit else total / limit
    unread = snapshot.gpus["power_mw"].null_count()
    note = f"{fmt.share(level)} of {fmt.power(limit)} limits"
    if unread:
        note += f"; {fmt.plural(unread, 'GPU')} not counted"
    return Tile(
        "power",
        "GPU power now",
        fmt.power(total),
        note,
        "Newest reading of every GPU, summed, against the sum of the power limits in force. "
        "GPU boards only: hosts, network and cooling are not in it.",
        level=level,
    )


def _peak_tile(snapshot: FleetSnapshot) -> Tile:
    peak, limit = peak_today(snapshot), limit_w(snapshot.gpus)
    note = "no second today with 90 % of the GPUs"
    if peak is not None:
        note = f"at {fmt.clock(peak.ts_us)} UTC"
        if limit:
            note += f", {fmt.share(peak.power_w / limit)} of limits"
    if snapshot.pending_hours:
        note += "; history still loading"
    return Tile(
        "peak",
        "Peak today",
        fmt.power(None if peak is None else peak.power_w),
        note,
        "Highest second since 00:00 UTC among those in which at least 90 % of the GPUs reported.",
        level=None if peak is None or not limit else peak.power_w / limit,
    )


def _state_tile(gpus: pl.DataFrame, look: Look, title: str) -> Tile:
    found = int((gpus["look"] == look.value).sum())
    draw = power_w(gpus, look)
    note = "none now" if not found else f"draw {fmt.power(draw)}"
    total = power_w(gpus)
    if found and draw is not None and total:
        note += f", {fmt.share(draw / total)} of the power"
    if look is Look.DEEP_IDLE and found:
        held = gpus.filter((pl.col("look") == look.value) & pl.col("job_key").is_not_null())
        note += f"; {fmt.count(held.height)} held by a job"
    return Tile(look.value, title, fmt.plural(found, "GPU"), note, HELP[look], look)


def silent_nodes(gpus: pl.DataFrame, as_of_us: int | None) -> list[str]:
    """Return the nodes with silent GPUs and when each was last heard of, the longest first."""
    silent = gpus.filter(pl.col("look") == Look.NO_DATA.value)
    if silent.is_empty() or "last_utc" not in silent.columns:
        return []
    nodes = (
        silent.group_by("node_id")
        .agg(pl.col("hostname").first(), pl.len().alias("gpus"), pl.col("last_utc").max())
        .sort("last_utc", "node_id", nulls_last=False)
    )
    told = []
    for row in nodes.head(SILENT_SHOWN).iter_rows(named=True):
        since = "not in the last 24 h"
        if row["last_utc"] is not None:
            since = f"{fmt.clock(us_from_utc(row['last_utc']), as_of_us)} UTC"
        name = row["hostname"] or row["node_id"]
        told.append(f"{name} ({fmt.plural(row['gpus'], 'GPU')}): last sample {since}.")
    if nodes.height > SILENT_SHOWN:
        told.append(f"And {fmt.plural(nodes.height - SILENT_SHOWN, 'node')} more.")
    return told


def _no_data_tile(gpus: pl.DataFrame, as_of_us: int | None) -> Tile:
    silent = gpus.filter(pl.col("look") == Look.NO_DATA.value)
    nodes = silent["node_id"].n_unique()
    note = "every GPU reports" if silent.is_empty() else f"on {fmt.plural(nodes, 'node')}"
    return Tile(
        "no_data",
        "No data",
        fmt.plural(silent.height, "GPU"),
        note,
        " ".join([HELP[Look.NO_DATA], *silent_nodes(gpus, as_of_us)]),
        Look.NO_DATA,
    )


def in_execution_share(by_state: dict[str, EnergyOfState]) -> float | None:
    """Return execution-idle energy over active plus execution-idle energy."""
    idle = by_state.get(State.EXECUTION_IDLE.value)
    active = by_state.get(State.ACTIVE.value)
    idle_uj = idle.energy_uj if idle else 0.0
    total_uj = idle_uj + (active.energy_uj if active else 0.0)
    return idle_uj / total_uj if total_uj else None


def coverage(waste: Waste, snapshot: FleetSnapshot) -> float | None:
    """Return analysed GPU time that has an energy, over the GPU time expected since `from_us`."""
    if snapshot.expected is None or snapshot.seconds is None or snapshot.as_of_us is None:
        return None
    expected = _expected(snapshot, waste.from_us, snapshot.as_of_us + US_PER_S)
    expected_ms = int(expected.sum()) * 1_000
    # A device that is now in the inventory was expected all along.
    floor_ms = snapshot.gpus.height * (snapshot.as_of_us - waste.from_us) // 1_000
    seen_ms = sum(state.energy_obs_ms for state in waste.by_state.values())
    return min(seen_ms / max(expected_ms, floor_ms, 1), 1.0)


def _energy_tile(snapshot: FleetSnapshot) -> Tile:
    waste = snapshot.waste
    title = "Execution-idle, 24 h"
    text = (
        "Energy spent execution-idle over energy spent active or execution-idle, in the last "
        "24 clock hours with the current one. Coverage: GPU time analysed over GPU time expected."
    )
    if waste is None or waste.analysed_us is None:
        return Tile("energy", title, fmt.NOTHING, "not yet analysed", text, Look.EXECUTION_IDLE)
    ratio = in_execution_share(waste.by_state)
    idle = waste.by_state.get(State.EXECUTION_IDLE.value)
    kwh = kwh_from_uj(idle.energy_uj) if idle else 0.0
    seen = fmt.share(coverage(waste, snapshot))
    note = f"of the energy in execution, {fmt.energy(kwh)}; coverage {seen}"
    lag_s = ((snapshot.as_of_us or 0) - waste.analysed_us) / US_PER_S
    if lag_s > LAG_WORTH_SAYING_S:
        note += f"; analysed up to {fmt.minute(waste.analysed_us, snapshot.as_of_us)} UTC"
    return Tile("energy", title, fmt.share(ratio), note, text, Look.EXECUTION_IDLE)
