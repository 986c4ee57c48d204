"""The HTTP routes of the web app beside its pages: `GET /api/v1/job`.

``?key=<job_key>`` names the job; ``&format=text`` answers the report as a page of text instead of
JSON. Both come from the view model of the job's page.
"""

from __future__ import annotations

import asyncio
from typing import Final
from urllib.parse import parse_qs

from dashboard.job_model import JobReader
from dashboard.views.job_report import report, text
from idlewatt.errors import UsageError
from warehouse.http import HttpError, Request, Response, Route, check_same_site, json_response

PATH: Final = "/api/v1/job"
FORMATS: Final = ("json", "text")


def routes(jobs: JobReader) -> list[Route]:
    """Return the routes to give to `warehouse.api.build_app`."""

    async def job(request: Request) -> Response:
        check_same_site(request)
        key, form = _asked(request.query)
        snapshot = await asyncio.to_thread(jobs.read, key)
        if not snapshot.exists:
            raise HttpError(404, f"nothing is known of job {key[:80]!r}; keys: cluster:id:attempt")
        if form == "text":
            body = text(snapshot).encode("utf-8", "replace")
            return Response(200, body, "text/plain; charset=utf-8")
        return json_response(report(snapshot))

    return [Route("GET", PATH, job)]


def _asked(query: str) -> tuple[str, str]:
    given = parse_qs(query, keep_blank_values=True)
    unknown = sorted(set(given) - {"key", "format"})
    if unknown:
        raise UsageError(f"unknown parameter {unknown[0][:40]!r}; known: key, format")
    key, form = given.get("key", [""])[-1], given.get("format", ["json"])[-1]
    if not key:
        raise UsageError("give the job: ?key=cluster:id:attempt")
    if form not in FORMATS:
        raise UsageError(f"format {form[:40]!r} is none of: {', '.join(FORMATS)}")
    return key, form
