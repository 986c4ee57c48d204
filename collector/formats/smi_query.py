"""Readings from `nvidia-smi -q`, text or XML, of every schema version."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from collector.formats import fields as f
from collector.formats.model import Format, FormatError, GpuRef, Parsed, Reading
from collector.formats.smi_csv import clean_bus_id, clean_uuid, set_bit, set_value
from collector.formats.stamps import parse_stamp
from collector.formats.tree import Node, from_text, from_xml, is_cut

# Column or fact -> where it stands: XML of all versions first, then the text form's labels.
_PATHS: Final[dict[str, tuple[str, ...]]] = {
    "power_avg_mw": ("gpu_power_readings/average_power_draw",),
    "power_inst_mw": (
        "gpu_power_readings/instant_power_draw",
        "gpu_power_readings/instantaneous_power_draw",
    ),
    "power_draw_mw": ("gpu_power_readings/power_draw", "power_readings/power_draw"),
    "module_avg_mw": (
        "module_power_readings/average_power_draw",
        "module_power_readings/power_draw",
    ),
    "module_inst_mw": (
        "module_power_readings/instant_power_draw",
        "module_power_readings/instantaneous_power_draw",
    ),
    "power_limit_mw": (
        "gpu_power_readings/current_power_limit",
        "power_readings/enforced_power_limit",
    ),
    "power_limit_requested_mw": (
        "gpu_power_readings/requested_power_limit",
        "power_readings/power_limit",
    ),
    "power_limit_default_mw": (
        "gpu_power_readings/default_power_limit",
        "power_readings/default_power_limit",
    ),
    "power_limit_min_mw": (
        "gpu_power_readings/min_power_limit",
        "power_readings/min_power_limit",
    ),
    "power_limit_max_mw": (
        "gpu_power_readings/max_power_limit",
        "power_readings/max_power_limit",
    ),
    "util_gpu_pct": ("utilization/gpu_util", "utilization/gpu"),
    "util_mem_pct": ("utilization/memory_util", "utilization/memory"),
    "mem_used_mib": ("fb_memory_usage/used",),
    "mem_total_mib": ("fb_memory_usage/total",),
    "sm_clock_mhz": ("clocks/sm_clock", "clocks/sm"),
    "mem_clock_mhz": ("clocks/mem_clock", "clocks/memory"),
    "sm_clock_max_mhz": ("max_clocks/sm_clock", "max_clocks/sm"),
    "mem_clock_max_mhz": ("max_clocks/mem_clock", "max_clocks/memory"),
    "temp_gpu_c": ("temperature/gpu_temp", "temperature/gpu_current_temp"),
    "temp_mem_c": ("temperature/memory_temp", "temperature/memory_current_temp"),
    "pstate": ("performance_state",),
    "fan_pct": ("fan_speed",),
    "pcie_tx_bytes_s": ("pci/tx_util", "pci/tx_throughput"),
    "pcie_rx_bytes_s": ("pci/rx_util", "pci/rx_throughput"),
    "pcie_gen": (
        "pci/pci_gpu_link_info/pcie_gen/current_link_gen",
        "pci/gpu_link_info/pcie_generation/current",
    ),
    "model": ("product_name",),
}
_WIDTHS: Final = (
    "pci/pci_gpu_link_info/link_widths/current_link_width",
    "pci/gpu_link_info/link_width/current",
)
_ARCHITECTURE: Final = "product_architecture"
_REASONS: Final = ("clocks_event_reasons", "clocks_throttle_reasons")
_REASON_PREFIXES: Final = ("clocks_event_reason_", "clocks_throttle_reason_")
_HELD_PREFIX: Final = "clocks_event_reasons_counters"
_HELD: Final = {
    "sw_power_cap": "held_power_us",
    "sw_power_capping": "held_power_us",
    "sw_therm_slowdown": "held_sw_thermal_us",
    "sw_thermal_slowdown": "held_sw_thermal_us",
    "hw_therm_slowdown": "held_hw_thermal_us",
    "hw_thermal_slowdown": "held_hw_thermal_us",
    "hw_power_brake": "held_brake_us",
    "hw_power_braking": "held_brake_us",
}


def parse_query_text(text: str, file: str, first_line: int = 1) -> Parsed:
    """Return the readings of `nvidia-smi -q`, repeated or not."""
    return _parse(from_text(text, first_line), Parsed(Format.SMI_QUERY, file))


def parse_query_xml(text: str, file: str) -> Parsed:
    """Return the readings of `nvidia-smi -q -x`, repeated or not."""
    parsed = _parse(from_xml(text, file), Parsed(Format.SMI_XML, file))
    if is_cut(text):
        parsed.skip(1 + text.count("\n"), "the last document is cut")
    return parsed


def _parse(roots: Iterable[Node], parsed: Parsed) -> Parsed:
    count = 0
    for tick, root in enumerate(roots):
        count += 1
        stamp = parse_stamp(root.text("timestamp") or "")
        driver = root.text("driver_version")
        gpus = [node for node in root.children if node.name == "gpu"]
        if not gpus:
            parsed.skip(root.line, "a log without a GPU")
        for node in gpus:
            device = _device(node)
            device.stamp, device.tick = stamp, tick
            device.line = node.line or root.line
            if driver is not None:
                set_value(device, "driver_version", driver)
            parsed.readings.append(device)
            parsed.readings.extend(_instances(node, device, parsed))
        said = (root.text("attached_gpus") or "").strip()
        if said.isdigit() and len(said) < 4 and gpus and int(said) != len(gpus):
            parsed.notes.append(
                f"{parsed.file}: the log says {said} attached GPUs and describes {len(gpus)}"
            )
    if not count:
        raise FormatError(f"{parsed.file}: no NVSMI log in it")
    parsed.snapshot = count == 1
    parsed.notes = list(dict.fromkeys(parsed.notes))
    return parsed


def _device(node: Node) -> Reading:
    uuid = clean_uuid(node.text("uuid", "gpu_uuid") or "")
    bus_id = clean_bus_id(node.value or node.text("pci/pci_bus_id", "pci/bus_id") or "")
    reading = Reading(node.line, None, GpuRef(uuid, bus_id))
    for target, paths in _PATHS.items():
        cell = node.text(*paths)
        if cell is not None:
            set_value(reading, target, cell)
    width = node.text(*_WIDTHS)
    if width is not None:
        set_value(reading, "pcie_width", width.strip().removesuffix("x"))
    architecture = node.text(_ARCHITECTURE)
    if architecture is not None:
        reading.facts["architecture"] = architecture[:40]
    mig = node.text("mig_mode/current_mig", "mig_mode/current")
    if mig is not None:
        set_value(reading, "mig_mode", mig)
    _event_reasons(node, reading)
    reading.processes = _processes(node)
    return reading


def _event_reasons(node: Node, reading: Reading) -> None:
    for name in _REASONS:
        group = node.find(name)
        for item in group.walk() if group is not None else ():
            plain = item.name
            for prefix in _REASON_PREFIXES:
                plain = plain.removeprefix(prefix)
            if plain in f.REASON_BITS and item is not group:
                set_bit(reading, plain, item.value)
    held = node.find(_HELD_PREFIX)
    for item in held.children if held is not None else ():
        target = _HELD.get(item.name.removeprefix(f"{_HELD_PREFIX}_"))
        if target is not None:
            set_value(reading, target, item.value)


def _processes(node: Node, instance: str | None = None) -> int | None:
    """Return how many processes are listed; None where there is no list."""
    group = node.find("processes")
    if group is None:
        return None
    if not group.children:
        return 0 if group.value.lower() in ("", "none") else None
    items = [child for child in group.children if child.name == "process_info"]
    if items:
        return sum(
            instance in (None, (item.text("gpu_instance_id") or "").strip()) for item in items
        )
    return _text_processes(group, instance)


def _text_processes(group: Node, instance: str | None) -> int:
    """Count processes of the text form: flat lines, the instance before each process."""
    count, current = 0, ""
    for item in group.walk():
        if item.name == "gpu_instance_id":
            current = item.value.strip()
        elif item.name == "process_id" and instance in (None, current):
            count += 1
    return count


def _instances(node: Node, device: Reading, parsed: Parsed) -> list[Reading]:
    """Return readings of the MIG instances: memory and processes only, power is the device's."""
    holder = node.find("mig_devices")
    groups = [child for child in node.children if child.name == "mig_device"]
    groups += [child for child in holder.children if child.name == "mig_device"] if holder else []
    readings = []
    for group in groups:
        gi = (group.text("gpu_instance_id") or "").strip()
        ci = (group.text("compute_instance_id") or "").strip()
        if not (gi.isdigit() and ci.isdigit() and len(gi) < 4 and len(ci) < 4):
            parsed.skip(group.line or device.line, "a MIG instance without its two numbers")
            continue
        ref = GpuRef(device.gpu.uuid, device.gpu.bus_id, instance=f"{gi}/{ci}")
        reading = Reading(group.line or device.line, device.stamp, ref, tick=device.tick)
        for target in ("mem_used_mib", "mem_total_mib"):
            name = "used" if target == "mem_used_mib" else "total"
            cell = group.text(f"fb_memory_usage/{name}", f"shared_fb_memory_usage/{name}")
            if cell is not None:
                set_value(reading, target, cell)
        reading.processes = _processes(node, gi)
        readings.append(reading)
    return readings
