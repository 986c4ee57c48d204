"""The shipper: batches from the spool to the server, each exactly once.

Two lanes, each in its own thread with its own connection and one batch in flight: current seconds
never wait for old ones. A batch is sent until the server has answered for it; the server ignores
what it has already committed.
"""

from __future__ import annotations

import json
import logging
import random
import sqlite3
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Protocol

from collector.batcher import next_batch
from collector.facts import REPEAT_EVERY_S
from collector.http1 import HttpConnection, parse_url
from collector.spool import Spool
from collector.spooled import SpoolDamagedError, StoredBatch
from idlewatt import __version__
from idlewatt.clock import Clock
from idlewatt.errors import ServerUnreachableError
from idlewatt.model import Lane
from idlewatt.units import US_PER_S
from idlewatt.wire import CONTENT_TYPE, SERVER_HEADER

INGEST_PATH: Final = "/api/v1/ingest"
GIVEN_UP_HEADER: Final = "Idlewatt-Given-Up"
TIMEOUT_S: Final = 10.0
BACKOFF_FIRST_S: Final = 0.5
BACKOFF_MAX_S: Final = 30.0
AUTH_RETRY_S: Final = 30.0
BACKFILL_LOOK_S: Final = 5.0

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Answer:
    """What the server said about a batch.

    Attributes:
        status: HTTP status; 502 for a 200 that acknowledges nothing.
        acked: newest sequence of the lane that the server has.
        duplicate: whether it had the batch already.
        flush_s: batching interval it wants.
        expected: sequence it wants next.
        error: why not.
        retry_after_s: when to try again.
        ours: whether an idlewatt server spoke, and not something on the way.
    """

    status: int
    acked: int | None = None
    duplicate: bool = False
    flush_s: float | None = None
    expected: int | None = None
    error: str = ""
    retry_after_s: float | None = None
    ours: bool = True

    @property
    def ok(self) -> bool:
        """Return whether the server has the batch."""
        return self.status == 200


class Transport(Protocol):
    """What a lane needs to send."""

    def post(self, body: bytes, given_up: tuple[int, int] | None = None) -> Answer:
        """Return the server's answer.

        Raises:
            ServerUnreachableError: there was none.
        """
        ...

    def close(self) -> None:
        """Drop the connection."""
        ...


class Connection:
    """A kept-alive connection to the ingest endpoint.

    Args:
        url: base address of the server, `http://` or `https://`.
        token: returns the bearer token; asked for each request, so that a new file is noticed.
        timeout_s: longest wait for an answer.

    Raises:
        ConfigError: the address makes no sense.
    """

    def __init__(self, url: str, token: Callable[[], str], timeout_s: float = TIMEOUT_S) -> None:
        self._http = HttpConnection(parse_url(url), timeout_s)
        self._token = token

    def post(self, body: bytes, given_up: tuple[int, int] | None = None) -> Answer:
        """Return the server's answer to a batch.

        Raises:
            ServerUnreachableError: there was none; whether it was committed is unknown.
        """
        headers = {"Content-Type": CONTENT_TYPE, "User-Agent": f"idlewatt-agent/{__version__}"}
        token = self._token()
        if token:
            headers["Authorization"] = f"Bearer {token}"
        if given_up is not None:
            headers[GIVEN_UP_HEADER] = f"{given_up[0]}-{given_up[1]}"
        response = self._http.post(INGEST_PATH, headers, body)
        return parse_answer(response.status, response.headers, response.body)

    def close(self) -> None:
        """Drop the connection; the next post opens another."""
        self._http.close()


