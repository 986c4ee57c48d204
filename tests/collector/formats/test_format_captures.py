"""Real captures give the values that their owners state."""

from __future__ import annotations

import pytest

from collector.formats import Format, FormatError

H100 = "nvidia-smi/linux-x86_64__nvidia-h100-80gb-hbm3__590.48.01.txt"
MIG = "nvidia-smi/linux-x86_64__nvidia-h100-mig__590.48.01.txt"
L40S = "nvidia-smi/linux-x86_64__nvidia-l40s__595.80.txt"


def test_h100_idle_and_load(captures, kit):
    found = captures(H100)
    idle, load = kit.rows(found)
    assert found.formats == {H100: Format.SMI_CAPTURE}
    assert (idle["at"], load["at"]) == ("2026-07-14T08:12:39Z", "2026-07-14T08:12:54Z")
    assert (idle["power_avg_mw"], idle["sm_clock_mhz"], idle["event_reasons"]) == (69_850, 345, 1)
    assert (idle["resident"], idle["n_procs"], idle["util_gpu_pct"]) == (False, 0, 0)
    assert (load["power_avg_mw"], load["sm_clock_mhz"], load["temp_gpu_c"]) == (631_950, 1_980, 59)
    assert (load["resident"], load["n_procs"], load["util_gpu_pct"]) == (True, 3, 100)
    assert (load["energy_uj"], load["energy_source"]) == (631_950_000, "power_avg")
    assert not found.findings
    assert kit.capabilities(found)["fan_pct"] == "unsupported"


def test_masked_uuid_identifies_nothing(captures):
    found = captures(H100, node_id="n1")
    assert found.identity == {"n1/pci/00000000:00:09.0": "pci"}


def test_mig_has_no_utilisation_and_instances_no_power(captures, kit):
    found = captures(MIG)
    rows = kit.rows(found)
    devices = [row for row in rows if row["parent_uuid"] is None]
    instances = [row for row in rows if row["parent_uuid"] is not None]
    assert [row["power_avg_mw"] for row in devices] == [71_150, 433_780]
    assert all(row["util_gpu_pct"] is None and row["activity_source"] == "none" for row in devices)
    assert kit.capabilities(found)["util_gpu_pct"] == "unsupported"
    assert len(instances) == 8
    assert all(row["power_avg_mw"] is None and row["energy_uj"] is None for row in instances)
    loaded = [row for row in instances if row["resident"]]
    assert [(row["gpu_uuid"][-8:], row["n_procs"]) for row in loaded] == [("/mig/2/0", 3)]


def test_trap_is_called_what_it_is(captures, kit):
    found = captures(L40S)
    first, load = kit.rows(found)
    assert (first["util_gpu_pct"], first["power_avg_mw"], first["mem_used_mib"]) == (
        100,
        144_970,
        0,
    )
    assert first["resident"] is None  # not silently idle
    assert load["resident"] is True
    kinds = {item.kind: item.text for item in found.findings}
    assert set(kinds) == {"busy_but_empty", "not_idle_at_first"}
    assert "100 % utilisation, 145 W, 0 MiB in use" in kinds["busy_but_empty"]
    assert "66 W falling to 37 W" in kinds["not_idle_at_first"]


@pytest.mark.parametrize(
    ("name", "power", "source", "resident", "utilisation"),
    [
        ("a100-sxm4-v12", 67_030, "power_inst", False, None),
        ("tesla-t4", 26_780, "power_inst", True, 0),
        ("rtx-3080-v12", 22_780, "power_avg", True, 0),
        ("rtx-3080-v13", 139_620, "power_avg", True, 65),
        ("quadro-p400", None, None, False, 0),
    ],
)
def test_xml_of_every_schema(captures, kit, name, power, source, resident, utilisation):
    found = captures(f"nvidia-smi-xml/{name}.xml", zone="UTC")
    row = kit.rows(found)[0]
    column = "power_inst_mw" if source == "power_inst" else "power_avg_mw"
    assert (row[column], row["energy_source"]) == (power, source)
    assert row["energy_uj"] == (None if power is None else power * 1_000)
    assert (row["resident"], row["util_gpu_pct"]) == (resident, utilisation)
    reasons = kit.capabilities(found)
    assert all(reasons[column] is None for column in ("sm_clock_mhz", "temp_gpu_c", "pstate"))
    if name == "quadro-p400":
        assert not found.advice  # it has no power reading to ask for
        assert reasons["power_avg_mw"] == "unsupported"
    if name == "a100-sxm4-v12":
        assert reasons["util_gpu_pct"] == "unsupported"
        assert any("4 attached GPUs and describes 1" in note for note in found.notes)


def test_xml_names_no_zone(captures):
    with pytest.raises(FormatError, match="--zone"):
        captures("nvidia-smi-xml/tesla-t4.xml")


def test_mlperf_power(captures, kit):
    found = captures("power-mlperf/spl.txt", "power-mlperf/mlperf_log_detail.txt", zone="UTC")
    (window,) = found.windows
    assert window.mean_w == pytest.approx(3458.685, abs=1e-3)
    assert window.seconds == pytest.approx(717.8, abs=0.05)
    assert round(window.energy_j) == 2_477_347
    rows = kit.meters(found)
    assert {row["meter_id"] for row in rows} == {"total", "ch1", "ch2", "ch3"}
    total = [row for row in rows if row["meter_id"] == "total"]
    assert len(total) == 777
    assert total[0]["power_mw"] == 1_579_000
    assert total[0]["scope"] == "wall"
    assert {row["obs_ms"] for row in rows} == {1_000}
