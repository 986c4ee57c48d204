"""From files to an `Import`: parse each, place it in time, put it on a grid, make rows."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from collector.formats import build, meters
from collector.formats.capture import parse_capture
from collector.formats.dcgm import parse_dcgm
from collector.formats.meter import parse_meter_csv, parse_mlperf, parse_ptd
from collector.formats.model import Finding, Format, FormatError, Parsed, Skipped
from collector.formats.recognise import decode, recognise
from collector.formats.rows import Row
from collector.formats.smi_csv import parse_csv
from collector.formats.smi_mon import parse_mon
from collector.formats.smi_query import parse_query_text, parse_query_xml
from collector.formats.stamps import parse_stamp
from idlewatt.units import US_PER_MS

DEFAULT_NODE: Final = "imported"
_MAX_NAMED: Final = 6


@dataclass(frozen=True, slots=True)
class Source:
    """A file.

    Attributes:
        name: for messages.
        data: its content.
    """

    name: str
    data: bytes


@dataclass(frozen=True, slots=True)
class Options:
    """What the files do not say themselves.

    Attributes:
        zone: zone of local stamps.
        node_id: node that the GPUs belong to.
        interval_ms: nominal interval, where it cannot be found or is known better.
        fields: field names of CSV without a header.
        start: time of the first reading of files that are not dated.
        family: nvidia-smi, dcgm or meter; None takes whatever is recognised.
    """

    zone: dt.tzinfo | None = None
    node_id: str | None = None
    interval_ms: int | None = None
    fields: tuple[str, ...] = ()
    start: dt.datetime | None = None
    family: str | None = None


@dataclass(slots=True)
class Import:
    """Rows, and the report.

    Attributes:
        formats: what the files are, in their order.
        node_id: node of the rows.
        named: whether the node's name was given or stands in the files.
        tables: rows by wire table, in the order of its columns; `epoch` is 0.
        interval_ms: nominal intervals found, by file.
        identity: rules by which GPUs are told apart, by GPU.
        notes: what was understood how.
        advice: what to record next time.
        findings: what the files show.
        skipped: lines not used; the first ones.
        skipped_count: how many lines were not used.
        windows: measured stretches of meters.
    """

    formats: dict[str, Format] = field(default_factory=dict)
    node_id: str = DEFAULT_NODE
    named: bool = False
    tables: dict[str, list[Row]] = field(default_factory=dict)
    interval_ms: dict[str, int] = field(default_factory=dict)
    identity: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    advice: list[str] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    skipped: list[Skipped] = field(default_factory=list)
    skipped_count: int = 0
    windows: list[meters.WindowResult] = field(default_factory=list)

    @property
    def samples(self) -> list[Row]:
        """Return the rows of `gpu_sample`."""
        return self.tables.get("gpu_sample", [])

    @property
    def meter_rows(self) -> list[Row]:
        """Return the rows of `meter`."""
        return self.tables.get("meter", [])


def read(sources: Sequence[Source], options: Options | None = None) -> Import:
    """Return what files hold.

    Raises:
        FormatError: a file cannot be read, or leaves open something that must not be guessed.
    """
    options = options or Options()
    result = Import()
    parsed: list[Parsed] = []
    for source in sources:
        found = parse(source, options)
        result.formats[source.name] = found[0].format if len(found) == 1 else Format.SMI_CAPTURE
        parsed.extend(found)
    parsed = [_dated(item, options) for item in parsed]
    _node(result, parsed, options)
    for item in parsed:
        result.notes += item.notes
        result.findings += item.findings
        result.skipped += item.skipped
        result.skipped_count += item.skipped_count
        if not (item.readings or item.power or item.windows):
            result.notes.append(f"{item.where}: it has a header and no readings")
        if item.unused:
            result.notes.append(_unused(item))
    build.samples(result, parsed, options)
    meters.rows(result, parsed, options)
    result.notes = list(dict.fromkeys(result.notes))
    return result


def parse(source: Source, options: Options) -> list[Parsed]:
    """Return what one file says: one part, or several for a capture of several commands.

    Raises:
        FormatError: it cannot be read.
    """
    name, text = source.name, decode(source.data)
    if options.fields and options.family != "dcgm":
        return [parse_csv(text, name, options.fields)]
    kind = recognise(source.data, name)
    if options.family is not None and kind.family != options.family:
        raise FormatError(
            f"{name} is {kind.value}, which `idlewatt import {kind.family}` takes, not "
            f"`idlewatt import {options.family}`"
        )
    if kind is Format.SMI_CAPTURE:
        return parse_capture(text, name)
    if kind is Format.SMI_CSV:
        return [parse_csv(text, name)]
    if kind is Format.DCGM:
        return [parse_dcgm(text, name, _time_in_name(name))]
    parsers = {
        Format.SMI_QUERY: parse_query_text,
        Format.SMI_XML: parse_query_xml,
        Format.DMON: parse_mon,
        Format.PMON: parse_mon,
        Format.METER_CSV: parse_meter_csv,
        Format.PTD_LOG: parse_ptd,
        Format.MLPERF_LOG: parse_mlperf,
    }
    return [parsers[kind](text, name)]


def _time_in_name(name: str) -> dt.datetime | None:
    """Return the time that a file of one scrape is named after."""
    stem = name.rpartition("/")[2]
    for part in (stem, stem.rpartition(".")[0], stem.partition(".")[0]):
        plain = part.removeprefix("metrics-").removeprefix("scrape-")
        for text in (plain, plain.replace("_", ":")):
            stamp = parse_stamp(text)
            if stamp is not None:
                return stamp
    return None


def _dated(parsed: Parsed, options: Options) -> Parsed:
    """Give times to what has none: from --start, one interval a reading.

    Raises:
        FormatError: there are none and no start is given.
    """
    undated = [reading for reading in parsed.readings if reading.stamp is None]
    if not undated:
        return parsed
    if len(undated) < len(parsed.readings):
        raise FormatError(f"{parsed.where}: some of its readings have a time and some have none")
    interval_ms = options.interval_ms or parsed.interval_ms
    if options.start is None:
        wish = {
            Format.SMI_CSV: "add timestamp to its fields",
            Format.DMON: "record with `-o DT`",
            Format.PMON: "record with `-o DT`",
            Format.DCGM: "put the time on a line before each scrape",
        }.get(parsed.format, "record it again with times")
        raise FormatError(
            f"{parsed.where}: nothing in it says when it was recorded; {wish}, or give --start "
            "with the time of its first reading"
        )
    if interval_ms is None:
        if any(reading.tick for reading in undated):
            raise FormatError(
                f"{parsed.where}: nothing in it says how far its readings lie apart; give "
                "--interval in seconds"
            )
        interval_ms = 1_000
    step = dt.timedelta(microseconds=interval_ms * US_PER_MS)
    for reading in undated:
        reading.stamp = options.start + reading.tick * step
    parsed.interval_ms = interval_ms
    parsed.notes.append(
        f"{parsed.where}: not dated; placed from {options.start.isoformat()} on, a reading each "
        f"{interval_ms / 1_000:g} s"
    )
    return parsed


def _node(result: Import, parsed: Sequence[Parsed], options: Options) -> None:
    """Decide which node the rows belong to.

    Raises:
        FormatError: the files name several and none was given.
    """
    hosts = {
        str(reading.facts["hostname"])
        for item in parsed
        for reading in item.readings
        if reading.facts.get("hostname")
    }
    if options.node_id:
        result.node_id, result.named = options.node_id, True
    elif len(hosts) == 1:
        result.node_id, result.named = next(iter(hosts)), True
    elif len(hosts) > 1:
        raise FormatError(
            f"the files name {len(hosts)} hosts ({', '.join(sorted(hosts)[:3])}, ...); import one "
            "host at a time, or give --node-id to put them on one node"
        )


def _unused(parsed: Parsed) -> str:
    names = sorted(parsed.unused)
    more = f" and {len(names) - _MAX_NAMED} more" if len(names) > _MAX_NAMED else ""
    return f"{parsed.where}: not used: {', '.join(names[:_MAX_NAMED])}{more}"
