"""What a plain ASGI handler needs: requests with limits, answers, and who may call."""

from __future__ import annotations

import ipaddress
import json
from collections.abc import Awaitable, Callable, Iterable, Mapping, MutableMapping
from dataclasses import dataclass, field
from typing import Any, Final, Protocol
from urllib.parse import urlsplit

from idlewatt import __version__
from idlewatt.errors import (
    AuthError,
    IdlewattError,
    QueryError,
    SequenceError,
    UnavailableError,
    UsageError,
    WireError,
)
from idlewatt.wire import SERVER_HEADER

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
AsgiApp = Callable[[Scope, Receive, Send], Awaitable[None]]

JSON: Final = "application/json"
_LOCAL_NAMES: Final = frozenset({"localhost", "localhost.localdomain", "ip6-localhost"})


class HttpError(IdlewattError):
    """An answer other than 200 that no other error stands for."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


@dataclass(frozen=True, slots=True)
class Request:
    """A request without its body.

    Attributes:
        method: GET, POST, ...
        path: path without query string.
        headers: names in lower case; of a repeated header the last.
        receive: ASGI's receive.
    """

    method: str
    path: str
    headers: Mapping[str, str]
    query: str
    receive: Receive

    @classmethod
    def from_scope(cls, scope: Scope, receive: Receive) -> Request:
        """Return the request of an ASGI http scope."""
        headers = {
            name.decode("latin-1").lower(): value.decode("latin-1")
            for name, value in scope["headers"]
        }
        query = scope.get("query_string", b"").decode("latin-1")
        return cls(scope["method"], scope["path"], headers, query, receive)

    async def body(self, limit: int) -> bytes:
        """Return the body, never holding more than `limit` bytes.

        Raises:
            HttpError: 413, it is larger; 400, the client went away.
        """
        too_large = HttpError(413, f"the body is over the limit of {limit} bytes")
        claimed = self.headers.get("content-length", "")
        if claimed.isdecimal() and int(claimed) > limit:
            raise too_large
        parts: list[bytes] = []
        size = 0
        while True:
            message = await self.receive()
            if message["type"] == "http.disconnect":
                raise HttpError(400, "the client went away before the body was complete")
            part = message.get("body", b"")
            size += len(part)
            if size > limit:
                raise too_large
            parts.append(part)
            if not message.get("more_body"):
                return parts[0] if len(parts) == 1 else b"".join(parts)

    def bearer(self) -> str | None:
        """Return the token of the Authorization header."""
        scheme, _, token = self.headers.get("authorization", "").partition(" ")
        return token.strip() if scheme.lower() == "bearer" and token.strip() else None


def common_headers(content_type: str) -> dict[str, str]:
    """Return the headers of every answer."""
    return {
        "content-type": content_type,
        "x-content-type-options": "nosniff",
        "cache-control": "no-store",
        SERVER_HEADER.lower(): __version__,
    }


@dataclass(frozen=True, slots=True)
class Response:
    """A whole answer."""

    status: int = 200
    body: bytes = b""
    content_type: str = JSON
    headers: Mapping[str, str] = field(default_factory=dict)

    async def send(self, send: Send, *, head: bool = False) -> None:
        """Send it; without its body where `head` is set."""
        size = {"content-length": str(len(self.body))}
        headers = common_headers(self.content_type) | size | dict(self.headers)
        encoded = [(name.encode(), value.encode("latin-1")) for name, value in headers.items()]
        await send({"type": "http.response.start", "status": self.status, "headers": encoded})
        await send({"type": "http.response.body", "body": b"" if head else self.body})


class Answer(Protocol):
    """What a handler returns: something that can be sent."""

    async def send(self, send: Send, *, head: bool = False) -> None:
        """Send it; without its body where `head` is set."""
        ...


Handler = Callable[[Request], Awaitable[Answer]]


@dataclass(frozen=True, slots=True)
class Route:
    """A handler at a method and an exact path."""

    method: str
    path: str
    handler: Handler


def json_response(
    value: Any, status: int = 200, headers: Mapping[str, str] | None = None
) -> Response:
    """Return a JSON answer."""
    body = json.dumps(value, default=str, ensure_ascii=False, separators=(",", ":"))
    return Response(status, body.encode("utf-8", "replace"), JSON, headers or {})


def error_response(exc: IdlewattError) -> Response:
    """Return the answer that tells of an error: one sentence, and what goes with it."""
    body: dict[str, Any] = {"error": str(exc)}
    headers: dict[str, str] = {}
    status = 500
    match exc:
        case HttpError():
            status = exc.status
        case SequenceError():
            status, body["expected"] = 409, exc.expected
        case UnavailableError():
            status, headers["retry-after"] = exc.status, str(exc.retry_after_s)
        case AuthError():
            status = 403
        case WireError() | QueryError() | UsageError():
            status = 400
    if status == 401:
        headers["www-authenticate"] = "Bearer"
    return json_response(body, status, headers)


def is_loopback(host: str) -> bool:
    """Return True if `host` (name or address, without port) is this machine only."""
    if host.lower() in _LOCAL_NAMES:
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def check_host(request: Request, allowed: frozenset[str]) -> None:
    """Refuse a browser that was led here under another name (DNS rebinding).

    Args:
        request: the request.
        allowed: names answered to beside those of this machine.

    Raises:
        HttpError: 421, the Host header names somebody else.
    """
    try:
        host = urlsplit(f"//{request.headers.get('host', '')}").hostname or ""
    except ValueError:
        host = ""
    if not is_loopback(host) and host.lower() not in allowed:
        raise HttpError(421, f"this server answers as localhost, not as {host[:80]!r}")


def check_same_site(request: Request, allowed: frozenset[str] = frozenset()) -> None:
    """Refuse what another site's page made a browser send.

    A browser's own word (`Sec-Fetch-Site`) decides; without it `Origin` has to name this server.

    Args:
        request: the request.
        allowed: further host names that this server is known by, such as a proxy's.

    Raises:
        HttpError: 403, the request comes from another site.
    """
    refusal = HttpError(403, "requests of another site's pages are not answered")
    site = request.headers.get("sec-fetch-site")
    if site is not None:
        if site not in ("none", "same-origin"):
            raise refusal
        return
    origin = request.headers.get("origin")
    if origin is None:
        return
    try:
        parts = urlsplit(origin)
        host = parts.hostname or ""
    except ValueError:
        raise refusal from None
    if parts.netloc != request.headers.get("host") and host.lower() not in allowed:
        raise refusal


def find_route(routes: Iterable[Route], method: str, path: str) -> Route | None:
    """Return the route of a request; HEAD is answered by GET.

    Raises:
        HttpError: 405, the path exists for other methods only.
    """
    known = [route for route in routes if route.path == path]
    wanted = "GET" if method == "HEAD" else method
    for route in known:
        if route.method == wanted:
            return route
    if known:
        allowed = ", ".join(sorted(route.method for route in known))
        raise HttpError(405, f"{path} takes {allowed}, not {method[:16]}")
    return None
