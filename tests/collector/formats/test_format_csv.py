"""Logs of nvidia-smi --query-gpu as strangers have them."""

from __future__ import annotations

import pytest

from collector.formats import FormatError
from idlewatt.columns import Group, missing_reason

HEADER = "timestamp, uuid, name, power.draw [W], utilization.gpu [%], memory.used [MiB]"


def line(second: float, gpu: str = "GPU-aaaa", power: str = "100.00 W", used: str = "0 MiB") -> str:
    whole, part = divmod(second, 1)
    minute, second_ = divmod(int(whole), 60)
    return (
        f"2026/07/14 08:{minute:02}:{second_:02}.{round(part * 1000):03}, {gpu}, "
        f"NVIDIA H100 80GB HBM3, {power}, 0 %, {used}"
    )


def log(*lines: str, header: str = HEADER) -> str:
    return "\n".join([header, *lines, ""])


PLAIN = log(line(0), line(1), line(2))


def powers(kit, found):
    return [(row["at"][-3:-1], row["power_avg_mw"]) for row in kit.rows(found)]


EXPECTED = [("00", 100_000), ("01", 100_000), ("02", 100_000)]


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(PLAIN, id="plain"),
        pytest.param(PLAIN.encode("utf-8-sig"), id="BOM"),
        pytest.param("\ufeff".encode("utf-16-le") + PLAIN.encode("utf-16-le"), id="UTF-16"),
        pytest.param(PLAIN.replace("\n", "\r\n"), id="CRLF"),
        pytest.param(PLAIN.replace("\n", "\n\n"), id="blank lines"),
        pytest.param(PLAIN.replace(" W", "").replace(" %", "").replace(" MiB", ""), id="nounits"),
        pytest.param(PLAIN.replace("power.draw", "power.draw.average"), id="other field"),
        pytest.param(PLAIN.replace(", ", ","), id="no blanks"),
        pytest.param(PLAIN.replace("100.00 W", '"100.00 W"'), id="quotes"),
        pytest.param(PLAIN.replace("100.00 W", "100000 mW"), id="unit in the cell wins"),
        pytest.param(PLAIN.replace("uuid", "gpu_uuid").replace(" name", " gpu_name"), id="aliases"),
        pytest.param(log(line(0), line(1), HEADER, line(2)), id="header again"),
        pytest.param(PLAIN + "2026/07/14 08:00:03.0, GPU-aa", id="cut last line"),
        pytest.param(log(line(0), "GPU is lost", line(1), line(2)), id="stderr between"),
    ],
)
def test_spellings_give_the_same_rows(kit, text):
    assert powers(kit, kit.read(text)) == EXPECTED


def test_any_order_and_subset(kit):
    text = "power.draw.instant [W], timestamp\n55.5 W, 2026/07/14 08:00:00.001\n"
    (row,) = kit.rows(kit.read(text, node_id="n"))
    assert (row["power_inst_mw"], row["power_avg_mw"]) == (55_500, None)
    assert (row["energy_uj"], row["energy_source"]) == (55_500_000, "power_inst")
    assert row["gpu_uuid"] == "n/only"
    assert row["resident"] is None


def test_without_header_fields_must_be_given(kit):
    body = "\n".join([line(0), line(1), line(2), ""])
    with pytest.raises(FormatError, match="--fields"):
        kit.read(body)
    fields = tuple(cell.split(" [")[0] for cell in HEADER.split(", "))
    assert powers(kit, kit.read(body, fields=fields)) == EXPECTED


def test_skipped_lines_are_counted_with_numbers(kit):
    text = "Unable to open\n" + log(line(0), "Unable to determine the device handle: lost", line(1))
    found = kit.read(text)
    assert found.skipped_count == 2
    assert [item.line for item in found.skipped] == [1, 4]


@pytest.mark.parametrize(
    "text",
    [
        PLAIN.replace(", ", ";").replace("100.00", "100,00"),
        PLAIN.replace("100.00 W", '"100,00 W"'),
    ],
)
def test_spreadsheet_spelling_is_refused_clearly(kit, text):
    with pytest.raises(FormatError, match=r"line \d+.*(semicolons|decimal comma)"):
        kit.read(text)


def test_cut_number_without_unit_is_not_used(kit):
    text = PLAIN.replace(" MiB", "").replace("[MiB]", "")
    text += "2026/07/14 08:00:03.000, GPU-aaaa, NVIDIA H100 80GB HBM3, 100.00 W, 0 %, 12"
    found = kit.read(text)
    assert powers(kit, found) == EXPECTED
    assert "cut" in found.skipped[0].why


def test_absent_cells_are_null_with_a_reason(kit):
    cells = ("[N/A]", "[Not Supported]", "N/A", "[Unknown Error]", "ERR!", "[GPU is lost]", "")
    found = kit.read(log(*(line(n, power=cell) for n, cell in enumerate(cells))))
    rows = kit.rows(found)
    assert len(rows) == len(cells)
    assert all(row["power_avg_mw"] is None and row["energy_uj"] is None for row in rows)
    reasons = [missing_reason(row["missing"] or 0, Group.POWER) for row in rows]
    assert reasons == [0, 0, 0, 5, 5, 5, 5]
    assert kit.capabilities(found)["power_avg_mw"] == "unsupported"


