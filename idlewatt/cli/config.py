"""`idlewatt config`: every setting, its value and where that came from."""

from __future__ import annotations

import argparse

from idlewatt.cli import output
from idlewatt.config import SETTINGS, Settings


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add flags."""
    parser.add_argument("action", choices=("show",), help="what to do")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.epilog = (
        "examples:\n"
        "  idlewatt config show\n"
        "  IDLEWATT_SERVER_PORT=9000 idlewatt config show --json\n"
        "  idlewatt config show --config /etc/idlewatt.toml --set server.port=9000"
    )


def run(args: argparse.Namespace, settings: Settings) -> int:
    """Print the settings."""
    rows = [
        {
            "name": setting.name,
            "value": "***" if setting.secret and settings[setting.name] else settings[setting.name],
            "unit": setting.unit,
            "origin": settings.origins[setting.name],
            "help": setting.help,
        }
        for setting in SETTINGS
    ]
    if args.json:
        output.emit_json(rows)
    else:
        output.say(output.table(list(rows[0]), [list(row.values()) for row in rows]))
    return 0
