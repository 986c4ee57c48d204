"""`idlewatt doctor`: findings from facts, their form, and the verb as a process."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pynvml
import pytest

from collector.doctor.checks import check
from collector.doctor.facts import (
    ClockFacts,
    DeviceFacts,
    DriverFacts,
    Facts,
    RightsFacts,
    ServerFacts,
    SoftwareFacts,
    SpoolFacts,
    TokenFacts,
    Trouble,
)
from collector.doctor.findings import Finding, Status
from idlewatt.cli.doctor import lines, merged, report
from idlewatt.units import MIB

GPU = DeviceFacts(
    index=0,
    uuid="GPU-a",
    model="NVIDIA H100 80GB HBM3",
    arch="hopper",
    refused={"fan_pct": "unsupported"},
    gpm=True,
    power_mw=250_000,
    energy_mj=(1_000, 251_000),
    lists=dict.fromkeys(("compute", "graphics", "mps"), "ok"),
    persistence=True,
    mig=False,
    read_ms=4.0,
)
NO_GPM = dict.fromkeys(
    (
        *("gr_active", "sm_active", "sm_occupancy", "tensor_active", "fp64_active"),
        *("fp32_active", "fp16_active", "dram_active"),
        *("pcie_tx_bytes_s", "pcie_rx_bytes_s", "nvlink_tx_bytes_s", "nvlink_rx_bytes_s"),
    ),
    "unsupported",
)
GOOD = Facts(
    node_id="n1",
    software=SoftwareFacts((3, 11, 7), {"idlewatt": "0.1.0", "msgspec": "0.23.0"}),
    driver=DriverFacts(driver_version="590.48.01", devices=(GPU,)),
    rights=RightsFacts(uid=998, sys_admin=False, profiling_restricted=False, open_files=1024),
    spool=SpoolFacts("/spool", exists=True, free_bytes=9_000 * MIB, kind="xfs", sync_ms=(1.0,)),
    clock=ClockFacts(True, "chrony", 3.0, 0.01, 0.002),
    server=ServerFacts(
        "http://127.0.0.1:8050", health="ok", round_trip_ms=2, status=200, token_node="n1",
        local=True,
    ),
    token=TokenFacts("/etc/idlewatt/token", mode=0o640, present=True),
)  # fmt: skip


def findings(facts: Facts, prefix: str = "") -> list[Finding]:
    return [one for one in check(facts) if one.check.startswith(prefix)]


def only(facts: Facts, name: str) -> Finding:
    (found,) = findings(facts, name)
    return found


def device(**more: Any) -> Facts:
    return replace(GOOD, driver=replace(GOOD.driver, devices=(replace(GPU, **more),)))


def part(name: str, **more: Any) -> Facts:
    return replace(GOOD, **{name: replace(getattr(GOOD, name), **more)})


def test_a_good_machine_has_nothing_to_put_right() -> None:
    found = check(GOOD)
    assert {one.status for one in found} == {Status.OK}
    assert {one.section for one in found} == {
        *("software", "driver", "gpu", "rights", "spool", "clock", "server", "token")
    }


CASES: list[tuple[Facts, str, Status, str]] = [
    (part("software", python=(3, 10, 1)), "software.python", Status.FAIL, "3.10.1 is too old"),
    (replace(GOOD, node_id=None), "software.node", Status.FAIL, "no machine id"),
    (part("driver", devices=()), "driver.devices", Status.FAIL, "no GPU"),
    (device(error="gpu_is_lost"), "gpu.answers", Status.FAIL, "GPU-a does not answer: gpu_is_lost"),
    (device(error="no_permission"), "gpu.answers", Status.FAIL, "not permitted"),
    (device(refused=NO_GPM, gpm=False), "gpu.activity", Status.WARN, "no activity counters"),
    (
        device(refused=NO_GPM, gpm=False, arch="ampere"),
        *("gpu.activity", Status.OK, "ampere comes before Hopper"),
    ),
    (
        device(refused=dict.fromkeys(NO_GPM, "no_permission")),
        *("gpu.activity", Status.WARN, "not permitted"),
    ),
    (
        device(refused=dict.fromkeys(("power_avg_mw", "power_inst_mw"), "unsupported")),
        *("gpu.power", Status.FAIL, "no power reading"),
    ),
    (device(energy_mj=(5, 5)), "gpu.energy", Status.WARN, "stood still"),
    (device(energy_mj=(None, None)), "gpu.energy", Status.WARN, "no energy counter"),
    (device(lists={"compute": "no_permission"}), "gpu.processes", Status.WARN, "no_permission"),
    (device(pids_plausible=False), "gpu.processes", Status.WARN, "535"),
    (device(persistence=False), "gpu.persistence", Status.WARN, "is off"),
    (device(mig=True), "gpu.mig", Status.WARN, "MIG"),
    (device(read_ms=180.0), "gpu.speed", Status.WARN, "180 ms"),
    (device(silent=("temp_gpu_c",)), "gpu.silent", Status.WARN, "temp_gpu_c"),
    (part("rights", profiling_restricted=True), "rights.profiling", Status.WARN, "administrators"),
    (part("rights", closed_nodes=("/dev/nvidia0",)), "rights.devices", Status.FAIL, "/dev/nvidia0"),
    (part("rights", open_files=64), "rights.files", Status.WARN, "64"),
    (part("spool", error="Read-only file system"), "spool.folder", Status.FAIL, "Read-only"),
    (part("spool", timed_out=True), "spool.folder", Status.FAIL, "does not answer"),
    (part("spool", exists=False), "spool.folder", Status.OK, "will be made"),
    (part("spool", free_bytes=9 * MIB), "spool.space", Status.FAIL, "9 MiB free"),
    (part("spool", free_bytes=900 * MIB), "spool.space", Status.WARN, "900 MiB free"),
    (part("spool", kind="tmpfs"), "spool.disk", Status.WARN, "memory"),
    (part("spool", kind="nfs4"), "spool.disk", Status.WARN, "network"),
    (part("spool", sync_ms=(1.0, 400.0, 500.0)), "spool.sync", Status.WARN, "400.0 ms"),
    (part("spool", holder_pid=7, silent_s=1.0), "spool.agent", Status.OK, "pid 7"),
    (part("spool", holder_pid=7, silent_s=300.0), "spool.agent", Status.WARN, "nothing for 300 s"),
    (part("clock", synchronised=False), "clock.synchronised", Status.WARN, "not synchronised"),
    (part("clock", synchronised=None), "clock.synchronised", Status.WARN, "unknown"),
    (part("clock", max_error_ms=900.0), "clock.synchronised", Status.WARN, "900 ms"),
    (part("clock", skew_s=-4.0), "clock.skew", Status.WARN, "4.00 s ahead of"),
    (part("clock", skew_s=90.0), "clock.skew", Status.FAIL, "90.00 s behind"),
    (part("clock", skew_s=1.4, skew_error_s=0.5), "clock.skew", Status.OK, "within 1.40 s"),
    (part("server", url=""), "server.reach", Status.WARN, "no server is set"),
    (part("server", error="no answer from x"), "server.reach", Status.FAIL, "no answer from x"),
    (part("server", health=None), "server.reach", Status.FAIL, "no idlewatt server"),
    (part("server", local=False), "server.encrypted", Status.WARN, "unencrypted"),
    (part("server", problems=("old",)), "server.health", Status.WARN, "red: old"),
    (part("server", status=401), "token.accepted", Status.FAIL, "does not know"),
    (part("server", status=503), "token.accepted", Status.WARN, "503"),
    (part("server", token_node="n2"), "token.accepted", Status.FAIL, "node n2, this node is n1"),
    (part("token", present=False), "token.accepted", Status.FAIL, "no token"),
    (part("token", mode=0o644), "token.file", Status.WARN, "mode 0644"),
    (part("token", error="cannot be read"), "token.file", Status.FAIL, "cannot be read"),
]


@pytest.mark.parametrize(("facts", "name", "status", "words"), CASES)
def test_one_thing_wrong_is_one_finding(
    facts: Facts, name: str, status: Status, words: str
) -> None:
    found = only(facts, name)
    assert (found.status, words in found.text) == (status, True), found
    if status is not Status.OK:
        assert found.advice
    spoiled = {one.check for one in check(facts) if one.status is not Status.OK}
    assert spoiled <= {name, "token.accepted"}  # the token cannot be judged without the server


@pytest.mark.parametrize("trouble", list(Trouble))
def test_every_trouble_with_the_driver_has_advice(trouble: Trouble) -> None:
    found = only(replace(GOOD, driver=DriverFacts(trouble, "words")), "driver")
    assert (found.status, found.text, bool(found.advice)) == (Status.FAIL, "words", True)


def test_a_missing_package_is_told() -> None:
    found = findings(part("software", versions={"msgspec": None}), "software.versions")
    assert [one.status for one in found] == [Status.OK, Status.FAIL]
    assert found[1].advice == "pip install msgspec"


def test_gpus_that_are_alike_share_a_line() -> None:
    gpus = [replace(GPU, index=index, uuid=f"GPU-{index}") for index in range(8)]
    gpus[3] = replace(gpus[3], persistence=False)
    gpus[5] = replace(gpus[5], error="gpu_is_lost")
    facts = replace(GOOD, driver=replace(GOOD.driver, devices=tuple(gpus)))
    shown = [text for _, text, _ in merged(findings(facts, "gpu"), 8)]
    assert shown[0].startswith("GPU 0  NVIDIA H100 80GB HBM3  GPU-0")
    assert "GPU 5  GPU-5 does not answer: gpu_is_lost" in shown
    assert "GPUs 0-2, 4, 6-7  persistence mode is on" in shown
    assert any(text.startswith("GPU 3  persistence mode is off") for text in shown)
    assert len(shown) == 8 + 2 + 4


def test_lines_fit_and_the_last_one_counts() -> None:
    facts = part("server", error="no answer from http://127.0.0.1:9: refused")
    shown = list(lines(facts, check(facts), 60))
    assert max(map(len, shown)) <= 60
    assert shown[0] == "software and identity"
    assert shown[-1].endswith("ok · 1 fail")
    assert any(line.startswith("        → ") for line in shown)
    assert "\x1b" not in "".join(shown)


def test_the_report_for_programs_names_the_gpu() -> None:
    found = report(GOOD, check(GOOD))
    assert (found["ok"], found["warn"], found["fail"]) == (len(check(GOOD)), 0, 0)
    listed: Any = found["findings"]
    assert {one["gpu_uuid"] for one in listed} == {None, "GPU-a"}
    json.dumps(found)


def test_troubleshooting_quotes_what_the_agent_really_says() -> None:
    root = Path(__file__).parents[2]
    page = (root / "docs" / "troubleshooting.md").read_text("utf-8")
    sources = "".join(path.read_text("utf-8") for path in (root / "collector").rglob("*.py"))
    sources += Path(pynvml.__file__).read_text("utf-8")
    asked = page.partition("## A node does not appear")[2].partition("## A column is NULL")[0]
    quoted = re.findall(r"^\| `([^`]+)`", asked, re.MULTILINE)
    assert len(quoted) >= 12
    for phrase in quoted:
        parts = re.split(r"…|\b[NAB]\b|http://|30 s|GPU-|: NVML Shared.*", phrase)
        longest = max(parts, key=len).strip()
        assert longest in sources, phrase


def test_troubleshooting_knows_every_reason_of_a_gap() -> None:
    root = Path(__file__).parents[2]
    page = (root / "docs" / "troubleshooting.md").read_text("utf-8")
    listed = set(re.findall(r"`(\w+)`", page.partition("## There are gaps")[2].partition("## ")[0]))
    used = set()
    for path in (root / "collector").glob("*.py"):
        text = path.read_text("utf-8")
        used |= set(re.findall(r'gap_row\([^"]*"(\w+)"', text))
        used |= set(re.findall(r'Missed\([^"()]*(?:\([^()]*\)[^"()]*)*"(\w+)"', text))
    assert {"agent_down", "spool_full", "spool_error", "driver"} <= used
    assert used <= listed


# ── the verb ────────────────────────────────────────────────────────────────────────────────────


def doctor(folder: Path, *flags: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [
            *(sys.executable, "-m", "idlewatt", "doctor", "--node-id", "n1"),
            *("--spool-dir", str(folder / "spool"), "--set", "agent.spool_max_mib=1", *flags),
        ],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.mark.integration
def test_doctor_on_a_stand_in_without_a_server(tmp_path: Path) -> None:
    done = doctor(
        tmp_path,
        *("--driver", "constant", "--gpus", "3", "--server", "http://127.0.0.1:9", "--json"),
    )
    assert done.returncode == 1, done.stderr
    found = json.loads(done.stdout)
    bad = {one["check"] for one in found["findings"] if one["status"] == "fail"}
    assert bad == {"server.reach", "token.accepted"}
    assert len(found["facts"]["driver"]["devices"]) == 3
    assert not (tmp_path / "spool").exists()


@pytest.mark.integration
def test_doctor_without_a_driver(tmp_path: Path) -> None:
    done = doctor(tmp_path, "--driver", "nvml", "--server", "")
    assert done.returncode == 1
    assert "fail  the GPU driver cannot be opened" in done.stdout
    assert "Traceback" not in done.stderr


@pytest.mark.integration
def test_doctor_does_not_wait_for_a_driver_that_hangs(tmp_path: Path) -> None:
    begun = time.monotonic()
    done = doctor(tmp_path, "--driver", "constant", "--server", "", "--deadline", "0.05", "--json")
    assert time.monotonic() - begun < 20
    found = json.loads(done.stdout)
    (hung,) = [one for one in found["findings"] if one["check"] == "driver.loads"]
    assert hung["text"].startswith("the GPU driver gave no answer within")


@pytest.mark.integration
def test_doctor_against_the_real_server(
    tmp_path: Path, api: Callable[..., tuple[str, str]]
) -> None:
    url, token = api("n1")
    (tmp_path / "token").write_text(token)
    (tmp_path / "token").chmod(0o600)
    flags = ("--driver", "constant", "--model", "A100", "--server", url, "--json", "--token-file")
    done = doctor(tmp_path, *flags, str(tmp_path / "token"))
    assert done.returncode == 0, done.stdout
    found = {one["check"]: one for one in json.loads(done.stdout)["findings"]}
    assert found["token.accepted"]["text"] == "the server takes it for node n1"
    assert found["clock.skew"]["status"] == "ok"
    (tmp_path / "token").write_text("iw_this-is-nobody's-token")
    done = doctor(tmp_path, *flags, str(tmp_path / "token"))
    assert done.returncode == 1
    found = {one["check"]: one for one in json.loads(done.stdout)["findings"]}
    assert found["token.accepted"]["text"] == "the server does not know this token"


@pytest.mark.integration
@pytest.mark.parametrize("flags", [["--ask-driver"], ["--deadline", "0"]])
def test_the_base_install_is_enough(tmp_path: Path, flags: list[str]) -> None:
    words = ["doctor", "--driver", "constant", "--spool-dir", str(tmp_path), "--server", "", *flags]
    code = (
        "import sys\n"
        "for name in ('numpy', 'duckdb', 'polars', 'dash', 'plotly', 'pyarrow', 'rich'):\n"
        "    sys.modules[name] = None\n"
        "from idlewatt.cli import main\n"
        f"sys.exit(main({words!r}))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.stderr == ""
    assert done.returncode == (0 if flags == ["--ask-driver"] else 1)
