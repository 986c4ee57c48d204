"""The check values that the definition of execution-idle must give, each as a test of its own."""

import numpy as np
import pytest

from analysis.power_states import (
    ENERGY_SOURCES,
    STATES,
    Column,
    Intervals,
    Rows,
    Runs,
    classify,
    concat,
    raw_runs,
    shares,
    stitch,
    totals,
)
from idlewatt.model import Basis, EnergySource, State

T0_US = 1_771_200_000 * 1_000_000 + 1_000_000  # one second into an hour
BUSY = {"sm_active": 0.9, "tensor_active": 0.5, "dram_active": 0.4, "pcie_tx_bytes_s": 2e7}
LOW = {"sm_active": 0.0, "tensor_active": 0.0, "dram_active": 0.01, "pcie_tx_bytes_s": 0}
INTEGERS = ("pcie_tx_bytes_s", "nvlink_rx_bytes_s", "util_gpu_pct", "util_mem_pct")


def runs_of(samples, *, gpu=0, job=0, t0_us=T0_US):
    """Return raw runs of one GPU; a sample None is a missing second."""
    seconds = [second for second, sample in enumerate(samples) if sample is not None]
    present = [{"resident": True, **sample} for sample in samples if sample is not None]
    columns = {}
    for name in {name for sample in present for name in sample} - {"energy_uj", "source"}:
        dtype = bool if name == "resident" else np.int64 if name in INTEGERS else np.float32
        if name.endswith("_mw"):
            dtype = np.int32
        columns[name] = Column.of([sample.get(name) for sample in present], dtype)
    source = [
        ENERGY_SOURCES.index(sample.get("source", "counter")) if "energy_uj" in sample else -1
        for sample in present
    ]
    rows = Rows(
        np.full(len(present), gpu, dtype=np.int32),
        np.array([t0_us + second * 1_000_000 for second in seconds], dtype=np.int64),
        np.full(len(present), 1000, dtype=np.int64),
        np.array([sample.get("energy_uj", 0) for sample in present], dtype=np.int64),
        np.array(source, dtype=np.int8),
    )
    kind = classify(columns, len(present))
    return raw_runs(rows, kind, np.full(len(present), job, dtype=np.int32))


def seconds_by_state(intervals: Intervals) -> dict[State, float]:
    return {total.state: total.obs_ms / 1000 for total in totals(intervals) if total.obs_ms}


def states_of(samples, min_interval_s=5):
    return seconds_by_state(stitch(runs_of(samples), min_interval_s))


def test_four_low_seconds_are_no_execution_idle():
    assert states_of([BUSY] * 3 + [LOW] * 4 + [BUSY] * 3) == {State.ACTIVE: 10}


def test_five_low_seconds_are_five_seconds_of_execution_idle():
    assert states_of([BUSY] * 3 + [LOW] * 5 + [BUSY] * 3) == {
        State.ACTIVE: 6,
        State.EXECUTION_IDLE: 5,
    }


def test_activity_at_the_threshold_exactly_is_not_low():
    edge = LOW | {"sm_active": 0.05}
    assert states_of([LOW] * 9 + [edge]) == {State.EXECUTION_IDLE: 9, State.ACTIVE: 1}


@pytest.mark.parametrize("signal", ["tensor_active", "fp16_active", "fp64_active", "dram_active"])
def test_every_pipe_and_the_memory_interface_are_tested(signal):
    assert states_of([LOW | {signal: 0.05}] * 6) == {State.ACTIVE: 6}
    assert states_of([LOW | {signal: 0.0499}] * 6) == {State.EXECUTION_IDLE: 6}


@pytest.mark.parametrize("signal", ["gr_active", "sm_occupancy"])
def test_engine_time_and_occupancy_are_not_part_of_the_test(signal):
    assert states_of([LOW | {signal: 1.0}] * 6) == {State.EXECUTION_IDLE: 6}


def test_pcie_just_under_one_gigabyte_per_second_is_low():
    assert states_of([LOW | {"pcie_tx_bytes_s": 999_000_000}] * 6) == {State.EXECUTION_IDLE: 6}
    assert states_of([LOW | {"pcie_tx_bytes_s": 999_999_999}] * 6) == {State.EXECUTION_IDLE: 6}


def test_pcie_at_one_gigabyte_per_second_is_not_low():
    assert states_of([LOW | {"pcie_tx_bytes_s": 1_000_000_000}] * 6) == {State.ACTIVE: 6}


