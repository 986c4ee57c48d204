"""One device, one second: from driver calls to a row of gpu_sample."""

from __future__ import annotations

import logging
import struct
from dataclasses import dataclass
from typing import Any, Final

from collector import nvml as nv
from collector.energy import UNKNOWN_MAX_MW, CounterState, Interval, row_energy
from collector.gpm import GpmReader
from collector.probe import FALLBACK, Device, DirectCall, LostError, Plan, memory_getter
from collector.residency import Residency
from idlewatt.columns import GPU_SAMPLE, Group, missing_bits
from idlewatt.errors import DriverError
from idlewatt.model import ActivitySource, Missing
from idlewatt.units import MIB, MS_PER_S, US_PER_MS, US_PER_S

OBS_MS: Final = MS_PER_S
AT: Final = {column.name: place for place, column in enumerate(GPU_SAMPLE)}
GROUP_OF: Final = {column.name: column.group for column in GPU_SAMPLE}
_WIDTH: Final = len(GPU_SAMPLE)
_UTIL: Final = struct.Struct("=II")
_MEMORY: Final = struct.Struct("@IQQQQ")  # version, total, reserved, free, used
_POWER_MARGIN_MW: Final = 50_000
_TEMP_MAX_C: Final = 150
_COUNTER_MAX: Final = 2**63 - 1
STALE_AFTER_US: Final = 2 * OBS_MS * US_PER_MS  # two intervals
STILL_ROWS: Final = 2  # rows after which a counter that stands still is stale

Row = list[Any]

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Moment:
    """When a row is read.

    Attributes:
        ts_us: nominal second.
        late_ms: how late the tick was.
        mono_ns: monotonic time at the tick's start.
        hole: whether nominal seconds are missing before it.
        first: whether it is the first of the agent's epoch.
    """

    ts_us: int
    late_ms: int
    mono_ns: int
    hole: bool
    first: bool


