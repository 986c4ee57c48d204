"""What the view models of several pages have in common."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final
from urllib.parse import quote, unquote

from dashboard.theme import Look

JOBS_PATH: Final = "/jobs"


@dataclass(frozen=True, slots=True)
class Tile:
    """One number of the head of the page.

    Attributes:
        key: stable name.
        title: what it is.
        value: the number with its unit.
        note: what it stands against.
        help: how it is defined, shown on hover and to screen readers.
        look: state whose colour marks the tile, if any.
        level: filled share of the bar under the value, 0 to 1; None for no bar.
        held: True where the look is that of a GPU that a job holds empty.
    """

    key: str
    title: str
    value: str
    note: str
    help: str
    look: Look | None = None
    level: float | None = None
    held: bool = False


@dataclass(frozen=True, slots=True)
class Name:
    """First cell of a row: a name, what stands small below it, and where it leads."""

    text: str
    below: str = ""
    href: str = ""


def job_path(job_key: str) -> str:
    """Return the URL path of a job's page."""
    return f"{JOBS_PATH}/{quote(job_key, safe='')}"


def job_of_path(path: str | None) -> str | None:
    """Return the key in the URL path of a job's page; None where it is another page's."""
    head = f"{JOBS_PATH}/"
    key = unquote((path or "").removeprefix(head)) if (path or "").startswith(head) else ""
    return key or None
