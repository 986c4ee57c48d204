"""Which driver a verb talks to: the real one, or a stand-in for trials."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from typing import Any, Final

from collector.attribution import AllocationSource, NoAllocations
from idlewatt.clock import SystemClock
from idlewatt.config import Settings
from idlewatt.errors import UsageError
from idlewatt.units import US_PER_S

CHOICES: Final = ("nvml", "constant", "sim")
_US_PER_DAY: Final = 86_400 * US_PER_S


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the flags that choose and describe a driver."""
    parser.add_argument("--driver", choices=CHOICES, help="the GPU driver, or a stand-in")
    trial = parser.add_argument_group("stand-ins for trials")
    trial.add_argument("--gpus", type=int, default=2, metavar="N", help="constant: GPUs")
    trial.add_argument("--model", default="H100", help="constant: GPU model")
    trial.add_argument("--sim", metavar="JSON", help="sim: the cluster, as fields of its spec")
    trial.add_argument("--sim-node", type=int, default=0, metavar="N", help="sim: which node")


def words(args: argparse.Namespace) -> list[str]:
    """Return the flags that give a child process the same stand-in."""
    flags = ["--gpus", str(args.gpus), "--model", args.model, "--sim-node", str(args.sim_node)]
    return [*flags, "--sim", args.sim] if args.sim else flags


def choose(
    args: argparse.Namespace, settings: Settings
) -> tuple[Callable[[], None], Callable[[], AllocationSource]]:
    """Return what puts the driver in place, and what makes the allocation source."""
    driver = settings.text("agent.driver")
    if driver == "constant":
        return lambda: _load_constant(args.gpus, args.model), NoAllocations
    if driver == "sim":
        fields = _sim_fields(args.sim)
        args.sim = json.dumps(fields)  # a child must live in the same cluster after a restart
        return (
            lambda: _load_sim(fields, args.sim_node),
            lambda: _sim_source(fields, args.sim_node),
        )
    return lambda: None, NoAllocations


def _load_constant(gpus: int, model: str) -> None:
    from collector.simulator.constant import install_constant

    install_constant(gpus=gpus, model=model)


def _sim_fields(text: str | None) -> dict[str, Any]:
    try:
        fields = json.loads(text or "{}")
    except ValueError as exc:
        raise UsageError(f"--sim is not JSON: {exc}") from exc
    if not isinstance(fields, dict):
        raise UsageError("--sim must be a JSON object of the cluster's fields")
    today_us = SystemClock().now_us() // _US_PER_DAY * _US_PER_DAY
    return {"seed": 1, "nodes": 4, "gpus_per_node": 8, "origin_us": today_us, **fields}


def _sim_spec(fields: dict[str, Any]) -> Any:
    from collector.simulator.cluster import ClusterSpec

    given: Any = {
        name: tuple(value) if isinstance(value, list) else value for name, value in fields.items()
    }
    try:
        return ClusterSpec(**given)
    except TypeError as exc:
        raise UsageError(f"--sim does not describe a cluster: {exc}") from exc


def _load_sim(fields: dict[str, Any], node_index: int) -> None:
    from collector.simulator.live import install_live

    install_live(_sim_spec(fields), node_index, SystemClock())


def _sim_source(fields: dict[str, Any], node_index: int) -> AllocationSource:
    from collector.simulator.live import LiveAllocations

    source: AllocationSource = LiveAllocations(_sim_spec(fields), node_index)
    return source
