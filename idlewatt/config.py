"""The one table of settings, and where each value came from.

Order of precedence: default < TOML file < environment < command line. A name that is not in the
table refuses to start. ``idlewatt config show`` prints every value and its origin.
"""

from __future__ import annotations

import difflib
import os
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from idlewatt.errors import ConfigError

ENV_PREFIX: Final = "IDLEWATT_"
CONFIG_ENV: Final = "IDLEWATT_CONFIG"
# Read by the tests and by the tool itself, not settings.
RESERVED_ENV: Final = frozenset({CONFIG_ENV, "IDLEWATT_TEST_DATA"})


@dataclass(frozen=True, slots=True)
class Setting:
    """One row of the settings table.

    Attributes:
        name: `section.key` as in the TOML file.
        type: bool, int, float or str.
        default: value where nobody says otherwise.
        unit: unit of the value, empty for plain ones.
        help: one sentence.
        choices: allowed values, if few.
        minimum: smallest allowed number.
        maximum: largest allowed number.
        secret: never printed.
    """

    name: str
    type: type
    default: Any
    unit: str
    help: str
    choices: tuple[str, ...] = ()
    minimum: float | None = None
    maximum: float | None = None
    secret: bool = False

    @property
    def env(self) -> str:
        """Return the name of the environment variable."""
        return ENV_PREFIX + self.name.replace(".", "_").upper()


