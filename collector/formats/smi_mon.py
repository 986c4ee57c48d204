"""`nvidia-smi dmon` and `nvidia-smi pmon`: columns under a header of names and one of units."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from collector.formats.model import Format, FormatError, GpuRef, Parsed, Reading
from collector.formats.smi_csv import clean_index, set_value
from collector.formats.stamps import parse_stamp

INTERVAL_MS: Final = 1_000
"""Both tools print each second unless told otherwise."""

_DMON: Final = {
    "pwr": "power_draw_mw",
    "temp": "temp_gpu_c",
    "gtemp": "temp_gpu_c",
    "mtemp": "temp_mem_c",
    "sm": "util_gpu_pct",
    "mem": "util_mem_pct",
    "mclk": "mem_clock_mhz",
    "pclk": "sm_clock_mhz",
    "fb": "mem_used_mib",
    "rxpci": "pcie_rx_bytes_s",
    "txpci": "pcie_tx_bytes_s",
    "pviol": "held_power_pct",
}
_PLACES: Final = frozenset({"date", "time", "gpu", "idx"})
_TIMES: Final = ("date", "time")


@dataclass(slots=True)
class _Header:
    """Columns of the lines that follow."""

    names: list[str]
    units: list[str] = field(default_factory=list)

    @property
    def is_pmon(self) -> bool:
        return "pid" in self.names

    def unit(self, place: int) -> str:
        text = self.units[place] if place < len(self.units) else ""
        return "" if text.lower() in ("bool", "#", "idx") else text


def parse_mon(text: str, file: str, first_line: int = 1) -> Parsed:
    """Return the readings of a dmon or pmon output, dated (`-o DT`) or not.

    Raises:
        FormatError: there is no header line.
    """
    parsed = Parsed(Format.DMON, file, interval_ms=INTERVAL_MS)
    header: _Header | None = None
    ticks = _Ticks()
    lines = text.splitlines()
    cut = bool(lines) and not text.endswith(("\n", "\r"))
    for number, line in enumerate(lines, first_line):
        cells = _split(line)
        if not cells:
            continue
        if line.lstrip().startswith("#"):
            header = _next_header(header, cells, parsed)
            continue
        if header is None:
            parsed.skip(number, "before the header", line)
        elif cut and number == first_line + len(lines) - 1 and header.names[-1] != "command":
            parsed.skip(number, "the last line has no end: it may be cut", line)
        else:
            _take(parsed, header, ticks, (number, line, cells))
    if header is None:
        raise FormatError(f"{file}: no header line that starts with # and names columns")
    if parsed.format is Format.PMON:
        parsed.readings = list(ticks.found.values())
    return parsed


def _split(line: str) -> list[str]:
    plain = line.replace("#", " ", 1) if line.lstrip().startswith("#") else line
    if "," in plain:
        return [cell.strip() for cell in plain.split(",")]
    return plain.split()


def _next_header(header: _Header | None, cells: list[str], parsed: Parsed) -> _Header | None:
    names = [cell.lower() for cell in cells]
    if "gpu" in names:
        fresh = _Header(names)
        parsed.format = Format.PMON if fresh.is_pmon else Format.DMON
        known = set(_DMON) | _PLACES | {"pid", "type", "command"}
        if not fresh.is_pmon:
            parsed.unused.update(name for name in names if name not in known)
        return fresh
    if header is not None and "idx" in names:
        header.units = cells
    return header


@dataclass(slots=True)
class _Ticks:
    """Numbers of readings, and what pmon's lines add up to."""

    number: dict[int, int] = field(default_factory=dict)
    found: dict[tuple[object, int, int], Reading] = field(default_factory=dict)
    tick: int = 0
    last_gpu: int = -1
    seen: set[tuple[int, str]] = field(default_factory=set)

    def of_device(self, gpu: int) -> int:
        """Return the number of a dmon line: the how-manieth of its GPU."""
        self.number[gpu] = self.number.get(gpu, -1) + 1
        return self.number[gpu]

    def of_process(self, gpu: int, pid: str) -> int:
        """Return the number of a pmon line: a new round starts where one would repeat itself."""
        if gpu < self.last_gpu or (gpu, pid) in self.seen or ((gpu, "-") in self.seen):
            self.tick += 1
            self.seen.clear()
        self.last_gpu = gpu
        self.seen.add((gpu, pid))
        return self.tick


def _take(
    parsed: Parsed, header: _Header, ticks: _Ticks, found: tuple[int, str, list[str]]
) -> None:
    number, line, cells = found
    width = len(header.names)
    enough = len(cells) >= width if header.is_pmon else len(cells) == width
    by_name = dict(zip(header.names, cells, strict=False))
    index = clean_index(by_name.get("gpu", ""))
    if not enough or index is None:
        parsed.skip(number, "does not fit the header", line)
        return
    stamp = None
    if all(name in by_name for name in _TIMES):
        stamp = parse_stamp(f"{by_name['date']} {by_name['time']}")
        if stamp is None:
            parsed.skip(number, "no date and time where the header has them", line)
            return
    elif any(name in by_name for name in _TIMES):
        parsed.skip(number, "a date without a time, or a time without a date", line)
        return
    reading = Reading(number, stamp, GpuRef(index=index), facts={"gpu_index": index})
    if header.is_pmon:
        _count_process(ticks, reading, by_name.get("pid", ""))
        return
    reading.tick = ticks.of_device(index)
    for place, name in enumerate(header.names):
        target = _DMON.get(name)
        if target is not None:
            set_value(reading, target, cells[place], header.unit(place))
    parsed.readings.append(reading)


def _count_process(ticks: _Ticks, reading: Reading, pid: str) -> None:
    gpu = reading.gpu.index or 0
    tick = ticks.of_process(gpu, pid)
    key = (reading.stamp, tick, gpu)
    kept = ticks.found.setdefault(key, reading)
    kept.tick = tick
    kept.processes = (kept.processes or 0) + (pid.isascii() and pid.isdigit())
