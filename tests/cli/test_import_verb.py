"""`idlewatt import` as typed: report, refusals, what it ships."""

from __future__ import annotations

import io
import json

import pytest

from collector.importer import ROWS_PER_BATCH, batches, content_epoch, ship
from collector.shipper import Answer
from idlewatt.cli import main
from idlewatt.clock import VirtualClock
from idlewatt.columns import GPU_SAMPLE
from idlewatt.errors import IdlewattError, ServerUnreachableError
from idlewatt.wire import decode_batch, rows_from_table

LOG = (
    "timestamp, uuid, name, power.draw [W], utilization.gpu [%], memory.used [MiB]\n"
    "2026/07/14 08:00:00.100, GPU-aaaa, NVIDIA A40, 80.00 W, 0 %, 400 MiB\n"
    "2026/07/14 08:00:01.105, GPU-aaaa, NVIDIA A40, 82.00 W, 0 %, 400 MiB\n"
    "Unable to determine the device handle\n"
)
LIVE_EPOCH = 1_600_000_000_000


@pytest.fixture
def log(tmp_path):
    path = tmp_path / "log.csv"
    path.write_text(LOG)
    return str(path)


def test_dry_run_reports(log, capsys):
    assert main(["import", log, "--zone", "Europe/Berlin", "--dry-run"]) == 0
    out = capsys.readouterr().out
    assert "log.csv: nvidia-smi-csv" in out
    assert "2026-07-14T06:00:00Z" in out
    assert "162" in out  # joules
    assert "1 line(s) skipped" in out
    assert "log.csv, line 4:" in out
    assert "utilization.memory" in out
    assert "nothing was sent" in out


def test_report_as_json(log, capsys):
    assert main(["import", "nvidia-smi", log, "--zone", "UTC", "--dry-run", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["files"] == {"log.csv": "nvidia-smi-csv"}
    assert found["rows"]["gpu_sample"] == 2
    (gpu,) = found["gpus"]
    assert (gpu["energy_j"], gpu["energy_source"], gpu["identified_by"]) == (
        162,
        "power_avg",
        "uuid",
    )
    assert (found["interval_s"], found["skipped_lines"]) == ({"log.csv": 1.0}, 1)
    assert found["shipped"] is None


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--dry-run"], "--zone"),
        (["--zone", "Mars/Phobos", "--dry-run"], "Mars/Phobos"),
        (["--zone", "UTC"], "--node-id"),
        (["--zone", "UTC", "--interval", "0", "--dry-run"], "--interval"),
        (["--zone", "UTC", "--start", "soon", "--dry-run"], "--start"),
    ],
)
def test_refusals_are_one_sentence(log, capsys, words, message):
    assert main(["import", log, *words]) in (1, 2)
    error = capsys.readouterr().err
    assert error.startswith("idlewatt: ")
    assert error.count("\n") == 1
    assert message in error


def test_other_family_missing_and_unknown_files(tmp_path, log, capsys):
    assert main(["import", "dcgm", log, "--dry-run"]) == 1
    assert "idlewatt import nvidia-smi" in capsys.readouterr().err
    assert main(["import", str(tmp_path / "none.csv")]) == 2
    assert "cannot read" in capsys.readouterr().err
    assert main(["import", "dcgm"]) == 2
    strange = tmp_path / "strange"
    strange.write_bytes(b"\x89PNG\r\n")
    assert main(["import", str(strange), "--dry-run"]) == 1
    assert "none of the files that can be imported" in capsys.readouterr().err


def test_folder_of_scrapes(tmp_path, capsys):
    folder = tmp_path / "scrapes"
    folder.mkdir()
    for second in range(3):
        (folder / f"{1784016000 + second}.prom").write_text(
            'DCGM_FI_DEV_POWER_USAGE{gpu="0",UUID="GPU-aaaa",Hostname="n7"} 80\n'
        )
    assert main(["import", "dcgm", str(folder), "--dry-run", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["node_id"], found["rows"]["gpu_sample"]) == ("n7", 3)


def sample_rows(count, power=80_000):
    values = {"obs_ms": 1_000, "node_id": "n1", "gpu_uuid": "GPU-a", "epoch": 0,
              "power_inst_mw": power}  # fmt: skip
    return [
        tuple((values | {"ts_utc": 10**15 + n * 10**6}).get(c.name) for c in GPU_SAMPLE)
        for n in range(count)
    ]


def test_epoch_is_the_contents_and_below_any_agents():
    one = content_epoch("n1", {"gpu_sample": sample_rows(3)})
    assert one == content_epoch("n1", {"gpu_sample": sample_rows(3), "gap": []})
    assert one != content_epoch("n2", {"gpu_sample": sample_rows(3)})
    assert one != content_epoch("n1", {"gpu_sample": sample_rows(3, 81_000)})
    assert 1 <= one < LIVE_EPOCH


def test_large_imports_travel_in_several_batches():
    tables = {"gpu_sample": sample_rows(ROWS_PER_BATCH + 5), "node": [("n1", 10**15, *[None] * 4)]}
    made = list(batches("n1", tables, 0))
    assert [seq for seq, _, _ in made] == [1, 2]
    assert sum(rows for _, rows, _ in made) == ROWS_PER_BATCH + 6
    first, second = (decode_batch(body) for _, _, body in made)
    assert set(first.tables) == {"node", "gpu_sample"}
    assert first.header.epoch == second.header.epoch == content_epoch("n1", tables)
    rows = rows_from_table(GPU_SAMPLE, second.tables["gpu_sample"])
    epoch_at = [column.name for column in GPU_SAMPLE].index("epoch")
    assert {row[epoch_at] for row in rows} == {first.header.epoch}


class Link:
    """Answers as told."""

    def __init__(self, *answers):
        self.answers = list(answers)
        self.posts = 0

    def post(self, body, given_up=None):
        self.posts += 1
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        return answer


def test_shipping_tries_again_and_gives_up():
    tables = {"gpu_sample": sample_rows(2)}
    clock = VirtualClock(LIVE_EPOCH * 1_000)
    link = Link(ServerUnreachableError("no"), Answer(503, error="busy"), Answer(200, acked=1))
    assert ship("n1", tables, link, clock).batches == 1
    assert link.posts == 3
    with pytest.raises(ServerUnreachableError):
        ship("n1", tables, Link(ServerUnreachableError("no")), clock)
    with pytest.raises(IdlewattError, match="another node"):
        ship("n1", tables, Link(Answer(403, error="forbidden")), clock)


def test_future_is_not_sent(tmp_path, capsys):
    path = tmp_path / "log.csv"
    path.write_text(LOG.replace("2026/07/14", "2092/07/14"))
    assert main(["import", str(path), "--zone", "UTC", "--node-id", "n1"]) == 2
    assert "future" in capsys.readouterr().err


def test_standard_input(monkeypatch, capsys):
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(LOG.encode())))
    assert main(["import", "-", "--zone", "UTC", "--dry-run"]) == 0
    assert "standard input: nvidia-smi-csv" in capsys.readouterr().out
