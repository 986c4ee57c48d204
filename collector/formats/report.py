"""What an import tells its owner beside the rows: what was understood, found, and missed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

from collector.formats.model import Finding, Format, Parsed
from collector.formats.models import Draw
from collector.formats.rows import FLOOR_MIB, Board, Made, Tick
from idlewatt.columns import GPU_SAMPLE

if TYPE_CHECKING:
    from collector.formats.build import Gpu
    from collector.formats.importing import Import

_AT: Final = {column.name: place for place, column in enumerate(GPU_SAMPLE)}
_DCGM_NAMES: Final = {
    "memory.used": ("DCGM_FI_DEV_FB_USED",),
    "utilization.gpu": ("DCGM_FI_PROF_SM_ACTIVE", "DCGM_FI_DEV_GPU_UTIL"),
    "utilization.memory": ("DCGM_FI_PROF_DRAM_ACTIVE", "DCGM_FI_DEV_MEM_COPY_UTIL"),
    "power.draw.average": ("DCGM_FI_DEV_POWER_USAGE", "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION"),
    "enforced.power.limit": ("DCGM_FI_DEV_ENFORCED_POWER_LIMIT",),
}
_COLUMNS_OF: Final = {
    "memory.used": frozenset({"mem_used_mib"}),
    "utilization.gpu": frozenset({"util_gpu_pct"}),
    "utilization.memory": frozenset({"util_mem_pct"}),
    "power.draw.average": frozenset({"power_avg_mw", "power_draw_mw"}),
    "power.draw.instant": frozenset({"power_inst_mw", "power_draw_mw"}),
    "enforced.power.limit": frozenset({"power_limit_mw"}),
}
"""What a field gives; none is asked for that the device has refused."""

_RULES: Final = {
    "pci": "PCI address (the file has no usable UUID); the name holds on this node only",
    "index": "index (the file has neither UUID nor PCI address); it may change with a boot",
    "only": "being the only one in the file",
}


def grid_notes(result: Import, part: Parsed, counts: tuple[int, int], interval_ms: int) -> None:
    """Note how readings became ticks."""
    repeated, bridged = counts
    if part.snapshot:
        result.notes.append(
            f"{part.where}: single moments; each counts for {interval_ms / 1_000:g} s"
        )
    if repeated:
        result.notes.append(
            f"{part.where}: {repeated} reading(s) fell on a tick that had one; the later counts"
        )
    if bridged:
        result.notes.append(
            f"{part.where}: its readings come a little slower than each {interval_ms / 1_000:g} s; "
            f"{bridged} tick(s) that this jumps over have the reading right after them"
        )


def other_interval(part: Parsed, found_ms: int, interval_ms: int) -> str:
    """Return the note about an interval that was given and is not the file's."""
    what = "most of them are not used" if found_ms < interval_ms else "there are holes between"
    return (
        f"{part.where}: its readings lie {found_ms / 1_000:g} s apart; with an interval of "
        f"{interval_ms / 1_000:g} s {what}"
    )


def describe(
    result: Import, parts: Sequence[Parsed], gpus: Sequence[Gpu], made: Mapping[str, Made]
) -> None:
    """Add notes, findings and advice about the rows."""
    _identities(result, gpus)
    _newcomers(result, gpus)
    _power(result, gpus)
    _residency(result, made)
    for gpu in gpus:
        item = made[gpu.identity.gpu_uuid]
        file = parts[0].file if len({part.file for part in parts}) == 1 else ""
        _contradictions(result, gpu, item, file)
        _implausible(result, gpu, item)
    _advise(result, parts, gpus, made)


def _identities(result: Import, gpus: Sequence[Gpu]) -> None:
    for rule, words in _RULES.items():
        named = [gpu.identity.gpu_uuid for gpu in gpus if gpu.identity.rule == rule]
        if named:
            result.notes.append(
                f"{len(named)} GPU(s), such as {named[0]}, are identified by {words}"
            )


def _newcomers(result: Import, gpus: Sequence[Gpu]) -> None:
    firsts = {gpu.identity.gpu_uuid: min(gpu.ticks) for gpu in gpus if gpu.ticks}
    if not firsts:
        return
    begin = min(firsts.values())
    for gpu in gpus:
        name = gpu.identity.gpu_uuid
        if name in firsts and gpu.ticks:
            step_us = gpu.ticks[firsts[name]].obs_ms * 1_000
            if firsts[name] - begin > 2 * step_us and not gpu.snapshots:
                line = gpu.ticks[firsts[name]].reading.line
                result.notes.append(f"{name} appears later than the others, at line {line}")


def _power(result: Import, gpus: Sequence[Gpu]) -> None:
    draws: dict[Draw, list[str]] = {}
    for gpu in gpus:
        if "power_draw_mw" in gpu.seen and not {"power_avg_mw", "power_inst_mw"} & gpu.seen:
            identity = gpu.identity
            board = Board("", identity.gpu_uuid, identity.parent_uuid, gpu.facts)
            draws.setdefault(board.draw, []).append(str(gpu.facts.get("model", "unknown model")))
    words = {
        Draw.AVERAGE: "is the driver's 1 s average on this model (energy_source power_avg)",
        Draw.INSTANT: "is a momentary reading on this model (energy_source power_inst)",
        Draw.UNKNOWN: "has no stated window, since the file names no model that is known; it is "
        "kept as a momentary reading (energy_source power_inst)",
    }
    for draw, models in draws.items():
        result.notes.append(f"power.draw {words[draw]}: {', '.join(sorted(set(models)))}")
    if any("power_limit_mw" not in g.seen and "power_limit_requested_mw" in g.seen for g in gpus):
        result.notes.append(
            "the enforced power limit is not in the file; the limit asked for stands in for it"
        )


