"""The only module that writes to the terminal."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Sequence
from typing import Any, Final

_STYLES: Final = {"bold": 1, "red": 31, "green": 32, "yellow": 33}


def say(text: str = "", *, err: bool = False) -> None:
    """Print one line."""
    print(text, file=sys.stderr if err else sys.stdout, flush=True)


def fail(text: str) -> None:
    """Print an error as one sentence."""
    say(f"idlewatt: {text}", err=True)


def paint(text: str, style: str) -> str:
    """Return `text` in a colour (or bold) where standard output is a terminal that wants it."""
    if not sys.stdout.isatty() or os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb":
        return text
    return f"\x1b[{_STYLES[style]}m{text}\x1b[0m"


def width(most: int) -> int:
    """Return the columns to write to: the terminal's, up to `most`; `most` where it is a file."""
    return min(shutil.get_terminal_size((most, 24)).columns, most)


def emit_json(value: Any) -> None:
    """Print a value as JSON; dates as ISO text."""
    print(json.dumps(value, indent=2, default=str, ensure_ascii=False), flush=True)


def table(headers: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    """Return rows as an aligned text table; NULL is shown as `NULL`, numbers stand right."""
    cells = [[_cell(value) for value in row] for row in rows]
    widths = [
        max([len(header), *(len(row[number]) for row in cells)])
        for number, header in enumerate(headers)
    ]
    right = [
        any(_is_number(row[number]) for row in rows)
        and all(row[number] is None or _is_number(row[number]) for row in rows)
        for number in range(len(headers))
    ]
    lines = [_line(headers, widths, right), "  ".join("─" * width for width in widths)]
    lines += [_line(row, widths, right) for row in cells]
    return "\n".join(line.rstrip() for line in lines)


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _cell(value: Any) -> str:
    if value is None:
        return "NULL"
    if isinstance(value, float):
        return f"{value:.6g}" if abs(value) < 1e6 else f"{value:.1f}"
    return str(value).replace("\n", "\\n")


def _line(cells: Sequence[str], widths: Sequence[int], right: Sequence[bool]) -> str:
    return "  ".join(
        cell.rjust(width) if flush_right else cell.ljust(width)
        for cell, width, flush_right in zip(cells, widths, right, strict=True)
    )
