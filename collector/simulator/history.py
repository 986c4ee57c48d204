"""Wire tables of past seconds, made in bulk: the rows an agent would have sent, had it run.

No row passes through pynvml here; the same hour read live through pynvml gives the same values.
Columns go straight from numpy buffers into the wire format.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np
from numpy.typing import NDArray

from collector.simulator.cluster import ClusterSpec, Job, device_of, node_id, schedule_of
from collector.simulator.device import SIGNALS
from collector.simulator.hours import HourOfGpu, hour_of, read_hour
from collector.simulator.inventory import (
    Rows,
    allocation_row,
    capability_rows,
    device_rows,
    job_row,
    node_row,
    unsupported,
)
from collector.simulator.live import GPU_IDLE
from collector.simulator.physics import Floats, Ints, hash_uniform, processes_of
from collector.simulator.truth import CAUSES, STATES, Truth, truth
from collector.simulator.workload import KERNEL, MEMORY
from idlewatt.columns import (
    ALLOCATION,
    DEVICE,
    DEVICE_CAPABILITY,
    GPU_SAMPLE,
    JOB,
    NODE,
    Group,
    Kind,
    missing_bits,
)
from idlewatt.model import ActivitySource, EnergySource, Missing, PowerScope
from idlewatt.units import (
    MIB,
    MS_PER_S,
    S_PER_HOUR,
    UJ_PER_MJ,
    US_PER_HOUR,
    US_PER_MS,
    US_PER_S,
)
from idlewatt.wire import ColumnData, Table, table_from_rows

__all__ = ["CAUSES", "STATES", "Truth", "epoch_of", "generate", "inventory", "samples", "truth"]

LATE_MAX_MS: Final = 3
_DTYPE: Final = {
    Kind.TS: "<i8",
    Kind.I64: "<i8",
    Kind.I32: "<i4",
    Kind.I16: "<i2",
    Kind.F32: "<f4",
    Kind.F64: "<f8",
}
_LATE_KEY: Final = 0x17A7E

Values = NDArray[np.generic]
Flags = NDArray[np.bool_]
Texts = tuple[list[str], NDArray[np.uint16]]  # dictionary and codes
Cell = tuple[Values | Texts, Flags | None]  # values and which of them are not NULL


def epoch_of(spec: ClusterSpec) -> int:
    """Return the epoch of the agent that history pretends ran; any live agent's is higher."""
    return spec.origin_us // US_PER_MS


def generate(
    spec: ClusterSpec,
    node_index: int,
    start_us: int,
    end_us: int,
    *,
    newest_first: bool = False,
    closed_by_us: int | None = None,
) -> Iterator[dict[str, Table]]:
    """Yield the wire tables of one node for stamps in [start_us, end_us), one UTC hour at a time.

    The first chunk also carries node, device and capability rows. Job and allocation rows come
    with each hour that they touch.

    Args:
        spec: the cluster.
        node_index: the node.
        start_us: first stamp, on a whole second; nothing exists before the origin.
        end_us: end of the stamps, on a whole second.
        newest_first: yield the newest hour first.
        closed_by_us: tell only jobs that ended by then; a backfill beside a live agent leaves
            running jobs to that agent, so that an old hour never reopens a job. Where None,
            everything known at `end_us` is told, running jobs without an end.
    """
    start_us = max(start_us, spec.origin_us)
    known_s = spec.seconds(end_us if closed_by_us is None else closed_by_us)
    hours = list(range(hour_of(start_us), hour_of(end_us - 1) + 1)) if end_us > start_us else []
    if newest_first:
        hours.reverse()
    for number, hour in enumerate(hours):
        low_us = max(start_us, hour * US_PER_HOUR)
        high_us = min(end_us, (hour + 1) * US_PER_HOUR)
        tables = inventory(spec, node_index) if number == 0 else {}
        tables["gpu_sample"] = samples(spec, node_index, low_us, high_us)
        jobs, allocations = _jobs(
            spec, node_index, (low_us, high_us), known_s, closed_by_us is None
        )
        if allocations:
            tables["job"] = table_from_rows(JOB, jobs)
            tables["allocation"] = table_from_rows(ALLOCATION, allocations)
        yield tables