SETTINGS: Final[tuple[Setting, ...]] = (
    # agent
    Setting("agent.server_url", str, "http://127.0.0.1:8050", "", "where batches are sent"),
    Setting(
        "agent.token", str, "", "", "the node's token; better given by token_file", secret=True
    ),
    Setting("agent.token_file", str, "", "", "file that holds the node's token"),
    Setting("agent.node_id", str, "", "", "node identity; empty means the machine id"),
    Setting("agent.hostname", str, "", "", "host name shown; empty means the machine's own"),
    Setting("agent.rack", str, "", "", "rack label of this node"),
    Setting("agent.cluster", str, "default", "", "cluster label of this node"),
    Setting("agent.spool_dir", str, "/var/lib/idlewatt/spool", "", "where samples wait to be sent"),
    Setting(
        "agent.spool_max_mib", int, 1024, "MiB", "spool size from which the oldest go", minimum=1
    ),
    Setting(
        "agent.flush_s",
        float,
        1.0,
        "s",
        "batching interval until the server says one",
        minimum=0.1,
        maximum=60,
    ),
    Setting(
        "agent.live_horizon_s",
        int,
        120,
        "s",
        "older samples travel in the backfill lane",
        minimum=1,
    ),
    Setting(
        "agent.driver",
        str,
        "nvml",
        "",
        "nvml, or a stand-in for trials",
        choices=("nvml", "constant", "sim"),
    ),
    # server
    Setting("server.bind", str, "127.0.0.1", "", "address to listen on"),
    Setting(
        "server.port", int, 8050, "", "port of pages, API and health", minimum=0, maximum=65535
    ),
    Setting(
        "server.hosts", str, "", "", "further host names it answers to (a proxy's), comma separated"
    ),
    Setting(
        "server.insecure_bind",
        bool,
        False,
        "",
        "allow another address than loopback, without TLS; everyone who reaches it may query",
    ),
    Setting("server.data_dir", str, "idlewatt-data", "", "where the warehouse lives"),
    Setting(
        "server.tokens_file", str, "", "", "TOML of node tokens; empty means <data_dir>/tokens.toml"
    ),
    Setting(
        "server.commit_ms",
        int,
        250,
        "ms",
        "longest wait before waiting batches are committed",
        minimum=1,
        maximum=5000,
    ),
    Setting(
        "server.seal_after_s", int, 300, "s", "an hour is sealed so long after its end", minimum=0
    ),
    Setting(
        "server.seal_quiet_s", int, 20, "s", "and only after so long without new rows", minimum=0
    ),
    Setting(
        "server.keep_replaced_h", int, 24, "h", "replaced segment files stay so long", minimum=1
    ),
    Setting(
        "server.analyst_every_s", int, 300, "s", "analyst.duckdb is renewed so often", minimum=1
    ),
    Setting(
        "server.gpu_move_s",
        int,
        300,
        "s",
        "a GPU that its node has not sent for so long may come from another node",
        minimum=0,
    ),
    Setting("server.memory_mib", int, 2048, "MiB", "memory limit of the database", minimum=64),
    Setting(
        "server.temp_mib",
        int,
        4096,
        "MiB",
        "what the database may spill to <data_dir>/tmp; a query that needs more is refused",
        minimum=0,
    ),
    Setting(
        "server.verify_mib_s",
        float,
        16.0,
        "MiB/s",
        "sealed files are compared with their checksum at this rate, each once a day; 0 never",
        minimum=0,
    ),
    Setting("server.threads", int, 2, "", "threads of the database", minimum=1),
    Setting(
        "server.min_free_mib",
        int,
        512,
        "MiB",
        "below this free space ingest answers 507",
        minimum=0,
    ),
    Setting("server.stale_s", int, 30, "s", "data older than this turns the health red", minimum=1),
    # query
    Setting("query.url", str, "http://127.0.0.1:8050", "", "server asked by idlewatt sql"),
    Setting("query.timeout_s", float, 30.0, "s", "a query is stopped after this", minimum=0.01),
    Setting("query.max_rows", int, 1_000_000, "rows", "an answer never holds more", minimum=1),
    Setting("query.max_sql_kb", int, 64, "kB", "a statement is never longer", minimum=1),
    Setting(
        "query.memory_mib",
        int,
        1024,
        "MiB",
        "a query is stopped when the server grows by so much beyond server.memory_mib's share",
        minimum=64,
    ),
    Setting(
        "query.plan_s",
        float,
        2.0,
        "s",
        "a statement is planned within so much CPU time",
        minimum=0.1,
    ),
    # analysis
    Setting(
        "analysis.min_interval_s", int, 5, "s", "a low run this long is execution-idle", minimum=1
    ),
    Setting(
        "analysis.activity",
        float,
        0.05,
        "ratio",
        "compute or memory below this is low",
        minimum=0,
        maximum=1,
    ),
    Setting(
        "analysis.comm_bytes_s", float, 1e9, "B/s", "a link direction below this is low", minimum=0
    ),
    Setting("analysis.every_s", float, 15.0, "s", "how often new hours are classified", minimum=1),
    # report
    Setting(
        "report.price_per_kwh",
        float,
        0.0,
        "currency/kWh",
        "what a kilowatt hour costs; 0 shows no money",
        minimum=0,
    ),
    Setting("report.currency", str, "EUR", "", "currency of report.price_per_kwh"),
)
_BY_NAME: Final = {setting.name: setting for setting in SETTINGS}


@dataclass(frozen=True, slots=True)
class Settings:
    """Resolved settings. `settings["agent.flush_s"]` returns the typed value."""

    values: Mapping[str, Any]
    origins: Mapping[str, str] = field(default_factory=dict)

    def __getitem__(self, name: str) -> Any:
        return self.values[name]

    def text(self, name: str) -> str:
        """Return a str setting."""
        return str(self.values[name])

    def integer(self, name: str) -> int:
        """Return an int setting."""
        return int(self.values[name])

    def number(self, name: str) -> float:
        """Return a float setting."""
        return float(self.values[name])

    def path(self, name: str) -> Path:
        """Return a str setting as a path, with `~` expanded."""
        return Path(self.values[name]).expanduser()


