"""What `idlewatt sql list` and `idlewatt sql describe` print."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, Final

from idlewatt.cli import output
from idlewatt.errors import QueryError, ServerUnreachableError, UnavailableError
from warehouse.queries import NamedQuery, find_query, named_queries
from warehouse.relations import Relation, relation, relations

Ask = Callable[[dict[str, Any], str], bytes]

_COLUMNS: Final = (
    "SELECT column_name, data_type FROM duckdb_columns() "
    "WHERE table_name = $name AND NOT internal ORDER BY column_index"
)
# By the end of a column's name; the longest that fits counts.
_UNITS: Final = {
    "_mw": "mW",
    "_w": "W",
    "_uj": "µJ",
    "_mj": "mJ",
    "_j": "J",
    "_kwh": "kWh",
    "_c": "°C",
    "_mhz": "MHz",
    "_mib": "MiB",
    "_bytes": "B",
    "_bytes_s": "B/s",
    "_us": "µs",
    "_ms": "ms",
    "_s": "s",
    "_h": "h",
    "_pct": "%",
    "_utc": "UTC",
    "_share": "0-1",
    "_coverage": "0-1",
    "_active": "0-1",
    "_occupancy": "0-1",
}


def unit_of(column: str) -> str:
    """Return the unit that a column's name carries, empty where it carries none."""
    name = f"_{column}"
    fits = [end for end in _UNITS if name.endswith(end)]
    return _UNITS[max(fits, key=len)] if fits else ""


def show_list(form: str) -> None:
    """Print every query, view and table with its purpose."""
    if form == "json":
        queries = [{"kind": "query", **_query_as_json(query)} for query in named_queries()]
        output.emit_json(queries + [_relation_as_json(item) for item in relations()])
        return
    rows = [["query", query.name, query.purpose] for query in named_queries()]
    rows += [[item.kind, item.name, item.purpose] for item in relations()]
    output.say(output.table(["kind", "name", "purpose"], rows))


def describe(name: str, form: str, ask: Ask) -> None:
    """Print what a query, view or table gives.

    Args:
        name: its name; where a query and a view share it, the query.
        form: `json` or anything else.
        ask: asks the server for the columns of a view or table.

    Raises:
        QueryError: nothing is called so.
    """
    query = find_query(name)
    if query is not None:
        _describe_query(query, form)
        return
    found = relation(name)
    columns = _columns(found, ask)
    if form == "json":
        output.emit_json({**_relation_as_json(found), "columns": columns})
        return
    output.say(f"{found.name} ({found.kind})\n  {found.purpose}\n  grain: {found.grain}")
    output.say(f"  units: {found.units}\n")
    if columns is None:
        output.say("its columns are shown where a server answers (--url)")
        return
    rows = [[item["name"], item["type"], item["unit"]] for item in columns]
    output.say(output.table(["column", "type", "unit"], rows))


def _columns(found: Relation, ask: Ask) -> list[dict[str, str]] | None:
    """Return the columns as the server has them, or None where none answers."""
    try:
        answer = json.loads(ask({"sql": _COLUMNS, "params": {"name": found.name}}, "json"))
    except (ServerUnreachableError, UnavailableError, QueryError):
        return None
    return [{"name": name, "type": kind, "unit": unit_of(name)} for name, kind in answer["rows"]]


def _describe_query(query: NamedQuery, form: str) -> None:
    if form == "json":
        output.emit_json({"kind": "query", **_query_as_json(query)})
        return
    lines = [query.name, f"  {query.purpose}", f"  grain: {query.grain}", f"  units: {query.units}"]
    for param in query.params:
        default = "required" if param.default is None else f"default {param.default}"
        least = "" if param.least is None else f", at least {param.least}"
        lines.append(f"  --param {param.name}=…  {param.type}, {default}{least}: {param.help}")
    output.say("\n".join(lines) + "\n\n" + query.sql.rstrip())


def _query_as_json(query: NamedQuery) -> dict[str, Any]:
    params = [
        {
            "name": item.name,
            "type": item.type,
            "default": item.default,
            "least": item.least,
            "help": item.help,
        }
        for item in query.params
    ]
    return {
        "name": query.name,
        "purpose": query.purpose,
        "grain": query.grain,
        "units": query.units,
        "params": params,
        "sql": query.sql,
    }


def _relation_as_json(item: Relation) -> dict[str, Any]:
    return {
        "kind": item.kind,
        "name": item.name,
        "purpose": item.purpose,
        "grain": item.grain,
        "units": item.units,
    }
