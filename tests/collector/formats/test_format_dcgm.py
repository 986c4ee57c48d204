"""dcgm-exporter's text: names, blanks, scrapes."""

from __future__ import annotations

import math

import pytest

from collector.formats import FormatError
from collector.formats.exposition import Sample, parse, parse_sample
from idlewatt.columns import Group, missing_reason

LABELS = (
    'gpu="0",UUID="GPU-aaaa-1",device="nvidia0",modelName="NVIDIA H100 80GB HBM3",Hostname="n7"'
)


def scrape(**metrics: object) -> str:
    return "".join(f"DCGM_FI_{name}{{{LABELS}}} {value}\n" for name, value in metrics.items())


BASE = {
    "DEV_POWER_USAGE": 412.5,
    "DEV_GPU_UTIL": 98,
    "DEV_MEM_COPY_UTIL": 40,
    "DEV_FB_USED": 40_000,
    "PROF_SM_ACTIVE": 0.91,
    "PROF_DRAM_ACTIVE": 0.4,
    "PROF_PCIE_TX_BYTES": 1_234_567_890,
}


def test_recorded_scrapes(kit):
    text = "".join(
        f"# 2026-07-14T08:00:{n:02}Z\n"
        + scrape(**BASE, DEV_TOTAL_ENERGY_CONSUMPTION=10_000_000 + n * 400_000)
        for n in range(3)
    )
    found = kit.read(text, zone=None)
    rows = kit.rows(found)
    assert found.node_id == "n7"
    assert [row["at"][-3:] for row in rows] == ["00Z", "01Z", "02Z"]
    row = rows[2]
    assert (row["power_avg_mw"], row["util_gpu_pct"], row["resident"]) == (412_500, 98, True)
    assert row["sm_active"] == pytest.approx(0.91)
    assert (row["activity_source"], row["pcie_tx_bytes_s"]) == ("dcgm", 1_234_567_890)
    assert [(r["energy_uj"], r["energy_source"]) for r in rows] == [
        (412_500_000, "power_avg"), (400_000_000, "counter"), (400_000_000, "counter"),
    ]  # fmt: skip


def test_counter_that_resets_falls_back_to_power(kit):
    counts = (10_000_000, 10_400_000, 5_000, 405_000)
    text = "".join(
        f"# 2026-07-14T08:00:{n:02}Z\n" + scrape(**BASE, DEV_TOTAL_ENERGY_CONSUMPTION=count)
        for n, count in enumerate(counts)
    )
    rows = kit.rows(kit.read(text))
    assert [row["energy_source"] for row in rows] == [
        "power_avg",
        "counter",
        "power_avg",
        "counter",
    ]
    assert [row["energy_epoch"] for row in rows] == [0, 0, 1, 1]
    assert all(row["energy_uj"] in (400_000_000, 412_500_000) for row in rows)


def test_energy_over_a_hole_goes_to_the_gap(kit):
    text = "".join(
        f"# 2026-07-14T08:00:{n:02}Z\n"
        + scrape(**BASE, DEV_TOTAL_ENERGY_CONSUMPTION=n * 400_000 + 1)
        for n in (0, 1, 2, 3, 8, 9)
    )
    found = kit.read(text)
    ((_, _, _, _, reason, energy_uj, _),) = found.tables["gap"]
    assert (reason, energy_uj) == ("not_recorded", 4 * 400_000_000)


