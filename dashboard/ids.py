"""Ids of components: made in one place, so that no literal stands twice."""

from __future__ import annotations


def shell(name: str) -> str:
    """Return the id of a part of the shell."""
    return f"shell-{name}"


def fleet(name: str) -> str:
    """Return the id of a part of the Fleet page."""
    return f"fleet-{name}"
