"""Schedule and ground truth: deterministic, whole, and free of any detector."""

from __future__ import annotations

import itertools
import subprocess
import sys
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collector.simulator.cluster import ClusterSpec, Schedule, device_of, schedule_of
from collector.simulator.hours import hour_of, hour_track
from collector.simulator.truth import (
    ACTIVE,
    CAUSES,
    DEEP_IDLE,
    EXECUTION_IDLE,
    Truth,
    truth,
)
from collector.simulator.workload import WORK, segment
from idlewatt.errors import UsageError

S = 1_000_000
HOUR = 3_600 * S
ORIGIN = 1_760_000_400_000_000
SPEC = ClusterSpec(seed=11, nodes=4, gpus_per_node=8, origin_us=ORIGIN)


def test_the_schedule_is_the_same_however_it_is_asked_for() -> None:
    at_once, step_by_step = Schedule(SPEC), Schedule(SPEC)
    at_once.extend(36 * 3600.0)
    for hour in range(37):
        step_by_step.extend(hour * 3600.0)
    for gpu in range(SPEC.gpus):
        jobs = at_once.jobs_on(gpu, -1e9, 36 * 3600.0)
        assert jobs == step_by_step.jobs_on(gpu, -1e9, 36 * 3600.0)
        assert jobs


def test_the_schedule_is_the_same_in_another_process() -> None:
    code = (
        "from collector.simulator.cluster import ClusterSpec, schedule_of;"
        f"spec = ClusterSpec(11, 4, 8, {ORIGIN});"
        "print([j.key + str(j.start_s) for j in schedule_of(spec).jobs_on(5, 0, 86400)])"
    )
    out = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    jobs = schedule_of(SPEC).jobs_on(5, 0, 86400)
    assert out.stdout.strip() == str([job.key + str(job.start_s) for job in jobs])


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_gpu_has_one_owner_and_most_gpus_have_one(seed: int) -> None:
    spec = ClusterSpec(seed=seed, nodes=4, gpus_per_node=8, origin_us=ORIGIN)
    held_s, span_s = 0.0, 24 * 3600.0
    for gpu in range(spec.gpus):
        jobs = schedule_of(spec).jobs_on(gpu, 0.0, span_s)
        for before, after in itertools.pairwise(jobs):
            assert before.end_s <= after.start_s
        for job in jobs:
            assert gpu in job.gpus
            assert job.submit_s <= job.start_s < job.context_s <= job.exit_s <= job.end_s or (
                job.kind == "held" and job.context_s == job.exit_s == job.end_s
            )
            held_s += min(job.end_s, span_s) - max(job.start_s, 0.0)
    assert 0.82 < held_s / span_s / spec.gpus < 0.93


