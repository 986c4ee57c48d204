"""One meaning of coverage in every query: observed over expected, silent devices expected too.

Three devices known since 10:00, newest sample 12:30. GPU-a misses the hour 11, GPU-b is silent from
11:00 on, GPU-c of another node never says anything. A MIG instance of GPU-a reports beside it.
"""

from __future__ import annotations

import contextlib
import datetime as dt

import pytest

from analysis import states_job
from analysis.tables import stamp
from idlewatt.units import US_PER_S
from warehouse.queries import load, named_query, run_query

MINUTE = 60
H = 3600
NEAR = {
    "abs": 0.02
}  # a row a minute describes the minute before: some of it lies in the hour before


def hour(number):
    return dt.datetime(2026, 3, 1, number)  # noqa: DTZ001 - as DuckDB gives it


def minutes(kit, gpu, first_s, last_s, **values):
    watts = values.pop("power_avg_mw", 100_000)
    return [
        kit.sample(
            at, gpu, obs_ms=60_000, power_avg_mw=watts, resident=True, sm_active=0.0,
            dram_active=0.0, util_gpu_pct=0, util_mem_pct=0,
            energy_uj=None if watts is None else watts * 60_000,
            energy_source=None if watts is None else "power_avg", **values,
        )
        for at in range(first_s + MINUTE, last_s + 1, MINUTE)
    ]  # fmt: skip


def device(kit, gpu, node, at_s=1, **more):
    valid_us = (kit.T0_S + at_s) * US_PER_S
    return kit.row("device", gpu_uuid=gpu, node_id=node, valid_from_utc=valid_us, **more)


