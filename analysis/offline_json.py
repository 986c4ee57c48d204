"""The results about files as plain values for machines; units stand in the names."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from analysis.offline_findings import Finding
from analysis.offline_model import GpuResult, IdleRun, Moment, Offline, Totals
from idlewatt.clock import iso_utc
from idlewatt.model import State
from idlewatt.units import MS_PER_S, UJ_PER_J


def as_json(result: Offline) -> dict[str, Any]:
    """Return everything but the drawings."""
    return {
        "from": iso_utc(result.from_us),
        "to": iso_utc(result.to_us),
        "only_moments": result.only_moments,
        "readings": result.rows,
        "readings_by_memory": result.rows_by_memory,
        "min_interval_s": result.min_interval_s,
        "fields_lacking": list(result.lacking),
        "totals": _totals(result.totals),
        "gpus": [_gpu(item) for item in result.gpus],
        "longest_runs": [_run(run) for run in result.runs],
        "moments": [_moment(moment) for moment in result.moments],
        "findings": [_finding(item) for item in result.findings],
        "by_min_interval": [asdict(item) for item in result.by_length],
    }


def _joules(value_uj: int | None) -> float | None:
    return None if value_uj is None else value_uj / UJ_PER_J


def _totals(sums: Totals) -> dict[str, Any]:
    return {
        "seen_s": sums.seen_ms / MS_PER_S,
        "span_s": sums.span_ms / MS_PER_S,
        "coverage": sums.coverage,
        "held_s": sums.held_ms / MS_PER_S,
        "energy_j": _joules(sums.energy_uj),
        "energy_s": sums.energy_ms / MS_PER_S,
        "execution_idle_time_share": sums.idle_time_share,
        "execution_idle_energy_share": sums.idle_energy_share,
        "states": {
            total.state.value: {
                "seconds": total.obs_ms / MS_PER_S,
                "energy_j": _joules(total.energy_uj),
                "energy_s": total.energy_obs_ms / MS_PER_S,
                "mean_w": sums.mean_w(State(total.state)),
            }
            for total in sums.states
        },
        "basis_s": {basis.value: ms / MS_PER_S for basis, ms in sums.basis_ms.items()},
        "unknown_s": {reason: ms / MS_PER_S for reason, ms in sums.unknown_ms.items()},
    }


def _gpu(item: GpuResult) -> dict[str, Any]:
    return {
        "gpu": item.gpu.name,
        "node_id": item.gpu.node_id,
        "index": item.gpu.index,
        "model": item.gpu.model,
        "parent": item.gpu.parent_uuid,
        "from": iso_utc(item.first_us),
        "to": iso_utc(item.last_us),
        "interval_s": item.interval_ms / MS_PER_S,
        "mean_w": item.mean_w,
        "peak_w": item.peak_w,
        "peak_at": None if item.peak_us is None else iso_utc(item.peak_us),
        "limit_w": item.limit_w,
        "energy_sources": [source.value for source in item.sources],
        "execution_idle_runs": item.idle_runs,
        "execution_idle_median_s": item.idle_median_s,
        "execution_idle_long_s": item.idle_long_ms / MS_PER_S,
        **_totals(item.totals),
    }


def _run(run: IdleRun) -> dict[str, Any]:
    return {
        "gpu": run.gpu.name,
        "from": iso_utc(run.begin_us),
        "to": iso_utc(run.end_us),
        "seconds": run.length_ms / MS_PER_S,
        "energy_j": _joules(run.energy_uj),
        "basis": run.basis.value,
    }


def _moment(moment: Moment) -> dict[str, Any]:
    return {
        "gpu": moment.gpu.name,
        "at": iso_utc(moment.at_us),
        "state": moment.raw,
        "basis": moment.basis.value,
        "reason": moment.reason,
        "power_w": moment.power_w,
        "util_gpu_pct": moment.util_gpu_pct,
        "util_mem_pct": moment.util_mem_pct,
        "mem_used_mib": moment.mem_used_mib,
    }


def _finding(item: Finding) -> dict[str, Any]:
    return {
        "kind": item.kind,
        "gpu": item.gpu.name,
        "readings": item.rows,
        "seconds": item.time_ms / MS_PER_S,
        "first_at": iso_utc(item.first_us),
        "util_gpu_pct": item.util_pct,
        "power_w": item.power_w,
        "mem_used_mib": item.mem_mib,
        "limit_w": item.limit_w,
    }
