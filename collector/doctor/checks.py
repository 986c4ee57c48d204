"""From facts to findings: one line each, what is so and what to do. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from collector.doctor.device_checks import check_devices
from collector.doctor.facts import (
    ClockFacts,
    DriverFacts,
    Facts,
    RightsFacts,
    ServerFacts,
    SoftwareFacts,
    SpoolFacts,
    TokenFacts,
    Trouble,
)
from collector.doctor.findings import Finding, fail, ok, warn
from idlewatt.units import MIB

OLDEST_PYTHON: Final = (3, 11)
MIN_FREE_MIB: Final = 64
SLOW_SYNC_MS: Final = 100.0
SILENT_S: Final = 60.0
MIN_OPEN_FILES: Final = 128
SKEW_WARN_S: Final = 1.0
SKEW_FAIL_S: Final = 30.0
MAX_ERROR_MS: Final = 500.0
_MEMORY_KINDS: Final = frozenset({"tmpfs", "ramfs"})
_NETWORK_KINDS: Final = frozenset({"nfs", "nfs4", "cifs", "smb3", "fuse.sshfs", "9p", "lustre"})
_DRIVER_ADVICE: Final = {
    Trouble.NO_LIBRARY: "install the NVIDIA driver; in a container, start it with access to the"
    " GPUs (driver capability `utility`)",
    Trouble.NOT_LOADED: "load the kernel module: `modprobe nvidia`; the kernel's log says why it"
    " refuses",
    Trouble.NO_PERMISSION: "the user needs read and write access to /dev/nvidia*",
    Trouble.MISMATCH: "the driver was updated while in use: reload the kernel modules or reboot",
    Trouble.SHADOWED: "run `pip uninstall pynvml`, then"
    " `pip install --force-reinstall nvidia-ml-py`",
    Trouble.HANGS: "look for Xid in the kernel's log; a GPU or the driver hangs, and mostly only"
    " a reboot helps",
    Trouble.CRASHED: "look for Xid in the kernel's log; one lost GPU can crash the library",
    Trouble.OTHER: "does `nvidia-smi` work here?",
}


def check(facts: Facts) -> list[Finding]:
    """Return all findings, in the order in which they are read."""
    return [
        *check_software(facts.software, facts.node_id),
        *check_driver(facts.driver),
        *check_devices(facts.driver.devices, facts.rights),
        *check_rights(facts.rights),
        *check_spool(facts.spool),
        *check_clock(facts.clock),
        *check_server(facts.server),
        *check_token(facts.token, facts.server, facts.node_id),
    ]


def check_software(software: SoftwareFacts, node_id: str | None) -> Iterator[Finding]:
    """Yield findings about interpreter, packages and the node's identity."""
    version = ".".join(map(str, software.python))
    if software.python[:2] < OLDEST_PYTHON:
        yield fail("software.python", f"Python {version} is too old", "use Python 3.11 or newer")
    missing = [name for name, found in software.versions.items() if found is None]
    found = [f"{name} {known}" for name, known in software.versions.items() if known]
    yield ok("software.versions", ", ".join([f"Python {version}", *found]))
    for name in missing:
        yield fail("software.versions", f"{name} is not installed", f"pip install {name}")
    if node_id is None:
        yield fail("software.node", "this machine has no machine id", "set agent.node_id")
    else:
        yield ok("software.node", f"node id {node_id}")


def check_driver(driver: DriverFacts) -> Iterator[Finding]:
    """Yield findings about the driver as a whole."""
    if driver.trouble is not None:
        yield fail("driver.loads", driver.words, _DRIVER_ADVICE[driver.trouble])
        return
    versions = [
        f"driver {driver.driver_version or 'of unknown version'}",
        f"NVML {driver.nvml_version}" if driver.nvml_version else "",
        f"CUDA {driver.cuda_version}" if driver.cuda_version else "",
    ]
    where = f", through {driver.library}" if driver.library else ""
    yield ok("driver.loads", ", ".join(word for word in versions if word) + where)
    if not driver.devices:
        yield fail(
            "driver.devices",
            "the driver sees no GPU",
            "is one passed into this container or virtual machine? `lspci -d 10de:` lists them",
        )


