"""One GPU over one UTC hour: everything an observer could read at each whole second.

The hour is the unit of generation: a pure function of (spec, gpu, hour), with a run-up before it
for windows and heat. Newest hour first, alone, or in order: the rows are the same.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from collector.simulator.cluster import ClusterSpec
from collector.simulator.physics import (
    Board,
    Floats,
    Ints,
    Track,
    board_of,
    build_track,
    counter_mj,
    sensor_mw,
    span_energy_j,
    temperature_c,
    updates,
)
from idlewatt.units import S_PER_HOUR, US_PER_HOUR, US_PER_S

RUN_UP_S: Final = 400
UJ_PER_J: Final = 1e6


def hour_of(time_us: int) -> int:
    """Return the number of the UTC hour that holds a time."""
    return time_us // US_PER_HOUR


def hour_start_s(spec: ClusterSpec, hour: int) -> float:
    """Return the begin of an hour in seconds from the origin."""
    return (hour * US_PER_HOUR - spec.origin_us) / US_PER_S


@functools.lru_cache(maxsize=65_536)
def hour_energy_uj(spec: ClusterSpec, gpu: int, hour: int) -> int:
    """Return the true energy of one hour, in whole µJ."""
    begin_s = hour_start_s(spec, hour)
    return round(span_energy_j(spec, gpu, begin_s, begin_s + S_PER_HOUR) * UJ_PER_J)


def energy_before_uj(spec: ClusterSpec, gpu: int, hour: int) -> int:
    """Return the true energy from the origin's hour up to the begin of `hour`."""
    first = hour_of(spec.origin_us)
    return sum(hour_energy_uj(spec, gpu, earlier) for earlier in range(first, hour))


@functools.lru_cache(maxsize=4)
def hour_track(spec: ClusterSpec, gpu: int, hour: int) -> Track:
    """Return the track of one hour with its run-up, and some seconds past its end."""
    begin_s = hour_start_s(spec, hour)
    return build_track(spec, gpu, begin_s - RUN_UP_S, begin_s + S_PER_HOUR)


@dataclass(frozen=True, slots=True)
class HourOfGpu:
    """Readings of one GPU at the whole seconds of one hour; entry 0 is the second before it.

    Attributes:
        times: seconds from the origin, 3601 of them.
        integrals: all columns of `workload` at those times.
        energy_mj: the counter as read.
        power_avg_mw: None where the model has no average.
        resident: whether a context is open at the moment of reading.
        job: index into `track.jobs` of the owner, -1 for nobody.
    """

    track: Track
    board: Board
    times: Floats
    integrals: Floats
    energy_mj: Ints
    power_avg_mw: Ints | None
    power_inst_mw: Ints
    temp_c: Floats
    resident: NDArray[np.bool_]
    job: Ints


def owner_at(track: Track, times: Floats) -> Ints:
    """Return the index of the job that holds the GPU at each time, -1 for nobody."""
    owner = np.full(times.shape, -1, dtype=np.int64)
    for number, job in enumerate(track.jobs):
        owner[(times >= job.start_s) & (times < job.end_s)] = number
    return owner


def resident_at(track: Track, times: Floats) -> NDArray[np.bool_]:
    """Return whether a context is open at each time."""
    found = np.zeros(times.shape, dtype=np.bool_)
    for begin, end in track.contexts:
        found |= (times >= begin) & (times < end)
    return found


def counter_at(spec: ClusterSpec, gpu: int, hour: int, times: Floats) -> Ints:
    """Return the energy counter as read at times of one hour or its run-up's last seconds."""
    track, board = hour_track(spec, gpu, hour), board_of(spec, gpu)
    begin_s = hour_start_s(spec, hour)
    renewed, _ = updates(times, track.profile.power.counter_period_s.value, board.counter_phase_s)
    start_j = track.energy_j(np.array([begin_s]))[0]
    since_uj = np.rint((track.energy_j(renewed) - start_j) * UJ_PER_J)
    return counter_mj(board, energy_before_uj(spec, gpu, hour) + since_uj)


def read_hour(spec: ClusterSpec, gpu: int, hour: int) -> HourOfGpu:
    """Return what one GPU shows at each second of an hour."""
    track, board = hour_track(spec, gpu, hour), board_of(spec, gpu)
    begin_s = hour_start_s(spec, hour)
    times = begin_s + np.arange(-1.0, S_PER_HOUR)
    power = track.profile.power
    energy_mj = counter_at(spec, gpu, hour, times)
    average = power.average
    run_up = begin_s + np.arange(-RUN_UP_S, S_PER_HOUR, dtype=np.float64)
    mean_w = np.diff(track.energy_j(run_up))
    temp = np.concatenate([[0.0], temperature_c(track.profile, mean_w)])
    return HourOfGpu(
        track=track,
        board=board,
        times=times,
        integrals=track.at(times),
        energy_mj=energy_mj,
        power_avg_mw=None if average is None else sensor_mw(track, board, average, times, True),
        power_inst_mw=sensor_mw(track, board, power.instant, times, False),
        temp_c=temp[-times.size :],
        resident=resident_at(track, times),
        job=owner_at(track, times),
    )
