"""Time stamps of files: reading them, and placing local ones in UTC without a guess.

Where clocks are set back, an hour of local time happens twice. Which of the two a stamp means is
taken from the order of the file where that proves it: from unbroken series that run into or out of
the hour, and from the jump back itself. Where nothing proves it, the file is refused.
"""

from __future__ import annotations

import datetime as dt
import functools
import itertools
import re
import zoneinfo
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

from collector.formats.model import FormatError
from idlewatt.errors import UsageError
from idlewatt.units import US_PER_S

_MONTHS: Final = [
    "jan",
    "feb",
    "mar",
    "apr",
    "may",
    "jun",
    "jul",
    "aug",
    "sep",
    "oct",
    "nov",
    "dec",
]
_ISO: Final = re.compile(
    r"(\d{4})[-/](\d{1,2})[-/](\d{1,2})[ T](\d{1,2}):(\d\d)(?::(\d\d)(?:[.,](\d{1,9}))?)?"
    r"\s*(Z|UTC|[+-]\d\d:?\d\d)?$"
)
_US: Final = re.compile(r"(\d\d)-(\d\d)-(\d{4}) (\d\d):(\d\d):(\d\d)(?:\.(\d{1,9}))?$")
_CTIME: Final = re.compile(
    r"(?:[A-Za-z]{3} )?([A-Za-z]{3}) +(\d{1,2}) (\d\d):(\d\d):(\d\d) (\d{4})$"
)
_COMPACT: Final = re.compile(r"(\d{4})(\d\d)(\d\d) (\d\d):(\d\d):(\d\d)$")
_EPOCH: Final = re.compile(r"\d{9,19}(?:\.\d{1,9})?$")
_OFFSET: Final = re.compile(r"(?:UTC|GMT)?([+-])(\d{1,2})(?::?(\d\d))?$")
_Reader = Callable[[re.Match[str]], dt.datetime | None]
_UNIX: Final = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_MAX_S: Final = 4_102_444_800  # 2100
_QUARTER_S: Final = 900
_PROOF_S: Final = 60
_STEP_LEAST_US: Final = 5 * US_PER_S


@functools.lru_cache(maxsize=4_096)
def parse_stamp(text: str) -> dt.datetime | None:
    """Return the time in a cell: aware if it names its offset or counts from 1970, else naive."""
    plain = text.strip()
    try:
        for pattern, read in _SPELLINGS:
            found = pattern.match(plain)
            if found:
                return read(found)
    except (ValueError, OverflowError):
        pass
    return None


def from_epoch(value: float) -> dt.datetime | None:
    """Return the time of a count since 1970 in s, ms, µs or ns; None outside 1990 to 2100."""
    for scale in (1, 1_000, 1_000_000, 1_000_000_000):
        seconds = value / scale
        if 631_152_000 <= seconds <= _MAX_S:
            return _UNIX + dt.timedelta(microseconds=round(seconds * US_PER_S))
    return None


def _naive(parts: Sequence[str], part: str | None) -> dt.datetime:
    year, month, day, hour, minute, second = (int(text) for text in parts)
    micro = int((part or "0").ljust(6, "0")[:6])
    return dt.datetime(year, month, day, hour, minute, second, micro)  # noqa: DTZ001 - a local time


def _iso(found: re.Match[str]) -> dt.datetime:
    *parts, fraction, offset = found.groups()
    parts[5] = parts[5] or "0"
    local = _naive(parts, fraction)
    if offset is None:
        return local
    return local.replace(tzinfo=dt.UTC if offset in ("Z", "UTC") else _fixed(offset))


def _us(found: re.Match[str]) -> dt.datetime:
    month, day, year, hour, minute, second, part = found.groups()
    return _naive((year, month, day, hour, minute, second), part)


def _ctime(found: re.Match[str]) -> dt.datetime:
    name, day, hour, minute, second, year = found.groups()
    month = str(_MONTHS.index(name.lower()) + 1)
    return _naive((year, month, day, hour, minute, second), None)


