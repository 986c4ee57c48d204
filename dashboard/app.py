"""The web app: one Dash application over the read models.

::

    app = build(ReadModels(store, clock, settings), settings)
    app.server        # the Flask WSGI application, to be mounted at "/"
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from dash import Dash, html

from dashboard import security, shell
from dashboard.models import ReadModels
from dashboard.pages import PAGES
from idlewatt.config import Settings

ASSETS: Final = Path(__file__).resolve().parent / "assets"


def build(read_models: ReadModels, settings: Settings) -> Dash:
    """Return the web app; nothing it serves comes from another machine.

    Args:
        read_models: what the pages read.
        settings: resolved settings.
    """
    app = Dash(
        "idlewatt",
        assets_folder=str(ASSETS),
        title="idlewatt",
        update_title=None,  # type: ignore[arg-type]
        index_string=shell.INDEX,
        serve_locally=True,
        compress=True,
        enable_mcp=False,
        suppress_callback_exceptions=False,
        meta_tags=[{"name": "viewport", "content": "width=device-width, initial-scale=1"}],
    )
    # Files of the assets folder are small; compressing them as streams leaves them open.
    app.server.config["COMPRESS_STREAMS"] = False
    frame = shell.layout(PAGES)
    app.layout = frame
    whole: Any = html.Div([frame, *(page.layout() for page in PAGES)])
    app.validation_layout = whole
    shell.register(app, read_models, PAGES)
    for page in PAGES:
        page.register(app, read_models)
    security.protect(app.server, app.csp_hashes())
    security.refuse_malformed(app.server, app.callback_map)
    return app