def inventory(spec: ClusterSpec, node_index: int) -> dict[str, Table]:
    """Return node, device and capability rows, valid from the origin."""
    since_us = spec.origin_us
    return {
        "node": table_from_rows(NODE, [node_row(spec, node_index, since_us)]),
        "device": table_from_rows(DEVICE, device_rows(spec, node_index, since_us)),
        "device_capability": table_from_rows(
            DEVICE_CAPABILITY, capability_rows(spec, node_index, since_us)
        ),
    }


def _jobs(
    spec: ClusterSpec,
    node_index: int,
    window_us: tuple[int, int],
    known_s: float,
    open_jobs: bool,
) -> tuple[Rows, Rows]:
    low_s, high_s = spec.seconds(window_us[0]), spec.seconds(window_us[1])
    jobs: dict[int, Job] = {}
    allocations: Rows = []
    for gpu in spec.node_gpus(node_index):
        uuid = device_of(spec, gpu).uuid
        for job in schedule_of(spec).jobs_on(gpu, low_s - 1.0, high_s):
            if job.start_s <= known_s and (open_jobs or job.end_s <= known_s):
                jobs[job.number] = job
                allocations.append(allocation_row(spec, job, uuid, known_s))
    return [job_row(spec, job, known_s) for job in jobs.values()], allocations


def samples(spec: ClusterSpec, node_index: int, start_us: int, end_us: int) -> Table:
    """Return the sample table of one node for stamps within one UTC hour, GPU by GPU."""
    hour = hour_of(start_us)
    hour_us = hour * US_PER_HOUR
    low = (start_us - hour_us) // US_PER_S
    high = (end_us - hour_us) // US_PER_S
    if not 0 <= low < high <= S_PER_HOUR:
        raise ValueError("samples() covers stamps within one UTC hour")
    first_row = spec.origin_us > hour_us + (low - 1) * US_PER_S
    parts = [
        _gpu_cells(spec, gpu, read_hour(spec, gpu, hour), (hour_us, low, high), first_row)
        for gpu in spec.node_gpus(node_index)
    ]
    return _join(parts, high - low)


def _gpu_cells(
    spec: ClusterSpec, gpu: int, now: HourOfGpu, window: tuple[int, int, int], first_row: bool
) -> dict[str, Cell]:
    """Return all cells of one GPU; columns it lacks are left out."""
    hour_us, low, high = window
    here = slice(low + 1, high + 1)  # entry 0 of the hour is the second before it
    cells: dict[str, Cell] = {}
    second = hour_us // US_PER_S + np.arange(low, high, dtype=np.int64)
    _key(spec, gpu, cells, second, first_row)
    _power(now, cells, (low, high), first_row)
    _activity(now, cells, (low, high), first_row)
    _state(spec, gpu, now, cells, here)
    _throttle(cells, high - low, first_row)
    lacking = unsupported(now.track.profile)
    return {name: cell for name, cell in cells.items() if name not in lacking}


def _same(text: str, count: int) -> Cell:
    return ([text], np.zeros(count, dtype=np.uint16)), None


def _full(value: int, count: int) -> Cell:
    return np.full(count, value, dtype=np.int64), None


def _not_first(count: int, first_row: bool) -> Flags | None:
    """Return validity that leaves out the first row of an epoch, or None where all are valid."""
    if not first_row:
        return None
    valid = np.ones(count, dtype=np.bool_)
    valid[0] = False
    return valid


def _key(
    spec: ClusterSpec, gpu: int, cells: dict[str, Cell], second: Ints, first_row: bool
) -> None:
    count = second.size
    node = gpu // spec.gpus_per_node
    cells["ts_utc"] = (second * US_PER_S, None)
    # All devices of a tick are late together.
    late = _late_ms(node, second)
    cells["dt_ms"] = (MS_PER_S + late - _late_ms(node, second - 1), _not_first(count, first_row))
    cells["late_ms"] = (late, None)
    cells["obs_ms"] = _full(MS_PER_S, count)
    cells["node_id"] = _same(node_id(node), count)
    cells["gpu_uuid"] = _same(device_of(spec, gpu).uuid, count)
    cells["epoch"] = _full(epoch_of(spec), count)
    missing = np.zeros(count, dtype=np.int64)
    if first_row:
        groups = {Group.LIMITS: int(Missing.STALE)}
        if spec.profile_of(node).gpm:
            groups |= {Group.ACTIVITY: int(Missing.STALE), Group.LINKS: int(Missing.STALE)}
        missing[0] = missing_bits(groups)
    cells["missing"] = (missing, None)


