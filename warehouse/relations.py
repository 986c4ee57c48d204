"""The views and tables that may be asked by name, with what their files say about them.

Like `warehouse.queries` it needs neither duckdb nor pyarrow.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from typing import Final

from idlewatt.errors import QueryError, StoreError
from warehouse.queries import header, named_queries, sql_root

# The warehouse's own bookkeeping.
HIDDEN: Final = frozenset(
    {
        "schema_migration",
        "ingest_cursor",
        "live_table",
        "retired_file",
        "set_aside",
        "gpu_sample_none",
    }
)
_TABLE: Final = re.compile(r"^CREATE TABLE (?:IF NOT EXISTS )?([a-z_]+)", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Relation:
    """A view or table: `kind` is `view` or `table`, the rest is the header of its file."""

    name: str
    kind: str
    purpose: str
    grain: str
    units: str

    @property
    def sql(self) -> str:
        """Return the statement that gives all of it."""
        return f"FROM {self.name}"


@cache
def relations() -> tuple[Relation, ...]:
    """Return all views and tables that are worth asking, by name."""
    found = [
        _described(path.stem, "view", path.read_text("utf-8"))
        for path in (sql_root() / "views").glob("*.sql")
    ]
    for path in (sql_root() / "migrations").glob("*.sql"):
        text = path.read_text("utf-8")
        made = _TABLE.search(text)
        if made is not None and made.group(1) not in HIDDEN:
            found.append(_described(made.group(1), "table", text))
    return tuple(sorted(found, key=lambda relation: relation.name))


def relation(name: str) -> Relation:
    """Return one view or table.

    Raises:
        QueryError: nothing is called so; close names are given.
    """
    for candidate in relations():
        if candidate.name == name:
            return candidate
    import difflib

    known = [item.name for item in named_queries()] + [item.name for item in relations()]
    close = difflib.get_close_matches(name, known, n=3)
    hint = f"; did you mean {' or '.join(close)}?" if close else ""
    raise QueryError(
        f"no query, view or table is named {name!r}{hint}; `idlewatt sql list` shows all"
    )


def _described(name: str, kind: str, text: str) -> Relation:
    fields, _ = header(text)
    try:
        return Relation(name, kind, fields["purpose"], fields["grain"], fields["units"])
    except KeyError as exc:
        raise StoreError(f"{kind} {name}: header lacks `-- {exc.args[0]}:`") from exc
