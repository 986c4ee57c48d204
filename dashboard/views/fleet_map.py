"""State map by rack: which GPU does what now, with *no data* as a look of its own.

Rows are racks and columns are slots (node by node, GPU by GPU). Where there is only one rack,
or only a few nodes, each node has a row of its own, racks apart by an empty one. No text travels
per cell: what a cell is follows from its row and column.
"""

from __future__ import annotations

import base64
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import polars as pl

from dashboard import format as fmt
from dashboard import theme
from dashboard.theme import Look

LOOKS: Final = tuple(Look)
EMPTY: Final = 0  # no device in this slot; a look is its place in LOOKS + 1
MAX_LETTERED: Final = 640
MAX_GAPPED_COLUMNS: Final = 160
MAX_CROSSED: Final = 600
NODE_ROWS: Final = 64
FEW_NODES: Final = 16
FIT_LABEL: Final = 22

CodeArray = npt.NDArray[np.uint8]


@dataclass(frozen=True, slots=True)
class FleetMap:
    """Cells of the map.

    Attributes:
        rows: label of each row, top to bottom.
        codes: (row, column) -> 0 for no slot, else place of the look in `LOOKS` + 1.
        index: (row, column) -> row of the frame of GPUs, -1 for no slot.
        by: what a row is, in words.
    """

    rows: list[str]
    codes: CodeArray
    index: npt.NDArray[np.int32]
    by: str


def fleet_map(gpus: pl.DataFrame) -> FleetMap:
    """Return the map of a frame with rack, node_id, hostname, gpu_index, gpu_uuid, look."""
    frame = gpus.with_row_index("at")
    racks, nodes = frame["rack"].n_unique(), frame["node_id"].n_unique()
    by_node = nodes <= (NODE_ROWS if racks <= 1 else FEW_NODES)
    label = _node_label(racks > 1) if by_node else _rack_label()
    frame = frame.with_columns(row=label).sort(
        "rack", "node_id", "gpu_index", "gpu_uuid", nulls_last=True
    )
    frame = frame.with_columns(node_run=pl.col("node_id").rle_id(), rack_no=pl.col("rack").rle_id())
    frame = frame.with_columns(
        # A row per node, with an empty one between racks; or a row per rack.
        row_no=(pl.col("node_run") + pl.col("rack_no")) if by_node else pl.col("rack_no"),
        node_no=pl.col("node_run") - pl.col("node_run").min().over("rack_no"),
    )
    frame = frame.with_columns(slot=pl.int_range(pl.len()).over("row_no"))
    labels = frame.group_by("row_no", maintain_order=True).agg(pl.col("row").first())
    width = int(frame["slot"].max() or 0) + 1  # type: ignore[arg-type]
    spaced = not by_node and width + int(frame["node_no"].max() or 0) <= MAX_GAPPED_COLUMNS  # type: ignore[arg-type]
    column = (frame["slot"] + frame["node_no"]) if spaced else frame["slot"]
    rows = [""] * (int(labels["row_no"].max() or 0) + 1)  # type: ignore[arg-type]
    for row_no, text in labels.select("row_no", "row").iter_rows():
        rows[row_no] = text
    shape = (len(rows), int(column.max() or 0) + 1)  # type: ignore[arg-type]
    codes = np.zeros(shape, dtype=np.uint8)
    index = np.full(shape, -1, dtype=np.int32)
    at = (frame["row_no"].to_numpy(), column.to_numpy())
    number = {look.value: place + 1 for place, look in enumerate(LOOKS)}
    codes[at] = frame["look"].replace_strict(number, return_dtype=pl.UInt8).to_numpy()
    index[at] = frame["at"].to_numpy()
    by = "rack" if not by_node else "rack and node" if racks > 1 else "node"
    return FleetMap(rows, codes, index, by)


def _node_label(with_rack: bool = False) -> pl.Expr:
    """Return the host name where it names one node only, else the node's id."""
    alone = pl.col("node_id").n_unique().over("hostname") == 1
    name = (
        pl.when((pl.col("hostname") != "") & alone)
        .then(pl.col("hostname"))
        .otherwise(pl.col("node_id"))
    )
    return pl.concat_str(_rack_label(), name, separator="  ") if with_rack else name


