"""`idlewatt demo`: the whole product as real processes on a simulated fleet."""

from __future__ import annotations

import argparse
import contextlib
import json
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn

from collector.simulator.backfill import Backfill
from collector.simulator.cluster import ClusterSpec, node_id, rack_of
from collector.simulator.history import epoch_of
from idlewatt.cli import output
from idlewatt.cli.children import Children
from idlewatt.cli.sql import Client
from idlewatt.clock import SystemClock
from idlewatt.config import Settings
from idlewatt.errors import IdlewattError, ServerUnreachableError, UnavailableError, UsageError
from idlewatt.units import US_PER_HOUR
from warehouse.queries import load
from warehouse.serving import pick_port
from warehouse.tokens import Tokens

START_TIMEOUT_S: Final = 60.0
QUESTIONS: Final = (
    "idlewatt sql execution_idle_by_job",
    'idlewatt sql -c "FROM energy_by_state"',
    'idlewatt sql --format csv -c "SELECT gpu_uuid, max(power_inst_mw) / 1000 AS peak_w'
    ' FROM gpu_sample GROUP BY ALL ORDER BY 2 DESC LIMIT 5"',
)


@dataclass(frozen=True, slots=True)
class Plan:
    """What a demo runs."""

    spec: ClusterSpec
    root: Path
    port: int
    tokens: dict[str, str]
    common: tuple[str, ...]
    settings: Settings

    @property
    def url(self) -> str:
        """Return the base address of the server."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def data_dir(self) -> Path:
        """Return the warehouse's folder."""
        return self.root / "data"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add flags."""
    parser.add_argument("--nodes", type=int, default=4, help="nodes (default 4)")
    parser.add_argument("--gpus", type=int, default=8, help="GPUs a node (default 8)")
    parser.add_argument(
        "--hours", type=int, default=24, help="hours of history (default 24; 0: only what is live)"
    )
    parser.add_argument("--seed", type=int, default=7, help="chooses jobs and noise (default 7)")
    parser.add_argument("--port", type=int, help="port (setting server.port, 8050)")
    parser.add_argument(
        "--data-dir", type=Path, help="keep the data here; default: a folder that is removed"
    )
    parser.add_argument(
        "--exit-when-complete", action="store_true", help="end once the history is complete"
    )
    parser.epilog = (
        "examples:\n"
        "  idlewatt demo\n"
        "  idlewatt demo --nodes 16 --hours 6 --port 9000\n"
        "  idlewatt demo --data-dir ./kept   # later: idlewatt serve --data-dir ./kept/data\n"
        "  idlewatt demo --hours 0 --set server.min_free_mib=64\n"
        "\n"
        "--config and --set reach server and agents; port, folders and tokens are the demo's own.\n"
        "No GPU is needed and none is touched. Ctrl-C ends it and leaves nothing behind."
    )
    parser.set_defaults(flag_settings={"port": "server.port"})


def run(args: argparse.Namespace, settings: Settings) -> int:
    """Run the demo until Ctrl-C."""
    signal.signal(signal.SIGTERM, _interrupt)
    port = pick_port("127.0.0.1", settings.integer("server.port"))
    begun = time.monotonic()
    with _folder(args.data_dir) as root:
        plan = _plan(args, settings, root, port)
        children = Children(root / "logs")
        try:
            return _run(plan, children, args, begun)
        finally:
            output.say("stopping …", err=True)
            children.stop()


def _interrupt(*_: Any) -> None:
    raise KeyboardInterrupt


@contextlib.contextmanager
def _folder(kept: Path | None) -> Iterator[Path]:
    """Yield the demo's folder; a temporary one is removed at the end."""
    if kept is not None and (kept / "data").exists():
        raise UsageError(
            f"{kept} already holds a demo: choose another folder, or look at it with "
            f"`idlewatt serve --data-dir {kept / 'data'}`"
        )
    try:
        root = Path(tempfile.mkdtemp(prefix="idlewatt-demo-")) if kept is None else kept.resolve()
        for name in ("logs", "data"):
            (root / name).mkdir(parents=True, exist_ok=True)
    except OSError as exc:
        raise UsageError(
            f"the demo's folder cannot be made: {exc.strerror} ({exc.filename}); give --data-dir"
        ) from exc
    try:
        yield root
    finally:
        if kept is None:
            shutil.rmtree(root, ignore_errors=True)


def _plan(args: argparse.Namespace, settings: Settings, root: Path, port: int) -> Plan:
    if min(args.nodes, args.gpus) < 1 or args.hours < 0:
        raise UsageError("a demo needs at least one node with one GPU, and hours >= 0")
    now_us = SystemClock().now_us()
    origin_us = now_us - now_us % US_PER_HOUR - max(args.hours, 1) * US_PER_HOUR
    spec = ClusterSpec(args.seed, args.nodes, args.gpus, origin_us)
    made = Tokens(root / "data" / "tokens.toml")
    tokens = {name: made.create(name) for name in map(node_id, range(args.nodes))}
    common = ["--verbose"] if args.verbose else []
    if args.config:
        common += ["--config", str(args.config)]
    for pair in args.set:
        common += ["--set", pair]
    return Plan(spec, root, port, tokens, tuple(common), settings)


