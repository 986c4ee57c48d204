"""All devices of a node, each second: rows, gaps and inventory."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

from collector import nvml as nv
from collector.energy import CounterState
from collector.identity import NodeIdentity
from collector.probe import Device, LostError, Plan, identity, inventory, probe
from collector.reader import DeviceReader, Moment, Row
from collector.ticks import Due, Missed
from idlewatt.clock import Clock
from idlewatt.columns import GPU_SAMPLE, Group
from idlewatt.units import US_PER_MS, US_PER_S

BACKOFF_FIRST_S: Final = 1
BACKOFF_MAX_S: Final = 60
REPORT_LOST_S: Final = 60
_NO_CAPABILITY: Final = frozenset(
    {"energy_epoch", "energy_uj", "energy_source", "power_scope", "activity_source"}
)
MEASURED: Final = tuple(
    column
    for column in GPU_SAMPLE
    if column.group not in (Group.KEY, Group.QUALITY) and column.name not in _NO_CAPABILITY
)

Facts = dict[str, list[tuple[Any, ...]]]

_log = logging.getLogger(__name__)


@dataclass(slots=True)
class Slot:
    """One device through its losses and returns.

    Attributes:
        index: where the driver listed it first.
        uuid: its identity; empty while it was never seen.
        reader: how it is read; None while it is lost.
        before: the reader of the handle that was lost.
        expected_us: next nominal second that is neither a row nor a declared gap.
        row_us: nominal second of its last row.
        retry_us: when a lost device is looked for again.
        backoff_s: wait after the next failure.
        reason: why it is lost.
        said_gpm: whether its GPM metrics have been reported.
    """

    index: int
    uuid: str = ""
    reader: DeviceReader | None = None
    before: DeviceReader | None = None
    plan: Plan | None = None
    expected_us: int | None = None
    row_us: int | None = None
    retry_us: int = 0
    backoff_s: int = BACKOFF_FIRST_S
    reason: str = ""
    said_gpm: bool = False


@dataclass(slots=True)
class Second:
    """What one tick has found."""

    rows: list[Row] = field(default_factory=list)
    facts: Facts = field(default_factory=dict)

    def add(self, table: str, *rows: tuple[Any, ...]) -> None:
        """Add rows of a table other than gpu_sample."""
        self.facts.setdefault(table, []).extend(rows)


class Sampler:
    """Reads every device of the node.

    Args:
        nvml: the library.
        node: identity for the rows.
        clock: the time.
        epoch: epoch of the rows.
        kept: `state()` of an earlier sampler, so that energy across the pause is not lost.
    """

    def __init__(
        self,
        nvml: nv.Nvml,
        node: NodeIdentity,
        clock: Clock,
        epoch: int,
        kept: dict[str, list[int]] | None = None,
    ) -> None:
        self._nvml = nvml
        self._node = node
        self._clock = clock
        self._epoch = epoch
        self._kept = dict(kept or {})
        self._slots = [Slot(index) for index in range(nvml.count())]
        self._first = True

    def close(self) -> None:
        """Free what the driver holds for us."""
        for slot in self._slots:
            if slot.reader is not None:
                slot.reader.close()

    def state(self) -> dict[str, list[int]]:
        """Return what the next agent needs: each device's counter at its last row."""
        for slot in self._slots:
            if slot.reader is None or slot.row_us is None:
                continue
            counter = slot.reader.counter
            if counter.last_mj is not None:
                self._kept[slot.uuid] = [
                    slot.row_us,
                    counter.energy_epoch,
                    counter.last_mj,
                    counter.covered_ms,
                    counter.covered_uj,
                ]
        return self._kept

    def discover(self) -> Facts:
        """Find the devices and return inventory and capabilities."""
        now_us = self._clock.now_us()
        second = Second()
        second.add("node", self._node.row(now_us))
        for slot in self._slots:
            self._open(slot, second, now_us)
        return second.facts

    def sample(self, due: Due) -> Second:
        """Return the rows and gaps of one tick."""
        second = Second()
        for slot in self._slots:
            if slot.reader is None and due.ts_us >= slot.retry_us:
                self._open(slot, second, due.ts_us)
            if slot.reader is None:
                self._report_lost(slot, second, due.ts_us)
            else:
                self._read(slot, slot.reader, second, due)
        if due.missed is not None and not second.rows:
            second.add("gap", self._gap(None, due.missed, None))
        self._first = False
        return second

    # ── one device ──────────────────────────────────────────────────────────────────────────

    def _open(self, slot: Slot, second: Second, now_us: int) -> None:
        """Find a device, by UUID once it is known, and make its reader."""
        try:
            handle = self._find(slot)
            plan = probe(self._nvml, handle)
        except LostError as exc:
            self._lose(slot, exc.code, now_us)
            return
        device = inventory(self._nvml, handle, slot.uuid, slot.index, plan)
        reader = DeviceReader(self._nvml, handle, device, plan, self._node.node_id)
        if slot.before is not None:
            reader.carry_row(slot.before)
            _log.warning("gpu=%s is back", slot.uuid)
        else:
            self._resume(slot, reader, now_us)
        slot.reader, slot.plan, slot.before = reader, plan, None
        slot.backoff_s, slot.said_gpm = BACKOFF_FIRST_S, False
        second.add("device", device.row(self._node.node_id, now_us))
        second.add("device_capability", *capabilities(device, plan, now_us))

    def _find(self, slot: Slot) -> Any:
        if not slot.uuid:
            slot.uuid, handle = identity(self._nvml, slot.index)
            return handle
        code, handle = self._nvml.handle_by_uuid(slot.uuid)
        if code != nv.SUCCESS:
            raise LostError(code)
        return handle

    def _resume(self, slot: Slot, reader: DeviceReader, now_us: int) -> None:
        kept = self._kept.get(slot.uuid)
        if kept is None:
            return
        row_us, *counter = kept
        span_ms = (now_us - row_us) // US_PER_MS
        if span_ms >= 0:
            reader.resume(CounterState(*counter), span_ms, self._clock.monotonic_ns())
            slot.expected_us = row_us + US_PER_S
        else:  # the clock was set back: the count of resets goes on, the time does not
            reader.counter = CounterState(counter[0])

    def _read(self, slot: Slot, reader: DeviceReader, second: Second, due: Due) -> None:
        ts_us = due.ts_us
        expected = slot.expected_us
        held = due.missed is not None and due.missed.to_us >= (expected or ts_us) - US_PER_S
        hole = (expected is not None and expected < ts_us) or held
        first = slot.row_us is None and slot.before is None
        moment = Moment(ts_us, due.late_ms, due.mono_ns, hole, first)
        try:
            row = reader.read(moment, self._clock.monotonic_ns(), self._epoch)
        except LostError as exc:
            self._lose(slot, exc.code, ts_us)
            self._report_lost(slot, second, ts_us)
            return
        if hole:
            missed = self._hole(slot, due, expected)
            second.add("gap", self._gap(slot.uuid, missed, reader.gap_uj))
        second.rows.append(row)
        slot.row_us, slot.expected_us, slot.reason = ts_us, ts_us + US_PER_S, ""
        self._say_gpm(slot, reader, second, ts_us)
        if reader.lost:
            self._lose(slot, reader.lost, ts_us)

    def _hole(self, slot: Slot, due: Due, expected: int | None) -> Missed:
        """Return the seconds this device lacks before `due`."""
        if expected is not None and expected < due.ts_us:
            reason, detail = "driver", slot.reason or None
            if due.missed is not None and not slot.reason:
                reason, detail = due.missed.reason, due.missed.detail
            return Missed(expected, due.ts_us - US_PER_S, reason, detail)
        last_us = due.ts_us - US_PER_S
        return due.missed or Missed(last_us, last_us, "driver", slot.reason or None)

    def _lose(self, slot: Slot, code: int, now_us: int) -> None:
        if not slot.reason:
            _log.warning(
                "gpu=%s index=%d is lost: %s", slot.uuid, slot.index, self._nvml.error_name(code)
            )
        slot.reason = self._nvml.error_name(code)
        if slot.reader is not None:
            slot.reader.close()
            slot.before, slot.reader = slot.reader, None
        slot.retry_us = now_us + slot.backoff_s * US_PER_S
        slot.backoff_s = min(slot.backoff_s * 2, BACKOFF_MAX_S)

    def _report_lost(self, slot: Slot, second: Second, ts_us: int) -> None:
        """Declare the seconds of a lost device piece by piece, so that an end is always near."""
        if not slot.uuid:
            return
        if slot.expected_us is None:
            slot.expected_us = ts_us
        if ts_us - slot.expected_us >= REPORT_LOST_S * US_PER_S:
            missed = Missed(slot.expected_us, ts_us, "driver", slot.reason)
            second.add("gap", self._gap(slot.uuid, missed, None))
            slot.expected_us = ts_us + US_PER_S

    def _say_gpm(self, slot: Slot, reader: DeviceReader, second: Second, now_us: int) -> None:
        """Report once which GPM metrics the device refuses, and stop asking for them."""
        if slot.said_gpm or reader.gpm is None or not reader.gpm.codes:
            return
        slot.said_gpm = True
        refused = {
            name: nv.CAPABILITY[code]
            for name, code in reader.gpm.codes.items()
            if code in nv.CAPABILITY
        }
        if refused:
            reader.gpm.keep(set(reader.gpm.codes) - set(refused))
            rows = [(slot.uuid, now_us, name, False, why) for name, why in refused.items()]
            second.add("device_capability", *rows)

    def _gap(self, uuid: str | None, missed: Missed, gap_uj: int | None) -> tuple[Any, ...]:
        return (
            self._node.node_id,
            uuid,
            missed.from_us,
            missed.to_us,
            missed.reason,
            gap_uj,
            missed.detail,
        )


def capabilities(device: Device, plan: Plan, now_us: int) -> list[tuple[Any, ...]]:
    """Return one row for each measured column: whether the device gives it, or why not."""
    refused = dict(plan.refused)
    if not plan.gpm:
        for column in MEASURED:
            if column.group in (Group.ACTIVITY, Group.LINKS):
                refused[column.name] = plan.gpm_refused
    return [
        (device.uuid, now_us, column.name, column.name not in refused, refused.get(column.name))
        for column in MEASURED
    ]


SamplerFactory = Callable[[int, dict[str, list[int]] | None], Sampler]
