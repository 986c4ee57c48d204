"""Ships simulated history through the ordinary ingest path, newest hour first.

Making and sending overlap: one thread posts while the next chunk is made.
"""

from __future__ import annotations

import functools
import queue
import random
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from collector.shipper import Backoff, Connection
from collector.simulator.cluster import ClusterSpec, node_id
from collector.simulator.history import epoch_of, generate
from idlewatt import __version__
from idlewatt.clock import Clock
from idlewatt.errors import IdlewattError, ServerUnreachableError, UnavailableError
from idlewatt.model import Lane
from idlewatt.units import S_PER_HOUR, US_PER_HOUR, US_PER_MS, US_PER_S
from idlewatt.wire import WIRE_VERSION, Header, encode_batch

ROWS_PER_BATCH: Final = 60_000
GIVE_UP_AFTER_S: Final = 120.0
_AHEAD: Final = 2


@dataclass(frozen=True, slots=True)
class Progress:
    """What one acknowledged batch added."""

    node_id: str
    rows: int
    gpu_hours: float


@dataclass(frozen=True, slots=True)
class _Made:
    node_index: int
    seq: int
    rows: int
    gpu_hours: float
    body: bytes


def windows(spec: ClusterSpec, end_us: Mapping[int, int]) -> Iterator[tuple[int, int, int]]:
    """Yield (node index, start, end) from the newest hour to the origin, all nodes of an hour.

    Args:
        spec: the cluster.
        end_us: node index -> end of its history, exclusive.
    """
    rows_per_hour = spec.gpus_per_node * S_PER_HOUR
    parts = -(-rows_per_hour // ROWS_PER_BATCH)
    step_us = -(-S_PER_HOUR // parts) * US_PER_S
    newest = max(end_us.values(), default=spec.origin_us)
    hour_us = (newest - 1) // US_PER_HOUR * US_PER_HOUR
    while hour_us + US_PER_HOUR > spec.origin_us:
        for index, end in end_us.items():
            start = max(hour_us, spec.origin_us)
            stop = min(hour_us + US_PER_HOUR, end)
            for low in range(start, stop, step_us):
                yield index, low, min(low + step_us, stop)
        hour_us -= US_PER_HOUR


class Backfill:
    """The history of a simulated cluster on its way to a server.

    Args:
        spec: the cluster.
        url: base address of the server.
        tokens: node id -> token.
        end_us: node index -> end of its history, exclusive; the live agent has the rest.
        clock: time, for waiting between tries.
    """

    def __init__(
        self,
        spec: ClusterSpec,
        url: str,
        tokens: Mapping[str, str],
        end_us: Mapping[int, int],
        clock: Clock,
    ) -> None:
        self._spec = spec
        self._end_us = dict(end_us)
        self._clock = clock
        self._links = {
            index: Connection(url, functools.partial(tokens.__getitem__, node_id(index)), 60.0)
            for index in end_us
        }
        self._stop = threading.Event()

    @property
    def gpu_hours(self) -> float:
        """Return how many GPU-hours there are to ship."""
        spans = [end - self._spec.origin_us for end in self._end_us.values()]
        return sum(max(span, 0) for span in spans) * self._spec.gpus_per_node / US_PER_HOUR

    def stop(self) -> None:
        """Stop after the batch under way."""
        self._stop.set()

    def run(self, on_progress: Callable[[Progress], None]) -> int:
        """Ship everything and return the number of rows.

        Raises:
            UnavailableError: the server did not take a batch for too long.
            IdlewattError: the server refused a batch.
        """
        made: queue.Queue[_Made | BaseException | None] = queue.Queue(_AHEAD)
        maker = threading.Thread(target=self._make, args=(made,), name="history", daemon=True)
        maker.start()
        rows = 0
        try:
            while (item := made.get()) is not None:
                if isinstance(item, BaseException):
                    raise item
                self._post(item)
                rows += item.rows
                on_progress(Progress(node_id(item.node_index), item.rows, item.gpu_hours))
        finally:
            self._stop.set()
            while maker.is_alive():
                try:
                    made.get(timeout=0.1)
                except queue.Empty:
                    continue
            for link in self._links.values():
                link.close()
        return rows

    def _make(self, made: queue.Queue[_Made | BaseException | None]) -> None:
        try:
            seqs = dict.fromkeys(self._end_us, 0)
            for index, low, high in windows(self._spec, self._end_us):
                if self._stop.is_set():
                    break
                seqs[index] += 1
                made.put(self._batch(index, seqs[index], low, high))
            made.put(None)
        except BaseException as exc:
            made.put(exc)

    def _batch(self, index: int, seq: int, low_us: int, high_us: int) -> _Made:
        known_us = max(self._end_us.values())
        (tables,) = generate(self._spec, index, low_us, high_us, closed_by_us=known_us)
        if seq > 1:  # the inventory travels once
            for name in ("node", "device", "device_capability"):
                tables.pop(name, None)
        header = Header(
            version=WIRE_VERSION,
            node_id=node_id(index),
            epoch=epoch_of(self._spec),
            lane=Lane.BACKFILL.value,
            seq=seq,
            agent_version=__version__,
            created_ms=self._clock.now_us() // US_PER_MS,
        )
        rows = tables["gpu_sample"].rows
        body = encode_batch(header, tables, level=1)
        return _Made(index, seq, rows, rows / S_PER_HOUR, body)

    def _post(self, item: _Made) -> None:
        backoff = Backoff(random.Random(item.seq))  # noqa: S311 - spreads load, hides nothing
        waited_s = 0.0
        while True:
            try:
                answer = self._links[item.node_index].post(item.body)
                if answer.ok:
                    return
                if answer.status not in (429, 503, 507):
                    raise IdlewattError(f"history was refused: {answer.error}")
                reason, least_s = answer.error, answer.retry_after_s or 0.0
            except ServerUnreachableError as exc:
                reason, least_s = str(exc), 0.0
            if waited_s > GIVE_UP_AFTER_S:
                raise UnavailableError(f"history cannot be shipped: {reason}")
            wait_s = backoff.next_s(least_s)
            self._clock.wait(wait_s, self._stop)
            waited_s += wait_s
