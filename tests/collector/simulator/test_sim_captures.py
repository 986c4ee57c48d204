"""Facts of the profiles against public captures of real boards."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from collector.simulator.profiles import profile

H100 = "nvidia-smi/linux-x86_64__nvidia-h100-80gb-hbm3__590.48.01.txt"
L40S = "nvidia-smi/linux-x86_64__nvidia-l40s__595.80.txt"
A100 = "nvidia-smi-xml/a100-sxm4-v12.xml"


def capture(name: str) -> str:
    root = os.environ.get("IDLEWATT_TEST_DATA")
    if not root:
        pytest.skip("IDLEWATT_TEST_DATA is unset: no captures of real boards here")
    path = Path(root) / name
    if not path.exists():
        pytest.skip(f"{name} is not among the test data")
    return path.read_text("utf-8", "replace")


def numbers(text: str, label: str, unit: str) -> list[float]:
    """Return the values of `label : number unit` lines, in order."""
    return [
        float(value)
        for value in re.findall(rf"^\s*{re.escape(label)}\s*: ([0-9.]+) {unit}\s*$", text, re.M)
    ]


@pytest.mark.parametrize(("model", "name"), [("H100-SXM", H100), ("L40S", L40S)])
def test_limits_memory_and_clocks_are_those_of_the_board(model: str, name: str) -> None:
    text, known = capture(name), profile(model)
    assert known.name in text
    assert numbers(text, "Min Power Limit", "W")[0] == known.limit_min_w.value
    assert numbers(text, "Default Power Limit", "W")[0] == known.limit_default_w.value
    assert numbers(text, "Max Power Limit", "W")[0] == known.limit_max_w.value
    assert known.mem_total_mib.value in numbers(text, "Total", "MiB")
    assert known.mem_reserved_mib.value in numbers(text, "Reserved", "MiB")
    assert known.clocks.sm_max_mhz.value in numbers(text, "SM", "MHz")
    assert known.clocks.mem_max_mhz.value in numbers(text, "Memory", "MHz")
    assert f"{known.pci_device_id:#010X}".replace("X", "x") in text


def test_an_idle_h100_is_about_as_warm_and_hungry_as_the_captured_one() -> None:
    text, known = capture(H100), profile("H100")
    watts = numbers(text, "Average Power Draw", "W")
    celsius = numbers(text, "GPU Current Temp", "C")
    idle, load = watts[0], max(watts)
    assert known.power.bare_w.value == pytest.approx(idle, rel=0.05)
    assert known.power.peak_w.value > load
    heat = known.thermal
    for power, temp in ((idle, celsius[0]), (load, max(celsius))):
        assert heat.base_c.value + heat.c_per_w.value * power == pytest.approx(temp, abs=1.0)
    assert known.clocks.sm_idle_mhz.value in numbers(text, "SM", "MHz")


def test_the_a100_capture_agrees_on_clocks_memory_and_links() -> None:
    text, known = capture(A100), profile("A100")
    assert f"<product_name>{known.name}<" in text
    for value, unit, tag in (
        (known.clocks.sm_max_mhz.value, "MHz", "sm_clock"),
        (known.clocks.mem_max_mhz.value, "MHz", "mem_clock"),
        (known.mem_total_mib.value, "MiB", "total"),
    ):
        assert f"<{tag}>{value:g} {unit}<" in text
    assert f"<max_link_gen>{known.pcie_gen}<" in text
    assert f"<min_power_limit>{known.limit_min_w.value:.2f} W<" in text
