"""Which samples can be true: rows that cannot are refused, values that cannot become NULL."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from idlewatt.columns import BITS_PER_GROUP, GPU_SAMPLE, Group
from idlewatt.model import ActivitySource, EnergySource, Lane, Missing, PowerScope
from idlewatt.ranges import MAX_OBS_MS, MAX_POWER_MW, SAMPLE_RANGES
from idlewatt.units import US_PER_MS, US_PER_S
from idlewatt.wire import Batch, Table
from warehouse.columnar import BoolArray, IntArray

MIN_TS_US: Final = 1_420_070_400 * US_PER_S  # 2015
MAX_AHEAD_US: Final = 300 * US_PER_S
MAX_NAME: Final = 128
FOREIGN: Final = "foreign_gpu"
# By number; where several hold, the first one counts.
REASONS: Final = (
    "",
    "ts_utc lies in the future",
    "ts_utc lies before 2015",
    "gpu_uuid is not a printable name",
    FOREIGN,
    "obs_ms is not within 1 and 3600000",
    "ts_utc is not a whole second (backfill: millisecond)",
    "overlaps another row of its GPU",
)
_GROUP: Final = {column.name: column.group for column in GPU_SAMPLE}
_MISSING_MAX: Final = (1 << (BITS_PER_GROUP * len(Group))) - 1
_WORDS: Final[dict[str, frozenset[str]]] = {
    "energy_source": frozenset(EnergySource),
    "activity_source": frozenset(ActivitySource),
    "power_scope": frozenset(PowerScope),
}
# A value without its other half means nothing.
_PARTNER: Final = {"energy_uj": "energy_source", "energy_source": "energy_uj"}

Samples = Sequence[tuple[Batch, Table]]


def refused(
    sent: Samples, keys: tuple[IntArray, IntArray, IntArray], own: BoolArray, now_us: int
) -> Any:
    """Return a number of `REASONS` for each row; 0 where it can be true.

    Args:
        sent: the batches and their tables.
        keys: ts_utc in µs, GPU number and obs_ms of all their rows.
        own: whether the sender may write the row.
        now_us: the time.
    """
    stamps, _, obs = keys
    reasons = np.zeros(len(stamps), np.int8)

    def refuse(number: int, rows: BoolArray) -> None:
        reasons[rows & (reasons == 0)] = number

    refuse(1, stamps > now_us + MAX_AHEAD_US)
    refuse(2, stamps < MIN_TS_US)
    refuse(3, ~_well_named(sent))
    refuse(4, ~own)
    refuse(5, (obs < 1) | (obs > MAX_OBS_MS))
    if (stamps % US_PER_S).any() or obs.max(initial=0) > 2_000:
        rows = [table.rows for _, table in sent]
        live = np.repeat([batch.header.lane == Lane.LIVE for batch, _ in sent], rows)
        refuse(6, stamps % np.where(live, US_PER_S, US_PER_MS) != 0)
        refuse(7, _overlaps(keys, np.repeat(np.arange(len(sent)), rows)))
    return reasons


def _well_named(sent: Samples) -> BoolArray:
    parts = []
    for _, table in sent:
        data = table.columns["gpu_uuid"]
        fine = np.array([0 < len(w) <= MAX_NAME and w.isprintable() for w in data.words], bool)
        parts.append(fine[np.frombuffer(data.data, "<u2")])
    return np.concatenate(parts)


def _overlaps(keys: tuple[IntArray, IntArray, IntArray], batches: IntArray) -> BoolArray:
    """Return rows that begin before the middle of the row before them, of the same batch."""
    stamps, gpus, obs = keys
    order = np.lexsort((stamps, gpus, batches))
    same = (np.diff(gpus[order]) == 0) & (np.diff(batches[order]) == 0)
    step = np.diff(stamps[order])
    found = np.zeros(len(stamps), bool)
    found[order[1:]] = same & (step > 0) & (2 * step < obs[order[1:]] * US_PER_MS)
    return found


def plausible(samples: pa.Table) -> tuple[pa.Table, int]:
    """Return the rows with NULL for what cannot be true, and how many values that were.

    The reason `implausible` goes to the bits of the column's group.
    """
    bad = _out_of_range(samples) | _strange_words(samples)
    total = sum(int(rows.sum()) for rows in bad.values())
    for name, partner in _PARTNER.items():
        if name in bad and partner in samples.column_names:
            bad[partner] = bad[name] | bad.get(partner, np.zeros(len(samples), bool))
    missing = _missing(samples)
    strange = (missing < 0) | (missing > _MISSING_MAX)
    if not bad and not strange.any():
        return samples, 0
    missing = np.where(strange, 0, missing)
    groups: dict[Group, BoolArray] = {Group.QUALITY: strange} if strange.any() else {}
    for name, rows in bad.items():
        group = _GROUP[name]
        groups[group] = rows | groups.get(group, np.zeros(len(samples), bool))
        at = samples.column_names.index(name)
        kept = pc.if_else(pa.array(~rows), samples[name], pa.scalar(None, samples[name].type))
        samples = samples.set_column(at, name, kept)
    for group, rows in groups.items():
        shift = BITS_PER_GROUP * group
        unset = rows & ((missing >> shift) & 0xF == 0)
        missing = np.where(unset, missing | (Missing.IMPLAUSIBLE << shift), missing)
    column = pa.array(missing, pa.int64())
    if "missing" in samples.column_names:
        at = samples.column_names.index("missing")
        return samples.set_column(at, "missing", column), total + int(strange.sum())
    return samples.append_column("missing", column), total


def _missing(samples: pa.Table) -> IntArray:
    if "missing" not in samples.column_names:
        return np.zeros(len(samples), np.int64)
    found: IntArray = pc.fill_null(samples["missing"], 0).to_numpy()
    return found


def _out_of_range(samples: pa.Table) -> dict[str, BoolArray]:
    bad: dict[str, BoolArray] = {}
    for name in samples.column_names:
        if name not in SAMPLE_RANGES:
            continue
        low, high = SAMPLE_RANGES[name]
        least, most = pc.min_max(samples[name]).as_py().values()
        if least is not None and (least < low or most > high):
            column = samples[name]
            outside = pc.or_(pc.less(column, low), pc.greater(column, high))
            bad[name] = pc.fill_null(outside, False).to_numpy()
    if "energy_uj" in samples.column_names:
        energy = pc.fill_null(samples["energy_uj"], 0).to_numpy()
        over = energy > samples["obs_ms"].to_numpy().astype(np.int64) * MAX_POWER_MW
        if over.any():
            bad["energy_uj"] = over | bad.get("energy_uj", np.zeros(len(samples), bool))
    return bad


def _strange_words(samples: pa.Table) -> dict[str, BoolArray]:
    bad: dict[str, BoolArray] = {}
    for name, known in _WORDS.items():
        if name not in samples.column_names:
            continue
        column = samples[name].combine_chunks()
        words = column.dictionary.to_pylist()
        strange = np.array([word not in known for word in words], bool)
        if strange.any():
            codes = pc.fill_null(column.indices, len(words)).to_numpy()
            bad[name] = np.append(strange, False)[codes]
    return bad
