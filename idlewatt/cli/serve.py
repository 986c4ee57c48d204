"""`idlewatt serve`: the server in one process; composes warehouse, analysis and web app."""

from __future__ import annotations

import argparse
import contextlib

from analysis import http as analysis_http
from analysis import schedule
from dashboard import http as pages_http
from dashboard.app import build
from dashboard.models import ReadModels
from idlewatt.cli import output
from idlewatt.clock import SystemClock
from idlewatt.config import Settings
from warehouse.api import build_app
from warehouse.ingest import Ingestor
from warehouse.sealer import Sealer
from warehouse.serving import check_bind, serve
from warehouse.store import Store
from warehouse.tokens import Tokens, tokens_path


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add flags."""
    parser.add_argument("--port", type=int, help="port (setting server.port)")
    parser.add_argument("--data-dir", help="where the warehouse lives (setting server.data_dir)")
    parser.epilog = (
        "examples:\n"
        "  idlewatt serve\n"
        "  idlewatt serve --data-dir /var/lib/idlewatt --port 8050\n"
        "  idlewatt serve --config /etc/idlewatt.toml -v"
    )
    parser.set_defaults(flag_settings={"port": "server.port", "data_dir": "server.data_dir"})


def run(args: argparse.Namespace, settings: Settings) -> int:
    """Serve until SIGTERM or SIGINT."""
    check_bind(settings)
    clock = SystemClock()
    with contextlib.ExitStack() as stack:
        store = stack.enter_context(Store.open(settings.path("server.data_dir"), settings, clock))
        ingestor = Ingestor(store)
        stack.callback(ingestor.close)
        sealer = stack.enter_context(Sealer(store, ingestor.metrics))
        analyses = schedule.start(store, settings, clock)
        stack.callback(analyses.shutdown)
        models = ReadModels(store, clock, settings)
        pages = build(models, settings)
        app = build_app(
            store,
            ingestor,
            Tokens(tokens_path(settings)),
            settings,
            clock,
            routes=[*analysis_http.routes(store, settings, clock), *pages_http.routes(models.jobs)],
            health=[analyses.health, lambda: sealer.problem],
            metrics=[analyses.metrics],
            wsgi=pages.server,
        )
        serve(app, settings, on_ready=lambda url: output.say(f"idlewatt serves {url}"))
    return 0
