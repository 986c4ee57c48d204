"""What Fleet says about GPUs that fell silent, small energies, and live states by utilisation."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from dashboard import format as fmt
from dashboard.theme import Look
from dashboard.views import fleet, fleet_map


def test_silent_nodes_say_when_they_were_heard_last(
    filled: Any, make_models: Callable[..., Any]
) -> None:
    shot = make_models(filled)[0].fleet(900)
    told = ["gpu05.example (4 GPUs): last sample 12:30:56 UTC."]
    assert fleet.silent_nodes(shot.gpus, shot.as_of_us) == told
    tile = next(one for one in fleet.tiles(shot) if one.key == "no_data")
    assert tile.help.endswith(told[0])
    at = shot.gpus["look"].to_list().index(Look.NO_DATA.value)
    assert ("Last sample", "04 May 12:30:56 UTC") in fleet_map.describe(shot.gpus, at)


def test_nobody_silent_says_nothing(store: Any, make_models: Callable[..., Any]) -> None:
    store.con.execute(
        "INSERT INTO gpu_sample BY NAME SELECT TIMESTAMP '2026-05-04 12:34:56' AS ts_utc, "
        "'n' AS node_id, 'GPU-a' AS gpu_uuid, 1000 AS obs_ms, 1 AS epoch"
    )
    store.count_hours()
    shot = make_models(store)[0].fleet(900)
    assert fleet.silent_nodes(shot.gpus, shot.as_of_us) == []


def test_mean_power_against_instant_decides_by_utilisation(
    store: Any, make_models: Callable[..., Any]
) -> None:
    """A second whose energy stands far above its last instant had work in it that util missed."""
    store.con.execute(
        "INSERT INTO gpu_sample BY NAME SELECT ts_utc, 'n' AS node_id, gpu AS gpu_uuid, "
        "1000 AS obs_ms, 1 AS epoch, true AS resident, 0 AS util_gpu_pct, 0 AS util_mem_pct, "
        "60000 AS power_inst_mw, 300000 AS power_limit_mw, 'counter' AS energy_source, "
        "CASE WHEN gpu = 'GPU-busy' THEN 250000000 ELSE 60000000 END AS energy_uj "
        "FROM range(TIMESTAMP '2026-05-04 12:34:00', TIMESTAMP '2026-05-04 12:34:57', "
        "INTERVAL 1 SECOND) r(ts_utc), (VALUES ('GPU-busy'), ('GPU-calm')) g(gpu)"
    )
    store.count_hours()
    shot = make_models(store)[0].fleet(900)
    looks = dict(shot.gpus.select("gpu_uuid", "look").iter_rows())
    assert looks == {
        "GPU-busy": Look.ACTIVE.value,
        "GPU-calm": Look.EXECUTION_IDLE.value,
    }


@pytest.mark.parametrize(
    ("kwh", "text"),
    [
        (None, "\u2013"),
        (0.0, "0 kWh"),
        (0.000_004, "< 0.01 Wh"),
        (0.000_5, "0.50 Wh"),
        (0.004, "4.00 Wh"),
        (0.0994, "99.4 Wh"),
        (0.1, "0.10 kWh"),
        (12.34, "12.3 kWh"),
        (123_456.0, "123 MWh"),
    ],
)
def test_energy_has_the_unit_that_fits(kwh: float | None, text: str) -> None:
    assert fmt.energy(kwh) == text.replace(" ", fmt.THIN)


@pytest.mark.parametrize(
    ("kwh", "price", "text"),
    [
        (None, 0.3, "\u2013"),
        (1.0, 0.0, "\u2013"),
        (0.0, 0.3, "0.00 EUR"),
        (0.001, 0.3, "< 0.01 EUR"),
        (10.0, 0.25, "2.50 EUR"),
        (100_000.0, 0.25, "25 000 EUR"),
    ],
)
def test_money(kwh: float | None, price: float, text: str) -> None:
    assert fmt.money(kwh, price, "EUR") == text.replace(" ", fmt.THIN)
