"""`GET /api/v1/job`: the report of a job, as JSON and as text."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

import pytest

from dashboard import http
from dashboard.models import ReadModels
from dashboard.views import job_report
from idlewatt.errors import UsageError
from warehouse.http import HttpError, Request, Response


@pytest.fixture
def models(filled: Any, make_models: Callable[..., Any]) -> ReadModels:
    found: ReadModels = make_models(filled)[0]
    return found


def ask(models: ReadModels, query: str, **headers: str) -> Response:
    async def nothing() -> dict[str, Any]:
        return {"type": "http.request", "body": b""}

    (route,) = http.routes(models.jobs)
    assert (route.method, route.path) == ("GET", "/api/v1/job")
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    request = Request("GET", route.path, named, query, nothing)
    return asyncio.run(_call(route.handler(request)))


async def _call(answer: Any) -> Response:
    found: Response = await answer
    return found


def test_json_and_text_come_from_one_model(models: ReadModels) -> None:
    answer = ask(models, "key=alpha%3A104%3A0")
    assert answer.content_type == "application/json"
    shot = models.jobs.read("alpha:104:0")
    assert json.loads(answer.body) == json.loads(json.dumps(job_report.report(shot)))
    answer = ask(models, "key=alpha:104:0&format=text")
    assert answer.content_type == "text/plain; charset=utf-8"
    assert answer.body.decode() == job_report.text(shot)


def test_unknown_job_is_404(models: ReadModels) -> None:
    with pytest.raises(HttpError, match="nothing is known of job 'alpha:9:0'") as caught:
        ask(models, "key=alpha:9:0")
    assert caught.value.status == 404


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ("", "give the job"),
        ("key=", "give the job"),
        ("key=a&format=pdf", "none of: json, text"),
        ("key=a&sql=x", "unknown parameter 'sql'"),
    ],
)
def test_wrong_questions(models: ReadModels, query: str, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        ask(models, query)


def test_other_sites_get_nothing(models: ReadModels) -> None:
    with pytest.raises(HttpError, match="another site"):
        ask(models, "key=alpha:104:0", sec_fetch_site="cross-site")