def check_rights(rights: RightsFacts) -> Iterator[Finding]:
    """Yield findings about what this process may do."""
    root = rights.uid == 0
    yield ok(
        "rights.user",
        "runs as root" if root else f"runs as uid {rights.uid}: enough for reading",
        "the agent needs no root: run doctor as the agent's user to see what it sees"
        if root
        else "",
    )
    if rights.closed_nodes:
        yield fail(
            "rights.devices",
            f"may not open {', '.join(rights.closed_nodes)}",
            "the user needs read and write access (file mode, group, cgroup or container)",
        )
    if rights.profiling_restricted and not rights.sys_admin:
        yield warn(
            "rights.profiling",
            "the driver keeps profiling counters for administrators",
            "if activity is missing, load it with NVreg_RestrictProfilingToAdminUsers=0",
        )
    if rights.open_files is not None and rights.open_files < MIN_OPEN_FILES:
        yield warn(
            "rights.files",
            f"only {rights.open_files} open files are allowed",
            f"raise the limit to {MIN_OPEN_FILES} or more (`ulimit -n`, LimitNOFILE=)",
        )


def check_spool(spool: SpoolFacts) -> Iterator[Finding]:
    """Yield findings about the folder where samples wait."""
    if spool.timed_out:
        yield fail(
            "spool.folder", f"{spool.folder} does not answer", "set agent.spool_dir to a local disk"
        )
        return
    if spool.error is not None:
        yield fail(
            "spool.folder",
            f"{spool.folder} cannot be used: {spool.error}",
            "give the agent's user a folder of its own, or set agent.spool_dir",
        )
        return
    if spool.exists:
        yield ok("spool.folder", f"{spool.folder} can be written")
    else:
        yield ok("spool.folder", f"{spool.folder} will be made by the agent")
    yield from _space(spool)
    yield from _disk(spool)
    yield from _holder(spool)


def _space(spool: SpoolFacts) -> Iterator[Finding]:
    if spool.free_bytes is None:
        return
    free_mib = spool.free_bytes // MIB
    text = f"{free_mib:,} MiB free; the spool takes up to {spool.max_mib:,} MiB"
    if free_mib < MIN_FREE_MIB:
        yield fail("spool.space", text, "make room, or set agent.spool_dir to another disk")
    elif free_mib < spool.max_mib:
        yield warn("spool.space", text, "make room, or lower agent.spool_max_mib")
    else:
        yield ok("spool.space", text)


