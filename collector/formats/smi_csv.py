"""`nvidia-smi --query-gpu=... --format=csv` logs, with any fields in any order."""

from __future__ import annotations

import csv
import functools
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from collector.formats import fields as f
from collector.formats.cells import absent_reason, number, text_fact
from collector.formats.model import Absent, Format, FormatError, GpuRef, Parsed, Reading, Reason
from collector.formats.ranges import RANGES
from collector.formats.stamps import parse_stamp

_MASKED: Final = re.compile(r"(GPU-)?[0-]+$")
_BUS_ID: Final = re.compile(r"(?:[0-9a-fA-F]{4,8}:)?[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.[0-9a-fA-F]$")
_UUID: Final = re.compile(r"(GPU|MIG)-[0-9A-Za-z/-]{4,80}$")
_SUFFIX: Final = re.compile(r"[^\d.]*$")


@dataclass(frozen=True, slots=True)
class _Binding:
    """What a cell becomes."""

    place: int
    target: str
    unit: str


@dataclass(frozen=True, slots=True)
class _Layout:
    """Fields of the lines that follow a header."""

    width: int
    bindings: tuple[_Binding, ...]

    def has(self, target: str) -> bool:
        return any(binding.target == target for binding in self.bindings)


def parse_csv(text: str, file: str, names: Sequence[str] = (), first_line: int = 1) -> Parsed:
    """Return the readings of a log.

    Args:
        text: the log.
        file: its name, for messages.
        names: its fields, for logs without a header.
        first_line: number of its first line.

    Raises:
        FormatError: no header and no names, a spreadsheet's spelling, or no line that fits.
    """
    parsed = Parsed(Format.SMI_CSV, file)
    layout = _layout([(name, unit) for name, unit in map(_named, names)], parsed) if names else None
    lines = text.splitlines()
    cut = bool(lines) and not text.endswith(("\n", "\r"))
    headers = 0
    for number_, line in enumerate(lines, first_line):
        if not line.strip():
            continue
        cells = _split(line)
        header = f.parse_header(cells)
        if header is not None:
            headers += 1
            layout = _layout(header, parsed)
            if headers > 1:
                parsed.notes.append(f"{file}: the header stands again at line {number_}: a restart")
            continue
        _refuse_spreadsheet(line, number_, file)
        if layout is None:
            parsed.skip(number_, "before the header", line)
            continue
        if cut and number_ == first_line + len(lines) - 1 and _may_be_cut(cells, layout, lines):
            parsed.skip(number_, "the last line has no end: it may be cut", line)
            continue
        _take(parsed, layout, number_, line, cells)
    _conclude(parsed, layout)
    return parsed


def _named(name: str) -> tuple[str, str]:
    return f.header_cell(name) or (name.strip().lower(), "")


def _split(line: str) -> list[str]:
    if '"' in line:
        return [cell.strip() for cell in next(csv.reader([line], skipinitialspace=True), [])]
    return [cell.strip() for cell in line.split(",")]


def _refuse_spreadsheet(line: str, number_: int, file: str) -> None:
    if line.count(";") >= 2 and line.count(";") >= line.count(","):
        raise FormatError(
            f"{file}, line {number_}: the fields are separated by semicolons, as a spreadsheet "
            "with decimal commas saves them; give the file as nvidia-smi wrote it"
        )


def _layout(header: Sequence[tuple[str, str]], parsed: Parsed) -> _Layout:
    bindings = []
    for place, (name, unit) in enumerate(header):
        target = f.TARGETS.get(name)
        if target is None:
            parsed.unused.add(name)
        else:
            bindings.append(_Binding(place, target, unit))
    return _Layout(len(header), tuple(bindings))


def _may_be_cut(cells: Sequence[str], layout: _Layout, lines: Sequence[str]) -> bool:
    """Return whether an unended last line can have lost its end; a unit at its end says no."""
    if len(cells) != layout.width or len(lines) < 3:
        return len(cells) != layout.width
    before = _split(lines[-2])
    suffix = _SUFFIX.search(before[-1]) if before else None
    unit = suffix.group().strip() if suffix else ""
    return not unit or not cells[-1].endswith(unit)


def _take(parsed: Parsed, layout: _Layout, number_: int, line: str, cells: list[str]) -> None:
    if len(cells) != layout.width:
        parsed.skip(number_, f"{len(cells)} fields where {layout.width} are expected", line)
        return
    try:
        reading = _reading(layout, number_, cells)
    except FormatError as exc:
        raise FormatError(f"{parsed.file}, line {number_}: {exc}") from None
    if reading is None:
        parsed.skip(number_, "no time where the field timestamp is expected", line)
        return
    parsed.readings.append(reading)


