"""What in the readings of a file looks wrong or misleads whoever reads the file alone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from analysis.classify import VERDICTS
from analysis.frame import BoolArray, CodeArray, Column
from analysis.offline_rows import Gpu, Samples

BUSY_PCT: Final = 95
EMPTY_MIB: Final = 100
LOW_LIMIT_SHARE: Final = 0.3
NOTABLE_SHARE: Final = 0.001
"""Share of a GPU's readings that has to show something; a program may start within a second."""
_LEAST_HIGH_ROWS: Final = 60


@dataclass(frozen=True, slots=True)
class Finding:
    """Something about one GPU's readings.

    Attributes:
        kind: busy_but_empty, zero_at_power or busy_at_low_power.
        gpu: which.
        rows: how many readings show it.
        time_ms: how much time they stand for.
        first_us: stamp of the first one.
        util_pct: utilisation of the first one.
        power_w: power of the first one.
        mem_mib: memory in use of the first one.
        limit_w: power limit of the first one.
    """

    kind: str
    gpu: Gpu
    rows: int
    time_ms: int
    first_us: int
    util_pct: int | None = None
    power_w: float | None = None
    mem_mib: int | None = None
    limit_w: float | None = None


def findings(samples: Samples, kind: CodeArray) -> tuple[Finding, ...]:
    """Return what looks wrong, per kind and GPU.

    Args:
        samples: the rows.
        kind: what the classifier said of each.
    """
    found = []
    readings = np.bincount(samples.rows.gpu, minlength=len(samples.gpus))
    for name, mask in _masks(samples, kind).items():
        shown = np.bincount(samples.rows.gpu[mask], minlength=len(samples.gpus))
        for code in np.flatnonzero(shown >= np.maximum(readings * NOTABLE_SHARE, 1)):
            found.append(_finding(name, samples, mask & (samples.rows.gpu == code), int(code)))
    return tuple(found)


def _masks(samples: Samples, kind: CodeArray) -> dict[str, BoolArray]:
    rows = len(samples.rows)
    utilisation = samples.columns.get("util_gpu_pct")
    resident = samples.columns.get("resident")
    memory = samples.columns.get("mem_used_mib")
    none = np.zeros(rows, dtype=np.bool_)
    busy = none if utilisation is None else utilisation.present() & (utilisation.values >= 5)
    unheld = ~resident.present() if resident is not None else ~none
    empty = none if memory is None else memory.present() & (memory.values <= EMPTY_MIB)
    contradicting = np.array([v.reason == "zero_activity_at_power" for v in VERDICTS])
    return {
        "busy_but_empty": busy & unheld & empty,
        "zero_at_power": contradicting[kind],
        "busy_at_low_power": _spinning(samples, utilisation, busy & ~(unheld & empty)),
    }


def _spinning(samples: Samples, utilisation: Column | None, busy: BoolArray) -> BoolArray:
    """Return where utilisation is near 100 % and power is far below the limit."""
    limit = samples.columns.get("power_limit_mw")
    if utilisation is None or limit is None:
        return np.zeros(len(busy), dtype=np.bool_)
    power = np.zeros(len(busy), dtype=np.int64)
    known = np.zeros(len(busy), dtype=np.bool_)
    for name in ("power_avg_mw", "power_inst_mw"):
        column = samples.columns.get(name)
        if column is not None:
            power = np.maximum(power, np.where(column.present(), column.values, 0))
            known |= column.present()
    full = busy & (utilisation.values >= BUSY_PCT) & known & limit.present()
    low = full & (power < limit.values * LOW_LIMIT_SHARE)
    many = np.bincount(samples.rows.gpu[low], minlength=len(samples.gpus)) >= _LEAST_HIGH_ROWS
    return np.asarray(low & many[samples.rows.gpu])


def _finding(kind: str, samples: Samples, mask: BoolArray, code: int) -> Finding:
    at = int(np.flatnonzero(mask)[0])
    power = _read(samples, "power_inst_mw", at)
    power = _read(samples, "power_avg_mw", at) if power is None else power
    limit = _read(samples, "power_limit_mw", at)
    return Finding(
        kind,
        samples.gpus[code],
        int(mask.sum()),
        int(samples.rows.obs_ms[mask].sum()),
        int(samples.rows.ts_us[at]),
        _read(samples, "util_gpu_pct", at),
        None if power is None else power / 1_000,
        _read(samples, "mem_used_mib", at),
        None if limit is None else limit / 1_000,
    )


def _read(samples: Samples, name: str, at: int) -> int | None:
    column = samples.columns.get(name)
    return None if column is None or not column.present()[at] else int(column.values[at])
