"""Who this node is."""

from __future__ import annotations

import socket
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from idlewatt import __version__
from idlewatt.errors import ConfigError

_MACHINE_ID: Final = (Path("/etc/machine-id"), Path("/var/lib/dbus/machine-id"))


@dataclass(frozen=True, slots=True)
class NodeIdentity:
    """Identity and labels of a node; without a host name it has the machine's own."""

    node_id: str
    rack: str = ""
    cluster: str = ""
    hostname: str = ""

    def row(self, now_us: int) -> tuple[Any, ...]:
        """Return its row of the node table."""
        host = self.hostname or socket.gethostname() or None
        return (self.node_id, now_us, host, self.rack or None, self.cluster or None, __version__)


def machine_id(paths: Sequence[Path] = _MACHINE_ID) -> str:
    """Return the machine's stable identity.

    Raises:
        ConfigError: it has none.
    """
    for path in paths:
        try:
            text = path.read_text("ascii").strip()
        except (OSError, UnicodeDecodeError):
            continue
        if text:
            return text
    raise ConfigError("this machine has no machine id; set agent.node_id")
