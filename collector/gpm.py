"""Activity of Hopper and newer through the driver's GPM counters: one sample a second and GPU."""

from __future__ import annotations

import ctypes
import math
import struct
from typing import Any, Final

from collector.nvml import CAPABILITY, SUCCESS, Nvml
from idlewatt.columns import Group
from idlewatt.model import Missing
from idlewatt.units import MIB

BASELINE_MAX_NS: Final = 3_000_000_000
BASELINE_MIN_NS: Final = 100_000_000
RATIO_MAX: Final = 1.05
RATE_MAX_MIB_S: Final = 4_000_000.0  # 4 TB/s: more than any link carries

RATIOS: Final = (
    ("gr_active", 1),
    ("sm_active", 2),
    ("sm_occupancy", 3),
    ("tensor_active", 5),
    ("fp64_active", 11),
    ("fp32_active", 12),
    ("fp16_active", 13),
    ("dram_active", 10),
)
RATES: Final = (
    ("pcie_tx_bytes_s", 20),
    ("pcie_rx_bytes_s", 21),
    ("nvlink_tx_bytes_s", 61),
    ("nvlink_rx_bytes_s", 60),
)
METRICS: Final = RATIOS + RATES
_VERSION: Final = 1
_METRIC_HEAD: Final = struct.Struct("=IId")  # metricId, nvmlReturn, value

Values = dict[str, float | int]
Reasons = dict[Group, int]


def convert(name: str, value: float) -> tuple[float | int | None, int]:
    """Return a metric in our unit, and why it is NULL (0: it is not)."""
    if math.isnan(value):
        return None, Missing.STALE
    if name.endswith("_bytes_s"):
        if not 0 <= value <= RATE_MAX_MIB_S:
            return None, Missing.IMPLAUSIBLE
        return round(value * MIB), 0
    ratio = value / 100
    if not 0 <= ratio <= RATIO_MAX:
        return None, Missing.IMPLAUSIBLE
    return min(ratio, 1.0), 0


class GpmReader:
    """The GPM counters of one device; two buffers take turns as baseline.

    Attributes:
        codes: the driver's code for each metric at the last comparison.
    """

    def __init__(self, nvml: Nvml, handle: Any) -> None:
        self._nvml = nvml
        self._handle = handle
        self._sample_get = nvml.function("nvmlGpmSampleGet")
        self._metrics_get = nvml.function("nvmlGpmMetricsGet")
        self._samples = [nvml.lib.nvmlGpmSampleAlloc(), nvml.lib.nvmlGpmSampleAlloc()]
        self._newest = 0
        self._baseline_ns: int | None = None
        request = nvml.lib.c_nvmlGpmMetricsGet_t()
        request.version = _VERSION
        self._request = request
        self._wanted = list(METRICS)
        self.codes: dict[str, int] = {}
        self._size = ctypes.sizeof(nvml.lib.c_nvmlGpmMetric_t)
        self._offset = type(request).metrics.offset

    def free(self) -> None:
        """Give the buffers back to the driver."""
        for sample in self._samples:
            self._nvml.ask("nvmlGpmSampleFree", sample)
        self._samples = []

    def read(self, now_ns: int) -> tuple[int, Values | None, Reasons]:
        """Return the code, values since the last sample (None: no baseline), and reasons."""
        if self._sample_get is None or self._metrics_get is None or not self._samples:
            return SUCCESS, None, {}
        older, newer = self._newest, 1 - self._newest
        code = self._sample_get(self._handle, self._samples[newer])
        if code != SUCCESS:
            self._baseline_ns = None
            self._refused(code)
            return code, None, {}
        age_ns = None if self._baseline_ns is None else now_ns - self._baseline_ns
        if age_ns is not None and age_ns < BASELINE_MIN_NS:
            return SUCCESS, None, {}  # too soon to compare; the older baseline stays
        self._newest, self._baseline_ns = newer, now_ns
        if age_ns is None or age_ns > BASELINE_MAX_NS:
            return SUCCESS, None, {}
        code = self._compare(self._samples[older], self._samples[newer])
        if code != SUCCESS:
            self._refused(code)
            return code, None, {}
        answer = self._values()
        return SUCCESS, *answer

    def _refused(self, code: int) -> None:
        """Take note that the device gives none of its counters, and will not."""
        if code in CAPABILITY:
            self.codes = {name: code for name, _ in METRICS}

    def _compare(self, older: Any, newer: Any) -> int:
        request = self._request
        request.numMetrics = len(self._wanted)
        request.sample1, request.sample2 = older, newer
        for place, (_, number) in enumerate(self._wanted):
            at = self._offset + place * self._size
            _METRIC_HEAD.pack_into(request, at, number, SUCCESS, math.nan)
        return int(self._metrics_get(ctypes.byref(request)))  # type: ignore[misc]

    def _values(self) -> tuple[Values, Reasons]:
        values: Values = {}
        reasons: Reasons = {}
        for place, (name, _) in enumerate(self._wanted):
            at = self._offset + place * self._size
            _, code, raw = _METRIC_HEAD.unpack_from(self._request, at)
            self.codes[name] = code
            if code != SUCCESS:
                continue
            value, reason = convert(name, raw)
            if value is not None:
                values[name] = value
            else:
                group = Group.LINKS if name.endswith("_bytes_s") else Group.ACTIVITY
                reasons[group] = max(reasons.get(group, 0), reason)
        return values, reasons

    def keep(self, names: set[str]) -> None:
        """Ask only for these metrics from now on."""
        self._wanted = [metric for metric in METRICS if metric[0] in names]
