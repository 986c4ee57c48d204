"""The HTTP routes of the analysis: `POST /api/v1/analyze`.

Body: ``{"analysis": "power_states", "from_utc": "2026-02-04T00:00:00Z", "to_utc": ...,
"min_interval_s": 5, "dry_run": false}``. The answer is what `analysis.report.power_states` says.
"""

from __future__ import annotations

import asyncio
import datetime as dt
from typing import Final

import msgspec

from analysis.report import power_states
from idlewatt.clock import Clock, us_from_utc
from idlewatt.config import Settings
from idlewatt.errors import UnavailableError, UsageError
from warehouse.http import Request, Response, Route, check_same_site, json_response
from warehouse.store import Store

PATH: Final = "/api/v1/analyze"
_MAX_BODY: Final = 64 << 10


class AnalyzeRequest(msgspec.Struct, forbid_unknown_fields=True):
    """Body of POST /api/v1/analyze; a time without zone is UTC."""

    analysis: str
    from_utc: dt.datetime
    to_utc: dt.datetime
    min_interval_s: int | None = None
    dry_run: bool = False


def routes(store: Store, settings: Settings, clock: Clock) -> list[Route]:
    """Return the routes to give to `warehouse.api.build_app`."""
    busy = asyncio.Lock()

    async def analyze(request: Request) -> Response:
        check_same_site(request)
        asked = _decode(await request.body(_MAX_BODY))
        if busy.locked():
            raise UnavailableError("another analysis runs already", 429, 5)
        async with busy:
            answer = await asyncio.to_thread(
                power_states,
                store,
                settings,
                clock,
                {
                    "from_us": us_from_utc(asked.from_utc),
                    "to_us": us_from_utc(asked.to_utc),
                    "min_interval_s": asked.min_interval_s,
                    "dry_run": asked.dry_run,
                },
            )
        return json_response(answer)

    return [Route("POST", PATH, analyze)]


def _decode(body: bytes) -> AnalyzeRequest:
    try:
        asked = msgspec.json.decode(body, type=AnalyzeRequest)
    except (msgspec.MsgspecError, UnicodeDecodeError) as exc:
        raise UsageError(f"the body is not an analysis to run: {exc}") from exc
    if asked.analysis != "power_states":
        raise UsageError(f"there is no analysis {asked.analysis[:40]!r}; known: power_states")
    if asked.min_interval_s is not None and asked.min_interval_s < 1:
        raise UsageError("min_interval_s is at least 1")
    return asked