def parse_answer(status: int, headers: Mapping[str, str], raw: bytes) -> Answer:
    """Return the answer in an HTTP response.

    Only what an idlewatt server has marked as its own says anything about a batch; a proxy may
    answer 200, 400, 409 or 413 too, in JSON even, and knows nothing of it.

    Args:
        status: HTTP status.
        headers: names in lower case.
        raw: body.
    """
    try:
        found = json.loads(raw)
    except ValueError:
        found = None
    content: dict[str, Any] = found if isinstance(found, dict) else {}
    error = str(content.get("error") or "")
    retry_after_s = _seconds(headers.get("retry-after"))
    if SERVER_HEADER.lower() not in headers:
        words = f"HTTP status {status} of something that is not an idlewatt server"
        words += f": {error}" if error else ""
        return Answer(
            502 if status == 200 else status, error=words, retry_after_s=retry_after_s, ours=False
        )
    acked, flush = _integer(content.get("acked")), content.get("flush_s")
    if status == 200 and acked is None:
        status, error = 502, "the answer says nothing of the batch"
    return Answer(
        status=status,
        acked=acked,
        duplicate=content.get("duplicate") is True,
        flush_s=float(flush) if isinstance(flush, (int, float)) else None,
        expected=_integer(content.get("expected")),
        error=error or ("" if status == 200 else f"HTTP status {status}"),
        retry_after_s=retry_after_s,
    )


