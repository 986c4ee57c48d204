from __future__ import annotations

import asyncio
from typing import Any

import pytest

from idlewatt import __version__
from idlewatt.errors import SequenceError, UnavailableError, WireError
from idlewatt.wire import SERVER_HEADER
from warehouse.http import HttpError, Response, error_response, json_response

ANSWERS = [
    json_response({"acked": 1}),
    error_response(WireError("malformed")),
    error_response(HttpError(413, "too large")),
    error_response(SequenceError(3, 5)),
    error_response(UnavailableError("busy")),
]


@pytest.mark.parametrize("answer", ANSWERS, ids=lambda answer: str(answer.status))
def test_every_answer_says_that_an_idlewatt_server_gave_it(answer: Response) -> None:
    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    asyncio.run(answer.send(send))
    assert (SERVER_HEADER.lower().encode(), __version__.encode()) in sent[0]["headers"]
