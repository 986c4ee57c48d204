"""Figures drawn from runs and rows: in-execution shares, and the state of each GPU now."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from analysis.classify import STATES, VERDICTS, classify
from analysis.frame import (
    Columns,
    IntArray,
    Rows,
    column_from_arrow,
    columns_from_arrow,
    mean_power,
    sort_order,
)
from analysis.runs import Intervals, Runs, raw_runs, stitch, take, within
from idlewatt.model import Basis, EnergySource, State, Thresholds

PAPER_INTERVALS_S: Final = (1, 5, 10)
"""The minimum lengths that arXiv 2604.04745 reports side by side."""


@dataclass(frozen=True, slots=True)
class StateTotal:
    """Time and energy of one state.

    Attributes:
        state: which.
        obs_ms: observed time.
        energy_uj: energy of all sources; None where no row had any.
        energy_by_source_uj: the same per source, in the order of `ENERGY_SOURCES`.
        energy_obs_ms: observed time that has an energy.
    """

    state: State
    obs_ms: int
    energy_uj: int | None
    energy_by_source_uj: tuple[int | None, ...]
    energy_obs_ms: int


@dataclass(frozen=True, slots=True)
class Share:
    """In-execution share: execution-idle over execution-idle plus active.

    Attributes:
        min_interval_s: length from which a low stretch counts.
        time: share of time; None where nothing was in execution.
        energy: share of energy; None where no energy is known.
        execution_idle_ms: time in the state.
        active_ms: time at work.
    """

    min_interval_s: int
    time: float | None
    energy: float | None
    execution_idle_ms: int
    active_ms: int


def totals(intervals: Intervals) -> list[StateTotal]:
    """Return time and energy of every state, in the order of `STATES`."""
    found = []
    state = intervals.state
    for code, name in enumerate(STATES):
        mask = state == code
        by_source = tuple(
            int(values[mask].sum()) if seen[mask].any() else None
            for values, seen in zip(intervals.energy_uj, intervals.energy_seen, strict=True)
        )
        known = [value for value in by_source if value is not None]
        found.append(
            StateTotal(
                name,
                int(intervals.obs_ms[mask].sum()),
                sum(known) if known else None,
                by_source,
                int(intervals.energy_obs_ms[mask].sum()),
            )
        )
    return found


def share(intervals: Intervals, min_interval_s: int) -> Share:
    """Return the in-execution share of intervals stitched with `min_interval_s`."""
    by_state = {total.state: total for total in totals(intervals)}
    idle, active = by_state[State.EXECUTION_IDLE], by_state[State.ACTIVE]
    energy_uj = (idle.energy_uj or 0) + (active.energy_uj or 0)
    time_ms = idle.obs_ms + active.obs_ms
    return Share(
        min_interval_s,
        idle.obs_ms / time_ms if time_ms else None,
        (idle.energy_uj or 0) / energy_uj if energy_uj else None,
        idle.obs_ms,
        active.obs_ms,
    )


def shares(
    runs: Runs,
    min_intervals_s: Sequence[int] = PAPER_INTERVALS_S,
    *,
    attributed_only: bool = False,
    period_us: tuple[int, int] | None = None,
) -> list[Share]:
    """Return the in-execution share for each minimum length.

    Deep idle and unknown time never count. With `attributed_only`, neither does time without an
    owner, as in the paper; without it, a cluster that has no scheduler still gets figures.

    Args:
        runs: in the order (gpu, first_us).
        min_intervals_s: minimum lengths.
        attributed_only: leave out what nobody owns.
        period_us: count only stamps from the first to before the second; `runs` may go beyond.
    """
    found = []
    for min_interval_s in min_intervals_s:
        intervals = stitch(runs, min_interval_s, period_us or ())
        if period_us is not None:
            intervals = within(intervals, period_us)
        if attributed_only:
            intervals = take(intervals, intervals.job >= 0)
        found.append(share(intervals, min_interval_s))
    return found


@dataclass(frozen=True, slots=True)
class Now:
    """State of each GPU at its newest row, one entry a GPU.

    Attributes:
        gpu: code of the GPU, ascending.
        ts_us: stamp of its newest row.
        state: code into `STATES`.
        kind: `analysis.classify.Kind`, for basis and reason.
        run_ms: how long that state has held within the rows given.
    """

    gpu: NDArray[np.int32]
    ts_us: IntArray
    state: NDArray[np.int8]
    kind: NDArray[np.int8]
    run_ms: IntArray


def state_now(columns: Columns, rows: Rows, thresholds: Thresholds | None = None) -> Now:
    """Return what each GPU is doing at its newest row.

    A low stretch that is still shorter than the rule asks for counts as active until it is not.

    Args:
        columns: the classifier's columns of the last minute or so (at least `min_interval_s`).
        rows: the same rows, in the order (gpu, ts_us).
        thresholds: limits of the low-activity test.
    """
    limits = thresholds or Thresholds()
    kind = classify(columns, len(rows), limits)
    nobody = np.full(len(rows), -1, dtype=np.int32)
    pieces = stitch(raw_runs(rows, kind, nobody), limits.min_interval_s)
    newest = np.ones(len(pieces), dtype=np.bool_)
    newest[:-1] = pieces.gpu[1:] != pieces.gpu[:-1]
    last = take(pieces, newest)
    return Now(last.gpu, last.last_us, last.state, last.kind, last.run_ms)


@dataclass(frozen=True, slots=True)
class GpuNow:
    """State of one GPU at its newest row.

    Attributes:
        ts_us: stamp of that row, µs since 1970.
        state: what it is doing.
        basis: the evidence.
        reason: why the state is unknown; None otherwise.
        run_ms: how long the state has held within the rows given.
    """

    ts_us: int
    state: State
    basis: Basis
    reason: str | None
    run_ms: int


def states_now(table: Any, thresholds: Thresholds | None = None) -> dict[str, GpuNow]:
    """Return the newest state by `gpu_uuid` from an Arrow table of the last minute of samples.

    Args:
        table: pyarrow table with gpu_uuid, ts_utc, obs_ms and whatever there is of
            `analysis.power_states.CLASSIFIER_COLUMNS`, energy_uj and energy_source, in any order
            of rows.
        thresholds: limits of the low-activity test.
    """
    words = table.column("gpu_uuid").combine_chunks().dictionary_encode()
    codes = column_from_arrow(words.indices).values.astype(np.int32)
    ts_us = column_from_arrow(table.column("ts_utc")).values
    obs_ms = column_from_arrow(table.column("obs_ms")).values.astype(np.int64)
    columns = columns_from_arrow(table)
    if {"energy_uj", "energy_source"} <= set(table.column_names):
        energy = column_from_arrow(table.column("energy_uj"))
        source = table.column("energy_source").to_pylist()
        counted = np.array([name == EnergySource.COUNTER for name in source], dtype=np.bool_)
        counted &= energy.present()
        columns["mean_power_mw"] = mean_power(energy.values.astype(np.int64), obs_ms, counted)
    none = np.zeros(len(codes), dtype=np.int64)
    rows = Rows(codes, ts_us, obs_ms, none, np.full(len(codes), -1, dtype=np.int8))
    order = sort_order(codes, ts_us)
    if order is not None:
        rows = rows.take(order)
        columns = {name: column.take(order) for name, column in columns.items()}
    now = state_now(columns, rows, thresholds)
    names = words.dictionary.to_pylist()
    return {
        names[gpu]: GpuNow(
            int(now.ts_us[at]),
            STATES[now.state[at]],
            VERDICTS[now.kind[at]].basis,
            VERDICTS[now.kind[at]].reason,
            int(now.run_ms[at]),
        )
        for at, gpu in enumerate(now.gpu)
    }
