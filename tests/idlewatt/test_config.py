"""Settings: precedence, origins, and refusal of what is not in the table."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

from idlewatt.config import SETTINGS, resolve
from idlewatt.errors import ConfigError


def test_defaults_fit_their_own_limits() -> None:
    resolved = resolve({s.name: s.default for s in SETTINGS}, {})
    assert dict(resolved.values) == {s.name: s.default for s in SETTINGS}


def test_precedence_and_origins(tmp_path: Path) -> None:
    file = tmp_path / "idlewatt.toml"
    file.write_text('[server]\nport = 9000\nbind = "::1"\n[agent]\nflush_s = 2\n')
    resolved = resolve(
        {"server.port": "9002"},
        {"IDLEWATT_SERVER_PORT": "9001", "IDLEWATT_SERVER_BIND": "127.0.0.2"},
        file,
    )
    assert resolved["server.port"] == 9002
    assert resolved["server.bind"] == "127.0.0.2"
    assert resolved["agent.flush_s"] == 2.0
    assert resolved.origins["server.port"] == "command line"
    assert resolved.origins["server.bind"] == "environment IDLEWATT_SERVER_BIND"
    assert resolved.origins["agent.flush_s"] == f"file {file}"
    assert resolved.origins["query.timeout_s"] == "default"


def test_the_file_may_be_named_by_the_environment(tmp_path: Path) -> None:
    file = tmp_path / "c.toml"
    file.write_text("[server]\nport = 1\n")
    assert resolve({}, {"IDLEWATT_CONFIG": str(file)})["server.port"] == 1


@pytest.mark.parametrize(
    ("flags", "environ", "words"),
    [
        ({"server.prot": "1"}, {}, r"unknown setting 'server.prot'.*did you mean 'server.port'"),
        ({}, {"IDLEWATT_SERVER_PROT": "1"}, "IDLEWATT_SERVER_PROT; did you mean"),
        ({"server.port": "many"}, {}, "int expected"),
        ({"server.port": "70000"}, {}, "0 to 65535"),
        ({"server.port": 1.5}, {}, "int expected"),
        ({"server.port": True}, {}, "int expected"),
        ({"server.bind": 5}, {}, "str expected"),
        ({"agent.driver": "amd"}, {}, "allowed: nvml"),
    ],
)
def test_what_does_not_fit_refuses_to_start(
    flags: dict[str, object], environ: dict[str, str], words: str
) -> None:
    with pytest.raises(ConfigError, match=words):
        resolve(flags, environ)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("port = 1\n", "outside a"),
        ("[server\n", "cannot read configuration"),
        ("[server]\nprot = 1\n", "unknown setting 'server.prot' from file"),
    ],
)
def test_bad_files_refuse_to_start(tmp_path: Path, text: str, words: str) -> None:
    file = tmp_path / "bad.toml"
    file.write_text(text)
    with pytest.raises(ConfigError, match=words):
        resolve({}, {}, file)


def test_every_setting_is_documented() -> None:
    docs = Path(__file__).parents[2] / "docs"
    generated = runpy.run_path(str(docs / "make_configuration.py"))["page"]()
    assert (docs / "configuration.md").read_text("utf-8") == generated
    assert all(f"`{setting.name}`" in generated for setting in SETTINGS)
