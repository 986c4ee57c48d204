"""Node tokens: who may write which node's rows.

A TOML file, mode 0600::

    [nodes]
    "node-1" = "iw_..."

The file is read again when it changes, so a token can be made while the server runs.
"""

from __future__ import annotations

import hashlib
import hmac
import logging
import os
import re
import secrets
import threading
import tomllib
from pathlib import Path
from typing import Final

from idlewatt.config import Settings
from idlewatt.errors import ConfigError, UsageError

log = logging.getLogger(__name__)

NODE_ID: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:@-]{0,127}")
_PREFIX: Final = "iw_"
_MIN_LENGTH: Final = 16


def tokens_path(settings: Settings) -> Path:
    """Return where the tokens are kept: `server.tokens_file`, else in `server.data_dir`."""
    if settings.text("server.tokens_file"):
        return settings.path("server.tokens_file")
    return settings.path("server.data_dir") / "tokens.toml"


class Tokens:
    """The tokens in a file; safe on any thread.

    Args:
        path: the file; it need not exist yet.

    Raises:
        ConfigError: the file is there but cannot be used.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = threading.Lock()
        self._stamp: tuple[int, int, int] | None = None
        self._nodes: dict[str, str] = {}
        self._by_digest: dict[bytes, tuple[str, bytes]] = {}
        self._refresh()

    def node_of(self, token: str) -> str | None:
        """Return the node that `token` belongs to, or None.

        The token is looked up by its SHA-256, so the time taken tells nothing about it.
        """
        digest = hashlib.sha256(token.encode("utf-8", "surrogatepass")).digest()
        with self._lock:
            try:
                self._refresh()
            except ConfigError as exc:
                log.error("msg=%r", f"{exc}; the tokens read before stay in force")
            found = self._by_digest.get(digest)
        if found is None or not hmac.compare_digest(found[1], digest):
            return None
        return found[0]

    def create(self, node_id: str, *, replace: bool = False) -> str:
        """Return the token of a node, made and written where there was none.

        Raises:
            UsageError: the node has one already and `replace` is not set, or its id is not usable.
        """
        if not NODE_ID.fullmatch(node_id):
            raise UsageError(f"node id {node_id!r} is not 1 to 128 letters, digits or ._:@-")
        with self._lock:
            self._refresh()
            if node_id in self._nodes and not replace:
                raise UsageError(f"node {node_id} has a token already; --replace makes a new one")
            token = _PREFIX + secrets.token_urlsafe(32)
            self._write({**self._nodes, node_id: token})
            self._refresh()
        return token

    def nodes(self) -> dict[str, str]:
        """Return the token of each node."""
        with self._lock:
            self._refresh()
            return dict(self._nodes)

    def _refresh(self) -> None:
        try:
            found = self.path.stat()
        except FileNotFoundError:
            self._stamp, self._nodes, self._by_digest = None, {}, {}
            return
        except OSError as exc:
            raise ConfigError(f"tokens file {self.path} cannot be read: {exc.strerror}") from exc
        stamp = (found.st_mtime_ns, found.st_size, found.st_ino)
        if stamp == self._stamp:
            return
        nodes = _read(self.path)
        if found.st_mode & 0o077:
            log.warning("file=%s msg=%r", self.path, "others may read the tokens; chmod 600 it")
        by_digest = {}
        for node, token in nodes.items():
            digest = hashlib.sha256(token.encode()).digest()
            by_digest[digest] = (node, digest)
        self._stamp, self._nodes, self._by_digest = stamp, nodes, by_digest

    def _write(self, nodes: dict[str, str]) -> None:
        lines = ["# Written by `idlewatt token`; one token per node.", "[nodes]"]
        lines += [f'"{node}" = "{token}"' for node, token in sorted(nodes.items())]
        draft = self.path.with_name(f"{self.path.name}.{os.getpid()}.new")
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
            with os.fdopen(descriptor, "w", encoding="utf-8") as file:
                file.write("\n".join(lines) + "\n")
                file.flush()
                os.fsync(file.fileno())
            draft.replace(self.path)
        except OSError as exc:
            raise ConfigError(f"tokens file {self.path} cannot be written: {exc}") from exc


def _read(path: Path) -> dict[str, str]:
    try:
        tree = tomllib.loads(path.read_text("utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as exc:
        raise ConfigError(f"tokens file {path} cannot be read: {exc}") from exc
    nodes = tree.get("nodes", {})
    if not isinstance(nodes, dict) or set(tree) - {"nodes"}:
        raise ConfigError(f"tokens file {path} needs one table [nodes] and nothing else")
    seen: set[str] = set()
    for node, token in nodes.items():
        if not isinstance(token, str) or len(token) < _MIN_LENGTH:
            raise ConfigError(f"tokens file {path}: the token of {node!r} is too short")
        if not NODE_ID.fullmatch(node) or token in seen:
            raise ConfigError(f"tokens file {path}: {node!r} has an unusable id or a shared token")
        seen.add(token)
    return dict(nodes)
