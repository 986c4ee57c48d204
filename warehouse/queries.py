"""SQL files, the named queries among them, and the sandboxed query service.

Importing this module needs neither duckdb nor pyarrow, so that `idlewatt sql list` works on a
base install. A SQL file starts with a header of comment lines::

    -- purpose: what it answers, one sentence
    -- grain: one row per ...
    -- units: units of the columns
    -- param: minutes INTEGER = 60 >= 1 | how far to look back from the newest sample
    SELECT ...

A file without parameters says ``-- params: none``. A default of ``NULL`` binds NULL. Times are
UTC; a parameter arrives as text or number and the statement casts it. ``>= 1`` is the smallest
value taken.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from idlewatt.errors import QueryError, StoreError

if TYPE_CHECKING:
    from warehouse.sandbox import QueryResult
    from warehouse.store import Store

_NAME: Final = re.compile(r"[a-z][a-z0-9_]*")
_PARAM: Final = re.compile(
    r"(?P<name>[a-z][a-z0-9_]*)\s+(?P<type>[A-Z][A-Z0-9_]*)"
    r"(?:\s*=\s*(?P<default>[^|>]*?))?(?:\s*>=\s*(?P<least>-?[0-9]+))?\s*(?:\|\s*(?P<help>.*))?"
)
_HEADER: Final = re.compile(r"--\s*([a-z_]+):\s*(.*)")


@dataclass(frozen=True, slots=True)
class Param:
    """A parameter of a named query.

    Attributes:
        name: as in `$name`.
        type: SQL type.
        default: None where the caller must give a value.
        help: one sentence.
        least: smallest value taken, for numbers.
    """

    name: str
    type: str
    default: str | None
    help: str
    least: int | None = None

    def check(self, value: Any) -> None:
        """Refuse a value that cannot be meant.

        Raises:
            QueryError: it is no number where one is needed, or too small.
        """
        if value is None or (not self.type.endswith("INT") and self.type != "INTEGER"):
            return
        try:
            number = int(str(value))
        except ValueError:
            raise QueryError(
                f"parameter {self.name} is {str(value)[:40]!r}, not a whole number"
            ) from None
        if self.least is not None and number < self.least:
            raise QueryError(f"parameter {self.name} is {number}; it is at least {self.least}")


@dataclass(frozen=True, slots=True)
class NamedQuery:
    """A query of `sql/queries/` with what its header says."""

    name: str
    purpose: str
    grain: str
    units: str
    params: tuple[Param, ...]
    sql: str

    def bind(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """Return a value for every parameter.

        Raises:
            QueryError: one is unknown or out of range, or one without default is missing.
        """
        known = {param.name for param in self.params}
        for name in given:
            if name not in known:
                takes = ", ".join(sorted(known)) or "none"
                raise QueryError(f"query {self.name} has no parameter {name!r}; it takes: {takes}")
        bound: dict[str, Any] = {}
        for param in self.params:
            if param.name in given:
                param.check(given[param.name])
                bound[param.name] = given[param.name]
            elif param.default is None:
                raise QueryError(
                    f"query {self.name} needs a value for {param.name!r}: --param {param.name}=…"
                )
            else:
                bound[param.name] = None if param.default == "NULL" else param.default
        return bound


@cache
def sql_root() -> Path:
    """Return the folder of SQL files: packaged beside this module, else the checkout's `sql/`.

    Raises:
        StoreError: neither is there.
    """
    here = Path(__file__).resolve().parent
    for candidate in (here / "_sql", here.parent / "sql"):
        if (candidate / "migrations").is_dir():
            return candidate
    raise StoreError(f"the SQL files of idlewatt are missing beside {here}; reinstall it")


@cache
def load(name: str) -> str:
    """Return the text of `sql/<name>.sql`, for example `load("statements/energy")`.

    Raises:
        StoreError: there is no such file.
    """
    path = sql_root() / f"{name}.sql"
    try:
        return path.read_text("utf-8")
    except OSError as exc:
        raise StoreError(f"SQL file {path} cannot be read: {exc}") from exc


def header(text: str) -> tuple[dict[str, str], list[str]]:
    """Return the header fields of a SQL text, and its `param` lines; see the module's text."""
    fields: dict[str, str] = {}
    params: list[str] = []
    last = ""
    for line in text.splitlines():
        if not line.startswith("--"):
            break
        found = _HEADER.match(line)
        if found is None:
            more = line.lstrip("- ").strip()
            if last and more:
                fields[last] = f"{fields[last]} {more}"
            continue
        last, value = found.group(1), found.group(2).strip()
        if last == "param":
            params.append(value)
            last = ""
        else:
            fields[last] = value
    return fields, params


def parse_query(name: str, text: str) -> NamedQuery:
    """Return a named query from its file's text.

    Raises:
        StoreError: the header is incomplete or a parameter line cannot be read.
    """
    fields, lines = header(text)
    for needed in ("purpose", "grain", "units"):
        if not fields.get(needed):
            raise StoreError(f"query {name}: header lacks `-- {needed}:`")
    params: list[Param] = []
    for line in lines:
        found = _PARAM.fullmatch(line)
        if found is None:
            raise StoreError(f"query {name}: cannot read parameter line {line!r}")
        default = found["default"]
        params.append(
            Param(
                found["name"],
                found["type"],
                default.strip() if default is not None else None,
                found["help"] or "",
                int(found["least"]) if found["least"] else None,
            )
        )
    return NamedQuery(
        name, fields["purpose"], fields["grain"], fields["units"], tuple(params), text
    )


@cache
def named_queries() -> tuple[NamedQuery, ...]:
    """Return all named queries, by name."""
    files = sorted((sql_root() / "queries").glob("*.sql"))
    return tuple(parse_query(path.stem, path.read_text("utf-8")) for path in files)


def find_query(name: str) -> NamedQuery | None:
    """Return one named query, or None where there is none of that name."""
    return next((query for query in named_queries() if query.name == name), None)


def named_query(name: str) -> NamedQuery:
    """Return one named query.

    Raises:
        QueryError: there is none of that name.
    """
    query = find_query(name)
    if query is not None:
        return query
    raise QueryError(f"no query is named {name!r}; `idlewatt sql list` shows all")


def is_name(text: str) -> bool:
    """Return True if `text` could be the name of a query rather than SQL."""
    return _NAME.fullmatch(text) is not None


def run_query(
    store: Store,
    sql: str,
    params: Mapping[str, Any] | None = None,
    *,
    timeout_s: float | None = None,
    max_rows: int | None = None,
) -> QueryResult:
    """Return the answer to one SELECT, run read-only in the sandbox.

    Args:
        store: the open warehouse.
        sql: the statement.
        params: values of its `$name` parameters.
        timeout_s: the statement is stopped after this; `query.timeout_s` where None.
        max_rows: the answer is cut here; `query.max_rows` where None.

    Raises:
        QueryError: refused, failed, or stopped; one clear sentence.
    """
    from warehouse.sandbox import run_sandboxed

    return run_sandboxed(store, sql, params or {}, timeout_s=timeout_s, max_rows=max_rows)
