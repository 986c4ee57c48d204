"""The cluster in real time: devices of one node under a clock, and the allocations on it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from collector.simulator.cluster import ClusterSpec, Job, device_of, schedule_of
from collector.simulator.device import SIGNALS, DeviceInfo, Integrals, Process, Reading, Settable
from collector.simulator.hours import (
    RUN_UP_S,
    UJ_PER_J,
    energy_before_uj,
    hour_of,
    hour_start_s,
    hour_track,
)
from collector.simulator.inventory import Rows, allocation_row, job_row
from collector.simulator.physics import (
    Board,
    Floats,
    Track,
    board_of,
    counter_mj,
    noisy_mw,
    processes_of,
    temperature_c,
    updates,
)
from collector.simulator.profiles import GpuProfile
from collector.simulator.standin import StandIn, install
from collector.simulator.workload import ADDED_W, KERNEL, MEMORY
from idlewatt.clock import Clock
from idlewatt.units import S_PER_HOUR, US_PER_S

_SIGNALS: Final = len(SIGNALS)
_TX: Final = SIGNALS.index("pcie_tx_bytes_s")
GPU_IDLE: Final = 0x1
LOOK_AHEAD_S: Final = 300
# An idle context on an L40S falls from 105 to 61 W with the SM clock at its lowest, and to the
# bare board's watts with the memory clock lowered too (arXiv 2604.04745). Work is taken to follow
# the square of the clock (assumed); how much longer it takes is not modelled yet.
RESIDENT_BY_SM: Final = 0.65
RESIDENT_BY_MEM: Final = 0.35


@dataclass(frozen=True, slots=True)
class Lock:
    """Clocks as locked from a moment on, and what that does to the watts."""

    from_s: float
    resident_factor: float = 1.0
    work_factor: float = 1.0


def lock_of(profile: GpuProfile, settable: Settable, now_s: float) -> Lock:
    """Return the effect of the present clock locks."""
    clocks = profile.clocks
    sm = mem = 1.0
    if settable.sm_lock_mhz:
        sm = min(settable.sm_lock_mhz[1] / clocks.sm_max_mhz.value, 1.0)
    if settable.mem_lock_mhz:
        mem = min(settable.mem_lock_mhz[1] / clocks.mem_max_mhz.value, 1.0)
    return Lock(now_s, RESIDENT_BY_SM * sm + RESIDENT_BY_MEM * mem, sm * sm)


@dataclass(slots=True)
class _Gpu:
    """One device between two changes of the hour."""

    hour: int
    track: Track
    board: Board
    integrals: Floats
    energy_uj: float
    temp_c: Floats
    settable: Settable | None = None
    locks: list[Lock] = field(default_factory=lambda: [Lock(-np.inf)])

    def energy_j(self, times: Floats) -> Floats:
        """Return the true energy since the track's begin, with clock locks in effect."""
        if len(self.locks) == 1 and self.locks[0].work_factor == 1.0:
            return self.track.energy_j(times)
        power = self.track.profile.power
        total = power.bare_w.value * (times - self.track.low_s)
        step_w = power.resident_w.value - power.bare_w.value
        ends = [*(lock.from_s for lock in self.locks[1:]), np.inf]
        for lock, until_s in zip(self.locks, ends, strict=True):
            begin = np.array([max(lock.from_s, self.track.low_s)])
            inside = np.clip(times, begin, max(until_s, begin[0]))
            resident = self.track.resident_s(inside) - self.track.resident_s(begin)
            work = self.track.column(inside, ADDED_W) - self.track.column(begin, ADDED_W)
            total += lock.resident_factor * step_w * resident + lock.work_factor * work
        return total


