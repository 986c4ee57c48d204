"""Wall power: CSV of a meter, PTDaemon logs, and the stretches that an MLPerf log marks."""

from __future__ import annotations

import csv
import itertools
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from collector.formats.cells import absent_reason
from collector.formats.model import Absent, Format, FormatError, Parsed, PowerReading, Window
from collector.formats.ranges import within
from collector.formats.stamps import parse_stamp

_TIMES: Final = ("timestamp", "time", "datetime", "date_time", "ts", "ts_utc", "time_utc", "epoch")
_METERS: Final = ("meter", "meter_id", "pdu", "outlet", "channel", "device", "name", "sensor")
_FACTORS: Final = {"mw": 1.0, "w": 1e3, "watt": 1e3, "watts": 1e3, "kw": 1e6, "kilowatt": 1e6}
_POWER: Final = re.compile(
    r"(?:(?:total|wall|active|real|input|ac|node|rack)?_?power|load|p|watts?|kw|w)$"
)
_NOT_WORD: Final = re.compile(r"[^a-z0-9]+")
_UNIT_AT_END: Final = re.compile(r"^(.*?)[\s_]*[\[(]?\s*(kilowatts?|watts?|kw|mw|w)\s*[\])]?$")
_NUMBER: Final = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?$")
_DECIMAL_COMMA: Final = re.compile(r"[+-]?\d+,\d+$")
_MAX_NAME: Final = 100
_MLLOG: Final = ":::MLLOG"
TOTAL: Final = "wall"
CHANNEL: Final = "channel"


@dataclass(slots=True)
class _Columns:
    """Where things stand in a meter's CSV."""

    width: int
    time: int
    clock: int | None
    meter: int | None
    powers: list[tuple[int, str, float]] = field(default_factory=list)
    scope: int | None = None
    utc: bool = False


def parse_meter_csv(text: str, file: str) -> Parsed:
    """Return the readings of a meter's CSV; columns are found by their names.

    Raises:
        FormatError: no time, no power, or a power without a unit in the header; decimal commas.
    """
    parsed = Parsed(Format.METER_CSV, file)
    columns: _Columns | None = None
    comma = ","
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        if columns is None:
            comma = max(",;\t", key=line.count)
            columns = _columns(_cells(line, comma), file, number)
            continue
        cells = _cells(line, comma)
        if len(cells) != columns.width:
            parsed.skip(number, f"{len(cells)} fields where {columns.width} are expected", line)
            continue
        _take(parsed, columns, number, cells)
    if columns is None:
        raise FormatError(f"{file}: the file is empty")
    if not parsed.power:
        raise FormatError(f"{file}: no line holds a time and a power")
    return parsed


def _cells(line: str, comma: str) -> list[str]:
    return [cell.strip() for cell in next(csv.reader([line], delimiter=comma), [])]


def _columns(header: Sequence[str], file: str, number: int) -> _Columns:
    plain = [_NOT_WORD.sub("_", cell.lower()).strip("_") for cell in header]
    names = [re.sub(r"_(utc|local|s|ms|iso)$", "", name) for name in plain]
    time = next((n for n, name in enumerate(names) if name in _TIMES), None)
    clock = None
    if "date" in names:
        clock, time = time, names.index("date")
    if time is None:
        raise FormatError(
            f"{file}, line {number}: no column for the time; one is expected under a name such as "
            "timestamp"
        )
    columns = _Columns(
        len(header),
        time,
        clock,
        next((n for n, name in enumerate(plain) if name in _METERS), None),
        scope=plain.index("scope") if "scope" in plain else None,
        utc=plain[time].endswith("_utc"),
    )
    unitless = []
    for place, cell in enumerate(header):
        if place in (time, clock, columns.meter, columns.scope):
            continue
        found = _UNIT_AT_END.match(cell.strip().lower())
        if found and found.group(2) in ("mw",):
            found = None if cell.strip().endswith("MW") else found
        if found:
            unit = found.group(2).rstrip("s") if len(found.group(2)) > 2 else found.group(2)
            columns.powers.append((place, cell.strip()[:_MAX_NAME], _FACTORS[unit]))
        elif _POWER.match(plain[place]):
            unitless.append(cell.strip())
    if not columns.powers:
        what = f"column {unitless[0]!r} names no unit" if unitless else "no column for the power"
        raise FormatError(
            f"{file}, line {number}: {what}; name it power_w, power_kw or the like, with its unit"
        )
    return columns


