"""`idlewatt agent`: sample this node's GPUs each second and ship the samples."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from collector.identity import NodeIdentity, machine_id
from idlewatt.cli import drivers, output
from idlewatt.clock import SystemClock, iso_utc
from idlewatt.columns import GPU_SAMPLE
from idlewatt.config import Settings

if TYPE_CHECKING:  # supervisor and poller are two light processes: each imports its own part
    from collector.agent import AgentConfig

_POLLER_SETTINGS: Final = (
    "node_id",
    "hostname",
    "rack",
    "cluster",
    "spool_dir",
    "spool_max_mib",
    "driver",
)
_SHOWN: Final = (
    "gpu_uuid",
    "power_avg_mw",
    "power_inst_mw",
    "power_limit_mw",
    "energy_uj",
    "energy_source",
    "sm_active",
    "dram_active",
    "util_gpu_pct",
    "mem_used_mib",
    "sm_clock_mhz",
    "temp_gpu_c",
    "resident",
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add flags."""
    parser.add_argument("--server", metavar="URL", help="where batches are sent")
    parser.add_argument("--token-file", metavar="FILE", help="file that holds the node's token")
    parser.add_argument("--node-id", metavar="NAME", help="node identity; default: machine id")
    parser.add_argument("--spool-dir", metavar="DIR", help="where samples wait to be sent")
    parser.add_argument("--once", action="store_true", help="print one second and end; no spool")
    parser.add_argument("--json", action="store_true", help="with --once: print JSON")
    drivers.add_arguments(parser)
    parser.add_argument("--poller", action="store_true", help=argparse.SUPPRESS)
    parser.set_defaults(
        flag_settings={
            "server": "agent.server_url",
            "token_file": "agent.token_file",
            "node_id": "agent.node_id",
            "spool_dir": "agent.spool_dir",
            "driver": "agent.driver",
        }
    )
    parser.epilog = (
        "examples:\n"
        "  idlewatt agent --once\n"
        "  idlewatt agent --server https://idlewatt.example:8050 --token-file /etc/idlewatt/token\n"
        "  idlewatt agent --driver constant --gpus 8 --spool-dir /tmp/spool --node-id trial\n"
        '  idlewatt agent --driver sim --sim \'{"seed": 1, "nodes": 4, "gpus_per_node": 8}\''
        " --sim-node 2\n"
        "\n"
        "The agent runs until it is told to stop (SIGTERM or Ctrl-C; SIGHUP is ignored). Samples\n"
        "wait in the spool while the server is away. A new token in the token file is noticed by\n"
        "itself; other settings take a restart. Settings: `idlewatt config show`, section agent."
    )


def run(args: argparse.Namespace, settings: Settings) -> int:
    """Run the agent, its poller, or a single second."""
    node = NodeIdentity(
        settings.text("agent.node_id") or machine_id(),
        settings.text("agent.rack"),
        settings.text("agent.cluster"),
        settings.text("agent.hostname"),
    )
    clock = SystemClock()
    load_driver, make_source = drivers.choose(args, settings)
    if args.once:
        from collector.poller import sample_once

        load_driver()
        return _print_once(sample_once(node, clock), args.json)
    if args.poller:
        from collector.poller import PollerConfig, run_poller

        spool_dir = settings.path("agent.spool_dir")
        poller = PollerConfig(node, spool_dir, settings.integer("agent.spool_max_mib"))
        return run_poller(poller, load_driver, make_source, clock)
    from collector.agent import Supervisor

    config = agent_config(settings, node.node_id)
    return Supervisor(config, poller_argv(args, settings), clock).run()


def agent_config(settings: Settings, node_id: str) -> AgentConfig:
    """Return the agent's configuration from the settings."""
    from collector.agent import AgentConfig, TokenFile

    token: Callable[[], str] = lambda: settings.text("agent.token")  # noqa: E731
    if settings.text("agent.token_file"):
        token = TokenFile(settings.path("agent.token_file"))
    return AgentConfig(
        node_id=node_id,
        spool_dir=settings.path("agent.spool_dir"),
        spool_max_mib=settings.integer("agent.spool_max_mib"),
        server_url=settings.text("agent.server_url"),
        token=token,
        flush_s=settings.number("agent.flush_s"),
        live_horizon_s=settings.integer("agent.live_horizon_s"),
    )


def poller_argv(args: argparse.Namespace, settings: Settings) -> list[str]:
    """Return the command line of the poller: the same settings, but no secret."""
    argv = [sys.executable, "-m", "idlewatt", "agent", "--poller"]
    if args.verbose:
        argv.append("--verbose")
    if args.config:
        argv += ["--config", str(args.config)]
    for name in _POLLER_SETTINGS:
        argv += ["--set", f"agent.{name}={settings[f'agent.{name}']}"]
    return argv + drivers.words(args)


def _print_once(second: Any, as_json: bool) -> int:
    names = [column.name for column in GPU_SAMPLE]
    rows = [dict(zip(names, row, strict=True)) for row in second.rows]
    for row in rows:
        row["ts_utc"] = iso_utc(row["ts_utc"])
    if as_json:
        output.emit_json(rows)
        return 0
    output.say(rows[0]["ts_utc"] if rows else "no GPU answered")
    output.say(output.table(_SHOWN, [[row[name] for name in _SHOWN] for row in rows]))
    return 0
