"""The edge between the pure functions and the warehouse: rows in, runs and pieces out."""

from __future__ import annotations

import datetime as dt
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import duckdb
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from analysis.classify import RAW_NAMES, STATES, VERDICTS, classify
from analysis.frame import (
    CodeArray,
    IntArray,
    Rows,
    column_from_arrow,
    columns_from_arrow,
    sort_order,
)
from analysis.runs import Intervals, Runs, concat, raw_runs
from idlewatt.clock import us_from_utc, utc_from_us
from idlewatt.model import Thresholds
from idlewatt.units import US_PER_HOUR, US_PER_MS
from warehouse.queries import load

Connection = duckdb.DuckDBPyConnection
_OWNER_SHIFT_US: Final = 500 * US_PER_MS
"""The owner of a row is whoever held the GPU half a second before its stamp."""
_KIND_OF_TEXT: Final = {
    f"{RAW_NAMES[verdict.raw]}/{verdict.basis.value}/{verdict.reason or ''}": kind
    for kind, verdict in enumerate(VERDICTS)
}
_ENERGY_COLUMNS: Final = ("energy_counter_uj", "energy_power_avg_uj", "energy_power_inst_uj")


_KEPT: Final = ("gpu", "ts_utc", "obs_ms", "energy_uj", "energy_source")
_BATCH_ROWS: Final = 1 << 16


class Names:
    """Numbers for names, the same for as long as the object lives."""

    def __init__(self) -> None:
        self._codes: dict[str, int] = {}
        self.words: list[str] = []

    def code(self, name: str) -> int:
        """Return the number of a name, a new one where it has none."""
        found = self._codes.get(name)
        if found is None:
            found = self._codes[name] = len(self.words)
            self.words.append(name)
        return found

    def codes(self, names: Iterable[str]) -> NDArray[np.int32]:
        """Return the numbers of several names."""
        return np.array([self.code(name) for name in names], dtype=np.int32)

    def from_arrow(self, array: Any) -> NDArray[np.int32]:
        """Return the numbers of a column of names; NULL is -1."""
        if isinstance(array, pa.ChunkedArray):
            array = array.combine_chunks()
        packed = array.dictionary_encode()
        known = np.append(self.codes(packed.dictionary.to_pylist()), np.int32(-1))
        at = packed.indices.fill_null(len(known) - 1).to_numpy(zero_copy_only=False)
        return np.asarray(known[at], dtype=np.int32)

    def to_arrow(self, codes: NDArray[np.int32]) -> Any:
        """Return the names as an Arrow column; -1 is NULL."""
        return _texts(self.words, codes)


@dataclass(slots=True)
class Codes:
    """Numbers of GPUs, nodes and jobs within one piece of work."""

    gpus: Names
    nodes: Names
    jobs: Names

    @classmethod
    def new(cls) -> Codes:
        """Return empty tables of numbers."""
        return cls(Names(), Names(), Names())


def stamp(value_us: int) -> dt.datetime:
    """Return the naive UTC datetime that a TIMESTAMP parameter takes."""
    return utc_from_us(value_us).replace(tzinfo=None)


def hour_of(value_us: int) -> int:
    """Return the start of the UTC hour of a stamp."""
    return value_us - value_us % US_PER_HOUR


def read_runs_of_samples(
    cur: Connection,
    period_us: tuple[int, int],
    codes: Codes,
    thresholds: Thresholds,
    cuts_us: Sequence[int] = (),
) -> Runs:
    """Return the raw runs of the samples in a half-open period, at most one hour long.

    Args:
        cur: cursor of a snapshot.
        period_us: first stamp, and first stamp after the period.
        codes: where numbers of names are kept.
        thresholds: limits of the low-activity test.
        cuts_us: further stamps at which runs are cut.
    """
    period = {"from_utc": stamp(period_us[0]), "to_utc": stamp(period_us[1])}
    node_of = _nodes(cur, period)
    if not node_of:
        return empty_runs()
    names = list(node_of)
    rows, kind = _classified(cur, period | {"gpus": names}, thresholds)
    order = sort_order(rows.gpu, rows.ts_us)
    if order is not None:
        rows, kind = rows.take(order), kind[order]
    held = cur.execute(load("statements/states_allocations"), period).fetchall()
    job = owners(rows, {name: at for at, name in enumerate(names)}, held, codes.jobs)
    node = codes.nodes.codes(node_of.values())
    runs = raw_runs(rows, kind, job, node[rows.gpu], cuts_us)
    # Numbers of GPUs are the list's own so far; they become those of the whole piece of work.
    return concat([_renamed(runs, codes.gpus.codes(names))])


