"""The real server in this process, and `idlewatt sql` against it."""

from __future__ import annotations

import contextlib
import http.server
import io
import json
import re
import shlex
import socket
import sys
import threading
import time
import urllib.request
from pathlib import Path

import pyarrow as pa
import pytest

from idlewatt.cli import main
from idlewatt.cli.sql import Client
from idlewatt.errors import ConfigError, UnavailableError
from warehouse.api import build_app
from warehouse.serving import check_bind, pick_port, serve
from warehouse.tokens import Tokens

pytestmark = pytest.mark.integration


@pytest.fixture(scope="module")
def served(tmp_path_factory, make_bench):
    """A server with two samples; yields its URL and its bench."""
    folder = tmp_path_factory.mktemp("served")
    with contextlib.closing(make_bench(folder, server__port=0)) as bench:
        kit = sys.modules[type(bench).__module__].Kit
        tokens = Tokens(folder / "tokens.toml")
        token = tokens.create("n1")
        app = build_app(bench.store, bench.ingestor, tokens, bench.settings, bench.clock)
        ready, stop, urls = threading.Event(), threading.Event(), []

        def on_ready(url):
            urls.append(url)
            ready.set()

        thread = threading.Thread(
            target=serve, args=(app, bench.settings), kwargs={"on_ready": on_ready, "stop": stop}
        )
        thread.start()
        assert ready.wait(20)
        for seq in (1, 2):
            request = urllib.request.Request(
                f"{urls[0]}/api/v1/ingest",
                kit.batch(seq, [kit.sample(seq, sm_active=0.25)]),
                {"Authorization": f"Bearer {token}"},
            )
            with urllib.request.urlopen(request, timeout=10) as answer:
                assert json.load(answer)["acked"] == seq
        yield urls[0], bench
        stop.set()
        thread.join(20)
        assert not thread.is_alive()


def run(capsys, *words):
    code = main(["sql", *words])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def test_table_csv_and_json(served, capsys):
    url, _ = served
    sql = "SELECT ts_utc, sm_active, dt_ms FROM gpu_sample ORDER BY ts_utc"
    code, out, _ = run(capsys, "--url", url, "-c", sql, "--format", "csv")
    assert (code, out.splitlines()) == (
        0,
        ["ts_utc,sm_active,dt_ms", "2026-03-01T10:00:01Z,0.25,", "2026-03-01T10:00:02Z,0.25,"],
    )
    code, out, _ = run(capsys, "--url", url, "-c", sql)
    assert out.splitlines()[2].split() == ["2026-03-01T10:00:01Z", "0.25", "NULL"]
    code, out, _ = run(capsys, "--url", url, "-c", sql, "--json")
    assert json.loads(out)["row_count"] == 2


def test_arrow_and_a_statement_from_a_file(served, capsys, tmp_path):
    url, _ = served
    file, answer = tmp_path / "q.sql", tmp_path / "a.arrow"
    file.write_text("SELECT count(*) AS n FROM gpu_sample;\n")
    words = ("--url", url, "-f", str(file), "--format", "arrow", "-o", str(answer))
    assert run(capsys, *words)[0] == 0
    table = pa.ipc.open_stream(io.BytesIO(answer.read_bytes())).read_all()
    assert table.to_pylist() == [{"n": 2}]


def test_named_query_with_a_parameter(served, capsys):
    url, _ = served
    code, out, _ = run(
        capsys, "--url", url, "fleet_power_by_minute", "--param", "minutes=5", "--format", "csv"
    )
    assert code == 0
    assert out.splitlines()[1].startswith("2026-03-01T10:00:00Z,100.0,100.0,100.0,1,2.0")


def test_refusals_are_one_sentence_and_exit_1(served, capsys):
    url, bench = served
    for sql in ("DROP VIEW gpu_sample", "SELECT nonsense", "SELECT 1; SELECT 2"):
        code, out, err = run(capsys, "--url", url, "-c", sql)
        assert (code, out, err.count("\n")) == (1, "", 1)
    code, _, err = run(capsys, "--url", url, "-c", "FROM range(9)", "--max-rows", "2")
    assert code == 0
    assert "cut after 2 rows" in err
    assert bench.count() == 2


def test_wrong_usage_is_exit_2(served, capsys):
    del served  # only that it is up
    for words in (
        ("-c", "SELECT 1", "gaps"),
        ("describe",),
        ("-f", "/nonexistent.sql"),
        ("gaps", "--param", "x"),
        ("SELECT 1",),
        ("-c", "SELECT 1", "--set", "query.url=ftp://x"),
    ):
        assert run(capsys, *words)[0] == 2, words


def test_no_server_is_one_sentence_and_exit_5(capsys):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{free.getsockname()[1]}"
        code, out, err = run(capsys, "--url", url, "-c", "SELECT 1")
    assert (code, out, err.count("\n")) == (5, "", 1)
    assert "no server answers" in err


def test_list_and_describe_need_no_server(capsys):
    code, out, _ = run(capsys, "list")
    assert code == 0
    assert "fleet_power_by_minute" in out
    code, out, _ = run(capsys, "describe", "gpu_seconds")
    assert "required" in out
    code, out, _ = run(capsys, "list", "--json")
    assert {query["name"] for query in json.loads(out)} >= {"gaps", "inventory"}


