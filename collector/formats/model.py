"""Value objects that all parsers of foreign files share."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from idlewatt.errors import IdlewattError

MAX_SKIPPED_KEPT: Final = 200
MAX_TEXT: Final = 100

Value = int | float | bool | str


class FormatError(IdlewattError):
    """A file cannot be read as what it seems to be; the message says which line, and what to do."""


class Format(StrEnum):
    """What a file can be."""

    SMI_CSV = "nvidia-smi-csv"
    SMI_QUERY = "nvidia-smi-q"
    SMI_XML = "nvidia-smi-xml"
    SMI_CAPTURE = "nvidia-smi-capture"
    DMON = "nvidia-smi-dmon"
    PMON = "nvidia-smi-pmon"
    DCGM = "dcgm"
    METER_CSV = "meter-csv"
    PTD_LOG = "ptd-log"
    MLPERF_LOG = "mlperf-log"

    @property
    def family(self) -> str:
        """Return the word of `idlewatt import WORD` that takes it."""
        if self.value.startswith("nvidia-smi"):
            return "nvidia-smi"
        return "dcgm" if self is Format.DCGM else "meter"


class Reason(StrEnum):
    """Why a value is not there."""

    UNSUPPORTED = "unsupported"
    NO_PERMISSION = "no_permission"
    LOST = "lost"
    IMPLAUSIBLE = "implausible"
    STALE = "stale"


@dataclass(frozen=True, slots=True)
class Absent:
    """A cell without a value, and why."""

    reason: Reason


@dataclass(frozen=True, slots=True)
class Skipped:
    """A line that was not used."""

    file: str
    line: int
    why: str
    text: str = ""


@dataclass(frozen=True, slots=True)
class Finding:
    """Something about the content that its owner should know.

    Attributes:
        kind: short name.
        text: one sentence or two.
        file: where.
        line: where, if one line.
    """

    kind: str
    text: str
    file: str = ""
    line: int | None = None


@dataclass(frozen=True, slots=True)
class GpuRef:
    """How a file names a GPU.

    Attributes:
        uuid: NVML UUID.
        bus_id: PCI address.
        index: the tool's index; not stable across boots.
        instance: `gpu instance/compute instance` of a MIG instance of it.
        host: host name, where a file holds several.
    """

    uuid: str | None = None
    bus_id: str | None = None
    index: int | None = None
    instance: str | None = None
    host: str | None = None


@dataclass(slots=True)
class Reading:
    """What a file says about one GPU at one moment.

    Attributes:
        line: where it stands.
        stamp: aware (UTC known), naive (local time of the file's writer), or None: not dated.
        gpu: which GPU.
        values: by column of `gpu_sample`, and by the extra names of `collector.formats.ranges`.
        absent: why a column that the file has is without a value here.
        facts: by column of `device`; `hostname` too.
        processes: length of the process list; None where the file has none.
        tick: number of the reading, for what is not dated.
    """

    line: int
    stamp: dt.datetime | None
    gpu: GpuRef
    values: dict[str, Value] = field(default_factory=dict)
    absent: dict[str, Reason] = field(default_factory=dict)
    facts: dict[str, Value] = field(default_factory=dict)
    processes: int | None = None
    tick: int = 0


@dataclass(slots=True)
class PowerReading:
    """What a meter says at one moment.

    Attributes:
        line: where it stands.
        stamp: aware or naive (local time of the file's writer).
        meter: its name within the file.
        power_mw: None where the meter had no value.
        scope: what the meter covers.
    """

    line: int
    stamp: dt.datetime
    meter: str
    power_mw: int | None
    scope: str


@dataclass(frozen=True, slots=True)
class Window:
    """A measured stretch that a log marks, in the writer's local time."""

    name: str
    begin: dt.datetime
    end: dt.datetime


@dataclass(slots=True)
class Parsed:
    """What one file, or one section of one, says.

    Attributes:
        format: what it is.
        file: its name.
        section: label of the section of a capture; else empty.
        readings: of GPUs, in the order of the file.
        power: of meters, in the order of the file.
        windows: measured stretches.
        interval_ms: nominal interval where the format has one.
        snapshot: whether it shows moments and not a series.
        zone: zone that the file itself proves.
        skipped: lines not used; at most MAX_SKIPPED_KEPT are kept.
        skipped_count: how many there were.
        notes: what was understood how.
        findings: what the owner should know.
        unused: fields of the file that idlewatt has no column for.
    """

    format: Format
    file: str
    section: str = ""
    readings: list[Reading] = field(default_factory=list)
    power: list[PowerReading] = field(default_factory=list)
    windows: list[Window] = field(default_factory=list)
    interval_ms: int | None = None
    snapshot: bool = False
    zone: dt.tzinfo | None = None
    skipped: list[Skipped] = field(default_factory=list)
    skipped_count: int = 0
    notes: list[str] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    unused: set[str] = field(default_factory=set)

    def skip(self, line: int, why: str, text: str = "") -> None:
        """Count a line that is not used."""
        self.skipped_count += 1
        if len(self.skipped) < MAX_SKIPPED_KEPT:
            self.skipped.append(Skipped(self.file, line, why, text.strip()[:MAX_TEXT]))

    @property
    def where(self) -> str:
        """Return file and section for messages."""
        return f"{self.file} ({self.section})" if self.section else self.file