def test_directions_are_tested_one_by_one_and_not_summed():
    both = LOW | {"pcie_tx_bytes_s": 600_000_000, "nvlink_rx_bytes_s": 600_000_000}
    assert states_of([both] * 6) == {State.EXECUTION_IDLE: 6}


def test_a_gpu_without_the_fp64_counter_can_be_classified():
    low = {"sm_active": 0.0, "tensor_active": 0.0, "fp64_active": None, "dram_active": 0.0}
    assert states_of([low] * 5 + [BUSY]) == {State.EXECUTION_IDLE: 5, State.ACTIVE: 1}


def test_a_null_nvlink_is_left_out_and_a_measured_one_counts():
    assert states_of([LOW | {"nvlink_rx_bytes_s": None}] * 6) == {State.EXECUTION_IDLE: 6}
    mixed = [LOW | {"nvlink_rx_bytes_s": value} for value in (None, 2_000_000_000)]
    assert states_of(mixed * 3) == {State.ACTIVE: 6}


def test_losing_residency_splits_the_run():
    gone = LOW | {"resident": False}
    assert states_of([LOW] * 2 + [gone] + [LOW] * 4) == {State.ACTIVE: 6, State.DEEP_IDLE: 1}
    assert states_of([LOW] * 2 + [gone] + [LOW] * 5) == {
        State.ACTIVE: 2,
        State.DEEP_IDLE: 1,
        State.EXECUTION_IDLE: 5,
    }


def test_a_counter_reset_inside_a_run_takes_that_second_from_power():
    idle = LOW | {"energy_uj": 120_000_000, "source": EnergySource.COUNTER}
    reset = LOW | {"energy_uj": 118_000_000, "source": EnergySource.POWER_AVG}
    pieces = stitch(runs_of([idle] * 3 + [reset] + [idle] * 3), 5)
    assert len(pieces) == 1
    assert pieces.energy_uj[:, 0].tolist() == [6 * 120_000_000, 118_000_000, 0]
    assert pieces.energy_seen[:, 0].tolist() == [True, True, False]
    assert pieces.energy_obs_ms.tolist() == [7000]


def test_shares_are_monotone_in_the_minimum_length():
    pattern = [BUSY | {"energy_uj": 400}] * 4
    for length in (1, 2, 4, 5, 6, 9, 10, 12):
        pattern += [LOW | {"energy_uj": 100}] * length + [BUSY | {"energy_uj": 400}] * 3
    one, five, ten = shares(runs_of(pattern), (1, 5, 10))
    assert (one.execution_idle_ms, five.execution_idle_ms, ten.execution_idle_ms) == (
        49_000,
        42_000,
        22_000,
    )
    assert one.time > five.time > ten.time > 0
    assert one.energy > five.energy > ten.energy > 0


@pytest.mark.parametrize("attributed_only", [False, True])
def test_unallocated_rows_do_not_change_the_in_execution_share(attributed_only):
    energy = {"energy_uj": 100}
    held = runs_of([BUSY | energy] * 7 + [LOW | energy] * 6 + [BUSY | energy] * 2)
    empty = [LOW | energy | {"resident": False}] * 500
    # Where owners are known, work of nobody is outside too.
    extra = empty + [LOW | energy] * 50 * attributed_only
    both = concat([held, runs_of(extra, gpu=1, job=-1)])
    before = shares(held, attributed_only=attributed_only)
    assert shares(both, attributed_only=attributed_only) == before
    assert before[1].time == pytest.approx(6 / 15)
    assert before[1].energy == pytest.approx(6 / 15)


def test_unknown_residency_is_unknown_and_ends_a_run():
    nobody_can_say = LOW | {"resident": None}
    runs = runs_of([LOW] * 4 + [nobody_can_say] + [LOW] * 4)
    assert seconds_by_state(stitch(runs, 5)) == {State.ACTIVE: 8, State.UNKNOWN: 1}


def test_without_any_activity_signal_the_state_is_unknown():
    runs = runs_of([{"pcie_tx_bytes_s": 0}] * 6)
    pieces = stitch(runs, 5)
    assert [STATES[code] for code in pieces.state] == [State.UNKNOWN]