def _take(parsed: Parsed, columns: _Columns, number: int, cells: Sequence[str]) -> None:
    text = cells[columns.time]
    if columns.clock is not None:
        text = f"{text} {cells[columns.clock]}"
    if columns.utc and text and text[-1].isdigit() and not text.replace(".", "").isdigit():
        text += "Z"
    stamp = parse_stamp(text)
    if stamp is None:
        parsed.skip(number, "no time", ",".join(cells))
        return
    named = cells[columns.meter] if columns.meter is not None else ""
    scope = cells[columns.scope] if columns.scope is not None else TOTAL
    for place, name, factor in columns.powers:
        parts = [named] if named else []
        if len(columns.powers) > 1 or not parts:
            parts.append(name if len(columns.powers) > 1 else "")
        meter = "/".join(part for part in parts if part) or "meter"
        power = _power(cells[place], factor, parsed.file, number)
        parsed.power.append(
            PowerReading(number, stamp, _clean(meter), power, _clean(scope or TOTAL))
        )


def _clean(text: str) -> str:
    kept = "".join(char if char.isprintable() else "?" for char in text)
    return kept[:_MAX_NAME]


def _power(text: str, factor: float, file: str, number: int) -> int | None:
    if _DECIMAL_COMMA.match(text):
        raise FormatError(
            f"{file}, line {number}: {text!r} has a decimal comma, as a spreadsheet saves it; "
            "give the file with decimal points"
        )
    if not _NUMBER.match(text) or absent_reason(text) is not None or len(text) > 40:
        return None
    value = within("power_mw", float(text) * factor)
    return None if isinstance(value, Absent) else int(value)


def parse_ptd(text: str, file: str) -> Parsed:
    """Return the readings of a PTDaemon log: the total, and each channel apart.

    Raises:
        FormatError: no line is one of such a log.
    """
    parsed = Parsed(Format.PTD_LOG, file)
    lines = text.splitlines()
    cut = bool(lines) and not text.endswith(("\n", "\r"))
    for number, line in enumerate(lines, 1):
        cells = line.strip().split(",")
        if not line.strip():
            continue
        stamp = parse_stamp(cells[1]) if len(cells) > 3 and cells[0] == "Time" else None
        if stamp is None or (cut and number == len(lines)):
            parsed.skip(number, "no line of a power log, or cut", line)
            continue
        meter, scope = "total", TOTAL
        for word, value in itertools.pairwise(cells):
            if re.fullmatch(r"Ch\d{1,3}", word):
                meter, scope = word.lower(), CHANNEL
            elif word == "Watts":
                power = _power(value.strip(), 1e3, file, number)
                parsed.power.append(PowerReading(number, stamp, meter, power, scope))
    if not parsed.power:
        raise FormatError(f"{file}: no line of a PTDaemon power log in it")
    return parsed


def parse_mlperf(text: str, file: str) -> Parsed:
    """Return the stretches between `power_begin` and `power_end` of an MLPerf log.

    Raises:
        FormatError: there is none.
    """
    parsed = Parsed(Format.MLPERF_LOG, file)
    begin = None
    for number, line in enumerate(text.splitlines(), 1):
        if not line.startswith(_MLLOG):
            continue
        try:
            event = json.loads(line[len(_MLLOG) :])
        except (ValueError, RecursionError):
            parsed.skip(number, "no JSON behind :::MLLOG", line)
            continue
        key = event.get("key") if isinstance(event, dict) else None
        if key not in ("power_begin", "power_end"):
            continue
        stamp = parse_stamp(str(event.get("value", ""))[:40])
        if stamp is None:
            parsed.skip(number, f"{key} without a time", line)
        elif key == "power_begin":
            begin = stamp
        elif begin is not None and begin.tzinfo == stamp.tzinfo and stamp > begin:
            parsed.windows.append(Window(f"power_begin to power_end, line {number}", begin, stamp))
            begin = None
    if not parsed.windows:
        raise FormatError(f"{file}: no power_begin followed by a power_end in it")
    return parsed
