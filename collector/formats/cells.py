"""From the text of a cell to a number in the unit of its column."""

from __future__ import annotations

import functools
import re
from typing import Final

from collector.formats.model import Absent, FormatError, Reason
from collector.formats.ranges import within

_ABSENT: Final = {
    "": Reason.LOST,
    "-": Reason.UNSUPPORTED,
    "n/a": Reason.UNSUPPORTED,
    "not supported": Reason.UNSUPPORTED,
    "not available": Reason.UNSUPPORTED,
    "not found": Reason.UNSUPPORTED,
    "requested functionality has been deprecated": Reason.UNSUPPORTED,
    "function not found": Reason.UNSUPPORTED,
    "insufficient permissions": Reason.NO_PERMISSION,
    "no permission": Reason.NO_PERMISSION,
}
_LOST_WORDS: Final = ("error", "err!", "lost", "unknown", "timeout", "reset")

# Factor to the unit at the end of the column's name, by suffix and by unit as written.
_UNITS: Final[dict[str, dict[str, float]]] = {
    "mw": {"w": 1e3, "mw": 1.0, "kw": 1e6},
    "pct": {"%": 1.0},
    "mib": {"mib": 1.0, "mb": 1.0, "gib": 1024.0, "kib": 1 / 1024},
    "mhz": {"mhz": 1.0, "ghz": 1e3},
    "c": {"c": 1.0},
    "us": {"us": 1.0, "ms": 1e3, "ns": 1e-3, "s": 1e6},
    "s": {"kb/s": 1e3, "mb/s": 1e6, "gb/s": 1e9, "b/s": 1.0},
    "mj": {"mj": 1.0, "j": 1e3},
}
_DEFAULT_FACTOR: Final = {"mw": 1e3}  # nounits: watts
_NUMBER: Final = re.compile(r"([+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)\s*([^\d\s].*)?$")
_DECIMAL_COMMA: Final = re.compile(r"[+-]?\d+,\d+(\s*\S+)?$")
_HEX: Final = re.compile(r"0x[0-9a-fA-F]{1,16}$")
_MAX_CELL: Final = 200
_CACHED: Final = 1 << 15  # the same few cells stand in line after line


def absent_reason(text: str) -> Reason | None:
    """Return why a cell has no value, or None where it seems to have one."""
    plain = text.strip().strip("[]").strip().lower()
    if plain in _ABSENT:
        return _ABSENT[plain]
    if len(plain) < _MAX_CELL and any(word in plain for word in _LOST_WORDS):
        return Reason.LOST
    return None


@functools.lru_cache(maxsize=_CACHED)
def number(name: str, text: str, unit: str = "") -> int | float | Absent:
    """Return the value of a cell for a column, in the unit of the column's name.

    Args:
        name: a name of `collector.formats.ranges`.
        text: the cell, with or without a unit.
        unit: unit from the header; one in the cell wins.

    Raises:
        FormatError: the number is written with a decimal comma.
    """
    plain = text.strip()
    reason = absent_reason(plain)
    if reason is not None:
        return Absent(reason)
    if _HEX.match(plain):
        return within(name, int(plain, 16))
    if _DECIMAL_COMMA.match(plain):
        raise FormatError(
            f"{plain!r} has a decimal comma, as a spreadsheet saves it; "
            "give the file as nvidia-smi or the meter wrote it, with decimal points"
        )
    found = _NUMBER.match(plain) if len(plain) < _MAX_CELL else None
    if found is None:
        if name == "pstate" and plain[:1] in "Pp" and plain[1:3].isascii() and plain[1:3].isdigit():
            return within(name, int(plain[1:3]))
        return Absent(Reason.IMPLAUSIBLE)
    kind = name.rsplit("_", 1)[-1]
    factors = _UNITS.get(kind)
    factor = _DEFAULT_FACTOR.get(kind, 1.0)
    written = (found.group(2) or unit).strip().lower()
    if factors and written:
        if written not in factors:
            return Absent(Reason.IMPLAUSIBLE)
        factor = factors[written]
    return within(name, float(found.group(1)) * factor)


@functools.lru_cache(maxsize=_CACHED)
def text_fact(text: str) -> str | None:
    """Return a name or version as text; None where the cell has none."""
    plain = text.strip()
    if absent_reason(plain) is not None or len(plain) > _MAX_CELL or not plain.isprintable():
        return None
    return plain[:128]
