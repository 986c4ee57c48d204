"""Named queries on a small fleet whose answers are known by hand."""

from __future__ import annotations

import contextlib
import datetime as dt

import pytest

from idlewatt.errors import QueryError, StoreError
from warehouse.queries import named_queries, named_query, parse_query, run_query
from warehouse.segments import seal


def at(second, minute=0, hour=10):
    return dt.datetime(2026, 3, 1, hour, minute, second)  # noqa: DTZ001 - as DuckDB gives it


@pytest.fixture(scope="module")
def bench(tmp_path_factory, make_bench):
    """Two GPUs for two minutes, one at 100 W, one at 300 W that misses its last 30 s."""
    with contextlib.closing(make_bench(tmp_path_factory.mktemp("named"))) as made:
        kit = _kit(made)
        t0 = kit.T0_S * 10**6
        rows = [kit.sample(s, "GPU-a", sm_active=0.5, temp_gpu_c=40) for s in range(120)]
        rows += [
            kit.sample(
                s,
                "GPU-b",
                power_avg_mw=300_000,
                energy_uj=300_000_000,
                energy_source="counter",
                temp_gpu_c=70,
                throttle_power_us=500_000,
            )
            for s in range(90)
        ]
        dims = kit.tables(
            device=[
                kit.row("device", gpu_uuid=g, node_id="n1", valid_from_utc=t0, model="H100",
                        gpu_index=i)
                for i, g in enumerate(("GPU-a", "GPU-b"))
            ],
            node=[kit.row("node", node_id="n1", valid_from_utc=t0, rack="r1", hostname="h1")],
            device_capability=[
                kit.row("device_capability", gpu_uuid=g, valid_from_utc=t0, column_name="fan_pct",
                        supported=False, reason="unsupported")
                for g in ("GPU-a", "GPU-b")
            ],
            job=[kit.row("job", job_key="c:1:0")],
            allocation=[
                kit.row("allocation", gpu_uuid="GPU-b", start_utc=t0, end_utc=t0 + 60 * 10**6,
                        job_key="c:1:0", share=1.0)
            ],
            gap=[
                kit.row("gap", node_id="n1", gpu_uuid="GPU-b", from_utc=t0 + 90 * 10**6,
                        to_utc=t0 + 119 * 10**6, reason="driver")
            ],
        )  # fmt: skip
        made.send(kit.batch(1, rows, tables=dims))
        made.send(kit.batch(2, [kit.sample(-(20 * 365 * 86_400))]))
        seal(made.store, min(made.store.layout.live))
        yield made


def _kit(made):
    import sys

    return sys.modules[type(made).__module__].Kit


def ask(bench, name, **given):
    query = named_query(name)
    table = run_query(bench.store, query.sql, query.bind(given)).table
    return [tuple(row.values()) for row in table.to_pylist()]


EXPECTED = {
    "fleet_power_by_minute": [
        (at(0, 0), 400.0, 400.0, 400.0, 2, 120.0, 1.0, 60, 2),
        (at(0, 1), 400.0, 400.0, 400.0, 2, 90.0, 0.75, 30, 2),
    ],
    "coverage_by_node": [("n1", at(0), 2, 210_000, 240_000, 0.875, 2)],
    "gaps": [("n1", "GPU-b", at(30, 1), at(59, 1), 30, "driver", None, None)],
    "energy_by_node": [("n1", at(0), 90 * 300 / 3.6e6, 120 * 100 / 3.6e6, None, 0.875, 1.0)],
    "power_by_model": [("H100", 2, 100.0, 185.7, 300.0, 0.5, 0.875, 1.0)],
    "throttled_gpus": [("n1", "GPU-b", 45.0, None, None, 0.5, 0.75)],
    "unsupported_columns": [("H100", "fan_pct", "unsupported", 2)],
}


@pytest.mark.parametrize("name", sorted(EXPECTED))
def test_named_query_gives_the_known_answer(bench, name):
    found = ask(bench, name)
    assert len(found) == len(EXPECTED[name])
    for row, wanted in zip(found, EXPECTED[name], strict=True):
        assert _near(row, wanted), (row, wanted)


