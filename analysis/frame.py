"""Columns as the pure functions take them: plain numpy arrays with their NULLs beside them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from idlewatt.columns import COMM_SIGNALS, COMPUTE_SIGNALS, MEMORY_SIGNALS
from idlewatt.model import EnergySource
from idlewatt.units import US_PER_S

BoolArray = NDArray[np.bool_]
IntArray = NDArray[np.int64]
CodeArray = NDArray[np.int8]

ENERGY_SOURCES: Final = (
    EnergySource.COUNTER,
    EnergySource.POWER_AVG,
    EnergySource.POWER_INST,
)
"""Order of the energy sources in every two-dimensional energy array."""

CLASSIFIER_COLUMNS: Final = (
    "resident",
    *COMPUTE_SIGNALS,
    *MEMORY_SIGNALS,
    *COMM_SIGNALS,
    "util_gpu_pct",
    "util_mem_pct",
    "power_avg_mw",
    "power_inst_mw",
    "power_limit_mw",
    "mean_power_mw",
)
"""The columns that decide about a row's state: those of `gpu_sample`, and the mean power of the
row's interval by the energy counter (NULL where `energy_source` is another)."""


@dataclass(frozen=True, slots=True)
class Column:
    """Values and where they are not NULL.

    Attributes:
        values: one value a row; meaningless where not valid.
        valid: True where there is a value; None where every row has one.
    """

    values: NDArray[Any]
    valid: BoolArray | None = None

    @classmethod
    def of(cls, values: Iterable[Any], dtype: Any = np.float64) -> Column:
        """Return a column from Python values, None (and NaN) being NULL."""
        items = list(values)
        valid = np.array([not _is_null(item) for item in items], dtype=np.bool_)
        filled = [item if ok else 0 for item, ok in zip(items, valid, strict=True)]
        return cls(np.array(filled, dtype=dtype), None if valid.all() else valid)

    def __len__(self) -> int:
        return len(self.values)

    def take(self, order: NDArray[np.int64]) -> Column:
        """Return the column in another order of rows."""
        return Column(self.values[order], None if self.valid is None else self.valid[order])

    def present(self) -> BoolArray:
        """Return True where there is a value."""
        return np.ones(len(self.values), dtype=np.bool_) if self.valid is None else self.valid


def _is_null(item: Any) -> bool:
    return item is None or (isinstance(item, float) and math.isnan(item))


Columns = Mapping[str, Column]
"""Columns by name. A column that is not there is NULL throughout."""


@dataclass(frozen=True, slots=True)
class Rows:
    """Samples in the order (gpu, ts_us), reduced to what accounting needs.

    Attributes:
        gpu: code of the GPU.
        ts_us: nominal second, µs since 1970.
        obs_ms: nominal interval.
        energy_uj: energy of the row's own interval; 0 where it has none.
        energy_source: index in `ENERGY_SOURCES`, -1 where the row has no energy.
    """

    gpu: NDArray[np.int32]
    ts_us: IntArray
    obs_ms: NDArray[np.integer[Any]]
    energy_uj: IntArray
    energy_source: CodeArray

    def __len__(self) -> int:
        return len(self.ts_us)

    def take(self, order: NDArray[np.int64]) -> Rows:
        """Return the rows in another order."""
        return Rows(
            self.gpu[order],
            self.ts_us[order],
            self.obs_ms[order],
            self.energy_uj[order],
            self.energy_source[order],
        )


def sort_order(gpu: NDArray[np.int32], ts_us: IntArray) -> NDArray[np.int64] | None:
    """Return the permutation to the order (gpu, ts_us), or None where that order holds already."""
    step = np.diff(gpu)
    if len(gpu) < 2 or bool(np.all((step > 0) | ((step == 0) & (np.diff(ts_us) >= 0)))):
        return None
    dense = _dense_order(gpu, ts_us)
    if dense is not None:
        return dense
    since_us = ts_us - ts_us.min()
    if int(since_us.max()) >= 1 << 32:
        return np.lexsort((ts_us, gpu)).astype(np.int64, copy=False)
    # One key of both: a scan by several threads gives long sorted stretches, soon merged.
    return np.argsort(gpu.astype(np.int64) << 32 | since_us, kind="stable").astype(
        np.int64, copy=False
    )


