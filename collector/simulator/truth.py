"""Ground truth from the schedule of the work, and from nothing that was measured.

A second is *execution-idle* if a program is resident, at least 95 % of the second has no work
scheduled, and it lies in a stretch of at least `min_interval_s` such seconds. A resident second
otherwise is *active*; without a context it is *deep idle*. No code is shared with any detector.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from collector.simulator.cluster import ClusterSpec, device_of, node_id
from collector.simulator.hours import UJ_PER_J, hour_of, hour_start_s, hour_track, owner_at
from collector.simulator.physics import Track
from collector.simulator.workload import WORK, Phase
from idlewatt.units import S_PER_HOUR, US_PER_S

STATES: Final = ("active", "execution_idle", "deep_idle")
ACTIVE: Final = 0
EXECUTION_IDLE: Final = 1
DEEP_IDLE: Final = 2
CAUSES: Final = (
    "work",
    "free",
    "held_empty",
    "startup",
    "input_stall",
    "checkpoint",
    "request_gap",
    "notebook_open",
)
_CAUSE: Final = {name: number for number, name in enumerate(CAUSES)}
_GAP_CAUSE: Final = {
    "training": "input_stall",
    "serving": "request_gap",
    "batch": "input_stall",
    "notebook": "notebook_open",
    "held": "held_empty",
}
WORKLESS: Final = 0.95
RESIDENT_SHARE: Final = 0.5


@dataclass(frozen=True, slots=True)
class Truth:
    """What really happened, per GPU (rows) and second (columns).

    Attributes:
        ts_us: stamp of each second, UTC µs; the second is (ts - 1 s, ts].
        gpu_uuid: identity of each row.
        node_id: node of each row.
        state: index into `STATES`.
        cause: index into `CAUSES`.
        job: index into `job_keys`, -1 where nobody holds the GPU.
        true_energy_uj: energy without any sensor in between.
    """

    ts_us: NDArray[np.int64]
    gpu_uuid: tuple[str, ...]
    node_id: tuple[str, ...]
    state: NDArray[np.int8]
    cause: NDArray[np.int8]
    job: NDArray[np.int32]
    job_keys: tuple[str, ...]
    true_energy_uj: NDArray[np.int64]


def truth(
    spec: ClusterSpec,
    start_us: int,
    end_us: int,
    *,
    min_interval_s: int = 5,
    nodes: range | None = None,
) -> Truth:
    """Return the truth about stamps in [start_us, end_us), for all GPUs or those of `nodes`.

    Both ends fall on whole seconds.
    """
    chosen = range(spec.nodes) if nodes is None else nodes
    gpus = [gpu for node in chosen for gpu in spec.node_gpus(node)]
    first_s, last_s = start_us // US_PER_S, end_us // US_PER_S
    margin = min_interval_s
    count = last_s - first_s
    state = np.empty((len(gpus), count), dtype=np.int8)
    cause = np.empty_like(state)
    job = np.empty((len(gpus), count), dtype=np.int32)
    energy = np.empty((len(gpus), count), dtype=np.int64)
    keys: dict[str, int] = {}
    for row, gpu in enumerate(gpus):
        raw = _Seconds.of(spec, gpu, first_s - margin, last_s + margin, keys)
        idle = _long_runs(raw.resident & raw.workless, min_interval_s)
        full = np.where(raw.resident, np.where(idle, EXECUTION_IDLE, ACTIVE), DEEP_IDLE)
        inner = slice(margin, margin + count)
        state[row] = full[inner]
        cause[row] = np.where(full == ACTIVE, _CAUSE["work"], raw.cause)[inner]
        job[row] = raw.job[inner]
        energy[row] = raw.energy_uj[inner]
    return Truth(
        ts_us=(first_s + np.arange(count, dtype=np.int64)) * US_PER_S,
        gpu_uuid=tuple(device_of(spec, gpu).uuid for gpu in gpus),
        node_id=tuple(node_id(gpu // spec.gpus_per_node) for gpu in gpus),
        state=state,
        cause=cause,
        job=job,
        job_keys=tuple(keys),
        true_energy_uj=energy,
    )


def _long_runs(flags: NDArray[np.bool_], at_least: int) -> NDArray[np.bool_]:
    """Return `flags` without the runs shorter than `at_least`."""
    padded = np.concatenate([[False], flags, [False]]).astype(np.int8)
    edges = np.flatnonzero(np.diff(padded))
    begins, ends = edges[::2], edges[1::2]
    keep = ends - begins >= at_least
    marks = np.zeros(flags.size + 1, dtype=np.int64)
    np.add.at(marks, begins[keep], 1)
    np.add.at(marks, ends[keep], -1)
    return np.cumsum(marks[:-1]) > 0


@dataclass(frozen=True, slots=True)
class _Seconds:
    """Raw facts about consecutive seconds of one GPU."""

    resident: NDArray[np.bool_]
    workless: NDArray[np.bool_]
    cause: NDArray[np.int8]
    job: NDArray[np.int32]
    energy_uj: NDArray[np.int64]

    @staticmethod
    def of(
        spec: ClusterSpec, gpu: int, first_s: int, last_s: int, keys: dict[str, int]
    ) -> _Seconds:
        """Return the facts about stamps in [first_s, last_s), hour by hour."""
        pieces = [
            _piece(spec, gpu, hour, (max(first_s, hour * S_PER_HOUR), last_s), keys)
            for hour in range(hour_of(first_s * US_PER_S), hour_of((last_s - 1) * US_PER_S) + 1)
        ]
        return _Seconds(
            resident=np.concatenate([piece.resident for piece in pieces]),
            workless=np.concatenate([piece.workless for piece in pieces]),
            cause=np.concatenate([piece.cause for piece in pieces]),
            job=np.concatenate([piece.job for piece in pieces]),
            energy_uj=np.concatenate([piece.energy_uj for piece in pieces]),
        )


def _piece(
    spec: ClusterSpec, gpu: int, hour: int, wanted_s: tuple[int, int], keys: dict[str, int]
) -> _Seconds:
    begin, end = wanted_s[0], min(wanted_s[1], (hour + 1) * S_PER_HOUR)
    track = hour_track(spec, gpu, hour)
    offset = hour_start_s(spec, hour) - hour * S_PER_HOUR
    edges = np.arange(begin - 1, end, dtype=np.float64) + offset
    work_s = np.diff(track.column(edges, WORK))
    resident = np.diff(track.resident_s(edges)) >= RESIDENT_SHARE
    energy = np.diff(np.rint(track.energy_j(edges) * UJ_PER_J)).astype(np.int64)
    middle = edges[1:] - 0.5
    owner = owner_at(track, middle)
    numbers = np.array(
        [keys.setdefault(job.key, len(keys)) for job in track.jobs] + [-1], dtype=np.int32
    )
    return _Seconds(
        resident=resident,
        workless=work_s <= 1.0 - WORKLESS + 1e-9,
        cause=_causes(track, middle, owner, resident),
        job=numbers[owner],
        energy_uj=energy,
    )


def _causes(
    track: Track,
    middle: NDArray[np.float64],
    owner: NDArray[np.int64],
    resident: NDArray[np.bool_],
) -> NDArray[np.int8]:
    """Return why each second would be idle, if it is."""
    gap = np.array(
        [_CAUSE[_GAP_CAUSE[job.kind]] for job in track.jobs] + [_CAUSE["free"]], dtype=np.int8
    )
    cause = gap[owner]
    training = np.array([job.kind == "training" for job in track.jobs] + [False])
    copied = track.phase_before(middle) == Phase.CHECKPOINT
    cause[training[owner] & copied] = _CAUSE["checkpoint"]
    waiting = np.array([job.kind != "held" for job in track.jobs] + [False])
    cause[waiting[owner] & ~resident] = _CAUSE["startup"]
    return cause