def _late_ms(node: int, second: Ints) -> Ints:
    result: Ints = (hash_uniform(_LATE_KEY + node, second) * LATE_MAX_MS).astype(np.int64)
    return result


def _power(
    now: HourOfGpu, cells: dict[str, Cell], window: tuple[int, int], first_row: bool
) -> None:
    low, high = window
    count = high - low
    here = slice(low + 1, high + 1)
    profile = now.track.profile
    limit_mw = round(profile.limit_default_w.value * 1_000)
    if now.power_avg_mw is not None:
        cells["power_avg_mw"] = (now.power_avg_mw[here], None)
    cells["power_inst_mw"] = (now.power_inst_mw[here], None)
    cells["power_limit_mw"] = _full(limit_mw, count)
    cells["power_limit_requested_mw"] = _full(limit_mw, count)
    cells["power_scope"] = _same(PowerScope.GPU.value, count)
    cells["energy_mj"] = (now.energy_mj[here], None)
    cells["energy_epoch"] = _full(0, count)
    energy = np.diff(now.energy_mj[low : high + 1]) * UJ_PER_MJ
    words, codes = [EnergySource.COUNTER.value], np.zeros(count, dtype=np.uint16)
    if first_row:
        has_average = now.power_avg_mw is not None
        power = now.power_inst_mw if now.power_avg_mw is None else now.power_avg_mw
        energy[0] = power[low + 1] * MS_PER_S
        source = EnergySource.POWER_AVG if has_average else EnergySource.POWER_INST
        words.append(source.value)
        codes[0] = 1
    cells["energy_uj"] = (energy, None)
    cells["energy_source"] = ((words, codes), None)


def _activity(
    now: HourOfGpu, cells: dict[str, Cell], window: tuple[int, int], first_row: bool
) -> None:
    low, high = window
    count = high - low
    profile = now.track.profile
    valid = _not_first(count, first_row)
    words = [ActivitySource.GPM.value if profile.gpm else ActivitySource.NVML_UTIL.value]
    codes = np.zeros(count, dtype=np.uint16)
    if profile.gpm:
        rates = np.diff(now.integrals[low : high + 1, : len(SIGNALS)], axis=0)
        for number, name in enumerate(SIGNALS):
            column = np.maximum(rates[:, number], 0.0)
            is_rate = name.endswith("_bytes_s")
            cells[name] = (np.rint(column) if is_rate else np.minimum(column, 1.0), valid)
        if first_row:
            words.append(ActivitySource.NVML_UTIL.value)
            codes[0] = 1
    cells["activity_source"] = ((words, codes), None)
    for name, share in zip(("util_gpu_pct", "util_mem_pct"), _busy(now, low, high), strict=True):
        cells[name] = (np.rint(share * 100.0), None)


def _busy(now: HourOfGpu, low: int, high: int) -> tuple[Floats, Floats]:
    """Return shares of the utilisation period with a kernel running and with memory in use."""
    period_s = now.track.profile.util_period_s.value
    after = now.integrals[low + 1 : high + 1]
    times = now.times[low + 1 : high + 1] - period_s
    shares = [
        (after[:, column] - now.track.column(times, column)) / period_s
        for column in (KERNEL, MEMORY)
    ]
    return np.clip(shares[0], 0.0, 1.0), np.clip(shares[1], 0.0, 1.0)