def _classified(
    cur: Connection, params: dict[str, Any], thresholds: Thresholds
) -> tuple[Rows, CodeArray]:
    """Return the rows of a period and what each is by itself.

    Batch by batch: the many columns that decide stay in the processor's cache and go at once.
    """
    reader = cur.sql(load("statements/states_rows"), params=params).to_arrow_reader(_BATCH_ROWS)
    parts: list[tuple[NDArray[Any], ...]] = []
    for batch in reader:
        kept = [column_from_arrow(batch.column(name)).values for name in _KEPT]
        parts.append((classify(columns_from_arrow(batch), batch.num_rows, thresholds), *kept))
    kind, gpu, ts_us, obs_ms, energy_uj, source = (
        np.concatenate([part[at] for part in parts]) for at in range(1 + len(_KEPT))
    )
    return Rows(gpu, ts_us, obs_ms.astype(np.int64), energy_uj, source), kind


def _nodes(cur: Connection, period: dict[str, Any]) -> dict[str, str]:
    """Return the node of each GPU seen in a period, in the order of the GPUs' names."""
    pairs = cur.execute(load("statements/states_gpus"), period).fetchall()
    node_of = dict(pairs)
    if len(node_of) < len(pairs):
        moved = [gpu for gpu, count in Counter(gpu for gpu, _ in pairs).items() if count > 1]
        last = cur.execute(load("statements/states_moved_gpus"), period | {"gpus": moved})
        node_of |= dict(last.fetchall())
    return node_of


def _arrow(cur: Connection, name: str, params: dict[str, Any]) -> Any:
    return cur.sql(load(name), params=params).to_arrow_table()


def owners(
    rows: Rows,
    gpus: dict[str, int],
    held: Sequence[tuple[str, str, dt.datetime, dt.datetime]],
    jobs: Names,
) -> NDArray[np.int32]:
    """Return the owner of each row at half a second before its stamp; -1 where nobody.

    Args:
        rows: in the order (gpu, ts_us).
        gpus: number of each GPU in `rows`.
        held: (gpu_uuid, job_key, start, end) half-open; of two at once the later one counts.
        jobs: where numbers of jobs are kept.
    """
    job = np.full(len(rows), -1, dtype=np.int32)
    border = np.searchsorted(rows.gpu, np.arange(len(gpus) + 1, dtype=rows.gpu.dtype))
    for gpu_uuid, job_key, start, end in held:
        at = gpus.get(gpu_uuid)
        if at is None:
            continue
        low, high = int(border[at]), int(border[at + 1])
        edges = [us_from_utc(start) + _OWNER_SHIFT_US, us_from_utc(end) + _OWNER_SHIFT_US]
        first, last = np.searchsorted(rows.ts_us[low:high], edges)
        if last > first:
            job[low + first : low + last] = jobs.code(job_key)
    return job


