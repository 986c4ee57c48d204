"""What the driver stand-in asks of whoever simulates the devices."""

from __future__ import annotations

import hashlib
import uuid
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from collector.simulator.profiles import GpuProfile

DRIVER_VERSION: Final = "590.48.01"
NVML_VERSION: Final = "13.590.48.01"
CUDA_VERSION: Final = 13010
PCI_BUSES: Final = (0x0F, 0x1B, 0x2C, 0x3D, 0x8A, 0x97, 0xA8, 0xB9)

# Order of `Integrals.values`: integrals over time of these quantities.
SIGNALS: Final = (
    "gr_active",
    "sm_active",
    "sm_occupancy",
    "tensor_active",
    "fp64_active",
    "fp32_active",
    "fp16_active",
    "dram_active",
    "pcie_tx_bytes_s",
    "pcie_rx_bytes_s",
    "nvlink_tx_bytes_s",
    "nvlink_rx_bytes_s",
)
SIGNAL_INDEX: Final = {name: number for number, name in enumerate(SIGNALS)}

Process = tuple[int, int]  # pid, bytes


@dataclass(frozen=True, slots=True)
class DeviceInfo:
    """Identity of one simulated GPU."""

    index: int
    uuid: str
    profile: GpuProfile
    serial: str
    pci_bus: int
    pci_domain: int = 0

    @property
    def bus_id(self) -> str:
        """Return the PCI address as NVML writes it."""
        return f"{self.pci_domain:08X}:{self.pci_bus:02X}:00.0"


@dataclass(frozen=True, slots=True)
class Integrals:
    """Activity since the beginning, as a hardware counter would hold it."""

    at_s: float
    values: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Reading:
    """What one GPU shows at one moment."""

    power_inst_mw: int
    power_avg_mw: int | None
    energy_mj: int
    sm_clock_mhz: int
    mem_clock_mhz: int
    temp_gpu_c: int
    temp_mem_c: int | None = None
    pstate: int = 0
    fan_pct: int | None = None
    event_reasons: int = 0
    util_gpu_pct: int = 0
    util_mem_pct: int = 0
    mem_used_bytes: int = 0
    pcie_gen: int = 4
    pcie_width: int = 16
    pcie_tx_bytes: int = 0
    pcie_rx_bytes: int = 0
    pcie_tx_bytes_s: float = 0.0
    pcie_rx_bytes_s: float = 0.0
    nvlink_tx_bytes: int = 0
    nvlink_rx_bytes: int = 0
    throttle_power_ns: int = 0
    throttle_thermal_ns: int = 0
    throttle_brake_ns: int = 0
    compute: tuple[Process, ...] = ()
    graphics: tuple[Process, ...] = ()
    mps: tuple[Process, ...] = ()


@dataclass(slots=True)
class Settable:
    """What an administrator can change on one GPU."""

    limit_mw: int
    persistence: bool = True
    sm_lock_mhz: tuple[int, int] | None = None
    mem_lock_mhz: tuple[int, int] | None = None
    fault: int = 0  # NVML error code that every call on this GPU returns
    field_faults: dict[int, int] = field(default_factory=dict)
    # Field id -> (time, value) that the driver goes on giving; None: as of the next reading.
    frozen_fields: dict[int, tuple[int, Any] | None] = field(default_factory=dict)


class DeviceProvider(Protocol):
    """Source of the devices' state; the stand-in holds no physics of its own."""

    @property
    def devices(self) -> tuple[DeviceInfo, ...]:
        """Return the devices in index order."""
        ...

    def now_us(self) -> int:
        """Return UTC wall time in µs since 1970."""
        ...

    def read(self, index: int) -> Reading:
        """Return what GPU `index` shows now."""
        ...

    def integrals(self, index: int) -> Integrals:
        """Return the activity counters of GPU `index` now."""
        ...

    def changed(self, index: int, settable: Settable) -> None:
        """Take note that a limit or lock of GPU `index` changed."""
        ...


def stable_key(*parts: object) -> int:
    """Return a 64-bit number that depends on nothing but `parts`."""
    text = "/".join(str(part) for part in parts).encode()
    return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "little")


def device_info(seed: int, node_index: int, index: int, profile: GpuProfile) -> DeviceInfo:
    """Return the identity of one GPU: the same for the same seed, in every process."""
    key = hashlib.blake2b(f"{seed}/{node_index}/{index}".encode(), digest_size=16).digest()
    bus = PCI_BUSES[index % len(PCI_BUSES)]
    return DeviceInfo(
        index=index,
        uuid=f"GPU-{uuid.UUID(bytes=key, version=4)}",
        profile=profile,
        serial=str(1_650_000_000_000 + stable_key(seed, "serial", node_index, index) % 10**9),
        pci_bus=bus,
        pci_domain=index // len(PCI_BUSES),
    )
