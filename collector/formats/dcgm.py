"""dcgm-exporter's text, one scrape or many."""

from __future__ import annotations

import dataclasses
import datetime as dt
import math
import re
from dataclasses import dataclass, field
from typing import Final

from collector.formats.exposition import Comment, Sample, parse
from collector.formats.model import Absent, Format, FormatError, GpuRef, Parsed, Reading, Reason
from collector.formats.ranges import within
from collector.formats.smi_csv import clean_bus_id, clean_index, clean_uuid
from collector.formats.stamps import from_epoch, parse_stamp

# Field id -> column or fact, factor to the column's unit, and the names it has had: in
# dcgm-exporter, in DCGM since 4.6, and in the exporter of the time before it.
_FIELDS: Final[tuple[tuple[int, str, float, str], ...]] = (
    (100, "sm_clock_mhz", 1, "DEV_SM_CLOCK dcgm_sm_clock"),
    (101, "mem_clock_mhz", 1, "DEV_MEM_CLOCK dcgm_memory_clock"),
    (
        112,
        "event_reasons",
        1,
        "DEV_CLOCK_THROTTLE_REASONS DEV_CLOCKS_EVENT_REASONS DEV_CLOCKS_EVENT_REASON",
    ),
    (140, "temp_mem_c", 1, "DEV_MEMORY_TEMP DEV_MEMORY_TEMP_CELSIUS dcgm_memory_temp"),
    (150, "temp_gpu_c", 1, "DEV_GPU_TEMP DEV_GPU_TEMP_CELSIUS dcgm_gpu_temp"),
    (155, "power_draw_mw", 1e3, "DEV_POWER_USAGE DEV_BOARD_POWER_WATTS dcgm_power_usage"),
    (
        156,
        "energy_mj",
        1,
        "DEV_TOTAL_ENERGY_CONSUMPTION dcgm_total_energy_consumption",
    ),
    (157, "power_inst_mw", 1e3, "DEV_POWER_USAGE_INSTANT DEV_BOARD_POWER_RAW_WATTS"),
    (
        160,
        "power_limit_requested_mw",
        1e3,
        "DEV_POWER_MGMT_LIMIT DEV_BOARD_POWER_LIMIT_REQUESTED_WATTS",
    ),
    (
        161,
        "power_limit_min_mw",
        1e3,
        "DEV_POWER_MGMT_LIMIT_MIN DEV_BOARD_POWER_LIMIT_MIN_WATTS",
    ),
    (
        162,
        "power_limit_max_mw",
        1e3,
        "DEV_POWER_MGMT_LIMIT_MAX DEV_BOARD_POWER_LIMIT_MAX_WATTS",
    ),
    (
        163,
        "power_limit_default_mw",
        1e3,
        "DEV_POWER_MGMT_LIMIT_DEF DEV_BOARD_POWER_LIMIT_DEFAULT_WATTS",
    ),
    (
        164,
        "power_limit_mw",
        1e3,
        "DEV_ENFORCED_POWER_LIMIT DEV_BOARD_POWER_LIMIT_ENFORCED_WATTS",
    ),
    (190, "pstate", 1, "DEV_PSTATE DEV_GPU_PSTATE"),
    (191, "fan_pct", 1, "DEV_FAN_SPEED dcgm_fan_speed_percent"),
    (203, "util_gpu_pct", 1, "DEV_GPU_UTIL DEV_GPU_UTIL_RATIO dcgm_gpu_utilization"),
    (204, "util_mem_pct", 1, "DEV_MEM_COPY_UTIL dcgm_mem_copy_utilization"),
    (237, "pcie_gen", 1, "DEV_PCIE_LINK_GEN"),
    (238, "pcie_width", 1, "DEV_PCIE_LINK_WIDTH"),
    (250, "mem_total_mib", 1, "DEV_FB_TOTAL dcgm_fb_total"),
    (252, "mem_used_mib", 1, "DEV_FB_USED dcgm_fb_used"),
    (1001, "gr_active", 1, "PROF_GR_ENGINE_ACTIVE PROF_GR_ENGINE_UTIL_RATIO"),
    (1002, "sm_active", 1, "PROF_SM_ACTIVE PROF_SM_UTIL_RATIO"),
    (1003, "sm_occupancy", 1, "PROF_SM_OCCUPANCY PROF_SM_OCCUPANCY_RATIO"),
    (1004, "tensor_active", 1, "PROF_PIPE_TENSOR_ACTIVE PROF_TENSOR_UTIL_RATIO"),
    (1005, "dram_active", 1, "PROF_DRAM_ACTIVE PROF_DRAM_UTIL_RATIO"),
    (1006, "fp64_active", 1, "PROF_PIPE_FP64_ACTIVE PROF_FP64_UTIL_RATIO"),
    (1007, "fp32_active", 1, "PROF_PIPE_FP32_ACTIVE PROF_FP32_UTIL_RATIO"),
    (1008, "fp16_active", 1, "PROF_PIPE_FP16_ACTIVE PROF_FP16_UTIL_RATIO"),
    (1009, "pcie_tx_bytes_s", 1, "PROF_PCIE_TX_BYTES"),
    (1010, "pcie_rx_bytes_s", 1, "PROF_PCIE_RX_BYTES"),
    (1011, "nvlink_tx_bytes_s", 1, "PROF_NVLINK_TX_BYTES"),
    (1012, "nvlink_rx_bytes_s", 1, "PROF_NVLINK_RX_BYTES"),
    (1420, "held_power_us", 1e-3, "DEV_CLOCKS_EVENT_REASON_SW_POWER_CAP_NS"),
    (1422, "held_sw_thermal_us", 1e-3, "DEV_CLOCKS_EVENT_REASON_SW_THERM_SLOWDOWN_NS"),
    (1423, "held_hw_thermal_us", 1e-3, "DEV_CLOCKS_EVENT_REASON_HW_THERM_SLOWDOWN_NS"),
    (1424, "held_brake_us", 1e-3, "DEV_CLOCKS_EVENT_REASON_HW_POWER_BRAKE_SLOWDOWN_NS"),
)
FACTS: Final = frozenset(
    {"mem_total_mib", "power_limit_min_mw", "power_limit_max_mw", "power_limit_default_mw"}
)
OF_INSTANCES: Final = frozenset(
    {
        "gr_active",
        "sm_active",
        "sm_occupancy",
        "tensor_active",
        "dram_active",
        "fp64_active",
        "fp32_active",
        "fp16_active",
        "mem_used_mib",
    }
)
"""What a MIG instance has of its own."""

