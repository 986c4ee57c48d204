"""What each row is by itself: active, low, deep idle or unknown.

The low-activity test takes the compute pipes and the memory interface. Two columns of the activity
group stay out of it: `gr_active` says only that *some* engine had work queued, so that a kernel
that waits on the host keeps it at 1; and `sm_occupancy` is the filling of SMs that are busy
already (`sm_active` covers them), a ratio that is low by design for register-hungry kernels.

Where utilisation stands in for counters, one more thing is asked. The driver's sample of it is
shorter than a second (1/6 s to 1 s by product), so that work early in a second can go unseen. The
energy counter sees it: where the second's mean power stands clearly above the instant reading at
its end, power fell within the second, and the second is not low.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from analysis.frame import BoolArray, CodeArray, Column, Columns
from idlewatt.columns import COMM_SIGNALS, COMPUTE_SIGNALS, MEMORY_SIGNALS
from idlewatt.model import Basis, State, Thresholds

ALGORITHM_VERSION: Final = 2
"""Part of the settings hash: a change here recomputes every result."""

_ACTIVITY: Final = (*COMPUTE_SIGNALS, *MEMORY_SIGNALS)
FALL_RATIO: Final = 1.15
"""Mean over end power of a second from which power fell within it; gains differ by 5 % or so."""


class Raw(IntEnum):
    """What a row is by itself, before the length rule."""

    ACTIVE = 0
    LOW = 1
    DEEP_IDLE = 2
    UNKNOWN = 3


RAW_NAMES: Final = ("active", "low", "deep_idle", "unknown")
STATES: Final = (State.ACTIVE, State.EXECUTION_IDLE, State.DEEP_IDLE, State.UNKNOWN)
"""Final states in the order of `Raw`: what is low for long enough is execution-idle."""


class Verdict(NamedTuple):
    """One of the few things that can be said about a row."""

    raw: Raw
    basis: Basis
    reason: str | None


class Kind(IntEnum):
    """Code of a verdict; the low kinds stand two behind their active ones."""

    ACTIVE_COUNTERS = 0
    ACTIVE_UTILISATION = 1
    LOW_COUNTERS = 2
    LOW_UTILISATION = 3
    DEEP_IDLE = 4
    NO_RESIDENCY = 5
    NO_ACTIVITY = 6
    ZERO_AT_POWER_COUNTERS = 7
    ZERO_AT_POWER_UTILISATION = 8


VERDICTS: Final = (
    Verdict(Raw.ACTIVE, Basis.COUNTERS, None),
    Verdict(Raw.ACTIVE, Basis.UTILISATION, None),
    Verdict(Raw.LOW, Basis.COUNTERS, None),
    Verdict(Raw.LOW, Basis.UTILISATION, None),
    Verdict(Raw.DEEP_IDLE, Basis.RESIDENCY, None),
    Verdict(Raw.UNKNOWN, Basis.NONE, "no_residency"),
    Verdict(Raw.UNKNOWN, Basis.NONE, "no_activity"),
    Verdict(Raw.UNKNOWN, Basis.COUNTERS, "zero_activity_at_power"),
    Verdict(Raw.UNKNOWN, Basis.UTILISATION, "zero_activity_at_power"),
)
RAW_OF_KIND: Final[CodeArray] = np.array([verdict.raw for verdict in VERDICTS], dtype=np.int8)


@dataclass(slots=True)
class _Signals:
    """Conjunctions over a group of signals, NULLs left out."""

    available: BoolArray
    low: BoolArray
    zero: BoolArray


def counters_decide(columns: Columns) -> bool:
    """Return True where some activity counter has a value in every row."""
    return _available(columns, _ACTIVITY) is None


def _available(columns: Columns, names: tuple[str, ...]) -> list[BoolArray] | None:
    """Return where each of the signals has a value; None where some signal always has one."""
    found = [column for column in map(columns.get, names) if column is not None]
    valid = [column.valid for column in found if column.valid is not None]
    return valid if len(valid) == len(found) else None


def _signals(columns: Columns, names: tuple[str, ...], limit: float, rows: int) -> _Signals:
    valid = _available(columns, names)
    available = np.zeros(rows, np.bool_) if valid is not None else np.ones(rows, np.bool_)
    for one in valid or ():
        available |= one
    return _Signals(
        available,
        _all(columns, names, rows, lambda values: values < limit),
        _all(columns, names, rows, lambda values: values == 0),
    )


def _all(
    columns: Columns,
    names: tuple[str, ...],
    rows: int,
    test: Callable[[NDArray[Any]], NDArray[np.bool_]],
) -> BoolArray:
    """Return True where every one of the signals that has a value passes a test."""
    passed = np.ones(rows, dtype=np.bool_)
    for name in names:
        column = columns.get(name)
        if column is not None:
            one = test(column.values)
            passed &= one if column.valid is None else one | ~column.valid
    return passed


def _at_power(columns: Columns, at: NDArray[np.intp]) -> NDArray[np.intp]:
    """Return those of the rows where every power reading stands at half the limit or above.

    One reading alone is not trusted: a driver's one-second average still carries the power of
    work that ended during the second before.
    """
    limit = columns.get("power_limit_mw")
    if limit is None:
        return at[:0]
    if limit.valid is not None:
        at = at[limit.valid[at]]
    found = [columns.get(name) for name in ("power_avg_mw", "power_inst_mw")]
    readings = [column for column in found if column is not None]
    for column in readings:
        # Few rows are left after the first reading, so that the rest costs little.
        high = column.values[at] >= limit.values[at] / 2
        at = at[high if column.valid is None else high | ~column.valid[at]]
    read = np.zeros(len(at), dtype=np.bool_)
    for column in readings:
        read |= column.present()[at]
    return at[read]


def _power_fell(columns: Columns, rows: int) -> BoolArray:
    """Return True where the counter's mean power is clearly above the reading at the end."""
    mean, at_end = columns.get("mean_power_mw"), columns.get("power_inst_mw")
    if mean is None or at_end is None:
        return np.zeros(rows, dtype=np.bool_)
    fell = np.asarray(mean.values > at_end.values * FALL_RATIO)
    return fell & mean.present() & at_end.present()


