"""The columns of every table that travels from a node to the warehouse.

One definition serves the wire codec, the DDL, the documentation and the tests. The order of
`GPU_SAMPLE` and of its groups is part of the contract: the `missing` column holds 4 bits a group
in this order.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum, StrEnum
from typing import Final


class Kind(StrEnum):
    """Storage kind of a column; the value is the tag used on the wire."""

    TS = "ts"  # int64 µs since 1970, UTC
    I64 = "i64"
    I32 = "i32"
    I16 = "i16"
    F32 = "f32"
    F64 = "f64"
    BOOL = "bool"  # bitmap, least significant bit first
    STR = "str"  # dictionary: list of strings + uint16 codes

    @property
    def sql(self) -> str:
        """Return the DuckDB type."""
        return _SQL_TYPE[self]


_SQL_TYPE: Final = {
    Kind.TS: "TIMESTAMP",
    Kind.I64: "BIGINT",
    Kind.I32: "INTEGER",
    Kind.I16: "SMALLINT",
    Kind.F32: "FLOAT",
    Kind.F64: "DOUBLE",
    Kind.BOOL: "BOOLEAN",
    Kind.STR: "VARCHAR",
}


class Group(IntEnum):
    """Column groups of `gpu_sample`; the value is the position of its 4 bits in `missing`."""

    KEY = 0
    POWER = 1
    ACTIVITY = 2
    UTILISATION = 3
    LINKS = 4
    MEMORY = 5
    CLOCKS_HEAT = 6
    LIMITS = 7
    RESIDENCY = 8
    LINK_STATE = 9
    QUALITY = 10


BITS_PER_GROUP: Final = 4


@dataclass(frozen=True, slots=True)
class Column:
    """One column: its name carries its unit."""

    name: str
    kind: Kind
    help: str
    group: Group = Group.KEY
    required: bool = False


def _group(group: Group, *columns: tuple[str, Kind, str]) -> tuple[Column, ...]:
    return tuple(Column(name, kind, text, group) for name, kind, text in columns)


GPU_SAMPLE: Final[tuple[Column, ...]] = (
    Column(
        "ts_utc", Kind.TS, "nominal whole second; the row describes (ts - obs, ts]", required=True
    ),
    Column(
        "dt_ms",
        Kind.I32,
        "monotonic time since this GPU's previous row; NULL for the first of an epoch",
    ),
    Column("obs_ms", Kind.I32, "nominal interval: 1000 for live rows", required=True),
    Column("node_id", Kind.STR, "node identity", required=True),
    Column("gpu_uuid", Kind.STR, "NVML UUID of the device or MIG instance", required=True),
    Column("parent_uuid", Kind.STR, "device of a MIG instance; NULL for devices"),
    Column(
        "epoch", Kind.I64, "ms since 1970 of the agent's start; increasing per node", required=True
    ),
    *_group(
        Group.POWER,
        ("power_avg_mw", Kind.I32, "driver's 1 s average, where the model offers it"),
        ("power_inst_mw", Kind.I32, "latest reading of the sensor"),
        ("power_limit_mw", Kind.I32, "enforced limit, most conservative of all sources"),
        ("power_limit_requested_mw", Kind.I32, "limit asked for in band"),
        ("power_scope", Kind.STR, "gpu or module"),
        ("energy_mj", Kind.I64, "cumulative counter as read"),
        ("energy_epoch", Kind.I32, "counts resets of the counter"),
        ("energy_uj", Kind.I64, "energy of this row's own interval"),
        ("energy_source", Kind.STR, "counter, power_avg or power_inst"),
    ),
    *_group(
        Group.ACTIVITY,
        ("gr_active", Kind.F32, "share of time the graphics or compute engine was busy"),
        ("sm_active", Kind.F32, "share of SMs with a resident warp, over time"),
        ("sm_occupancy", Kind.F32, "resident warps over the maximum"),
        ("tensor_active", Kind.F32, "share of cycles any tensor pipe was busy"),
        ("fp64_active", Kind.F32, "share of cycles the FP64 pipe was busy"),
        ("fp32_active", Kind.F32, "share of cycles the FP32 pipe was busy"),
        ("fp16_active", Kind.F32, "share of cycles the FP16 pipe was busy"),
        ("dram_active", Kind.F32, "share of cycles the memory interface was busy"),
        ("activity_source", Kind.STR, "gpm, dcgm, nvml_util or none"),
    ),
    *_group(
        Group.UTILISATION,
        ("util_gpu_pct", Kind.I16, "share of time any kernel ran; says nothing about how full"),
        ("util_mem_pct", Kind.I16, "share of time memory was read or written"),
    ),
    *_group(
        Group.LINKS,
        ("pcie_tx_bytes_s", Kind.I64, "device to host"),
        ("pcie_rx_bytes_s", Kind.I64, "host to device"),
        ("nvlink_tx_bytes_s", Kind.I64, "sum over links"),
        ("nvlink_rx_bytes_s", Kind.I64, "sum over links"),
    ),
    *_group(Group.MEMORY, ("mem_used_mib", Kind.I32, "used without the driver's reserve")),
    *_group(
        Group.CLOCKS_HEAT,
        ("sm_clock_mhz", Kind.I16, "SM clock"),
        ("mem_clock_mhz", Kind.I16, "memory clock"),
        ("temp_gpu_c", Kind.I16, "GPU temperature"),
        ("temp_mem_c", Kind.I16, "memory temperature"),
        ("pstate", Kind.I16, "performance state 0-15"),
        ("fan_pct", Kind.I16, "fan; NULL on passively cooled boards"),
    ),
    *_group(
        Group.LIMITS,
        ("event_reasons", Kind.I64, "clocks event reasons bitmask"),
        ("throttle_power_us", Kind.I64, "time held by the power limit in this interval"),
        ("throttle_thermal_us", Kind.I64, "time held by heat in this interval"),
        ("throttle_brake_us", Kind.I64, "time held by the external brake in this interval"),
    ),
    *_group(
        Group.RESIDENCY,
        ("resident", Kind.BOOL, "a program holds a context; NULL where nobody can say"),
        ("n_procs", Kind.I16, "processes on the device"),
    ),
    *_group(
        Group.LINK_STATE,
        ("pcie_gen", Kind.I16, "current PCIe generation"),
        ("pcie_width", Kind.I16, "current PCIe lanes"),
    ),
    *_group(
        Group.QUALITY,
        ("missing", Kind.I64, "4 bits a column group: why it is NULL"),
        ("late_ms", Kind.I32, "how late the reading truly was"),
    ),
)

DEVICE: Final[tuple[Column, ...]] = (
    Column("gpu_uuid", Kind.STR, "NVML UUID", required=True),
    Column("node_id", Kind.STR, "node that holds it", required=True),
    Column("valid_from_utc", Kind.TS, "since when these values hold", required=True),
    Column("parent_uuid", Kind.STR, "device of a MIG instance"),
    Column("model", Kind.STR, "product name as the driver says it"),
    Column("arch", Kind.STR, "ampere, ada, hopper, ..."),
    Column("gpu_index", Kind.I16, "NVML index; a convenience, never identity"),
    Column("pci_bus_id", Kind.STR, "PCI address"),
    Column("driver_version", Kind.STR, "driver version"),
    Column("mem_total_mib", Kind.I32, "total memory"),
    Column("power_limit_default_mw", Kind.I32, "factory limit"),
    Column("power_limit_min_mw", Kind.I32, "lowest limit accepted"),
    Column("power_limit_max_mw", Kind.I32, "highest limit accepted"),
    Column("sm_clock_max_mhz", Kind.I16, "highest SM clock"),
    Column("mem_clock_max_mhz", Kind.I16, "highest memory clock"),
)

NODE: Final[tuple[Column, ...]] = (
    Column("node_id", Kind.STR, "node identity", required=True),
    Column("valid_from_utc", Kind.TS, "since when these values hold", required=True),
    Column("hostname", Kind.STR, "host name"),
    Column("rack", Kind.STR, "rack label"),
    Column("cluster", Kind.STR, "cluster label"),
    Column("agent_version", Kind.STR, "version of the agent"),
)

DEVICE_CAPABILITY: Final[tuple[Column, ...]] = (
    Column("gpu_uuid", Kind.STR, "NVML UUID", required=True),
    Column("valid_from_utc", Kind.TS, "since when this holds", required=True),
    Column("column_name", Kind.STR, "column of gpu_sample", required=True),
    Column("supported", Kind.BOOL, "whether the device gives it at all"),
    Column("reason", Kind.STR, "unsupported, no_permission, ...; NULL where supported"),
)

JOB: Final[tuple[Column, ...]] = (
    Column("job_key", Kind.STR, "cluster:raw_id:attempt", required=True),
    Column("cluster", Kind.STR, "cluster label"),
    Column("raw_id", Kind.STR, "the scheduler's id"),
    Column("attempt", Kind.I16, "counts requeues from 0"),
    Column("user_name", Kind.STR, "owner"),
    Column("project", Kind.STR, "account or project"),
    Column("job_name", Kind.STR, "name given by the owner"),
    Column("job_class", Kind.STR, "serving, training, batch, interactive or other"),
    Column("submit_utc", Kind.TS, "submitted"),
    Column("start_utc", Kind.TS, "started"),
    Column("end_utc", Kind.TS, "ended; NULL while running"),
)

ALLOCATION: Final[tuple[Column, ...]] = (
    Column("gpu_uuid", Kind.STR, "NVML UUID", required=True),
    Column("start_utc", Kind.TS, "half-open interval start", required=True),
    Column("end_utc", Kind.TS, "half-open interval end; NULL while open"),
    Column("job_key", Kind.STR, "who holds it", required=True),
    Column("share", Kind.F32, "share of the GPU; shares sum to 1 while allocated"),
    Column("rule", Kind.STR, "how the share was found"),
    Column("source", Kind.STR, "who said so"),
    Column("confidence", Kind.F32, "0-1"),
)

GAP: Final[tuple[Column, ...]] = (
    Column("node_id", Kind.STR, "node", required=True),
    Column("gpu_uuid", Kind.STR, "NVML UUID; NULL for the whole node"),
    Column("from_utc", Kind.TS, "first nominal second not observed", required=True),
    Column("to_utc", Kind.TS, "last nominal second not observed", required=True),
    Column("reason", Kind.STR, "agent_down, late_tick, driver, given_up, ...", required=True),
    Column("energy_uj", Kind.I64, "energy the counter saw across the hole"),
    Column("detail", Kind.STR, "more words"),
)

METER: Final[tuple[Column, ...]] = (
    Column("node_id", Kind.STR, "node that the meter stands for or was read on", required=True),
    Column("meter_id", Kind.STR, "meter or channel, unique on its node", required=True),
    Column("ts_utc", Kind.TS, "nominal tick; the row describes (ts - obs, ts]", required=True),
    Column("obs_ms", Kind.I32, "nominal interval", required=True),
    Column("power_mw", Kind.I64, "power; NULL where the meter had none"),
    Column("energy_uj", Kind.I64, "energy of this row's own interval"),
    Column("scope", Kind.STR, "what it covers: wall, channel, ..."),
    Column("source", Kind.STR, "where the reading comes from"),
)

TABLES: Final[dict[str, tuple[Column, ...]]] = {
    "gpu_sample": GPU_SAMPLE,
    "device": DEVICE,
    "node": NODE,
    "device_capability": DEVICE_CAPABILITY,
    "job": JOB,
    "allocation": ALLOCATION,
    "gap": GAP,
    "meter": METER,
}

COMPUTE_SIGNALS: Final = (
    "sm_active",
    "tensor_active",
    "fp64_active",
    "fp32_active",
    "fp16_active",
)
MEMORY_SIGNALS: Final = ("dram_active",)
COMM_SIGNALS: Final = (
    "pcie_tx_bytes_s",
    "pcie_rx_bytes_s",
    "nvlink_tx_bytes_s",
    "nvlink_rx_bytes_s",
)


def missing_bits(reasons: dict[Group, int]) -> int:
    """Return the `missing` value that holds a reason for each group named."""
    value = 0
    for group, reason in reasons.items():
        value |= (reason & 0xF) << (BITS_PER_GROUP * group)
    return value


def missing_reason(value: int, group: Group) -> int:
    """Return the reason code of one group from a `missing` value."""
    return (value >> (BITS_PER_GROUP * group)) & 0xF
