"""`idlewatt analyze FILE...` as people call it: recognition, large logs, captures, errors."""

import datetime as dt
import json
import os
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree
from zoneinfo import ZoneInfo

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from analysis.report import describe
from analysis.states_job import whole_period
from collector.formats import Options, Source, read
from collector.simulator.cluster import ClusterSpec
from collector.simulator.history import generate
from idlewatt.cli import analyze_files, main
from idlewatt.clock import VirtualClock, utc_from_us
from idlewatt.columns import DEVICE, GPU_SAMPLE
from idlewatt.config import resolve
from idlewatt.model import Thresholds
from idlewatt.units import US_PER_HOUR, US_PER_S
from idlewatt.wire import Header, encode_batch, rows_from_table, table_from_rows
from warehouse.ingest import Ingestor
from warehouse.store import Store

ORIGIN_US = 491_000 * US_PER_HOUR
FIELDS = (
    "timestamp, index, uuid, name, utilization.gpu [%], utilization.memory [%], "
    "memory.used [MiB], power.draw [W], enforced.power.limit [W]"
)
HEAD = FIELDS + "\n"


def row_of(stamp, gpu=0, use=0, mib=5_000, watts=100, uuid="GPU-00000000-aaaa"):
    when = stamp.strftime("%Y/%m/%d %H:%M:%S.%f")[:-3]
    return (
        f"{when}, {gpu}, {uuid}, NVIDIA A100-SXM4-80GB, {use} %, {use // 2} %, {mib} MiB, "
        f"{watts:.2f} W, 400.00 W\n"
    )


