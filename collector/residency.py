"""Whether a program holds a GPU: the rule over the driver's three process lists."""

from __future__ import annotations

from typing import Final

from collector.nvml import LOST, ProcessList

SLOW_EVERY_S: Final = 5
_COMPUTE, _GRAPHICS, _MPS = 0, 1, 2

Pids = tuple[int, ...] | None


def resident(compute: Pids, others: tuple[tuple[bool, Pids], ...]) -> bool | None:
    """Return whether a program is resident; None where nobody can say.

    Args:
        compute: process ids of the compute list; None if it did not answer.
        others: for graphics and MPS, whether the list exists, and its ids or None.
    """
    if compute or any(pids for _, pids in others):
        return True
    if compute is None:
        return None
    if all(pids is not None or not supported for supported, pids in others):
        return False
    return None


class Residency:
    """Reads the lists of one device: compute each second, the slow ones each five.

    Args:
        lists: compute, graphics and MPS.
        phase: spreads the slow calls of several devices over the seconds.
    """

    def __init__(self, lists: tuple[ProcessList, ProcessList, ProcessList], phase: int) -> None:
        self._lists = lists
        self._phase = phase % SLOW_EVERY_S
        self._kept: list[Pids] = [None, None, None]
        self._asked = False

    @property
    def answers(self) -> bool:
        """Return whether the device has a compute list at all."""
        return self._lists[_COMPUTE].supported

    def read(self, second: int) -> tuple[bool | None, int | None, int]:
        """Return (resident, number of processes, the worst code that means the GPU is lost)."""
        worst = self._ask(_COMPUTE)
        if not self._asked or second % SLOW_EVERY_S == self._phase:
            self._asked = True
            worst = self._ask(_GRAPHICS) or worst
            worst = self._ask(_MPS) or worst
        others = tuple((self._lists[n].supported, self._kept[n]) for n in (_GRAPHICS, _MPS))
        value = resident(self._kept[_COMPUTE], others)
        if value is None:
            return None, None, worst
        pids = {pid for kept in self._kept for pid in kept or ()}
        return value, min(len(pids), 32_767), worst

    def _ask(self, which: int) -> int:
        source = self._lists[which]
        if not source.supported:
            return 0
        code, self._kept[which] = source.read()
        return code if code in LOST else 0
