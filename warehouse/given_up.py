"""Where the seconds of batches that an agent gave up may lie, as far as the warehouse can tell.

A lane goes forward in time, so lost batches lie after what the lane brought before them and before
what the next batch holds; within an epoch nothing is older than the epoch. Seconds that came by
another way are cut off at both ends. Where nothing bounds them, the gap is an instant, the time of
the declaration, under a reason of its own.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import duckdb

from idlewatt.columns import TABLES
from idlewatt.units import US_PER_HOUR, US_PER_MS, US_PER_S
from warehouse.layout import naive
from warehouse.queries import load
from warehouse.schema import rows_of

GIVEN_UP: Final = "given_up"
UNPLACED: Final = "given_up_unplaced"
MIN_US: Final = 1_420_070_400 * US_PER_S  # 2015
_LOOK_UP_US: Final = 6 * US_PER_HOUR


@dataclass(frozen=True, slots=True)
class Lost:
    """Batches that a node declared lost.

    Attributes:
        node_id: the node.
        epoch: their epoch, in ms since 1970.
        lane: their lane.
        seqs: first and last number.
        before_us: newest stamp that the lane brought before them, None where unknown.
        after_us: first stamp of the batch that follows, None where it has no samples.
    """

    node_id: str
    epoch: int
    lane: str
    seqs: tuple[int, int]
    before_us: int | None
    after_us: int | None


def gap_row(con: duckdb.DuckDBPyConnection, lost: Lost, now_us: int) -> tuple[Any, ...]:
    """Return the `gap` row, in the order of its columns."""
    first, last = lost.seqs
    detail = f"{lost.lane} batches {first}-{last} of epoch {lost.epoch} were given up"
    bounds = _bounds(lost)
    reason = GIVEN_UP
    if bounds is not None:
        bounds = _unseen(con, lost.node_id, bounds)
    if bounds is None:
        second = now_us - now_us % US_PER_S
        bounds, reason = (second, second), UNPLACED
        detail += "; which seconds they held is not known"
    values = {
        "node_id": lost.node_id,
        "from_utc": bounds[0],
        "to_utc": bounds[1],
        "reason": reason,
        "detail": detail,
    }
    return tuple(values.get(column.name) for column in TABLES["gap"])


def _bounds(lost: Lost) -> tuple[int, int] | None:
    """Return the seconds between what came before and what follows; None where unknown."""
    if lost.after_us is None:
        return None
    start = lost.before_us
    epoch_us = lost.epoch * US_PER_MS
    if start is None and lost.seqs[0] == 1 and epoch_us >= MIN_US:
        start = epoch_us - epoch_us % US_PER_S
    end = lost.after_us - US_PER_S
    if start is None or start + US_PER_S > end:
        return None
    return start + US_PER_S, end


def _unseen(
    con: duckdb.DuckDBPyConnection, node_id: str, bounds: tuple[int, int]
) -> tuple[int, int] | None:
    """Return the bounds without seconds at their ends that the node has samples of."""
    if bounds[1] - bounds[0] > _LOOK_UP_US:
        return bounds
    params = {"node_id": node_id, "from_utc": naive(bounds[0]), "to_utc": naive(bounds[1])}
    first, last = rows_of(con, load("statements/given_up_missing"), params)[0]
    return None if first is None else (int(first), int(last))
