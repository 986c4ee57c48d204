"""The analysis as people call it: schedule, HTTP route, command line."""

import asyncio
import json
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from analysis import http, schedule
from analysis.report import power_states
from analysis.states_model import Summary
from analysis.tables import stamp
from idlewatt.cli import main
from idlewatt.clock import VirtualClock, iso_utc
from idlewatt.config import resolve
from idlewatt.errors import UnavailableError, UsageError
from idlewatt.units import US_PER_HOUR
from warehouse.api import build_app
from warehouse.http import HttpError, Request
from warehouse.ingest import Ingestor
from warehouse.serving import serve
from warehouse.store import Store
from warehouse.tokens import Tokens

HOUR_US = 491_000 * US_PER_HOUR
S = 1_000_000


@pytest.fixture
def folder(tmp_path):
    """Return a data folder with 40 low seconds and 10 active ones around an hour's border."""
    path = tmp_path / "data"
    with Store.open(path, resolve(environ={}), VirtualClock(HOUR_US)) as store:
        store.write(lambda con: fill(store, con))
    return path


def fill(store, con):
    for hour_us, first, last in ((HOUR_US - US_PER_HOUR, -25, -1), (HOUR_US, 0, 24)):
        table = store.layout.open_table(con, hour_us).name
        con.executemany(
            f"INSERT INTO {table} (ts_utc, obs_ms, node_id, gpu_uuid, epoch, resident, sm_active, "
            "energy_uj, energy_source) VALUES (?, 1000, 'n', 'GPU-0', 1, true, ?, ?, 'counter')",
            [
                [stamp(HOUR_US + second * S), 0.0 if second < 15 else 0.9, 360_000_000]
                for second in range(first, last + 1)
            ],
        )
        con.execute(
            "INSERT INTO hour_change VALUES (?, ?, 25)",
            [stamp(hour_us), store.layout.next_change()],
        )


def asked(first=-30, last=30, **more):
    return {"from_us": HOUR_US + first * S, "to_us": HOUR_US + last * S, **more}


def opened(folder):
    settings, clock = resolve(environ={}), VirtualClock(HOUR_US)
    return Store.open(folder, settings, clock), settings, clock


def intervals(store):
    with store.snapshot() as cur:
        return cur.execute("SELECT count(*) FROM state_interval").fetchall()[0][0]


def test_report_gives_states_shares_and_coverage(folder):
    store, settings, clock = opened(folder)
    with store:
        answer = power_states(store, settings, clock, asked())
        assert answer["stored"]
        assert intervals(store) == 3
    seconds = {item["state"]: item["seconds"] for item in answer["states"]}
    assert seconds == {"active": 10, "execution_idle": 40, "deep_idle": 0, "unknown": 0}
    idle = answer["states"][1]
    assert idle["energy_kwh"] == pytest.approx(40 * 360 / 3.6e6)
    assert idle["energy_kwh_by_source"]["power_avg"] is None
    assert answer["states"][2]["energy_kwh"] is None
    assert answer["in_execution"] == {"time_share": 0.8, "energy_share": 0.8}
    assert answer["coverage"] == pytest.approx(50 / 60)


@pytest.mark.parametrize("more", [{"dry_run": True}, {"min_interval_s": 41}])
def test_a_dry_run_or_another_length_stores_nothing(folder, more):
    store, settings, clock = opened(folder)
    with store:
        answer = power_states(store, settings, clock, asked(**more))
        assert not answer["stored"]
        assert intervals(store) == 0
    expected = 0 if "min_interval_s" in more else 40
    assert answer["states"][1]["seconds"] == expected


def test_a_run_that_goes_on_outside_the_period_keeps_its_length(folder):
    store, settings, clock = opened(folder)
    with store:
        answer = power_states(store, settings, clock, asked(10, 18, dry_run=True))
    assert answer["states"][1]["seconds"] == 5
    assert [item["execution_idle_s"] for item in answer["by_min_interval"]] == [5, 5, 5]


def request(body, headers=()):
    async def receive():
        return {"type": "http.request", "body": json.dumps(body).encode()}

    return Request("POST", http.PATH, {"host": "localhost", **dict(headers)}, "", receive)


def body(**changes):
    period = {"from_utc": iso_utc(HOUR_US - 30 * S), "to_utc": iso_utc(HOUR_US + 30 * S)}
    return {"analysis": "power_states", **period, **changes}


def test_the_route_answers_and_refuses(folder):
    store, settings, clock = opened(folder)
    with store:
        (route,) = http.routes(store, settings, clock)
        answer = asyncio.run(route.handler(request(body(dry_run=True))))
        assert answer.status == 200
        assert json.loads(answer.body)["states"][1]["seconds"] == 40
        for wrong in (
            body(analysis="x"),
            body(min_interval_s=0),
            body(other=1),
            body(from_utc="soon"),
            body(to_utc=iso_utc(HOUR_US - 60 * S)),
        ):
            with pytest.raises(UsageError):
                asyncio.run(route.handler(request(wrong)))
        with pytest.raises(HttpError, match="another site"):
            asyncio.run(route.handler(request(body(), {"sec-fetch-site": "cross-site"})))


def test_the_route_does_one_analysis_at_a_time(folder, monkeypatch):
    store, settings, clock = opened(folder)
    go = threading.Event()
    monkeypatch.setattr(http, "power_states", lambda *_args: go.wait(10) and {})

    async def two():
        (route,) = http.routes(store, settings, clock)
        first = asyncio.create_task(route.handler(request(body())))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        with pytest.raises(UnavailableError, match="runs already"):
            await route.handler(request(body()))
        go.set()
        return await first

    with store:
        assert asyncio.run(two()).status == 200