def _residency(result: Import, made: Mapping[str, Made]) -> None:
    by_memory = sum(item.by_memory for item in made.values())
    if by_memory:
        result.notes.append(
            f"{by_memory} row(s): no listed process shows whether a program holds the GPU, so "
            f"memory in use decides: above {FLOOR_MIB} MiB yes, else no"
        )


def _contradictions(result: Import, gpu: Gpu, made: Made, file: str) -> None:
    name = gpu.facts.get("model", gpu.identity.gpu_uuid)
    if made.contradicting:
        first = made.contradicting[0]
        result.findings.append(
            Finding(
                "busy_but_empty",
                f"{name}: {_read(first)} and no process: busy, although nothing holds it; neither "
                f"idle nor a job. {len(made.contradicting)} such row(s) have the state unknown",
                file,
                first.reading.line,
            )
        )
    if made.zero_at_power:
        first = made.zero_at_power[0]
        result.findings.append(
            Finding(
                "zero_at_power",
                f"{name}: {_read(first)}: no activity at half the power limit or more is not "
                f"taken as idle; {len(made.zero_at_power)} such row(s)",
                file,
                first.reading.line,
            )
        )


def frozen(gpu: Gpu, count: int) -> Finding:
    """Return the finding about a source that stood still."""
    return Finding(
        "frozen",
        f"{gpu.identity.gpu_uuid}: {count} row(s) repeat the last values with an energy counter "
        "that does not move: nothing was read any more; they are NULL (stale)",
    )


def _read(tick: Tick) -> str:
    """Return the telling values of a reading."""
    values = tick.reading.values
    parts = []
    if "util_gpu_pct" in values:
        parts.append(f"{values['util_gpu_pct']} % utilisation")
    for key in ("power_avg_mw", "power_draw_mw", "power_inst_mw"):
        if key in values:
            parts.append(f"{float(values[key]) / 1e3:.0f} W")
            break
    if "mem_used_mib" in values:
        parts.append(f"{values['mem_used_mib']} MiB in use")
    return "reads " + (", ".join(parts) or "nothing")


def _implausible(result: Import, gpu: Gpu, made: Made) -> None:
    for name, count in sorted(made.implausible.items()):
        if count:
            result.findings.append(
                Finding(
                    "implausible",
                    f"{gpu.identity.gpu_uuid}: {count} value(s) of {name} are outside what is "
                    "physically possible and are NULL",
                )
            )


def _advise(
    result: Import, parts: Sequence[Parsed], gpus: Sequence[Gpu], made: Mapping[str, Made]
) -> None:
    """Say which fields would have made more of the recording."""
    rows = [row for item in made.values() for row in item.rows]
    formats = {part.format for part in parts}
    wanted = []
    unknown = sum(row[_AT["resident"]] is None for row in rows)
    contradicting = sum(len(item.contradicting) for item in made.values())
    if unknown > contradicting:
        wanted.append("memory.used")
        result.notes.append(
            f"{unknown - contradicting} row(s) do not show whether a program holds the GPU: their "
            "state is unknown"
        )
    no_use = all(row[_AT["activity_source"]] == "none" for row in rows)
    if no_use:
        wanted.append("utilization.gpu,utilization.memory")
    elif all(row[_AT["sm_active"]] is None and row[_AT["util_mem_pct"]] is None for row in rows):
        wanted.append("utilization.memory")
    if all(row[_AT["energy_uj"]] is None for row in rows):
        wanted.append("power.draw.average,power.draw.instant")
    if all(row[_AT["power_limit_mw"]] is None for row in rows):
        wanted.append("enforced.power.limit")
    if any(gpu.identity.rule != "uuid" for gpu in gpus):
        wanted.append("uuid")
    if not any("model" in gpu.facts for gpu in gpus):
        wanted.append("name")
    refused = {name for gpu in gpus for name in gpu.absent if name not in gpu.seen}
    fields = [
        field
        for field in ",".join(wanted).split(",")
        if field and not refused & _COLUMNS_OF.get(field, frozenset())
    ]
    sentence = _in_words(fields, formats)
    if sentence:
        result.advice.append(sentence)


def _in_words(wanted: Sequence[str], formats: set[Format]) -> str:
    """Return the sentence about the fields, in the words of the tool that wrote the files."""
    if formats == {Format.DCGM}:
        fields = [name for field in wanted for name in _DCGM_NAMES.get(field, ())]
        words = ", ".join(dict.fromkeys(fields))
        return f"next time add to the metrics of dcgm-exporter: {words}" if words else ""
    if not wanted:
        return ""
    if formats & {Format.SMI_CSV}:
        return f"next time add to --query-gpu: {','.join(wanted)}"
    return f"next time record a log with --query-gpu that has also: {','.join(wanted)}"
