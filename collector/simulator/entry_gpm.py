"""GPM: activity between two samples, from counters that integrate over time."""

from __future__ import annotations

import ctypes
import itertools
import math
import struct
from typing import TYPE_CHECKING, Any, Final

from collector.simulator import cabi
from collector.simulator.device import SIGNAL_INDEX, Integrals
from collector.simulator.standin import device_entry, entry
from idlewatt.units import MIB

if TYPE_CHECKING:
    from collector.simulator.standin import StandIn

GPM_VERSION: Final = 1
METRICS_OFFSET: Final = 24
METRIC_BYTES: Final = 40
MIN_SPAN_S: Final = 0.1
PERCENT: Final = 100.0

# metric id: signal, factor, short name, unit
_METRICS: Final[dict[int, tuple[str, float, bytes, bytes]]] = {
    1: ("gr_active", PERCENT, b"Graphics Util", b"%"),
    2: ("sm_active", PERCENT, b"SM Util", b"%"),
    3: ("sm_occupancy", PERCENT, b"SM Occupancy", b"%"),
    5: ("tensor_active", PERCENT, b"Any Tensor Util", b"%"),
    7: ("tensor_active", PERCENT, b"HMMA Tensor Util", b"%"),
    10: ("dram_active", PERCENT, b"DRAM BW Util", b"%"),
    11: ("fp64_active", PERCENT, b"FP64 Util", b"%"),
    12: ("fp32_active", PERCENT, b"FP32 Util", b"%"),
    13: ("fp16_active", PERCENT, b"FP16 Util", b"%"),
    20: ("pcie_tx_bytes_s", 1 / MIB, b"PCIe Tx", b"MiB/s"),
    21: ("pcie_rx_bytes_s", 1 / MIB, b"PCIe Rx", b"MiB/s"),
    60: ("nvlink_rx_bytes_s", 1 / MIB, b"NVLink Rx", b"MiB/s"),
    61: ("nvlink_tx_bytes_s", 1 / MIB, b"NVLink Tx", b"MiB/s"),
}
# Names are handed out as addresses, so the buffers must live as long as the module.
_TEXTS: Final = {
    word: ctypes.create_string_buffer(word)
    for row in _METRICS.values()
    for word in (row[2], row[3])
}
_ADDRESS: Final = {word: ctypes.addressof(buffer) for word, buffer in _TEXTS.items()}
_NEXT_SAMPLE: Final = itertools.count(0x6000_0010, 0x10)


@device_entry("nvmlGpmQueryDeviceSupport")
def _support(lib: StandIn, index: int, out: Any) -> int:
    support = cabi.target(out)
    if struct.unpack_from("<I", support, 0)[0] != GPM_VERSION:
        return cabi.ARGUMENT_VERSION_MISMATCH
    struct.pack_into("<I", support, 4, int(lib.info(index).profile.gpm))
    return cabi.SUCCESS


@entry("nvmlGpmSampleAlloc")
def _alloc(lib: StandIn, out: Any) -> int:
    sample = next(_NEXT_SAMPLE)
    lib.samples[sample] = None
    cabi.put_handle(out, sample)
    return cabi.SUCCESS


@entry("nvmlGpmSampleFree")
def _free(lib: StandIn, sample: Any) -> int:
    key = cabi.handle_value(sample)
    if key not in lib.samples:
        return cabi.INVALID_ARGUMENT
    del lib.samples[key]
    return cabi.SUCCESS


@device_entry("nvmlGpmSampleGet")
def _sample(lib: StandIn, index: int, sample: Any) -> int:
    if not lib.info(index).profile.gpm:
        return cabi.NOT_SUPPORTED
    key = cabi.handle_value(sample)
    if key not in lib.samples:
        return cabi.INVALID_ARGUMENT
    lib.samples[key] = (index, lib.provider.integrals(index))
    return cabi.SUCCESS


@entry("nvmlGpmMetricsGet")
def _metrics(lib: StandIn, request: Any) -> int:
    wanted = cabi.target(request)
    version, count, first, second = struct.unpack_from("<IIQQ", wanted, 0)
    if version != GPM_VERSION:
        return cabi.ARGUMENT_VERSION_MISMATCH
    old, new = lib.samples.get(first), lib.samples.get(second)
    if old is None or new is None or old[0] != new[0]:
        return cabi.INVALID_ARGUMENT
    fault = lib.settables[old[0]].fault
    if fault:
        return fault
    links = lib.info(old[0]).profile.nvlink_links
    for position in range(count):
        base = METRICS_OFFSET + position * METRIC_BYTES
        metric = struct.unpack_from("<I", wanted, base)[0]
        known = _METRICS.get(metric)
        if known is None or (known[0].startswith("nvlink") and not links):
            struct.pack_into("<Id3Q", wanted, base + 4, cabi.NOT_SUPPORTED, 0.0, 0, 0, 0)
            continue
        value = _between(old[1], new[1], SIGNAL_INDEX[known[0]]) * known[1]
        name, unit = _ADDRESS[known[2]], _ADDRESS[known[3]]
        struct.pack_into("<Id3Q", wanted, base + 4, cabi.SUCCESS, value, name, name, unit)
    return cabi.SUCCESS


def _between(old: Integrals, new: Integrals, signal: int) -> float:
    span = new.at_s - old.at_s
    if span < MIN_SPAN_S:
        return math.nan
    return (new.values[signal] - old.values[signal]) / span
