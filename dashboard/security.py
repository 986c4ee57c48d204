"""HTTP headers of every page: nothing is loaded from elsewhere, nothing foreign runs."""

from __future__ import annotations

from collections.abc import Container, Sequence
from typing import Any, Final

from flask import Flask, Request, Response, abort, request

COMMON: Final[dict[str, str]] = {
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
}
SAME_SITE: Final = ("same-origin", "none", None)


def policy(script_hashes: Sequence[str]) -> str:
    """Return the content security policy; charts set inline styles, scripts never are inline."""
    rules = {
        "default-src": "'self'",
        "script-src": " ".join(["'self'", *script_hashes]),
        "style-src": "'self' 'unsafe-inline'",
        "img-src": "'self' data: blob:",
        "font-src": "'self' data:",
        "connect-src": "'self'",
        "object-src": "'none'",
        "base-uri": "'self'",
        "form-action": "'self'",
        "frame-ancestors": "'none'",
    }
    return "; ".join(f"{name} {value}" for name, value in rules.items())


def is_foreign(asked: Request) -> bool:
    """Return True for a request that changes or asks for data on behalf of another site."""
    return asked.method not in ("GET", "HEAD") and (
        asked.headers.get("Sec-Fetch-Site") not in SAME_SITE
    )


def is_callback(body: Any, known: Container[str]) -> bool:
    """Return True for the body of a callback as the page's own script sends it."""
    if not isinstance(body, dict):
        return False
    parts = [body.get(name) for name in ("inputs", "state", "changedPropIds")]
    return (
        isinstance(body.get("output"), str)
        and body["output"] in known
        and isinstance(body.get("outputs"), (dict, list))
        and isinstance(parts[0], list)
        and all(part is None or isinstance(part, list) for part in parts)
    )


def refuse_malformed(server: Flask, known: Container[str]) -> None:
    """Answer 400 to callbacks that no page has sent, instead of failing over them.

    Args:
        server: the web app's server.
        known: outputs of the callbacks that exist.
    """

    @server.before_request
    def check_body() -> None:
        if request.method != "POST" or request.path != "/_dash-update-component":
            return
        try:
            body = request.get_json(silent=True)
        except RecursionError:
            body = None
        if not is_callback(body, known):
            abort(400, "this is no callback of a page")


def protect(server: Flask, script_hashes: Sequence[str]) -> None:
    """Add the headers to every answer of the server, and refuse requests of other sites."""
    content_policy = policy(script_hashes)

    @server.before_request
    def refuse_foreign() -> None:
        if is_foreign(request):
            abort(403, "this page answers its own site only")

    @server.after_request
    def add_headers(response: Response) -> Response:
        response.headers.setdefault("Content-Security-Policy", content_policy)
        for name, value in COMMON.items():
            response.headers.setdefault(name, value)
        return response
