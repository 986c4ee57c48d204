"""Findings about GPUs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from collector.doctor.facts import DeviceFacts, RightsFacts
from collector.doctor.findings import Finding, fail, ok, warn
from collector.sampler import MEASURED
from idlewatt.columns import Group

SLOW_READ_MS: Final = 100.0
_NO_COUNTERS: Final = frozenset({"kepler", "maxwell", "pascal", "volta", "turing", "ampere", "ada"})
_COLUMNS: Final[dict[Group, tuple[str, ...]]] = {
    group: tuple(column.name for column in MEASURED if column.group is group)
    for group in Group
    if any(column.group is group for column in MEASURED)
}
_POWER: Final = frozenset({"power_avg_mw", "power_inst_mw"})
_NAMES: Final = {Group.CLOCKS_HEAT: "clocks and heat"}
_WHY: Final = {
    "unsupported": "not supported",
    "function_not_found": "unknown to this driver",
    "no_permission": "not permitted",
}
_PERMIT: Final = (
    "load the driver with NVreg_RestrictProfilingToAdminUsers=0, or give the agent CAP_SYS_ADMIN"
)


def check_devices(devices: tuple[DeviceFacts, ...], rights: RightsFacts) -> Iterator[Finding]:
    """Yield what is to be said about each GPU."""
    for device in devices:
        if device.error is not None:
            yield _lost(device)
            continue
        yield _identity(device)
        yield from _columns(device, rights)
        yield _energy(device)
        yield _processes(device)
        yield from _modes(device)
        if device.read_ms is not None and device.read_ms > SLOW_READ_MS:
            yield warn(
                "gpu.speed",
                f"one reading takes {device.read_ms:.0f} ms",
                "seconds may be late; look for other programs that ask the driver often",
                device.index,
            )


def _lost(device: DeviceFacts) -> Finding:
    name = device.uuid or "a GPU without identity"
    if device.error == "no_permission":
        return fail(
            "gpu.answers",
            f"{name} is not permitted to this user",
            "the user needs read and write access to /dev/nvidia* (group, cgroup, container)",
            device.index,
        )
    return fail(
        "gpu.answers",
        f"{name} does not answer: {device.error}",
        "look for Xid in the kernel's log; it may need `nvidia-smi --gpu-reset` or a reboot",
        device.index,
    )


def _identity(device: DeviceFacts) -> Finding:
    words = [device.model or "unknown model", device.uuid or "", device.pci_bus_id or ""]
    if device.power_mw is not None:
        words.append(f"{device.power_mw / 1000:.0f} W")
    return ok("gpu.answers", "  ".join(word for word in words if word), gpu=device.index)


def _columns(device: DeviceFacts, rights: RightsFacts) -> Iterator[Finding]:
    whole = []
    for group, columns in _COLUMNS.items():
        missing = [name for name in columns if name in device.refused]
        if not missing:
            gpm = " (GPM)" if group is Group.ACTIVITY else ""
            whole.append(f"{_name(group)}{gpm}")
        elif group is Group.ACTIVITY and len(missing) == len(columns):
            yield _no_activity(device, rights)
        elif group is Group.POWER and set(missing) >= _POWER:
            yield fail(
                "gpu.power",
                "no power reading at all",
                "idlewatt cannot account for its energy; a newer driver may help",
                device.index,
            )
        elif group is not Group.LINKS or len(missing) < len(columns):  # else as activity
            yield _partly(device, group, missing)
    if whole:
        yield ok("gpu.columns", f"complete: {', '.join(whole)}", gpu=device.index)
    if device.silent:
        yield warn(
            "gpu.silent",
            f"no answer this time for {', '.join(device.silent)}",
            "run doctor again; if it stays, these columns will be NULL",
            device.index,
        )


def _name(group: Group) -> str:
    return _NAMES.get(group) or group.name.lower().replace("_", " ")


def _no_activity(device: DeviceFacts, rights: RightsFacts) -> Finding:
    told = "states are told by utilisation and memory traffic"
    restricted = rights.profiling_restricted and not rights.sys_admin and device.gpm
    if restricted or "no_permission" in device.refused.values():
        text = f"activity counters are not permitted: {told}"
        return warn("gpu.activity", text, _PERMIT, device.index)
    if device.arch in _NO_COUNTERS:
        text = f"no activity counters ({device.arch} comes before Hopper): {told}"
        return ok("gpu.activity", text, gpu=device.index)
    return warn(
        "gpu.activity",
        f"no activity counters: {told}",
        "GPUs from Hopper on have them (GPM); a newer driver may help",
        device.index,
    )


def _partly(device: DeviceFacts, group: Group, missing: list[str]) -> Finding:
    reasons = sorted({_WHY.get(device.refused[name], device.refused[name]) for name in missing})
    text = f"{_name(group)} without {', '.join(missing)}: {', '.join(reasons)}"
    if any(device.refused[name] == "no_permission" for name in missing):
        return warn("gpu.columns", text, _PERMIT, device.index)
    return ok("gpu.columns", text, gpu=device.index)


def _energy(device: DeviceFacts) -> Finding:
    first, last = device.energy_mj
    if "energy_mj" in device.refused or first is None or last is None:
        return warn(
            "gpu.energy",
            "no energy counter",
            "energy is summed from power each second, and marked so",
            device.index,
        )
    if last > first:
        return ok("gpu.energy", "energy counter advances", gpu=device.index)
    return warn(
        "gpu.energy",
        f"energy counter stood still for {device.span_s:.1f} s",
        "energy is summed from power instead; a driver reload sets the counter going",
        device.index,
    )


def _processes(device: DeviceFacts) -> Finding:
    if device.lists.get("compute") != "ok":
        return warn(
            "gpu.processes",
            f"compute process list: {device.lists.get('compute', 'not asked')}",
            "whether a program holds the GPU stays unknown (NULL)",
            device.index,
        )
    if not device.pids_plausible:
        return warn(
            "gpu.processes",
            "process lists hold no process ids (a fault of drivers 535.43 to 535.86)",
            "update the driver; until then residency is NULL",
            device.index,
        )
    return ok("gpu.processes", "process lists can be read", gpu=device.index)


def _modes(device: DeviceFacts) -> Iterator[Finding]:
    if device.persistence is False:
        yield warn(
            "gpu.persistence",
            "persistence mode is off: counters and limits vanish between jobs",
            "enable nvidia-persistenced, or run `nvidia-smi -pm 1`",
            device.index,
        )
    elif device.persistence:
        yield ok("gpu.persistence", "persistence mode is on", gpu=device.index)
    if device.mig:
        yield warn(
            "gpu.mig",
            "cut into MIG instances",
            "power and energy are those of the whole GPU; instances are not told apart",
            device.index,
        )
