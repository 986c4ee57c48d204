"""The error tree of idlewatt.

::

    IdlewattError                 base: message says what, where, and what to do; exit code 1
    ├── UsageError                the command line asks for something impossible; exit code 2
    ├── ConfigError               unknown or malformed setting; exit code 2
    ├── MissingExtraError         an optional part is not installed; exit code 2
    ├── WireError                 a batch that cannot be decoded (HTTP 400)
    ├── AuthError                 no token, wrong token, or a foreign node (HTTP 401/403)
    ├── SequenceError             a batch that leaves a hole in its lane (HTTP 409)
    ├── UnavailableError          try again later (HTTP 429/503/507)
    ├── QueryError                SQL refused, failed, or over its limits (HTTP 400)
    ├── StoreError                the warehouse on disk is not as it should be; exit code 3
    ├── DriverError               the GPU driver refused or is gone; exit code 4
    └── ServerUnreachableError    no answer from the server; exit code 5
"""

from __future__ import annotations

__all__ = [
    "AuthError",
    "ConfigError",
    "DriverError",
    "IdlewattError",
    "MissingExtraError",
    "QueryError",
    "SequenceError",
    "ServerUnreachableError",
    "StoreError",
    "UnavailableError",
    "UsageError",
    "WireError",
]


class IdlewattError(Exception):
    """Base of all errors that idlewatt raises on purpose."""

    exit_code = 1


class UsageError(IdlewattError):
    """The command line asks for something impossible."""

    exit_code = 2


class ConfigError(IdlewattError):
    """A setting is unknown, of the wrong type, or out of range."""

    exit_code = 2


class MissingExtraError(IdlewattError):
    """An optional part of idlewatt is not installed."""

    exit_code = 2

    def __init__(self, verb: str, extra: str, module: str) -> None:
        super().__init__(
            f"`idlewatt {verb}` needs the [{extra}] extra (no module named {module!r}): "
            f"pip install 'idlewatt[{extra}]'"
        )


class WireError(IdlewattError):
    """A batch cannot be decoded or breaks the wire contract."""


class AuthError(IdlewattError):
    """The caller is unknown, or may not do this."""


class SequenceError(IdlewattError):
    """A batch arrived whose predecessor in its lane did not.

    Attributes:
        expected: the sequence number that the server wants next.
    """

    def __init__(self, expected: int, got: int) -> None:
        super().__init__(f"sequence {got} arrived, {expected} is expected")
        self.expected = expected


class UnavailableError(IdlewattError):
    """The server cannot take this now.

    Attributes:
        status: HTTP status (429, 503 or 507).
        retry_after_s: when to try again.
    """

    def __init__(self, message: str, status: int = 503, retry_after_s: int = 5) -> None:
        super().__init__(message)
        self.status = status
        self.retry_after_s = retry_after_s


class QueryError(IdlewattError):
    """A query was refused, failed, or went over its limits."""


class StoreError(IdlewattError):
    """The warehouse on disk is not as it should be."""

    exit_code = 3


class DriverError(IdlewattError):
    """The GPU driver refused or is gone."""

    exit_code = 4


class ServerUnreachableError(IdlewattError):
    """No answer from the idlewatt server."""

    exit_code = 5
