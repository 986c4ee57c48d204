"""`idlewatt doctor`: what this machine can do, and what to put right."""

from __future__ import annotations

import argparse
import sys
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, replace
from itertools import groupby
from typing import Final

from collector.doctor import driver, host, server
from collector.doctor.checks import check
from collector.doctor.facts import DriverFacts, Facts, ServerFacts, SpoolFacts, TokenFacts, Trouble
from collector.doctor.findings import Finding, Status
from collector.identity import machine_id
from idlewatt.cli import drivers, output
from idlewatt.clock import SystemClock, iso_utc
from idlewatt.config import Settings
from idlewatt.errors import ConfigError

FILE_DEADLINE_S: Final = 10.0
SERVER_DEADLINE_S: Final = 15.0
_SLACK_S: Final = 5.0
_WIDEST: Final = 110
_TITLES: Final = {
    "software": "software and identity",
    "driver": "driver",
    "gpu": "GPUs",
    "rights": "rights and limits",
    "spool": "spool",
    "clock": "clock",
    "server": "server",
    "token": "token",
}
_COLOURS: Final = {Status.OK: "green", Status.WARN: "yellow", Status.FAIL: "red"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add flags."""
    parser.add_argument("--server", metavar="URL", help="the server to ask")
    parser.add_argument("--token-file", metavar="FILE", help="file that holds the node's token")
    parser.add_argument("--node-id", metavar="NAME", help="node identity; default: machine id")
    parser.add_argument("--spool-dir", metavar="DIR", help="where samples wait to be sent")
    parser.add_argument("--json", action="store_true", help="print JSON")
    drivers.add_arguments(parser)
    parser.add_argument(
        "--deadline",
        type=float,
        default=driver.DEADLINE_S,
        metavar="SECONDS",
        help="how long the GPU driver may take to answer (default %(default)g)",
    )
    parser.add_argument("--ask-driver", action="store_true", help=argparse.SUPPRESS)
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
        "  idlewatt doctor\n"
        "  sudo -u idlewatt idlewatt doctor --config /etc/idlewatt/config.toml\n"
        "  idlewatt doctor --driver constant --model A100 --gpus 8\n"
        "  idlewatt doctor --json\n"
        "\n"
        "It changes nothing. Exit code 0: nothing fails (there may be warnings); 1: something does."
    )


def run(args: argparse.Namespace, settings: Settings) -> int:
    """Look at everything, print the findings, and return 1 if one of them fails."""
    load_driver, _ = drivers.choose(args, settings)
    if args.ask_driver:
        load_driver()
        output.say(driver.encode(driver.probe_driver(SystemClock())).decode())
        return 0
    facts = gather(args, settings)
    findings = check(facts)
    if args.json:
        output.emit_json(report(facts, findings))
    else:
        for line in lines(facts, findings, output.width(_WIDEST)):
            output.say(line)
    return int(any(finding.status is Status.FAIL for finding in findings))


def gather(args: argparse.Namespace, settings: Settings) -> Facts:
    """Return what is found, with a bound on every wait."""
    folder, max_mib = settings.path("agent.spool_dir"), settings.integer("agent.spool_max_mib")
    url, clock = settings.text("agent.server_url"), SystemClock()
    file, given = settings.text("agent.token_file"), settings.text("agent.token")
    no_token = TokenFacts(file, error=f"token file {file} does not answer"), ""
    token_facts, token = host.Asked(lambda: host.probe_token(file, given)).result(
        FILE_DEADLINE_S, no_token
    )
    argv = child_argv(args, settings)
    asked_driver = host.Asked(lambda: driver.ask_child(argv, args.deadline))
    asked_server = host.Asked(lambda: server.probe_server(url, token, clock))
    asked_spool = host.Asked(lambda: host.probe_spool(folder, max_mib))
    late = ServerFacts(url, error=f"no answer from {url} within {SERVER_DEADLINE_S:.0f} s")
    answer = asked_server.result(SERVER_DEADLINE_S, server.ServerAnswer(late))
    spool = asked_spool.result(FILE_DEADLINE_S, SpoolFacts(str(folder), timed_out=True))
    hangs = DriverFacts(Trouble.HANGS, "the GPU driver gave no answer")
    return Facts(
        node_id=_node_id(settings),
        software=host.probe_software(),
        driver=asked_driver.result(args.deadline + _SLACK_S, hangs),
        rights=host.probe_rights(),
        spool=spool,
        clock=replace(host.probe_clock(), skew_s=answer.skew_s, skew_error_s=answer.skew_error_s),
        server=answer.facts,
        token=token_facts,
    )


def child_argv(args: argparse.Namespace, settings: Settings) -> list[str]:
    """Return the command line of the child that asks the driver; no secret is in it."""
    argv = [sys.executable, "-m", "idlewatt", "doctor", "--ask-driver"]
    return [*argv, "--driver", settings.text("agent.driver"), *drivers.words(args)]


def _node_id(settings: Settings) -> str | None:
    try:
        return settings.text("agent.node_id") or machine_id()
    except ConfigError:
        return None


def report(facts: Facts, findings: Sequence[Finding]) -> dict[str, object]:
    """Return everything for programs."""
    uuids = {device.index: device.uuid for device in facts.driver.devices}
    return {
        "node_id": facts.node_id,
        "utc": iso_utc(SystemClock().now_us()),
        **{status.value: _count(findings, status) for status in Status},
        "findings": [
            {
                "status": one.status.value,
                "check": one.check,
                "gpu_index": one.gpu,
                "gpu_uuid": None if one.gpu is None else uuids.get(one.gpu),
                "text": one.text,
                "advice": one.advice or None,
            }
            for one in findings
        ],
        "facts": asdict(facts),
    }


def _count(findings: Iterable[Finding], status: Status) -> int:
    return sum(finding.status is status for finding in findings)


def lines(facts: Facts, findings: Sequence[Finding], width: int) -> Iterator[str]:
    """Yield the report for people, at most `width` wide."""
    shown: list[Status] = []
    for section, members in groupby(findings, key=lambda finding: finding.section):
        yield output.paint(_TITLES[section], "bold")
        for status, text, advice in merged(list(members), len(facts.driver.devices)):
            shown.append(status)
            yield from _wrapped(status, text, advice, width)
        yield ""
    yield " · ".join(
        output.paint(f"{shown.count(status)} {status.value}", _COLOURS[status])
        for status in Status
        if status in shown
    )


def merged(findings: Sequence[Finding], gpus: int) -> list[tuple[Status, str, str]]:
    """Return (status, text, advice) in order; what several GPUs share stands once."""
    alike: dict[tuple[str, Status, str, str], list[int]] = {}
    for one in findings:
        where = alike.setdefault((one.check, one.status, one.text, one.advice), [])
        if one.gpu is not None:
            where.append(one.gpu)
    ordered = sorted(alike.items(), key=lambda item: item[0][0] != "gpu.answers")
    return [
        (status, f"{_gpus(where, gpus)}{text}", advice)
        for (_, status, text, advice), where in ordered
    ]


def _gpus(indices: Sequence[int], total: int) -> str:
    """Return `GPU 0  `, `GPUs 0-3, 5  `, `all GPUs  `, or nothing."""
    if not indices:
        return ""
    if len(indices) == total > 1:
        return "all GPUs  "
    runs: list[list[int]] = []
    for index in sorted(indices):
        if runs and index == runs[-1][-1] + 1:
            runs[-1].append(index)
        else:
            runs.append([index])
    words = [str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs]
    return f"{'GPU' if len(indices) == 1 else 'GPUs'} {', '.join(words)}  "


def _wrapped(status: Status, text: str, advice: str, width: int) -> Iterator[str]:
    room = max(width - 8, 32)
    head, *rest = textwrap.wrap(text, room, break_on_hyphens=False, drop_whitespace=True) or [""]
    yield f"  {output.paint(f'{status.value:<4}', _COLOURS[status])}  {head}"
    for line in rest:
        yield f"        {line}"
    for number, line in enumerate(textwrap.wrap(advice, room - 2, break_on_hyphens=False)):
        yield f"        {output.paint('→' if number == 0 else ' ', 'bold')} {line}"