def small_log(seconds=40, begin=dt.datetime(2026, 7, 14, 12, 0, tzinfo=dt.UTC), **cells):
    return HEAD + "".join(
        row_of(begin + dt.timedelta(seconds=n), use=80 if n <= seconds // 2 else 0, **cells)
        for n in range(1, seconds + 1)
    )


def told(capsys, *words):
    """Return the answer of the verb as JSON."""
    assert main(["analyze", *map(str, words), "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    answer["notes"].sort()  # their order is that of the parts
    return answer


def refused(capsys, *words):
    code = main(["analyze", *map(str, words)])
    return code, capsys.readouterr().err


def saved(folder, name, text):
    path = folder / name
    path.write_text(text, "utf-8")
    return path


def test_a_log_is_told_at_once(tmp_path, capsys):
    path = saved(tmp_path, "gpus.csv", small_log())
    out = tmp_path / "report.html"
    assert main(["analyze", str(path), "--html", str(out), "--price", "0.5"]) == 0
    text = capsys.readouterr().out
    assert text.startswith("1 GPU over 40 s: programs held it for 40 GPU-s; 50 % of that time")
    assert "EUR" in text
    assert "(clock of the file)" in text
    assert out.read_text("utf-8").startswith("<!DOCTYPE html>")


def test_the_zone_moves_the_times(tmp_path, capsys):
    path = saved(tmp_path, "gpus.csv", small_log())
    there = told(capsys, path, "--zone", "Europe/Berlin")
    assert (there["from"], there["times_are_utc"]) == ("2026-07-14T10:00:00Z", True)
    here = told(capsys, path)
    assert (here["from"], here["times_are_utc"]) == ("2026-07-14T12:00:00Z", False)
    assert here["totals"] == there["totals"]


def test_the_length_rule_can_be_chosen(tmp_path, capsys):
    path = saved(tmp_path, "gpus.csv", small_log(20))
    assert told(capsys, path)["totals"]["states"]["execution_idle"]["seconds"] == 10
    longer = told(capsys, path, "--min-interval-s", "11")
    assert longer["totals"]["states"]["execution_idle"]["seconds"] == 0


def test_files_of_one_node_each_and_folders(tmp_path, capsys):
    for number in range(3):
        saved(tmp_path, f"node{number}.csv", small_log(uuid="N/A"))
    whole = told(capsys, tmp_path)
    assert sorted(gpu["node_id"] for gpu in whole["gpus"]) == ["imported", "node1", "node2"]
    assert whole["totals"]["seen_s"] == 120
    assert told(capsys, *sorted(tmp_path.iterdir())) == whole


def test_a_large_log_is_read_in_parts_and_gives_the_same(tmp_path, capsys, monkeypatch):
    begin = dt.datetime(2026, 7, 14, 12, 0, tzinfo=dt.UTC)
    lines, at = [HEAD], begin
    for second in range(600):
        at = begin + dt.timedelta(seconds=second * 1.0037)  # it drifts, as such logs do
        for gpu in range(2):
            use = 0 if (second // (50 + 30 * gpu)) % 2 else 80
            lines.append(row_of(at, gpu, use, watts=100 + 3 * use, uuid=f"GPU-0000000{gpu}-aaaa"))
        if second == 300:
            lines.append(HEAD)
        if second in (100, 500):
            lines.append("broken line\n")
    path = saved(tmp_path, "gpus.csv", "".join(lines))
    whole = told(capsys, path)
    monkeypatch.setattr(analyze_files, "PART_LINES", 210)
    monkeypatch.setattr(analyze_files, "OVERLAP_LINES", 16)
    assert told(capsys, path) == whole
    assert whole["totals"]["coverage"] == 1
    assert [item["line"] for item in whole["skipped"]] == [204, 1006]


def test_a_night_when_the_clocks_go_back_is_read_whole(tmp_path, capsys, monkeypatch):
    berlin = ZoneInfo("Europe/Berlin")
    begin = dt.datetime(2026, 10, 25, 0, 30, tzinfo=dt.UTC)  # 02:30 in Berlin, for the first time
    stamps = [begin - dt.timedelta(hours=1)]
    stamps += [begin + dt.timedelta(seconds=10 * n) for n in range(720)]
    text = HEAD + "".join(row_of(stamp.astimezone(berlin)) for stamp in stamps)
    path = saved(tmp_path, "night.csv", text)
    whole = told(capsys, path, "--zone", "Europe/Berlin")
    monkeypatch.setattr(analyze_files, "PART_LINES", 100)
    monkeypatch.setattr(analyze_files, "OVERLAP_LINES", 10)
    assert told(capsys, path, "--zone", "Europe/Berlin") == whole
    assert whole["totals"]["seen_s"] == 7_210


def test_a_restart_may_change_the_fields(tmp_path, capsys, monkeypatch):
    begin = dt.datetime(2026, 7, 14, 12, 0, tzinfo=dt.UTC)
    first = [row_of(begin + dt.timedelta(seconds=n), use=80) for n in range(1, 101)]
    short = "timestamp, uuid, utilization.gpu [%], utilization.memory [%], memory.used [MiB]\n"
    second = [
        f"{begin + dt.timedelta(seconds=n):%Y/%m/%d %H:%M:%S}.000, GPU-00000000-aaaa, 0 %, 0 %, "
        "5000 MiB\n"
        for n in range(101, 201)
    ]
    path = saved(tmp_path, "gpus.csv", HEAD + "".join(first) + short + "".join(second))
    whole = told(capsys, path)
    states = whole["totals"]["states"]
    assert (states["active"]["seconds"], states["execution_idle"]["seconds"]) == (100, 100)
    assert (states["active"]["energy_j"], states["execution_idle"]["energy_j"]) == (10_000, None)
    monkeypatch.setattr(analyze_files, "PART_LINES", 60)
    monkeypatch.setattr(analyze_files, "OVERLAP_LINES", 8)
    assert told(capsys, path) == whole


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [
        ("letter.txt", "Dear reader,\nhow are you?\n", "is none of the files"),
        ("empty.csv", "", "is empty"),
        ("meter.csv", "time,power_w\n2026-07-14 12:00:00,100\n2026-07-14 12:00:01,101\n", "wall"),
        ("bare.csv", "2026/07/14 12:00:00.000, 0, 100.0 W\n", "--fields"),
    ],
)
def test_what_cannot_be_read_is_said_in_one_sentence(tmp_path, capsys, name, text, says):
    code, err = refused(capsys, saved(tmp_path, name, text))
    assert code in (1, 2)
    assert says in err
    assert err.startswith("idlewatt: ")
    assert err.count("\n") == 1


def test_wrong_use_is_said(tmp_path, capsys):
    path = saved(tmp_path, "gpus.csv", small_log())
    assert refused(capsys, tmp_path / "nowhere.csv")[0] == 2
    assert refused(capsys, path, "--min-interval-s", "0")[0] == 2
    assert refused(capsys, path, "--zone", "Mars/Olympus")[0] == 2
    assert refused(capsys, path, "--interval", "0")[0] == 2
    assert refused(capsys, "power-states", "--html", "x.html")[0] == 2
    code, err = refused(capsys, path, "--html", tmp_path / "no" / "folder.html")
    assert (code, "cannot write" in err) == (1, True)


def test_the_words_of_the_other_analysis_still_mean_it(capsys):
    code, err = refused(capsys, "power-states", "--url", "http://127.0.0.1:9")
    assert code == 5
    assert "no answer from http://127.0.0.1:9" in err


def test_help_shows_both_with_examples(capsys):
    with pytest.raises(SystemExit):
        main(["analyze", "--help"])
    text = capsys.readouterr().out
    assert "idlewatt analyze gpus.csv" in text
    assert "idlewatt analyze power-states --from 24h" in text


def scrape(number):
    labels = 'gpu="0",UUID="GPU-1111aaaa-0000",modelName="NVIDIA H100 80GB HBM3",Hostname="n1"'
    busy = 0.6 if number < 10 else 0.0
    values = {
        "DEV_POWER_USAGE": 100 + 400 * busy,
        "DEV_FB_USED": 60_000,
        "PROF_SM_ACTIVE": busy,
        "PROF_DRAM_ACTIVE": busy / 2,
    }
    return "".join(f"DCGM_FI_{name}{{{labels}}} {value}\n" for name, value in values.items())


def test_scrapes_rest_on_counters_and_ask_for_no_other_recording(tmp_path, capsys):
    for number in range(30):
        saved(tmp_path, f"2026-07-14T08:00:{number:02d}Z.prom", scrape(number))
    answer = told(capsys, tmp_path)
    states = answer["totals"]["states"]
    assert (states["active"]["seconds"], states["execution_idle"]["seconds"]) == (10, 20)
    assert answer["totals"]["basis_s"] == {"counters": 30}
    assert answer["record_with"] is None
    assert "as activity counters show" in answer["verdict"]
    assert answer["gpus"][0]["node_id"] == "n1"


def test_dmon_alone_cannot_tell_and_says_what_to_record(tmp_path, capsys):
    text = "#Date  Time  gpu  pwr  sm  mem\n#YYYYMMDD  HH:MM:SS  Idx  W  %  %\n"
    text += "".join(f" 20260714   08:12:{n:02d}  0  150  80  40\n" for n in range(30))
    answer = told(capsys, saved(tmp_path, "dmon.txt", text))
    assert answer["totals"]["unknown_s"] == {"no_residency": 30}
    assert answer["totals"]["energy_j"] == 4_500
    assert "cannot be told" in answer["verdict"]
    assert "memory.used" in answer["fields_lacking"]
    assert "memory.used" in answer["record_with"]


def test_wall_power_beside_a_log_is_left_out_and_said(tmp_path, capsys):
    saved(tmp_path, "gpus.csv", small_log())
    saved(tmp_path, "wall.csv", "time,power_w\n2026-07-14 12:00:00,100\n2026-07-14 12:00:01,1\n")
    answer = told(capsys, tmp_path)
    assert answer["readings"] == 40
    assert "wall.csv: wall power; `idlewatt import` takes it" in answer["notes"]


CELLS = st.sampled_from(
    [
        "",
        "N/A",
        "[Not Supported]",
        "-1",
        "1e400",
        "nan",
        "0",
        "99999999999",
        "80 %",
        "12,5",
        "\x1b[0m",
    ]
)


@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(st.tuples(st.integers(1, 40), st.integers(0, 8), CELLS), max_size=30), st.randoms())
def test_damaged_logs_are_told_or_refused(tmp_path, capsys, damages, random):
    lines = [line.split(", ") for line in small_log().splitlines()]
    for line, cell, text in damages:
        lines[line][cell] = text
    if random.random() < 0.3:
        random.shuffle(lines)
    path = saved(tmp_path, "gpus.csv", "\n".join(", ".join(cells) for cells in lines))
    code = main(["analyze", str(path), "--html", str(tmp_path / "out.html")])
    said = capsys.readouterr()
    assert code in (0, 1, 2)
    assert (code == 0) == bool(said.out)
    assert "\x1b" not in said.out
    if not code:
        ElementTree.parse(tmp_path / "out.html")


BLOCKED = ("pyarrow", "duckdb", "polars", "dash", "plotly", "apscheduler", "granian", "rich")


def run_alone(*words, blocked=BLOCKED):
    """Run the verb in a process where packages are not there."""
    code = (
        "import sys\n"
        f"for name in {blocked!r}: sys.modules[name] = None\n"
        "from idlewatt.cli import main\n"
        "raise SystemExit(main(sys.argv[1:]))"
    )
    return subprocess.run(
        [sys.executable, "-c", code, "analyze", *map(str, words)],
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.integration
def test_numpy_is_all_it_needs(tmp_path):
    path = saved(tmp_path, "gpus.csv", small_log())
    done = run_alone(path, "--html", tmp_path / "out.html")
    assert done.returncode == 0, done.stderr
    assert "went by without work" in done.stdout
    lacking = run_alone(path, blocked=(*BLOCKED, "numpy"))
    assert lacking.returncode == 2
    assert "pip install 'idlewatt[analyze]'" in lacking.stderr


# A day of the simulated cluster, as nvidia-smi would have written it.


def as_csv(spec):
    """Return a day of a node's samples as a log."""
    at = {column.name: place for place, column in enumerate(GPU_SAMPLE)}
    names, lines = {}, [FIELDS + ", temperature.gpu"]
    for tables in generate(spec, 0, ORIGIN_US + US_PER_S, ORIGIN_US + 24 * US_PER_HOUR):
        for device in rows_from_table(DEVICE, tables["device"]) if "device" in tables else ():
            names[device[0]] = (device[6], device[4])
        for row in rows_from_table(GPU_SAMPLE, tables["gpu_sample"]):
            uuid = row[at["gpu_uuid"]]
            index, model = names[uuid]
            values = [row[at[name]] for name in ("util_gpu_pct", "util_mem_pct", "mem_used_mib")]
            power = row[at["power_avg_mw"]] or row[at["power_inst_mw"]]
            when = utc_from_us(row[at["ts_utc"]]).strftime("%Y/%m/%d %H:%M:%S.000")
            use, mem, mib = ("[N/A]" if value is None else value for value in values)
            draw = "[N/A]" if power is None else f"{power / 1_000:.2f} W"
            limit = row[at["power_limit_mw"]] / 1_000
            lines.append(
                f"{when}, {index}, {uuid}, {model}, {use} %, {mem} %, {mib} MiB, {draw}, "
                f"{limit:.2f} W, {row[at['temp_gpu_c']]}"
            )
    return "\n".join(lines) + "\n"


def by_server(folder, found):
    """Return the figures of a warehouse that took the same rows."""
    settings = resolve(environ={})
    with Store.open(folder, settings, VirtualClock(ORIGIN_US + 26 * US_PER_HOUR)) as store:
        ingestor = Ingestor(store)
        rows = [(*row[:6], 1, *row[7:]) for row in found.samples]
        for seq, first in enumerate(range(0, len(rows), 20_000), 1):
            tables = {"gpu_sample": table_from_rows(GPU_SAMPLE, rows[first : first + 20_000])}
            header = Header(1, found.node_id, 1, "backfill", seq, "test", 1)
            ingestor.submit(encode_batch(header, tables)).result(60)
        ingestor.close()
        period = whole_period(store, ORIGIN_US, ORIGIN_US + 25 * US_PER_HOUR, Thresholds())
        return describe(period, 5)


def test_a_day_gives_the_same_energies_as_the_server(tmp_path, capsys):
    spec = ClusterSpec(seed=5, nodes=1, gpus_per_node=1, origin_us=ORIGIN_US)
    text = as_csv(spec)
    path = saved(tmp_path, "day.csv", text)
    answer = told(capsys, path, "--zone", "UTC")
    found = read([Source("day.csv", text.encode())], Options(zone=dt.UTC))
    server = by_server(tmp_path / "data", found)
    assert answer["readings"] == server["samples"] == 86_399
    for item in server["states"]:
        mine = answer["totals"]["states"][item["state"]]
        assert mine["seconds"] == item["seconds"]
        kwh = item["energy_kwh"]
        assert mine["energy_j"] == (None if kwh is None else pytest.approx(kwh * 3.6e6, rel=1e-12))
    assert answer["totals"]["execution_idle_time_share"] == server["in_execution"]["time_share"]
    assert answer["totals"]["states"]["execution_idle"]["seconds"] > 600


# What others have recorded.

DATA = os.environ.get("IDLEWATT_TEST_DATA")
captured = pytest.mark.skipif(not DATA, reason="IDLEWATT_TEST_DATA is not set")
CAPTURES = {
    "nvidia-smi/linux-x86_64__nvidia-h100-80gb-hbm3__590.48.01.txt": [
        ("deep_idle", 70), ("active", 626),
    ],
    "nvidia-smi/linux-x86_64__nvidia-l40s__595.80.txt": [("unknown", 128), ("active", 112)],
    "nvidia-smi-xml/quadro-p400.xml": [("deep_idle", None)],
    "nvidia-smi-xml/rtx-3080-v12.xml": [("active", 23)],
    "nvidia-smi-xml/rtx-3080-v13.xml": [("active", 142)],
    "nvidia-smi-xml/tesla-t4.xml": [("low", 27)],
}  # fmt: skip


@captured
@pytest.mark.parametrize("name", sorted(CAPTURES))
def test_captures_show_moments(name, capsys):
    answer = told(capsys, Path(DATA) / name)
    assert answer["only_moments"]
    read_ = [
        (m["state"], None if m["power_w"] is None else round(m["power_w"]))
        for m in answer["moments"]
    ]
    assert read_ == CAPTURES[name]
    assert "a log has." in answer["verdict"]


@captured
def test_the_trap_is_reported_as_what_it_is(capsys):
    name = "linux-x86_64__nvidia-l40s__595.80.txt"
    answer = told(capsys, Path(DATA) / "nvidia-smi" / name)
    (found,) = [item for item in answer["findings"] if item["kind"] == "busy_but_empty"]
    assert (found["util_gpu_pct"], found["mem_used_mib"]) == (100, 0)
    assert any("neither idle nor a job" in text for text in answer["findings_text"])


@captured
@pytest.mark.parametrize(
    "name",
    [
        "nvidia-smi/linux-x86_64__nvidia-h100-mig__590.48.01.txt",
        "nvidia-smi-xml/a100-sxm4-v12.xml",
    ],
)
def test_instances_are_shown_and_counted_once(name, capsys):
    answer = told(capsys, Path(DATA) / name)
    devices = [gpu for gpu in answer["gpus"] if gpu["parent"] is None]
    assert len(devices) == 1
    assert len(answer["gpus"]) == 5
    assert answer["totals"]["seen_s"] == devices[0]["seen_s"]


@captured
def test_wall_power_has_no_states(capsys):
    code, err = refused(capsys, Path(DATA) / "power-mlperf" / "spl.txt")
    assert code == 2
    assert "wall power" in err
