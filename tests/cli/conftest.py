"""A real server in this process, for verbs that ask one."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from idlewatt.clock import SystemClock
from idlewatt.config import resolve
from warehouse.api import Api, build_app
from warehouse.ingest import Ingestor
from warehouse.store import Store
from warehouse.tokens import Tokens


class Bridge(BaseHTTPRequestHandler):
    """Hands GET requests to the ASGI app."""

    protocol_version = "HTTP/1.1"
    app: Api

    def do_GET(self) -> None:
        sent: list[dict[str, Any]] = []

        async def receive() -> dict[str, Any]:
            return {"type": "http.request", "body": b"", "more_body": False}

        async def send(message: Any) -> None:
            sent.append(message)

        scope = {
            "type": "http",
            "method": "GET",
            "path": self.path,
            "headers": [
                (name.lower().encode(), text.encode()) for name, text in self.headers.items()
            ],
        }
        asyncio.run(self.app(scope, receive, send))
        self.send_response(sent[0]["status"])
        for name, text in sent[0]["headers"]:
            self.send_header(name.decode(), text.decode())
        self.end_headers()
        self.wfile.write(sent[1]["body"])

    def log_message(self, *_: Any) -> None:
        return


@pytest.fixture
def api(tmp_path: Path) -> Iterator[Callable[[str], tuple[str, str]]]:
    """Return a function that starts a server and returns its address and a node's token."""
    clock = SystemClock()
    settings = resolve({"server.min_free_mib": 0, "server.data_dir": str(tmp_path / "data")}, {})
    store = Store.open(tmp_path / "data", settings, clock)
    ingestor = Ingestor(store)
    tokens = Tokens(tmp_path / "data" / "tokens.toml")
    app = build_app(store, ingestor, tokens, settings, clock)
    handler = type("Handler", (Bridge,), {"app": app})
    http = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=http.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    yield lambda node: (f"http://127.0.0.1:{http.server_port}", tokens.create(node))
    http.shutdown()
    http.server_close()
    thread.join()
    ingestor.close()
    store.close()
