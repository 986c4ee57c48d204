"""Reads the files that `idlewatt analyze` is given; large logs in parts, so that they fit."""

from __future__ import annotations

import codecs
import datetime as dt
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from analysis.offline_rows import Gatherer, Samples
from collector.formats import Format, FormatError, Import, Options, Source, read, recognise
from collector.formats.fields import parse_header
from collector.formats.model import Finding, Skipped
from idlewatt.errors import UsageError

MAX_FILE_BYTES: Final = 4 << 30
PART_LINES: Final = 40_000
OVERLAP_LINES: Final = 256
"""Lines that a part shares with the one before, so that a grid goes on over the border."""

_HEAD: Final = 65_536
_SERIES: Final = frozenset({Format.SMI_CSV, Format.DMON, Format.PMON})
_OWN: Final = frozenset({"busy_but_empty", "zero_at_power"})  # the analysis finds them itself
_OF_A_PART: Final = re.compile(
    r"\d[\d,]* row\(s\)|.*: \d+ (reading|tick)\(s\)|.*; \d+ tick\(s\)|.* appears later "
)
"""Notes that hold for a part of a file only; the analysis has its own words for the whole."""

Progress = Callable[[str, int, int], None]


@dataclass(slots=True)
class Reading:
    """What files hold.

    Attributes:
        samples: the rows.
        files: what each file is.
        zone_known: whether every time is UTC for certain; else it is the writer's clock as written.
        rules: by which rule GPUs are told apart.
        notes: what was understood how.
        findings: what the files show beyond the states.
        skipped: lines not used; the first ones.
        skipped_count: how many were not used.
    """

    samples: Samples
    files: dict[str, Format] = field(default_factory=dict)
    zone_known: bool = True
    rules: set[str] = field(default_factory=set)
    notes: list[str] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    skipped: list[Skipped] = field(default_factory=list)
    skipped_count: int = 0


def read_files(words: Sequence[str], options: Options, tell: Progress) -> Reading:
    """Return what files, or all files of folders, hold.

    Args:
        words: paths.
        options: what the files do not say themselves.
        tell: called with a file's name, the bytes done and the bytes there are.

    Raises:
        UsageError: a file is not there, or holds no GPU.
        FormatError: a file cannot be read.
    """
    paths = _named(list(_paths(words)))
    kinds = {name: _kind(path, name, options) for name, path in paths.items()}
    reader = _Reader(options, tell)
    meters = [name for name, kind in kinds.items() if kind.family == "meter"]
    reader.found.notes += [f"{name}: wall power; `idlewatt import` takes it" for name in meters]
    for names in _groups({name: kind for name, kind in kinds.items() if name not in meters}):
        label = Path(names[0]).name.partition(".")[0] or names[0]
        reader.gatherer.begin_file(label)
        if len(names) == 1 and kinds[names[0]] is Format.SMI_CSV:
            reader.log(names[0], paths[names[0]])
        else:
            reader.whole({name: paths[name] for name in names})
    reader.found.samples = reader.gatherer.finish()
    reader.found.files = kinds
    if not len(reader.found.samples.rows):
        raise UsageError(_nothing(kinds))
    return reader.found


def _paths(words: Sequence[str]) -> Iterator[Path]:
    for word in words:
        path = Path(word)
        try:
            if path.is_dir():
                inside = sorted(item for item in path.iterdir() if item.is_file())
                if not inside:
                    raise UsageError(f"the folder {word} holds no file")
                yield from inside
            else:
                size = path.stat().st_size
                if size > MAX_FILE_BYTES:
                    raise UsageError(f"{word} is larger than 4 GiB; cut it into parts")
                yield path
        except OSError as exc:
            raise UsageError(f"cannot read {word}: {exc.strerror}") from exc


def _named(paths: Sequence[Path]) -> dict[str, Path]:
    """Return the files by the shortest name that tells them apart."""
    short = Counter(path.name for path in paths)
    return {path.name if short[path.name] == 1 else str(path): path for path in paths}


def _kind(path: Path, name: str, options: Options) -> Format:
    if options.fields:
        return Format.SMI_CSV
    try:
        with path.open("rb") as file:
            return recognise(file.read(_HEAD), name)
    except OSError as exc:
        raise UsageError(f"cannot read {path}: {exc.strerror}") from exc


