"""Ids of components: made in one place, so that no literal stands twice."""

from __future__ import annotations


def shell(name: str) -> str:
    """Return the id of a part of the shell."""
    return f"shell-{name}"


def fleet(name: str) -> str:
    """Return the id of a part of the Fleet page."""
    return f"fleet-{name}"


def waste(name: str) -> str:
    """Return the id of a part of the Waste page."""
    return f"waste-{name}"


def jobs(name: str) -> str:
    """Return the id of a part of the Jobs page."""
    return f"jobs-{name}"


def job(name: str) -> str:
    """Return the id of a part of a job's page."""
    return f"job-{name}"
