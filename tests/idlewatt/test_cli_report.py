"""`idlewatt report job` against a small server of its own."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from urllib.parse import parse_qs, urlsplit

import pytest

from idlewatt.cli import main

ASKED: list[dict[str, list[str]]] = []


class Answers(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        url = urlsplit(self.path)
        asked = parse_qs(url.query)
        ASKED.append(asked)
        if url.path != "/api/v1/job":
            self._send(404, b"what?")
        elif asked["key"] == ["c:9:0"]:
            self._send(404, json.dumps({"error": "nothing is known of job 'c:9:0'"}).encode())
        elif asked["format"] == ["text"]:
            self._send(200, b"the page\n")
        else:
            self._send(200, b'{"job_key":"c:1:0","energy_kwh":null}')

    def _send(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_words: object) -> None:
        pass


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with HTTPServer(("127.0.0.1", 0), Answers) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def test_text(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", "job", "c:1:0", "--url", url]) == 0
    assert capsys.readouterr().out == "the page\n"
    assert ASKED[-1] == {"key": ["c:1:0"], "format": ["text"]}


def test_json_and_flags_before_the_word(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", "--url", url, "--json", "job", "a&b=c:1/0"]) == 0
    assert json.loads(capsys.readouterr().out) == {"job_key": "c:1:0", "energy_kwh": None}
    assert ASKED[-1] == {"key": ["a&b=c:1/0"], "format": ["json"]}


def test_unknown_job(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", "job", "c:9:0", "--url", url]) == 1
    assert "nothing is known of job 'c:9:0'" in capsys.readouterr().err


def test_not_our_server(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", "job", "c:1:0", "--url", f"{url}/elsewhere"]) == 1
    assert "is it an idlewatt server?" in capsys.readouterr().err


def test_nobody_answers(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", "job", "c:1:0", "--url", "http://127.0.0.1:9"]) == 5
    assert "no server answers" in capsys.readouterr().err
    assert main(["report", "job", "c:1:0", "--url", "ftp://x"]) == 2
