"""Whatever a file holds: a clear error or rows within physical ranges."""

from __future__ import annotations

import datetime as dt

from hypothesis import given
from hypothesis import strategies as st

from collector.formats import Format, Import, Options, Source, read, recognise
from collector.formats.fields import TARGETS
from collector.formats.ranges import RANGES
from collector.formats.stamps import parse_zone
from idlewatt.columns import GPU_SAMPLE, METER, TABLES
from idlewatt.errors import IdlewattError
from idlewatt.wire import table_from_rows

OPTIONS = Options(zone=parse_zone("Europe/Berlin"), node_id="n")
SAMPLES = {column.name: place for place, column in enumerate(GPU_SAMPLE)}
METERS = {column.name: place for place, column in enumerate(METER)}

odd = st.sampled_from(
    ["", "N/A", "[N/A]", "ERR!", "-", "-1", "1e308", "nan", "inf", "9223372036854775794", "0x1FF",
     "99999999999999999999", "P0", "P99", "Active", "100,5", "1.5 W", "3 GiB", "\x00", "é", '"',
     "GPU-aaaa", "00000000:0A:00.0", "2147483632", "137 %", "0", "5 s", "7 bananas"]
)  # fmt: skip
cells = st.one_of(odd, st.integers(-10, 10**7).map(str), st.text(max_size=8))
stamps = st.datetimes(
    min_value=dt.datetime(1969, 1, 1),  # noqa: DTZ001 - local times of a file
    max_value=dt.datetime(2090, 1, 1),  # noqa: DTZ001
).map(lambda stamp: stamp.strftime("%Y/%m/%d %H:%M:%S.%f"))
nearby = st.integers(0, 90).map(lambda n: f"2026/10/25 02:{n % 60:02}:{n * 7 % 60:02}.{n:03}")


def check(data: bytes, options: Options = OPTIONS) -> None:
    """Import; what comes out must fit the table of ranges and the wire."""
    try:
        found = read([Source("f", data)], options)
    except IdlewattError as exc:
        message = str(exc)
    else:
        message = ""
        check_rows(found)
    assert "\n" not in message.strip()


def check_rows(found: Import) -> None:
    """Hold what came out against the table of ranges and the wire."""
    for rows, places in ((found.samples, SAMPLES), (found.meter_rows, METERS)):
        for name, place in places.items():
            if name in RANGES:
                low, high = RANGES[name]
                assert all(low <= row[place] <= high for row in rows if row[place] is not None), (
                    name
                )
    for row in found.samples:
        assert (row[SAMPLES["energy_uj"]] is None) == (row[SAMPLES["energy_source"]] is None)
    keys = [(row[SAMPLES["gpu_uuid"]], row[SAMPLES["ts_utc"]]) for row in found.samples]
    assert len(set(keys)) == len(keys)
    for name, rows in found.tables.items():
        assert table_from_rows(TABLES[name], rows).rows == len(rows)


@given(st.data())
def test_logs_with_odd_cells(data):
    names = data.draw(st.lists(st.sampled_from(sorted(TARGETS)), min_size=1, max_size=6))
    width = len(names) + 1
    row = st.tuples(st.one_of(stamps, nearby), *[cells] * (width - 1)).map(", ".join)
    lines = data.draw(st.lists(st.one_of(row, row, st.text(max_size=30)), max_size=12))
    end = data.draw(st.sampled_from(["\n", "", "\r\n"]))
    check("\n".join(["timestamp, " + ", ".join(names), *lines]).encode() + end.encode())


HEADS = [
    b"timestamp, uuid, power.draw [W]\n2026/07/14 08:00:00.0, GPU-aaaa, 80 W\n",
    b"==============NVSMI LOG==============\nTimestamp : Tue Jul 14 08:12:38 2026\nGPU 00000000:3B:00.0\n    FB Memory Usage\n        Used : 9 MiB\n",  # noqa: E501
    b'<?xml version="1.0" ?><nvidia_smi_log><timestamp>Tue Jul 14 08:12:38 2026</timestamp><gpu id="1"><fb_memory_usage><used>9 MiB</used></fb_memory_usage></gpu></nvidia_smi_log>',  # noqa: E501
    b"#Date Time gpu pwr sm fb\n#YYYYMMDD HH:MM:SS Idx W % MB\n 20260714 08:00:00 0 69 0 12\n",
    b"#Date Time gpu pid type command\n#Y H Idx # C/G name\n 20260714 08:00:00 0 12 C x\n",
    b'# 2026-07-14T08:00:00Z\nDCGM_FI_DEV_POWER_USAGE{gpu="0",UUID="GPU-aaaa"} 80\nDCGM_FI_PROF_SM_ACTIVE{gpu="0",UUID="GPU-aaaa"} 0.5\n',  # noqa: E501
    b"timestamp,power_w\n2026-07-14 08:00:00,1500\n2026-07-14 08:00:01,1500\n",
    b"Time,03-17-2021 14:24:56.694,Watts,1579.0,Volts,-1.0,Ch1,Watts,574.4\n",
    b':::MLLOG {"key": "power_begin", "value": "03-17-2021 14:25:33.909"}\n:::MLLOG {"key": "power_end", "value": "03-17-2021 14:26:33.909"}\n',  # noqa: E501
    b"####################\n# idle :: query (-q)\n# $ nvidia-smi -q\n####################\n=NVSMI LOG=\nTimestamp : Tue Jul 14 08:12:38 2026\nGPU 00000000:3B:00.0\n    Fan Speed : 9 %\n",  # noqa: E501
]


def test_heads_are_of_every_format():
    assert {recognise(head) for head in HEADS} == set(Format)


@given(
    st.sampled_from(HEADS),
    st.lists(
        st.tuples(st.integers(0, 400), st.binary(max_size=12), st.integers(0, 20)), max_size=5
    ),
    st.integers(1, 3),
)
def test_damaged_files_of_every_format(head, damages, times):
    data = head * times
    for place, new, cut in damages:
        data = data[:place] + new + data[place + cut :]
    check(data)


@given(st.sampled_from(HEADS), odd, st.integers(0, 30))
def test_other_numbers_in_files_of_every_format(head, value, which):
    words = head.decode().split(" ")
    words[which % len(words)] = value
    check(" ".join(words).encode())


@given(st.one_of(st.binary(max_size=300), st.text(max_size=300).map(str.encode)))
def test_anything(data):
    check(data)


@given(st.binary(max_size=200))
def test_anything_with_fields_given(data):
    check(data, Options(zone=parse_zone("UTC"), fields=("timestamp", "uuid", "power.draw")))