class LiveProvider:
    """The devices of one simulated node, as they are at the clock's present moment.

    Until somebody locks a clock, every value equals what `history` writes for the same second.
    """

    def __init__(self, spec: ClusterSpec, node_index: int, clock: Clock) -> None:
        self.spec = spec
        self._clock = clock
        self._numbers = list(spec.node_gpus(node_index))
        self.devices: tuple[DeviceInfo, ...] = tuple(device_of(spec, gpu) for gpu in self._numbers)
        self._gpus: dict[int, _Gpu] = {}
        self._cache: dict[int, tuple[int, Reading]] = {}
        self._ahead: dict[int, _Gpu] = {}
        self._ahead_second = 0

    def now_us(self) -> int:
        """Return UTC wall time in µs since 1970."""
        return self._clock.now_us()

    def changed(self, index: int, settable: Settable) -> None:
        """Take note that a limit or lock of GPU `index` changed; watts follow from now on."""
        gpu = self._at(index, self.now_us())
        now_s = self.spec.seconds(self.now_us())
        gpu.settable = settable
        gpu.locks.append(lock_of(gpu.track.profile, settable, now_s))
        self._cache.pop(index, None)

    def integrals(self, index: int) -> Integrals:
        """Return the activity counters of GPU `index` now."""
        now_us = self.now_us()
        gpu = self._at(index, now_us)
        now_s = self.spec.seconds(now_us)
        values = gpu.integrals + gpu.track.at(np.array([now_s]))[0]
        return Integrals(now_s, tuple(values[:_SIGNALS].tolist()))

    def read(self, index: int) -> Reading:
        """Return what GPU `index` shows now; calls within the same ms see the same values."""
        now_us = self.now_us()
        stamp = now_us // 1_000
        kept = self._cache.get(index)
        if kept is not None and kept[0] == stamp:
            return kept[1]
        reading = self._read(index, now_us)
        self._look_ahead(index, now_us)
        self._cache[index] = (stamp, reading)
        return reading

    def _at(self, index: int, now_us: int) -> _Gpu:
        """Return the device's state in the hour of `now_us`, carried over from the last one."""
        hour = hour_of(now_us)
        gpu = self._gpus.get(index)
        if gpu is None or hour < gpu.hour:
            gpu = self._fresh(index, hour)
            self._gpus[index] = gpu
        while gpu.hour < hour:
            gpu = self._next(index, gpu)
            self._gpus[index] = gpu
        return gpu

    def _fresh(self, index: int, hour: int) -> _Gpu:
        number = self._numbers[index]
        track = hour_track(self.spec, number, hour)
        start_j = track.energy_j(np.array([hour_start_s(self.spec, hour)]))[0]
        return _Gpu(
            hour=hour,
            track=track,
            board=board_of(self.spec, number),
            integrals=np.zeros(track.levels.shape[1]),
            energy_uj=energy_before_uj(self.spec, number, hour) - start_j * UJ_PER_J,
            temp_c=self._temperatures(track, hour),
        )

    def _look_ahead(self, index: int, now_us: int) -> None:
        """Prepare the next hour of one device a second, so that its first tick is not late."""
        second = now_us // US_PER_S
        due = second % S_PER_HOUR >= S_PER_HOUR - LOOK_AHEAD_S and second != self._ahead_second
        hour = hour_of(now_us) + 1
        kept = self._ahead.get(index)
        if due and (kept is None or kept.hour != hour):
            self._ahead_second = second
            self._ahead[index] = self._fresh(index, hour)

    def _next(self, index: int, old: _Gpu) -> _Gpu:
        gpu = self._ahead.pop(index, None)
        if gpu is None or gpu.hour != old.hour + 1:
            gpu = self._fresh(index, old.hour + 1)
        edge = np.array([hour_start_s(self.spec, gpu.hour)])
        gpu.settable, gpu.locks = old.settable, old.locks
        gpu.integrals = old.integrals + old.track.at(edge)[0] - gpu.track.at(edge)[0]
        if len(gpu.locks) > 1:  # what locks have saved so far is no longer the plain schedule's
            saved = old.energy_uj + old.energy_j(edge)[0] * UJ_PER_J
            gpu.energy_uj = saved - gpu.energy_j(edge)[0] * UJ_PER_J
        return gpu

    def _temperatures(self, track: Track, hour: int) -> Floats:
        begin_s = hour_start_s(self.spec, hour)
        seconds = begin_s + np.arange(-RUN_UP_S, S_PER_HOUR + 1, dtype=np.float64)
        return temperature_c(track.profile, np.diff(track.energy_j(seconds)))

    def _read(self, index: int, now_us: int) -> Reading:
        gpu = self._at(index, now_us)
        now_s = self.spec.seconds(now_us)
        profile = gpu.track.profile
        job = self._job(gpu, now_s)
        resident = job is not None
        instant_mw, average_mw, energy_mj = self._power(gpu, now_s)
        at_now, at_before = gpu.track.at(np.array([now_s, now_s - profile.util_period_s.value]))
        busy = (at_now - at_before) / profile.util_period_s.value
        since = gpu.integrals + at_now
        sm_mhz, mem_mhz = self._clocks(gpu, resident)
        temp_c, mem_offset = self._temp_c(gpu, now_s), profile.thermal.mem_offset_c
        processes: tuple[Process, ...] = ()
        if job is not None:
            processes = processes_of(self.spec, job, job.gpus.index(self._numbers[index]), profile)
        return Reading(
            power_inst_mw=instant_mw,
            power_avg_mw=average_mw,
            energy_mj=energy_mj,
            sm_clock_mhz=sm_mhz,
            mem_clock_mhz=mem_mhz,
            temp_gpu_c=round(temp_c),
            temp_mem_c=None if mem_offset is None else round(temp_c + mem_offset.value),
            pstate=0 if resident else profile.clocks.pstate_idle,
            event_reasons=0 if resident else GPU_IDLE,
            util_gpu_pct=round(float(busy[KERNEL]) * 100),
            util_mem_pct=round(float(busy[MEMORY]) * 100),
            mem_used_bytes=sum(used for _, used in processes),
            pcie_gen=profile.pcie_gen if resident else profile.pcie_gen_idle,
            pcie_width=profile.pcie_width,
            pcie_tx_bytes=int(since[_TX]),
            pcie_rx_bytes=int(since[_TX + 1]),
            pcie_tx_bytes_s=float(busy[_TX]),
            pcie_rx_bytes_s=float(busy[_TX + 1]),
            nvlink_tx_bytes=int(since[_TX + 2]),
            nvlink_rx_bytes=int(since[_TX + 3]),
            compute=processes,
        )

    def _job(self, gpu: _Gpu, now_s: float) -> Job | None:
        for job in gpu.track.jobs:
            if job.context_s <= now_s < job.exit_s:
                return job
        return None

    def _clocks(self, gpu: _Gpu, resident: bool) -> tuple[int, int]:
        clocks, settable = gpu.track.profile.clocks, gpu.settable
        sm = float(clocks.sm_max_mhz if resident else clocks.sm_idle_mhz)
        mem = float(clocks.mem_max_mhz if resident else clocks.mem_idle_mhz)
        if settable is not None and settable.sm_lock_mhz:
            sm = min(max(sm, settable.sm_lock_mhz[0]), settable.sm_lock_mhz[1])
        if settable is not None and settable.mem_lock_mhz:
            mem = min(max(mem, settable.mem_lock_mhz[0]), settable.mem_lock_mhz[1])
        return round(sm), round(mem)

    def _temp_c(self, gpu: _Gpu, now_s: float) -> float:
        second = int(np.ceil(now_s - hour_start_s(self.spec, gpu.hour) - 1e-9)) + RUN_UP_S - 1
        return float(gpu.temp_c[min(max(second, 0), gpu.temp_c.size - 1)])

    def _power(self, gpu: _Gpu, now_s: float) -> tuple[int, int | None, int]:
        """Return the instant reading, the average and the energy counter, from one evaluation."""
        profile, board = gpu.track.profile, gpu.board
        power = profile.power
        instant, average = power.instant, power.average or power.instant
        inst_end_s, inst_no = _renewal(now_s, instant.period_s.value, board.instant_phase_s)
        avg_end_s, avg_no = _renewal(now_s, average.period_s.value, board.average_phase_s)
        counted_s, _ = _renewal(now_s, power.counter_period_s.value, board.counter_phase_s)
        inst_end_s -= instant.lag_s.value
        avg_end_s -= average.lag_s.value
        windows = (instant.window_s.value, average.window_s.value)
        moments = [
            inst_end_s,
            inst_end_s - windows[0],
            avg_end_s,
            avg_end_s - windows[1],
            counted_s,
        ]
        energy_j = gpu.energy_j(np.array(moments))
        inst_w = (energy_j[0:1] - energy_j[1:2]) / windows[0]
        avg_w = (energy_j[2:3] - energy_j[3:4]) / windows[1]
        shown = noisy_mw(profile, board, inst_w, np.array([inst_no]), False)
        smooth = None
        if power.average is not None:
            smooth = int(noisy_mw(profile, board, avg_w, np.array([avg_no]), True)[0])
        true_uj = np.rint(gpu.energy_uj + energy_j[4:] * UJ_PER_J)
        return int(shown[0]), smooth, int(counter_mj(board, true_uj)[0])


