"""How far results reach when one hour changes: the runs that have to be stitched again.

The search goes outwards, a few minutes, then 1, 2, 4, ... hours at a time, until each GPU has met a
border that nothing beyond can move, or an hour without rows (nominal intervals are shorter than an
hour).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from analysis.frame import BoolArray, IntArray
from analysis.runs import Runs, concat, empty_runs, firm_borders, take
from analysis.tables import Codes, Connection, hour_of, read_stored_runs
from idlewatt.units import US_PER_HOUR, US_PER_S

LEFT: Final = -1
RIGHT: Final = 1
_NEAR_US: Final = 5 * 60 * US_PER_S


@dataclass(frozen=True, slots=True)
class Reach:
    """What a changed period touches.

    Attributes:
        runs: all runs that the touched pieces are made of, in the order (gpu, first_us).
        gpus: touched GPUs.
        from_us: per touched GPU, the first stamp whose pieces are replaced.
        to_us: per touched GPU, the last one.
    """

    runs: Runs
    gpus: IntArray
    from_us: IntArray
    to_us: IntArray


def reach_of(
    cur: Connection,
    codes: Codes,
    changed: Runs,
    gpus: IntArray,
    hour_us: int,
    min_interval_s: int,
) -> Reach:
    """Return what has to be stitched again when the runs of an hour change.

    Args:
        cur: cursor of a snapshot.
        codes: numbers of names.
        changed: the new runs of the hour; those of other GPUs are left out.
        gpus: GPUs whose runs changed, those that have none any more among them; ascending.
        hour_us: start of the hour.
        min_interval_s: length from which a low stretch is execution-idle.
    """
    mine = take(changed, np.isin(changed.gpu, gpus))
    left = _side(cur, codes, gpus, hour_us - US_PER_HOUR, LEFT, min_interval_s)
    right = _side(cur, codes, gpus, hour_us + US_PER_HOUR, RIGHT, min_interval_s)
    runs = concat([left, mine, right])
    from_us = np.full(len(gpus), hour_us, dtype=np.int64)
    to_us = np.full(len(gpus), hour_us + US_PER_HOUR - 1, dtype=np.int64)
    at = np.searchsorted(gpus, runs.gpu)
    np.minimum.at(from_us, at, runs.first_us)
    np.maximum.at(to_us, at, runs.last_us)
    return Reach(runs, gpus, from_us, to_us)


def _side(
    cur: Connection, codes: Codes, gpus: IntArray, hour_us: int, way: int, min_interval_s: int
) -> Runs:
    """Return the runs on one side, from `hour_us` outwards, up to each GPU's first firm border."""
    edge_us = _data_edge(cur, way)
    if edge_us is None or (edge_us - hour_us) * way < 0:
        return empty_runs()
    near, closed = _near(cur, codes, gpus, hour_us, way, min_interval_s)
    done: list[Runs] = [near]
    open_gpus, hours = np.setdiff1d(gpus, closed), 1
    while len(open_gpus) and (edge_us - hour_us) * way >= 0:
        far_us = hour_us + way * (hours - 1) * US_PER_HOUR
        first_us, last_us = min(hour_us, far_us), max(hour_us, far_us)
        runs = read_stored_runs(cur, codes, open_gpus.tolist(), (first_us, last_us))
        keep, closed = _up_to_border(runs, far_us, way, min_interval_s)
        if (edge_us - far_us) * way <= 0:
            closed = np.unique(runs.gpu).astype(np.int64)
        done.append(take(runs, keep & np.isin(runs.gpu, closed)))
        # A GPU without runs here has a hole here: nothing beyond can reach over it.
        open_gpus = np.setdiff1d(np.unique(runs.gpu).astype(np.int64), closed)
        hours *= 2
    return concat(done)


def _near(
    cur: Connection, codes: Codes, gpus: IntArray, hour_us: int, way: int, min_interval_s: int
) -> tuple[Runs, IntArray]:
    """Return the runs up to each border that is near, and the GPUs that have one.

    Most borders are, and a look at a few minutes is cheaper than at an hour of every GPU.
    """
    hour = (hour_us, hour_us + US_PER_HOUR)
    touching = (hour[1] - _NEAR_US, hour[1]) if way == LEFT else (hour[0], hour[0] + _NEAR_US)
    runs = read_stored_runs(cur, codes, gpus.tolist(), (hour_us, hour_us), touching)
    keep, closed = _up_to_border(runs, None, way, min_interval_s)
    return take(runs, keep & np.isin(runs.gpu, closed)), closed


def _up_to_border(
    runs: Runs, far_us: int | None, way: int, min_interval_s: int
) -> tuple[BoolArray, IntArray]:
    """Return which runs lie on the near side of each GPU's border, and the GPUs that are closed.

    Args:
        runs: runs on one side of an hour.
        far_us: a GPU without runs in this hour, the outermost one, is closed too; None: not so.
        way: the side.
        min_interval_s: length from which a low stretch is execution-idle.
    """
    firm = np.flatnonzero(firm_borders(runs, min_interval_s))
    keep = np.ones(len(runs), dtype=np.bool_)
    all_gpus, first = np.unique(runs.gpu, return_index=True)
    end = np.searchsorted(runs.gpu, all_gpus, side="right")
    closed = []
    for gpu, low, high in zip(all_gpus.tolist(), first.tolist(), end.tolist(), strict=True):
        mine = firm[np.searchsorted(firm, low) : np.searchsorted(firm, high)]
        outermost_us = runs.first_us[low] if way == LEFT else runs.last_us[high - 1]
        if len(mine):
            if way == LEFT:
                keep[low : mine[-1]] = False
            else:
                keep[mine[0] : high] = False
        if len(mine) or (far_us is not None and hour_of(int(outermost_us)) != far_us):
            closed.append(gpu)
    return keep, np.array(closed, dtype=np.int64)


def _data_edge(cur: Connection, way: int) -> int | None:
    """Return the outermost hour that has runs."""
    order = "min" if way == LEFT else "max"
    (found,) = cur.execute(f"SELECT epoch_us({order}(hour_utc)) FROM state_run").fetchall()[0]  # noqa: S608
    return None if found is None else int(found)
