"""The wheel works outside the checkout: whole, and as the light base install of a node."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
import venv
import zipfile
from importlib import metadata
from pathlib import Path

import pytest
from harness import Server, clean_env, wait_until
from packaging.requirements import Requirement

pytestmark = pytest.mark.integration
ROOT = Path(__file__).parents[2]
HEAVY = ("numpy", "duckdb", "polars", "dash", "plotly", "pyarrow")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("dist")
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(out)],
        cwd=ROOT, check=True, capture_output=True,
    )  # fmt: skip
    (found,) = out.glob("*.whl")
    return found


def closure(extras: set[str]) -> set[str]:
    """Return the names of all distributions that an install with `extras` brings."""
    wanted = [("idlewatt", frozenset(extras))]
    seen: set[tuple[str, frozenset[str]]] = set()
    while wanted:
        name, asked = wanted.pop()
        if (name, asked) in seen:
            continue
        seen.add((name, asked))
        for line in metadata.requires(name) or []:
            need = Requirement(line)
            markers = [{"extra": extra} for extra in asked or {""}] + [{"extra": ""}]
            if need.marker is None or any(need.marker.evaluate(m) for m in markers):
                wanted.append((re.sub(r"[-_.]+", "-", need.name).lower(), frozenset(need.extras)))
    return {name for name, _ in seen} - {"idlewatt"}


def environment(folder: Path, wheel: Path, extras: set[str]) -> Path:
    """Return the python of a new environment that holds the wheel and its requirements only.

    The requirements are links to this environment's own, so that no network is needed.
    """
    venv.create(folder, with_pip=False, symlinks=True)
    (site,) = folder.glob("lib/python*/site-packages")
    for name in closure(extras):
        for file in metadata.distribution(name).files or []:
            top = file.parts[0]
            source = Path(str(metadata.distribution(name).locate_file(top)))
            if top not in ("..", "__pycache__") and not (site / top).exists():
                os.symlink(source, site / top)
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(site)
    return folder / "bin" / "python"


def test_the_wheel_holds_the_sql_and_nothing_foreign(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    tops = {name.split("/")[0] for name in names}
    assert {"idlewatt", "collector", "warehouse", "analysis", "dashboard"} <= tops
    assert "sql" not in tops
    assert "tests" not in tops
    assert any(name.startswith("warehouse/_sql/queries/") for name in names)
    assert any(name.startswith("warehouse/_sql/migrations/") for name in names)


def test_whole_install_serves_and_answers(wheel: Path, tmp_path: Path) -> None:
    python = environment(tmp_path / "env", wheel, {"server"})
    command = [str(python), "-m", "idlewatt"]
    run = {"capture_output": True, "text": True, "cwd": tmp_path, "env": clean_env()}
    version = subprocess.run([*command, "--version"], check=True, **run)  # type: ignore[call-overload]
    assert version.stdout.startswith("idlewatt ")
    listed = subprocess.run([*command, "sql", "list"], check=True, **run)  # type: ignore[call-overload]
    assert len(listed.stdout.splitlines()) > 5
    server = Server(tmp_path, command).start()
    try:
        asked = subprocess.run(
            [*command, "sql", "--url", server.url, "--format", "csv", "-c", "SELECT 6*7 AS n"],
            check=True, **run,
        )  # type: ignore[call-overload]  # fmt: skip
        assert asked.stdout.split() == ["n", "42"]
    finally:
        server.end()


def test_base_install_runs_the_agent(wheel: Path, tmp_path: Path) -> None:
    server = Server(tmp_path).start()
    agent = None
    try:
        python = environment(tmp_path / "env", wheel, set())
        command = [str(python), "-m", "idlewatt"]
        probe = "import importlib.util as u,sys; print([m for m in sys.argv[1:] if u.find_spec(m)])"
        found = subprocess.run(
            [str(python), "-c", probe, *HEAVY], capture_output=True, text=True, check=True,
            cwd=tmp_path,
        )  # fmt: skip
        assert found.stdout.strip() == "[]"
        refused = subprocess.run(
            [*command, "serve"], capture_output=True, text=True, check=False, cwd=tmp_path,
            env=clean_env(),
        )  # fmt: skip
        assert refused.returncode == 2
        assert "pip install 'idlewatt[server]'" in refused.stderr
        token = tmp_path / "token"
        token.write_text(server.token("n1"))
        agent = subprocess.Popen(
            [*command, "agent", "--driver", "constant", "--server", server.url, "--node-id", "n1",
             "--token-file", str(token), "--spool-dir", str(tmp_path / "spool")],
            cwd=tmp_path, env=clean_env(), stderr=subprocess.PIPE,
        )  # fmt: skip
        wait_until(
            lambda: server.sql("SELECT count(*) AS n FROM gpu_sample")[0]["n"] >= 6, 30, "six rows"
        )
        agent.terminate()
        begun = time.monotonic()
        assert agent.wait(10) == 0
        assert time.monotonic() - begun < 6
    finally:
        if agent is not None:
            agent.kill()
            agent.communicate()
        server.end()