def lookup(name: str, origin: str) -> Setting:
    """Return the setting called `name`.

    Raises:
        ConfigError: there is none; the message names the nearest.
    """
    found = _BY_NAME.get(name)
    if found is None:
        near = difflib.get_close_matches(name, _BY_NAME, n=1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        raise ConfigError(f"unknown setting {name!r} from {origin}{hint}")
    return found


def resolve(
    flags: Mapping[str, Any] | None = None,
    environ: Mapping[str, str] | None = None,
    file: Path | None = None,
) -> Settings:
    """Return settings from defaults, file, environment and flags, with their origins.

    Args:
        flags: `section.key` to value, from the command line.
        environ: environment; the process's own where None.
        file: TOML file; where None, the one named by IDLEWATT_CONFIG, if any.

    Raises:
        ConfigError: unknown name, wrong type, value out of range, or unreadable file.
    """
    environ = os.environ if environ is None else environ
    if file is None and environ.get(CONFIG_ENV):
        file = Path(environ[CONFIG_ENV])
    values = {setting.name: setting.default for setting in SETTINGS}
    origins = dict.fromkeys(values, "default")
    layers = [
        (f"file {file}", _from_file(file)) if file else ("", {}),
        ("environment", _from_environ(environ)),
        ("command line", dict(flags or {})),
    ]
    for origin, layer in layers:
        for name, raw in layer.items():
            setting = lookup(name, origin)
            values[name] = parse_value(setting, raw, origin)
            origins[name] = f"environment {setting.env}" if origin == "environment" else origin
    return Settings(values, origins)


def parse_value(setting: Setting, raw: Any, origin: str) -> Any:
    """Return `raw` as the setting's type, checked against its limits.

    Raises:
        ConfigError: it does not fit.
    """
    value = _typed(setting, raw, origin)
    if setting.choices and value not in setting.choices:
        raise ConfigError(
            f"{setting.name} from {origin} is {raw!r}; allowed: {', '.join(setting.choices)}"
        )
    low, high = setting.minimum, setting.maximum
    if (low is not None and value < low) or (high is not None and value > high):
        limits = f"at least {low}" if high is None else f"{low} to {high}"
        raise ConfigError(f"{setting.name} from {origin} is {raw!r}; allowed: {limits}")
    return value


def _typed(setting: Setting, raw: Any, origin: str) -> Any:
    wrong = ConfigError(
        f"{setting.name} from {origin} is {raw!r}; {setting.type.__name__} expected"
    )
    if setting.type is bool:
        text = str(raw).lower()
        if text not in ("true", "false", "1", "0", "yes", "no"):
            raise wrong
        return text in ("true", "1", "yes")
    if isinstance(raw, bool) or not isinstance(raw, (str, int, float)):
        raise wrong
    if setting.type is str:
        if not isinstance(raw, str):
            raise wrong
        return raw
    try:
        value = setting.type(raw)
    except ValueError as exc:
        raise wrong from exc
    if setting.type is int and isinstance(raw, float) and raw != value:
        raise wrong
    return value


def _from_file(file: Path) -> dict[str, Any]:
    try:
        tree = tomllib.loads(file.read_text("utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as exc:
        raise ConfigError(f"cannot read configuration {file}: {exc}") from exc
    flat: dict[str, Any] = {}
    for section, body in tree.items():
        if not isinstance(body, dict):
            raise ConfigError(f"{file}: {section!r} stands outside a [section]")
        flat.update({f"{section}.{key}": value for key, value in body.items()})
    return flat


def _from_environ(environ: Mapping[str, str]) -> dict[str, str]:
    known = {setting.env: setting.name for setting in SETTINGS}
    found: dict[str, str] = {}
    for variable, value in environ.items():
        if not variable.startswith(ENV_PREFIX) or variable in RESERVED_ENV:
            continue
        if variable not in known:
            near = difflib.get_close_matches(variable, known, n=1)
            hint = f"; did you mean {near[0]}?" if near else ""
            raise ConfigError(f"unknown setting in environment variable {variable}{hint}")
        found[known[variable]] = value
    return found
