"""Rows of `gpu_sample` from files, gathered into arrays: many rows in little memory."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from analysis.frame import (
    CLASSIFIER_COLUMNS,
    ENERGY_SOURCES,
    Column,
    IntArray,
    Rows,
    mean_power,
)
from idlewatt.columns import DEVICE, GPU_SAMPLE, Kind

Row = Sequence[Any]

_AT: Final = {column.name: place for place, column in enumerate(GPU_SAMPLE)}
_DEVICE_AT: Final = {column.name: place for place, column in enumerate(DEVICE)}
_DTYPES: Final = {
    Kind.TS: np.int64,
    Kind.I64: np.int64,
    Kind.I32: np.int32,
    Kind.I16: np.int16,
    Kind.F32: np.float32,
    Kind.F64: np.float64,
    Kind.BOOL: np.bool_,
}
_KINDS: Final = {column.name: column.kind for column in GPU_SAMPLE}
_VALUES: Final = (
    *(name for name in CLASSIFIER_COLUMNS if name in _AT),
    "mem_used_mib",
    "n_procs",
)
_SOURCE_CODES: Final = {source.value: code for code, source in enumerate(ENERGY_SOURCES)}
_UUID_PREFIXES: Final = ("GPU-", "MIG-")


@dataclass(frozen=True, slots=True)
class Gpu:
    """A GPU or MIG instance of the files.

    Attributes:
        name: UUID, or what stands for it.
        node_id: its node.
        model: product name; None where the files do not say.
        index: the tool's index; None where the files do not say.
        parent_uuid: device of a MIG instance.
    """

    name: str
    node_id: str
    model: str | None = None
    index: int | None = None
    parent_uuid: str | None = None


@dataclass(frozen=True, slots=True)
class Samples:
    """All rows, in the order (gpu, ts_us), each pair once.

    Attributes:
        gpus: by code.
        rows: what accounting needs.
        columns: what the classifier needs, mem_used_mib and n_procs.
    """

    gpus: tuple[Gpu, ...]
    rows: Rows
    columns: dict[str, Column]


@dataclass(slots=True)
class _Seen:
    """One GPU within one file."""

    gpu: Gpu
    file: int
    first_us: int
    last_us: int


@dataclass(slots=True)
class _Chunk:
    gpu: NDArray[np.int32]
    values: dict[str, Column]

    def __len__(self) -> int:
        return len(self.gpu)


@dataclass(slots=True)
class Gatherer:
    """Takes the rows of files, part by part, and gives them as arrays.

    A GPU that has a UUID is the same in every file. One that is told apart by its index alone is
    the same in files that follow each other; where the times of two files overlap, they are of two
    nodes.
    """

    _labels: list[str] = field(default_factory=list)
    _seen: dict[tuple[int, str], int] = field(default_factory=dict)
    _known: list[_Seen] = field(default_factory=list)
    _chunks: list[_Chunk] = field(default_factory=list)
    _begin: tuple[int, int] = (0, 0)

    def begin_file(self, label: str) -> None:
        """Say that the rows that follow are of another file.

        Args:
            label: name for its node, should it turn out to be one of its own.
        """
        self._labels.append(label)
        self._begin = (len(self._known), len(self._chunks))

    def forget_file(self) -> None:
        """Forget what was taken of the file that is being read; it starts anew."""
        known, chunks = self._begin
        del self._known[known:], self._chunks[chunks:]
        self._seen = {key: code for key, code in self._seen.items() if code < known}

    def add(self, rows: Sequence[Row], devices: Iterable[Row] = ()) -> None:
        """Take rows of `gpu_sample` and of `device`, in the order of their columns."""
        if rows:
            self._chunks.append(self._chunk(list(zip(*rows, strict=True))))
        for device in devices:
            self._learn(device)

    def _chunk(self, columns: list[tuple[Any, ...]]) -> _Chunk:
        names = columns[_AT["gpu_uuid"]]
        ts_us = np.array(columns[_AT["ts_utc"]], dtype=np.int64)
        code_of = self._codes(columns, names)
        gpu = np.array([code_of[name] for name in names], dtype=np.int32)
        for code in code_of.values():
            mine, seen = ts_us[gpu == code], self._known[code]
            seen.first_us = min(seen.first_us, int(mine.min()))
            seen.last_us = max(seen.last_us, int(mine.max()))
        values = {
            "ts_utc": Column(ts_us),
            "obs_ms": Column(np.array(columns[_AT["obs_ms"]], dtype=np.int64)),
        }
        sources = columns[_AT["energy_source"]]
        values["source"] = Column(
            np.array([_SOURCE_CODES.get(name, -1) for name in sources], dtype=np.int8)
        )
        for name in ("energy_uj", *_VALUES):
            column = _column(name, columns[_AT[name]])
            if column is not None:
                values[name] = column
        return _Chunk(gpu, values)

    def _codes(self, columns: list[tuple[Any, ...]], names: Sequence[str]) -> dict[str, int]:
        """Return the code of each GPU of a chunk; new ones get the next."""
        file = len(self._labels) - 1
        found: dict[str, int] = {}
        for name in dict.fromkeys(names):
            key = (file, name)
            if key not in self._seen:
                place = names.index(name)
                node_id = str(columns[_AT["node_id"]][place])
                parent = columns[_AT["parent_uuid"]][place]
                self._seen[key] = len(self._known)
                self._known.append(
                    _Seen(Gpu(name, node_id, parent_uuid=parent), file, 1 << 62, -(1 << 62))
                )
            found[name] = self._seen[key]
        return found

    def _learn(self, device: Row) -> None:
        code = self._seen.get((len(self._labels) - 1, device[_DEVICE_AT["gpu_uuid"]]))
        if code is None:
            return
        seen = self._known[code]
        model, index = device[_DEVICE_AT["model"]], device[_DEVICE_AT["gpu_index"]]
        seen.gpu = replace(
            seen.gpu,
            model=seen.gpu.model if model is None else str(model),
            index=seen.gpu.index if index is None else int(index),
        )

    def finish(self) -> Samples:
        """Return everything; the gatherer is empty afterwards."""
        gpus, place_of = self._joined()
        chunks, self._chunks = self._chunks, []
        size = sum(map(len, chunks))
        gpu = np.concatenate([place_of[chunk.gpu] for chunk in chunks] or [place_of[:0]])
        names = dict.fromkeys(name for chunk in chunks for name in chunk.values)
        columns = {name: _join(name, chunks) for name in names}
        chunks.clear()
        if not size:
            none = np.zeros(0, dtype=np.int64)
            return Samples(gpus, Rows(gpu, none, none, none, none.astype(np.int8)), {})
        order = np.lexsort((columns["ts_utc"].values, gpu)).astype(np.int64, copy=False)
        order = order[_last_of_each(gpu[order], columns["ts_utc"].values[order])]
        columns = {name: column.take(order) for name, column in columns.items()}
        return _samples(gpus, gpu[order], columns)

    def _joined(self) -> tuple[tuple[Gpu, ...], NDArray[np.int32]]:
        """Return the GPUs, and the final code of each code given so far."""
        final: dict[str, list[_Seen]] = {}
        name_of: list[str] = []
        for seen in self._known:
            gpu = seen.gpu
            others = final.get(gpu.name, [])
            alike = gpu.name.startswith(_UUID_PREFIXES)
            if not alike and any(_overlap(seen, other) for other in others):
                node_id = self._labels[seen.file]
                gpu = replace(gpu, name=f"{node_id}/{gpu.name.partition('/')[2]}", node_id=node_id)
            name_of.append(gpu.name)
            final.setdefault(gpu.name, []).append(replace_gpu(seen, gpu))
        gpus = sorted((_merged(items) for items in final.values()), key=_display_order)
        code_of = {gpu.name: code for code, gpu in enumerate(gpus)}
        return tuple(gpus), np.array([code_of[name] for name in name_of], dtype=np.int32)


def replace_gpu(seen: _Seen, gpu: Gpu) -> _Seen:
    """Return the same stretch, of another GPU."""
    return _Seen(gpu, seen.file, seen.first_us, seen.last_us)


def _overlap(one: _Seen, other: _Seen) -> bool:
    if one.file == other.file:
        return False
    return one.first_us <= other.last_us and other.first_us <= one.last_us


def _merged(items: Sequence[_Seen]) -> Gpu:
    gpu = items[0].gpu
    models = [item.gpu.model for item in items if item.gpu.model is not None]
    indices = [item.gpu.index for item in items if item.gpu.index is not None]
    return replace(
        gpu, model=models[-1] if models else None, index=indices[-1] if indices else None
    )


def _display_order(gpu: Gpu) -> tuple[str, int, str]:
    return gpu.node_id, 1 << 16 if gpu.index is None else gpu.index, gpu.name


def _column(name: str, items: Sequence[Any]) -> Column | None:
    """Return a column from Python values; None where all are None."""
    absent = items.count(None)
    dtype = _DTYPES[_KINDS[name]]
    if absent == len(items):
        return None
    if not absent:
        return Column(np.array(items, dtype=dtype))
    valid = np.array([item is not None for item in items], dtype=np.bool_)
    return Column(np.array([0 if item is None else item for item in items], dtype=dtype), valid)


def _join(name: str, chunks: Sequence[_Chunk]) -> Column:
    """Return one column of all chunks; a chunk that lacks it is NULL there."""
    dtype = next(c.values[name].values.dtype for c in chunks if name in c.values)
    values = [
        c.values[name].values if name in c.values else np.zeros(len(c), dtype=dtype) for c in chunks
    ]
    whole = all(name in c.values and c.values[name].valid is None for c in chunks)
    if whole:
        return Column(np.concatenate(values))
    valid = [
        c.values[name].present() if name in c.values else np.zeros(len(c), dtype=np.bool_)
        for c in chunks
    ]
    return Column(np.concatenate(values), np.concatenate(valid))


def _last_of_each(gpu: NDArray[np.int32], ts_us: IntArray) -> NDArray[np.bool_]:
    """Return True at the last of the rows that share GPU and time."""
    last = np.ones(len(gpu), dtype=np.bool_)
    last[:-1] = (gpu[1:] != gpu[:-1]) | (ts_us[1:] != ts_us[:-1])
    return last


def _samples(gpus: tuple[Gpu, ...], gpu: NDArray[np.int32], columns: dict[str, Column]) -> Samples:
    ts_us, obs_ms = columns.pop("ts_utc").values, columns.pop("obs_ms").values
    source = columns.pop("source").values
    energy = columns.pop("energy_uj", None)
    if energy is None:
        energy_uj, source = np.zeros(len(gpu), dtype=np.int64), np.full(len(gpu), -1, np.int8)
    else:
        energy_uj = np.where(energy.present(), energy.values, 0)
        source = np.where(energy.present(), source, -1).astype(np.int8)
    by_counter = source == 0
    if by_counter.any():
        columns["mean_power_mw"] = mean_power(energy_uj, obs_ms, by_counter)
    return Samples(gpus, Rows(gpu, ts_us, obs_ms, energy_uj, source), columns)