def _reading(layout: _Layout, line: int, cells: Sequence[str]) -> Reading | None:
    reading = Reading(line, None, GpuRef())
    uuid = bus_id = index = None
    for binding in layout.bindings:
        cell, target = cells[binding.place], binding.target
        if target == f.STAMP:
            reading.stamp = parse_stamp(cell)
            if reading.stamp is None:
                return None
        elif target == f.UUID:
            uuid = clean_uuid(cell)
        elif target == f.BUS_ID:
            bus_id = clean_bus_id(cell)
        elif target == f.INDEX:
            index = clean_index(cell)
        elif target == f.PID:
            reading.processes = int(cell.isascii() and cell.isdigit())
        elif target.startswith(f.BIT):
            set_bit(reading, target.removeprefix(f.BIT), cell)
        else:
            set_value(reading, target, cell, binding.unit)
    reading.gpu = _ref(uuid, bus_id, index)
    if index is not None:
        reading.facts["gpu_index"] = index
    return reading


@functools.lru_cache(maxsize=4_096)
def _ref(uuid: str | None, bus_id: str | None, index: int | None) -> GpuRef:
    return GpuRef(uuid, bus_id, index)


@functools.lru_cache(maxsize=4_096)
def clean_uuid(text: str) -> str | None:
    """Return a UUID that identifies; one that was masked with zeros does not."""
    plain = text.strip()
    return plain if _UUID.match(plain) and not _MASKED.match(plain) else None


@functools.lru_cache(maxsize=4_096)
def clean_bus_id(text: str) -> str | None:
    """Return a PCI address in one spelling: eight digits of domain, lower case."""
    plain = text.strip().lower()
    if not _BUS_ID.match(plain):
        return None
    domain, _, rest = plain.rpartition(":")[0].rpartition(":")
    function = plain.rpartition(":")[2]
    return f"{domain[-8:].rjust(8, '0')}:{rest}:{function}"


def clean_index(text: str) -> int | None:
    """Return a GPU's index."""
    plain = text.strip()
    return int(plain) if plain.isascii() and plain.isdigit() and len(plain) < 4 else None


def set_value(reading: Reading, target: str, cell: str, unit: str = "") -> None:
    """Put a cell into a reading: as a fact, a value, or a reason why there is none.

    Raises:
        FormatError: the number has a decimal comma.
    """
    if target in f.TEXT_FACTS:
        fact = text_fact(cell)
        if fact is not None:
            reading.facts[target] = fact
        return
    if target not in RANGES:
        return
    value = number(target, cell, unit)
    if target in f.FACTS:
        if not isinstance(value, Absent):
            reading.facts[target] = value
    elif isinstance(value, Absent):
        if target not in reading.values:
            reading.absent.setdefault(target, value.reason)
    elif target not in reading.values:
        reading.values[target] = value
        reading.absent.pop(target, None)


def set_bit(reading: Reading, name: str, cell: str) -> None:
    """Note one clocks event reason: `Active`, `Not Active`, or neither."""
    plain = cell.strip().lower()
    if plain not in ("active", "not active"):
        reading.absent.setdefault("event_bits", absent_reason(cell) or Reason.IMPLAUSIBLE)
        return
    bits = int(reading.values.get("event_bits", 0))
    reading.values["event_bits"] = bits | (f.REASON_BITS[name] if plain == "active" else 0)


def _count_processes(parsed: Parsed) -> None:
    """Join the lines of a list of processes: one reading a GPU and moment, with their number."""
    if any(reading.gpu == GpuRef() for reading in parsed.readings):
        raise FormatError(
            f"{parsed.file}: a list of processes that does not say on which GPU they are; record "
            "again with gpu_uuid among the fields"
        )
    found: dict[object, Reading] = {}
    for reading in parsed.readings:
        kept = found.setdefault((reading.stamp, reading.gpu), reading)
        if kept is not reading:
            kept.processes = (kept.processes or 0) + (reading.processes or 0)
            kept.facts |= reading.facts
    parsed.readings = list(found.values())
    parsed.notes.append(
        f"{parsed.file}: a list of processes; moments at which a GPU had none are not in it"
    )


def _conclude(parsed: Parsed, layout: _Layout | None) -> None:
    if layout is None:
        raise FormatError(
            f"{parsed.file}: there is no header line with nvidia-smi's field names; was it written "
            "with --format=csv,noheader? Then give its fields: --fields timestamp,index,power.draw"
        )
    if not parsed.readings and parsed.skipped_count:
        first = parsed.skipped[0]
        raise FormatError(
            f"{parsed.file}: no line fits the header; the first that does not is line "
            f"{first.line}: {first.why}"
        )
    if any(reading.processes is not None for reading in parsed.readings):
        _count_processes(parsed)
    counts: dict[GpuRef, int] = {}
    for reading in parsed.readings:
        reading.tick = counts[reading.gpu] = counts.get(reading.gpu, -1) + 1
