"""Builds the rows of GPUs, their inventory and their gaps from parsed files."""

from __future__ import annotations

import datetime as dt
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from collector.formats import report
from collector.formats.frozen import without_frozen
from collector.formats.grid import (
    DEFAULT_MS,
    Ticks,
    holes,
    nominal_interval_ms,
    to_tick_after,
    to_ticks,
)
from collector.formats.identity import Identities, Identity, refuse_unnamed_crowd
from collector.formats.model import Format, Parsed, Reading, Reason, Value
from collector.formats.rows import REPORTED, Board, Made, Row, RowMaker, Tick
from collector.formats.stamps import Local, place
from idlewatt.columns import DEVICE, DEVICE_CAPABILITY, GAP, NODE, Column
from idlewatt.units import US_PER_MS, US_PER_S

if TYPE_CHECKING:
    from collector.formats.importing import Import, Options

_WHOLE_SECONDS: Final = frozenset({Format.SMI_QUERY, Format.SMI_XML, Format.DMON, Format.PMON})
_LIMITS: Final = (
    "power_limit_max_mw",
    "power_limit_default_mw",
    "power_limit_mw",
    "power_limit_requested_mw",
)
_LOOK: Final = 20
_FIXED: Final = frozenset({Reason.UNSUPPORTED, Reason.NO_PERMISSION})
_BY_OTHER_NAME: Final = {"power_draw_mw": "power_avg_mw"}


@dataclass(slots=True)
class Gpu:
    """All that the files say of one GPU or instance."""

    identity: Identity
    ticks: dict[int, Tick] = field(default_factory=dict)
    facts: dict[str, Value] = field(default_factory=dict)
    bus_id: str | None = None
    seen: set[str] = field(default_factory=set)
    absent: dict[str, Reason] = field(default_factory=dict)
    snapshots: bool = True


def samples(result: Import, parsed: Sequence[Parsed], options: Options) -> None:
    """Add the rows of all GPUs to the result."""
    parts = [item for item in parsed if item.readings]
    if not parts:
        return
    for item in parts:
        refuse_unnamed_crowd(item)
    refs = {reading.gpu for item in parts for reading in item.readings}
    identities = Identities(refs, result.node_id)
    gpus: dict[str, Gpu] = {}
    for item in parts:
        _add_part(result, item, identities, gpus, options)
    ordered = [gpus[name] for name in sorted(gpus)]
    made = {gpu.identity.gpu_uuid: _rows(result, gpu) for gpu in ordered}
    result.tables["gpu_sample"] = sorted(
        (row for item in made.values() for row in item.rows), key=lambda row: (row[0], row[4])
    )
    result.identity = {gpu.identity.gpu_uuid: gpu.identity.rule for gpu in ordered}
    _inventory(result, ordered, made)
    report.describe(result, parts, ordered, made)


def _add_part(
    result: Import,
    part: Parsed,
    identities: Identities,
    gpus: dict[str, Gpu],
    options: Options,
) -> None:
    """Put the readings of one file or section onto the grid."""
    by_gpu: dict[str, list[Reading]] = defaultdict(list)
    names: dict[Any, Identity] = {}
    for reading in part.readings:
        identity = names.get(reading.gpu)
        if identity is None:
            identity = names[reading.gpu] = identities.of(reading.gpu)
        gpu = gpus.get(identity.gpu_uuid)
        if gpu is None:
            gpu = gpus[identity.gpu_uuid] = Gpu(identity)
        by_gpu[identity.gpu_uuid].append(reading)
        _learn(gpu, reading)
    placed = {name: _place(result, part, readings, options) for name, readings in by_gpu.items()}
    found_ms = nominal_interval_ms(placed.values())
    interval_ms = options.interval_ms or found_ms or part.interval_ms or DEFAULT_MS
    if found_ms is not None and not 0.6 < found_ms / interval_ms < 1.5:
        result.notes.append(report.other_interval(part, found_ms, interval_ms))
    result.interval_ms[part.where] = interval_ms
    repeated = bridged = 0
    for name, readings in by_gpu.items():
        gpu, stamps = gpus[name], placed[name]
        ticks = _on_grid(part, stamps, interval_ms)
        repeated, bridged = repeated + ticks.repeated, bridged + len(ticks.bridged)
        gpu.snapshots &= part.snapshot
        _merge(gpu, ticks, (readings, stamps), interval_ms)
    report.grid_notes(result, part, (repeated, bridged), interval_ms)


def _place(
    result: Import, part: Parsed, readings: Sequence[Reading], options: Options
) -> list[int]:
    series = [Local(r.stamp, r.line) for r in readings if r.stamp is not None]
    zone: dt.tzinfo | None = options.zone or part.zone
    placed = place(series, zone, part.where)
    result.notes += [note for note in placed.notes if note not in result.notes]
    return placed.at_us


