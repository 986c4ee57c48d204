"""Scores of power states against a truth that was written from the schedule of the work.

Pure: columns of results and of truth go in, figures come out. Rows are seconds of GPUs; both sides
are in the same order.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from analysis.classify import STATES
from analysis.frame import CodeArray, IntArray
from idlewatt.model import State

EXECUTION_IDLE: int = STATES.index(State.EXECUTION_IDLE)


@dataclass(frozen=True, slots=True)
class Detection:
    """How well seconds in one state were found.

    Attributes:
        true_s: seconds in the state in truth.
        found_s: seconds said to be.
        both_s: seconds where both agree.
    """

    true_s: int
    found_s: int
    both_s: int

    @property
    def precision(self) -> float | None:
        """Return which share of what was found is true; None where nothing was found."""
        return self.both_s / self.found_s if self.found_s else None

    @property
    def recall(self) -> float | None:
        """Return which share of what is true was found; None where there is nothing."""
        return self.both_s / self.true_s if self.true_s else None


@dataclass(frozen=True, slots=True)
class EnergyError:
    """Energy of one state or group of runs against the truth.

    Attributes:
        true_uj: energy without any sensor in between.
        found_uj: energy as accounted.
    """

    true_uj: int
    found_uj: int

    @property
    def error(self) -> float | None:
        """Return the relative error; None where there is no energy in truth."""
        return (self.found_uj - self.true_uj) / self.true_uj if self.true_uj else None


def detection(found: CodeArray, true: CodeArray, state: int = EXECUTION_IDLE) -> Detection:
    """Return precision and recall of one state, second by second."""
    said, is_so = found == state, true == state
    return Detection(int(is_so.sum()), int(said.sum()), int((said & is_so).sum()))


def energy_by_state(
    found: CodeArray, found_uj: IntArray, true: CodeArray, true_uj: IntArray
) -> dict[State, EnergyError]:
    """Return the energy of each state as accounted against the truth.

    The truth's energy is summed over the truth's own seconds, so that errors of detection and of
    measurement both count.
    """
    return {
        name: EnergyError(
            int(true_uj[true == code].sum()),
            int(found_uj[found == code].sum()),
        )
        for code, name in enumerate(STATES)
    }


def energy_of_short_runs(
    found: CodeArray,
    run_ms: IntArray,
    found_uj: IntArray,
    true_uj: IntArray,
    shorter_than_ms: int = 30_000,
) -> EnergyError:
    """Return measured against true energy over the seconds of short execution-idle runs found."""
    mask = (found == EXECUTION_IDLE) & (run_ms < shorter_than_ms)
    return EnergyError(int(true_uj[mask].sum()), int(found_uj[mask].sum()))


def confusion(found: CodeArray, true: CodeArray) -> NDArray[np.int64]:
    """Return counts of seconds: true state down, found state across, in the order of `STATES`."""
    size = len(STATES)
    pairs = true.astype(np.int64) * size + found
    return np.bincount(pairs, minlength=size * size).reshape(size, size)


def per_row(values: NDArray[np.generic], samples: IntArray) -> NDArray[np.generic]:
    """Return each interval's value for every one of its rows, in the order of the rows."""
    return np.repeat(values, samples)
