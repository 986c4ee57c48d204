"""A small fleet with hand-made numbers in a DuckDB file that looks like the warehouse."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import duckdb
import pytest

from dashboard.models import ReadModels
from idlewatt.clock import VirtualClock, us_from_utc, utc_from_us
from idlewatt.columns import GPU_SAMPLE
from idlewatt.config import resolve
from warehouse.queries import sql_root

TABLES = (
    "hour_change",
    "analysis_run",
    "device_history",
    "node_history",
    "job",
    "allocation",
    "state_interval",
)
# In the order in which they need each other.
FROM_SQL = (
    "views/device",
    "views/node",
    "views/state_energy",
    "views/device_span",
    "macros/hours_back",
    "macros/window_from",
    "macros/window_to",
    "macros/analysed_until",
    "macros/expected_time",
    "macros/expected_hours",
    "macros/held_time",
    "macros/state_subjects",
    "macros/longest_runs",
    "macros/state_totals",
)
AS_OF = "2026-05-04 12:34:56"
AS_OF_US = us_from_utc(__import__("datetime").datetime.fromisoformat(AS_OF))


class FakeStore:
    """The part of the store that the web app sees, over tables of the same names."""

    def __init__(self) -> None:
        self.con = duckdb.connect()
        self.snapshots = 0
        columns = ", ".join(f"{column.name} {column.kind.sql}" for column in GPU_SAMPLE)
        self.con.execute(f"CREATE TABLE gpu_sample ({columns})")
        for path in sorted((sql_root() / "migrations").glob("*.sql")):
            if path.stem[5:] in TABLES:
                self.con.execute(path.read_text("utf-8"))
        for name in FROM_SQL:
            self.con.execute((sql_root() / f"{name}.sql").read_text("utf-8"))

    @contextmanager
    def snapshot(self) -> Iterator[duckdb.DuckDBPyConnection]:
        self.snapshots += 1
        cursor = self.con.cursor()
        cursor.execute("BEGIN TRANSACTION READ ONLY")
        try:
            yield cursor
        finally:
            cursor.close()

    def count_hours(self) -> None:
        """Fill `hour_change` from the samples, as ingest does."""
        self.con.execute(
            "INSERT OR REPLACE INTO hour_change SELECT date_trunc('hour', ts_utc), "
            "(SELECT coalesce(max(change_seq), 0) FROM hour_change) + 1, count(*) "
            "FROM gpu_sample GROUP BY 1"
        )


FLEET = f"""
INSERT INTO node_history
SELECT printf('node-%02d', n), TIMESTAMP '{AS_OF}' - INTERVAL 30 HOUR,
       printf('gpu%02d.example', n), printf('R%02d', n // 3 + 1), 'alpha', '0.1.0'
FROM range(6) t(n);
INSERT INTO device_history BY NAME
SELECT printf('GPU-%02d-%d', n, g) AS gpu_uuid, printf('node-%02d', n) AS node_id,
       TIMESTAMP '{AS_OF}' - INTERVAL 30 HOUR AS valid_from_utc,
       'NVIDIA H100 80GB HBM3' AS model, g AS gpu_index, 700000 AS power_limit_default_mw
FROM range(6) t(n), range(8) u(g);
INSERT INTO job BY NAME VALUES
""".replace("INSERT INTO job BY NAME VALUES\n", "")

JOBS = f"""
INSERT INTO job (job_key, cluster, raw_id, attempt, user_name, job_name, job_class, start_utc)
VALUES
 ('alpha:101:0','alpha','101',0,'user-01','llm-pretrain','training',
  TIMESTAMP '{AS_OF}' - INTERVAL 20 HOUR),
 ('alpha:102:0','alpha','102',0,'user-02','notebook <b>x</b>','interactive',
  TIMESTAMP '{AS_OF}' - INTERVAL 3 HOUR),
 ('alpha:103:0','alpha','103',0,'user-03','render-batch','batch',
  TIMESTAMP '{AS_OF}' - INTERVAL 50 MINUTE),
 ('alpha:104:0','alpha','104',0,'user-04','chat-serving','serving',
  TIMESTAMP '{AS_OF}' - INTERVAL 25 HOUR);
INSERT INTO allocation
SELECT printf('GPU-%02d-%d', n, g),
       CASE WHEN n < 4 AND NOT (n = 2 AND g >= 4) THEN TIMESTAMP '2026-05-04 10:00:00'
            ELSE TIMESTAMP '{AS_OF}' - INTERVAL 50 MINUTE END, NULL,
       CASE WHEN n < 2 THEN 'alpha:101:0' WHEN n = 2 AND g < 4 THEN 'alpha:102:0'
            WHEN n = 2 THEN 'alpha:103:0' ELSE 'alpha:104:0' END,
       1.0, 'exclusive', 'scheduler', 1.0
FROM range(4) t(n), range(8) u(g);
"""

# Watts: training and node-05 work at 600 and 500, notebook waits at 120, the rest is empty at 70;
# serving works at 400 in even minutes and waits at 130 in odd ones.
SAMPLES = """
INSERT INTO gpu_sample BY NAME
WITH base AS (
    SELECT ts_utc, n, g, epoch(ts_utc)::BIGINT AS s,
        CASE WHEN n < 2 OR n = 5 THEN 'work'
             WHEN n = 2 AND g < 4 THEN 'wait'
             WHEN n = 3 THEN CASE WHEN minute(ts_utc) % 2 = 0 THEN 'work' ELSE 'wait' END
             ELSE 'empty' END AS doing
    FROM range(TIMESTAMP '{as_of}' - INTERVAL {hours} HOUR + INTERVAL 1 SECOND,
               TIMESTAMP '{as_of}' + INTERVAL 1 SECOND, INTERVAL 1 SECOND) r(ts_utc),
         range(6) t(n), range(8) u(g)
    WHERE NOT (n = 5 AND g >= 4 AND ts_utc > TIMESTAMP '{as_of}' - INTERVAL 4 MINUTE)
      AND NOT (n >= 3 AND ts_utc BETWEEN TIMESTAMP '2026-05-04 12:10:00'
                                     AND TIMESTAMP '2026-05-04 12:13:59')
)
SELECT ts_utc, 1000 AS obs_ms, printf('node-%02d', n) AS node_id,
    printf('GPU-%02d-%d', n, g) AS gpu_uuid, 1::BIGINT AS epoch,
    (CASE WHEN doing = 'work' AND n < 2 THEN 600000 + CASE WHEN {wave} THEN
                (60000 * sin(s / 90.0) - 140000 * (s % 300 < 14)::INT)::INT ELSE 0 END
          WHEN doing = 'work' AND n = 5 THEN 500000
          WHEN doing = 'work' THEN 400000
          WHEN doing = 'wait' AND n = 2 THEN 120000
          WHEN doing = 'wait' THEN 130000 ELSE 70000 END
     + CASE WHEN ts_utc = TIMESTAMP '2026-05-04 12:06:07' AND n < 2 THEN 90000 ELSE 0 END)
        AS power_avg_mw,
    700000 AS power_limit_mw, doing <> 'empty' AS resident,
    CASE WHEN doing = 'work' THEN 0.8 ELSE 0.0 END AS sm_active,
    CASE WHEN doing = 'work' THEN 0.4 ELSE 0.001 END AS dram_active
FROM base;
"""

INTERVAL = (
    "INSERT INTO state_interval BY NAME SELECT gpu_uuid, node_id, hour_utc, first_ts_utc, "
    "last_ts_utc, state, 'counters' AS basis, NULL AS reason, job_key, obs_ms // 1000 AS samples, "
    "obs_ms, run_ms, energy_uj AS energy_counter_uj, 0 AS energy_power_avg_uj, "
    "0 AS energy_power_inst_uj, obs_ms AS energy_obs_ms FROM (SELECT ?::VARCHAR AS gpu_uuid, "
    "?::VARCHAR AS node_id, date_trunc('hour', ?::TIMESTAMP) AS hour_utc, "
    "?::TIMESTAMP AS first_ts_utc, ?::TIMESTAMP AS last_ts_utc, ?::VARCHAR AS state, "
    "?::VARCHAR AS job_key, ?::BIGINT AS obs_ms, ?::BIGINT AS run_ms, ?::BIGINT AS energy_uj)"
)


def add_interval(store: FakeStore, *, gpu: str, last: str, state: str, **more: Any) -> None:
    """Add one interval; `seconds` long, `watts` high, ending at `last`."""
    seconds, watts = more["seconds"], more["watts"]
    end = __import__("datetime").datetime.fromisoformat(last)
    first = utc_from_us(us_from_utc(end) - (seconds - 1) * 1_000_000).replace(tzinfo=None)
    store.con.execute(
        INTERVAL,
        [
            gpu,
            "node-" + gpu[4:6],
            end,
            first,
            end,
            state,
            more.get("job"),
            seconds * 1_000,
            more.get("run_s", seconds) * 1_000,
            watts * seconds * 1_000_000,
        ],
    )


def fill(store: FakeStore, hours: int = 2, wave: bool = False) -> None:
    """Fill the fleet: 48 GPUs on 6 nodes in 2 racks, with a hole and four silent GPUs."""
    store.con.execute(FLEET)
    store.con.execute(JOBS)
    store.con.execute(SAMPLES.format(as_of=AS_OF, hours=hours, wave=str(wave).upper()))
    store.count_hours()
    store.con.execute(
        "INSERT INTO analysis_run SELECT 'power_states', hour_utc, "
        "change_seq - (hour_utc = TIMESTAMP '2026-05-04 12:00:00')::INT, "
        "TIMESTAMP '2026-05-04 12:34:50', '', 1 FROM hour_change"
    )
    for g in range(4):
        gpu, other = f"GPU-02-{g}", f"GPU-02-{g + 4}"
        add_interval(
            store,
            gpu=gpu,
            last="2026-05-04 12:34:40",
            state="execution_idle",
            job="alpha:102:0",
            seconds=2081,
            run_s=9281,
            watts=120,
        )
        add_interval(
            store,
            gpu=gpu,
            last="2026-05-04 11:59:59",
            state="execution_idle",
            job="alpha:102:0",
            seconds=3600,
            run_s=7200,
            watts=120,
        )
        add_interval(
            store,
            gpu=other,
            last="2026-05-04 12:34:40",
            state="deep_idle",
            job="alpha:103:0",
            seconds=2081,
            watts=70,
        )
    for g in range(8):
        gpu = f"GPU-03-{g}"
        for hour, long in ((10, 1500), (11, 1800)):
            add_interval(
                store,
                gpu=gpu,
                last=f"2026-05-04 {hour}:59:59",
                state="execution_idle",
                job="alpha:104:0",
                seconds=long,
                watts=130,
            )
            add_interval(
                store,
                gpu=gpu,
                last=f"2026-05-04 {hour}:29:59",
                state="active",
                job="alpha:104:0",
                seconds=1800,
                watts=400,
            )
        for node in (0, 1):
            add_interval(
                store,
                gpu=f"GPU-{node:02d}-{g}",
                last="2026-05-04 11:59:59",
                state="active",
                job="alpha:101:0",
                seconds=3600,
                watts=600,
            )
    add_interval(
        store,
        gpu="GPU-04-0",
        last="2026-05-04 12:20:00",
        state="execution_idle",
        seconds=1201,
        watts=90,
    )


@pytest.fixture
def store() -> FakeStore:
    return FakeStore()


@pytest.fixture(scope="session")
def filled() -> FakeStore:
    store = FakeStore()
    fill(store)
    return store


def models_of(store: FakeStore, late_s: float = 1.0) -> tuple[ReadModels, VirtualClock]:
    clock = VirtualClock(AS_OF_US + round(late_s * 1_000_000))
    return ReadModels(store, clock, resolve(environ={})), clock


@pytest.fixture(scope="session")
def make_models() -> Callable[..., tuple[ReadModels, VirtualClock]]:
    return models_of


@pytest.fixture(scope="session")
def page_url(filled: FakeStore) -> Iterator[str]:
    """The web app over the filled store on a loopback port."""
    with serving(models_of(filled)[0]) as url:
        yield url


@contextmanager
def serving(models: ReadModels) -> Iterator[str]:
    from werkzeug.serving import make_server

    from dashboard.app import build

    app = build(models, resolve(environ={}))
    server = make_server("127.0.0.1", 0, app.server, threaded=True)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.fixture(scope="session")
def serve_models() -> Callable[[ReadModels], Any]:
    return serving


@pytest.fixture(scope="session")
def chromium() -> Path:
    for path in ("/usr/bin/chromium", "/usr/bin/chromium-browser", "/usr/bin/google-chrome"):
        if Path(path).exists():
            return Path(path)
    pytest.skip("no Chromium on this machine: install Debian's chromium for the browser tests")


FLAGS = [
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
]


@pytest.fixture(scope="module")
def browser(chromium: Path) -> Iterator[Any]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as driver:
        found = driver.chromium.launch(executable_path=str(chromium), args=FLAGS)
        yield found
        found.close()


class Watched:
    """A page whose console errors, failures and requests are kept."""

    def __init__(self, browser: Any, **context: Any) -> None:
        wanted = {"viewport": {"width": 1280, "height": 800}, "timezone_id": "America/New_York"}
        self.context = browser.new_context(**(wanted | context))
        self.page = self.context.new_page()
        self.page.set_default_timeout(15_000)
        self.errors: list[str] = []
        self.hosts: set[str] = set()
        self.page.on("console", self._console)
        self.page.on("pageerror", lambda error: self.errors.append(str(error)))
        self.page.on("request", lambda asked: self.hosts.add(asked.url.split("/")[2]))

    def _console(self, message: Any) -> None:
        if message.type in ("error", "warning"):
            self.errors.append(message.text)

    def serious(self) -> list[str]:
        """Return axe's serious and critical findings, one line each."""
        import axe_playwright_python

        axe = Path(axe_playwright_python.__file__).parent / "axe.min.js"
        # Debugger evaluation is not under the page's content policy: nothing is relaxed for it.
        self.page.evaluate(axe.read_text("utf-8"))
        found = self.page.evaluate("axe.run(document, {resultTypes: ['violations']})")
        return [
            f"{one['id']}: {node['target']} {node.get('failureSummary', '')}"
            for one in found["violations"]
            if one["impact"] in ("serious", "critical")
            for node in one["nodes"]
        ]

    def __enter__(self) -> Watched:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.context.close()


@pytest.fixture
def watch(browser: Any) -> Callable[..., Watched]:
    """Open a page in a fresh browser context that lives in New York."""
    return lambda **context: Watched(browser, **context)