def _groups(kinds: dict[str, Format]) -> list[list[str]]:
    """Return which files are read together.

    Scrapes are: one alone has no interval. So are logs of several tools, which complete each
    other's seconds. Logs of one tool are read one by one: those of two nodes may look alike.
    """
    scrapes = [name for name, kind in kinds.items() if kind is Format.DCGM]
    logs = [name for name, kind in kinds.items() if kind in _SERIES]
    together = len({kinds[name] for name in logs}) > 1
    singles = [[name] for name in kinds if name not in scrapes and not (together and name in logs)]
    return singles + [group for group in (scrapes, logs if together else []) if group]


def _nothing(kinds: dict[str, Format]) -> str:
    names = ", ".join(list(kinds)[:3])
    if all(kind.family == "meter" for kind in kinds.values()):
        return (
            f"{names}: wall power and no GPU, so there are no states to tell; "
            "`idlewatt import meter FILE --dry-run` shows what it holds"
        )
    return f"{names}: there is no reading of a GPU in it"


class _Reader:
    """Feeds files to a gatherer."""

    def __init__(self, options: Options, tell: Progress) -> None:
        self.gatherer = Gatherer()
        self.found = Reading(Gatherer().finish())
        self._options = options
        self._tell = tell

    def whole(self, paths: dict[str, Path]) -> None:
        """Read files in one go."""
        sources = [Source(name, _bytes(path)) for name, path in paths.items()]
        self._take(self._read(sources, self._options)[0])
        size = sum(len(source.data) for source in sources)
        self._tell(sources[0].name, size, size)

    def log(self, name: str, path: Path) -> None:
        """Read a CSV log, in parts where it is large.

        A part alone can lack what settles a doubtful time; then the whole file is read at once.
        """
        size, options, before = path.stat().st_size, self._options, replace(self.found)
        for number, (part, done) in enumerate(_parts(path)):
            try:
                found, options = self._read([Source(name, part)], options)
            except FormatError:
                if done == size and not number:
                    raise
                self.found = before
                self.gatherer.forget_file()
                self.whole({name: path})
                return
            self._take(found)
            self._tell(name, done, size)
            interval_ms = options.interval_ms or found.interval_ms.get(name)
            options = replace(options, interval_ms=interval_ms)

    def _read(self, sources: list[Source], options: Options) -> tuple[Import, Options]:
        """Return what the files hold; where no zone is known, times are taken as written."""
        try:
            return read(sources, options), options
        except FormatError as exc:
            if options.zone is not None or "--zone" not in str(exc):
                raise
        self.found.zone_known = False
        options = replace(options, zone=dt.UTC)
        return read(sources, options), options

    def _take(self, found: Import) -> None:
        self.gatherer.add(found.samples, found.tables.get("device", []))
        mine = self.found
        mine.rules |= set(found.identity.values())
        mine.notes += [
            note for note in found.notes if not _OF_A_PART.match(note) and note not in mine.notes
        ]
        mine.findings += [
            item for item in found.findings if item.kind not in _OWN and item not in mine.findings
        ]
        known = set(mine.skipped)
        again = sum(item in known for item in found.skipped)
        mine.skipped += [item for item in found.skipped if item not in known]
        mine.skipped_count += found.skipped_count - again


def _bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as exc:
        raise UsageError(f"cannot read {path}: {exc.strerror}") from exc


def _parts(path: Path) -> Iterator[tuple[bytes, int]]:
    """Yield a log in parts of whole lines, and how many bytes of it are done.

    A part begins with the header that holds there, then empty lines up to where it stands in the
    file (so that line numbers stay true), then the last lines of the part before.
    """
    header, begin, done = b"", 0, 0
    lines: list[bytes] = []
    with path.open("rb") as file:
        if file.read(2) in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE):  # no lines in bytes
            file.seek(0)
            yield file.read(), path.stat().st_size
            return
        file.seek(0)
        for line in file:
            lines.append(line)
            done += len(line)
            if len(lines) == PART_LINES:
                yield _part(header, begin, lines), done
                header = _last_header(lines) or header
                begin += len(lines) - OVERLAP_LINES
                lines = lines[-OVERLAP_LINES:]
    if len(lines) > OVERLAP_LINES or not begin:
        yield _part(header, begin, lines), done


def _part(header: bytes, begin: int, lines: Sequence[bytes]) -> bytes:
    if not begin:
        return b"".join(lines)
    return header + b"\n" * (begin - 1) + b"".join(lines)


def _last_header(lines: Sequence[bytes]) -> bytes | None:
    """Return the last header among lines."""
    for line in reversed(lines):
        start = line.lstrip(b"\xef\xbb\xbf \t")[:1]
        if start.isalpha() and parse_header(line.decode("utf-8", "replace").split(",")):
            return line if line.endswith(b"\n") else line + b"\n"
    return None