def _dense_order(gpu: NDArray[np.int32], ts_us: IntArray) -> NDArray[np.int64] | None:
    """Return the permutation without sorting, where most seconds of most GPUs have one row.

    Each row has a place of its own in a table of GPUs by whole seconds; those that are taken, read
    in turn, are the order. None where seconds are not whole, rows double, or few places are taken.
    """
    first_us = int(ts_us.min())
    second, rest = np.divmod(ts_us - first_us, US_PER_S)
    width, low = int(second.max()) + 1, int(gpu.min())
    places = (int(gpu.max()) - low + 1) * width
    if rest.any() or places > 4 * len(gpu):
        return None
    table = np.full(places, -1, dtype=np.int64)
    table[(gpu - low).astype(np.int64) * width + second] = np.arange(len(gpu))
    order = table[table >= 0]
    return order if len(order) == len(gpu) else None


def column_from_arrow(array: Any) -> Column:
    """Return a column from a pyarrow array or chunked array; NaN becomes NULL."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if isinstance(array, pa.ChunkedArray):
        array = array.combine_chunks()
    valid = None
    if array.null_count:
        valid = np.asarray(pc.is_valid(array).to_numpy(zero_copy_only=False))
        array = array.fill_null(False if pa.types.is_boolean(array.type) else 0)
    if pa.types.is_boolean(array.type):
        return Column(_bits(array), valid)
    values = array.to_numpy(zero_copy_only=False)
    if values.dtype.kind == "M":
        values = values.astype("datetime64[us]").view(np.int64)
    elif values.dtype.kind == "f":
        nan = np.isnan(values)
        if nan.any():
            valid = ~nan if valid is None else valid & ~nan
    return Column(values, valid)


def _bits(array: Any) -> BoolArray:
    """Return the values of a boolean array without NULLs; three times as fast as its own way."""
    low, count = array.offset, len(array)
    packed = np.frombuffer(array.buffers()[1], dtype=np.uint8)[low // 8 : (low + count + 7) // 8]
    bits = np.unpackbits(packed, bitorder="little")[low % 8 : low % 8 + count]
    return bits.view(np.bool_)


def mean_power(
    energy_uj: IntArray, obs_ms: NDArray[np.integer[Any]], by_counter: BoolArray
) -> Column:
    """Return the column mean_power_mw: energy over interval where the counter gave the energy."""
    by_counter = by_counter & (obs_ms > 0)
    values = energy_uj // np.maximum(obs_ms, 1)  # 1 µJ a ms is 1 mW
    return Column(values, None if by_counter.all() else by_counter)


class ArrowColumns(Mapping[str, Column]):
    """Columns of a pyarrow table or batch, each turned into arrays when it is first asked for.

    A column that is NULL throughout is there for `[]`, but `get` says None as it does for one that
    is missing, so that nothing is computed on it.
    """

    def __init__(self, table: Any) -> None:
        self._table = table
        self._at = {name: at for at, name in enumerate(table.schema.names)}
        self._found: dict[str, Column] = {}

    def put(self, name: str, column: Column) -> None:
        """Add a column that was computed."""
        self._found[name] = column

    def __getitem__(self, name: str) -> Column:
        found = self._found.get(name)
        if found is None:
            found = self._found[name] = column_from_arrow(self._table.column(self._at[name]))
        return found

    def get(self, name: str, default: Any = None) -> Any:
        """Return a column, or the default where it is missing or NULL throughout."""
        if name in self._found:
            return self._found[name]
        at = self._at.get(name)
        if at is None:
            return default
        count = self._table.num_rows
        return self[name] if not count or self._table.column(at).null_count < count else default

    def __iter__(self) -> Iterator[str]:
        return iter({**self._at, **self._found})

    def __len__(self) -> int:
        return len({**self._at, **self._found})


def columns_from_arrow(table: Any, names: Sequence[str] = CLASSIFIER_COLUMNS) -> dict[str, Column]:
    """Return the named columns of a pyarrow table; those that are NULL throughout are left out."""
    found: dict[str, Column] = {}
    for name in names:
        if name in table.column_names:
            array = table.column(name)
            if array.null_count < len(array) or not len(array):
                found[name] = column_from_arrow(array)
    return found
