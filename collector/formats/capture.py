"""Capture files of several commands: a banner and a line `# $ command` before each output.

Such files are made to report a machine to an exporter's project. What nvidia-smi printed for
queries, dmon and pmon is read; everything else is left alone.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from collector.formats.model import Finding, Format, FormatError, Parsed
from collector.formats.smi_csv import parse_csv
from collector.formats.smi_mon import parse_mon
from collector.formats.smi_query import parse_query_text
from collector.formats.stamps import parse_stamp, proven_zone

_RULE: Final = re.compile(r"#{20,}\s*$")
_TITLE: Final = re.compile(r"#\s*(\S.*?)\s*::\s*(.*)$")
_COMMAND: Final = re.compile(r"#\s*\$\s*(.+)$")
_COLLECTED: Final = re.compile(r"^collected_at:\s*(\S+)", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Section:
    """One command's output.

    Attributes:
        label: what the capture calls the machine's state, such as idle or load.
        command: the command.
        first_line: number of the output's first line.
        text: the output.
    """

    label: str
    command: str
    first_line: int
    text: str


def sections(text: str) -> Iterator[Section]:
    """Yield the sections of a capture."""
    lines = text.splitlines(keepends=True)
    label, command, start = "", "", None
    for number, line in enumerate(lines):
        if _RULE.match(line):
            following = lines[number + 1] if number + 1 < len(lines) else ""
            if start is not None and _TITLE.match(following):
                yield Section(label, command, start + 1, "".join(lines[start:number]))
                label, command, start = "", "", None
            elif command and start is None:
                start = number + 1
            continue
        if start is None:
            title, found = _TITLE.match(line), _COMMAND.match(line)
            if title:
                label, command = title.group(1), ""
            elif found:
                command = found.group(1).strip()
    if start is not None:
        yield Section(label, command, start + 1, "".join(lines[start:]))


def parse_capture(text: str, file: str) -> list[Parsed]:
    """Return what each usable section says.

    Raises:
        FormatError: there is none.
    """
    found: list[Parsed] = []
    for section in sections(text):
        parsed = _parse(section, file)
        if parsed is not None:
            parsed.section = section.label
            found.append(parsed)
    if not any(parsed.readings for parsed in found):
        raise FormatError(f"{file}: a capture file without an nvidia-smi query in it")
    _prove_zone(text, found)
    undated = [parsed for parsed in found if _is_undated(parsed)]
    if undated:
        kinds = ", ".join(sorted({parsed.format.value for parsed in undated}))
        found[0].notes.append(
            f"{file}: the {kinds} sections are not dated: they are evidence and give no rows"
        )
    found[0].findings.extend(_burst_evidence(found, undated))
    return [parsed for parsed in found if parsed not in undated]


def _is_undated(parsed: Parsed) -> bool:
    return all(reading.stamp is None for reading in parsed.readings)


def _parse(section: Section, file: str) -> Parsed | None:
    words = section.command.split()
    if not words or words[0].rpartition("/")[2] != "nvidia-smi":
        return None
    options = words[1:]
    try:
        if any(word.startswith("--query-gpu=") for word in options):
            parsed = parse_csv(section.text, file, first_line=section.first_line)
            parsed.snapshot = True
            return parsed
        if options == ["-q"]:
            return parse_query_text(section.text, file, section.first_line)
        if options[:1] in (["dmon"], ["pmon"]):
            return parse_mon(section.text, file, section.first_line)
    except FormatError:
        if not section.text.strip() or section.label == "capabilities":
            return None
        raise
    return None


def _prove_zone(text: str, found: list[Parsed]) -> None:
    """Use the capture's own time in UTC to learn which zone the stamps are in."""
    collected = _COLLECTED.search(text)
    utc = parse_stamp(collected.group(1)) if collected else None
    if utc is None or utc.tzinfo is None:
        return
    stamps = [r.stamp for p in found for r in p.readings if r.stamp is not None]
    if not stamps or stamps[0].tzinfo is not None:
        return
    zone = proven_zone(utc.astimezone(dt.UTC), stamps[0])
    if zone is None:
        return
    for parsed in found:
        parsed.zone = zone
    found[0].notes.append(
        f"{found[0].file}: its header gives the time in UTC, which proves the stamps' zone: {zone}"
    )


def _burst_evidence(found: list[Parsed], undated: list[Parsed]) -> list[Finding]:
    """Say where later lines of an `idle` section contradict its first readings."""
    findings = []
    for label in dict.fromkeys(parsed.section for parsed in found):
        if label != "idle":
            continue
        busy = [
            r
            for p in found
            if p.section == label and p not in undated
            for r in p.readings
            if int(r.values.get("util_gpu_pct", 0)) >= 50
        ]
        calm = [
            r for p in undated if p.section == label and p.format is Format.DMON for r in p.readings
        ]
        powers = [int(r.values["power_draw_mw"]) for r in calm if "power_draw_mw" in r.values]
        if busy and powers and all(r.values.get("util_gpu_pct") == 0 for r in calm):
            findings.append(
                Finding(
                    "not_idle_at_first",
                    f"the section is called idle, but its first readings say "
                    f"{busy[0].values['util_gpu_pct']} % utilisation; its dmon lines right after "
                    f"say 0 % and {powers[0] / 1e3:.0f} W falling to {powers[-1] / 1e3:.0f} W: "
                    "something had just ended, or the driver had just started",
                    found[0].file,
                    busy[0].line,
                )
            )
    return findings