def _renewal(now_s: float, period_s: float, phase_s: float) -> tuple[float, int]:
    """Return when a value read now was renewed, and the number of that renewal."""
    when, number = updates(np.array([now_s]), period_s, phase_s)
    return float(when[0]), int(number[0])


def install_live(
    spec: ClusterSpec, node_index: int, clock: Clock, *, root: bool = False
) -> StandIn:
    """Return a stand-in for one node of the cluster, already installed below pynvml."""
    standin = StandIn(LiveProvider(spec, node_index, clock), root=root)
    install(standin)
    return standin


class LiveAllocations:
    """What a scheduler's hooks would tell the agent of one node: jobs that began or ended."""

    LOOK_BACK_S: Final = 600.0

    def __init__(self, spec: ClusterSpec, node_index: int) -> None:
        self._spec = spec
        self._gpus = spec.node_gpus(node_index)
        self._told_s: float | None = None

    def poll(self, now_us: int) -> dict[str, list[tuple[Any, ...]]]:
        """Return rows of `job` and `allocation` that changed since the last poll.

        The first poll returns everything that runs, and what ended in the last ten minutes.
        """
        now_s = self._spec.seconds(now_us)
        told_s = self._told_s
        first = told_s is None
        since_s = now_s - self.LOOK_BACK_S if told_s is None else told_s
        jobs: dict[int, Job] = {}
        allocations: Rows = []
        for gpu in self._gpus:
            uuid = device_of(self._spec, gpu).uuid
            for job in schedule_of(self._spec).jobs_on(gpu, since_s - 1.0, now_s + 1e-6):
                began = since_s < job.start_s <= now_s
                ended = since_s < job.end_s <= now_s
                if began or ended or (first and job.start_s <= now_s < job.end_s):
                    jobs[job.number] = job
                    allocations.append(allocation_row(self._spec, job, uuid, now_s))
        self._told_s = now_s
        if not jobs:
            return {}
        return {
            "job": [job_row(self._spec, job, now_s) for job in jobs.values()],
            "allocation": allocations,
        }
