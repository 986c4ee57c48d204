"""Shared by all tests: hypothesis profiles."""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

# Two cores shared with servers and a browser: speed of drawing says nothing about correctness.
settings.register_profile(
    "default", deadline=None, suppress_health_check=[HealthCheck.too_slow], max_examples=100
)
settings.register_profile("ci", settings.get_profile("default"), derandomize=True)
settings.load_profile("ci" if os.environ.get("CI") else "default")
