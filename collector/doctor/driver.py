"""Asks the driver what it can do.

`probe_driver` may hang as long as a driver may; `ask_child` runs it in a process of its own and
waits only so long.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from collector import nvml as nv
from collector.doctor.facts import DeviceFacts, DriverFacts, Trouble
from collector.probe import Device, LostError, Plan, identity, inventory, probe
from collector.reader import AT, DeviceReader, Moment, Row
from collector.sampler import MEASURED, capabilities
from idlewatt.clock import Clock
from idlewatt.columns import Group
from idlewatt.errors import DriverError
from idlewatt.units import US_PER_S

DEADLINE_S: Final = 30.0
SPAN_S: Final = 1.05
_LISTS: Final = ("compute", "graphics", "mps")
_LIST_CALLS: Final = ("Compute", "Graphics", "MPSCompute")
_LIBRARY_NOT_FOUND: Final = 12
_TROUBLES: Final = {
    _LIBRARY_NOT_FOUND: Trouble.NO_LIBRARY,
    nv.DRIVER_NOT_LOADED: Trouble.NOT_LOADED,
    nv.NO_PERMISSION: Trouble.NO_PERMISSION,
    nv.LIB_RM_VERSION_MISMATCH: Trouble.MISMATCH,
    nv.FUNCTION_NOT_FOUND: Trouble.NO_LIBRARY,
}
# Columns that a working device may leave empty in one second.
_MAY_BE_SILENT: Final = frozenset({"throttle_power_us", "throttle_thermal_us", "throttle_brake_us"})


@dataclass(slots=True)
class _Opened:
    """A device between its two readings."""

    device: Device
    plan: Plan
    handle: Any
    reader: DeviceReader
    first: Row


def probe_driver(clock: Clock) -> DriverFacts:
    """Return what the driver says about itself and its GPUs; takes a little over a second."""
    try:
        module = nv.load()
    except ImportError:
        return DriverFacts(Trouble.SHADOWED, "the Python module pynvml is not installed")
    except DriverError as exc:
        return DriverFacts(Trouble.SHADOWED, str(exc))
    try:
        nvml = nv.Nvml()
    except DriverError as exc:
        code = int(getattr(exc.__cause__, "value", 0) or 0)
        words = f"the GPU driver cannot be opened: {exc.__cause__ or exc}"
        return DriverFacts(_TROUBLES.get(code, Trouble.OTHER), words, module=module.__file__)
    try:
        return DriverFacts(
            library=_library(nvml),
            module=module.__file__,
            driver_version=nvml.ask("nvmlSystemGetDriverVersion"),
            nvml_version=nvml.ask("nvmlSystemGetNVMLVersion"),
            cuda_version=_cuda(nvml.ask("nvmlSystemGetCudaDriverVersion_v2")),
            devices=_devices(nvml, clock),
        )
    except DriverError as exc:
        return DriverFacts(Trouble.OTHER, str(exc), module=module.__file__)
    finally:
        nvml.close()


def _library(nvml: nv.Nvml) -> str:
    """Return the file of the library that was loaded."""
    found: Any = nvml.lib.nvmlLib
    name = getattr(found, "_name", None)
    if not isinstance(name, str):
        return "a stand-in"
    with contextlib.suppress(OSError), open("/proc/self/maps", encoding="utf-8") as maps:
        for line in maps:
            if "libnvidia-ml" in line:
                return line.split(maxsplit=5)[-1].strip()
    return name


def _cuda(number: Any) -> str | None:
    return f"{number // 1000}.{number % 1000 // 10}" if isinstance(number, int) else None


def _devices(nvml: nv.Nvml, clock: Clock) -> tuple[DeviceFacts, ...]:
    opened = [_open(nvml, index, clock) for index in range(nvml.count())]
    begun_ns = clock.monotonic_ns()
    clock.wait(SPAN_S)
    span_s = (clock.monotonic_ns() - begun_ns) / 1e9
    return tuple(
        one if isinstance(one, DeviceFacts) else _close(nvml, one, clock, span_s) for one in opened
    )


def _open(nvml: nv.Nvml, index: int, clock: Clock) -> _Opened | DeviceFacts:
    uuid = None
    try:
        uuid, handle = identity(nvml, index)
        plan = probe(nvml, handle)
        device = inventory(nvml, handle, uuid, index, plan)
        reader = DeviceReader(nvml, handle, device, plan, "")
        return _Opened(device, plan, handle, reader, _read(reader, clock, first=True))
    except LostError as exc:
        return DeviceFacts(index, uuid=uuid, error=nvml.error_name(exc.code))


def _read(reader: DeviceReader, clock: Clock, *, first: bool) -> Row:
    now_ns = clock.monotonic_ns()
    second_us = clock.now_us() // US_PER_S * US_PER_S
    return reader.read(Moment(second_us, 0, now_ns, False, first), now_ns, 0)


def _close(nvml: nv.Nvml, one: _Opened, clock: Clock, span_s: float) -> DeviceFacts:
    device, handle = one.device, one.handle
    begun_ns = time.perf_counter_ns()
    try:
        row = _read(one.reader, clock, first=False)
    except LostError as exc:
        return DeviceFacts(device.index, uuid=device.uuid, error=nvml.error_name(exc.code))
    finally:
        read_ms = (time.perf_counter_ns() - begun_ns) / 1e6
        gpm = one.reader.gpm
        gpm_codes = {} if gpm is None else dict(gpm.codes)
        one.reader.close()
    given = capabilities(device, one.plan, 0)
    refused = {name: str(why) for _, _, name, supported, why in given if not supported}
    refused |= {
        name: nv.CAPABILITY[code] for name, code in gpm_codes.items() if code in nv.CAPABILITY
    }
    lists, plausible = _process_lists(nvml, handle)
    power = row[AT["power_avg_mw"]]
    mig = nvml.ask("nvmlDeviceGetMigMode", handle)
    persistence = nvml.ask("nvmlDeviceGetPersistenceMode", handle)
    return DeviceFacts(
        index=device.index,
        uuid=device.uuid,
        model=device.model,
        arch=device.arch,
        pci_bus_id=device.pci_bus_id,
        refused=refused,
        silent=_silent(row, refused),
        gpm=one.plan.gpm,
        power_mw=row[AT["power_inst_mw"]] if power is None else power,
        energy_mj=(one.first[AT["energy_mj"]], row[AT["energy_mj"]]),
        span_s=span_s,
        lists=lists,
        pids_plausible=plausible,
        persistence=None if persistence is None else bool(persistence),
        mig=None if mig is None else bool(mig[0]),
        read_ms=read_ms,
    )


def _silent(row: Row, refused: dict[str, str]) -> tuple[str, ...]:
    return tuple(
        column.name
        for column in MEASURED
        if row[AT[column.name]] is None
        and column.name not in refused
        and column.name not in _MAY_BE_SILENT
        and column.group is not Group.RESIDENCY  # the process lists have a finding of their own
    )


def _process_lists(nvml: nv.Nvml, handle: Any) -> tuple[dict[str, str], bool]:
    """Return NVML's name of each list's answer, and whether they hold process ids."""
    answers: dict[str, str] = {}
    plausible = True
    for name, call in zip(_LISTS, _LIST_CALLS, strict=True):
        code, pids = nv.ProcessList(nvml, handle, f"nvmlDeviceGet{call}RunningProcesses").read()
        answers[name] = "ok" if code == nv.SUCCESS else nvml.error_name(code)
        plausible = plausible and (code != nv.SUCCESS or pids is not None)
    return answers, plausible


def encode(facts: DriverFacts) -> bytes:
    """Return the facts as the child writes them."""
    return msgspec.json.encode(facts)


def ask_child(
    argv: Sequence[str],
    deadline_s: float = DEADLINE_S,
    popen: Callable[..., Any] = subprocess.Popen,
) -> DriverFacts:
    """Return what the driver probe says that `argv` runs; a child that hangs is left behind."""
    child = popen(list(argv), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
    try:
        said, _ = child.communicate(timeout=deadline_s)
    except subprocess.TimeoutExpired:
        with contextlib.suppress(OSError):
            os.kill(child.pid, signal.SIGKILL)
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.wait(0.5)  # in the depths of a driver it may not be killed
        child.stdout.close()
        return DriverFacts(
            Trouble.HANGS, f"the GPU driver gave no answer within {deadline_s:.0f} s"
        )
    if child.returncode < 0:
        name = signal.Signals(-child.returncode).name
        return DriverFacts(Trouble.CRASHED, f"asking the GPU driver crashed ({name})")
    try:
        return msgspec.json.decode(said, type=DriverFacts)
    except msgspec.MsgspecError:
        return DriverFacts(
            Trouble.OTHER, f"asking the GPU driver ended with code {child.returncode}"
        )
