"""What is shown as *now* is the newest row whole, and its holder is the one the analysis takes."""

from __future__ import annotations

import datetime as dt

from analysis.tables import stamp
from idlewatt.units import US_PER_S
from warehouse.queries import load, named_query, run_query


def ask(bench, name, **given):
    query = named_query(name)
    return run_query(bench.store, query.sql, query.bind(given)).table.to_pylist()


def page_gpus(bench, as_of_us, back_s=15):
    with bench.store.snapshot() as cursor:
        relation = cursor.sql(
            load("statements/page_fleet_gpus"),
            params={
                "as_of_utc": stamp(as_of_us),
                "from_utc": stamp(as_of_us - back_s * US_PER_S),
            },
        )
        return relation.to_arrow_table().to_pylist()


def test_a_value_that_stopped_is_null_though_older_rows_had_it(bench, kit):
    rows = [kit.sample(s, power_avg_mw=650_000, sm_active=0.9, resident=True) for s in range(5)]
    rows += [
        kit.sample(s, power_avg_mw=None, energy_uj=None, energy_source=None) for s in range(5, 205)
    ]
    bench.send(kit.batch(1, rows))
    (latest,) = ask(bench, "gpu_latest")
    assert latest["age_s"] == 0
    assert [latest[name] for name in ("power_w", "sm_active", "resident")] == [None] * 3


def test_page_shows_the_newest_row_whole(bench, kit):
    rows = [kit.sample(s, power_limit_mw=700_000) for s in range(9)]
    rows.append(kit.sample(9, power_avg_mw=None, power_limit_mw=None, node="n1"))
    bench.send(kit.batch(1, rows))
    (gpu,) = page_gpus(bench, (kit.T0_S + 9) * US_PER_S)
    assert (gpu["power_mw"], gpu["power_limit_mw"], gpu["node_id"]) == (None, None, "n1")
    assert gpu["ts_utc"] == dt.datetime(2026, 3, 1, 10, 0, 9)  # noqa: DTZ001 - as DuckDB gives it


def test_a_moved_gpu_stands_once_where_it_is_now(bench, kit):
    now_s = bench.clock.now_us() // US_PER_S - kit.T0_S
    bench.send(kit.batch(1, [kit.sample(now_s, node="z9")], node="z9"))
    bench.clock.advance(400)
    bench.send(kit.batch(1, [kit.sample(now_s + 1, node="a1")], node="a1"))
    assert [row["node_id"] for row in ask(bench, "gpu_latest")] == ["a1"]
    assert [row["node_id"] for row in page_gpus(bench, (kit.T0_S + now_s + 1) * US_PER_S)] == ["a1"]


def test_holder_is_the_one_the_analysis_takes(bench, kit):
    t0_us = kit.T0_S * US_PER_S

    def held(gpu, job, share, start_s=0):
        return kit.row(
            "allocation", gpu_uuid=gpu, start_utc=t0_us + start_s * US_PER_S, job_key=job,
            share=share,
        )  # fmt: skip

    tables = kit.tables(
        allocation=[
            held("GPU-0", "c:1:0", None),
            held("GPU-1", "c:3:0", 0.5),
            held("GPU-1", "c:2:0", 0.5),
            held("GPU-2", "c:4:0", None),
            held("GPU-2", "c:5:0", 0.1),
        ]
    )
    samples = [kit.sample(60, gpu) for gpu in ("GPU-0", "GPU-1", "GPU-2")]
    bench.send(kit.batch(1, samples, tables=tables))
    found = {row["gpu_uuid"]: row["job_key"] for row in page_gpus(bench, t0_us + 60 * US_PER_S)}
    assert found == {"GPU-0": "c:1:0", "GPU-1": "c:2:0", "GPU-2": "c:5:0"}
    with bench.store.snapshot() as cursor:
        last = cursor.execute(
            load("statements/states_allocations"),
            {"from_utc": stamp(t0_us), "to_utc": stamp(t0_us + 3600 * US_PER_S)},
        ).fetchall()
    assert {row[0]: row[1] for row in last} == found  # the last of a GPU counts