def classify(columns: Columns, rows: int, thresholds: Thresholds | None = None) -> CodeArray:
    """Return the `Kind` of each row, from the row alone.

    Args:
        columns: columns of `gpu_sample` by name, and mean_power_mw (energy by the counter over the
            interval); one that is not there is NULL throughout.
        rows: number of rows.
        thresholds: limits of the low-activity test; the paper's where None.
    """
    limits = thresholds or Thresholds()
    activity = _signals(columns, _ACTIVITY, limits.activity, rows)
    # Rates are integers: the strict `<` holds for the next whole number, and stays exact.
    comm_limit = math.ceil(limits.comm_bytes_s)
    comm_low = _all(columns, COMM_SIGNALS, rows, lambda values: values < comm_limit)
    kind = np.full(rows, Kind.NO_ACTIVITY, dtype=np.int8)
    zero = activity.available & activity.zero
    unused = np.zeros(rows, dtype=np.bool_)
    if not activity.available.all():
        utilisation = _utilisation(columns, rows)
        unused = utilisation.available & utilisation.zero & ~activity.available
        kind[utilisation.available] = Kind.ACTIVE_UTILISATION
        kind[unused & comm_low & ~_power_fell(columns, rows)] = Kind.LOW_UTILISATION
    np.copyto(kind, Kind.ACTIVE_COUNTERS, where=activity.available)
    np.copyto(kind, Kind.LOW_COUNTERS, where=activity.available & activity.low & comm_low)
    resident = columns.get("resident", Column(np.zeros(rows, bool), np.zeros(rows, bool)))
    held = resident.values.astype(np.bool_, copy=False)
    nothing = np.flatnonzero((zero | unused) & held)
    if len(nothing):
        nothing = _at_power(columns, nothing)
        kind[nothing] = Kind.ZERO_AT_POWER_UTILISATION
        kind[nothing[zero[nothing]]] = Kind.ZERO_AT_POWER_COUNTERS
    np.copyto(kind, Kind.DEEP_IDLE, where=~held)
    if resident.valid is not None:
        np.copyto(kind, Kind.NO_RESIDENCY, where=~resident.valid)
    return kind


def _utilisation(columns: Columns, rows: int) -> _Signals:
    """Return where both utilisations are known, and where both are exactly 0."""
    gpu, memory = columns.get("util_gpu_pct"), columns.get("util_mem_pct")
    if gpu is None or memory is None:
        none = np.zeros(rows, dtype=np.bool_)
        return _Signals(none, none, none)
    zero = (gpu.values == 0) & (memory.values == 0)
    return _Signals(gpu.present() & memory.present(), zero, zero)