def test_all_kinds_of_jobs_appear_and_some_span_gpus_and_nodes() -> None:
    jobs = {
        job.key: job
        for gpu in range(SPEC.gpus)
        for job in schedule_of(SPEC).jobs_on(gpu, 0.0, 24 * 3600.0)
    }
    kinds = {job.kind for job in jobs.values()}
    assert kinds == {"training", "serving", "batch", "notebook", "held"}
    assert {job.job_class for job in jobs.values()} == {
        "training", "serving", "batch", "interactive", "other",
    }  # fmt: skip
    assert max(len(job.gpus) for job in jobs.values()) == 16
    for job in jobs.values():
        models = {SPEC.profile_of(gpu // 8).key for gpu in job.gpus}
        assert len(models) == 1


def test_another_seed_is_another_cluster() -> None:
    other = ClusterSpec(seed=12, nodes=4, gpus_per_node=8, origin_us=ORIGIN)
    assert device_of(SPEC, 3).uuid != device_of(other, 3).uuid
    assert schedule_of(SPEC).jobs_on(0, 0, 86400) != schedule_of(other).jobs_on(0, 0, 86400)


def test_ranks_of_a_training_job_move_in_step_and_replicas_do_not() -> None:
    jobs = {
        job.key: job
        for gpu in range(SPEC.gpus)
        for job in schedule_of(SPEC).jobs_on(gpu, 0.0, 24 * 3600.0)
        if len(job.gpus) > 1
    }
    seen = set()
    for job in jobs.values():
        if job.kind not in ("training", "serving"):
            continue
        first, second = segment(SPEC.seed, job, 0, 3), segment(SPEC.seed, job, 1, 3)
        together = np.array_equal(first.starts, second.starts)
        assert together is (job.kind == "training")
        seen.add(job.kind)
    assert seen == {"training", "serving"}


def some_truth(**options: int) -> Truth:
    return truth(SPEC, ORIGIN + HOUR, ORIGIN + 4 * HOUR, **options)


def test_truth_is_the_same_in_pieces_across_hours() -> None:
    whole = some_truth()
    cut = ORIGIN + 2 * HOUR + 1_234 * S
    parts = [truth(SPEC, ORIGIN + HOUR, cut), truth(SPEC, cut, ORIGIN + 4 * HOUR)]
    for name in ("state", "cause", "true_energy_uj"):
        joined = np.concatenate([getattr(part, name) for part in parts], axis=1)
        assert np.array_equal(joined, getattr(whole, name))


def test_states_follow_from_residency_and_work() -> None:
    whole = truth(SPEC, ORIGIN + HOUR, ORIGIN + 9 * HOUR)
    assert set(np.unique(whole.state)) == {ACTIVE, EXECUTION_IDLE, DEEP_IDLE}
    free = whole.job == -1
    assert np.all(whole.state[free] == DEEP_IDLE)
    assert np.all(whole.cause[whole.state == ACTIVE] == CAUSES.index("work"))
    assert not np.any(whole.cause[whole.state != ACTIVE] == CAUSES.index("work"))
    assert set(np.unique(whole.cause)) == set(range(len(CAUSES)))


def test_idle_runs_are_long_enough_and_typically_short() -> None:
    state = some_truth().state
    lengths = []
    for row in state:
        edges = np.flatnonzero(np.diff(np.concatenate([[0], row == EXECUTION_IDLE, [0]])))
        lengths.extend((edges[1::2] - edges[::2])[1:-1])  # not those cut by the window
    assert min(lengths) == 5
    assert np.median(lengths) <= 15


def test_an_idle_second_has_at_most_5_percent_of_work() -> None:
    window = (ORIGIN + HOUR, ORIGIN + 2 * HOUR)
    part = truth(SPEC, *window)
    for gpu in range(0, SPEC.gpus, 3):
        track = hour_track(SPEC, gpu, hour_of(window[0]))
        edges = SPEC.seconds(window[0]) + np.arange(-1.0, 3600.0)
        work_s = np.diff(track.column(edges, WORK))
        assert np.all(work_s[part.state[gpu] == EXECUTION_IDLE] <= 0.05 + 1e-9)


@settings(max_examples=15)
@given(st.integers(1, 20), st.integers(1, 20))
def test_shares_are_monotone_in_the_interval(one: int, other: int) -> None:
    low, high = sorted((one, other))
    window = (ORIGIN + HOUR, ORIGIN + HOUR + 900 * S)
    nodes = range(2)
    wide = truth(SPEC, *window, min_interval_s=low, nodes=nodes).state == EXECUTION_IDLE
    narrow = truth(SPEC, *window, min_interval_s=high, nodes=nodes).state == EXECUTION_IDLE
    assert not np.any(narrow & ~wide)


@settings(max_examples=25)
@given(st.integers(0, 7000), st.integers(1, 600))
def test_a_window_of_truth_is_a_cut_of_the_whole(first_s: int, length_s: int) -> None:
    low = ORIGIN + HOUR + first_s * S
    part = truth(SPEC, low, low + length_s * S, nodes=range(1))
    whole = truth(SPEC, ORIGIN + HOUR, ORIGIN + HOUR + 7600 * S, nodes=range(1))
    cut = slice(first_s, first_s + length_s)
    assert np.array_equal(part.state, whole.state[:, cut])
    assert np.array_equal(part.true_energy_uj, whole.true_energy_uj[:, cut])
    keys = np.array([*part.job_keys, ""])[part.job]
    assert np.array_equal(keys, np.array([*whole.job_keys, ""])[whole.job][:, cut])


def test_idle_costs_less_than_work_and_more_than_nothing() -> None:
    whole = some_truth()
    for node in range(SPEC.nodes):
        rows = slice(node * 8, node * 8 + 8)
        power = SPEC.profile_of(node).power
        joules = whole.true_energy_uj[rows] / 1e6
        state = whole.state[rows]
        idle = joules[state == EXECUTION_IDLE].mean()
        assert idle == pytest.approx(power.resident_w.value, rel=0.06)
        assert joules[state == ACTIVE].mean() > idle * 1.3
        assert joules[state == DEEP_IDLE].mean() == pytest.approx(power.bare_w.value, rel=0.02)


@settings(max_examples=25)
@given(
    st.integers(1, 5),
    st.integers(1, 8),
    st.integers(0, 2**31),
    st.floats(0.05, 1.0),
    st.lists(st.sampled_from(["H100-SXM", "A100-SXM4-80GB", "L40S"]), min_size=1, max_size=4),
)
def test_any_cluster_has_a_schedule(
    nodes: int, gpus: int, seed: int, fill: float, models: list[str]
) -> None:
    spec = ClusterSpec(seed, nodes, gpus, ORIGIN, models=tuple(models), fill=fill)
    schedule = Schedule(spec)
    for gpu in range(spec.gpus):
        jobs = schedule.jobs_on(gpu, -1e9, 30 * 3600.0)
        assert all(a.end_s <= b.start_s for a, b in itertools.pairwise(jobs))
        assert all(gpu in job.gpus and len(set(job.gpus)) == len(job.gpus) for job in jobs)


@pytest.mark.parametrize(
    "wrong",
    [{"nodes": 0}, {"gpus_per_node": 0}, {"fill": 0.0}, {"models": ()}, {"models": ("voodoo2",)}],
)
def test_a_spec_that_describes_no_cluster_is_refused(wrong: dict[str, Any]) -> None:
    fields: dict[str, Any] = {"seed": 1, "nodes": 1, "gpus_per_node": 1, "origin_us": ORIGIN}
    with pytest.raises(UsageError):
        ClusterSpec(**{**fields, **wrong})
