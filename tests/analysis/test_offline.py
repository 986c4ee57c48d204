"""What files say: hand-computed logs, identity across files, buckets, findings."""

import datetime as dt

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from analysis.classify import STATES
from analysis.offline import analyse
from analysis.offline_json import as_json
from analysis.offline_model import Offline
from analysis.offline_rows import Gatherer
from analysis.offline_series import LADDER_S, MOST_CELLS, bucket_width_s
from collector.formats import Options, Source, read
from idlewatt.model import Basis, State, Thresholds

HEAD = (
    "timestamp, index, uuid, name, utilization.gpu [%], utilization.memory [%], "
    "memory.used [MiB], power.draw [W], enforced.power.limit [W]\n"
)
MODEL = "NVIDIA A100-SXM4-80GB"  # power.draw is a momentary reading here
BEGIN = dt.datetime(2026, 7, 14, 11, 59, 40, tzinfo=dt.UTC)
WORK, WAIT, EMPTY = (80, 40, 5_000, 300), (0, 0, 5_000, 100), (0, 0, 0, 50)


def line(second, gpu, values, uuid=None):
    use, mem_use, mib, watts = values
    stamp = (BEGIN + dt.timedelta(seconds=second)).strftime("%Y/%m/%d %H:%M:%S.000")
    uuid = uuid or f"GPU-{gpu:08d}-aaaa-bbbb-cccc-dddddddddddd"
    return (
        f"{stamp}, {gpu}, {uuid}, {MODEL}, {use} %, {mem_use} %, {mib} MiB, {watts:.2f} W, "
        "400.00 W\n"
    )


def log(*gpus):
    """Return a log; each GPU is a list of (seconds, values)."""
    series = [[values for seconds, values in gpu for _ in range(seconds)] for gpu in gpus]
    rounds = zip(*series, strict=True)
    return HEAD + "".join(
        line(second, gpu, values)
        for second, row in enumerate(rounds, 1)
        for gpu, values in enumerate(row)
    )


def gathered(*texts, **options):
    gatherer = Gatherer()
    for number, text in enumerate(texts):
        gatherer.begin_file(f"file{number}")
        found = read([Source(f"f{number}", text.encode())], Options(zone=dt.UTC, **options))
        gatherer.add(found.samples, found.tables["device"])
    return gatherer.finish()


def analysed(*texts, **limits):
    return analyse(gathered(*texts), Thresholds(**limits))


