"""Asks the server: is it there, what time is it, whose token is this."""

from __future__ import annotations

import datetime as dt
import ipaddress
import json
from dataclasses import dataclass, replace
from typing import Any, Final

from collector.doctor.facts import ServerFacts
from collector.http1 import Address, HttpConnection, Response, parse_url
from idlewatt import __version__
from idlewatt.clock import Clock, us_from_utc
from idlewatt.errors import ConfigError, ServerUnreachableError
from idlewatt.units import US_PER_S

TIMEOUT_S: Final = 5.0
HEALTH_PATH: Final = "/healthz"
WHOAMI_PATH: Final = "/api/v1/whoami"


@dataclass(frozen=True, slots=True)
class ServerAnswer:
    """What the server said, and the clocks' difference that follows from it."""

    facts: ServerFacts
    skew_s: float | None = None
    skew_error_s: float = 0.0


@dataclass(frozen=True, slots=True)
class _Timed:
    response: Response
    middle_us: int
    took_us: int


def probe_server(url: str, token: str, clock: Clock, timeout_s: float = TIMEOUT_S) -> ServerAnswer:
    """Return what the server says; nothing there is changed."""
    facts = ServerFacts(url)
    if not url:
        return ServerAnswer(facts)
    try:
        address = parse_url(url)
    except ConfigError as exc:
        return ServerAnswer(replace(facts, error=str(exc)))
    facts = replace(facts, encrypted=address.tls, local=_is_local(address))
    http = HttpConnection(address, timeout_s)
    try:
        health = _get(http, HEALTH_PATH, "", clock)
        asked = _get(http, WHOAMI_PATH, token, clock) if token else None
    except ServerUnreachableError as exc:
        return ServerAnswer(replace(facts, error=str(exc)))
    finally:
        http.close()
    return _answer(facts, health, asked)


def _is_local(address: Address) -> bool:
    try:
        return ipaddress.ip_address(address.host).is_loopback
    except ValueError:
        return address.host == "localhost"


def _get(http: HttpConnection, path: str, token: str, clock: Clock) -> _Timed:
    headers = {"User-Agent": f"idlewatt-doctor/{__version__}"}
    if token:
        headers["Authorization"] = f"Bearer {token}"
    begun_ns = clock.monotonic_ns()
    response = http.get(path, headers)
    took_us = (clock.monotonic_ns() - begun_ns) // 1_000
    return _Timed(response, clock.now_us() - took_us // 2, took_us)


def _answer(facts: ServerFacts, health: _Timed, asked: _Timed | None) -> ServerAnswer:
    content = _json(health.response)
    status = content.get("status")
    if status not in ("ok", "red"):
        refusal = content.get("error")
        error = f"{facts.url} refuses: {refusal}" if refusal else None
        return ServerAnswer(replace(facts, error=error))
    problems = content.get("problems")
    facts = replace(
        facts,
        health=str(status),
        problems=tuple(str(one) for one in problems) if isinstance(problems, list) else (),
        round_trip_ms=health.took_us / 1_000,
    )
    skew_s, error_s = _coarse_skew(content.get("now_utc"), health)
    if asked is not None:
        who = _json(asked.response)
        node = who.get("node_id")
        facts = replace(
            facts, status=asked.response.status, token_node=None if node is None else str(node)
        )
        now_us = who.get("now_us")
        if isinstance(now_us, int):
            skew_s = (now_us - asked.middle_us) / US_PER_S
            error_s = asked.took_us / 2 / US_PER_S
    return ServerAnswer(facts, skew_s, error_s)


def _coarse_skew(text: Any, health: _Timed) -> tuple[float | None, float]:
    """Return the skew from a time without fractions: half a second off at most."""
    try:
        stamp_us = us_from_utc(dt.datetime.fromisoformat(str(text)))
    except ValueError:
        return None, 0.0
    half_us = US_PER_S // 2
    return (stamp_us + half_us - health.middle_us) / US_PER_S, 0.5 + health.took_us / 2 / US_PER_S


def _json(response: Response) -> dict[str, Any]:
    try:
        found = json.loads(response.body)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}