def read_stored_runs(
    cur: Connection, codes: Codes, gpus: Sequence[int], first_hour_us: int, last_hour_us: int
) -> Runs:
    """Return the stored raw runs of GPUs whose hours lie in a closed range."""
    if last_hour_us < first_hour_us or not len(gpus):
        return empty_runs()
    table = _arrow(
        cur,
        "statements/states_runs",
        {
            "gpus": [codes.gpus.words[gpu] for gpu in gpus],
            "first_hour_utc": stamp(first_hour_us),
            "last_hour_utc": stamp(last_hour_us),
        },
    )
    texts = table.column("kind").combine_chunks().dictionary_encode()
    kinds = np.array([_KIND_OF_TEXT[text] for text in texts.dictionary.to_pylist()], dtype=np.int8)
    energies = [column_from_arrow(table.column(name)) for name in _ENERGY_COLUMNS]
    runs = Runs(
        gpu=codes.gpus.from_arrow(table.column("gpu_uuid")),
        node=codes.nodes.from_arrow(table.column("node_id")),
        first_us=column_from_arrow(table.column("first_ts_utc")).values,
        last_us=column_from_arrow(table.column("last_ts_utc")).values,
        kind=kinds[texts.indices.to_numpy()],
        job=codes.jobs.from_arrow(table.column("job_key")),
        samples=column_from_arrow(table.column("samples")).values,
        obs_ms=column_from_arrow(table.column("obs_ms")).values,
        energy_uj=np.stack([energy.values.astype(np.int64) for energy in energies]),
        energy_seen=np.stack([energy.present() for energy in energies]),
        energy_obs_ms=column_from_arrow(table.column("energy_obs_ms")).values,
    )
    return concat([runs])


def runs_table(runs: Runs, codes: Codes) -> Any:
    """Return runs as an Arrow table with the columns of `state_run`."""
    raw = [RAW_NAMES[verdict.raw] for verdict in VERDICTS]
    return pa.table(_shared(runs, codes) | {"raw_state": _texts(raw, runs.kind)})


def intervals_table(pieces: Intervals, codes: Codes) -> Any:
    """Return pieces as an Arrow table with the columns of `state_interval`."""
    state = [STATES[verdict.raw].value for verdict in VERDICTS]
    return pa.table(
        _shared(pieces, codes)
        | {"state": _texts(state, pieces.kind), "run_ms": pa.array(pieces.run_ms)}
    )


def _shared(runs: Runs, codes: Codes) -> dict[str, Any]:
    energies = {
        name: pa.array(values, mask=~seen)
        for name, values, seen in zip(
            _ENERGY_COLUMNS, runs.energy_uj, runs.energy_seen, strict=True
        )
    }
    return {
        "hour_utc": stamps(runs.hour_us),
        "gpu_uuid": codes.gpus.to_arrow(runs.gpu),
        "node_id": codes.nodes.to_arrow(runs.node),
        "first_ts_utc": stamps(runs.first_us),
        "last_ts_utc": stamps(runs.last_us),
        "basis": _texts([verdict.basis.value for verdict in VERDICTS], runs.kind),
        "reason": _texts([verdict.reason for verdict in VERDICTS], runs.kind),
        "job_key": codes.jobs.to_arrow(runs.job),
        "samples": pa.array(runs.samples),
        "obs_ms": pa.array(runs.obs_ms),
        **energies,
        "energy_obs_ms": pa.array(runs.energy_obs_ms),
    }


def stamps(values_us: IntArray) -> Any:
    """Return µs since 1970 as an Arrow TIMESTAMP column."""
    return pa.array(values_us).cast(pa.timestamp("us"))


def _texts(words: Sequence[str | None], codes: NDArray[Any]) -> Any:
    index = pa.array(codes.astype(np.int32), mask=codes < 0)
    return pa.array(list(words) or [""], type=pa.string()).take(index)


def _renamed(runs: Runs, gpus: NDArray[np.int32]) -> Runs:
    return Runs(
        gpus[runs.gpu],
        runs.node,
        runs.first_us,
        runs.last_us,
        runs.kind,
        runs.job,
        runs.samples,
        runs.obs_ms,
        runs.energy_uj,
        runs.energy_seen,
        runs.energy_obs_ms,
    )


def empty_runs() -> Runs:
    """Return no runs."""
    none = np.zeros(0, dtype=np.int64)
    code = np.zeros(0, dtype=np.int32)
    return Runs(
        gpu=code,
        node=code,
        first_us=none,
        last_us=none,
        kind=np.zeros(0, dtype=np.int8),
        job=code,
        samples=none,
        obs_ms=none,
        energy_uj=np.zeros((3, 0), dtype=np.int64),
        energy_seen=np.zeros((3, 0), dtype=np.bool_),
        energy_obs_ms=none,
    )
