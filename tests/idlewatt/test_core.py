"""Errors, columns, clock, units and the layers."""

from __future__ import annotations

import inspect
import subprocess
import sys
from pathlib import Path

import pytest

from idlewatt import clock, columns, errors, units
from idlewatt.columns import GPU_SAMPLE, Group, missing_bits, missing_reason
from idlewatt.model import Missing

ROOT = Path(__file__).parents[2]


def test_the_error_tree_exports_all_its_classes() -> None:
    classes = {
        name
        for name, value in vars(errors).items()
        if inspect.isclass(value) and issubclass(value, Exception)
    }
    assert classes == set(errors.__all__)
    assert all(issubclass(getattr(errors, name), errors.IdlewattError) for name in classes)
    assert all(name in (errors.__doc__ or "") for name in classes)


def test_column_names_are_unique_and_groups_in_order() -> None:
    for name, table in columns.TABLES.items():
        names = [column.name for column in table]
        assert len(set(names)) == len(names), name
    groups = [column.group for column in GPU_SAMPLE]
    assert groups == sorted(groups)
    assert max(Group) * columns.BITS_PER_GROUP + columns.BITS_PER_GROUP <= 63


def test_missing_bits_known_answer() -> None:
    value = missing_bits({Group.POWER: Missing.LOST, Group.LINKS: Missing.STALE})
    assert value == (5 << 4) | (3 << 16)
    assert missing_reason(value, Group.POWER) == Missing.LOST
    assert missing_reason(value, Group.ACTIVITY) == Missing.OBSERVED


def test_a_milliwatt_for_a_millisecond_is_a_microjoule() -> None:
    assert units.energy_uj(250_000, 1_000) == 250 * units.UJ_PER_J
    assert units.kwh_from_uj(3_600_000 * 1_000_000) == 1.0


def test_virtual_clock_moves_only_when_told() -> None:
    time = clock.VirtualClock(1_000_000)
    time.wait(1.5)
    assert (time.now_us(), time.monotonic_ns()) == (2_500_000, 1_500_000_000)
    time.step_wall(-2)
    assert (time.now_us(), time.monotonic_ns()) == (500_000, 1_500_000_000)


def test_utc_round_trip() -> None:
    assert clock.iso_utc(1_700_000_000_000_000) == "2023-11-14T22:13:20Z"
    assert clock.us_from_utc(clock.utc_from_us(1_700_000_000_123_456)) == 1_700_000_000_123_456


def test_layers_hold() -> None:
    script = Path(sys.executable).with_name("lint-imports")
    if not script.exists():
        pytest.fail("import-linter is not installed beside this Python")
    done = subprocess.run([script], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
    assert "KEPT" in done.stdout