_RATES: Final = range(1009, 1013)


def _names() -> dict[str, tuple[int, str, float]]:
    found = {}
    for number, target, factor, names in _FIELDS:
        for name in names.split():
            full = name if name.startswith("dcgm_") else f"DCGM_FI_{name}"
            found[full] = (number, target, factor)
    return found


METRICS: Final = _names()
"""Metric name -> field id, column, factor."""

_BLANKS: Final[tuple[tuple[float, float], ...]] = (
    (2_147_483_632, 2_147_483_647),
    (140_737_488_355_328, 140_737_488_355_343),
    (9.2233720368547e18, 9.3e18),
)
_TIME_IN_COMMENT: Final = re.compile(
    r"(\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d(?:\.\d+)?\s*(?:Z|UTC|[+-]\d\d:?\d\d)?"
    r"|\b\d{10,19}(?:\.\d+)?\b)"
)
_BARE_TIME: Final = re.compile(r"^\s*(?:\d{10,19}(?:\.\d+)?|\d{4}-\d\d-\d\d[T ]\S+)\s*$")
_UTIL_RATIO: Final = "DCGM_FI_DEV_GPU_UTIL_RATIO"
_SAME_SCRAPE_S: Final = 0.5
_POD_LABELS: Final = ("pod", "exported_pod", "pod_name", "hpc_job")


def blank(value: float) -> Reason | None:
    """Return why DCGM gave no value, or None if it is one."""
    if not math.isfinite(value):
        return Reason.LOST
    for first, last in _BLANKS:
        if first <= value <= last:
            if first > 1e18:  # the reason is lost in the rounding of large numbers
                return Reason.UNSUPPORTED
            return (Reason.LOST, Reason.UNSUPPORTED, Reason.UNSUPPORTED, Reason.NO_PERMISSION)[
                min(int(value - first), 3)
            ]
    return None


@dataclass(slots=True)
class _Scrape:
    """What one scrape says, by GPU."""

    stamp: dt.datetime | None
    readings: dict[GpuRef, Reading] = field(default_factory=dict)
    seen: set[tuple[GpuRef, str, str]] = field(default_factory=set)


def parse_dcgm(text: str, file: str, stamp: dt.datetime | None = None) -> Parsed:
    """Return the readings of one scrape or several.

    Scrapes are told apart by the times of their samples, by a line that holds a time and nothing
    else (with or without #), or by a series that comes again.

    Args:
        text: the scrapes.
        file: its name, for messages.
        stamp: when it was scraped, where the text does not say.

    Raises:
        FormatError: there is no metric of DCGM in it.
    """
    parsed = Parsed(Format.DCGM, file)
    body = "\n".join(f"# {line}" if _BARE_TIME.match(line) else line for line in text.splitlines())
    scrapes = [_Scrape(stamp)]
    pods: set[str] = set()
    rates_as_counters: set[str] = set()
    for item in parse(body, parsed.skip):
        if isinstance(item, Comment):
            _comment(item, scrapes, rates_as_counters)
        else:
            _take(item, scrapes, parsed)
            pods.update(item.labels[name] for name in _POD_LABELS if item.labels.get(name))
    for tick, scrape in enumerate(scrapes):
        _lift(scrape)
        for reading in scrape.readings.values():
            reading.tick = tick
            parsed.readings.append(reading)
    _conclude(parsed, pods, rates_as_counters)
    parsed.snapshot = len({reading.stamp for reading in parsed.readings}) == 1
    return parsed


