"""Ships an import through the ordinary ingest path, so that the same file counts once.

The epoch of an import is made from its content. A second import of the same rows has the same
epoch and sequence numbers, and the server acknowledges it without storing it again. Epochs of
imports lie below any agent's (which count milliseconds since 1970), so that what an agent has seen
itself always wins over a file.
"""

from __future__ import annotations

import hashlib
import random
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

import msgspec

from collector.shipper import Answer, Backoff
from idlewatt import __version__
from idlewatt.clock import Clock
from idlewatt.columns import GPU_SAMPLE, TABLES
from idlewatt.errors import IdlewattError, ServerUnreachableError, UnavailableError
from idlewatt.model import Lane
from idlewatt.units import US_PER_MS
from idlewatt.wire import WIRE_VERSION, Header, encode_batch, table_from_rows

ROWS_PER_BATCH: Final = 60_000
GIVE_UP_AFTER_S: Final = 30.0
_EPOCH_BITS: Final = 40
_EPOCH_AT: Final = next(n for n, column in enumerate(GPU_SAMPLE) if column.name == "epoch")
_FIRST: Final = ("node", "device", "device_capability")

Row = tuple[Any, ...]
Rows = Mapping[str, Sequence[Row]]


class Link(Protocol):
    """What an import needs of a connection."""

    def post(self, body: bytes, given_up: tuple[int, int] | None = None) -> Answer:
        """Return the server's answer.

        Raises:
            ServerUnreachableError: there was none.
        """
        ...


@dataclass(frozen=True, slots=True)
class Shipped:
    """What became of an import.

    Attributes:
        rows: rows in it, of all tables.
        batches: batches sent.
        duplicates: batches that the server had already.
        epoch: epoch of the import.
    """

    rows: int
    batches: int
    duplicates: int
    epoch: int


def content_epoch(node_id: str, tables: Rows) -> int:
    """Return the epoch of an import: the same for the same rows of the same node."""
    digest = hashlib.sha256(node_id.encode())
    for name in sorted(tables):
        if tables[name]:
            table = table_from_rows(TABLES[name], tables[name])
            digest.update(msgspec.msgpack.encode((name, table)))
    return 1 + int.from_bytes(digest.digest()[:8], "big") % (1 << _EPOCH_BITS)


def batches(node_id: str, tables: Rows, created_ms: int) -> Iterator[tuple[int, int, bytes]]:
    """Yield (sequence, rows, body) of each batch; inventory travels in the first."""
    epoch = content_epoch(node_id, tables)
    for seq, part in enumerate(_parts(tables), 1):
        header = Header(
            WIRE_VERSION, node_id, epoch, Lane.BACKFILL.value, seq, __version__, created_ms
        )
        stamped = {
            name: _with_epoch(rows, epoch) if name == "gpu_sample" else rows
            for name, rows in part.items()
        }
        wired = {name: table_from_rows(TABLES[name], rows) for name, rows in stamped.items()}
        yield seq, sum(map(len, part.values())), encode_batch(header, wired)


def _parts(tables: Rows) -> Iterator[dict[str, Sequence[Row]]]:
    part = {name: tables[name] for name in _FIRST if tables.get(name)}
    left = ROWS_PER_BATCH - sum(map(len, part.values()))
    for name in sorted(set(tables) - set(_FIRST)):
        rows = tables[name]
        begin = 0
        while begin < len(rows):
            if left <= 0:
                yield part
                part, left = {}, ROWS_PER_BATCH
            end = min(begin + left, len(rows))
            part[name] = rows[begin:end]
            left -= end - begin
            begin = end
    if part:
        yield part


def _with_epoch(rows: Sequence[Row], epoch: int) -> list[Row]:
    return [(*row[:_EPOCH_AT], epoch, *row[_EPOCH_AT + 1 :]) for row in rows]


def ship(
    node_id: str,
    tables: Rows,
    link: Link,
    clock: Clock,
    on_progress: Callable[[int], None] = lambda rows: None,
) -> Shipped:
    """Send an import and return what became of it.

    Args:
        node_id: node of the rows.
        tables: rows by wire table.
        link: connection to the server.
        clock: time, for waiting between tries.
        on_progress: told the rows of each batch that was acknowledged.

    Raises:
        ServerUnreachableError: nobody answers.
        UnavailableError: the server takes nothing for too long.
        IdlewattError: it refuses the import.
    """
    total = sent = duplicates = 0
    stop = threading.Event()
    for seq, rows, body in batches(node_id, tables, clock.now_us() // US_PER_MS):
        answer = _post(link, body, seq, (clock, stop))
        duplicates += answer.duplicate
        total, sent = total + rows, sent + 1
        on_progress(rows)
    return Shipped(total, sent, duplicates, content_epoch(node_id, tables))


def _post(link: Link, body: bytes, seq: int, waiting: tuple[Clock, threading.Event]) -> Answer:
    clock, stop = waiting
    backoff = Backoff(random.Random(seq))  # noqa: S311 - spreads load, hides nothing
    waited_s = 0.0
    while True:
        failure: IdlewattError
        least_s = 0.0
        try:
            answer = link.post(body)
        except ServerUnreachableError as exc:
            failure = exc
        else:
            if answer.ok:
                return answer
            if answer.status not in (429, 503, 507):
                raise IdlewattError(f"the import was refused: {answer.error}{_hint(answer.status)}")
            failure = UnavailableError(f"the server takes no import now: {answer.error}")
            least_s = answer.retry_after_s or 0.0
        if waited_s > GIVE_UP_AFTER_S:
            raise failure
        wait_s = backoff.next_s(least_s)
        clock.wait(wait_s, stop)
        waited_s += wait_s


def _hint(status: int) -> str:
    if status == 401:
        return "; make a token with `idlewatt token create NODE` and give it with --token-file"
    if status == 403:
        return "; the token is of another node than --node-id"
    return ""
