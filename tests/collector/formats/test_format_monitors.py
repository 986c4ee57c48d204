"""dmon, pmon and -q as text and XML."""

from __future__ import annotations

import datetime as dt

import pytest

from collector.formats import Format, FormatError

START = dt.datetime(2026, 7, 14, 8, tzinfo=dt.UTC)
DMON = """\
#Date       Time        gpu    pwr  gtemp  mtemp     sm    mem   mclk   pclk     fb  rxpci  txpci
#YYYYMMDD   HH:MM:SS    Idx      W      C      C      %      %    MHz    MHz     MB   MB/s   MB/s
 20260714   08:00:00      0     69     41     47      0      0   2619    345     12      3      0
 20260714   08:00:00      1    412     61      -     98     40   2619   1980  40000   1200     20
#Date       Time        gpu    pwr  gtemp  mtemp     sm    mem   mclk   pclk     fb  rxpci  txpci
#YYYYMMDD   HH:MM:SS    Idx      W      C      C      %      %    MHz    MHz     MB   MB/s   MB/s
 20260714   08:00:01      0     70     41     47      0      0   2619    345     12      3      0
 20260714   08:00:01      1      -     61      -     98     40   2619   1980  40000   1200     20
"""
PMON = """\
# gpu         pid   type     sm    mem    command
# Idx           #    C/G      %      %    name
    0       4711     C      5      2    python
    0       4712   C+G      -      -    some tool
    1          -     -      -      -    -
    0          -     -      -      -    -
    1       4713     C      1      1    python
"""


def test_dmon_with_dates(kit):
    found = kit.read(DMON, node_id="n1")
    assert list(found.formats.values()) == [Format.DMON]
    rows = kit.rows(found)
    assert [(r["gpu_uuid"], r["at"][-3:]) for r in rows] == [
        ("n1/index/0", "00Z"), ("n1/index/1", "00Z"), ("n1/index/0", "01Z"), ("n1/index/1", "01Z"),
    ]  # fmt: skip
    busy = rows[1]
    assert (busy["power_inst_mw"], busy["util_gpu_pct"], busy["util_mem_pct"]) == (412_000, 98, 40)
    assert (busy["mem_used_mib"], busy["resident"], busy["temp_mem_c"]) == (40_000, True, None)
    assert (busy["pcie_rx_bytes_s"], busy["pcie_tx_bytes_s"]) == (1_200_000_000, 20_000_000)
    assert rows[3]["energy_uj"] is None
    assert rows[0]["late_ms"] is None


def test_dmon_without_dates_needs_a_start(kit):
    text = "# gpu pwr sm mem\n# Idx W % %\n 0 69 0 0\n 0 70 0 0\n"
    with pytest.raises(FormatError, match="-o DT"):
        kit.read(text)
    rows = kit.rows(kit.read(text, start=START))
    assert [(r["at"][-3:], r["power_inst_mw"]) for r in rows] == [("00Z", 69_000), ("01Z", 70_000)]


def test_dmon_as_csv_and_cut(kit):
    text = "#gpu, pwr, sm\n#Idx, W, %\n0, 69, 0\n0, 70, 0\n0, 7"
    found = kit.read(text, start=START)
    assert [row["power_inst_mw"] for row in kit.rows(found)] == [69_000, 70_000]
    assert found.skipped[0].line == 5


def test_power_held_by_the_limit(kit):
    text = "# gpu pwr pviol tviol\n# Idx W % bool\n 0 300 25 0\n"
    assert kit.rows(kit.read(text, start=START))[0]["throttle_power_us"] == 250_000


def test_pmon_counts_processes_in_rounds(kit):
    found = kit.read(PMON, start=START, node_id="n1")
    assert list(found.formats.values()) == [Format.PMON]
    rows = kit.rows(found)
    assert [(r["gpu_uuid"][-1], r["at"][-3:], r["n_procs"], r["resident"]) for r in rows] == [
        ("0", "00Z", 2, True), ("1", "00Z", 0, False), ("0", "01Z", 0, False),
        ("1", "01Z", 1, True),
    ]  # fmt: skip


