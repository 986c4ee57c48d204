"""The two places where Dash's own types are too narrow or missing; `Any` stops here."""

from __future__ import annotations

from typing import Any

from dash import ClientsideFunction, Dash


def aria(**words: str) -> dict[str, Any]:
    """Return `aria-*` attributes: `aria(label="Theme", hidden="true")`."""
    return {f"aria-{name.replace('_', '')}": value for name, value in words.items()}


def in_browser(app: Dash, function: str, *dependencies: Any, initial: bool = True) -> None:
    """Register a callback that runs in the browser, from `assets/idlewatt.js`."""
    register: Any = app.clientside_callback
    register(
        ClientsideFunction("idlewatt", function),
        *dependencies,
        prevent_initial_call=not initial,
    )
