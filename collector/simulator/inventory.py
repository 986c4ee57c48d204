"""Rows about nodes, devices and jobs, as the agent and the scheduler's hooks would send them."""

from __future__ import annotations

from typing import Any, Final

from collector.simulator.cluster import ClusterSpec, Job, device_of, node_id, rack_of
from collector.simulator.device import DRIVER_VERSION
from collector.simulator.profiles import ARCH_ADA, ARCH_AMPERE, ARCH_HOPPER, GpuProfile
from idlewatt import __version__
from idlewatt.columns import GPU_SAMPLE, Group

Rows = list[tuple[Any, ...]]

ARCH_NAMES: Final = {ARCH_AMPERE: "ampere", ARCH_ADA: "ada", ARCH_HOPPER: "hopper"}
RULE: Final = "whole_gpu"
SOURCE: Final = "scheduler"
DERIVED: Final = frozenset(
    {"energy_epoch", "energy_uj", "energy_source", "power_scope", "activity_source"}
)


def job_row(spec: ClusterSpec, job: Job, now_s: float) -> tuple[Any, ...]:
    """Return a job's row of the job table, as far as it is known at `now_s`."""
    return (
        job.key,
        spec.cluster,
        job.raw_id,
        0,
        job.user,
        job.project,
        job.title,
        job.job_class,
        spec.time_us(job.submit_s),
        spec.time_us(job.start_s),
        spec.time_us(job.end_s) if job.end_s <= now_s else None,
    )


def allocation_row(spec: ClusterSpec, job: Job, uuid: str, now_s: float) -> tuple[Any, ...]:
    """Return one GPU's row of the allocation table, open while the job runs at `now_s`."""
    return (
        uuid,
        spec.time_us(job.start_s),
        spec.time_us(job.end_s) if job.end_s <= now_s else None,
        job.key,
        1.0,
        RULE,
        SOURCE,
        1.0,
    )


def node_row(spec: ClusterSpec, node_index: int, valid_from_us: int) -> tuple[Any, ...]:
    """Return the node's row of the node table."""
    name = node_id(node_index)
    return (name, valid_from_us, name, rack_of(spec, node_index), spec.cluster, __version__)


def device_rows(spec: ClusterSpec, node_index: int, valid_from_us: int) -> Rows:
    """Return the node's rows of the device table: what a probe through pynvml would find."""
    rows: Rows = []
    for gpu in spec.node_gpus(node_index):
        info = device_of(spec, gpu)
        model = info.profile
        rows.append(
            (
                info.uuid,
                node_id(node_index),
                valid_from_us,
                None,
                model.name,
                ARCH_NAMES[model.arch],
                info.index,
                info.bus_id,
                DRIVER_VERSION,
                round(model.mem_total_mib.value),
                round(model.limit_default_w.value * 1_000),
                round(model.limit_min_w.value * 1_000),
                round(model.limit_max_w.value * 1_000),
                round(model.clocks.sm_max_mhz.value),
                round(model.clocks.mem_max_mhz.value),
            )
        )
    return rows


def unsupported(profile: GpuProfile) -> frozenset[str]:
    """Return the sample columns that a model never gives through NVML."""
    lacking = {"fan_pct"}
    if not profile.gpm:
        groups = (Group.ACTIVITY, Group.LINKS)
        lacking.update(column.name for column in GPU_SAMPLE if column.group in groups)
    elif not profile.nvlink_links:
        lacking.update({"nvlink_tx_bytes_s", "nvlink_rx_bytes_s"})
    if profile.power.average is None:
        lacking.add("power_avg_mw")
    if profile.thermal.mem_offset_c is None:
        lacking.add("temp_mem_c")
    return frozenset(lacking) - DERIVED


def capability_rows(spec: ClusterSpec, node_index: int, valid_from_us: int) -> Rows:
    """Return the node's rows of the device_capability table."""
    lacking = unsupported(spec.profile_of(node_index))
    measured = [
        column.name
        for column in GPU_SAMPLE
        if column.group not in (Group.KEY, Group.QUALITY) and column.name not in DERIVED
    ]
    return [
        (
            device_of(spec, gpu).uuid,
            valid_from_us,
            column,
            column not in lacking,
            "unsupported" if column in lacking else None,
        )
        for gpu in spec.node_gpus(node_index)
        for column in measured
    ]
