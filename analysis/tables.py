"""The edge between the pure functions and the result tables: runs in, runs and pieces out."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import duckdb
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from analysis.classify import RAW_NAMES, STATES, VERDICTS
from analysis.frame import IntArray, column_from_arrow
from analysis.runs import Intervals, Runs, concat, empty_runs
from idlewatt.clock import utc_from_us
from idlewatt.units import US_PER_HOUR
from warehouse.queries import load

Connection = duckdb.DuckDBPyConnection
_KIND_OF_TEXT: Final = {
    f"{RAW_NAMES[verdict.raw]}/{verdict.basis.value}/{verdict.reason or ''}": kind
    for kind, verdict in enumerate(VERDICTS)
}
_ENERGY_COLUMNS: Final = ("energy_counter_uj", "energy_power_avg_uj", "energy_power_inst_uj")


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


def _arrow(cur: Connection, name: str, params: dict[str, Any]) -> Any:
    return cur.sql(load(name), params=params).to_arrow_table()


def read_stored_runs(
    cur: Connection,
    codes: Codes,
    gpus: Sequence[int] | None,
    hours_us: tuple[int, int],
    touching_us: tuple[int, int] | None = None,
) -> Runs:
    """Return stored raw runs, in the order (gpu, first_us).

    Args:
        cur: cursor of a snapshot.
        codes: numbers of names.
        gpus: of which GPUs; None for all.
        hours_us: starts of the first and the last hour.
        touching_us: of given GPUs, only runs that touch this half-open period.
    """
    first_us, last_us = hours_us
    if last_us < first_us or (gpus is not None and not len(gpus)):
        return empty_runs()
    hours = {"first_hour_utc": stamp(first_us), "last_hour_utc": stamp(last_us)}
    if gpus is None:
        table = _arrow(cur, "statements/states_runs_of_hours", hours)
    else:
        from_us, to_us = touching_us or (first_us, last_us + US_PER_HOUR)
        period = {"from_utc": stamp(from_us), "to_utc": stamp(to_us)}
        names = {"gpus": [codes.gpus.words[gpu] for gpu in gpus]}
        table = _arrow(cur, "statements/states_runs", hours | period | names)
    if not table.num_rows:
        return empty_runs()
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
    """Return words as a dictionary column, which the database takes in without a string a row.

    A word that is None becomes NULL, as -1 does.
    """
    known = [at for at, word in enumerate(words) if word is not None]
    place = np.full(len(words) + 1, -1, dtype=np.int32)
    place[known] = np.arange(len(known), dtype=np.int32)
    index = place[codes]
    texts = pa.array([words[at] for at in known] or [""], type=pa.string())
    return pa.DictionaryArray.from_arrays(pa.array(index, mask=index < 0), texts)
