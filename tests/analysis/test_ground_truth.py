"""Detectors against the truth of the simulated fleet: found states, energies and their bias."""

from dataclasses import dataclass

import numpy as np
import pytest

from analysis import score
from analysis.frame import mean_power
from analysis.power_states import (
    CLASSIFIER_COLUMNS,
    ENERGY_SOURCES,
    STATES,
    Column,
    Kind,
    Rows,
    classify,
    concat,
    raw_runs,
    shares,
    stitch,
    totals,
)
from collector.simulator.cluster import ClusterSpec
from collector.simulator.history import generate, truth
from idlewatt.cli import output
from idlewatt.columns import GPU_SAMPLE
from idlewatt.columns import Kind as ColumnKind
from idlewatt.model import EnergySource, State
from idlewatt.units import US_PER_HOUR

ORIGIN_US = 491_000 * US_PER_HOUR
KINDS = {column.name: column.kind for column in GPU_SAMPLE}
DTYPES = {
    ColumnKind.TS: "<i8",
    ColumnKind.I64: "<i8",
    ColumnKind.I32: "<i4",
    ColumnKind.I16: "<i2",
    ColumnKind.F32: "<f4",
    ColumnKind.STR: "<u2",
}
IDLE = STATES.index(State.EXECUTION_IDLE)


def bits(data, rows):
    flat = np.unpackbits(np.frombuffer(data, np.uint8), count=rows, bitorder="little")
    return flat.astype(bool)


def column(table, name):
    """Return a wire column as numpy values, or None."""
    data = table.columns.get(name)
    if data is None:
        return None
    valid = bits(data.valid, table.rows) if len(data.valid) else None
    if KINDS[name] is ColumnKind.BOOL:
        return Column(bits(data.data, table.rows), valid)
    return Column(np.frombuffer(data.data, DTYPES[KINDS[name]]), valid)


@dataclass
class Scored:
    """One row a second and GPU: what was found, what is true, and what other sources say."""

    found: np.ndarray
    run_ms: np.ndarray
    basis_counters: np.ndarray
    energy_uj: np.ndarray
    source: np.ndarray
    other_uj: dict
    true: np.ndarray
    true_uj: np.ndarray
    runs: object
    pieces: object

    def where(self, mask):
        return [array[mask] for array in (self.found, self.energy_uj, self.true, self.true_uj)]


def scored(hours, seed):
    spec = ClusterSpec(seed=seed, nodes=4, gpus_per_node=8, origin_us=ORIGIN_US)
    end_us = ORIGIN_US + hours * US_PER_HOUR
    parts = []
    for node in range(spec.nodes):
        mine = [hour["gpu_sample"] for hour in generate(spec, node, ORIGIN_US, end_us)]
        parts.append([node_rows(table, node * spec.gpus_per_node) for table in mine])
    what_is = truth(spec, ORIGIN_US, end_us)
    runs = concat([runs for node in parts for runs, _ in node])
    pieces = stitch(runs, 5)
    gpu, ts_us, energy, source, avg, inst = (
        np.concatenate([extra[at] for node in parts for _, extra in node]) for at in range(6)
    )
    order = np.lexsort((ts_us, gpu))
    column_of = (ts_us[order] - ORIGIN_US) // 1_000_000
    assert pieces.samples.sum() == len(order)
    counters = np.isin(pieces.kind, (Kind.ACTIVE_COUNTERS, Kind.LOW_COUNTERS))
    gpus_with_counters = np.unique(pieces.gpu[counters])
    return Scored(
        found=score.per_row(pieces.state, pieces.samples),
        run_ms=score.per_row(pieces.run_ms, pieces.samples),
        basis_counters=np.isin(gpu[order], gpus_with_counters),
        energy_uj=energy[order],
        source=source[order],
        other_uj={EnergySource.POWER_AVG: avg[order], EnergySource.POWER_INST: inst[order]},
        true=what_is.state[gpu[order], column_of],
        true_uj=what_is.true_energy_uj[gpu[order], column_of],
        runs=runs,
        pieces=pieces,
    )


def node_rows(table, first_gpu):
    """Return the runs of one node and hour, and (gpu, ts, energy, source, by avg, by inst)."""
    count = table.rows
    columns = {name: column(table, name) for name in CLASSIFIER_COLUMNS}
    columns = {name: found for name, found in columns.items() if found is not None}
    gpu = column(table, "gpu_uuid").values.astype(np.int32) + first_gpu
    codes = {word: code for code, word in enumerate(ENERGY_SOURCES)}
    words = np.array([codes[word] for word in table.columns["energy_source"].words], dtype=np.int8)
    source = words[column(table, "energy_source").values]
    rows = Rows(
        gpu,
        column(table, "ts_utc").values,
        column(table, "obs_ms").values.astype(np.int64),
        column(table, "energy_uj").values,
        source,
    )
    by_counter = source == ENERGY_SOURCES.index(EnergySource.COUNTER)
    columns["mean_power_mw"] = mean_power(rows.energy_uj, rows.obs_ms, by_counter)
    runs = raw_runs(rows, classify(columns, count), np.full(count, -1, dtype=np.int32))
    powers = [column(table, f"{name}_mw") for name in ("power_avg", "power_inst")]
    by_power = [
        np.full(count, -1, dtype=np.int64) if found is None else found.values * rows.obs_ms
        for found in powers
    ]
    return runs, (rows.gpu, rows.ts_us, rows.energy_uj, source, *by_power)


