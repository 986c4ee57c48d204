"""The command line's frame: lazy verbs, errors in one sentence, exit codes."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from idlewatt.cli import VERBS, main, missing_extra, output
from idlewatt.errors import MissingExtraError


def test_version_and_help_do_not_import_heavy_packages() -> None:
    code = (
        "import sys, contextlib, io\n"
        "from idlewatt.cli import main\n"
        "for words in (['--version'], ['--help'], ['config', 'show'], ['agent', '--help']):\n"
        "    with contextlib.suppress(SystemExit), contextlib.redirect_stdout(io.StringIO()):\n"
        "        main(words)\n"
        "heavy = {'numpy', 'duckdb', 'polars', 'dash', 'plotly', 'pyarrow'} & set(sys.modules)\n"
        "print(sorted(heavy))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize("verb", sorted(VERBS))
def test_every_verb_has_help_with_examples(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        main([verb, "--help"])
    assert stop.value.code == 0
    assert f"idlewatt {verb}" in capsys.readouterr().out.split("example", 1)[1]


def test_config_show_prints_origin_and_hides_secrets(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("IDLEWATT_AGENT_TOKEN", "s3cret")
    assert main(["config", "show", "--json", "--set", "server.port=81"]) == 0
    text = capsys.readouterr().out
    rows = {row["name"]: row for row in json.loads(text)}
    assert rows["server.port"]["value"] == 81
    assert rows["server.port"]["origin"] == "command line"
    assert rows["agent.token"]["value"] == "***"
    assert "s3cret" not in text


def test_an_unknown_setting_is_one_sentence_and_exit_2(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["config", "show", "--set", "server.prot=1"]) == 2
    err = capsys.readouterr().err
    assert err.startswith("idlewatt: unknown setting 'server.prot'")
    assert err.count("\n") == 1


def test_a_missing_extra_names_itself() -> None:
    error = missing_extra("serve", ModuleNotFoundError("no", name="duckdb"))
    assert isinstance(error, MissingExtraError)
    assert "pip install 'idlewatt[server]'" in str(error)
    own = ModuleNotFoundError("no", name="warehouse.nothing")
    assert missing_extra("serve", own) is own


def test_table_output_aligns_numbers_right_and_shows_null() -> None:
    text = output.table(["gpu", "power_w"], [["a", 10.5], ["bbb", None], ["c\nd", 1234]])
    assert text.splitlines() == [
        "gpu   power_w",
        "────  ───────",
        "a        10.5",
        "bbb      NULL",
        "c\\nd     1234",
    ]