def _run(plan: Plan, children: Children, args: argparse.Namespace, begun: float) -> int:
    client = Client(plan.url, 30.0)
    _start(plan, children)
    ends = _wait_live(plan, children, client)
    live_s = time.monotonic() - begun
    output.say(f"live after {live_s:.0f} s: {plan.url}")
    output.say("\nask it in SQL, in another terminal:")
    for question in QUESTIONS:
        output.say(f"  {_as_typed(question, plan)}")
    output.say()
    if args.hours:
        rows = _ship_history(plan, children, ends)
        _wait_analysed(plan, children, client)
        took_s = time.monotonic() - begun
        output.say(f"history complete after {took_s:.0f} s: {rows:,} samples; Ctrl-C ends the demo")
    else:
        output.say("no history, only what is live; Ctrl-C ends the demo")
    while not args.exit_when_complete:
        _check(children)
        time.sleep(0.5)
    return 0


def _as_typed(question: str, plan: Plan) -> str:
    """Return a question as the reader of this terminal can type it."""
    found, ours = shutil.which("idlewatt"), Path(sys.argv[0])
    if ours.name == "idlewatt" and (found is None or Path(found).resolve() != ours.resolve()):
        question = question.replace("idlewatt", str(ours), 1)
    if plan.port != 8050:
        question = question.replace(" sql", f" sql --url {plan.url}", 1)
    return question


def _start(plan: Plan, children: Children) -> None:
    for name, token in plan.tokens.items():
        (plan.root / f"{name}.token").touch(0o600)
        (plan.root / f"{name}.token").write_text(token)
    idlewatt = [sys.executable, "-m", "idlewatt"]
    quicker = {"analysis.every_s": 3, "server.analyst_every_s": 60}  # where nobody says otherwise
    server = {
        **{name: value for name, value in quicker.items() if _is_default(plan.settings, name)},
        "server.port": plan.port,
        "server.data_dir": plan.data_dir,
        "server.tokens_file": "",
    }
    children.start("server", [*idlewatt, "serve", *plan.common, *_sets(server)])
    for index in range(plan.spec.nodes):
        name = node_id(index)
        agent = {
            "agent.server_url": plan.url,
            "agent.node_id": name,
            "agent.hostname": name,
            "agent.token_file": plan.root / f"{name}.token",
            "agent.spool_dir": plan.root / "spool" / name,
            "agent.rack": rack_of(plan.spec, index),
            "agent.cluster": plan.spec.cluster,
            "agent.driver": "sim",
        }
        sim = ["--sim", json.dumps(asdict(plan.spec)), "--sim-node", str(index)]
        children.start(f"agent-{name}", [*idlewatt, "agent", *plan.common, *sim, *_sets(agent)])


def _is_default(settings: Settings, name: str) -> bool:
    return settings.origins.get(name) == "default"


def _sets(values: dict[str, Any]) -> list[str]:
    return [word for name, value in values.items() for word in ("--set", f"{name}={value}")]


def _check(children: Children) -> None:
    name = children.ended()
    if name is not None:
        raise IdlewattError(f"{name} has ended: {children.last_words(name)}")


def _poll(children: Children, check: Callable[[], Any], timeout_s: float, what: str) -> Any:
    end = time.monotonic() + timeout_s
    while time.monotonic() < end:
        _check(children)
        with contextlib.suppress(ServerUnreachableError, UnavailableError):
            found = check()
            if found:
                return found
        time.sleep(0.25)
    raise UnavailableError(f"{what} took longer than {timeout_s:.0f} s")


def _rows(client: Client, statement: str, params: dict[str, Any]) -> list[dict[str, Any]]:
    asked = {"sql": load(f"statements/{statement}"), "params": params}
    answer = json.loads(client.ask(asked, "json"))
    return [dict(zip(answer["columns"], row, strict=True)) for row in answer["rows"]]


def _wait_live(plan: Plan, children: Children, client: Client) -> dict[int, int]:
    """Return node index -> first live second, once every node is live."""
    known = {"epoch": epoch_of(plan.spec)}

    def first_seconds() -> dict[str, int] | None:
        found = {
            row["node_id"]: row["first_us"] for row in _rows(client, "demo_first_seconds", known)
        }
        return found if len(found) == plan.spec.nodes else None

    found = _poll(children, first_seconds, START_TIMEOUT_S, "starting the fleet")
    return {index: found[node_id(index)] for index in range(plan.spec.nodes)}


def _ship_history(plan: Plan, children: Children, ends: dict[int, int]) -> int:
    backfill = Backfill(plan.spec, plan.url, plan.tokens, ends, SystemClock())
    columns = (
        TextColumn("history"),
        BarColumn(),
        TaskProgressColumn(),
        TextColumn("{task.completed:.0f} of {task.total:.0f} GPU-hours"),
        TimeElapsedColumn(),
    )
    with Progress(*columns) as bar:
        task = bar.add_task("history", total=backfill.gpu_hours)

        def advance(done: Any) -> None:
            _check(children)
            bar.advance(task, done.gpu_hours)

        return backfill.run(advance)


def _wait_analysed(plan: Plan, children: Children, client: Client) -> None:
    """Wait until every past hour is classified."""

    def done() -> bool:
        return bool(_rows(client, "demo_hours_pending", {})[0]["hours"] == 0)

    _poll(children, done, 300, "classifying the history")
