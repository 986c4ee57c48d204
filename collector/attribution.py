"""Who holds a GPU: where job and allocation rows come from."""

from __future__ import annotations

from typing import Any, Protocol

Rows = dict[str, list[tuple[Any, ...]]]


class AllocationSource(Protocol):
    """Says what has changed since it was last asked."""

    def poll(self, now_us: int) -> Rows:
        """Return changed rows of `job` and `allocation`, in column order."""
        ...


class NoAllocations:
    """A node without a scheduler."""

    def poll(self, now_us: int) -> Rows:
        """Return nothing."""
        del now_us
        return {}