def _integer(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _seconds(text: str | None) -> float | None:
    try:
        return None if text is None else min(max(float(text), 0.0), 3600.0)
    except ValueError:
        return None


def post_batch(
    url: str,
    token: str,
    body: bytes,
    given_up: tuple[int, int] | None = None,
    timeout_s: float = TIMEOUT_S,
) -> Answer:
    """Send one batch over a connection of its own and return the answer.

    Raises:
        ServerUnreachableError: there was no answer.
    """
    connection = Connection(url, lambda: token, timeout_s)
    try:
        return connection.post(body, given_up)
    finally:
        connection.close()


class Backoff:
    """Exponential waiting with full jitter."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._tries = 0

    def reset(self) -> None:
        """Start over after a success."""
        self._tries = 0

    def next_s(self, least_s: float = 0.0) -> float:
        """Return how long to wait before the next try."""
        ceiling = min(BACKOFF_FIRST_S * 2**self._tries, BACKOFF_MAX_S)
        self._tries = min(self._tries + 1, 16)
        return least_s + self._rng.uniform(0.0, ceiling)


def off_the_tick(phase_us: int) -> int:
    """Return a phase moved out of the 100 ms on either side of a whole second.

    At whole seconds the poller reads and writes; a batch is formed and sent in between.
    """
    whole_us, part_us = divmod(phase_us, US_PER_S)
    return whole_us * US_PER_S + US_PER_S // 10 + part_us * 8 // 10


@dataclass(frozen=True, slots=True)
class LaneConfig:
    """How a lane works."""

    node_id: str
    lane: Lane
    live_horizon_s: int
    flush_s: float


class LaneShipper:
    """Sends one lane of the spool.

    `step()` does one thing and says how long to wait before the next; `run()` loops until told to
    stop; `finish()` sends what is left; `close()` drops the connection.
    """

    def __init__(
        self,
        spool: Spool,
        transport: Transport,
        config: LaneConfig,
        clock: Clock,
        rng: random.Random | None = None,
    ) -> None:
        self._spool = spool
        self._transport = transport
        self._config = config
        self._clock = clock
        rng = rng or random.Random()  # noqa: S311  # spreads load, hides nothing
        self._backoff = Backoff(rng)
        self._phase = rng.random()
        self._flush_s = config.flush_s
        self._said = ""
        self._acked = (0, 0)  # epoch and sequence of the newest batch that was acknowledged
        self._forgetful = False
        first_us = round(rng.random() * REPEAT_EVERY_S * US_PER_S)  # spread over the nodes
        self._repeat_us = clock.now_us() + first_us
        self.sent = 0

    def run(self, stop: threading.Event) -> None:
        """Ship until `stop` is set."""
        while not stop.is_set():
            self._clock.wait(self.step(), stop)

    def finish(self, patience_s: float) -> None:
        """Send what still waits in this lane; end at the first batch that is not taken.

        No new batch is begun after `patience_s`; one that waits for its answer goes on waiting.
        """
        end_ns = self._clock.monotonic_ns() + round(patience_s * 1e9)
        while self._clock.monotonic_ns() < end_ns:
            before = self.sent
            self.step()
            if self.sent == before:
                return

    def close(self) -> None:
        """Drop the connection."""
        self._transport.close()

    def step(self) -> float:
        """Send at most one batch and return the seconds until the next step."""
        try:
            now_us = self._clock.now_us()
            config = self._config
            batch = next_batch(
                self._spool, config.node_id, config.lane, now_us, config.live_horizon_s
            )
            if batch is None:
                return self._until_flush(now_us)
            return self._deliver(batch)
        except SpoolDamagedError:
            raise
        except sqlite3.Error as exc:  # busy or disk full: passes
            self._say(logging.ERROR, f"spool cannot be written: {exc}")
            return self._backoff.next_s()

    def _deliver(self, batch: StoredBatch) -> float:
        try:
            answer = self._transport.post(batch.body)
            if answer.status == 409 and answer.expected is not None:
                answer = self._declare(batch, answer.expected)
        except ServerUnreachableError as exc:
            self._say(logging.WARNING, str(exc))
            return self._backoff.next_s()
        return self._settle(batch, answer)

    def _declare(self, batch: StoredBatch, expected: int) -> Answer:
        """Give up the numbers before `batch` that exist nowhere any more."""
        epoch, acked = self._acked
        if expected == 1 or (epoch == batch.epoch and expected <= acked):
            self._forgetful = True
        if expected >= batch.seq:
            return Answer(409, error=f"server wants {expected} after {batch.seq}")
        lost = (expected, batch.seq - 1)
        self._say(logging.WARNING, f"sequences {lost[0]} to {lost[1]} are given up")
        return self._transport.post(batch.body, lost)

    def _settle(self, batch: StoredBatch, answer: Answer) -> float:
        status = answer.status
        if answer.ok and answer.acked is not None and answer.acked >= batch.seq:
            self._spool.acknowledge(batch)
            self._backoff.reset()
            self._said = ""
            self._acked = (batch.epoch, batch.seq)
            self.sent += 1
            self._repeat_facts()
            if answer.flush_s is not None and 0.05 <= answer.flush_s <= 600:
                self._flush_s = answer.flush_s
            return self._pause(batch)
        if status in (400, 413) and answer.ours:
            self._say(logging.ERROR, f"batch {batch.seq} was refused for good: {answer.error}")
            self._spool.quarantine(batch, self._config.node_id, answer.error, self._clock.now_us())
            return 0.0
        if status in (401, 403) and answer.ours:
            self._say(logging.ERROR, f"token refused: {answer.error}; see agent.token_file")
            return self._backoff.next_s(AUTH_RETRY_S)
        self._say(logging.WARNING, f"server cannot take batches now: {answer.error}")
        return self._backoff.next_s(answer.retry_after_s or 0.0)

    def _repeat_facts(self) -> None:
        """Tell inventory, jobs and allocations again: where they were forgotten, and each hour."""
        now_us = self._clock.now_us()
        due = self._config.lane is Lane.LIVE and now_us >= self._repeat_us
        if not (due or self._forgetful):
            return
        rows = self._spool.repeat_facts()
        if self._forgetful:
            _log.warning(
                "lane=%s the server had forgotten batches: inventory and open jobs are told again"
                " (%d rows)",
                self._config.lane.value,
                rows,
            )
        self._forgetful = False
        self._repeat_us = now_us + REPEAT_EVERY_S * US_PER_S

    def _pause(self, batch: StoredBatch) -> float:
        """Return the wait after a success: none while old seconds remain, else the interval."""
        now_us = self._clock.now_us()
        lag_us = now_us - batch.last_us
        if self._config.lane is Lane.BACKFILL or (batch.rows and lag_us > 10 * US_PER_S):
            return 0.0
        return self._until_flush(now_us)

    def _until_flush(self, now_us: int) -> float:
        """Return the seconds to this node's own phase of the batching interval."""
        flush_s = self._flush_s
        if self._config.lane is Lane.BACKFILL:
            flush_s = max(flush_s, BACKFILL_LOOK_S)
        flush_us = round(flush_s * US_PER_S)
        phase_us = off_the_tick(round(self._phase * flush_us))
        return (flush_us - (now_us - phase_us) % flush_us) / US_PER_S

    def _say(self, level: int, text: str) -> None:
        """Log a trouble once, not each second."""
        if text != self._said:
            self._said = text
            _log.log(level, "lane=%s %s", self._config.lane.value, text)
