"""GPUs that do the same thing for ever; needs no numpy, for trials of the base install."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from collector.simulator.device import (
    SIGNALS,
    DeviceInfo,
    Integrals,
    Process,
    Reading,
    Settable,
    device_info,
)
from collector.simulator.profiles import GpuProfile, profile
from collector.simulator.standin import StandIn, install
from idlewatt.clock import Clock, SystemClock
from idlewatt.units import MIB, US_PER_S

CONSTANT_ENERGY_BASE_MJ: Final = 1_000_000_000
_BUSY: Final = {"gr_active": 0.9, "sm_active": 0.6, "sm_occupancy": 0.3, "dram_active": 0.4}


@dataclass(frozen=True, slots=True)
class ConstantLoad:
    """What every GPU does.

    Attributes:
        power_w: power; None means resident or bare idle watts of the model.
        activity: ratios by signal name; others are 0.
        resident: whether a process holds a context.
    """

    power_w: float | None = None
    activity: tuple[tuple[str, float], ...] = tuple(_BUSY.items())
    resident: bool = True


class ConstantProvider:
    """Devices whose power and activity never change; the energy counter runs with the clock."""

    def __init__(
        self,
        gpus: int = 2,
        model: str = "H100",
        clock: Clock | None = None,
        load: ConstantLoad | None = None,
    ) -> None:
        self._profile: GpuProfile = profile(model)
        self._clock = clock or SystemClock()
        self._load = load or ConstantLoad()
        self._begin_us = self._clock.now_us()
        self.devices: tuple[DeviceInfo, ...] = tuple(
            device_info(0, 0, index, self._profile) for index in range(gpus)
        )
        self._rates = tuple(dict(self._load.activity).get(name, 0.0) for name in SIGNALS)
        self._settables: dict[int, Settable] = {}

    @property
    def power_w(self) -> float:
        """Return the watts of each GPU."""
        power = self._profile.power
        if self._load.power_w is not None:
            return self._load.power_w
        return float(power.resident_w if self._load.resident else power.bare_w)

    def now_us(self) -> int:
        """Return UTC wall time in µs since 1970."""
        return self._clock.now_us()

    def elapsed_s(self) -> float:
        """Return seconds since the provider began."""
        return (self._clock.now_us() - self._begin_us) / US_PER_S

    def integrals(self, index: int) -> Integrals:
        """Return the activity counters of GPU `index` now."""
        del index  # all alike
        now_s = self.elapsed_s()
        return Integrals(now_s, tuple(rate * now_s for rate in self._rates))

    def changed(self, index: int, settable: Settable) -> None:
        """Take note that a lock of GPU `index` changed; its clocks follow."""
        self._settables[index] = settable

    def read(self, index: int) -> Reading:
        """Return what GPU `index` shows now."""
        model, clocks = self._profile, self._profile.clocks
        power_mw = round(self.power_w * 1_000)
        resident = self._load.resident
        used = 10_240 * MIB if resident else 0
        process: Process = (100_000 + index, used)
        rates = dict(zip(SIGNALS, self._rates, strict=True))
        sm_clock = round(float(clocks.sm_max_mhz if resident else clocks.sm_idle_mhz))
        lock = self._settables[index].sm_lock_mhz if index in self._settables else None
        heat = model.thermal
        temp_c = heat.base_c.value + heat.c_per_w.value * self.power_w
        offset = heat.mem_offset_c
        return Reading(
            power_inst_mw=power_mw,
            power_avg_mw=power_mw if model.power.average else None,
            energy_mj=CONSTANT_ENERGY_BASE_MJ + int(power_mw * self.elapsed_s()),
            sm_clock_mhz=min(max(sm_clock, lock[0]), lock[1]) if lock else sm_clock,
            mem_clock_mhz=round(float(clocks.mem_max_mhz)),
            temp_gpu_c=round(temp_c),
            temp_mem_c=None if offset is None else round(temp_c + offset.value),
            pstate=0 if resident else clocks.pstate_idle,
            event_reasons=0 if resident else 1,
            util_gpu_pct=round(rates["gr_active"] * 100),
            util_mem_pct=round(rates["dram_active"] * 100),
            mem_used_bytes=used,
            pcie_gen=model.pcie_gen,
            pcie_width=model.pcie_width,
            pcie_tx_bytes_s=rates["pcie_tx_bytes_s"],
            pcie_rx_bytes_s=rates["pcie_rx_bytes_s"],
            compute=(process,) if resident else (),
        )


def install_constant(
    gpus: int = 2,
    model: str = "H100",
    clock: Clock | None = None,
    load: ConstantLoad | None = None,
) -> StandIn:
    """Return a stand-in with constant GPUs, already installed below pynvml."""
    standin = StandIn(ConstantProvider(gpus, model, clock, load))
    install(standin)
    return standin
