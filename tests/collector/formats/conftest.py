"""Short ways to import text in tests."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from collector.formats import Import, Options, Source, read
from collector.formats.stamps import parse_zone
from idlewatt.clock import iso_utc
from idlewatt.columns import DEVICE_CAPABILITY, GPU_SAMPLE, METER


class Kit:
    """Imports text and shows rows as dictionaries."""

    @staticmethod
    def read(*texts: str | bytes, zone: str | None = "UTC", **options: Any) -> Import:
        sources = [
            Source(f"f{n}", text.encode() if isinstance(text, str) else text)
            for n, text in enumerate(texts)
        ]
        return read(sources, Options(zone=parse_zone(zone) if zone else None, **options))

    @staticmethod
    def rows(found: Import) -> list[dict[str, Any]]:
        names = [column.name for column in GPU_SAMPLE]
        rows = [dict(zip(names, row, strict=True)) for row in found.samples]
        for row in rows:
            row["at"] = iso_utc(row["ts_utc"])
        return rows

    @staticmethod
    def meters(found: Import) -> list[dict[str, Any]]:
        names = [column.name for column in METER]
        return [dict(zip(names, row, strict=True)) for row in found.meter_rows]

    @staticmethod
    def capabilities(found: Import) -> dict[str, str | None]:
        names = [column.name for column in DEVICE_CAPABILITY]
        rows = [dict(zip(names, r, strict=True)) for r in found.tables["device_capability"]]
        return {row["column_name"]: row["reason"] for row in rows}


@pytest.fixture
def kit() -> type[Kit]:
    return Kit


@pytest.fixture
def captures() -> Callable[..., Import]:
    """Return a function that imports files of the test data."""
    root = os.environ.get("IDLEWATT_TEST_DATA")
    if not root:
        pytest.skip("IDLEWATT_TEST_DATA is not set: no real files to read")

    def load(*names: str, zone: str | None = None, **options: Any) -> Import:
        sources = [Source(name, (Path(root) / name).read_bytes()) for name in names]
        return read(sources, Options(zone=parse_zone(zone) if zone else None, **options))

    return load