def test_impossible_values_are_null_and_counted(kit):
    text = PLAIN.replace("0 %", "4294967295 %", 1).replace("0 %", "137 %", 1)
    found = kit.read(text)
    rows = kit.rows(found)
    assert [row["util_gpu_pct"] for row in rows] == [None, None, 0]
    assert missing_reason(rows[0]["missing"], Group.UTILISATION) == 4
    assert any("2 value(s) of util_gpu_pct" in item.text for item in found.findings)


def test_spike_is_bound_by_the_limit_and_a_true_one_kept(kit):
    header = f"{HEADER}, power.max_limit [W]"
    spikes = ("1000000000000.00 W", "900.00 W", "100.00 W")
    found = kit.read(log(*(f"{line(n, power=p)}, 700.00 W" for n, p in enumerate(spikes)),
                         header=header))  # fmt: skip
    assert [row["power_avg_mw"] for row in kit.rows(found)] == [None, 900_000, 100_000]


@pytest.mark.parametrize(
    ("model", "column"),
    [
        ("NVIDIA A100-SXM4-80GB", "power_inst_mw"),
        ("NVIDIA A30", "power_inst_mw"),
        ("NVIDIA A40", "power_avg_mw"),
        ("NVIDIA L40S", "power_avg_mw"),
        ("NVIDIA H200", "power_avg_mw"),
        ("Tesla V100-SXM2-16GB", "power_inst_mw"),
        ("Tesla T4", "power_inst_mw"),
        ("Something Else", "power_inst_mw"),
    ],
)
def test_meaning_of_power_draw_depends_on_the_model(kit, model, column):
    found = kit.read(PLAIN.replace("NVIDIA H100 80GB HBM3", model))
    row = kit.rows(found)[0]
    assert row[column] == 100_000
    assert row["energy_source"] == column.removesuffix("_mw")


def test_residency_by_memory_and_contradiction(kit):
    text = log(line(0, used="0 MiB"), line(1, used="101 MiB"), line(2).replace("0 %", "80 %"))
    found = kit.read(text)
    assert [row["resident"] for row in kit.rows(found)] == [False, True, None]
    assert any("memory in use decides" in note for note in found.notes)
    assert any(item.kind == "busy_but_empty" for item in found.findings)


def test_without_memory_the_state_stays_open_and_the_field_is_named(kit):
    text = "timestamp, uuid, power.draw [W]\n2026/07/14 08:00:00.0, GPU-aaaa, 80 W\n"
    found = kit.read(text)
    assert kit.rows(found)[0]["resident"] is None
    assert "memory.used,utilization.gpu,utilization.memory" in found.advice[0]
    assert "name" in found.advice[0]


def test_gpus_by_uuid_bus_and_index(kit):
    text = (
        "timestamp, index, pci.bus_id, power.draw [W]\n"
        "2026/07/14 08:00:00.0, 0, 00000000:0A:00.0, 80 W\n"
        "2026/07/14 08:00:00.0, 1, 00000000:0B:00.0, 81 W\n"
    )
    found = kit.read(text, node_id="n1")
    assert set(found.identity) == {"n1/pci/00000000:0a:00.0", "n1/pci/00000000:0b:00.0"}
    by_index = kit.read(text.replace("pci.bus_id", "serial"), node_id="n1")
    assert by_index.identity == {"n1/index/0": "index", "n1/index/1": "index"}


@pytest.mark.parametrize(("gpus", "rounds"), [(2, 5), (8, 1), (16, 4)])
def test_several_gpus_without_identity_are_refused(kit, gpus, rounds):
    lines = [
        f"2026/07/14 08:00:{n:02}.{100 + 7 * g:03}, 80 W"
        for n in range(rounds)
        for g in range(gpus)
    ]
    with pytest.raises(FormatError, match="uuid"):
        kit.read("timestamp, power.draw [W]\n" + "\n".join(lines) + "\n")


@pytest.mark.parametrize("step_ms", [100, 200, 1_000])
def test_one_gpu_needs_no_name(kit, step_ms):
    stamps = [n * step_ms for n in range(20)]
    lines = [f"2026/07/14 08:00:{ms // 1000:02}.{ms % 1000:03}, 80 W" for ms in stamps]
    lines[10:] = [line.replace(" 08:", " 09:") for line in lines[10:]]
    found = kit.read("timestamp, power.draw [W]\n" + "\n".join(lines) + "\n", node_id="n")
    assert (len(found.samples), found.identity) == (20, {"n/only": "only"})


def test_gpu_added_midway(kit):
    lines = [line(n) for n in range(10)] + [line(n, "GPU-bbbb") for n in range(7, 10)]
    found = kit.read(log(*lines))
    assert len(kit.rows(found)) == 13
    assert any("GPU-bbbb appears later" in note for note in found.notes)


