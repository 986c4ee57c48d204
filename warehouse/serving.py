"""Runs the ASGI app in this process, until SIGTERM or SIGINT.

::

    with Store.open(data_dir, settings, clock) as store:
        ingestor = Ingestor(store)
        app = build_app(store, ingestor, Tokens(tokens_path(settings)), settings, clock,
                        wsgi=dash.server)
        with Sealer(store, ingestor.metrics):
            serve(app, settings, on_ready=lambda url: output.say(url))
        ingestor.close()

There is one process and one event loop: nothing can outlive it with the port or the database.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import logging
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable
from typing import Any

from idlewatt.config import Settings
from idlewatt.errors import ConfigError
from warehouse.http import is_loopback

log = logging.getLogger(__name__)

_READY_TRIES = 200
_STOP_S = 2.0


def check_bind(settings: Settings) -> None:
    """Refuse to listen beyond this machine, where queries have no roles and no TLS yet.

    Raises:
        ConfigError: `server.bind` is not a loopback address and `server.insecure_bind` is off.
    """
    bind = settings.text("server.bind")
    if not is_loopback(bind) and not settings["server.insecure_bind"]:
        raise ConfigError(
            f"server.bind is {bind!r}, but this server has no TLS and lets everyone query: keep it "
            "on 127.0.0.1 behind a proxy, or set server.insecure_bind = true on a trusted network"
        )


def pick_port(bind: str, port: int) -> int:
    """Return `port`, or a free one where it is 0.

    Raises:
        ConfigError: the port is taken or not allowed.
    """
    family = socket.AF_INET6 if ":" in bind else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((bind, port))
        except OSError as exc:
            raise ConfigError(
                f"cannot listen on {bind}:{port}: {exc.strerror}; choose another server.port"
            ) from exc
        return int(probe.getsockname()[1])


def serve(
    app: Any,
    settings: Settings,
    *,
    on_ready: Callable[[str], None] | None = None,
    stop: threading.Event | None = None,
) -> None:
    """Serve until SIGTERM, SIGINT or `stop`; SIGHUP is ignored.

    Args:
        app: the ASGI app.
        settings: `server.bind`, `server.port` (0 takes a free one) and `server.insecure_bind`.
        on_ready: called with the base URL once requests are answered.
        stop: set by somebody to end serving; the only way where this is not the main thread.

    Raises:
        ConfigError: the address may not or cannot be used.
    """
    check_bind(settings)
    bind = settings.text("server.bind")
    port = pick_port(bind, settings.integer("server.port"))
    try:
        asyncio.run(_serve(app, (bind, port), on_ready, stop))
    finally:
        _end_queries(app)


def _end_queries(app: Any) -> None:
    """Stop the statements that run; where one does not stop, the process will not wait for it."""
    close = getattr(app, "close", None)
    left = close() if close is not None else 0
    if left and threading.current_thread() is threading.main_thread():
        log.error("queries=%d msg=%r", left, "some queries do not stop; the process leaves them")
        # Runs after the store is closed: native code that is still at work must not be torn down.
        atexit.register(_leave)


def _leave() -> None:
    logging.shutdown()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    os._exit(0)


async def _serve(
    app: Any,
    address: tuple[str, int],
    on_ready: Callable[[str], None] | None,
    stop: threading.Event | None,
) -> None:
    from granian.constants import Interfaces
    from granian.server.embed import Server

    bind, port = address
    server = Server(
        app,
        address=bind,
        port=port,
        interface=Interfaces.ASGI,
        websockets=False,
        backlog=2048,
        log_enabled=False,
    )
    loop = asyncio.get_running_loop()
    ending = asyncio.Event()
    _catch_signals(loop, ending)
    serving = asyncio.create_task(server.serve())
    watcher = asyncio.create_task(_watch(stop, ending))
    try:
        await _until_listening(bind, port, serving)
        if on_ready is not None:
            host = f"[{bind}]" if ":" in bind else bind
            on_ready(f"http://{host}:{port}")
        ended = asyncio.create_task(ending.wait())
        await asyncio.wait({serving, ended}, return_when=asyncio.FIRST_COMPLETED)
        ended.cancel()
    finally:
        watcher.cancel()
        if not serving.done():
            server.stop()  # type: ignore[no-untyped-call]
        done, _ = await asyncio.wait({serving}, timeout=_STOP_S)
        if done:
            await serving


def _catch_signals(loop: asyncio.AbstractEventLoop, ending: asyncio.Event) -> None:
    if threading.current_thread() is not threading.main_thread():
        return
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, ending.set)
    loop.add_signal_handler(signal.SIGHUP, lambda: log.warning("msg=%r", "SIGHUP ignored"))


async def _watch(stop: threading.Event | None, ending: asyncio.Event) -> None:
    while stop is not None and not stop.is_set():
        await asyncio.sleep(0.05)
    if stop is not None:
        ending.set()


async def _until_listening(bind: str, port: int, serving: asyncio.Task[None]) -> None:
    for _ in range(_READY_TRIES):
        if serving.done():
            await serving
            raise ConfigError(f"the server on {bind}:{port} ended at once")
        with contextlib.suppress(OSError):
            _, writer = await asyncio.open_connection(bind, port)
            writer.close()
            return
        await asyncio.sleep(0.02)
    raise ConfigError(f"the server does not answer on {bind}:{port}")
