"""A small HTTP/1.1 client: post a body or get a page, keep the connection, read the answer.

The standard library's client would cost the agent 5 MB of memory (it brings the mail package and,
always, TLS); this one loads TLS only for `https`.
"""

from __future__ import annotations

import socket
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, BinaryIO, Final

from idlewatt.errors import ConfigError, ServerUnreachableError

MAX_BODY_BYTES: Final = 1 << 20
_MAX_LINE: Final = 16_384
_MAX_HEADERS: Final = 200


@dataclass(frozen=True, slots=True)
class Address:
    """Where a server is.

    Attributes:
        tls: whether it speaks TLS.
        host: name or address, without brackets.
        port: TCP port.
        path: prefix of every request, without a slash at its end.
    """

    tls: bool
    host: str
    port: int
    path: str

    @property
    def authority(self) -> str:
        """Return the value of the Host header."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == (443 if self.tls else 80) else f"{host}:{self.port}"


def parse_url(url: str) -> Address:
    """Return the address in `url`.

    Raises:
        ConfigError: it is not http(s)://HOST[:PORT][/PREFIX].
    """
    wrong = ConfigError(f"server address {url!r} is not http(s)://HOST[:PORT]")
    scheme, found, rest = url.partition("://")
    if scheme not in ("http", "https") or not found:
        raise wrong
    authority, _, path = rest.partition("/")
    host, separator, port = authority.rpartition(":")
    if not separator or authority.endswith("]"):
        host, port = authority, "443" if scheme == "https" else "80"
    host = host.removeprefix("[").removesuffix("]")
    plain = all(ord(char) > 32 and char not in '@?#"<>\\' for char in host + path)
    if not host or not plain or not port.isascii() or not port.isdigit() or int(port) > 65_535:
        raise wrong
    return Address(scheme == "https", host, int(port), ("/" + path).rstrip("/"))


@dataclass(frozen=True, slots=True)
class Response:
    """An answer; header names are lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class ProtocolError(Exception):
    """The peer does not speak HTTP as it should, or closed the connection early."""


class HttpConnection:
    """One connection, opened when it is needed and kept.

    Args:
        address: the server.
        timeout_s: longest wait for any one step.
    """

    def __init__(self, address: Address, timeout_s: float) -> None:
        self._address = address
        self._timeout_s = timeout_s
        self._socket: socket.socket | None = None
        self._input: BinaryIO | None = None
        self._tls: Any = None

    def close(self) -> None:
        """Drop the connection; the next post opens another."""
        if self._input is not None:
            self._input.close()
        if self._socket is not None:
            self._socket.close()
        self._socket = self._input = None

    def post(self, path: str, headers: Mapping[str, str], body: bytes) -> Response:
        """Return the answer to a POST.

        A kept connection that the server has closed meanwhile is opened again, once.

        Raises:
            ServerUnreachableError: there is no answer; what the server did is unknown.
        """
        return self._ask("POST", path, {"Content-Length": str(len(body)), **headers}, body)

    def get(self, path: str, headers: Mapping[str, str]) -> Response:
        """Return the answer to a GET.

        Raises:
            ServerUnreachableError: there is no answer.
        """
        return self._ask("GET", path, headers, b"")

    def _ask(self, method: str, path: str, headers: Mapping[str, str], body: bytes) -> Response:
        kept = self._socket is not None
        try:
            return self._exchange(method, path, headers, body)
        except (OSError, ProtocolError) as exc:
            self.close()
            if not (kept and isinstance(exc, (ConnectionError, ProtocolError))):
                raise self._unreachable(exc) from exc
        try:
            return self._exchange(method, path, headers, body)
        except (OSError, ProtocolError) as exc:
            self.close()
            raise self._unreachable(exc) from exc

    def _unreachable(self, exc: Exception) -> ServerUnreachableError:
        scheme = "https" if self._address.tls else "http"
        words = getattr(exc, "strerror", None) or str(exc) or type(exc).__name__
        return ServerUnreachableError(
            f"no answer from {scheme}://{self._address.authority}: {words}"
        )

    def _connect(self) -> socket.socket:
        address = self._address
        plain = socket.create_connection((address.host, address.port), self._timeout_s)
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if not address.tls:
            return plain
        import ssl

        if self._tls is None:
            self._tls = ssl.create_default_context()
        try:
            secure: socket.socket = self._tls.wrap_socket(plain, server_hostname=address.host)
        except BaseException:
            plain.close()
            raise
        return secure

    def _exchange(
        self, method: str, path: str, headers: Mapping[str, str], body: bytes
    ) -> Response:
        if self._socket is None:
            self._socket = self._connect()
            self._input = self._socket.makefile("rb")
        lines = [
            f"{method} {self._address.path}{path} HTTP/1.1",
            f"Host: {self._address.authority}",
            *(f"{name}: {value}" for name, value in headers.items()),
        ]
        head = ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1", "replace")
        self._socket.sendall(head + body)
        response, keep = self._read()
        if not keep:
            self.close()
        return response

    def _read(self) -> tuple[Response, bool]:
        status, version = self._status()
        headers = self._headers()
        while 100 <= status < 200:
            status, version = self._status()
            headers = self._headers()
        coding = headers.get("transfer-encoding", "").lower()
        length = headers.get("content-length")
        keep = version >= "HTTP/1.1" and headers.get("connection", "").lower() != "close"
        if coding == "chunked":
            body = self._chunks()
        elif length is not None:
            body = self._exactly(_size(length, 10))
        else:
            body, keep = self._rest(), False
        return Response(status, headers, body), keep

    def _line(self) -> str:
        assert self._input is not None  # noqa: S101
        raw = self._input.readline(_MAX_LINE + 1)
        if not raw.endswith(b"\n"):
            raise ProtocolError("the connection was closed before the answer was complete")
        return raw.decode("latin-1").rstrip("\r\n")

    def _status(self) -> tuple[int, str]:
        version, _, rest = self._line().partition(" ")
        code = rest[:3]
        if not version.startswith("HTTP/1.") or not (code.isascii() and code.isdigit()):
            raise ProtocolError("the answer is not HTTP/1.1")
        return int(code), version

    def _headers(self) -> dict[str, str]:
        headers: dict[str, str] = {}
        for _ in range(_MAX_HEADERS):
            line = self._line()
            if not line:
                return headers
            name, _, value = line.partition(":")
            headers[name.strip().lower()] = value.strip()
        raise ProtocolError("the answer has too many headers")

    def _exactly(self, size: int) -> bytes:
        assert self._input is not None  # noqa: S101
        if size > MAX_BODY_BYTES:
            raise ProtocolError(f"the answer has {size} bytes")
        body = self._input.read(size)
        if len(body) != size:
            raise ProtocolError("the connection was closed before the answer was complete")
        return body

    def _chunks(self) -> bytes:
        body = b""
        while True:
            size = _size(self._line().partition(";")[0].strip(), 16)
            if size == 0:
                self._headers()
                return body
            body += self._exactly(min(size, MAX_BODY_BYTES + 1 - len(body)))
            self._line()

    def _rest(self) -> bytes:
        assert self._input is not None  # noqa: S101
        return self._input.read(MAX_BODY_BYTES)


def _size(text: str, base: int) -> int:
    try:
        size = int(text, base)
    except ValueError:
        size = -1
    if size < 0:
        raise ProtocolError(f"the answer has a length of {text!r}")
    return size