def _comment(item: Comment, scrapes: list[_Scrape], rates: set[str]) -> None:
    words = item.text.split()
    if words[:1] == ["TYPE"] or words[:1] == ["HELP"]:
        known = METRICS.get(words[1]) if len(words) == 3 and words[2] == "counter" else None
        if known is not None and known[0] in _RATES:
            rates.add(words[1])
        return
    found = _TIME_IN_COMMENT.search(item.text)
    stamp = parse_stamp(found.group().strip()) if found else None
    if stamp is None:
        return
    if scrapes[-1].readings:
        scrapes.append(_Scrape(stamp))
    else:
        scrapes[-1].stamp = stamp


def _take(sample: Sample, scrapes: list[_Scrape], parsed: Parsed) -> None:
    known = METRICS.get(sample.name)
    if known is None:
        if sample.name.startswith(("DCGM_", "dcgm_")):
            parsed.unused.add(sample.name)
        return
    _, target, factor = known
    ref = _ref(sample.labels)
    if sample.at is not None:
        _split_by_time(from_epoch(sample.at), scrapes)
    scrape = scrapes[-1]
    key = (ref, sample.name, sample.labels.get("pod", ""))
    if key in scrape.seen:
        scrapes.append(_Scrape(None))
        scrape = scrapes[-1]
    scrape.seen.add(key)
    reading = scrape.readings.get(ref)
    if reading is None:
        reading = scrape.readings[ref] = Reading(sample.line, scrape.stamp, ref)
        _facts(reading, sample.labels)
    _put(reading, target, sample, factor)


def _split_by_time(stamp: dt.datetime | None, scrapes: list[_Scrape]) -> None:
    """Start another scrape where a sample's own time is not that of the scrape."""
    scrape = scrapes[-1]
    if stamp is None:
        return
    before = scrape.stamp if scrape.stamp is not None and scrape.stamp.tzinfo else None
    if before is not None and abs((stamp - before).total_seconds()) < _SAME_SCRAPE_S:
        return
    if scrape.readings:
        scrapes.append(_Scrape(stamp))
    else:
        scrape.stamp = stamp


def _put(reading: Reading, target: str, sample: Sample, factor: float) -> None:
    reason = blank(sample.value)
    if reason is None:
        if sample.name == _UTIL_RATIO and 0 < sample.value < 1:
            factor = 100.0  # a ratio after all: the field has whole percents
        exact = sample.text.isascii() and sample.text.isdigit() and factor == 1
        value = within(target, int(sample.text) if exact else sample.value * factor)
        if not isinstance(value, Absent):
            if target in FACTS:
                reading.facts[target] = value
            else:
                reading.values.setdefault(target, value)
                reading.absent.pop(target, None)
            return
        reason = value.reason
    if target not in FACTS and target not in reading.values:
        reading.absent.setdefault(target, reason)


def _lift(scrape: _Scrape) -> None:
    """Move what the exporter repeats on MIG instances, but the device has, to the device."""
    for ref, reading in list(scrape.readings.items()):
        if ref.instance is None:
            continue
        whole = dataclasses.replace(ref, instance=None)
        device = scrape.readings.get(whole)
        if device is None:
            device = Reading(reading.line, reading.stamp, whole, facts=dict(reading.facts))
            scrape.readings[whole] = device
        for name in [name for name in reading.values if name not in OF_INSTANCES]:
            device.values.setdefault(name, reading.values.pop(name))
        for name in [name for name in reading.absent if name not in OF_INSTANCES]:
            reading.absent.pop(name)
        reading.facts = {}


def _ref(labels: dict[str, str]) -> GpuRef:
    uuid = clean_uuid(labels.get("UUID") or labels.get("uuid") or "")
    instance = labels.get("GPU_I_ID", "").strip()
    return GpuRef(
        uuid,
        clean_bus_id(labels.get("pci_bus_id", "")),
        clean_index(labels.get("gpu", "")),
        instance if instance.isdigit() and len(instance) < 4 else None,
        (labels.get("Hostname") or "")[:128] or None,
    )


def _facts(reading: Reading, labels: dict[str, str]) -> None:
    names = (
        ("model", "modelName"),
        ("driver_version", "DCGM_FI_DRIVER_VERSION"),
        ("hostname", "Hostname"),
    )
    for fact, label in names:
        text = labels.get(label, "").strip()
        if text and text.isprintable():
            reading.facts[fact] = text[:128]
    if reading.gpu.index is not None:
        reading.facts["gpu_index"] = reading.gpu.index


def _conclude(parsed: Parsed, pods: set[str], rates: set[str]) -> None:
    if not parsed.readings:
        raise FormatError(f"{parsed.file}: no metric of dcgm-exporter that idlewatt knows in it")
    if pods:
        parsed.notes.append(
            f"{parsed.file}: pods are named ({len(pods)}, such as {min(pods)[:60]}); owners come "
            "from the scheduler, so they are not imported"
        )
    if rates:
        parsed.notes.append(
            f"{parsed.file}: {', '.join(sorted(rates))} are typed as counters; DCGM's fields 1009 "
            "to 1012 are bytes per second, and are taken as that"
        )