class DeviceReader:
    """Reads one device as its plan says and remembers what differences need.

    Args:
        nvml: the library.
        handle: the device.
        device: its inventory.
        plan: what to ask.
        node_id: for the rows.
    """

    def __init__(
        self, nvml: nv.Nvml, handle: Any, device: Device, plan: Plan, node_id: str
    ) -> None:
        self._device = device
        self._plan = plan
        self._node_id = node_id
        self._fields = nv.FieldReader(nvml, handle, plan.all_fields())
        self._direct = [(call, call.getter(nvml, handle)) for call in plan.direct]
        self._util = nv.Getter(
            nvml, handle, ("nvmlDeviceGetUtilizationRates",), nvml.lib.c_nvmlUtilization_t()
        )
        self._memory = memory_getter(nvml, handle)
        self.gpm = GpmReader(nvml, handle) if plan.gpm else None
        lists = tuple(
            nv.ProcessList(nvml, handle, f"nvmlDeviceGet{kind}RunningProcesses")
            for kind in ("Compute", "Graphics", "MPSCompute")
        )
        self._residency = Residency((lists[0], lists[1], lists[2]), device.index)
        self._max_mw = device.limit_max_mw or UNKNOWN_MAX_MW
        self.counter = CounterState()
        self._counter_ns: int | None = None
        self._row_ns: int | None = None
        self._throttle_ns: dict[str, int] = {}
        self._reasons: dict[Group, int] = {}
        self._lost = 0
        self._still_rows = 0
        self.gap_uj: int | None = None

    def close(self) -> None:
        """Free what the driver holds for this reader."""
        if self.gpm is not None:
            self.gpm.free()

    @property
    def lost(self) -> int:
        """Return the code with which the device went away while it was read; 0 if it is there."""
        return self._lost

    def read(self, moment: Moment, now_ns: int, epoch: int) -> Row:
        """Return the row of this second.

        Raises:
            LostError: the device gives nothing any more.
            DriverError: the whole driver is gone.
        """
        self._reasons = {}
        self._lost = 0
        row: Row = [None] * _WIDTH
        fields = self._read_fields(row, moment.ts_us)
        self._read_direct(row)
        self._read_structs(row)
        self._read_activity(row, now_ns)
        if self._lost and not fields and row[AT["sm_clock_mhz"]] is None:
            raise LostError(self._lost)
        self._read_residency(row, moment.ts_us // US_PER_S)
        self._key(row, moment, now_ns, epoch)
        self._energy(row, moment, now_ns)
        row[AT["missing"]] = missing_bits(self._reasons)
        self._row_ns = now_ns
        return row

    # ── parts of a row ──────────────────────────────────────────────────────────────────────

    def _read_fields(self, row: Row, ts_us: int) -> bool:
        code, found = self._fields.read(ts_us - STALE_AFTER_US)
        if code != nv.SUCCESS:
            for group in (Group.POWER, Group.LIMITS):
                self._note(group, code)
            if code in nv.LOST:
                raise LostError(code)
            return False
        for column, one in self._plan.fields.items():
            code, value = found[one]
            self._put(row, column, code, value, self._most(column))
        for column, parts in self._plan.throttle.items():
            self._throttle(row, column, [found[one] for one in parts])
        return bool(found)

    def _most(self, column: str) -> int:
        if column == "energy_mj":
            return _COUNTER_MAX
        if column == "temp_mem_c":
            return _TEMP_MAX_C
        return int(self._max_mw * 1.5) + _POWER_MARGIN_MW

    def _put(self, row: Row, column: str, code: int, value: Any, most: int) -> None:
        """Write a value, or note why there is none."""
        group = GROUP_OF[column]
        if code != nv.SUCCESS:
            self._note(group, code)
        elif value is None:
            self._reason(group, Missing.STALE)
        elif not 0 <= value <= most:
            self._reason(group, Missing.IMPLAUSIBLE)
        else:
            row[AT[column]] = int(value)

    def _throttle(self, row: Row, column: str, parts: list[tuple[int, int | float | None]]) -> None:
        """Put the counter itself; `_energy` turns it into the difference of this interval."""
        total = 0
        for code, value in parts:
            if code != nv.SUCCESS or value is None:
                self._note(Group.LIMITS, code)
                self._throttle_ns.pop(column, None)
                return
            total += int(value)
        before = self._throttle_ns.get(column)
        self._throttle_ns[column] = total
        if before is None:
            self._reason(Group.LIMITS, Missing.STALE)
        elif total < before:
            self._reason(Group.LIMITS, Missing.IMPLAUSIBLE)
        else:
            row[AT[column]] = (total - before) // 1_000

    def _read_direct(self, row: Row) -> None:
        for call, getter in self._direct:
            if self._lost:
                self._reason(call.group, Missing.LOST)
                continue
            code = getter()
            value = getter.buffer.value
            sentinel = nv.U64_NOT_AVAILABLE if call.wide else nv.U32_NOT_AVAILABLE
            known = None if code != nv.SUCCESS or value == sentinel else value
            self._put(row, call.column, code, known, self._direct_most(call))

    def _direct_most(self, call: DirectCall) -> int:
        if call.column in FALLBACK or call.group is Group.POWER:
            return self._most(call.column)
        return call.most

    def _read_structs(self, row: Row) -> None:
        if self._plan.utilisation and not self._lost:
            code = self._util()
            gpu, mem = _UTIL.unpack_from(self._util.buffer)
            for column, value in (("util_gpu_pct", gpu), ("util_mem_pct", mem)):
                known = None if value == nv.U32_NOT_AVAILABLE else value
                self._put(row, column, code, known, 100)
        if self._plan.memory and not self._lost:
            code = self._memory()
            _, total, _, _, used = _MEMORY.unpack_from(self._memory.buffer)
            known = None if used == nv.U64_NOT_AVAILABLE else used
            self._put(row, "mem_used_mib", code, known, total or _COUNTER_MAX)
            if row[AT["mem_used_mib"]] is not None:
                row[AT["mem_used_mib"]] = used // MIB

    def _read_activity(self, row: Row, now_ns: int) -> None:
        source = ActivitySource.NONE
        if row[AT["util_gpu_pct"]] is not None:
            source = ActivitySource.NVML_UTIL
        if self.gpm is not None and not self._lost:
            code, values, reasons = self.gpm.read(now_ns)
            if code != nv.SUCCESS:
                self._note(Group.ACTIVITY, code)
                self._note(Group.LINKS, code)
            elif values is None:
                self._reason(Group.ACTIVITY, Missing.STALE)
                self._reason(Group.LINKS, Missing.STALE)
            else:
                for column, value in values.items():
                    row[AT[column]] = value
                for group, reason in reasons.items():
                    self._reason(group, reason)
                source = ActivitySource.GPM
        row[AT["activity_source"]] = source.value

    def _read_residency(self, row: Row, second: int) -> None:
        value, count, worst = self._residency.read(second)
        row[AT["resident"]], row[AT["n_procs"]] = value, count
        if worst:
            self._note(Group.RESIDENCY, worst)
        elif value is None and self._residency.answers:
            self._reason(Group.RESIDENCY, Missing.STALE)

    def _key(self, row: Row, moment: Moment, now_ns: int, epoch: int) -> None:
        row[AT["ts_utc"]] = moment.ts_us
        row[AT["obs_ms"]] = OBS_MS
        row[AT["node_id"]] = self._node_id
        row[AT["gpu_uuid"]] = self._device.uuid
        row[AT["epoch"]] = epoch
        row[AT["power_scope"]] = self._plan.scope.value
        row[AT["late_ms"]] = moment.late_ms + (now_ns - moment.mono_ns) // 1_000_000
        if self._row_ns is not None:
            row[AT["dt_ms"]] = min(round((now_ns - self._row_ns) / 1e6), 2**31 - 1)

    def _energy(self, row: Row, moment: Moment, now_ns: int) -> None:
        counter = row[AT["energy_mj"]]
        span_ms = None
        if self._counter_ns is not None:
            span_ms = round((now_ns - self._counter_ns) / 1e6)
        interval = Interval(
            obs_ms=OBS_MS,
            span_ms=span_ms,
            hole=moment.hole,
            counter_mj=counter,
            power_avg_mw=row[AT["power_avg_mw"]],
            power_inst_mw=row[AT["power_inst_mw"]],
            max_mw=self._max_mw,
            first=moment.first,
        )
        energy = row_energy(self.counter, interval)
        self.counter, self.gap_uj = energy.state, energy.gap_uj
        row[AT["energy_epoch"]] = energy.state.energy_epoch
        row[AT["energy_uj"]] = energy.energy_uj
        row[AT["energy_source"]] = None if energy.source is None else energy.source.value
        if energy.implausible and energy.energy_uj is None:
            self._reason(Group.POWER, Missing.IMPLAUSIBLE)
        self._watch_counter(row, still=energy.still)
        if counter is not None and not energy.still:
            self._counter_ns = now_ns
        self._scale_throttle(row)

    def _watch_counter(self, row: Row, *, still: bool) -> None:
        """Say once that the counter stands still; what it shows is then no reading any more."""
        place = AT["energy_mj"]
        if not still:
            if self._still_rows > STILL_ROWS and row[place] is not None:
                _log.warning("gpu=%s the energy counter moves again", self._device.uuid)
            self._still_rows = 0 if row[place] is not None else self._still_rows
            return
        self._still_rows += 1
        if self._still_rows <= STILL_ROWS:
            return
        if self._still_rows == STILL_ROWS + 1:
            _log.warning(
                "gpu=%s the energy counter stands still at %d mJ while the device draws power:"
                " energy is taken from power",
                self._device.uuid,
                row[place],
            )
        row[place] = None
        self._reason(Group.POWER, Missing.STALE)

    def _scale_throttle(self, row: Row) -> None:
        """Cut throttle times down to the row's own interval where a hole precedes."""
        dt_ms = row[AT["dt_ms"]]
        for column in self._plan.throttle:
            value = row[AT[column]]
            if value is None:
                continue
            if dt_ms is not None and dt_ms > OBS_MS:
                value = value * OBS_MS // dt_ms
            row[AT[column]] = min(value, OBS_MS * 1_000)

    def resume(self, counter: CounterState, span_ms: int, now_ns: int) -> None:
        """Go on from the counter of an earlier agent or of the handle before a loss."""
        self.counter = counter
        self._counter_ns = now_ns - span_ms * 1_000_000

    def carry_row(self, before: DeviceReader) -> None:
        """Take over the time of the last row from the reader of an earlier handle."""
        self._row_ns = before._row_ns
        self.counter, self._counter_ns = before.counter, before._counter_ns

    def _note(self, group: Group, code: int) -> None:
        if code in nv.DRIVER_GONE:
            raise DriverError(f"the GPU driver is gone (NVML code {code})")
        if code in nv.LOST:
            self._lost = code
            self._reason(group, Missing.LOST)
        elif code not in nv.CAPABILITY:
            self._reason(group, Missing.STALE)

    def _reason(self, group: Group, reason: int) -> None:
        self._reasons[group] = max(self._reasons.get(group, 0), reason)