def stretches(true, seconds):
    """Return the lengths of the true idle stretches; rows are GPU by GPU, `seconds` each."""
    flags = np.pad(true.reshape(-1, seconds) == IDLE, ((0, 0), (1, 1))).astype(np.int8)
    edges = np.diff(flags, axis=1)
    return np.nonzero(edges == -1)[1] - np.nonzero(edges == 1)[1]


def check(found: Scored, hours, say):
    median = np.median(stretches(found.true, hours * 3600))
    say(f"{len(found.found)} seconds of GPUs; true idle stretches have a median of {median:.0f} s")
    assert median <= 15
    check_detection(found, hours, say)
    check_energy(found, say)
    one, five, ten = shares(found.runs)
    for item in (one, five, ten):
        say(
            f"runs of {item.min_interval_s} s and more: {100 * item.time:.2f} % of time, "
            f"{100 * item.energy:.2f} % of energy in execution"
        )
    assert one.time > five.time > ten.time > 0
    assert one.energy > five.energy > ten.energy > 0
    assert sum(total.energy_uj or 0 for total in totals(found.pieces)) == found.energy_uj.sum()


def check_detection(found, hours, say):
    for name, mask in (
        ("activity counters", found.basis_counters),
        ("utilisation", ~found.basis_counters),
    ):
        got = score.detection(found.found[mask], found.true[mask])
        say(
            f"by {name}: {got.true_s} s execution-idle, precision {got.precision:.4f}, "
            f"recall {got.recall:.4f}"
        )
        assert got.true_s > 1000 * hours
        assert got.precision >= 0.98
        assert got.recall >= 0.98


def check_energy(found, say):
    """Energies against the truth where the energy counter is the source.

    The whole error counts, that of detection included, and the error of measurement alone.
    """
    by_counter = found.source == ENERGY_SOURCES.index(EnergySource.COUNTER)
    for name, mask in (
        ("activity counters", found.basis_counters),
        ("utilisation", ~found.basis_counters),
    ):
        chosen = by_counter & mask
        states, energy_uj, true, true_uj = found.where(chosen)
        for state, item in score.energy_by_state(states, energy_uj, true, true_uj).items():
            if item.true_uj:
                say(f"by {name}: energy {state.value} {100 * item.error:+.3f} %")
                if state is not State.UNKNOWN:
                    assert abs(item.error) <= 0.01, (name, state)
        for state, item in score.energy_by_state(states, energy_uj, states, true_uj).items():
            # Unknown is a handful of seconds in which power fell: too few to judge a sensor by.
            if item.true_uj and state is not State.UNKNOWN:
                assert abs(item.error) <= 0.01, (name, state)
        run_ms = found.run_ms[chosen]
        short = score.energy_of_short_runs(states, run_ms, energy_uj, true_uj)
        say(f"by {name}: execution-idle runs under 30 s {100 * short.error:+.3f} %")
        assert abs(short.error) <= 0.03
    for source, values in found.other_uj.items():
        check_bias(found, source, values, say)


def check_bias(found, source, values, say):
    """Print what the energy would be from a power reading alone."""
    mask = values >= 0
    state, true_uj = found.found[mask], found.true_uj[mask]
    errors = {
        name.value: item.error
        for name, item in score.energy_by_state(state, values[mask], state, true_uj).items()
        if item.true_uj
    }
    short = score.energy_of_short_runs(state, found.run_ms[mask], values[mask], true_uj)
    text = ", ".join(f"{name} {100 * error:+.2f} %" for name, error in errors.items())
    say(f"bias of {source.value}: {text}, idle runs under 30 s {100 * short.error:+.2f} %")
    assert set(errors) >= {"active", "execution_idle", "deep_idle"}
    # Power readings at the edges of short runs still carry the power of work: a bias, not noise.
    assert abs(errors["active"]) < 0.1


@pytest.mark.parametrize("seed", [1, 7])
def test_a_few_simulated_hours_are_found_as_they_were(seed):
    check(scored(2, seed), 2, output.say)


@pytest.mark.integration
def test_the_simulated_day_is_found_as_it_was(capsys):
    found = scored(24, 42)
    with capsys.disabled():
        output.say()
        check(found, 24, output.say)