@pytest.mark.parametrize(
    ("names", "columns"),
    [
        ("DCGM_FI_PROF_SM_ACTIVE DCGM_FI_PROF_SM_UTIL_RATIO", "sm_active"),
        ("DCGM_FI_PROF_PIPE_TENSOR_ACTIVE DCGM_FI_PROF_TENSOR_UTIL_RATIO", "tensor_active"),
        ("DCGM_FI_DEV_GPU_UTIL DCGM_FI_DEV_GPU_UTIL_RATIO dcgm_gpu_utilization", "util_gpu_pct"),
        ("DCGM_FI_DEV_FB_USED dcgm_fb_used", "mem_used_mib"),
        ("DCGM_FI_DEV_GPU_TEMP dcgm_gpu_temp DCGM_FI_DEV_GPU_TEMP_CELSIUS", "temp_gpu_c"),
    ],
)
def test_names_of_all_generations(kit, names, columns):
    for name in names.split():
        text = f'# 2026-07-14T08:00:00Z\n{name}{{gpu="0",uuid="GPU-aaaa-1"}} 1\n'
        assert kit.rows(kit.read(text))[0][columns] == 1


@pytest.mark.parametrize(
    ("blank", "reason"),
    [
        ("9223372036854775792", 0),
        ("9223372036854775794", 0),
        ("9.223372036854776e+18", 0),
        ("2147483632", 5),
        ("2147483634", 0),
        ("2147483635", 0),
        ("140737488355328", 5),
        ("140737488355330.000000", 0),
        ("NaN", 5),
        ("+Inf", 5),
        ("4294967295", 4),
        ("137", 4),
    ],
)
def test_blanks_are_null_with_a_reason(kit, blank, reason):
    text = "# 2026-07-14T08:00:00Z\n" + scrape(**(BASE | {"DEV_GPU_UTIL": blank}))
    row = kit.rows(kit.read(text))[0]
    assert row["util_gpu_pct"] is None
    assert missing_reason(row["missing"] or 0, Group.UTILISATION) == reason
    assert row["power_avg_mw"] == 412_500


def test_rates_typed_as_counters_are_rates(kit):
    text = "# TYPE DCGM_FI_PROF_PCIE_TX_BYTES counter\n# 2026-07-14T08:00:00Z\n" + scrape(**BASE)
    found = kit.read(text)
    assert kit.rows(found)[0]["pcie_tx_bytes_s"] == 1_234_567_890
    assert any("bytes per second" in note for note in found.notes)


def test_times_of_the_samples(kit):
    text = "".join(
        f"DCGM_FI_DEV_{name}{{{LABELS}}} {value} {1784016758000 + second * 1000 + extra}\n"
        for second in range(3)
        for extra, (name, value) in enumerate((("POWER_USAGE", 80), ("FB_USED", 0)))
    )
    rows = kit.rows(kit.read(text, zone=None))
    assert [(row["power_avg_mw"], row["mem_used_mib"]) for row in rows] == [(80_000, 0)] * 3


def test_series_that_comes_again_is_another_scrape_and_needs_a_time(kit):
    text = scrape(**BASE) + scrape(**BASE)
    with pytest.raises(FormatError, match="time on a line"):
        kit.read(text)


def test_file_named_after_its_time():
    from collector.formats import Options, Source, read

    found = read(
        [Source("d/2026-07-14T08:00:00Z.prom", scrape(**BASE).encode()),
         Source("d/1784016001.txt", scrape(**BASE).encode())], Options(),
    )  # fmt: skip
    assert len(found.samples) == 2


def test_mig_instances_keep_activity_and_lose_power(kit):
    labels = f'{LABELS},GPU_I_PROFILE="1g.10gb",GPU_I_ID="7"'
    text = (
        "# 2026-07-14T08:00:00Z\n"
        f"DCGM_FI_DEV_POWER_USAGE{{{labels}}} 400\nDCGM_FI_PROF_SM_ACTIVE{{{labels}}} 0.5\n"
        f"DCGM_FI_DEV_FB_USED{{{labels}}} 5000\n"
    )
    device, instance = sorted(kit.rows(kit.read(text)), key=lambda row: row["gpu_uuid"])
    assert (device["power_avg_mw"], device["sm_active"]) == (400_000, None)
    assert (instance["power_avg_mw"], instance["sm_active"], instance["resident"]) == (
        None, 0.5, True,
    )  # fmt: skip
    assert (instance["gpu_uuid"], instance["parent_uuid"]) == ("MIG-GPU-aaaa-1/7", "GPU-aaaa-1")