def _near(row, wanted):
    return all(
        a == b if b is None or not isinstance(b, float) else float(a) == pytest.approx(b)
        for a, b in zip(row, wanted, strict=True)
    )


def test_queries_of_one_gpu_one_job_and_the_store(bench):
    seconds = ask(
        bench, "gpu_seconds", gpu="GPU-a", **{"from": at(10), "to": "2026-03-01 10:00:12"}
    )
    assert [row[0] for row in seconds] == [at(10), at(11)]
    # The stamp 10:00:00 describes the second before the job; 10:01:00 is its last one.
    job = ask(bench, "job_power_by_minute", job="c:1:0")
    assert [(row[0], row[1], row[2], row[4]) for row in job] == [
        (at(0, 0), 1, 300.0, 59.0),
        (at(0, 1), 1, 300.0, 1.0),
    ]
    latest = ask(bench, "gpu_latest")
    assert [(row[1], row[3], row[4]) for row in latest] == [
        ("GPU-a", 0, 100.0),
        ("GPU-b", 30, 300.0),
    ]
    assert [row[1:3] for row in ask(bench, "hottest_gpus")] == [("GPU-b", 70), ("GPU-a", 40)]
    assert [(row[2], row[5], row[6]) for row in ask(bench, "inventory")] == [
        ("r1", "GPU-a", "H100"),
        ("r1", "GPU-b", "H100"),
    ]
    (size,) = ask(bench, "warehouse_size")
    assert (size[0], size[1], int(size[2]), size[5]) == (dt.date(2026, 3, 1), 1, 210, 0)
    (refused,) = ask(bench, "quarantined_rows")
    assert refused[:4] == ("n1", "gpu_sample", "ts_utc lies before 2015", 1)


def test_every_named_query_runs_with_its_defaults(bench):
    for query in named_queries():
        values = {param.name: "x" for param in query.params if param.type == "VARCHAR"}
        values |= {p.name: "2026-03-01" for p in query.params if p.type == "TIMESTAMP"}
        bound = query.bind({k: v for k, v in values.items() if _needed(query, k)})
        assert run_query(bench.store, query.sql, bound).table.num_columns > 0, query.name


def _needed(query, name):
    return any(param.name == name and param.default is None for param in query.params)


def test_headers_are_read_and_faults_in_them_named():
    text = (
        "-- purpose: p\n--   more\n-- grain: g\n-- units: u\n"
        "-- param: a INTEGER = 1 | help\nSELECT 1"
    )
    query = parse_query("q", text)
    assert query.purpose == "p more"
    assert query.bind({}) == {"a": "1"}
    assert query.bind({"a": 2}) == {"a": 2}
    with pytest.raises(QueryError, match="no parameter 'b'"):
        query.bind({"b": 2})
    with pytest.raises(StoreError, match="units"):
        parse_query("q", "-- purpose: p\n-- grain: g\nSELECT 1")
    with pytest.raises(StoreError, match="parameter line"):
        parse_query("q", "-- purpose: p\n-- grain: g\n-- units: u\n-- param: ???\nSELECT 1")
    with pytest.raises(QueryError, match="no query is named"):
        named_query("nope")


def test_values_out_of_range_are_refused_and_missing_ones_named_as_typed():
    for value in (-5, "-5", "0"):
        with pytest.raises(QueryError, match=r"hours is -?[05]; it is at least 1"):
            named_query("coverage_by_node").bind({"hours": value})
    for value in ("soon", 1.5):
        with pytest.raises(QueryError, match="not a whole number"):
            named_query("coverage_by_node").bind({"hours": value})
    with pytest.raises(QueryError, match=r"--param gpu=…"):
        named_query("gpu_seconds").bind({})
    text = "-- purpose: p\n-- grain: g\n-- units: u\n-- param: a INTEGER >= -2 | help\nSELECT 1"
    (param,) = parse_query("q", text).params
    assert (param.default, param.least, param.help) == (None, -2, "help")
    for query in named_queries():
        bounded = {param.name for param in query.params if param.least is not None}
        assert {p.name for p in query.params if p.type == "INTEGER"} <= bounded, query.name
