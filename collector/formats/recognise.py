"""What a file is, from its first bytes."""

from __future__ import annotations

import codecs
import re
from typing import Final

from collector.formats.fields import TARGETS, header_cell, parse_header
from collector.formats.model import Format, FormatError
from collector.formats.stamps import parse_stamp

HEAD_BYTES: Final = 65_536
_BOMS: Final = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
_DCGM: Final = re.compile(r"^(?:# (?:HELP|TYPE) )?(?:DCGM_FI_|dcgm_)", re.MULTILINE)
_PTD: Final = re.compile(r"^Time,[^,\n]+,Watts,", re.MULTILINE)
_MON: Final = re.compile(r"\s*#\s*(?:date[\s,]+time[\s,]+)?gpu[\s,]", re.IGNORECASE)
_MON_COLUMNS: Final = frozenset(
    ["pid", "pwr", "temp", "gtemp", "sm", "mem", "mclk", "pclk", "fb", "pviol", "rxpci"]
)
_CAPTURE: Final = re.compile(r"^# \$ \S*nvidia-smi", re.MULTILINE)
_METER_WORDS: Final = re.compile(r"power|watt|\bkw\b|_kw|_w\b|\(w\)|\[w\]", re.IGNORECASE)
_LOOK_LINES: Final = 200
_TELLING: Final = frozenset(TARGETS) - {"timestamp", "name", "index", "count", "hostname"}


def decode(data: bytes) -> str:
    """Return the text of a file: UTF-8 or UTF-16 with its mark; odd bytes become question marks."""
    for bom, encoding in _BOMS:
        if data.startswith(bom):
            return data[len(bom) :].decode(encoding, "replace")
    return data.decode("utf-8", "replace")


def recognise(head: bytes, name: str = "") -> Format:
    """Return what a file is.

    Args:
        head: its first bytes.
        name: its name, for the message; says nothing about the content.

    Raises:
        FormatError: it is nothing that can be imported.
    """
    text = decode(head[:HEAD_BYTES])
    found = _recognise(text)
    if found is None:
        what = "is empty" if not text.strip() else "is none of the files that can be imported"
        raise FormatError(
            f"{name or 'the file'} {what}: nvidia-smi CSV (--query-gpu), -q, -q -x, dmon or pmon; "
            "dcgm-exporter text; a meter's CSV, a PTDaemon log or an MLPerf log"
        )
    return found


def _recognise(text: str) -> Format | None:
    marks = (
        (Format.SMI_XML, "<nvidia_smi_log" in text[:4096]),
        (Format.SMI_CAPTURE, _CAPTURE.search(text) is not None),
        (Format.SMI_QUERY, "NVSMI LOG" in text and "====" in text),
        (Format.MLPERF_LOG, ":::MLLOG" in text),
        (Format.PTD_LOG, _PTD.search(text) is not None),
        (Format.DCGM, _DCGM.search(text) is not None),
    )
    return next((kind for kind, is_it in marks if is_it), None) or _by_header(text)


def _is_smi(cells: list[str]) -> bool:
    """Return whether a header is nvidia-smi's: `timestamp,power_w` is a meter's."""
    names = [header_cell(cell) for cell in cells]
    return any(name is not None and name[0] in _TELLING for name in names)


def _by_header(text: str) -> Format | None:
    lines = [line for line in text.splitlines() if line.strip()][:_LOOK_LINES]
    for line in lines:
        words = frozenset(re.split(r"[\s,#]+", line.lower()))
        if _MON.match(line) and words & _MON_COLUMNS:
            return Format.PMON if "pid" in words else Format.DMON
        cells = re.split(r"[,;]", line)
        if parse_header(cells) is not None and _is_smi(cells):
            return Format.SMI_CSV
    first = re.split(r"[,;\t]", lines[0]) if lines else []
    if len(first) > 1 and parse_stamp(first[0]) is None and _METER_WORDS.search(lines[0]):
        return Format.METER_CSV
    if lines and parse_stamp(lines[0].split(",")[0]) is not None and len(first) > 1:
        return Format.SMI_CSV  # without a header: its fields must be given
    return None
