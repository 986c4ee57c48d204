"""GPU models: watts, clocks, limits, heat and sensors, each number with its source.

The sensor figures follow the published measurements of NVML's power sensors (arXiv 2312.02741) and
were fixed before any detector existed; nobody tunes them to make a detector look better.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from idlewatt.errors import UsageError

ASSUMED: Final = "assumed"
PARKING: Final = "arXiv 2605.23918 (parking tax), measured board"
EXEC_IDLE: Final = "arXiv 2604.04745 (execution-idle)"
SENSORS: Final = "arXiv 2312.02741, results workbook"
CAPTURE: Final = "public nvidia-smi capture of this model"
NVML_H: Final = "nvml.h"

ARCH_AMPERE: Final = 7
ARCH_ADA: Final = 8
ARCH_HOPPER: Final = 9


@dataclass(frozen=True, slots=True)
class Figure:
    """One number and where it comes from."""

    value: float
    source: str = ASSUMED

    def __float__(self) -> float:
        return float(self.value)


@dataclass(frozen=True, slots=True)
class Sensor:
    """One power sensor: a boxcar of `window_s` that ends `lag_s` ago, renewed each `period_s`."""

    window_s: Figure
    period_s: Figure
    lag_s: Figure


@dataclass(frozen=True, slots=True)
class PowerModel:
    """Watts of the board and errors of its sensors.

    Attributes:
        bare_w: no context anywhere.
        resident_w: a context is open, nothing runs, clocks are high.
        peak_w: everything busy at the highest clock.
        average: the driver's one-second average; None where the model lacks it.
        instant: the latest reading.
        gain_spread: boards differ by a proportional error within +- this.
        noise_ratio: standard deviation of one reading, share of the reading.
        noise_w: standard deviation of one reading, constant part.
        counter_period_s: the energy counter is renewed each so many seconds.
        counter_spread: boards differ in the counter's proportional error within +- this. The
            counter is an own accumulation; published comparisons of counter and integrated power
            agree within 1 %, so its error is kept apart from, and smaller than, `gain_spread`.
    """

    bare_w: Figure
    resident_w: Figure
    peak_w: Figure
    average: Sensor | None
    instant: Sensor
    gain_spread: Figure = Figure(0.05, SENSORS)
    noise_ratio: Figure = Figure(0.005)
    noise_w: Figure = Figure(0.3)
    counter_period_s: Figure = Figure(0.1, "Zeus: about 100 ms on current boards")
    counter_spread: Figure = Figure(0.005, "assumed; counter and integral agree within 1 % (Zeus)")


@dataclass(frozen=True, slots=True)
class ClockModel:
    """Clocks in MHz; with a context open they stay at the top."""

    sm_idle_mhz: Figure
    sm_max_mhz: Figure
    mem_idle_mhz: Figure
    mem_max_mhz: Figure
    pstate_idle: int = 0
    mem_switch: int = 0  # field 298: 0 unsupported, 1 at driver reload, 2 at run time


@dataclass(frozen=True, slots=True)
class ThermalModel:
    """Steady state `base_c + c_per_w * watts`, reached with `tau_s`."""

    base_c: Figure
    c_per_w: Figure
    tau_s: Figure = Figure(45.0)
    mem_offset_c: Figure | None = None


@dataclass(frozen=True, slots=True)
class GpuProfile:
    """Everything the simulation knows about a GPU model."""

    key: str
    name: str
    arch: int
    power: PowerModel
    clocks: ClockModel
    thermal: ThermalModel
    limit_min_w: Figure
    limit_default_w: Figure
    limit_max_w: Figure
    mem_total_mib: Figure
    mem_reserved_mib: Figure
    pcie_gen: int
    pcie_gen_idle: int
    pcie_width: int
    pcie_max_gb_s: Figure
    nvlink_links: int
    nvlink_max_gb_s: Figure
    util_period_s: Figure
    gpm: bool
    mig_capable: bool
    pcie_byte_fields: bool
    pci_device_id: int
    pci_subsystem_id: int


H100_SXM: Final = GpuProfile(
    key="H100-SXM",
    name="NVIDIA H100 80GB HBM3",
    arch=ARCH_HOPPER,
    power=PowerModel(
        bare_w=Figure(71.8, PARKING),
        resident_w=Figure(121.7, PARKING),
        peak_w=Figure(700.0, "board limit (" + CAPTURE + ")"),
        average=Sensor(Figure(1.0, SENSORS), Figure(0.1, SENSORS), Figure(0.05)),
        instant=Sensor(Figure(0.025, SENSORS), Figure(0.1, SENSORS), Figure(0.1, SENSORS)),
    ),
    clocks=ClockModel(
        sm_idle_mhz=Figure(345, CAPTURE),
        sm_max_mhz=Figure(1980, CAPTURE),
        mem_idle_mhz=Figure(2619, CAPTURE),
        mem_max_mhz=Figure(2619, CAPTURE),
    ),
    thermal=ThermalModel(
        base_c=Figure(38.8, "line through 41 C at 70 W and 59 C at 632 W (" + CAPTURE + ")"),
        c_per_w=Figure(0.032, "same line"),
        mem_offset_c=Figure(7, CAPTURE),
    ),
    limit_min_w=Figure(200, CAPTURE),
    limit_default_w=Figure(700, CAPTURE),
    limit_max_w=Figure(700, CAPTURE),
    mem_total_mib=Figure(81559, CAPTURE),
    mem_reserved_mib=Figure(479, CAPTURE),
    pcie_gen=5,
    pcie_gen_idle=5,
    pcie_width=16,
    pcie_max_gb_s=Figure(55.0),
    nvlink_links=18,
    nvlink_max_gb_s=Figure(450.0, "published link rate, one direction"),
    util_period_s=Figure(1.0, "between 1/6 s and 1 s by product (" + NVML_H + ")"),
    gpm=True,
    mig_capable=True,
    pcie_byte_fields=True,
    pci_device_id=0x233010DE,
    pci_subsystem_id=0x16C110DE,
)

A100_SXM4: Final = GpuProfile(
    key="A100-SXM4-80GB",
    name="NVIDIA A100-SXM4-80GB",
    arch=ARCH_AMPERE,
    power=PowerModel(
        bare_w=Figure(53.7, PARKING + " (PCIe form; SXM4 assumed equal)"),
        resident_w=Figure(80.0, PARKING + " (PCIe form; SXM4 assumed equal)"),
        peak_w=Figure(400.0, EXEC_IDLE + ", power limit"),
        average=None,
        instant=Sensor(Figure(0.025, SENSORS), Figure(0.1, SENSORS), Figure(0.1)),
        gain_spread=Figure(0.055, SENSORS + ", A100 card at -5.5 %"),
    ),
    clocks=ClockModel(
        sm_idle_mhz=Figure(210, PARKING),
        sm_max_mhz=Figure(1410, CAPTURE),
        mem_idle_mhz=Figure(1593, CAPTURE),
        mem_max_mhz=Figure(1593, CAPTURE),
    ),
    thermal=ThermalModel(
        base_c=Figure(24.0, "27 C at 67 W (" + CAPTURE + ")"),
        c_per_w=Figure(0.09),
        mem_offset_c=Figure(12, "assumed; capture shows 17 at idle"),
    ),
    limit_min_w=Figure(100, CAPTURE),
    limit_default_w=Figure(400, EXEC_IDLE),
    limit_max_w=Figure(400, EXEC_IDLE),
    mem_total_mib=Figure(81920, CAPTURE),
    mem_reserved_mib=Figure(619),
    pcie_gen=4,
    pcie_gen_idle=4,
    pcie_width=16,
    pcie_max_gb_s=Figure(26.0),
    nvlink_links=12,
    nvlink_max_gb_s=Figure(300.0, "published link rate, one direction"),
    util_period_s=Figure(1.0, "between 1/6 s and 1 s by product (" + NVML_H + ")"),
    gpm=False,
    mig_capable=True,
    pcie_byte_fields=False,
    pci_device_id=0x20B210DE,
    pci_subsystem_id=0x147F10DE,
)

L40S: Final = GpuProfile(
    key="L40S",
    name="NVIDIA L40S",
    arch=ARCH_ADA,
    power=PowerModel(
        bare_w=Figure(35.6, PARKING),
        resident_w=Figure(102.1, PARKING),
        peak_w=Figure(350.0, "board limit (" + CAPTURE + ")"),
        average=Sensor(Figure(1.0, SENSORS), Figure(0.1, SENSORS), Figure(0.05)),
        instant=Sensor(Figure(0.1, SENSORS), Figure(0.1, SENSORS), Figure(0.05)),
    ),
    clocks=ClockModel(
        sm_idle_mhz=Figure(210, PARKING),
        sm_max_mhz=Figure(2520, CAPTURE),
        mem_idle_mhz=Figure(405),
        mem_max_mhz=Figure(9001, CAPTURE),
        pstate_idle=8,
        mem_switch=2,
    ),
    thermal=ThermalModel(
        base_c=Figure(30.0),
        c_per_w=Figure(0.1, "assumed; capture warms by 10 C over about 100 W"),
    ),
    limit_min_w=Figure(100, CAPTURE),
    limit_default_w=Figure(350, CAPTURE),
    limit_max_w=Figure(350, CAPTURE),
    mem_total_mib=Figure(46068, CAPTURE),
    mem_reserved_mib=Figure(609, CAPTURE),
    pcie_gen=4,
    pcie_gen_idle=1,
    pcie_width=16,
    pcie_max_gb_s=Figure(26.0),
    nvlink_links=0,
    nvlink_max_gb_s=Figure(0.0, "has none"),
    util_period_s=Figure(1 / 6, "between 1/6 s and 1 s by product (" + NVML_H + ")"),
    gpm=False,
    mig_capable=False,
    pcie_byte_fields=True,
    pci_device_id=0x26B910DE,
    pci_subsystem_id=0x185110DE,
)

PROFILES: Final = {profile.key: profile for profile in (H100_SXM, A100_SXM4, L40S)}
_SHORT: Final = {"H100": H100_SXM, "A100": A100_SXM4}


def profile(key: str) -> GpuProfile:
    """Return the profile called `key`, also by its short name.

    Raises:
        UsageError: there is none.
    """
    found = PROFILES.get(key) or _SHORT.get(key)
    if found is None:
        raise UsageError(f"unknown GPU model {key!r}; known: {', '.join(PROFILES)}")
    return found