def test_pmon_joins_a_log_that_names_the_index(kit):
    log = (
        "timestamp, index, uuid, utilization.gpu [%], utilization.memory [%], power.draw.instant [W]\n"  # noqa: E501
        "2026/07/14 08:00:00.000, 0, GPU-aaaa, 0 %, 0 %, 80 W\n"
        "2026/07/14 08:00:01.000, 0, GPU-aaaa, 0 %, 0 %, 80 W\n"
    )
    rows = [r for r in kit.rows(kit.read(log, PMON, start=START)) if r["gpu_uuid"] == "GPU-aaaa"]
    assert [(r["resident"], r["power_inst_mw"]) for r in rows] == [(True, 80_000), (False, 80_000)]


QUERY = """
==============NVSMI LOG==============

Timestamp                                 : Tue Jul 14 08:12:38 2026
Driver Version                            : 470.57.02

Attached GPUs                             : 1
GPU 00000000:3B:00.0
    Product Name                          : Tesla V100-SXM2-16GB
    GPU UUID                              : GPU-aaaa-1
    Clocks Throttle Reasons
        Idle                              : Not Active
        SW Power Cap                      : Active
        HW Slowdown                       : Active
            HW Thermal Slowdown           : Active
    FB Memory Usage
        Total                             : 16160 MiB
        Used                              : 9000 MiB
    Utilization
        Gpu                               : 97 %
        Memory                            : 30 %
    Power Readings
        Power Draw                        : 250.31 W
        Power Limit                       : 260.00 W
        Enforced Power Limit              : 250.00 W
    Processes
        GPU instance ID                   : N/A
        Compute instance ID               : N/A
        Process ID                        : 4711
            Type                          : C
            Name                          : python
            Used GPU Memory               : 8990 MiB
"""


def test_older_query_text(kit):
    (row,) = kit.rows(kit.read(QUERY))
    assert (row["power_inst_mw"], row["power_avg_mw"]) == (250_310, None)
    assert (row["power_limit_mw"], row["power_limit_requested_mw"]) == (250_000, 260_000)
    assert row["event_reasons"] == 0x4 | 0x8 | 0x40
    assert (row["n_procs"], row["resident"], row["util_gpu_pct"]) == (1, True, 97)
    assert row["gpu_uuid"] == "GPU-aaaa-1"


def test_repeated_query_is_a_series(kit):
    text = QUERY + QUERY.replace("08:12:38", "08:12:43") + QUERY.replace("08:12:38", "08:12:48")
    rows = kit.rows(kit.read(text))
    assert len(rows) == 3
    assert {row["obs_ms"] for row in rows} == {5_000}


def xml(body: str, prolog: str = "") -> str:
    return (
        f'<?xml version="1.0" ?>\n{prolog}<nvidia_smi_log><timestamp>Tue Jul 14 08:12:38 2026'
        f'</timestamp><gpu id="00000000:3B:00.0"><uuid>GPU-aaaa-1</uuid>{body}</gpu>'
        "</nvidia_smi_log>\n"
    )


POWER = "<gpu_power_readings><instant_power_draw>80 W</instant_power_draw></gpu_power_readings>"
PLAIN_DOCTYPE = '<!DOCTYPE nvidia_smi_log SYSTEM "nvsmi_device_v13.dtd">\n'


def test_repeated_xml_and_a_cut_end(kit):
    text = xml(POWER, PLAIN_DOCTYPE) + xml(POWER, PLAIN_DOCTYPE).replace(":38 2026", ":39 2026")
    found = kit.read(text + xml(POWER)[:200])
    assert [row["power_inst_mw"] for row in kit.rows(found)] == [80_000, 80_000]
    assert found.skipped_count == 1


@pytest.mark.parametrize(
    "text",
    [
        xml(POWER, '<!DOCTYPE x [<!ENTITY a "aaaa"><!ENTITY b "&a;&a;">]>\n'),
        xml(POWER, '<!DOCTYPE nvidia_smi_log SYSTEM "file:///etc/passwd">\n'),
        xml(POWER, '<!DOCTYPE nvidia_smi_log [<!ENTITY x SYSTEM "file:///etc/passwd">]>\n'),
        xml("<a>" * 100 + "</a>" * 100),
        xml("&undefined;"),
        xml("<a>"),
        '<?xml version="1.0"?><other><nvidia_smi_log/></other>',
    ],
)
def test_hostile_xml_is_refused(kit, text):
    with pytest.raises(FormatError):
        kit.read(text)