@pytest.fixture(scope="module")
def bench(tmp_path_factory, make_bench):
    with contextlib.closing(make_bench(tmp_path_factory.mktemp("coverage"))) as made:
        kit = __import__("sys").modules[type(made).__module__].Kit
        rows = minutes(kit, "GPU-a", 0, H - 1) + minutes(kit, "GPU-a", 2 * H, 2 * H + H // 2)
        rows += minutes(kit, "GPU-b", 0, H - 1)
        rows += minutes(kit, "MIG-0", 0, 2 * H + H // 2, power_avg_mw=None, parent_uuid="GPU-a")
        start_us = kit.T0_S * US_PER_S
        tables = kit.tables(
            device=[
                device(kit, "GPU-a", "n1"),
                device(kit, "GPU-b", "n1"),
                device(kit, "MIG-0", "n1", parent_uuid="GPU-a"),
            ],
            job=[kit.row("job", job_key="c:1:0", user_name="somebody", job_class="training")],
            allocation=[
                kit.row("allocation", gpu_uuid="GPU-b", start_utc=start_us, job_key="c:1:0")
            ],
        )
        made.send(kit.batch(1, rows, tables=tables))
        made.send(kit.batch(1, node="n2", tables=kit.tables(device=[device(kit, "GPU-c", "n2")])))
        states_job.refresh(made.store, made.settings, made.clock)
        yield made


def ask(bench, name, **given):
    query = named_query(name)
    return run_query(bench.store, query.sql, query.bind(given)).table.to_pylist()


def view(bench, name, key):
    rows = run_query(bench.store, f"FROM {name}").table.to_pylist()
    return {row[key]: row for row in rows}


def test_hours_of_a_node_are_whole_and_silent_ones_are_expected(bench):
    found = {(row["node_id"], row["hour_utc"]): row for row in ask(bench, "coverage_by_node")}
    coverage = {key: row["coverage"] for key, row in found.items()}
    assert coverage == pytest.approx(
        {
            ("n1", hour(10)): 1.0,
            ("n1", hour(11)): 0.0,
            ("n1", hour(12)): 0.5,
            ("n2", hour(10)): 0.0,
            ("n2", hour(11)): 0.0,
            ("n2", hour(12)): 0.0,
        },
        **NEAR,
    )
    assert found["n1", hour(12)]["gpus"] == 1
    assert found["n1", hour(12)]["expected_gpus"] == 2
    # Looking back so far that the oldest hour would be cut changes nothing about it.
    last = ask(bench, "coverage_by_node", hours=1)
    assert {(row["node_id"], row["hour_utc"]) for row in last} == {
        ("n1", hour(12)),
        ("n2", hour(12)),
    }
    assert last[0] == found["n1", hour(12)]


def test_energy_of_a_node_says_both_how_much_was_seen_and_how_much_has_energy(bench):
    rows = {(row["node_id"], row["hour_utc"]): row for row in ask(bench, "energy_by_node")}
    assert rows["n1", hour(12)]["coverage"] == pytest.approx(0.5, **NEAR)
    assert rows["n1", hour(12)]["energy_coverage"] == 1.0
    assert rows["n1", hour(11)]["coverage"] == pytest.approx(0, **NEAR)
    assert rows["n2", hour(12)]["coverage"] == 0
    assert rows["n2", hour(12)]["power_avg_kwh"] is None


def test_views_count_the_silence_of_known_devices(bench):
    by_gpu = view(bench, "energy_by_gpu", "gpu_uuid")
    assert {key: row["coverage"] for key, row in by_gpu.items()} == pytest.approx(
        {"GPU-a": 0.6, "GPU-b": 0.4, "GPU-c": 0.0}, **NEAR
    )
    by_node = view(bench, "energy_by_node", "node_id")
    assert {key: row["coverage"] for key, row in by_node.items()} == pytest.approx(
        {"n1": 0.5, "n2": 0.0}, **NEAR
    )
    assert by_node["n1"]["energy_coverage"] == 1.0
    assert by_node["n1"]["gpus"] == 2
    assert view(bench, "energy_by_job", "job_key")["c:1:0"]["coverage"] == pytest.approx(
        0.4, **NEAR
    )
    (state,) = view(bench, "energy_by_state", "state").values()
    assert state["coverage"] == pytest.approx(1 / 3, **NEAR)
    assert state["energy_kwh"] == pytest.approx(148 * MINUTE * 100 / 3.6e6, rel=0.01)


def test_every_query_on_results_agrees(bench):
    by_hour = {hour(10): 2 / 3, hour(11): 0.0, hour(12): 1 / 3}
    for name in ("execution_idle_by_hour", "results_coverage"):
        found = {row["hour_utc"]: row["coverage"] for row in ask(bench, name)}
        assert found == pytest.approx(by_hour, **NEAR), name
    for name, key in (("execution_idle_by_gpu", "gpu_uuid"), ("waste_by_gpu", "gpu_uuid")):
        found = {row[key]: row["coverage"] for row in ask(bench, name)}
        assert found["GPU-a"] == pytest.approx(0.6, **NEAR), name
        assert found["GPU-b"] == pytest.approx(0.4, **NEAR), name
    for name in ("execution_idle_by_job", "waste_by_job", "execution_idle_by_user", "top_waste"):
        rows = [row for row in ask(bench, name) if row.get("user_name") == "somebody"]
        assert [row["coverage"] for row in rows] == pytest.approx([0.4], **NEAR), name
    for row in ask(bench, "execution_idle_shares"):
        assert row["coverage"] == pytest.approx(1 / 3, **NEAR)
    user = next(row for row in ask(bench, "waste_by_user") if row["held_by_job"])
    assert user["coverage"] == pytest.approx(0.4, **NEAR)
    states = {row["node_id"]: row["coverage"] for row in ask(bench, "energy_by_state_and_node")}
    assert states == pytest.approx({"n1": 0.5}, **NEAR)


def test_window_of_the_waste_page_expects_silent_hours_too(bench):
    rows = ask(bench, "waste_by_hour")
    assert [(row["hour_utc"], row["expected_h"]) for row in rows if row["state"]] == [
        (hour(10), pytest.approx(3, **NEAR)),
        (hour(12), pytest.approx(1.5, **NEAR)),
    ]
    assert [row["all_expected_h"] for row in rows] == [pytest.approx(7.5, **NEAR)] * len(rows)
    (known,) = run_query(
        bench.store,
        "SELECT sum(expected_ms) / 3.6e6 AS h "
        "FROM expected_time(window_from(NULL), analysed_until(window_from(NULL), window_to(NULL)))",
    ).table.to_pylist()
    assert rows[0]["all_expected_h"] == pytest.approx(known["h"], rel=1e-12)


def test_instances_are_not_counted_beside_their_device(bench, kit):
    window = {"from_utc": stamp(kit.T0_S * US_PER_S)}
    window["as_of_utc"] = stamp((kit.T0_S + 3 * H) * US_PER_S)
    with bench.store.snapshot() as cursor:
        energy = cursor.execute(load("statements/page_fleet_energy"), window).fetchall()
        waste = cursor.execute(
            load("statements/page_fleet_waste"),
            {**window, "ongoing_utc": stamp((kit.T0_S + 3 * H) * US_PER_S), "rows": 9},
        ).fetchall()
    assert sum(row[1] for row in energy) == 148 * MINUTE * 1000
    assert sum(row[3] for row in waste) == 2
    (hour_12,) = ask(bench, "results_coverage", from_utc="2026-03-01 12:00")
    assert hour_12["coverage"] == pytest.approx(1 / 3, **NEAR)
    assert hour_12["samples"] == hour_12["samples_classified"]


def test_a_day_is_the_current_hour_and_the_23_before_it(bench, kit, make_bench, tmp_path):
    with contextlib.closing(make_bench(tmp_path / "day")) as made:
        newest_s = 24 * H + H // 2
        rows = minutes(kit, "GPU-0", H // 2, H // 2 + 600) + minutes(kit, "GPU-0", H, H + 600)
        rows += minutes(kit, "GPU-0", 24 * H, newest_s)
        tables = kit.tables(device=[device(kit, "GPU-0", "n1")])
        made.clock.advance(24 * H)
        made.send(kit.batch(1, rows, tables=tables))
        states_job.refresh(made.store, made.settings, made.clock)
        hours = [row["hour_utc"] for row in ask(made, "execution_idle_by_hour")]
        assert (len(hours), hours[0], hours[-1]) == (24, hour(11), hour(10) + dt.timedelta(days=1))
        assert len(ask(made, "coverage_by_node")) == 24
        assert len(ask(made, "energy_by_node")) == 24
        seen_h = (1 + 10 + 30) / 60
        for name, column in (
            ("energy_by_state_and_node", "seen_h"),
            ("top_waste", "waste_h"),
            ("execution_idle_by_gpu", "execution_idle_h"),
            ("waste_by_gpu", "execution_idle_h"),
            ("waste_by_job", "execution_idle_h"),
            ("waste_by_hour", "seen_h"),
        ):
            assert sum(row[column] for row in ask(made, name)) == pytest.approx(
                seen_h, abs=0.035
            ), name
    del bench


def test_top_waste_is_one_row_a_job_however_many_nodes_it_spans(kit, make_bench, tmp_path):
    with contextlib.closing(make_bench(tmp_path / "nodes")) as made:
        for number, node in enumerate(("n1", "n2")):
            gpu = f"GPU-{number}"
            held = kit.row(
                "allocation", gpu_uuid=gpu, start_utc=kit.T0_S * US_PER_S, job_key="c:1:0", share=1
            )
            tables = kit.tables(device=[device(kit, gpu, node)], allocation=[held])
            rows = minutes(kit, gpu, 0, 600, node=node)
            made.send(kit.batch(1, rows, node=node, tables=tables))
        states_job.refresh(made.store, made.settings, made.clock)
        (row,) = ask(made, "top_waste")
        assert (row["job_key"], row["node_id"], row["gpus"], row["nodes"]) == ("c:1:0", None, 2, 2)


def test_power_of_the_fleet_is_not_a_sum_over_those_who_happen_to_speak(
    bench, kit, make_bench, tmp_path
):
    del bench
    with contextlib.closing(make_bench(tmp_path / "power")) as made:
        rows = [kit.sample(s, "GPU-0") for s in range(180)]
        rows += [kit.sample(s, "GPU-1") for s in (*range(30), *range(120, 180))]
        tables = kit.tables(
            device=[device(kit, gpu, "n1", 0) for gpu in ("GPU-0", "GPU-1")],
            allocation=[
                kit.row("allocation", gpu_uuid=gpu, start_utc=(kit.T0_S - 1) * US_PER_S,
                        end_utc=(kit.T0_S + 150) * US_PER_S, job_key="c:1:0", share=share)
                for gpu, share in (("GPU-0", 1.0), ("GPU-1", None))
            ],
        )  # fmt: skip
        made.send(kit.batch(1, rows, tables=tables))
        wanted = [
            # (min, mean, max, coverage, usable_s) of each minute
            (200.0, 200.0, 200.0, 0.75, 30),
            (None, None, None, 0.5, 0),
            (200.0, 200.0, 200.0, 1.0, 60),
        ]
        found = ask(made, "fleet_power_by_minute")
        assert [
            (
                *(row[f"{of}_power_w"] for of in ("min", "mean", "max")),
                row["coverage"],
                row["usable_s"],
            )
            for row in found
        ] == wanted
        assert [row["gpus"] for row in found] == [2, 1, 2]
        job = ask(made, "job_power_by_minute", job="c:1:0")
        assert [
            (row["mean_power_w"], row["coverage"], row["usable_s"], row["expected_gpus"])
            for row in job
        ] == [(200.0, 0.75, 30, 2), (None, 0.5, 0, 2), (200.0, 1.0, 31, 2)]
        (hot,) = ask(made, "power_by_model")
        assert (hot["coverage"], hot["power_coverage"]) == (0.75, 1.0)


def test_a_gap_counts_only_seconds_that_are_lost(kit, make_bench, tmp_path):
    with contextlib.closing(make_bench(tmp_path / "gaps")) as made:
        t0_us = kit.T0_S * US_PER_S
        spans = {"clock_step": (0, 0), "clock_ahead": (5, 9), "given_up_unplaced": (20, 20)}
        spans["spool_error"] = (30, 30)
        gaps = [
            kit.row("gap", node_id="n1", from_utc=t0_us + a * US_PER_S,
                    to_utc=t0_us + b * US_PER_S, reason=reason)
            for reason, (a, b) in spans.items()
        ]  # fmt: skip
        made.send(kit.batch(1, tables=kit.tables(gap=gaps)))
        assert {row["reason"]: row["missing_s"] for row in ask(made, "gaps")} == {
            "clock_step": 0,
            "clock_ahead": 5,
            "given_up_unplaced": None,
            "spool_error": 1,
        }
