"""Time lines of files in pixel buckets: milliseconds by state, and the band of power."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from analysis.classify import STATES
from analysis.frame import CodeArray, Column, IntArray
from analysis.offline_rows import Samples
from idlewatt.units import US_PER_MS, US_PER_S

MOST_BUCKETS: Final = 720
MOST_CELLS: Final = 4_000
"""Buckets of all GPUs together: keeps a page small, however many GPUs there are."""
MOST_GPUS: Final = 16
LADDER_S: Final = (
    *(1, 2, 5, 10, 15, 20, 30, 60, 120, 180, 300, 600, 900, 1_200, 1_800),
    *(3_600, 7_200, 10_800, 21_600, 43_200, 86_400),
)


@dataclass(frozen=True, slots=True)
class GpuSeries:
    """One GPU's buckets.

    Attributes:
        code: of the GPU.
        state_ms: milliseconds (state, bucket), states in the order of `STATES`.
        low_w: lowest power read; NaN where none was.
        high_w: highest.
        mean_w: mean, weighted with the intervals.
    """

    code: int
    state_ms: IntArray
    low_w: NDArray[np.float64]
    high_w: NDArray[np.float64]
    mean_w: NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Series:
    """Buckets of all GPUs.

    Attributes:
        from_us: begin of the first bucket.
        bucket_s: width.
        buckets: number.
        gpus: the GPUs that are drawn.
        left_out: GPUs that are not.
    """

    from_us: int
    bucket_s: int
    buckets: int
    gpus: tuple[GpuSeries, ...]
    left_out: int


def power_mw(samples: Samples, part: slice) -> Column:
    """Return the power as read: the momentary reading, else the driver's average, else NULL.

    Where a source gives an energy alone, its mean power over the interval stands in.
    """
    rows = samples.rows
    size = len(rows.ts_us[part])
    values = np.zeros(size, dtype=np.int64)
    valid = np.zeros(size, dtype=np.bool_)
    for name in ("power_inst_mw", "power_avg_mw"):
        column = samples.columns.get(name)
        if column is not None:
            use = column.present()[part] & ~valid
            values[use] = column.values[part][use]
            valid |= use
    use = (rows.energy_source[part] >= 0) & ~valid
    values[use] = rows.energy_uj[part][use] // np.maximum(rows.obs_ms[part][use], 1)
    return Column(values, valid | use)


def series(samples: Samples, state: CodeArray) -> Series:
    """Return the buckets of the rows.

    Args:
        samples: the rows.
        state: code into `STATES` of each row.
    """
    rows = samples.rows
    begin_us = int((rows.ts_us - rows.obs_ms * US_PER_MS).min())
    drawn = _chosen(samples, state)
    bucket_s = bucket_width_s(begin_us, int(rows.ts_us.max()), int(rows.obs_ms.max()), len(drawn))
    step_us = bucket_s * US_PER_S
    from_us = begin_us - begin_us % step_us
    buckets = int(-(-(int(rows.ts_us.max()) - from_us) // step_us))
    gpus = []
    for code in drawn:
        first, last = (int(at) for at in np.searchsorted(rows.gpu, [code, code + 1]))
        part = slice(first, last)
        # A row at `ts` describes what lies before it: 13:00:00 is drawn left of the 13 h mark.
        bucket = (rows.ts_us[part] - from_us - 1) // step_us
        gpus.append(_gpu(samples, state, part, (code, bucket, buckets)))
    return Series(from_us, bucket_s, buckets, tuple(gpus), len(samples.gpus) - len(drawn))


def bucket_width_s(first_us: int, last_us: int, interval_ms: int, gpus: int) -> int:
    """Return a round width that keeps a page small and is not below the interval of the rows."""
    most = max(min(MOST_BUCKETS, MOST_CELLS // max(gpus, 1)), 1)
    least_s = max((last_us - first_us) / US_PER_S / most, interval_ms / 1_000)
    width = next((width for width in LADDER_S if width >= least_s), None)
    return width or int(-(-least_s // 86_400)) * 86_400


def _chosen(samples: Samples, state: CodeArray) -> list[int]:
    """Return the GPUs to draw: all, or the ones with the most execution-idle time."""
    everyone = range(len(samples.gpus))
    if len(samples.gpus) <= MOST_GPUS:
        return list(everyone)
    idle = np.bincount(
        samples.rows.gpu, weights=np.where(state == 1, samples.rows.obs_ms, 0), minlength=1
    )
    return sorted(sorted(everyone, key=lambda code: -idle[code])[:MOST_GPUS])


def _gpu(
    samples: Samples, state: CodeArray, part: slice, place: tuple[int, IntArray, int]
) -> GpuSeries:
    code, bucket, buckets = place
    obs_ms = samples.rows.obs_ms[part]
    cells = np.bincount(
        state[part].astype(np.int64) * buckets + bucket,
        weights=obs_ms,
        minlength=buckets * len(STATES),
    )
    power = power_mw(samples, part)
    known = power.present()
    low = np.full(buckets, np.nan)
    high, mean = low.copy(), low.copy()
    if known.any():
        at, watts, weight = bucket[known], power.values[known] / 1_000, obs_ms[known]
        first = np.flatnonzero(np.append(True, at[1:] != at[:-1]))
        low[at[first]] = np.minimum.reduceat(watts, first)
        high[at[first]] = np.maximum.reduceat(watts, first)
        mean[at[first]] = np.add.reduceat(watts * weight, first) / np.add.reduceat(weight, first)
    return GpuSeries(code, cells.astype(np.int64).reshape(len(STATES), buckets), low, high, mean)