def test_views_and_tables_are_asked_and_described_by_name(served, capsys):
    url, _ = served
    code, out, _ = run(capsys, "--url", url, "energy_by_state", "--format", "csv")
    assert (code, out.splitlines()[0][:11]) == (0, "state,gpus,")
    code, out, _ = run(capsys, "--url", url, "allocation", "--json")
    assert (code, json.loads(out)["row_count"]) == (0, 0)
    code, out, _ = run(capsys, "list")
    kinds = {line.split()[1]: line.split()[0] for line in out.splitlines()[2:]}
    assert (kinds["energy_by_state"], kinds["gap"], kinds["gaps"]) == ("view", "table", "query")
    assert "live_table" not in kinds
    code, out, _ = run(capsys, "--url", url, "describe", "gpu_sample")
    rows = [line.split() for line in out.splitlines()]
    assert ["power_avg_mw", "INTEGER", "mW"] in rows
    assert ["pcie_tx_bytes_s", "BIGINT", "B/s"] in rows
    assert ["ts_utc", "TIMESTAMP", "UTC"] in rows
    code, out, _ = run(capsys, "--url", url, "describe", "energy_by_state", "--json")
    told = json.loads(out)
    assert {"name": "seen_s", "type": "DOUBLE", "unit": "s"} in told["columns"]
    assert told["kind"] == "view"
    assert "energy_coverage" in told["units"]
    for words in (("describe", "energy_by_stat"), ("energy_by_stat",)):
        code, _, err = run(capsys, "--url", url, *words)
        assert (code, err.count("\n")) == (1, 1)
        assert "did you mean energy_by_state" in err
    code, _, err = run(capsys, "--url", url, "gap", "--param", "hours=1")
    assert code == 1
    assert "table gap takes no parameters" in err


def test_describe_without_a_server_says_where_columns_come_from(capsys):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{free.getsockname()[1]}"
        code, out, _ = run(capsys, "--url", url, "describe", "gap")
    assert code == 0
    assert "grain: one row per hole" in out
    assert "where a server answers" in out


def test_every_sql_command_of_the_readme_works_as_it_stands(served, capsys, monkeypatch):
    url, _ = served
    readme = (Path(__file__).parents[2] / "README.md").read_text("utf-8")
    commands = re.findall(r"^\.venv/bin/idlewatt (sql .*)$", readme, re.MULTILINE)
    assert len(commands) >= 4
    monkeypatch.setenv("IDLEWATT_QUERY_URL", url)
    for command in commands:
        code = main(shlex.split(command))
        captured = capsys.readouterr()
        assert (code, captured.err) == (0, ""), command
        assert captured.out.count("\n") >= 1, command


def test_a_busy_server_is_told_apart_from_a_refusal():
    class Busy(http.server.BaseHTTPRequestHandler):
        def do_POST(self):
            self.rfile.read(int(self.headers["content-length"]))
            self.send_response(429)
            self.send_header("Retry-After", "2")
            self.end_headers()
            self.wfile.write(b'{"error": "too many queries wait already"}')

        def log_message(self, *_words):
            pass

    with http.server.HTTPServer(("127.0.0.1", 0), Busy) as server:
        thread = threading.Thread(target=server.handle_request)
        thread.start()
        with pytest.raises(UnavailableError, match="too many queries") as caught:
            Client(f"http://127.0.0.1:{server.server_port}", 5).ask({"sql": "SELECT 1"}, "json")
        thread.join(10)
    assert (caught.value.status, caught.value.retry_after_s) == (429, 2)


def test_health_over_http_is_red_for_old_data(served):
    url, _ = served
    with pytest.raises(urllib.error.HTTPError) as caught:
        urllib.request.urlopen(f"{url}/healthz", timeout=10)
    with caught.value as answer:
        assert answer.code == 503
        assert "old" in json.load(answer)["problems"][0]


def test_slow_query_does_not_hold_up_ingest(served, kit):
    url, bench = served
    slow = json.dumps(
        {"sql": "SELECT sum(a.range * b.range % 7) FROM range(1000000) a, range(1000000) b",
         "timeout_s": 1.5}
    ).encode()  # fmt: skip
    request = urllib.request.Request(f"{url}/api/v1/query", slow)
    errors = []

    def ask():
        try:
            urllib.request.urlopen(request, timeout=20)
        except urllib.error.HTTPError as exc:
            with exc:
                errors.append((exc.code, json.load(exc)["error"]))

    thread = threading.Thread(target=ask)
    thread.start()
    time.sleep(0.2)
    started = time.monotonic()
    assert bench.send(kit.batch(1, epoch=9)).acked == 1
    assert time.monotonic() - started < 1.2
    thread.join()
    assert errors[0][0] == 400
    assert "stopped after 1.5 s" in errors[0][1]


def test_other_addresses_need_an_explicit_word(kit):
    with pytest.raises(ConfigError, match="insecure_bind"):
        check_bind(kit.settings(server__bind="0.0.0.0"))
    check_bind(kit.settings(server__bind="0.0.0.0", server__insecure_bind=True))
    check_bind(kit.settings(server__bind="::1"))


def test_taken_port_is_one_sentence():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with pytest.raises(ConfigError, match=r"cannot listen.*choose another server\.port"):
            pick_port("127.0.0.1", taken.getsockname()[1])
