"""Known answers of the physics: windows, lag, counters, heat, noise."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from collector.simulator.cluster import ClusterSpec
from collector.simulator.physics import (
    Board,
    Track,
    board_of,
    build_track,
    counter_mj,
    hash_normal,
    hash_uniform,
    relax,
    sensor_mw,
    span_energy_j,
    temperature_c,
    updates,
)
from collector.simulator.profiles import PROFILES, Figure, GpuProfile, profile
from collector.simulator.workload import ADDED_W, WIDTH, WORK

SPEC = ClusterSpec(seed=3, nodes=4, gpus_per_node=8, origin_us=1_760_000_400_000_000)
FAIR = Board(1, 0.0, 0.0, 0, 0.0, 0.0, 0.0)


def quiet(model: str) -> GpuProfile:
    """Return a profile without noise and lag, so that answers are exact."""
    base = profile(model)
    power = base.power
    average = power.average and replace(power.average, lag_s=Figure(0.0))
    power = replace(
        power,
        noise_ratio=Figure(0.0),
        noise_w=Figure(0.0),
        average=average,
        instant=replace(power.instant, lag_s=Figure(0.0)),
    )
    return replace(base, power=power)


def step_track(model: GpuProfile, at_s: float = 10.0, added_w: float = 300.0) -> Track:
    """Return a device that is resident throughout and works from `at_s` on."""
    levels = np.zeros((2, WIDTH))
    levels[1, ADDED_W], levels[1, WORK] = added_w, 1.0
    return Track(
        low_s=0.0,
        high_s=60.0,
        profile=model,
        starts=np.array([0.0, at_s]),
        durations=np.array([0.0, 60.0 - at_s]),
        levels=levels,
        before=np.zeros((2, WIDTH)),
        phases=np.array([-1, 1], dtype=np.int8),
        jobs=(),
        contexts=np.array([[0.0, 60.0]]),
    )


def test_the_average_climbs_over_one_second() -> None:
    model = quiet("H100")
    average = model.power.average
    assert average is not None
    times = np.array([9.95, 10.25, 10.55, 10.95, 11.05, 20.0]) + 1e-6
    shown = sensor_mw(step_track(model), FAIR, average, times, True)
    share = (shown / 1_000 - 121.7) / 300.0
    assert share == pytest.approx([0.0, 0.2, 0.5, 0.9, 1.0, 1.0], abs=1e-3)


def test_the_instant_reading_sees_only_its_window() -> None:
    model = quiet("H100")
    instant = model.power.instant
    # Renewed each 100 ms, it looks at the 25 ms before: work from 10.0 is seen from 10.1 on.
    times = np.array([10.0, 10.05, 10.099, 10.1, 10.2]) + 1e-6
    shown = sensor_mw(step_track(model), FAIR, instant, times, False) / 1_000
    assert shown == pytest.approx([121.7, 121.7, 121.7, 421.7, 421.7], abs=0.01)
    half = step_track(model, at_s=10.0875)  # half of the window before 10.1
    shown = sensor_mw(half, FAIR, instant, np.array([10.11]), False) / 1_000
    assert shown == pytest.approx([271.7], abs=0.01)


def test_three_quarters_of_the_time_nobody_looks() -> None:
    model = quiet("A100-SXM4-80GB")
    levels = np.zeros((2, WIDTH))
    levels[1, ADDED_W] = 300.0
    burst = replace(
        step_track(model),
        starts=np.array([0.0, 10.01]),
        durations=np.array([0.0, 0.06]),
        levels=levels,
    )
    times = np.arange(9.0, 12.0, 0.1) + 1e-6
    shown = sensor_mw(burst, FAIR, model.power.instant, times, False)
    assert set(shown.tolist()) == {80_000}  # 18 J went by unseen
    assert burst.energy_j(np.array([12.0]))[0] == pytest.approx(12 * 80.0 + 18.0)


def test_the_phase_of_the_window_moves_what_it_sees() -> None:
    model = quiet("A100-SXM4-80GB")
    track = step_track(model, at_s=10.0)
    late = replace(FAIR, instant_phase_s=0.02)
    at = np.array([10.021])
    assert sensor_mw(track, FAIR, model.power.instant, at, False)[0] == 80_000
    assert sensor_mw(track, late, model.power.instant, at, False)[0] == 320_000  # 20 of 25 ms


def test_lag_delays_the_edge() -> None:
    model = quiet("H100")
    slow = replace(model.power.instant, lag_s=Figure(0.2))
    track = step_track(model)
    shown = sensor_mw(track, FAIR, slow, np.array([10.201, 10.301]), False) / 1_000
    assert shown == pytest.approx([121.7, 421.7], abs=0.01)


def test_gain_is_proportional_and_the_counter_has_its_own() -> None:
    model = quiet("H100")
    track = step_track(model)
    board = replace(FAIR, gain=0.05, counter_gain=-0.004, counter_base_mj=1_000)
    shown = sensor_mw(track, board, model.power.instant, np.array([5.0, 30.0]), False) / 1_000
    assert shown == pytest.approx([121.7 * 1.05, 421.7 * 1.05], abs=0.01)
    assert counter_mj(board, np.array([0.0, 1e9]))[0] == 1_000
    assert counter_mj(board, np.array([1e9 + 500]))[0] == 1_000 + 996_000


def test_boards_stay_within_their_spread_and_differ() -> None:
    boards = [board_of(SPEC, gpu) for gpu in range(SPEC.gpus)]
    gains = np.array([board.gain for board in boards])
    assert np.abs(gains).max() <= 0.055
    assert gains.std() > 0.01
    assert max(abs(board.counter_gain) for board in boards) <= 0.005
    assert len({board.counter_base_mj for board in boards}) == SPEC.gpus


def test_updates_belong_to_their_period() -> None:
    when, number = updates(np.array([0.04, 0.05, 0.149, 0.15]), 0.1, 0.05)
    assert when == pytest.approx([-0.05, 0.05, 0.05, 0.15])
    assert number.tolist() == [-1, 0, 0, 1]


def test_heat_reaches_63_percent_after_one_time_constant() -> None:
    target = np.concatenate([np.full(100, 40.0), np.full(400, 60.0)])
    got = relax(target, 40.0, 45.0)
    assert got[99] == pytest.approx(40.0)
    assert got[99 + 45] == pytest.approx(60.0 - 20.0 * np.exp(-1.0), abs=1e-9)
    assert got[-1] == pytest.approx(60.0, abs=0.01)


def test_temperature_follows_the_published_points() -> None:
    h100 = profile("H100")
    assert temperature_c(h100, np.full(600, 70.0))[-1] == pytest.approx(41.0, abs=0.5)
    assert temperature_c(h100, np.full(600, 632.0))[-1] == pytest.approx(59.0, abs=0.5)


@given(st.lists(st.floats(0, 500), min_size=1, max_size=300), st.floats(0, 100), st.floats(5, 200))
def test_relaxation_equals_the_plain_recurrence(
    target: list[float], first: float, tau_s: float
) -> None:
    decay = np.exp(-1.0 / tau_s)
    state, plain = first, []
    for goal in target:
        state = decay * state + (1 - decay) * goal
        plain.append(state)
    assert relax(np.array(target), first, tau_s) == pytest.approx(plain, abs=1e-8)


def test_noise_is_the_same_wherever_it_is_read() -> None:
    whole = hash_normal(99, np.arange(100_000))
    assert np.array_equal(whole[500:600], hash_normal(99, np.arange(500, 600)))
    assert abs(whole.mean()) < 0.02
    assert whole.std() == pytest.approx(1.0, abs=0.02)
    assert abs(np.corrcoef(whole[:-1], whole[1:])[0, 1]) < 0.02
    other = hash_normal(100, np.arange(100_000))
    assert abs(np.corrcoef(whole, other)[0, 1]) < 0.02
    even = hash_uniform(5, np.arange(100_000))
    assert 0 <= even.min() < even.max() < 1
    assert even.mean() == pytest.approx(0.5, abs=0.01)


@pytest.mark.parametrize("gpu", [0, 8, 24])
def test_energy_is_the_integral_of_power(gpu: int) -> None:
    track = build_track(SPEC, gpu, 0.0, 1800.0)
    times = np.arange(0.0, 1800.0, 0.01)
    power = np.diff(track.energy_j(times)) / 0.01
    model = track.profile.power
    assert power.min() >= model.bare_w.value - 1e-6
    assert power.max() <= model.peak_w.value + 1e-6
    work_s = np.diff(track.column(times, WORK))
    resident = np.diff(track.resident_s(times)) > 0.0099
    idle_w = power[resident & (work_s == 0)]
    assert idle_w.size == 0 or idle_w == pytest.approx(
        np.full(idle_w.size, model.resident_w.value), abs=1e-6
    )


@pytest.mark.parametrize("gpu", [2, 9, 17, 30])
def test_the_short_way_to_a_span_s_energy_agrees(gpu: int) -> None:
    track = build_track(SPEC, gpu, 3_600.0, 7_200.0)
    whole = track.energy_j(np.array([7_200.0]))[0]
    assert span_energy_j(SPEC, gpu, 3_600.0, 7_200.0) == pytest.approx(whole, rel=1e-12)


@pytest.mark.parametrize("gpu", range(0, 32, 5))
def test_work_never_overlaps_and_needs_a_context(gpu: int) -> None:
    track = build_track(SPEC, gpu, 0.0, 7200.0)
    ends = track.starts + track.durations
    assert np.all(track.starts[1:] >= ends[:-1] - 1e-9)
    assert np.all(track.durations[1:] > 0)
    middle = track.starts[1:] + 0.5 * track.durations[1:]
    inside = np.zeros(middle.size, dtype=bool)
    for begin, end in track.contexts:
        inside |= (middle >= begin) & (middle < end)
    assert inside.all()
    assert np.all(track.levels[:, :8] <= 1.0)
    assert np.all(track.levels >= 0.0)


def test_every_profile_names_a_model() -> None:
    assert {one.key for one in PROFILES.values()} == set(PROFILES)