_SPELLINGS: Final[tuple[tuple[re.Pattern[str], _Reader], ...]] = (
    (_ISO, _iso),
    (_US, _us),
    (_CTIME, _ctime),
    (_COMPACT, lambda found: _naive(found.groups(), None)),
    (_EPOCH, lambda found: from_epoch(float(found.group()))),
)


def _fixed(text: str) -> dt.timezone:
    found = _OFFSET.match(text)
    if found is None:
        raise ValueError(text)
    sign, hours, minutes = found.groups()
    length = dt.timedelta(hours=int(hours), minutes=int(minutes or 0))
    if length > dt.timedelta(hours=15):
        raise ValueError(text)
    return dt.timezone(-length if sign == "-" else length)


def parse_zone(text: str) -> dt.tzinfo:
    """Return the zone of a name such as `Europe/Berlin`, `UTC` or `+02:00`.

    Raises:
        UsageError: there is no such zone.
    """
    plain = text.strip()
    if plain.upper() in ("UTC", "Z", "GMT"):
        return dt.UTC
    try:
        return _fixed(plain)
    except ValueError:
        pass
    try:
        return zoneinfo.ZoneInfo(plain)
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError):
        raise UsageError(
            f"{text!r} is no zone of this machine's zone data; give a name such as "
            "Europe/Berlin, or an offset such as +02:00"
        ) from None


def proven_zone(utc: dt.datetime, local: dt.datetime) -> dt.timezone | None:
    """Return the offset that makes both the same moment, if it is a whole quarter of an hour."""
    apart_s = (local.replace(tzinfo=dt.UTC) - utc).total_seconds()
    quarter = round(apart_s / _QUARTER_S)
    if abs(apart_s - quarter * _QUARTER_S) > _PROOF_S or abs(quarter) > 56:
        return None
    return dt.timezone(dt.timedelta(seconds=quarter * _QUARTER_S))


@dataclass(slots=True)
class Placed:
    """UTC microseconds of a series, and what was understood."""

    at_us: list[int]
    notes: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Local:
    """One stamp of a series and the line it stands on."""

    stamp: dt.datetime
    line: int


def place(series: Sequence[Local], zone: dt.tzinfo | None, where: str) -> Placed:
    """Return the UTC times of one GPU's or meter's stamps, in the order of the file.

    Raises:
        FormatError: a stamp is local and no zone is known, does not exist in the zone, or happened
            twice and nothing shows which is meant.
    """
    placed = Placed([0] * len(series))
    doubtful: list[int] = []
    for number, item in enumerate(series):
        stamp = item.stamp
        if stamp.tzinfo is None:
            if zone is None:
                raise FormatError(
                    f"{where}: the times are local and the file names no zone; give --zone with "
                    "the zone of the machine that wrote it, such as --zone Europe/Berlin or UTC"
                )
            early = stamp.replace(tzinfo=zone)
            late = early.replace(fold=1)
            if early.utcoffset() != late.utcoffset():
                if _micros(early) > _micros(late):
                    raise FormatError(
                        f"{where}, line {item.line}: {stamp} does not exist in {zone}: the clocks "
                        "went forward over it; is --zone the zone of the machine that wrote it?"
                    )
                doubtful.append(number)
            stamp = early
        placed.at_us[number] = _micros(stamp)
    if doubtful:
        _Folds(series, zone, placed, where).resolve(doubtful)
    _note_steps_back(series, placed, where)
    return placed


def _micros(stamp: dt.datetime) -> int:
    return (stamp - _UNIX) // dt.timedelta(microseconds=1)


def _note_steps_back(series: Sequence[Local], placed: Placed, where: str) -> None:
    back = [
        (before - after, item.line)
        for before, after, item in zip(placed.at_us, placed.at_us[1:], series[1:], strict=False)
        if after < before
    ]
    if back:
        length_us, line = max(back)
        placed.notes.append(
            f"{where}: the clock went back {len(back)} time(s), by {length_us / US_PER_S:.3f} s at "
            f"line {line}; where two readings claim one moment, the later line counts"
        )


