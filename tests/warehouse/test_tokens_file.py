"""Node tokens: made, kept private, read again when the file changes."""

from __future__ import annotations

import os
import stat

import pytest

from idlewatt.cli import main
from idlewatt.errors import ConfigError, UsageError
from warehouse.tokens import Tokens


def test_token_is_found_by_a_server_that_runs_already(tmp_path):
    file = tmp_path / "sub" / "tokens.toml"
    server = Tokens(file)
    assert server.node_of("iw_anything") is None
    token = Tokens(file).create("n1")
    assert server.node_of(token) == "n1"
    assert server.node_of(token + "x") is None
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_replaced_token_dies_and_the_others_live(tmp_path):
    tokens = Tokens(tmp_path / "tokens.toml")
    first, other = tokens.create("n1"), tokens.create("n2")
    with pytest.raises(UsageError, match="already"):
        tokens.create("n1")
    second = tokens.create("n1", replace=True)
    assert [tokens.node_of(token) for token in (first, second, other)] == [None, "n1", "n2"]


def test_damaged_file_refuses_to_start_but_does_not_stop_a_server(tmp_path):
    file = tmp_path / "tokens.toml"
    server = Tokens(file)
    token = server.create("n1")
    file.write_text("[nodes\n")
    os.utime(file, ns=(1, 1))
    assert server.node_of(token) == "n1"
    with pytest.raises(ConfigError, match=r"tokens\.toml cannot be read"):
        Tokens(file)


@pytest.mark.parametrize(
    "text",
    [
        '[nodes]\na = "short"\n',
        "[nodes]\na = 5\n",
        '[other]\na = "iw_0123456789abcdef"\n',
        '[nodes]\na = "iw_0123456789abcdef"\nb = "iw_0123456789abcdef"\n',
        '[nodes]\n"../x" = "iw_0123456789abcdef"\n',
    ],
)
def test_unusable_tokens_are_refused(tmp_path, text):
    file = tmp_path / "tokens.toml"
    file.write_text(text)
    with pytest.raises(ConfigError):
        Tokens(file)


@pytest.mark.parametrize("node", ["", "a b", "../x", "n" * 129, '"', "\n"])
def test_unusable_node_ids_are_refused(tmp_path, node):
    with pytest.raises(UsageError):
        Tokens(tmp_path / "tokens.toml").create(node)


def test_command_line_makes_and_lists_without_showing_secrets(tmp_path, capsys):
    where = ["--data-dir", str(tmp_path)]
    assert main(["token", "create", "n1", *where]) == 0
    token = capsys.readouterr().out.strip()
    assert Tokens(tmp_path / "tokens.toml").node_of(token) == "n1"
    assert main(["token", "list", *where]) == 0
    listed = capsys.readouterr().out
    assert "n1" in listed
    assert token not in listed
    assert main(["token", "create", "n1", *where]) == 2
    assert "already" in capsys.readouterr().err
    assert main(["token", "create", *where]) == 2
