"""A finding: one line about one thing."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Status(StrEnum):
    """How a thing stands."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


@dataclass(frozen=True, slots=True)
class Finding:
    """One line.

    Attributes:
        status: how it stands.
        check: stable name, `section.thing`.
        text: what is so.
        advice: what to do; empty: nothing.
        gpu: index of the GPU it is about.
    """

    status: Status
    check: str
    text: str
    advice: str = ""
    gpu: int | None = None

    @property
    def section(self) -> str:
        """Return the part of the report it belongs to."""
        return self.check.partition(".")[0]


def ok(check: str, text: str, advice: str = "", gpu: int | None = None) -> Finding:
    """Return a finding that all is well."""
    return Finding(Status.OK, check, text, advice, gpu)


def warn(check: str, text: str, advice: str, gpu: int | None = None) -> Finding:
    """Return a finding that something is less than it could be."""
    return Finding(Status.WARN, check, text, advice, gpu)


def fail(check: str, text: str, advice: str, gpu: int | None = None) -> Finding:
    """Return a finding that idlewatt cannot do its work."""
    return Finding(Status.FAIL, check, text, advice, gpu)