def _disk(spool: SpoolFacts) -> Iterator[Finding]:
    if spool.kind in _MEMORY_KINDS:
        yield warn(
            "spool.disk",
            f"lies in memory ({spool.kind}): a power cut loses what was not yet sent",
            "set agent.spool_dir to a disk",
        )
    elif spool.kind in _NETWORK_KINDS:
        yield warn(
            "spool.disk",
            f"lies on a network file system ({spool.kind}), where SQLite's log is not safe",
            "set agent.spool_dir to a local disk",
        )
    if not spool.sync_ms:
        return
    median, worst = sorted(spool.sync_ms)[len(spool.sync_ms) // 2], max(spool.sync_ms)
    text = f"a synced write takes {median:.1f} ms (slowest of {len(spool.sync_ms)}: {worst:.1f})"
    if median > SLOW_SYNC_MS:
        yield warn("spool.sync", text, "the disk is slow or busy; a faster one keeps seconds whole")
    else:
        yield ok("spool.sync", text)


def _holder(spool: SpoolFacts) -> Iterator[Finding]:
    if spool.holder_pid is None:
        yield ok("spool.agent", "no agent uses it now")
    elif spool.silent_s is not None and spool.silent_s > SILENT_S:
        yield warn(
            "spool.agent",
            f"an agent (pid {spool.holder_pid}) has written nothing for {spool.silent_s:.0f} s",
            "its log says why: `journalctl -u idlewatt-agent`",
        )
    else:
        yield ok("spool.agent", f"an agent (pid {spool.holder_pid}) uses it; a second is refused")


def check_clock(clock: ClockFacts) -> Iterator[Finding]:
    """Yield findings about the time."""
    source = f" ({clock.source})" if clock.source else ""
    if clock.synchronised is None:
        yield warn(
            "clock.synchronised",
            "whether the clock is synchronised is unknown",
            "make sure that chrony or systemd-timesyncd runs",
        )
    elif not clock.synchronised:
        yield warn(
            "clock.synchronised",
            f"the clock is not synchronised{source}",
            "run chrony or systemd-timesyncd: samples are stamped by this clock",
        )
    elif clock.max_error_ms is not None and clock.max_error_ms > MAX_ERROR_MS:
        yield warn(
            "clock.synchronised",
            f"the clock may be wrong by {clock.max_error_ms:.0f} ms{source}",
            "look at the time service: `chronyc tracking` or `timedatectl timesync-status`",
        )
    else:
        yield ok("clock.synchronised", f"the clock is synchronised{source}")
    if clock.skew_s is None:
        return
    away_s = max(abs(clock.skew_s) - clock.skew_error_s, 0.0)
    side = "ahead of" if clock.skew_s < 0 else "behind"
    text = f"this clock is {abs(clock.skew_s):.2f} s {side} the server's"
    if away_s > SKEW_FAIL_S:
        yield fail("clock.skew", text, "set the clock right before the agent is started")
    elif away_s > SKEW_WARN_S:
        yield warn("clock.skew", text, "synchronise both clocks")
    else:
        bound_s = max(abs(clock.skew_s), clock.skew_error_s)
        yield ok("clock.skew", f"agrees with the server's clock within {max(bound_s, 0.01):.2f} s")


def check_server(server: ServerFacts) -> Iterator[Finding]:
    """Yield findings about the way to the server."""
    if not server.url:
        yield warn(
            "server.reach", "no server is set: samples stay in the spool", "set agent.server_url"
        )
        return
    if server.error is not None:
        yield fail(
            "server.reach",
            server.error,
            "is it running, is the name right, does a firewall stand between? Set agent.server_url",
        )
        return
    if server.health is None:
        yield fail(
            "server.reach",
            f"what answers at {server.url} is no idlewatt server",
            "set agent.server_url to the address that `idlewatt serve` prints",
        )
        return
    yield ok("server.reach", f"{server.url} answers in {server.round_trip_ms or 0:.0f} ms")
    if not server.encrypted and not server.local:
        yield warn(
            "server.encrypted",
            "the token travels unencrypted",
            "put TLS before the server and use https://",
        )
    if server.problems:
        yield warn(
            "server.health",
            f"the server's health is red: {'; '.join(server.problems)}",
            "if it is the missing samples, start the agent; else look at the server's log",
        )


def check_token(token: TokenFacts, server: ServerFacts, node_id: str | None) -> Iterator[Finding]:
    """Yield findings about the token."""
    node = node_id or "NODE"
    if token.error is not None:
        yield fail("token.file", token.error, "the agent's user must be able to read it")
        return
    if token.file and token.mode is not None:
        if token.mode & 0o007:
            yield warn(
                "token.file",
                f"{token.file} can be read by everybody (mode {token.mode:04o})",
                f"chmod 640 {token.file}, group the agent's",
            )
        else:
            yield ok("token.file", f"{token.file} is private (mode {token.mode:04o})")
    if not token.present:
        yield fail(
            "token.accepted",
            "there is no token",
            f"on the server: `idlewatt token create {node}`; then set agent.token_file",
        )
    elif server.status == 200:
        yield _accepted(server, node_id)
    elif server.status in (401, 403):
        yield fail(
            "token.accepted",
            "the server does not know this token",
            f"on the server: `idlewatt token create {node} --replace`",
        )
    else:
        why = f"HTTP status {server.status}" if server.status else "the server was not asked"
        yield warn("token.accepted", f"whether the token is good is unknown: {why}", "ask again")


def _accepted(server: ServerFacts, node_id: str | None) -> Finding:
    if server.token_node == node_id:
        return ok("token.accepted", f"the server takes it for node {node_id}")
    return fail(
        "token.accepted",
        f"the token belongs to node {server.token_node}, this node is {node_id}",
        f"set agent.node_id = {server.token_node!r}, or make a token for {node_id}",
    )
