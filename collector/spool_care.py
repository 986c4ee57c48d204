"""What is done to a spool before it is used."""

from __future__ import annotations

from pathlib import Path

from collector.spool import FILE_NAME, Spool
from collector.spooled import SpoolDamagedError
from idlewatt.units import US_PER_MS


def put_aside_if_damaged(folder: Path, now_us: int) -> Path | None:
    """Rename a damaged spool, so that a fresh one can start; return where it went, or None."""
    path = folder / FILE_NAME
    if not path.exists():
        return None
    try:
        spool = Spool(folder)
        try:
            spool.check()
        finally:
            spool.close()
    except SpoolDamagedError:
        aside = path.with_name(f"{FILE_NAME}.damaged-{now_us // US_PER_MS}")
        for suffix in ("", "-wal", "-shm"):
            part = path.with_name(path.name + suffix)
            if part.exists():
                part.rename(aside.with_name(aside.name + suffix))
        return aside
    return None