def _on_grid(part: Parsed, stamps: Sequence[int], interval_ms: int) -> Ticks:
    whole = part.format in _WHOLE_SECONDS and all(at % US_PER_S == 0 for at in stamps)
    if part.snapshot:
        # A moment belongs to the interval that contains it; cut fractions lie after the stamp.
        return to_tick_after([at + whole for at in stamps], interval_ms)
    if whole and interval_ms >= DEFAULT_MS:
        return (
            to_ticks(stamps, interval_ms)
            if interval_ms == DEFAULT_MS
            else to_ticks([at + US_PER_S // 2 for at in stamps], interval_ms)
        )
    return to_ticks(stamps, interval_ms)


def _merge(
    gpu: Gpu, ticks: Ticks, series: tuple[Sequence[Reading], Sequence[int]], interval_ms: int
) -> None:
    """Add a part's ticks to a GPU; what another part says of the same tick is joined."""
    readings, stamps = series
    exact = any(at % US_PER_S for at in stamps[:_LOOK])
    for ts_us, position in ticks.reading.items():
        reading = readings[position]
        before = gpu.ticks.get(ts_us)
        bridged = ts_us in ticks.bridged
        if before is not None:
            if before.obs_ms != interval_ms:
                continue
            reading = _join(before.reading, reading)
            bridged = bridged and before.bridged
        gpu.ticks[ts_us] = Tick(ts_us, stamps[position], interval_ms, reading, bridged, exact)


def _join(first: Reading, second: Reading) -> Reading:
    """Return one reading of two: where both have a value, the later one counts."""
    values = first.values | second.values
    absent = {
        name: reason
        for name, reason in (first.absent | second.absent).items()
        if name not in values
    }
    processes = first.processes if second.processes is None else second.processes
    return Reading(second.line, second.stamp, second.gpu, values, absent, second.facts, processes)


def _learn(gpu: Gpu, reading: Reading) -> None:
    """Remember facts and which columns the files have."""
    gpu.facts.update(reading.facts)
    gpu.bus_id = reading.gpu.bus_id or gpu.bus_id
    gpu.seen.update(reading.values)
    for name, reason in reading.absent.items():
        if reason in _FIXED:
            gpu.absent.setdefault(name, reason)


def _rows(result: Import, gpu: Gpu) -> Made:
    """Make the rows of one GPU, and its gaps."""
    ordered, frozen = without_frozen([gpu.ticks[ts_us] for ts_us in sorted(gpu.ticks)])
    if frozen:
        result.findings.append(report.frozen(gpu, frozen))
    limits = [int(gpu.facts[name]) for name in _LIMITS if name in gpu.facts]
    limits += [
        int(tick.reading.values[name])
        for tick in ordered
        for name in _LIMITS
        if name in tick.reading.values
    ]
    identity = gpu.identity
    board = Board(result.node_id, identity.gpu_uuid, identity.parent_uuid, gpu.facts)
    maker = RowMaker(board, limits)
    for tick in ordered:
        maker.add(tick)
    if not gpu.snapshots:
        _gaps(result, gpu, ordered, maker.made)
    return maker.made


def _gaps(result: Import, gpu: Gpu, ordered: Sequence[Tick], made: Made) -> None:
    by_interval: dict[int, list[int]] = defaultdict(list)
    for tick in ordered:
        by_interval[tick.obs_ms].append(tick.ts_us)
    for interval_ms, stamps in by_interval.items():
        for first, last in holes(stamps, interval_ms):
            values = {
                "node_id": result.node_id,
                "gpu_uuid": gpu.identity.gpu_uuid,
                "from_utc": first,
                "to_utc": last,
                "reason": "not_recorded",
                "energy_uj": made.gap_uj.get(last + interval_ms * US_PER_MS),
            }
            result.tables.setdefault("gap", []).append(_row(GAP, values))


def _row(columns: Sequence[Column], values: dict[str, Any]) -> Row:
    return tuple(values.get(column.name) for column in columns)


def _inventory(result: Import, gpus: Iterable[Gpu], made: Mapping[str, Made]) -> None:
    devices: list[Row] = []
    capabilities: list[Row] = []
    host: str | None = None
    first_us: int | None = None
    for gpu in gpus:
        if not gpu.ticks:
            continue
        since = min(gpu.ticks)
        first_us = since if first_us is None else min(first_us, since)
        identity, facts = gpu.identity, gpu.facts
        host = str(facts["hostname"]) if "hostname" in facts else host
        board = Board(result.node_id, identity.gpu_uuid, identity.parent_uuid, facts)
        values = {
            **facts,
            "gpu_uuid": identity.gpu_uuid,
            "node_id": result.node_id,
            "valid_from_utc": since,
            "parent_uuid": identity.parent_uuid,
            "arch": board.arch,
            "pci_bus_id": gpu.bus_id,
        }
        devices.append(_row(DEVICE, values))
        capabilities += _capabilities(gpu, made[identity.gpu_uuid], since)
    if first_us is None:
        return
    node = {"node_id": result.node_id, "valid_from_utc": first_us, "hostname": host}
    result.tables["device"] = devices
    result.tables["node"] = [_row(NODE, node)]
    if capabilities:
        result.tables["device_capability"] = capabilities


def _capabilities(gpu: Gpu, made: Made, since: int) -> list[Row]:
    """Say of each column that the files have whether the device gives it at all."""
    absent = {_BY_OTHER_NAME.get(name, name): reason for name, reason in gpu.absent.items()}
    rows = []
    for name in sorted(made.filled | {name for name in absent if name in REPORTED}):
        supported = name in made.filled
        values = {
            "gpu_uuid": gpu.identity.gpu_uuid,
            "valid_from_utc": since,
            "column_name": name,
            "supported": supported,
            "reason": None if supported else absent[name].value,
        }
        rows.append(_row(DEVICE_CAPABILITY, values))
    return rows
