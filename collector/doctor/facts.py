"""What was found on a machine, as plain values; None means that nobody could say."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum


class Trouble(StrEnum):
    """Why the driver as a whole gives nothing."""

    NO_LIBRARY = "no_library"
    NOT_LOADED = "not_loaded"
    NO_PERMISSION = "no_permission"
    MISMATCH = "mismatch"
    SHADOWED = "shadowed"
    HANGS = "hangs"
    CRASHED = "crashed"
    OTHER = "other"


@dataclass(frozen=True, slots=True)
class SoftwareFacts:
    """The interpreter and the packages that the agent needs.

    Attributes:
        python: version of the interpreter.
        versions: package to version, or to None where it is missing.
    """

    python: tuple[int, int, int]
    versions: dict[str, str | None]


@dataclass(frozen=True, slots=True)
class DeviceFacts:
    """One GPU.

    Attributes:
        index: where the driver lists it.
        error: NVML's name of what it answered instead; then the rest is unknown.
        refused: column of gpu_sample to why the device will not give it.
        silent: columns that it should give and did not this time.
        gpm: whether it has the driver's activity counters.
        energy_mj: the energy counter, twice.
        span_s: seconds between the two.
        lists: compute, graphics and MPS process list to NVML's name of the answer.
        pids_plausible: whether what the lists hold can be process ids.
        persistence: whether the driver stays loaded without clients.
        mig: whether it is cut into instances.
        read_ms: how long one reading took.
    """

    index: int
    uuid: str | None = None
    model: str | None = None
    arch: str | None = None
    pci_bus_id: str | None = None
    error: str | None = None
    refused: dict[str, str] = field(default_factory=dict)
    silent: tuple[str, ...] = ()
    gpm: bool = False
    power_mw: int | None = None
    energy_mj: tuple[int | None, int | None] = (None, None)
    span_s: float = 1.0
    lists: dict[str, str] = field(default_factory=dict)
    pids_plausible: bool = True
    persistence: bool | None = None
    mig: bool | None = None
    read_ms: float | None = None


@dataclass(frozen=True, slots=True)
class DriverFacts:
    """The driver and its GPUs.

    Attributes:
        trouble: why there is nothing to say about GPUs.
        words: the driver's own words about the trouble.
        library: file of the library in use; `stand-in` for a simulated one.
        module: file of the Python module.
    """

    trouble: Trouble | None = None
    words: str = ""
    library: str | None = None
    module: str | None = None
    driver_version: str | None = None
    nvml_version: str | None = None
    cuda_version: str | None = None
    devices: tuple[DeviceFacts, ...] = ()


@dataclass(frozen=True, slots=True)
class RightsFacts:
    """What this process may do.

    Attributes:
        uid: effective user id.
        sys_admin: whether it has CAP_SYS_ADMIN.
        profiling_restricted: whether the driver keeps profiling for administrators.
        open_files: limit of open files.
        closed_nodes: device files of the driver that may not be opened.
    """

    uid: int
    sys_admin: bool | None = None
    profiling_restricted: bool | None = None
    open_files: int | None = None
    closed_nodes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class SpoolFacts:
    """The folder where samples wait.

    Attributes:
        folder: the folder.
        exists: whether it is there already.
        error: why it cannot be used.
        free_bytes: free space for this user.
        max_mib: size from which the oldest samples go.
        kind: file system.
        sync_ms: how long each of some small synced writes took.
        holder_pid: process id of the agent that holds it.
        silent_s: seconds since something was last written to the spool.
        timed_out: whether the file system did not answer in time.
    """

    folder: str
    exists: bool = False
    error: str | None = None
    free_bytes: int | None = None
    max_mib: int = 1024
    kind: str | None = None
    sync_ms: tuple[float, ...] = ()
    holder_pid: int | None = None
    silent_s: float | None = None
    timed_out: bool = False


@dataclass(frozen=True, slots=True)
class ClockFacts:
    """How well the clock is kept.

    Attributes:
        synchronised: what the kernel or the time service says.
        source: who says so.
        max_error_ms: the kernel's bound of the error.
        skew_s: server's time minus ours.
        skew_error_s: how well that is known.
    """

    synchronised: bool | None = None
    source: str | None = None
    max_error_ms: float | None = None
    skew_s: float | None = None
    skew_error_s: float = 0.0


@dataclass(frozen=True, slots=True)
class ServerFacts:
    """The server as this node sees it.

    Attributes:
        url: where it should be; empty: none is set.
        error: why it was not reached.
        health: `ok`, `red`, or None if it is not an idlewatt server.
        problems: why its health is red.
        round_trip_ms: how long an answer took.
        status: HTTP status of the question whose token this is; 0: not asked.
        token_node: node that the token belongs to.
        encrypted: whether the connection is TLS.
        local: whether it is on this machine.
    """

    url: str
    error: str | None = None
    health: str | None = None
    problems: tuple[str, ...] = ()
    round_trip_ms: float | None = None
    status: int = 0
    token_node: str | None = None
    encrypted: bool = False
    local: bool = False


@dataclass(frozen=True, slots=True)
class TokenFacts:
    """Where the token comes from.

    Attributes:
        file: the token file; empty: none is set.
        error: why it cannot be read.
        mode: its permission bits.
        present: whether there is a token at all.
    """

    file: str = ""
    error: str | None = None
    mode: int | None = None
    present: bool = False


@dataclass(frozen=True, slots=True)
class Facts:
    """Everything that was found."""

    node_id: str | None
    software: SoftwareFacts
    driver: DriverFacts
    rights: RightsFacts
    spool: SpoolFacts
    clock: ClockFacts
    server: ServerFacts
    token: TokenFacts
