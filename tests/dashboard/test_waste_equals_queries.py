"""What the Waste and Job pages show is what the named queries answer, over the real warehouse."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from analysis import states_job
from dashboard import format as fmt
from dashboard.models import ReadModels
from dashboard.views import job, waste, waste_tables
from idlewatt.clock import VirtualClock, us_from_utc
from idlewatt.columns import TABLES
from idlewatt.config import resolve
from idlewatt.wire import Header, encode_batch, table_from_rows
from warehouse.ingest import Ingestor
from warehouse.queries import named_query, run_query
from warehouse.store import Store

S = 1_000_000
END_US = us_from_utc(dt.datetime(2026, 3, 1, 10, 10, tzinfo=dt.UTC))
START_US = END_US - 1_200 * S


def row(table: str, **values: Any) -> tuple[Any, ...]:
    return tuple(values.get(column.name) for column in TABLES[table])


def sample(at_us: int, gpu: str, doing: str) -> tuple[Any, ...]:
    watts = {"work": 500, "wait": 120, "empty": 70}[doing]
    return row(
        "gpu_sample",
        ts_utc=at_us,
        obs_ms=1000,
        node_id="n1",
        gpu_uuid=gpu,
        epoch=1,
        power_inst_mw=watts * 1_000,
        power_limit_mw=700_000,
        energy_uj=watts * S,
        energy_source="counter",
        resident=doing != "empty",
        sm_active=0.9 if doing == "work" else 0.0,
        dram_active=0.5 if doing == "work" else 0.0,
        activity_source="gpm",
    )


def doing(gpu: int, second: int) -> str:
    if gpu == 2:
        return "empty"
    if gpu == 3:
        return "wait"
    return "wait" if second % 300 < 60 * (gpu + 1) else "work"


def tables() -> dict[str, list[tuple[Any, ...]]]:
    known = {"node_id": "n1", "valid_from_utc": START_US}
    held = {"start_utc": START_US, "share": 1.0, "rule": "exclusive", "source": "scheduler"}
    return {
        "gpu_sample": [
            sample(START_US + at * S, f"GPU-{gpu}", doing(gpu, at - 1))
            for gpu in range(4)
            for at in range(1, 1_201)
        ],
        "device": [
            row("device", gpu_uuid=f"GPU-{gpu}", gpu_index=gpu, model="H100", **known)
            for gpu in range(4)
        ],
        "node": [row("node", hostname="one", **known)],
        "job": [
            row("job", job_key="c:1:0", cluster="c", raw_id="1", user_name="user-a"),
            row("job", job_key="c:2:0", cluster="c", raw_id="2", user_name="user-b"),
        ],
        "allocation": [
            row("allocation", gpu_uuid="GPU-0", job_key="c:1:0", **held),
            row("allocation", gpu_uuid="GPU-1", job_key="c:1:0", **held),
            row(
                "allocation",
                gpu_uuid="GPU-2",
                job_key="c:2:0",
                **(held | {"start_utc": START_US + 600 * S}),
            ),
        ],
    }


@dataclass
class World:
    store: Store
    models: ReadModels


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    settings = resolve({"server.commit_ms": 1, "server.min_free_mib": 0}, {})
    clock = VirtualClock(END_US + 2 * S)
    path: Path = tmp_path_factory.mktemp("store")
    with Store.open(path, settings, clock) as store, closing(Ingestor(store)) as ingestor:
        header = Header(1, "n1", 1, "live", 1, "0", END_US // 1_000)
        body = {name: table_from_rows(TABLES[name], rows) for name, rows in tables().items()}
        ingestor.submit(encode_batch(header, body)).result(30)
        states_job.refresh(store, settings, clock)
        yield World(store, ReadModels(store, clock, settings))


def ask(world: World, name: str, **params: Any) -> list[dict[str, Any]]:
    query = named_query(name)
    rows: list[dict[str, Any]] = run_query(
        world.store, query.sql, query.bind(params)
    ).table.to_pylist()
    return rows


def test_waste_page(world: World) -> None:
    shot = world.models.waste.read("24h")
    found = waste.sums(shot)
    for by in ("job", "user", "gpu"):
        rows = ask(world, f"waste_by_{by}", **shot.params, rows=15)
        assert shot.by[by].to_dicts() == rows
        whole = sum(one["execution_idle_kwh"] for one in rows)
        assert whole == pytest.approx(found.kwh["execution_idle"], rel=1e-12)
        assert rows[0]["all_execution_idle_kwh"] == pytest.approx(whole, rel=1e-12)
        shown = waste_tables.execution_idle(shot, by)
        assert shown.rows[-1][1][shown.columns.index("Energy") - 1] == fmt.energy(whole)
    held = ask(world, "waste_held_empty", **shot.params)
    assert shot.held_empty.to_dicts() == held
    assert held[0]["held_empty_kwh"] == pytest.approx(found.kwh["held_empty"], rel=1e-12)
    # By hand: 240 and 480 of 1,200 s wait on the two GPUs that work, all of the fourth.
    assert found.kwh["execution_idle"] == pytest.approx((240 + 480 + 1200) * 120 / 3.6e6)
    assert found.kwh["held_empty"] == pytest.approx(600 * 70 / 3.6e6)
    # Nobody used that GPU for 1,200 s; the job held it for 600 of them.
    assert held[0]["longest_run_s"] == 600
    assert found.coverage == pytest.approx(1.0, abs=0.002)


def test_named_queries_of_the_fleet_agree(world: World) -> None:
    shot = world.models.waste.read("24h")
    found = waste.sums(shot)
    states = {one["state"]: one["energy_kwh"] for one in ask(world, "waste_by_hour")}
    assert set(states) == {"active", "deep_idle", "execution_idle", "held_empty"}
    by_gpu = ask(world, "execution_idle_by_gpu", **shot.params)
    idle = sum(one["execution_idle_kwh"] or 0.0 for one in by_gpu)
    assert idle == pytest.approx(found.kwh["execution_idle"], rel=1e-12)
    assert sum(one["energy_kwh"] for one in by_gpu) == pytest.approx(found.total_kwh, rel=1e-12)


def test_job_page(world: World) -> None:
    shot = world.models.jobs.read("c:1:0")
    found = job.numbers(shot)
    rows = ask(world, "job_states", job="c:1:0")
    assert shot.states.to_dicts() == rows
    idle = [one for one in rows if one["state"] == "execution_idle"]
    assert found.kwh["execution_idle"] == pytest.approx(sum(one["energy_kwh"] for one in idle))
    assert found.idle_runs == 8
    assert found.longest_idle_s == 120
    assert found.coverage == pytest.approx(1.0)
    view = world.store
    with view.snapshot() as cur:
        ((kwh,),) = cur.execute(
            "SELECT energy_kwh FROM energy_by_job WHERE job_key = 'c:1:0'"
        ).fetchall()
    assert found.total_kwh == pytest.approx(kwh, rel=1e-12)
    (listed,) = [one for one in ask(world, "jobs") if one["job_key"] == "c:1:0"]
    assert listed["energy_kwh"] == pytest.approx(kwh, rel=1e-12)
    assert listed["execution_idle_h"] * 3600 == pytest.approx(240 + 480)