def test_pods_are_counted_not_billed(kit):
    text = "# 2026-07-14T08:00:00Z\n" + scrape(**BASE).replace("Hostname", 'pod="p-1",Hostname')
    found = kit.read(text)
    assert any("pods are named (1" in note for note in found.notes)
    assert "allocation" not in found.tables


def test_exposition_escapes_and_odd_values():
    sample = parse_sample(r'm{a="x\"y\\z\n",b="",} +Inf 1784016758000 # {trace="1"} 2')
    assert sample == Sample(0, "m", {"a": 'x"y\\z\n', "b": ""}, math.inf, "+Inf", 1784016758000.0)
    assert math.isnan(parse_sample("m NaN").value)
    assert parse_sample("m -1.5e-3").value == -0.0015
    for text in ("", "{}", "m", "m {a=1} 2", 'm{a="1 2', "m 1 2 3", "m x", "1m 2"):
        assert parse_sample(text) is None


def test_lines_that_are_no_samples_are_skipped():
    skipped = []
    found = list(parse("ok 1\n<html>\n# EOF\n", lambda *args: skipped.append(args[0])))
    assert len(found) == 2
    assert skipped == [2]


def test_frozen_source_is_stale_after_two_intervals(kit):
    def at(second: int) -> str:
        moved = min(second, 10) + max(second - 40, 0)
        metrics = BASE | {"DEV_TOTAL_ENERGY_CONSUMPTION": 10_000_000 + moved * 400_000}
        return f"# 2026-07-14T08:00:{second:02}Z\n" + scrape(**metrics)

    found = kit.read("".join(map(at, range(50))))
    rows = kit.rows(found)
    assert [n for n, row in enumerate(rows) if row["util_gpu_pct"] is None] == list(range(13, 41))
    assert missing_reason(rows[20]["missing"], Group.POWER) == 3
    assert (rows[20]["energy_uj"], rows[20]["resident"]) == (None, None)
    assert any(item.kind == "frozen" for item in found.findings)


def test_activity_of_zero_at_power_is_pointed_out(kit):
    metrics = BASE | {"PROF_SM_ACTIVE": 0, "PROF_DRAM_ACTIVE": 0, "DEV_ENFORCED_POWER_LIMIT": 700}
    found = kit.read("# 2026-07-14T08:00:00Z\n" + scrape(**metrics))
    assert any(item.kind == "zero_at_power" for item in found.findings)


@pytest.mark.parametrize(("text", "percent"), [("0.5", 50), ("50", 50), ("1", 1), ("0", 0)])
def test_utilisation_under_its_new_name(kit, text, percent):
    found = kit.read("# 2026-07-14T08:00:00Z\n" + scrape(DEV_GPU_UTIL_RATIO=text))
    assert kit.rows(found)[0]["util_gpu_pct"] == percent


def test_drifting_scrapes_with_a_counter_keep_every_joule(kit):
    text = "".join(
        f"# {1784016000 + n * 1.02:.3f}\n"
        + scrape(**BASE, DEV_TOTAL_ENERGY_CONSUMPTION=10_000_000 + round(n * 1.02 * 400_000))
        for n in range(300)
    )
    rows = kit.rows(kit.read(text))
    assert len(rows) in (305, 306, 307)
    assert all(row["energy_uj"] > 300_000_000 for row in rows)
    total_j = sum(row["energy_uj"] for row in rows[1:]) / 1e6
    assert total_j == pytest.approx(299 * 1.02 * 400, rel=0.005)


def test_advice_is_in_the_exporters_words(kit):
    found = kit.read("# 2026-07-14T08:00:00Z\n" + scrape(DEV_GPU_UTIL=3))
    assert "DCGM_FI_DEV_FB_USED" in found.advice[0]
    assert "memory.used" not in found.advice[0]
