"""The Waste page's view models on the fixture's hand-made numbers."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import polars as pl
import pytest
from dash.exceptions import PreventUpdate

from dashboard import format as fmt
from dashboard.pages.waste import render
from dashboard.views import waste, waste_chart, waste_tables
from dashboard.waste_model import NO_PRICE, Price, WasteSnapshot

IDLE_KWH = (8 * 3300 * 130 + 4 * 5681 * 120 + 1201 * 90) / 3.6e6
HELD_KWH = 4 * 2081 * 70 / 3.6e6
ACTIVE_KWH = (8 * 3600 * 400 + 16 * 3600 * 600) / 3.6e6


@pytest.fixture
def shot(filled: Any, make_models: Callable[..., Any]) -> WasteSnapshot:
    found: WasteSnapshot = make_models(filled)[0].waste.read("24h")
    return found


def value_of(text: str) -> float:
    """Return the number of a text like `1.74 kWh` in kWh."""
    number, unit = text.replace(fmt.THIN, " ").rsplit(" ", 1)
    return float(number.replace(" ", "")) * {"kWh": 1.0, "Wh": 1e-3}[unit]


def test_sums_of_the_fixture(shot: WasteSnapshot) -> None:
    found = waste.sums(shot)
    assert found.kwh["execution_idle"] == pytest.approx(IDLE_KWH)
    assert found.kwh["held_empty"] == pytest.approx(HELD_KWH)
    assert found.kwh["active"] == pytest.approx(ACTIVE_KWH)
    assert found.total_kwh == pytest.approx(IDLE_KWH + HELD_KWH + ACTIVE_KWH)
    assert (found.hours, found.silent, found.waiting, found.behind) == (24, 21, 0, 0)
    # 48 GPUs known for 24 hours up to 12:34:40 inclusive, and three hours of those have samples.
    seen_h = (8 * 3300 + 4 * 5681 + 1201 + 4 * 2081 + 8 * 3600 + 16 * 3600) / 3600
    assert found.coverage == pytest.approx(seen_h / (48 * (2 + 2081 / 3600)))


def test_parts_add_up_to_their_tile(shot: WasteSnapshot) -> None:
    tiles = {one.key: one for one in waste.tiles(shot)}
    idle = tiles["execution_idle"].value
    for by in ("job", "user", "gpu"):
        table = waste_tables.execution_idle(shot, by)
        energy = table.columns.index("Energy") - 1
        *parts, (name, last) = table.rows
        assert (name.text, last[energy]) == ("All", idle)
        together = sum(value_of(cells[energy]) for _, cells in parts)
        assert together == pytest.approx(IDLE_KWH, rel=0.02)
        assert f"add up to {idle}" in table.summary
    held = waste_tables.held_empty(shot)
    assert held.rows[-1][1][held.columns.index("Energy") - 1] == tiles["held_empty"].value
    text = waste_chart.summary(shot)
    assert text.startswith(f"All bars together: {fmt.energy(IDLE_KWH + HELD_KWH + ACTIVE_KWH)} = ")


def test_rows_beyond_the_limit_stay_in_the_sum(shot: WasteSnapshot) -> None:
    few = replace(shot, by={"job": shot.by["job"].head(1)})
    table = waste_tables.execution_idle(few, "job")
    names = [name.text for name, _ in table.rows]
    assert names == ["104", "2 others with less", "All"]
    energy = table.columns.index("Energy") - 1
    first, rest, last = (value_of(cells[energy]) for _, cells in table.rows)
    assert first + rest == pytest.approx(last, abs=0.011)


def test_what_no_job_held_is_a_row_of_its_own(shot: WasteSnapshot) -> None:
    for by in ("job", "user"):
        table = waste_tables.execution_idle(shot, by)
        assert waste_tables.NOBODY in [name.text for name, _ in table.rows]
    (link,) = {
        name.href for name, _ in waste_tables.execution_idle(shot, "job").rows if name.text == "102"
    }
    assert link == "/jobs/alpha%3A102%3A0"


def test_money_shows_only_with_a_price(shot: WasteSnapshot) -> None:
    bare = replace(shot, price=NO_PRICE)
    (cost,) = [one for one in waste.tiles(bare) if one.key == "cost"]
    assert (cost.value, cost.note) == (fmt.NOTHING, waste.MONEY_HINT)
    assert "Cost" not in waste_tables.execution_idle(bare, "job").columns
    dear = replace(shot, price=Price(0.5, "EUR"))
    (cost,) = [one for one in waste.tiles(dear) if one.key == "cost"]
    assert cost.value == fmt.money(IDLE_KWH + HELD_KWH, 0.5, "EUR")
    assert "Cost" in waste_tables.held_empty(dear).columns
    assert cost.value in waste.headline(dear)


def test_hours_not_analysed_are_said_and_drawn(shot: WasteSnapshot) -> None:
    cut = pl.col("hour_utc") == pl.datetime(2026, 5, 4, 11)
    frame = shot.by_hour.filter(~cut | (pl.col("state") == "active")).with_columns(
        state=pl.when(cut).then(None).otherwise("state"),
        energy_kwh=pl.when(cut).then(None).otherwise("energy_kwh"),
        seen_h=pl.when(cut).then(0.0).otherwise("seen_h"),
        energy_seen_h=pl.when(cut).then(0.0).otherwise("energy_seen_h"),
    )
    part = replace(shot, by_hour=frame)
    assert waste.sums(part).waiting == 1
    assert "1 hour is not yet analysed and not counted" in waste.headline(part)
    layout = waste_chart.figure(part, "light", "24h")["layout"]
    assert [one["text"] for one in layout["annotations"]] == ["not yet analysed", "no samples"]
    rows = {row[0]: row for row in waste_chart.rows(part)}
    assert rows["11:00"][-1] == "not yet"
    assert set(rows["11:00"][1:-1]) == {fmt.NOTHING}
    assert rows["12:00"][-1] == "in part"
    assert rows["10:00"][-1] == "yes"
    assert rows["03 May 13:00"][-1] == "no samples"


def test_bars_and_table_hold_the_same_numbers(shot: WasteSnapshot) -> None:
    drawn = waste_chart.figure(shot, "dark", "24h")["data"]
    by_name = {trace["name"]: trace["y"] for trace in drawn}
    assert by_name["Active"][-3:] == [1.6, 11.2, None]
    assert by_name["Held, empty"][-1] == pytest.approx(HELD_KWH, abs=1e-6)
    assert all(trace["x0"] == "2026-05-03T13:00:00Z" for trace in drawn)
    table = waste_chart.rows(shot)
    assert table[1][:4] == ["11:00", "11.2\u202fkWh", "1.00\u202fkWh", "0\u202fkWh"]
    assert len(json.dumps(drawn)) < 20_000


def test_nothing_analysed_gives_no_zero(store: Any, make_models: Callable[..., Any]) -> None:
    empty = make_models(store)[0].waste.read("24h")
    assert waste.headline(empty) == "No sample has arrived yet."
    assert render(empty, ("light", "24h", "job"), {})["empty_class"] == "card empty"
    store.con.execute(
        "INSERT INTO gpu_sample BY NAME SELECT TIMESTAMP '2026-05-04 12:34:56' AS ts_utc, "
        "'n' AS node_id, 'GPU-a' AS gpu_uuid, 1000 AS obs_ms, 1 AS epoch"
    )
    store.count_hours()
    fresh = make_models(store)[0].waste.read("24h")
    assert waste.sums(fresh).waiting == 1
    assert "nothing is analysed yet" in waste.headline(fresh)
    assert {one.value for one in waste.tiles(fresh)} == {fmt.NOTHING}
    assert waste_tables.execution_idle(fresh, "gpu").rows == []
    assert waste_chart.rows(fresh)[0][-1] == "not yet"


def test_page_sends_only_what_changed(shot: WasteSnapshot) -> None:
    first = render(shot, ("light", "24h", "job"), {})
    assert "figure" in first["figure"] or first["figure"]["data"]
    with pytest.raises(PreventUpdate):
        render(shot, ("light", "24h", "job"), first["seen"])
    other = render(shot, ("light", "24h", "user"), first["seen"])
    sent = {name for name, value in other.items() if type(value).__name__ != "NoUpdate"}
    assert {"idle", "idle_summary", "seen"} <= sent
    assert not {"figure", "tiles", "held"} & sent


def test_snapshots_are_kept_a_while(filled: Any, make_models: Callable[..., Any]) -> None:
    models, clock = make_models(filled)
    before = filled.snapshots
    first = models.waste.read("24h")
    clock.advance(14.0)
    assert models.waste.read("24h") is first
    assert filled.snapshots == before + 1
    clock.advance(2.0)
    assert models.waste.read("24h") is not first
    # A window that is none is the first one.
    assert models.waste.read("../etc").from_us == first.from_us
