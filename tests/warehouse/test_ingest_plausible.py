"""What cannot be true never enters a sum: rows are refused, values become NULL with a reason."""

from __future__ import annotations

import json

import pytest

from idlewatt.columns import Group, missing_reason
from idlewatt.model import Missing
from idlewatt.ranges import SAMPLE_RANGES
from idlewatt.units import US_PER_S
from warehouse import refusals

REASONS = "SELECT reason, sum(row_count)::BIGINT FROM quarantine GROUP BY 1 ORDER BY 1"


@pytest.mark.parametrize("obs_ms", [0, -1000, 3_600_001, 2**31 - 1])
def test_interval_that_cannot_be(bench, kit, obs_ms):
    bench.send(kit.batch(1, [kit.sample(0, obs_ms=obs_ms), kit.sample(5)]))
    assert bench.count() == 1
    assert bench.rows(REASONS) == [("obs_ms is not within 1 and 3600000", 1)]


@pytest.mark.parametrize("name", sorted(SAMPLE_RANGES))
def test_value_out_of_its_range_is_null_with_a_reason(bench, kit, name):
    low, high = SAMPLE_RANGES[name]
    limits = {"energy_uj": (low, 10_000_000_000)}.get(name, (low, high))
    tops = {
        "dt_ms": 2**31 - 1,
        "event_reasons": 2**63 - 1,
        "n_procs": 32_767,
        "sm_clock_mhz": 30_000,
    }
    values = [limits[0], limits[1], limits[0] - 1]
    if name not in tops:
        values.append(limits[1] + 1)
    number = float if "active" in name or name == "sm_occupancy" else int
    rows = [kit.sample(at, **{name: number(value)}) for at, value in enumerate(values)]
    bench.send(kit.batch(1, rows))
    found = bench.rows(f"SELECT {name}, missing FROM gpu_sample ORDER BY ts_utc")
    assert [value for value, _ in found[:2]] == [number(value) for value in limits]
    assert [value for value, _ in found[2:]] == [None] * (len(values) - 2)
    for _, missing in found[2:]:
        assert missing.bit_count() == 1
        assert Missing.IMPLAUSIBLE in {missing_reason(missing, group) for group in Group}
    assert all(not missing for _, missing in found[:2])


def test_reasons_that_are_there_stay_and_energy_goes_with_its_source(bench, kit):
    lost = int(Missing.LOST) << 4 * Group.POWER
    rows = [
        kit.sample(0, energy_source="wishes", activity_source="gpm", power_scope="gpu"),
        kit.sample(1, energy_uj=-1),
        kit.sample(2, power_scope="city", missing=lost),
        kit.sample(3, activity_source="x"),
        kit.sample(4, missing=-1),
    ]
    bench.send(kit.batch(1, rows))
    found = bench.rows(
        "SELECT energy_uj, energy_source, power_scope, activity_source, missing "
        "FROM gpu_sample ORDER BY ts_utc"
    )
    power = int(Missing.IMPLAUSIBLE) << 4 * Group.POWER
    activity = int(Missing.IMPLAUSIBLE) << 4 * Group.ACTIVITY
    quality = int(Missing.IMPLAUSIBLE) << 4 * Group.QUALITY
    whole = (100_000_000, "power_avg")
    assert found == [
        (None, None, "gpu", "gpm", power),
        (None, None, None, None, power),
        (*whole, None, None, lost),
        (*whole, None, None, activity),
        (*whole, None, None, quality),
    ]


def test_rows_that_overlap_or_fall_between_seconds_are_refused(bench, kit):
    def at(ms, **more):
        return kit.sample(0, ts_utc=kit.T0_S * US_PER_S + ms * 1000, **more)

    bench.send(kit.batch(1, [at(0), at(1), at(1000)]))
    history = [at(ms, gpu="B") for ms in range(0, 3000, 100)]
    history += [at(ms, gpu="C", obs_ms=10_000) for ms in (500, 10_500, 20_490)]
    history += [kit.sample(0, "D", ts_utc=kit.T0_S * US_PER_S + 1)]
    bench.send(kit.batch(1, history, lane="backfill"))
    assert bench.rows("SELECT gpu_uuid, count(*) FROM gpu_sample GROUP BY 1 ORDER BY 1") == [
        ("B", 1),
        ("C", 3),
        ("GPU-0", 2),
    ]
    assert bench.rows(REASONS) == [
        ("overlaps another row of its GPU", 29),
        ("ts_utc is not a whole second (backfill: millisecond)", 2),
    ]


def test_many_refused_rows_are_counted_and_some_kept(bench, kit, monkeypatch, caplog):
    monkeypatch.setattr(refusals, "KEPT", 3)
    bench.send(kit.batch(1, [kit.sample(at, obs_ms=0) for at in range(50)] + [kit.sample(60)]))
    assert bench.count() == 1
    kept = bench.rows("SELECT content, row_count FROM quarantine ORDER BY row_count, content")
    assert [rows for _, rows in kept] == [1, 1, 1, 47]
    assert json.loads(kept[0][0])["ts_utc_us"] == kit.T0_S * US_PER_S
    assert sum("refused" in record.getMessage() for record in caplog.records) == 1
