"""Small batches and warehouses for the tests of this folder."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from idlewatt.clock import VirtualClock, us_from_utc
from idlewatt.columns import TABLES
from idlewatt.config import Settings, resolve
from idlewatt.units import US_PER_S
from idlewatt.wire import Header, Table, encode_batch, table_from_rows
from warehouse.ingest import Ack, Ingestor
from warehouse.store import Store

T0_S = us_from_utc(dt.datetime(2026, 3, 1, 10, tzinfo=dt.UTC)) // US_PER_S


class Kit:
    """Makes rows, batches and settings."""

    T0_S = T0_S

    @staticmethod
    def settings(**more: Any) -> Settings:
        values = {
            "server.commit_ms": 1,
            "server.seal_after_s": 0,
            "server.seal_quiet_s": 0,
            "server.min_free_mib": 0,
        }
        return resolve(values | {key.replace("__", "."): val for key, val in more.items()}, {})

    @staticmethod
    def clock(at_s: int = T0_S + 86_400) -> VirtualClock:
        return VirtualClock(at_s * US_PER_S)

    @staticmethod
    def row(table: str, **values: Any) -> tuple[Any, ...]:
        unknown = set(values) - {column.name for column in TABLES[table]}
        assert not unknown, unknown
        return tuple(values.get(column.name) for column in TABLES[table])

    @classmethod
    def sample(
        cls, at_s: int, gpu: str = "GPU-0", epoch: int = 1, node: str = "n1", **values: Any
    ) -> tuple[Any, ...]:
        """Return a row at T0 + at_s."""
        base = {
            "ts_utc": (T0_S + at_s) * US_PER_S,
            "obs_ms": 1000,
            "node_id": node,
            "gpu_uuid": gpu,
            "epoch": epoch,
            "power_avg_mw": 100_000,
            "energy_uj": 100_000_000,
            "energy_source": "power_avg",
        }
        return cls.row("gpu_sample", **(base | values))

    @staticmethod
    def tables(**rows: Sequence[Sequence[Any]]) -> dict[str, Table]:
        return {name: table_from_rows(TABLES[name], values) for name, values in rows.items()}

    @classmethod
    def batch(
        cls,
        seq: int,
        samples: Sequence[Sequence[Any]] = (),
        *,
        node: str = "n1",
        epoch: int = 1,
        lane: str = "live",
        tables: dict[str, Table] | None = None,
    ) -> bytes:
        content = dict(tables or {})
        if samples:
            content |= cls.tables(gpu_sample=samples)
        return encode_batch(Header(1, node, epoch, lane, seq, "test", 0), content)

    @staticmethod
    def rows(store: Store, sql: str) -> list[tuple[Any, ...]]:
        with store.snapshot() as cursor:
            return list(cursor.execute(sql).fetchall())


class Bench:
    """A warehouse with its ingestor, that can be closed and opened again."""

    def __init__(self, folder: Path, **settings: Any) -> None:
        self.folder = folder
        self.settings = Kit.settings(**settings)
        self.clock = Kit.clock()
        self.open()

    def open(self) -> None:
        self.store = Store.open(self.folder, self.settings, self.clock)
        self.ingestor = Ingestor(self.store)

    def close(self) -> None:
        self.ingestor.close()
        self.store.close()

    def reopen(self) -> None:
        self.close()
        self.open()

    def send(self, body: bytes, **more: Any) -> Ack:
        return self.ingestor.submit(body, **more).result(timeout=30)

    def rows(self, sql: str) -> list[tuple[Any, ...]]:
        return Kit.rows(self.store, sql)

    def count(self, table: str = "gpu_sample") -> int:
        return int(self.rows(f"SELECT count(*) FROM {table}")[0][0])


@pytest.fixture
def kit() -> type[Kit]:
    return Kit


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    with closing(Bench(tmp_path / "data")) as made:
        yield made


@pytest.fixture(scope="session")
def make_bench() -> Callable[..., Bench]:
    return Bench
