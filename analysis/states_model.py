"""What the job of power states works with: its limits, and what it reports.

`settings_hash` names the settings that a stored result was computed with; another one recomputes.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field

from analysis.classify import ALGORITHM_VERSION
from analysis.runs import Intervals, Runs
from analysis.tables import Codes
from idlewatt.config import Settings
from idlewatt.model import Thresholds


@dataclass(slots=True)
class Summary:
    """What a refresh did.

    Attributes:
        hours: hours computed anew, in the order of the work (start, µs since 1970).
        pending: hours that still wait, because the time allowed was over.
        runs: raw runs in those hours.
        pieces: pieces that were stitched again.
        samples: samples read.
        duration_ms: how long it took.
    """

    hours: list[int] = field(default_factory=list)
    pending: int = 0
    runs: int = 0
    pieces: int = 0
    samples: int = 0
    duration_ms: int = 0


@dataclass(frozen=True, slots=True)
class Period:
    """The result of `whole_period`.

    Attributes:
        from_us: first stamp.
        to_us: first stamp after it.
        runs: raw runs of the period, and of its surroundings as far as runs go on there.
        pieces: intervals of the period; `run_ms` counts beyond it.
        codes: names behind the numbers of GPUs, nodes and jobs.
        samples: samples in the period.
    """

    from_us: int
    to_us: int
    runs: Runs
    pieces: Intervals
    codes: Codes
    samples: int


def thresholds_of(settings: Settings) -> Thresholds:
    """Return the limits of the low-activity test that the settings ask for."""
    return Thresholds(
        settings.number("analysis.activity"),
        settings.number("analysis.comm_bytes_s"),
        settings.integer("analysis.min_interval_s"),
    )


def settings_hash(thresholds: Thresholds) -> str:
    """Return what identifies the settings that results were computed with."""
    text = (
        f"{ALGORITHM_VERSION}/{thresholds.activity!r}/{thresholds.comm_bytes_s!r}"
        f"/{thresholds.min_interval_s}"
    )
    return hashlib.sha256(text.encode()).hexdigest()[:16]
