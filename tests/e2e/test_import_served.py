"""A file imported into a running server: counted once, analysed, and never over an agent's rows."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
from harness import IDLEWATT, Server, clean_env, wait_until

from collector.shipper import post_batch
from idlewatt.columns import GPU_SAMPLE
from idlewatt.wire import Header, encode_batch, table_from_rows

pytestmark = pytest.mark.integration
NODE = "n17"
SECONDS = 120


def log() -> str:
    """Return two minutes of a GPU that computes for one and holds memory idly for the other."""
    lines = [
        "timestamp, uuid, name, power.draw [W], utilization.gpu [%], utilization.memory [%], "
        "memory.used [MiB], enforced.power.limit [W]"
    ]
    for second in range(SECONDS):
        work = second < 60
        lines.append(
            f"2026/07/14 08:0{second // 60}:{second % 60:02}.040, GPU-aaaa-1, NVIDIA H200, "
            f"{500 if work else 120}.00 W, {97 if work else 0} %, {40 if work else 0} %, "
            "9000 MiB, 700.00 W"
        )
    return "\n".join([*lines, ""])


METER = "ts_utc,power_w\n2026-07-14 08:00:00,2500\n2026-07-14 08:00:01,2600\n"


def run(server: Server, *words: str) -> dict:
    done = subprocess.run(
        [*IDLEWATT, "import", *words, "--json", "--server", server.url,
         "--token-file", str(server.root / "token"), "--node-id", NODE],
        capture_output=True, text=True, env=clean_env(), cwd=server.root, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def live_row(second: int) -> tuple:
    values = {
        "ts_utc": 1_784_016_000_000_000 + second * 1_000_000, "obs_ms": 1_000, "node_id": NODE,
        "gpu_uuid": "GPU-aaaa-1", "epoch": 1_784_000_000_000, "power_avg_mw": 1_000,
    }  # fmt: skip
    return tuple(values.get(column.name) for column in GPU_SAMPLE)


def test_import_twice_counts_once(tmp_path: Path) -> None:
    server = Server(tmp_path, settings={"analysis.every_s": "1"})
    server.start()
    try:
        token = server.token(NODE)
        (tmp_path / "token").write_text(token)
        (tmp_path / "log.csv").write_text(log())
        (tmp_path / "meter.csv").write_text(METER)
        batch = encode_batch(
            Header(1, NODE, 1_784_000_000_000, "live", 1),
            {"gpu_sample": table_from_rows(GPU_SAMPLE, [live_row(5)])},
        )
        assert post_batch(server.url, token, batch).ok

        first = run(server, "log.csv", "--zone", "UTC")
        again = run(server, "nvidia-smi", "log.csv", "--zone", "UTC")
        assert first["shipped"]["duplicates"] == 0
        assert again["shipped"]["duplicates"] == again["shipped"]["batches"] == 1
        assert again["shipped"]["epoch"] == first["shipped"]["epoch"]
        (row,) = server.sql(
            "SELECT count(*) AS n, sum(energy_uj) AS uj, "
            "count(*) FILTER (power_avg_mw = 1000) AS k "
            "FROM gpu_sample"
        )
        # The agent's own second stays the agent's.
        assert (row["n"], row["k"]) == (SECONDS, 1)
        assert int(row["uj"]) == (59 * 500 + 60 * 120) * 1_000_000

        for _ in range(2):
            run(server, "meter.csv")
        meter = server.sql("SELECT meter_id, power_mw, energy_uj FROM meter ORDER BY ts_utc")
        assert [m["power_mw"] for m in meter] == [2_500_000, 2_600_000]
        assert server.sql("SELECT model FROM device")[0]["model"] == "NVIDIA H200"

        def states() -> dict[str, float]:
            rows = server.sql(
                "SELECT state, basis, sum(obs_ms) / 1000 AS s FROM state_interval GROUP BY ALL"
            )
            return {f"{r['state']}/{r['basis']}": float(r["s"]) for r in rows}

        found = wait_until(lambda: len(states()) >= 3 and states(), 60, "states of the import")
        assert found["execution_idle/utilisation"] == 60
        assert found["active/utilisation"] == 59
    finally:
        server.end()
