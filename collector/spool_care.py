"""What is done to a spool before it is used."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from collector.spool import FILE_NAME, Spool
from collector.spooled import SpoolDamagedError
from idlewatt.errors import UsageError
from idlewatt.units import US_PER_MS

_OWNER: Final = "node_id"


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


def claim(folder: Path, node_id: str) -> None:
    """Make the spool this node's.

    Raises:
        UsageError: it holds what another node has not sent yet.
    """
    spool = Spool(folder)
    try:
        owner = spool.state(_OWNER)
        if owner == node_id:
            return
        left = spool.backlog()
        if owner is not None and (left.ticks or left.batches or spool.facts(1)):
            raise UsageError(
                f"spool {folder} holds what node {owner!r}"
                " has not sent yet, and the server would take none of it"
                f" from node {node_id!r}: let an agent with --node-id {owner} send"
                " it first, or give this one another --spool-dir"
            )
        spool.keep(_OWNER, node_id)
    finally:
        spool.close()
