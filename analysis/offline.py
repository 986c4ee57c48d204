"""What files say about their GPUs: states, energy, idle runs, what is unknown, what looks wrong.

Pure: rows in, value objects out. Text and page are made from these alone, so they agree.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from analysis.classify import RAW_NAMES, STATES, VERDICTS, classify
from analysis.frame import ENERGY_SOURCES, BoolArray, CodeArray, Column, IntArray
from analysis.offline_findings import findings
from analysis.offline_model import (
    GpuResult,
    IdleRun,
    Length,
    Moment,
    Offline,
    Totals,
    counts,
    sum_known,
)
from analysis.offline_rows import Gpu, Samples
from analysis.offline_series import power_mw, series
from analysis.runs import Intervals, Runs, raw_runs, stitch, take
from analysis.shares import shares, totals
from idlewatt.columns import COMPUTE_SIGNALS, MEMORY_SIGNALS
from idlewatt.model import Basis, State, Thresholds
from idlewatt.units import MS_PER_S, US_PER_MS

MOMENT_ROWS: Final = 2
"""Up to so many readings of a GPU are moments, not a time line."""

KEPT_RUNS: Final = 10
FIELDS: Final = {
    "utilization.gpu": ("util_gpu_pct", *COMPUTE_SIGNALS),
    "utilization.memory": ("util_mem_pct", *MEMORY_SIGNALS),
    "memory.used": ("mem_used_mib", "n_procs"),
    "power.draw": ("power_avg_mw", "power_inst_mw", "mean_power_mw"),
    "enforced.power.limit": ("power_limit_mw",),
}
"""Fields of nvidia-smi, and the columns that have what they say."""

LONG_MS: Final = 5 * 60 * MS_PER_S
"""From here on a run is a wait of a program, and not a pause between two pieces of work."""
KEPT_MOMENTS: Final = 64


def analyse(samples: Samples, thresholds: Thresholds | None = None) -> Offline:
    """Return everything that the rows of some files say.

    Args:
        samples: the rows.
        thresholds: limits of the low-activity test; the paper's where None.
    """
    limits = thresholds or Thresholds()
    rows, columns = samples.rows, samples.columns
    if not len(rows):
        return Offline(min_interval_s=limits.min_interval_s)
    kind = classify(columns, len(rows), limits)
    runs = raw_runs(rows, kind, np.full(len(rows), -1, dtype=np.int32))
    pieces = stitch(runs, limits.min_interval_s)
    counted = np.array([counts(gpu, samples.gpus) for gpu in samples.gpus])
    spans = _spans(samples)
    readings = np.bincount(rows.gpu, minlength=len(samples.gpus))
    moments = bool((readings <= MOMENT_ROWS).all())
    ours = take(pieces, counted[pieces.gpu])
    return Offline(
        gpus=tuple(
            _gpu(samples, code, take(pieces, pieces.gpu == code), spans[code])
            for code in range(len(samples.gpus))
        ),
        totals=_totals(ours, int(spans[counted].sum())),
        runs=() if moments else _longest(_all_runs(samples.gpus, pieces)),
        moments=_moments(samples, kind) if moments else (),
        series=None if moments else series(samples, np.repeat(pieces.state, pieces.samples)),
        findings=findings(samples, kind),
        by_length=() if moments else _by_length(runs, counted),
        rows=len(rows),
        rows_by_memory=_by_memory(samples),
        min_interval_s=limits.min_interval_s,
        from_us=int((rows.ts_us - rows.obs_ms * US_PER_MS).min()),
        to_us=int(rows.ts_us.max()),
        lacking=_lacking(samples),
    )


def _spans(samples: Samples) -> IntArray:
    """Return per GPU how long its node was recorded, in ms."""
    rows = samples.rows
    nodes = {gpu.node_id: number for number, gpu in enumerate(samples.gpus)}
    node = np.array([nodes[gpu.node_id] for gpu in samples.gpus])[rows.gpu]
    spans = np.zeros(len(samples.gpus), dtype=np.int64)
    for code, gpu in enumerate(samples.gpus):
        mine = node == nodes[gpu.node_id]
        begin = (rows.ts_us[mine] - rows.obs_ms[mine] * US_PER_MS).min()
        spans[code] = (rows.ts_us[mine].max() - begin) // US_PER_MS
    return spans


def _totals(pieces: Intervals, span_ms: int) -> Totals:
    basis_ms: dict[Basis, int] = {}
    unknown_ms: dict[str, int] = {}
    for kind, verdict in enumerate(VERDICTS):
        time_ms = int(pieces.obs_ms[pieces.kind == kind].sum())
        if not time_ms:
            continue
        if verdict.reason is not None:
            unknown_ms[verdict.reason] = unknown_ms.get(verdict.reason, 0) + time_ms
        elif verdict.basis is not Basis.RESIDENCY:
            basis_ms[verdict.basis] = basis_ms.get(verdict.basis, 0) + time_ms
    return Totals(tuple(totals(pieces)), basis_ms, unknown_ms, int(pieces.obs_ms.sum()), span_ms)


def _gpu(samples: Samples, code: int, pieces: Intervals, span_ms: int) -> GpuResult:
    rows = samples.rows
    begin, end = np.searchsorted(rows.gpu, [code, code + 1])
    mine = slice(int(begin), int(end))
    power = power_mw(samples, mine)
    limit = samples.columns.get("power_limit_mw")
    limits = limit.values[mine][limit.present()[mine]] if limit is not None else np.zeros(0)
    at = int(np.argmax(np.where(power.present(), power.values, -1)))
    known = bool(power.present().any())
    runs = _all_runs(samples.gpus, pieces)
    long = [run for run in runs if run.length_ms >= LONG_MS]
    all_ = _totals(pieces, span_ms)
    energy_uj = all_.energy_uj
    source = rows.energy_source[mine]
    return GpuResult(
        samples.gpus[code],
        all_,
        int(rows.ts_us[mine][0] - rows.obs_ms[mine][0] * US_PER_MS),
        int(rows.ts_us[mine][-1]),
        int(np.median(rows.obs_ms[mine])),
        None if energy_uj is None or not all_.energy_ms else energy_uj / all_.energy_ms / 1_000,
        float(power.values[at]) / 1_000 if known else None,
        int(rows.ts_us[mine][at]) if known else None,
        float(limits.max()) / 1_000 if len(limits) else None,
        tuple(name for number, name in enumerate(ENERGY_SOURCES) if (source == number).any()),
        len(runs),
        float(np.median([run.length_ms for run in runs])) / MS_PER_S if runs else None,
        sum(run.length_ms for run in long),
        sum_known([run.energy_uj for run in long]),
        max(runs, key=lambda run: run.length_ms, default=None),
    )


def _first_of_runs(idle: Intervals) -> IntArray:
    """Return where each whole run begins among idle pieces, which are cut at hours."""
    new = np.ones(len(idle), dtype=np.bool_)
    if len(idle) > 1:
        step_ms = (idle.first_us[1:] - idle.last_us[:-1]) // US_PER_MS
        interval_ms = idle.obs_ms[1:] // np.maximum(idle.samples[1:], 1)
        new[1:] = (idle.gpu[1:] != idle.gpu[:-1]) | (step_ms >= interval_ms * 3 // 2)
    return np.flatnonzero(new).astype(np.int64, copy=False)


def _all_runs(gpus: Sequence[Gpu], pieces: Intervals) -> list[IdleRun]:
    """Return the whole execution-idle runs, in the order of the pieces."""
    idle = take(pieces, pieces.state == STATES.index(State.EXECUTION_IDLE))
    first = _first_of_runs(idle)
    if not len(first):
        return []
    last = np.append(first[1:], len(idle)) - 1
    interval_ms = idle.obs_ms[first] // idle.samples[first]
    energy_uj = np.add.reduceat(idle.energy_uj.sum(axis=0), first)
    known = np.add.reduceat(idle.energy_seen.any(axis=0), first)
    columns = (
        idle.gpu[first],
        idle.first_us[first] - interval_ms * US_PER_MS,
        idle.last_us[last],
        np.add.reduceat(idle.obs_ms, first),
        idle.kind[first],
        energy_uj,
        known,
    )
    return [
        IdleRun(gpus[gpu], begin, end, ms, uj if seen else None, VERDICTS[kind].basis)
        for gpu, begin, end, ms, kind, uj, seen in zip(
            *(column.tolist() for column in columns), strict=True
        )
    ]


def _longest(runs: list[IdleRun]) -> tuple[IdleRun, ...]:
    return tuple(sorted(runs, key=lambda run: -run.length_ms)[:KEPT_RUNS])


def _by_length(runs: Runs, counted: BoolArray) -> tuple[Length, ...]:
    ours = take(runs, counted[runs.gpu])
    return tuple(Length(item.min_interval_s, item.time, item.energy) for item in shares(ours))


def _lacking(samples: Samples) -> tuple[str, ...]:
    found = [
        field
        for field, names in FIELDS.items()
        if not any(name in samples.columns for name in names)
    ]
    if all(gpu.model is None for gpu in samples.gpus):
        found.append("name")
    return tuple(found)


def _moments(samples: Samples, kind: CodeArray) -> tuple[Moment, ...]:
    rows, power = samples.rows, power_mw(samples, slice(None))
    read = [samples.columns.get(name) for name in ("util_gpu_pct", "util_mem_pct", "mem_used_mib")]
    found = []
    for at in range(min(len(rows), KEPT_MOMENTS)):
        verdict = VERDICTS[kind[at]]
        read_mw = _value(power, at)
        found.append(
            Moment(
                samples.gpus[rows.gpu[at]],
                int(rows.ts_us[at]),
                RAW_NAMES[verdict.raw],
                verdict.basis,
                verdict.reason,
                None if read_mw is None else read_mw / 1_000,
                *(_value(column, at) for column in read),
            )
        )
    return tuple(found)


def _value(column: Column | None, at: int) -> int | None:
    return None if column is None or not column.present()[at] else int(column.values[at])


def _by_memory(samples: Samples) -> int:
    """Return how many rows rest on memory in use: a state of residency without a process list."""
    resident = samples.columns.get("resident")
    processes = samples.columns.get("n_procs")
    if resident is None:
        return 0
    listed = np.zeros(len(samples.rows), bool) if processes is None else processes.present()
    return int((resident.present() & ~listed).sum())