def test_utilisation_stands_in_only_where_counters_are_missing():
    by_use = {"util_gpu_pct": 0, "util_mem_pct": 0, "pcie_tx_bytes_s": 0}
    assert states_of([by_use] * 5) == {State.EXECUTION_IDLE: 5}
    assert states_of([by_use | {"util_mem_pct": 1}] * 5) == {State.ACTIVE: 5}
    assert states_of([by_use | {"pcie_tx_bytes_s": 1_000_000_000}] * 5) == {State.ACTIVE: 5}
    assert states_of([by_use | {"util_mem_pct": None}] * 5) == {State.UNKNOWN: 5}
    assert states_of([by_use | {"sm_active": 0.5}] * 5) == {State.ACTIVE: 5}


@pytest.mark.parametrize(
    ("readings", "state"),
    [
        ({"mean_power_mw": 140_000, "power_inst_mw": 100_000}, State.ACTIVE),
        ({"mean_power_mw": 105_000, "power_inst_mw": 100_000}, State.EXECUTION_IDLE),
        ({"mean_power_mw": None, "power_inst_mw": 100_000}, State.EXECUTION_IDLE),
        ({"mean_power_mw": 140_000, "power_inst_mw": None}, State.EXECUTION_IDLE),
    ],
)
def test_by_utilisation_a_second_in_which_power_fell_is_not_low(readings, state):
    assert states_of([{"util_gpu_pct": 0, "util_mem_pct": 0} | readings] * 5) == {state: 5}
    # Counters see the whole second and need no help.
    assert states_of([LOW | readings] * 5) == {State.EXECUTION_IDLE: 5}


@pytest.mark.parametrize(
    ("readings", "state"),
    [
        ({"power_avg_mw": 350_000}, State.UNKNOWN),
        ({"power_avg_mw": 349_999}, State.EXECUTION_IDLE),
        ({"power_avg_mw": 600_000, "power_inst_mw": 120_000}, State.EXECUTION_IDLE),
        ({}, State.EXECUTION_IDLE),
    ],
)
@pytest.mark.parametrize("basis", [Basis.COUNTERS, Basis.UTILISATION])
def test_no_activity_at_half_the_power_limit_is_unknown(readings, state, basis):
    zero = {"sm_active": 0.0, "dram_active": 0.0}
    if basis is Basis.UTILISATION:
        zero = {"util_gpu_pct": 0, "util_mem_pct": 0}
    assert states_of([zero | {"power_limit_mw": 700_000} | readings] * 5) == {state: 5}


def test_a_missing_second_ends_a_run():
    assert states_of([LOW] * 4 + [None] + [LOW] * 4) == {State.ACTIVE: 8}
    assert states_of([LOW] * 5 + [None] + [LOW] * 4) == {State.EXECUTION_IDLE: 5, State.ACTIVE: 4}


def test_a_change_of_owner_splits_the_accounting_and_not_the_length_test():
    first = runs_of([LOW] * 3, job=0)
    second = runs_of([LOW] * 3, job=1, t0_us=T0_US + 3_000_000)
    pieces = stitch(concat([first, second]), 5)
    assert [STATES[code] for code in pieces.state] == [State.EXECUTION_IDLE] * 2
    assert pieces.job.tolist() == [0, 1]
    assert pieces.run_ms.tolist() == [6000, 6000]


def test_pieces_are_cut_at_the_hour_of_their_stamps():
    start = T0_US - 4_000_000  # 12:59:57
    pieces = stitch(runs_of([LOW] * 8, t0_us=start), 5)
    assert pieces.samples.tolist() == [3, 5]  # 13:00:00 belongs to the 13 h bucket
    assert pieces.run_ms.tolist() == [8000, 8000]


def test_an_import_with_another_interval_is_one_run():
    rows = Rows(
        np.zeros(4, dtype=np.int32),
        T0_US + np.arange(4, dtype=np.int64) * 15_000_000,
        np.full(4, 15_000, dtype=np.int64),
        np.zeros(4, dtype=np.int64),
        np.full(4, -1, dtype=np.int8),
    )
    columns = {
        "resident": Column.of([True] * 4, bool),
        "sm_active": Column.of([0.0] * 4, np.float32),
    }
    runs: Runs = raw_runs(rows, classify(columns, 4), np.zeros(4, dtype=np.int32))
    pieces = stitch(runs, 60)
    assert pieces.obs_ms.tolist() == [60_000]
    assert pieces.energy_obs_ms.tolist() == [0]
    assert not pieces.energy_seen.any()