def _rack_label() -> pl.Expr:
    return pl.when(pl.col("rack") == "").then(pl.lit("no rack")).otherwise(pl.col("rack"))


def counts(gpus: pl.DataFrame) -> dict[Look, int]:
    """Return how many GPUs have each look; they sum to all."""
    found = dict(gpus["look"].value_counts().iter_rows())
    return {look: int(found.get(look.value, 0)) for look in LOOKS}


def _packed(codes: CodeArray) -> dict[str, str]:
    """Return the cells as plotly's typed array: one byte a cell."""
    return {
        "dtype": "u1",
        "bdata": base64.b64encode(np.ascontiguousarray(codes).tobytes()).decode("ascii"),
        "shape": f"{codes.shape[0]}, {codes.shape[1]}",
    }


def figure(cells: FleetMap, scheme: theme.Scheme | str) -> dict[str, Any]:
    """Return the map as a figure dict."""
    colours = theme.palette(scheme)
    height, width = cells.codes.shape
    steps = ["rgba(0,0,0,0)", *(colours.states[look] for look in LOOKS)]
    total = len(steps)
    scale = [
        [edge / total, colour] for place, colour in enumerate(steps) for edge in (place, place + 1)
    ]
    heat: dict[str, Any] = {
        "type": "heatmap",
        "z": _packed(cells.codes),
        "zmin": -0.5,
        "zmax": total - 0.5,
        "colorscale": scale,
        "showscale": False,
        "xgap": 2 if width <= 80 else 1,
        "ygap": 2,
        "hoverinfo": "none",
    }
    data = [heat]
    if cells.codes.size <= MAX_LETTERED:
        data.append(_letters(cells, colours))
    crosses = _crosses(cells, colours)
    if crosses:
        data.append(crosses)
    step = max(1, -(-height // 40))
    ticks = list(range(0, height, step))
    layout = theme.layout(
        scheme,
        xaxis={
            "visible": False,
            "range": [-0.5, width - 0.5],
            "fixedrange": True,
        },
        yaxis=theme.axis(colours)
        | {
            "range": [height - 0.5, -0.5],
            "tickvals": ticks,
            "ticktext": [_short(cells.rows[at]) for at in ticks],
            "showgrid": False,
            "ticks": "",
            "fixedrange": True,
        },
        hovermode="closest",
        dragmode=False,
        uirevision="map",
    )
    return {"data": data, "layout": layout}


def _short(label: str) -> str:
    """Return a row label that fits beside the map; names from outside may be long."""
    text = label if len(label) <= FIT_LABEL else label[: FIT_LABEL - 1] + "\u2026"
    return text.replace("<", "\u2039").replace(">", "\u203a")


def _letters(cells: FleetMap, colours: theme.Palette) -> dict[str, Any]:
    """Return the letter of every cell, in the ink that stands out from its colour."""
    at = np.argwhere(cells.codes > 0)
    looks = [LOOKS[code - 1] for code in cells.codes[cells.codes > 0].tolist()]
    ink = {look: theme.ink(colours.states[look]) for look in LOOKS}
    return {
        "type": "scatter",
        "mode": "text",
        "x": at[:, 1].tolist(),
        "y": at[:, 0].tolist(),
        "text": [theme.LETTERS[look] for look in looks],
        "textfont": {"size": 13, "color": [ink[look] for look in looks]},
        "hoverinfo": "skip",
    }


def _crosses(cells: FleetMap, colours: theme.Palette) -> dict[str, Any] | None:
    """Return outlines with a diagonal over cells without data; long runs share one outline."""
    code = LOOKS.index(Look.NO_DATA) + 1
    mask = cells.codes == code
    if not mask.any():
        return None
    single = int(mask.sum()) <= MAX_CROSSED
    xs: list[float | None] = []
    ys: list[float | None] = []
    for row, first, last in _runs(mask, single):
        left, right = round(first - 0.4, 1), round(last - 0.6, 1)
        top, low = round(row - 0.38, 2), round(row + 0.38, 2)
        xs += [left, right, right, left, left, right, None]
        ys += [low, low, top, top, low, top, None]
    return {
        "type": "scatter",
        "mode": "lines",
        "x": xs,
        "y": ys,
        "line": {"color": colours.outline, "width": 1.2},
        "hoverinfo": "skip",
    }


def _runs(mask: npt.NDArray[np.bool_], single: bool) -> list[tuple[int, int, int]]:
    """Return (row, first, last) of runs of True, half-open; one per cell where `single`."""
    if single:
        return [(int(r), int(c), int(c) + 1) for r, c in np.argwhere(mask)]
    padded = np.pad(mask, ((0, 0), (1, 1))).astype(np.int8)
    change = np.diff(padded, axis=1)
    starts, ends = np.argwhere(change == 1), np.argwhere(change == -1)
    return [
        (int(row), int(first), int(last))
        for (row, first), (_, last) in zip(starts, ends, strict=True)
    ]


def summary(gpus: pl.DataFrame) -> str:
    """Return the map in one sentence."""
    found = counts(gpus)
    parts = [
        f"{fmt.count(found[look])} {theme.LABELS[look].lower()}" for look in LOOKS if found[look]
    ]
    return f"{fmt.plural(gpus.height, 'GPU')}: {', '.join(parts)}."


def describe(gpus: pl.DataFrame, at: int) -> list[tuple[str, str]]:
    """Return what one cell is, as label and text."""
    row = gpus.with_columns(node=_node_label()).row(at, named=True)
    look = Look(row["look"])
    power = None if row["power_mw"] is None else row["power_mw"] / 1e3
    limit = None if row["power_limit_mw"] is None else row["power_limit_mw"] / 1e3
    lines = [
        ("GPU", f"{row['node']} / {row['gpu_index'] if row['gpu_index'] is not None else '?'}"),
        ("State", _state_text(look, row)),
        ("Power", f"{fmt.power(power)} of {fmt.power(limit)}"),
        ("Job", _job_text(row)),
        ("Rack", row["rack"] or "not set"),
        ("Model", row["model"] or "not known"),
        ("UUID", row["gpu_uuid"]),
    ]
    if look is Look.NO_DATA:
        lines[2] = ("Power", "not known")
        if row.get("last_utc") is not None:
            lines.insert(2, ("Last sample", f"{row['last_utc']:%d %b %H:%M:%S} UTC"))
    return lines


def _state_text(look: Look, row: dict[str, Any]) -> str:
    text = theme.LABELS[look]
    if look is Look.NO_DATA:
        return f"{text}: no sample for 15 s"
    if row.get("run_s"):
        over = "over " if row["run_open"] else ""
        text += f" for {over}{fmt.duration(row['run_s'])}"
    if row.get("basis") == "utilisation":
        text += " (by utilisation)"
    return f"{text} ({row['reason'].replace('_', ' ')})" if row.get("reason") else text


def _job_text(row: dict[str, Any]) -> str:
    if row["job_key"] is None:
        return "none"
    words = [row["raw_id"] or row["job_key"], row["job_name"] or ""]
    text = " ".join(word for word in words if word)
    return f"{text} ({row['user_name']})" if row["user_name"] else text


COLUMNS: Final = ("Rack", "Node", *(theme.LABELS[look] for look in LOOKS), "Power")
MAX_ROWS: Final = 200


def rows(gpus: pl.DataFrame) -> list[list[str]]:
    """Return the same map as a table of nodes, most execution-idle first; at most 200."""
    table = (
        gpus.with_columns(node=_node_label())
        .group_by("rack", "node_id")
        .agg(
            pl.col("node").first(),
            *((pl.col("look") == look.value).sum().alias(look.value) for look in LOOKS),
            pl.col("power_mw").sum().alias("mw"),
            pl.col("power_mw").count().alias("read"),
        )
        .sort(
            Look.EXECUTION_IDLE.value,
            Look.NO_DATA.value,
            "rack",
            "node",
            descending=[True, True, False, False],
        )
        .head(MAX_ROWS)
    )
    return [
        [
            row["rack"] or fmt.NOTHING,
            row["node"],
            *(fmt.count(row[look.value]) for look in LOOKS),
            fmt.power(row["mw"] / 1e3 if row["read"] else None),
        ]
        for row in table.iter_rows(named=True)
    ]