def test_command_line_on_a_folder(folder, capsys):
    period = ["--from", iso_utc(HOUR_US - 30 * S), "--to", iso_utc(HOUR_US + 30 * S)]
    verb = ["analyze", "power-states", "--data-dir", str(folder), *period]
    assert main([*verb, "--json"]) == 0
    captured = capsys.readouterr()
    assert json.loads(captured.out)["in_execution"]["time_share"] == 0.8
    assert "hour 2 of 2" in captured.err
    assert main([*verb, "--dry-run"]) == 0
    text = capsys.readouterr().out
    assert "80.00 % of time" in text
    assert "coverage 83.33 %" in text
    assert "nothing was stored" in text


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--from", "yesterday"], "is no time"),
        (["--from", "1h", "--to", "2h"], "period is empty"),
        (["--min-interval-s", "0"], "at least 1"),
        (["--data-dir", "nowhere"], "no warehouse"),
        (["--url", "ftp://127.0.0.1"], "no http address"),
    ],
)
def test_command_line_refuses_in_one_sentence(words, sentence, capsys, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    assert main(["analyze", "power-states", *words]) == 2
    error = capsys.readouterr().err
    assert sentence in error
    assert "Traceback" not in error
    assert not (tmp_path / "nowhere").exists()


@pytest.fixture
def server():
    """Return a small server that keeps the bodies and answers with what it is told."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            size = int(self.headers["content-length"])
            self.server.bodies.append(json.loads(self.rfile.read(size)))
            status, answer = self.server.answer
            self.send_response(status)
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, *_args):
            pass

    found = HTTPServer(("127.0.0.1", 0), Handler)
    found.bodies, found.answer = [], (200, b"{}")
    thread = threading.Thread(target=found.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield found
    found.shutdown()
    thread.join()
    found.server_close()


def test_command_line_asks_the_server(server, capsys):
    url = f"http://127.0.0.1:{server.server_port}"
    words = ["analyze", "power-states", "--url", url, "--from", "2026-02-04", "--json"]
    server.answer = (200, b'{"gpus": 3}')
    assert main([*words, "--to", "2026-02-04T13:00", "--min-interval-s", "10"]) == 0
    assert json.loads(capsys.readouterr().out) == {"gpus": 3}
    assert server.bodies == [
        {
            "analysis": "power_states",
            "from_utc": "2026-02-04T00:00:00Z",
            "to_utc": "2026-02-04T13:00:00Z",
            "min_interval_s": 10,
            "dry_run": False,
        }
    ]
    server.answer = (400, b'{"error": "the period is over 400 days"}')
    assert main(words) == 2
    assert "over 400 days" in capsys.readouterr().err
    server.answer = (500, b"<html>")
    assert main(words) == 1
    assert "answered 500" in capsys.readouterr().err


@pytest.mark.integration
def test_command_line_and_the_real_server(folder, capsys):
    settings = resolve({"server.port": 0}, environ={})
    clock, stop, ready, urls = VirtualClock(HOUR_US), threading.Event(), threading.Event(), []

    def on_ready(url):
        urls.append(url)
        ready.set()

    with Store.open(folder, settings, clock) as store:
        ingestor = Ingestor(store)
        app = build_app(
            store,
            ingestor,
            Tokens(folder / "tokens.toml"),
            settings,
            clock,
            routes=http.routes(store, settings, clock),
        )
        server = threading.Thread(
            target=serve, args=(app, settings), kwargs={"on_ready": on_ready, "stop": stop}
        )
        server.start()
        try:
            assert ready.wait(30)
            words = ["analyze", "power-states", "--url", urls[0], "--json"]
            period = ["--from", iso_utc(HOUR_US - 30 * S), "--to", iso_utc(HOUR_US + 30 * S)]
            assert main([*words, *period]) == 0
            assert json.loads(capsys.readouterr().out)["in_execution"]["time_share"] == 0.8
            assert intervals(store) == 3
            assert main([*words, "--from", "2020-01-01"]) == 2
            assert "over 400 days" in capsys.readouterr().err
        finally:
            stop.set()
            server.join()
            ingestor.close()


def test_command_line_says_when_no_server_answers(server, capsys):
    port = server.server_port
    server.server_close()
    assert main(["analyze", "power-states", "--url", f"http://127.0.0.1:{port}"]) == 5
    assert "is `idlewatt serve` running?" in capsys.readouterr().err


def test_schedule_runs_in_the_background_and_ends(folder):
    store, settings, clock = opened(folder)
    done = threading.Event()

    class Watched(schedule.Schedule):
        def run_once(self):
            super().run_once()
            done.set()

    with store:
        running = Watched(store, settings, clock)
        running.start()
        assert done.wait(20)
        running.shutdown()
        running.shutdown()
        assert intervals(store) == 3
    assert running.counts.hours == 2
    assert running.health() is None
    assert "idlewatt_analysis_samples_total 50" in running.metrics()


def test_schedule_survives_errors_and_tells_of_them(folder, caplog):
    store, settings, clock = opened(folder)
    outcomes = [RuntimeError("torn"), RuntimeError("torn"), RuntimeError("torn"), Summary()]

    def refresh(*_args, **_more):
        outcome = outcomes.pop(0)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    with store:
        running = schedule.Schedule(store, settings, clock, refresh)
        healths = []
        for _ in range(4):
            running.run_once()
            healths.append(running.health())
    assert healths[:2] == [None, None]
    assert "failed 3 times in a row (RuntimeError: torn)" in healths[2]
    assert healths[3] is None
    assert running.counts.failures == 3
    assert "idlewatt_analysis_failures_total 3" in running.metrics()
    assert "run failed" in caplog.text
