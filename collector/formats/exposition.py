"""The Prometheus text format: metrics with labels, values and perhaps times."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

_NAME: Final = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*")
_LABEL: Final = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*")
_ESCAPES: Final = {"\\": "\\", '"': '"', "n": "\n"}
_WORDS: Final = {
    "nan": math.nan,
    "+inf": math.inf,
    "inf": math.inf,
    "-inf": -math.inf,
}
_FLOAT: Final = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?$")
MAX_LINE: Final = 65_536


@dataclass(frozen=True, slots=True)
class Sample:
    """One line: a value of a series.

    Attributes:
        line: its number.
        name: metric.
        labels: by name.
        value: the value; NaN and infinities stay what they are.
        text: the value as written, since large integers do not survive as floats.
        at: time as written, or None.
    """

    line: int
    name: str
    labels: dict[str, str]
    value: float
    text: str
    at: float | None


@dataclass(frozen=True, slots=True)
class Comment:
    """A line that starts with #, without it."""

    line: int
    text: str


Skip = Callable[[int, str, str], None]


def parse(text: str, skip: Skip) -> Iterator[Sample | Comment]:
    """Yield samples and comments; lines that are neither are handed to `skip`."""
    for number, raw in enumerate(text.splitlines(), 1):
        line = raw.strip()
        if not line:
            continue
        if line.startswith("#"):
            yield Comment(number, line[1:].strip())
            continue
        sample = parse_sample(line, number) if len(line) <= MAX_LINE else None
        if sample is None:
            skip(number, "no metric, labels and value", raw)
        else:
            yield sample


def parse_sample(line: str, number: int = 0) -> Sample | None:
    """Return the sample on a line, or None."""
    name = _NAME.match(line)
    if name is None:
        return None
    rest = line[name.end() :].lstrip()
    labels: dict[str, str] = {}
    if rest.startswith("{"):
        found = _labels(rest)
        if found is None:
            return None
        labels, rest = found
    words = rest.split(" # ")[0].split()  # an exemplar may follow
    if len(words) not in (1, 2):
        return None
    value = _number(words[0])
    at = _number(words[1]) if len(words) == 2 else None
    if value is None or (len(words) == 2 and (at is None or not math.isfinite(at))):
        return None
    return Sample(number, name.group(), labels, value, words[0], at)


def _labels(text: str) -> tuple[dict[str, str], str] | None:
    """Return the labels at the start of `text`, and what follows them."""
    labels: dict[str, str] = {}
    place = 1
    while True:
        while text[place : place + 1] in (" ", ",", "\t"):
            place += 1
        if text[place : place + 1] == "}":
            return labels, text[place + 1 :]
        name = _LABEL.match(text, place)
        if name is None:
            return None
        place = name.end()
        while text[place : place + 1] in (" ", "="):
            place += 1
        if text[place : place + 1] != '"':
            return None
        found = _quoted(text, place + 1)
        if found is None:
            return None
        labels[name.group()], place = found


def _quoted(text: str, place: int) -> tuple[str, int] | None:
    """Return the string that starts at `place`, and where the text goes on."""
    parts: list[str] = []
    while place < len(text):
        char = text[place]
        if char == '"':
            return "".join(parts), place + 1
        if char == "\\":
            following = text[place + 1 : place + 2]
            parts.append(_ESCAPES.get(following, "\\" + following))
            place += 2
            continue
        parts.append(char)
        place += 1
    return None


def _number(text: str) -> float | None:
    if _FLOAT.match(text) and len(text) < 64:
        return float(text)
    return _WORDS.get(text.lower())