def figures(totals):
    return {
        total.state: (total.obs_ms // 1_000, total.energy_uj and total.energy_uj // 1_000_000)
        for total in totals.states
    }


THREE_STATES = [(20, WORK), (20, WAIT), (20, EMPTY)]


def test_states_and_energies_by_hand():
    result = analysed(log(THREE_STATES))
    assert figures(result.totals) == {
        State.ACTIVE: (20, 6_000),
        State.EXECUTION_IDLE: (20, 2_000),
        State.DEEP_IDLE: (20, 1_000),
        State.UNKNOWN: (0, None),
    }
    assert result.totals.held_ms == 40_000
    assert result.totals.idle_time_share == 0.5
    assert result.totals.idle_energy_share == 0.25
    assert result.totals.basis_ms == {Basis.UTILISATION: 40_000}
    assert result.totals.coverage == 1
    (gpu,) = result.gpus
    assert (gpu.gpu.index, gpu.gpu.model) == (0, MODEL)
    assert (gpu.mean_w, gpu.peak_w, gpu.limit_w) == (150, 300, 400)
    assert gpu.totals.mean_w(State.EXECUTION_IDLE) == 100


def test_a_run_over_an_hour_is_one_run():
    # 20 s of waiting from 11:59:50 to 12:00:10: two pieces, one run.
    result = analysed(log([(10, WORK), (20, WAIT), (5, WORK)]))
    (run,) = result.runs
    assert run.length_ms == 20_000
    assert run.energy_uj == 2_000_000_000
    at = int(BEGIN.timestamp()) * 1_000_000
    assert (run.begin_us, run.end_us) == (at + 10_000_000, at + 30_000_000)
    assert result.gpus[0].longest == run
    assert (result.gpus[0].idle_runs, result.gpus[0].idle_median_s) == (1, 20)
    assert result.gpus[0].idle_long_ms == 0


def test_a_short_pause_counts_as_active_unless_asked_for():
    text = log([(20, WORK), (3, WAIT), (20, WORK)])
    assert figures(analysed(text).totals)[State.EXECUTION_IDLE] == (0, None)
    assert figures(analysed(text, min_interval_s=1).totals)[State.EXECUTION_IDLE] == (3, 300)
    by_length = {item.min_interval_s: item.time for item in analysed(text).by_length}
    assert by_length == {1: pytest.approx(3 / 43), 5: 0, 10: 0}


def test_holes_lower_the_coverage_and_end_runs():
    lines = log([(10, WORK), (30, WAIT), (10, WORK)]).splitlines(keepends=True)
    result = analysed("".join(lines[:21] + lines[31:]))  # seconds 21 to 30 are gone
    assert result.totals.seen_ms == 40_000
    assert result.totals.coverage == 0.8
    assert [run.length_ms for run in result.runs] == [10_000, 10_000]


def test_without_power_the_energy_is_unknown_and_not_zero():
    text = "\n".join(
        row.rpartition(", ")[0].rpartition(", ")[0] for row in log(THREE_STATES).splitlines()
    )
    result = analysed(text + "\n")
    assert result.totals.energy_uj is None
    assert result.totals.idle_energy_share is None
    assert result.totals.idle_time_share == 0.5
    assert result.gpus[0].mean_w is None
    assert np.isnan(result.series.gpus[0].mean_w).all()
    assert as_json(result)["totals"]["energy_j"] is None


def test_nothing_gives_nothing():
    result = analyse(Gatherer().finish())
    assert (result.rows, result.gpus, result.totals.coverage) == (0, (), None)
    assert isinstance(as_json(result), dict)
    assert result == Offline()


def test_few_readings_are_moments():
    result = analysed(log([(1, WAIT)], [(1, WORK)], [(1, EMPTY)]))
    assert result.only_moments
    assert [moment.raw for moment in result.moments] == ["low", "active", "deep_idle"]
    assert result.moments[0].power_w == 100
    assert (result.runs, result.by_length) == ((), ())


def test_consecutive_files_are_one_log_and_what_overlaps_counts_once():
    lines = log(THREE_STATES).splitlines(keepends=True)
    whole = analysed("".join(lines))
    apart = analysed("".join(lines[:31]), HEAD + "".join(lines[25:]))
    assert as_json(apart) == as_json(whole)


def test_gpus_known_by_index_alone_are_two_nodes_where_their_times_overlap():
    nameless = log(THREE_STATES).replace("GPU-00000000-aaaa-bbbb-cccc-dddddddddddd", "N/A")
    lines = nameless.splitlines(keepends=True)
    same = analysed("".join(lines[:31]), HEAD + "".join(lines[31:]))
    assert len(same.gpus) == 1
    two = analysed(nameless, nameless)
    assert [item.gpu.node_id for item in two.gpus] == ["file1", "imported"]
    assert two.totals.seen_ms == 2 * same.totals.seen_ms


def test_gpus_with_a_uuid_are_the_same_in_every_file():
    text = log(THREE_STATES)
    assert as_json(analysed(text, text)) == as_json(analysed(text))


def test_a_file_that_is_forgotten_leaves_nothing():
    found = read([Source("f", log(THREE_STATES).encode())], Options(zone=dt.UTC))
    gatherer = Gatherer()
    gatherer.begin_file("a")
    gatherer.add(found.samples[:30], found.tables["device"])
    gatherer.forget_file()
    gatherer.add(found.samples, found.tables["device"])
    assert as_json(analyse(gatherer.finish())) == as_json(analysed(log(THREE_STATES)))


TRAP = (100, 0, 0, 145)
SPIN = (100, 0, 5_000, 90)
AT_POWER = (0, 0, 5_000, 300)


@pytest.mark.parametrize(
    ("values", "kind", "state"),
    [
        (TRAP, "busy_but_empty", State.UNKNOWN),
        (AT_POWER, "zero_at_power", State.UNKNOWN),
        (SPIN, "busy_at_low_power", State.ACTIVE),
    ],
)
def test_readings_that_mislead_are_found(values, kind, state):
    result = analysed(log([(10, WORK), (70, values)]))
    (found,) = result.findings
    assert (found.kind, found.rows, found.time_ms) == (kind, 70, 70_000)
    assert (found.util_pct, found.power_w, found.mem_mib) == (values[0], values[3], values[2])
    assert figures(result.totals)[state][0] == (80 if state is State.ACTIVE else 70)


def test_a_second_in_a_long_log_is_no_finding():
    assert analysed(log([(2, TRAP), (2_100, EMPTY)])).findings == ()
    assert analysed(log([(3, TRAP), (2_100, EMPTY)])).findings != ()


def test_honest_readings_have_no_findings():
    assert analysed(log([(100, WORK), (100, WAIT), (100, EMPTY)])).findings == ()


def test_buckets_add_up_to_the_rows():
    result = analysed(log([(700, WORK), (900, WAIT), (400, EMPTY)], [(1_000, WAIT), (1_000, WORK)]))
    assert result.series.bucket_s == 5
    for item, gpu in zip(result.series.gpus, result.gpus, strict=True):
        by_state = dict(zip(STATES, item.state_ms.sum(axis=1).tolist(), strict=True))
        assert by_state == {total.state: total.obs_ms for total in gpu.totals.states}
    first = result.series.gpus[0]
    assert (np.nanmax(first.high_w), np.nanmin(first.low_w)) == (300, 50)
    assert np.all((first.low_w <= first.mean_w) & (first.mean_w <= first.high_w))


def test_a_spike_of_one_second_is_in_the_band():
    result = analysed(log([(500, WAIT), (1, (90, 10, 5_000, 390)), (1_500, WAIT)]))
    assert result.series.bucket_s > 1
    assert np.nanmax(result.series.gpus[0].high_w) == 390
    assert result.gpus[0].peak_w == 390


@given(
    st.integers(0, 4_000_000_000),
    st.integers(1, 40_000_000),
    st.integers(1, 86_400_000),
    st.integers(1, 16),
)
def test_buckets_are_few_and_never_narrower_than_the_interval(first_s, span_s, interval_ms, gpus):
    first_us = first_s * 1_000_000
    width_s = bucket_width_s(first_us, first_us + span_s * 1_000_000, interval_ms, gpus)
    assert width_s * 1_000 >= interval_ms
    assert span_s / width_s * gpus <= MOST_CELLS
    assert width_s in LADDER_S or width_s % 86_400 == 0


VALUES = st.sampled_from([WORK, WAIT, EMPTY, TRAP, SPIN, AT_POWER])


@settings(max_examples=30, deadline=None)
@given(st.lists(st.tuples(st.integers(1, 30), VALUES), min_size=1, max_size=8), st.integers(1, 12))
def test_states_are_exhaustive_and_energies_add_up(parts, minimum_s):
    result = analysed(log(parts), min_interval_s=minimum_s)
    seconds = sum(count for count, _ in parts)
    joules = sum(count * values[3] for count, values in parts)
    totals = result.totals
    assert sum(total.obs_ms for total in totals.states) == totals.seen_ms == seconds * 1_000
    assert totals.energy_uj == joules * 1_000_000
    for run in result.runs:
        assert run.length_ms >= minimum_s * 1_000 - 500
