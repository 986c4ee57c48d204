"""Read models over the real warehouse: batches in by ingest, numbers out on the page."""

from __future__ import annotations

import datetime as dt
from contextlib import closing
from pathlib import Path
from typing import Any

from dashboard.models import ReadModels
from dashboard.pages.fleet import render
from dashboard.theme import Look
from dashboard.views import fleet, fleet_map
from idlewatt.clock import VirtualClock, us_from_utc
from idlewatt.columns import TABLES
from idlewatt.config import resolve
from idlewatt.wire import Header, encode_batch, table_from_rows
from warehouse.ingest import Ingestor
from warehouse.store import Store

S = 1_000_000
END_US = us_from_utc(dt.datetime(2026, 3, 1, 10, 0, 30, tzinfo=dt.UTC))


def row(table: str, **values: Any) -> tuple[Any, ...]:
    return tuple(values.get(column.name) for column in TABLES[table])


def batch(seq: int, **tables: list[tuple[Any, ...]]) -> bytes:
    header = Header(
        version=1,
        node_id="n1",
        epoch=1,
        lane="live",
        seq=seq,
        agent_version="0",
        created_ms=END_US // 1_000,
    )
    return encode_batch(
        header, {name: table_from_rows(TABLES[name], rows) for name, rows in tables.items()}
    )


def sample(at_us: int, gpu: str, **values: Any) -> tuple[Any, ...]:
    base = {"ts_utc": at_us, "obs_ms": 1000, "node_id": "n1", "gpu_uuid": gpu, "epoch": 1}
    return row("gpu_sample", **(base | values))


def inventory(gpu: str, index: int, **values: Any) -> tuple[Any, ...]:
    base = {"gpu_uuid": gpu, "node_id": "n1", "valid_from_utc": END_US - 60 * S, "model": "H100"}
    return row("device", gpu_index=index, power_limit_default_mw=700_000, **(base | values))


def seconds_of(gpu: str, sm_active: float, power_mw: int) -> list[tuple[Any, ...]]:
    return [
        sample(
            END_US - back * S,
            gpu,
            power_inst_mw=power_mw,
            power_limit_mw=500_000,
            resident=True,
            sm_active=sm_active,
            dram_active=0.0,
        )
        for back in reversed(range(60))
    ]


def test_batches_in_numbers_out(tmp_path: Path) -> None:
    settings = resolve({"server.commit_ms": 1, "server.min_free_mib": 0}, {})
    clock = VirtualClock(END_US + 2 * S)
    with (
        Store.open(tmp_path, settings, clock) as store,
        closing(Ingestor(store)) as ingestor,
    ):
        models = ReadModels(store, clock, settings)
        assert models.fleet(900).as_of_us is None
        mig = sample(END_US, "MIG-0", parent_uuid="GPU-0", resident=True, sm_active=0.9)
        ingestor.submit(
            batch(
                1,
                gpu_sample=[
                    *seconds_of("GPU-0", 0.9, 400_000),
                    *seconds_of("GPU-1", 0.0, 90_000),
                    mig,
                ],
                device=[
                    inventory("GPU-0", 0),
                    inventory("GPU-1", 1),
                    inventory("GPU-2", 2),
                    inventory("MIG-0", 0, parent_uuid="GPU-0"),
                ],
                node=[
                    row(
                        "node",
                        node_id="n1",
                        valid_from_utc=END_US - 60 * S,
                        hostname="one",
                        rack="R1",
                    )
                ],
            )
        ).result(30)
        clock.advance(1.0)
        shot = models.fleet(900)
        assert shot.as_of_us == END_US
        assert (shot.pulse.gpus, shot.pulse.gpus_fresh, shot.pulse.age_s) == (3, 2, 3.0)
        found = fleet_map.counts(shot.gpus)
        assert [found[look] for look in Look] == [1, 1, 0, 0, 1]
        assert fleet.power_w(shot.gpus) == 490
        # Two limits in force and the factory limit of the silent GPU.
        assert fleet.limit_w(shot.gpus) == 1_700
        # Two of three GPUs are below 90 %: there is no peak to trust, and no line.
        assert fleet.peak_today(shot) is None
        out = render(shot, "light", {}, "15m")
        assert "No power" not in out["headline"]
        assert out["empty_class"] == "is-hidden"
        clock.advance(1.0)
        ingestor.submit(
            batch(2, gpu_sample=[sample(END_US + S, "GPU-2", power_inst_mw=60_000)])
        ).result(30)
        later = models.fleet(900)
        assert later.as_of_us == END_US + S
        assert later.pulse.gpus_fresh == 3
        assert fleet_map.counts(later.gpus)[Look.UNKNOWN] == 1
        assert models.fleet(900, END_US).pulse.gpus_fresh == 2
