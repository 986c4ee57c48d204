"""What a GPU's name or compute capability says about its power reading."""

from __future__ import annotations

import re
from enum import Enum
from typing import Final


class Draw(Enum):
    """What the driver's default power reading (`power.draw`) is."""

    AVERAGE = "average"
    INSTANT = "instant"
    UNKNOWN = "unknown"


_GA100: Final = re.compile(r"\b(A100|A800|A30)\b|\bA100-|\bA800-")
_NAMES: Final = (
    ("blackwell", re.compile(r"\b(G?B[123]00\w*|RTX PRO|RTX 50\d\d|GB10)\b")),
    ("hopper", re.compile(r"\b(G?H[128]00\w*|H20)\b")),
    ("ada", re.compile(r"\b(L4|L40S?|L20|L2|RTX 40\d\d\w*)\b|\bAda\b")),
    ("ampere", re.compile(r"\b(A100|A800|A30|A40|A10G?|A16|A2|RTX A\d+|RTX 30\d\d\w*|A\d000)\b")),
    ("turing", re.compile(r"\b(T4G?|T\d+0+|RTX 20\d\d|Quadro RTX|TITAN RTX|GTX 16\d\d)\b")),
    ("volta", re.compile(r"\b(V100\w*|TITAN V|GV100)\b")),
    ("pascal", re.compile(r"\b(P100|P40|P4|GTX 10\d\d|TITAN Xp?|Quadro P\d+)\b")),
)
_ARCHITECTURES: Final = frozenset(name for name, _ in _NAMES) | {"maxwell", "kepler", "rubin"}
_CAPABILITY: Final = (
    (3.0, "kepler"),
    (5.0, "maxwell"),
    (6.0, "pascal"),
    (7.0, "volta"),
    (7.5, "turing"),
    (8.0, "ampere"),
    (8.9, "ada"),
    (9.0, "hopper"),
    (10.0, "blackwell"),
)
_AVERAGING: Final = frozenset({"ampere", "ada", "hopper", "blackwell"})


def architecture(model: str, said: str = "", capability: str = "") -> str | None:
    """Return the architecture, from what the file says of it, else from the product name."""
    first = said.strip().lower().split(" ")[0]
    if first in _ARCHITECTURES:
        return first
    try:
        level = float(capability)
    except ValueError:
        level = 0.0
    found = [name for least, name in _CAPABILITY if level >= least]
    if found and level < 13:
        return found[-1]
    return next((name for name, pattern in _NAMES if pattern.search(model)), None)


def is_ga100(model: str, capability: str = "") -> bool:
    """Return whether it is an A100 or one of its siblings, whose sensor has no average."""
    return capability.strip() == "8.0" or _GA100.search(model) is not None


def default_draw(model: str, arch: str | None, driver: str = "", capability: str = "") -> Draw:
    """Return what `power.draw` means on this board under this driver."""
    if arch is None:
        return Draw.UNKNOWN
    if arch not in _AVERAGING or is_ga100(model, capability):
        return Draw.INSTANT
    # Drivers 530.x read a 100 ms window on Ampere and Ada (measured and published in 2023).
    if driver.startswith("530.") and arch in ("ampere", "ada"):
        return Draw.INSTANT
    return Draw.AVERAGE
