"""Which readings are of the same GPU, and what that GPU is called.

A UUID identifies; else the PCI address on its node; else the index on its node, which is stable
only until the next boot. Readings that share a file or an import are linked: where one line says
which index has which UUID, lines with the index alone are of that GPU.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from collector.formats.model import FormatError, GpuRef, Parsed, Reading

_SAME_ROUND_S: Final = 0.09
_MANY: Final = 0.2
_ONE_ROUND: Final = 32


@dataclass(frozen=True, slots=True)
class Identity:
    """A GPU or MIG instance.

    Attributes:
        gpu_uuid: its name in the warehouse.
        parent_uuid: device of an instance.
        rule: uuid, pci, index or only.
    """

    gpu_uuid: str
    parent_uuid: str | None
    rule: str


class Identities:
    """Names for the references of an import.

    Args:
        refs: all references.
        node_id: node that names without a UUID are made from.
    """

    def __init__(self, refs: Iterable[GpuRef], node_id: str) -> None:
        self._node_id = node_id
        self._by_bus: dict[tuple[str | None, str], str] = {}
        self._by_index: dict[tuple[str | None, int], str] = {}
        self._bus_by_index: dict[tuple[str | None, int], str] = {}
        clashing: set[tuple[str | None, int]] = set()
        for ref in refs:
            if ref.uuid and ref.bus_id:
                self._by_bus[ref.host, ref.bus_id] = ref.uuid
            if ref.index is None:
                continue
            key = (ref.host, ref.index)
            if ref.uuid and self._by_index.setdefault(key, ref.uuid) != ref.uuid:
                clashing.add(key)
            if ref.bus_id and self._bus_by_index.setdefault(key, ref.bus_id) != ref.bus_id:
                clashing.add(key)
        for key in clashing:  # the order changed between boots: the index says nothing
            self._by_index.pop(key, None)
            self._bus_by_index.pop(key, None)

    def of(self, ref: GpuRef) -> Identity:
        """Return the identity behind a reference."""
        device, rule = self._device(ref)
        if ref.instance is None:
            return Identity(device, None, rule)
        name = f"MIG-{device}/{ref.instance}" if rule == "uuid" else f"{device}/mig/{ref.instance}"
        return Identity(name, device, rule)

    def _device(self, ref: GpuRef) -> tuple[str, str]:
        uuid = ref.uuid
        bus_id = ref.bus_id
        if uuid is None and ref.index is not None:
            bus_id = bus_id or self._bus_by_index.get((ref.host, ref.index))
            uuid = self._by_index.get((ref.host, ref.index))
        if uuid is None and bus_id is not None:
            uuid = self._by_bus.get((ref.host, bus_id))
        if uuid is not None:
            return uuid, "uuid"
        node = ref.host or self._node_id
        if bus_id is not None:
            return f"{node}/pci/{bus_id}", "pci"
        if ref.index is not None:
            return f"{node}/index/{ref.index}", "index"
        return f"{node}/only", "only"


def refuse_unnamed_crowd(parsed: Parsed) -> None:
    """Refuse a log whose lines name no GPU but come from several.

    Raises:
        FormatError: its lines come in rounds of several.
    """
    unnamed = [r for r in parsed.readings if r.gpu == GpuRef()]
    if len(unnamed) > 1 and _rounds(unnamed):
        raise FormatError(
            f"{parsed.where}: its lines come from several GPUs and do not say which is which; "
            "record again with uuid among the fields"
        )


def _rounds(readings: Sequence[Reading]) -> bool:
    """Return whether several lines share a moment: short steps between them, again and again."""
    stamps = [r.stamp.replace(tzinfo=None) for r in readings if r.stamp is not None]
    steps = [(later - earlier).total_seconds() for earlier, later in pairwise(stamps)]
    short = [step for step in steps if 0 <= step <= _SAME_ROUND_S]
    if not short or max(int(r.facts.get("gpu_count", 2)) for r in readings) == 1:
        return False
    longest = max(steps)
    return len(short) >= _MANY * len(steps) and (
        longest > 4 * max(short) or len(steps) < _ONE_ROUND
    )
