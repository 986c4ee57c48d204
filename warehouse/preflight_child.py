"""The child process in which statements are planned first, over empty tables of the same names.

Reads one JSON line a statement from standard input, ``{"sql": ..., "params": {...}}``, and answers
one JSON line: ``{}`` where it can be planned, else ``{"error": ...}``. It ends with its input. It
never sees the warehouse's file or folder.
"""

from __future__ import annotations

import contextlib
import json
import resource
import signal
import sys
from typing import Any, Final

import duckdb

from idlewatt.clock import SystemClock
from idlewatt.units import MIB
from warehouse import schema
from warehouse.statement import one_sentence

_ALONE_S: Final = 60
_DUCKDB_MIB: Final = 256
_ADDRESS_MIB: Final = 2048
_READY: Final = "ready"


def main() -> None:
    """Plan statements until standard input ends."""
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    con = empty_warehouse()
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_AS, (_ADDRESS_MIB * MIB, _ADDRESS_MIB * MIB))
    _say(_READY)
    for line in sys.stdin:
        signal.alarm(_ALONE_S)  # ends a plan without end whose server is gone
        _say(_planned(con, json.loads(line)))
        signal.alarm(0)


def empty_warehouse() -> duckdb.DuckDBPyConnection:
    """Return a locked connection with all tables, macros and views of a warehouse, without rows."""
    con = duckdb.connect(
        ":memory:",
        config={
            "threads": 1,
            "memory_limit": f"{_DUCKDB_MIB}MiB",
            "max_temp_directory_size": "0MiB",
            "python_enable_replacements": False,
            "autoinstall_known_extensions": False,
        },
    )
    con.execute("LOAD icu")
    con.execute("SET GLOBAL TimeZone = 'UTC'")
    con.execute("ATTACH ':memory:' AS idlewatt")
    con.execute("USE idlewatt")
    schema.migrate(con, SystemClock())
    schema.create_views(con, [], [])
    con.execute("SET GLOBAL enable_external_access = false")
    con.execute("SET GLOBAL lock_configuration = true")
    return con


def _planned(con: duckdb.DuckDBPyConnection, asked: dict[str, Any]) -> dict[str, str]:
    params = asked["params"]
    try:
        text = f"EXPLAIN\n{asked['sql']}"
        result = con.execute(text, params) if params else con.execute(text)
        result.fetchall()
    except (duckdb.OutOfMemoryException, MemoryError):
        return {"error": "planning the statement needs too much memory; ask for less"}
    except (duckdb.Error, ValueError) as exc:
        return {"error": one_sentence(exc)}
    return {}


def _say(value: Any) -> None:
    sys.stdout.write(json.dumps(value) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