class _Folds:
    """Decides for stamps that happened twice; `placed` holds the first meaning of each."""

    def __init__(
        self, series: Sequence[Local], zone: dt.tzinfo | None, placed: Placed, where: str
    ) -> None:
        self._series = series
        self._zone = zone
        self._placed = placed
        self._where = where
        at_us = placed.at_us
        steps = sorted(b - a for a, b in itertools.pairwise(at_us) if b > a)
        typical = steps[len(steps) // 2] if steps else 0
        self._near_us = max(2 * typical, _STEP_LEAST_US)

    def _second_us(self, number: int) -> int:
        stamp = self._series[number].stamp.replace(tzinfo=self._zone, fold=1)
        return _micros(stamp)

    def resolve(self, doubtful: Sequence[int]) -> None:
        """Settle every doubtful stamp or refuse."""
        blocks = self._blocks(doubtful)
        meaning: list[int | None] = [self._by_edges(block) for block in blocks]
        for place_, (before, after) in enumerate(itertools.pairwise(blocks)):
            if self._jumps_back(before[-1], after[0]):
                meaning[place_], meaning[place_ + 1] = 0, 1
        self._spread(blocks, meaning)
        for block, which in zip(blocks, meaning, strict=True):
            if which is None:
                item = self._series[block[0]]
                raise FormatError(
                    f"{self._where}, line {item.line}: {item.stamp} happened twice in {self._zone} "
                    "(the clocks went back) and nothing in the file shows which is meant; give "
                    "--zone as an offset, such as --zone +02:00 or +01:00"
                )
            if which == 1:
                for number in block:
                    self._placed.at_us[number] = self._second_us(number)
        first, last = self._series[doubtful[0]], self._series[doubtful[-1]]
        self._placed.notes.append(
            f"{self._where}: the clocks went back between lines {first.line} and {last.line}; "
            "the order of the lines shows which of the two hours each stamp means"
        )

    def _spread(self, blocks: list[list[int]], meaning: list[int | None]) -> None:
        """Use the order: what precedes a first hour is of the first, what follows a second..."""
        for number in range(len(blocks) - 1, 0, -1):
            if meaning[number] == 0 and self._same_night(blocks[number - 1], blocks[number]):
                meaning[number - 1] = 0
        for number in range(1, len(blocks)):
            if meaning[number - 1] == 1 and self._same_night(blocks[number - 1], blocks[number]):
                meaning[number] = 1

    def _blocks(self, doubtful: Sequence[int]) -> list[list[int]]:
        """Return unbroken series of doubtful stamps."""
        blocks: list[list[int]] = []
        for number in doubtful:
            if blocks and number == blocks[-1][-1] + 1 and self._unbroken(number):
                blocks[-1].append(number)
            else:
                blocks.append([number])
        return blocks

    def _unbroken(self, number: int) -> bool:
        step = self._placed.at_us[number] - self._placed.at_us[number - 1]
        return 0 <= step <= self._near_us

    def _by_edges(self, block: Sequence[int]) -> int | None:
        """Return what a firm neighbour right before or after shows."""
        at_us, first, last = self._placed.at_us, block[0], block[-1]
        if first > 0 and not self._doubtful(first - 1) and self._unbroken(first):
            return 0
        if last + 1 == len(at_us) or self._doubtful(last + 1):
            return None
        follows = 0 <= at_us[last + 1] - self._second_us(last) <= self._near_us
        return 1 if follows else None

    def _doubtful(self, number: int) -> bool:
        stamp = self._series[number].stamp
        if stamp.tzinfo is not None:
            return False
        early = stamp.replace(tzinfo=self._zone)
        return early.utcoffset() != early.replace(fold=1).utcoffset()

    def _jumps_back(self, before: int, after: int) -> bool:
        """Return whether local time goes back by about as much as the clocks did."""
        step = self._placed.at_us[after] - self._placed.at_us[before]
        shift = self._second_us(after) - self._placed.at_us[after]
        return self._near(before, after) and -shift - self._near_us <= step < -shift / 4

    def _near(self, before: int, after: int) -> bool:
        return after == before + 1

    def _same_night(self, before: Sequence[int], after: Sequence[int]) -> bool:
        apart = self._placed.at_us[after[0]] - self._placed.at_us[before[-1]]
        return abs(apart) < 6 * 3_600 * US_PER_S
