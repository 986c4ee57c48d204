"""The command line: one command, verbs that are imported only when called.

A verb is a module of this package (`import` is in ``import_.py``) with two names; its one-line help
stands in ``VERBS``:

* ``add_arguments(parser)``     its flags, and examples as ``parser.epilog``
* ``run(args, settings)``       does it and returns the exit code

Exit codes: 0 done · 1 failed · 2 wrong usage, setting or missing extra · 3 store damaged ·
4 driver refused · 5 server unreachable · 130 interrupted.
"""

from __future__ import annotations

import argparse
import importlib
import keyword
import logging
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, Final

from idlewatt import __version__
from idlewatt.cli import output
from idlewatt.config import resolve
from idlewatt.errors import ConfigError, IdlewattError, MissingExtraError

VERBS: Final[dict[str, tuple[str, str]]] = {
    "demo": ("a simulated fleet, history and live, on one port", "server"),
    "agent": ("sample this node's GPUs each second and ship the samples", "sim"),
    "serve": ("the server: ingest, warehouse, analysis, web app", "server"),
    "sql": ("ask the running server in SQL", "server"),
    "analyze": ("what GPUs did: on a log file you have, or over a period of the server", "server"),
    "import": ("files of other tools, as samples: nvidia-smi, dcgm-exporter, meters", "server"),
    "report": ("what happened to one job, as a page of text", "server"),
    "token": ("create and list the tokens of nodes", "server"),
    "doctor": ("what this machine can do, and what to put right", "sim"),
    "config": ("show every setting and where its value came from", "server"),
}


def build_parser(verb: str | None = None) -> argparse.ArgumentParser:
    """Return the parser; only the module of `verb` is imported."""
    parser = argparse.ArgumentParser(
        prog="idlewatt",
        description="Finds the watts that do no work in GPU clusters.",
        epilog=(
            "`idlewatt VERB --help` shows flags and examples. Try `idlewatt demo`.\n\n"
            "exit codes: 0 done, 1 failed, 2 wrong usage, setting or missing extra,\n"
            "3 store damaged, 4 driver refused, 5 server unreachable, 130 interrupted"
        ),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"idlewatt {__version__}")
    verbs = parser.add_subparsers(dest="verb", metavar="VERB", required=True)
    for name, (text, _) in VERBS.items():
        sub = verbs.add_parser(
            name, help=text, description=text, formatter_class=argparse.RawDescriptionHelpFormatter
        )
        if name == verb:
            load_verb(name).add_arguments(sub)
            add_common_arguments(sub)
    return parser


def add_common_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the flags that every verb takes."""
    group = parser.add_argument_group("common")
    group.add_argument("--config", type=Path, metavar="FILE", help="TOML file of settings")
    group.add_argument(
        "--set", action="append", default=[], metavar="SECTION.KEY=VALUE", help="override a setting"
    )
    group.add_argument("-v", "--verbose", action="store_true", help="log more")


def load_verb(name: str) -> ModuleType:
    """Return the module of a verb.

    Raises:
        MissingExtraError: it needs a package that is not installed.
    """
    module = f"{name}_" if keyword.iskeyword(name) else name
    try:
        return importlib.import_module(f"idlewatt.cli.{module}")
    except ModuleNotFoundError as exc:
        raise missing_extra(name, exc) from exc


def missing_extra(verb: str, exc: ModuleNotFoundError) -> Exception:
    """Return the one-sentence error for a missing package, or `exc` if the module is our own."""
    module = exc.name or ""
    if module.partition(".")[0] in ("idlewatt", "collector", "warehouse", "analysis", "dashboard"):
        return exc
    return MissingExtraError(verb, VERBS[verb][1], module)


def flag_settings(args: argparse.Namespace) -> dict[str, Any]:
    """Return the settings given on the command line.

    A verb may map its own flags to settings by `set_defaults(flag_settings={dest: name})`;
    `--set` wins over those.

    Raises:
        ConfigError: a `--set` has no `=`.
    """
    flags: dict[str, Any] = {}
    for dest, setting in getattr(args, "flag_settings", {}).items():
        if getattr(args, dest) is not None:
            flags[setting] = getattr(args, dest)
    for pair in args.set:
        name, found, value = pair.partition("=")
        if not found:
            raise ConfigError(f"--set {pair!r} is not SECTION.KEY=VALUE")
        flags[name.strip()] = value
    return flags


def setup_logging(verbose: bool) -> None:
    """Send log records to stderr; key=value text, UTC times."""
    handler = logging.StreamHandler(sys.stderr)
    formatter = logging.Formatter(
        "%(asctime)sZ level=%(levelname)s logger=%(name)s %(message)s", "%Y-%m-%dT%H:%M:%S"
    )
    formatter.converter = time.gmtime
    handler.setFormatter(formatter)
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.INFO if verbose else logging.WARNING)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit code."""
    words = list(sys.argv[1:] if argv is None else argv)
    verb = next((word for word in words if not word.startswith("-")), None)
    try:
        args = build_parser(verb if verb in VERBS else None).parse_args(words)
        setup_logging(args.verbose)
        settings = resolve(flag_settings(args), file=args.config)
        return int(load_verb(args.verb).run(args, settings))
    except ModuleNotFoundError as exc:
        error = missing_extra(verb or "", exc) if verb in VERBS else exc
        if not isinstance(error, IdlewattError):
            raise
        output.fail(str(error))
        return error.exit_code
    except IdlewattError as exc:
        output.fail(str(exc))
        return exc.exit_code
    except BrokenPipeError:
        sys.stderr.close()
        return 0
    except KeyboardInterrupt:
        return 130
