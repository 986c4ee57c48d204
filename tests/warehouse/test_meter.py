"""Wall power: stored once, of the node's own token, and set beside the GPUs."""

from __future__ import annotations

import datetime as dt

import pytest

from idlewatt.errors import WireError
from warehouse.queries import named_query, run_query


def meter(kit, second, power_mw=2_500_000, node="n1", **more):
    values = {
        "node_id": node, "meter_id": "pdu", "ts_utc": (kit.T0_S + second) * 10**6, "obs_ms": 1_000,
        "power_mw": power_mw, "energy_uj": None if power_mw is None else power_mw * 1_000,
        "scope": "wall", "source": "meter-csv",
    }  # fmt: skip
    return kit.row("meter", **(values | more))


def test_readings_are_kept_once(bench, kit):
    bench.send(kit.batch(1, tables=kit.tables(meter=[meter(kit, 0), meter(kit, 1, None)])))
    bench.send(kit.batch(2, tables=kit.tables(meter=[meter(kit, 0, 2_600_000)])))
    found = bench.rows("SELECT power_mw, energy_uj FROM meter ORDER BY ts_utc")
    assert found == [(2_600_000, 2_600_000_000), (None, None)]
    bench.reopen()
    assert bench.count("meter") == 2


def test_a_node_writes_only_its_own(bench, kit):
    with pytest.raises(WireError, match="another node"):
        bench.send(kit.batch(1, tables=kit.tables(meter=[meter(kit, 0, node="n2")])))
    assert bench.count("meter") == 0


def test_meter_beside_gpus_shows_the_rest_with_its_sign(bench, kit):
    gpus = [kit.sample(s, gpu) for s in range(120) for gpu in ("GPU-a", "GPU-b")]
    walls = [meter(kit, s, 1_000_000) for s in range(90)]  # the second minute is not whole
    walls += [meter(kit, s, 400_000, meter_id="ch1", scope="channel") for s in range(90)]
    bench.send(kit.batch(1, gpus, tables=kit.tables(meter=walls)))
    query = named_query("meter_and_gpus")
    (row,) = run_query(bench.store, query.sql, query.bind({})).table.to_pylist()
    hour = dt.datetime(2026, 3, 1, 10)  # noqa: DTZ001 - as DuckDB gives it
    assert (row["node_id"], row["hour_utc"], row["gpus"], row["minutes"]) == ("n1", hour, 2, 1)
    assert row["coverage"] == pytest.approx(1 / 60, abs=1e-4)
    assert row["wall_kwh"] == pytest.approx(60_000 / 3.6e6, abs=1e-4)
    assert row["gpu_kwh"] == pytest.approx(12_000 / 3.6e6, abs=1e-4)
    assert row["rest_kwh"] == pytest.approx(48_000 / 3.6e6, abs=1e-4)