def _state(
    spec: ClusterSpec, gpu: int, now: HourOfGpu, cells: dict[str, Cell], here: slice
) -> None:
    profile, resident = now.track.profile, now.resident[here]
    clocks = profile.clocks
    count = resident.size
    temp = np.rint(now.temp_c[here])
    cells["temp_gpu_c"] = (temp, None)
    if profile.thermal.mem_offset_c is not None:
        offset = profile.thermal.mem_offset_c.value
        cells["temp_mem_c"] = (np.rint(now.temp_c[here] + offset), None)
    top, rest = clocks.sm_max_mhz.value, clocks.sm_idle_mhz.value
    cells["sm_clock_mhz"] = (np.where(resident, top, rest), None)
    top, rest = clocks.mem_max_mhz.value, clocks.mem_idle_mhz.value
    cells["mem_clock_mhz"] = (np.where(resident, top, rest), None)
    cells["pstate"] = (np.where(resident, 0, clocks.pstate_idle), None)
    cells["event_reasons"] = (np.where(resident, 0, GPU_IDLE), None)
    cells["pcie_gen"] = (np.where(resident, profile.pcie_gen, profile.pcie_gen_idle), None)
    cells["pcie_width"] = _full(profile.pcie_width, count)
    used, procs = _held(spec, gpu, now)
    owner = np.where(resident, now.job[here], -1)
    cells["mem_used_mib"] = (used[owner], None)
    cells["n_procs"] = (procs[owner], None)
    cells["resident"] = (resident, None)


def _throttle(cells: dict[str, Cell], count: int, first_row: bool) -> None:
    valid = _not_first(count, first_row)
    for name in ("throttle_power_us", "throttle_thermal_us", "throttle_brake_us"):
        cells[name] = (np.zeros(count, dtype=np.int64), valid)


def _held(spec: ClusterSpec, gpu: int, now: HourOfGpu) -> tuple[Ints, Ints]:
    """Return memory in MiB and processes of each job on the GPU; the last entry is nobody's."""
    lists = [
        processes_of(spec, job, job.gpus.index(gpu), now.track.profile) for job in now.track.jobs
    ]
    used = [sum(size for _, size in processes) // MIB for processes in lists]
    return np.array([*used, 0], dtype=np.int64), np.array([*map(len, lists), 0], dtype=np.int64)


def _join(parts: list[dict[str, Cell]], count: int) -> Table:
    """Return one table of the rows of several GPUs, one after the other."""
    packed: dict[str, ColumnData] = {}
    for column in GPU_SAMPLE:
        cells = [part.get(column.name) for part in parts]
        if any(cell is not None for cell in cells):
            packed[column.name] = _pack(column.kind, cells, count)
    return Table(count * len(parts), packed)


def _pack(kind: Kind, cells: list[Cell | None], count: int) -> ColumnData:
    flags = [
        np.zeros(count, dtype=np.bool_)
        if cell is None
        else (np.ones(count, dtype=np.bool_) if cell[1] is None else cell[1])
        for cell in cells
    ]
    valid = np.concatenate(flags)
    bitmap = b"" if valid.all() else _bits(valid)
    if kind is Kind.STR:
        return _pack_texts(cells, count, bitmap)
    values = [np.zeros(count) if cell is None else np.asarray(cell[0]) for cell in cells]
    joined = np.where(valid, np.concatenate(values), 0)
    if kind is Kind.BOOL:
        return ColumnData(kind.value, _bits(joined.astype(np.bool_)), bitmap)
    return ColumnData(kind.value, joined.astype(_DTYPE[kind]).tobytes(), bitmap)


def _bits(flags: Flags) -> bytes:
    return np.packbits(flags, bitorder="little").tobytes()


def _pack_texts(cells: list[Cell | None], count: int, bitmap: bytes) -> ColumnData:
    words: dict[str, int] = {}
    pieces = []
    for cell in cells:
        if cell is None or not isinstance(cell[0], tuple):
            pieces.append(np.zeros(count, dtype=np.uint16))
            continue
        own, codes = cell[0]
        table = np.array([words.setdefault(word, len(words)) for word in own], dtype=np.uint16)
        pieces.append(table[codes])
    data = np.concatenate(pieces).astype("<u2").tobytes()
    return ColumnData(Kind.STR.value, data, bitmap, list(words))