def test_restart_with_other_fields(kit):
    text = PLAIN + "timestamp, uuid, temperature.gpu\n2026/07/14 08:00:03.0, GPU-aaaa, 51\n"
    rows = kit.rows(kit.read(text))
    assert (rows[-1]["temp_gpu_c"], rows[-1]["power_avg_mw"]) == (51, None)


def test_duplicates_last_wins_and_is_counted(kit):
    found = kit.read(log(line(0), line(1), line(1.001, power="300.00 W"), line(2)))
    assert [power for _, power in powers(kit, found)] == [100_000, 300_000, 100_000]
    assert any("1 reading(s) fell on a tick" in note for note in found.notes)


def test_event_bits_from_single_fields(kit):
    text = (
        "timestamp, uuid, clocks_throttle_reasons.sw_power_cap, clocks_throttle_reasons.gpu_idle\n"
        "2026/07/14 08:00:00.0, GPU-aaaa, Active, Not Active\n"
    )
    assert kit.rows(kit.read(text))[0]["event_reasons"] == 4


def test_held_time_becomes_a_difference(kit):
    header = "timestamp, uuid, clocks_event_reasons_counters.sw_power_cap [us]"
    counts = (1_000_000, 1_250_000, 1_000, 1_001_000)
    lines = [f"2026/07/14 08:00:0{n}.0, GPU-aaaa, {count} us" for n, count in enumerate(counts)]
    rows = kit.rows(kit.read(log(*lines, header=header)))
    assert [row["throttle_power_us"] for row in rows] == [None, 250_000, None, 1_000_000]


def test_hosts_of_several_nodes_are_refused(kit):
    text = (
        "timestamp, uuid, hostname, power.draw [W]\n"
        "2026/07/14 08:00:00.0, GPU-aaaa, n1, 80 W\n2026/07/14 08:00:00.0, GPU-bbbb, n2, 80 W\n"
    )
    with pytest.raises(FormatError, match="2 hosts"):
        kit.read(text)
    assert kit.read(text.replace("n2", "n1")).node_id == "n1"


def test_list_of_processes_shows_who_holds_the_gpu(kit):
    apps = (
        "timestamp, gpu_name, gpu_uuid, pid, process_name, used_gpu_memory [MiB]\n"
        "2026/07/14 08:00:01.010, NVIDIA H100, GPU-aaaa, 4711, python, 500 MiB\n"
        "2026/07/14 08:00:01.010, NVIDIA H100, GPU-aaaa, 4712, python, 500 MiB\n"
    )
    rows = kit.rows(kit.read(PLAIN, apps))
    assert [(row["n_procs"], row["resident"]) for row in rows] == [
        (None, False), (2, True), (None, False),
    ]  # fmt: skip
    assert [row["power_avg_mw"] for row in rows] == [100_000] * 3


def test_comments_before_the_header_do_not_mislead(kit):
    text = "# gpu power of last night\n# gpu 0 only\n" + PLAIN
    assert powers(kit, kit.read(text)) == EXPECTED


def test_index_that_changed_its_gpu_names_nobody(kit):
    before = (
        "timestamp, index, uuid, power.draw.instant [W]\n"
        "2026/07/14 08:00:00.0, 0, GPU-aaaa, 80 W\n2026/07/14 08:00:01.0, 0, GPU-bbbb, 80 W\n"
    )
    alone = "timestamp, index, power.draw.instant [W]\n2026/07/14 08:00:02.0, 0, 80 W\n"
    assert "n/index/0" in kit.read(before, alone, node_id="n").identity
    same = before.replace("GPU-bbbb", "GPU-aaaa")
    assert set(kit.read(same, alone, node_id="n").identity) == {"GPU-aaaa"}


def test_held_time_survives_drift(kit):
    header = "timestamp, uuid, clocks_event_reasons_counters.sw_power_cap [us]"
    lines = []
    for n in range(120):
        minute, ms = divmod(n * 1020, 60_000)
        stamp = f"2026/07/14 08:{minute:02}:{ms // 1000:02}.{ms % 1000:03}"
        lines.append(f"{stamp}, GPU-aaaa, {n * 510_000} us")
    rows = kit.rows(kit.read(log(*lines, header=header)))
    held = [row["throttle_power_us"] for row in rows]
    assert set(held) == {None, 510_000}
    assert held.count(None) == 1 + len(rows) - 120  # the first one, and the ticks jumped over


def test_processes_of_nobodys_gpu_are_refused(kit):
    with pytest.raises(FormatError, match="gpu_uuid"):
        kit.read("timestamp, pid, used_gpu_memory [MiB]\n2026/07/14 08:00:00.0, 12, 500 MiB\n")


def test_header_alone_is_said_to_be_empty(kit):
    found = kit.read(HEADER + "\n")
    assert not found.samples
    assert any("no readings" in note for note in found.notes)
