from __future__ import annotations

import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collector.ticks import HOLD_BACK_US, ClockSetBackError, Due, Missed, TickGrid
from idlewatt.clock import VirtualClock

S = 1_000_000
START = 1_700_000_000 * S


def due(grid: TickGrid) -> Due:
    found = grid.next()
    assert found is not None
    return found


def test_ticks_fall_on_whole_seconds_whatever_the_work_costs() -> None:
    clock = VirtualClock(START + 123_456)
    grid = TickGrid(clock)
    stamps = []
    for number in range(1000):
        tick = due(grid)
        stamps.append(tick.ts_us)
        assert tick.missed is None
        assert tick.late_ms == 0
        clock.advance(0.003 + (number % 7) * 0.1)
    assert stamps == [START + (1 + number) * S for number in range(1000)]


def test_a_late_tick_keeps_its_second_and_says_how_late() -> None:
    clock = VirtualClock(START)
    grid = TickGrid(clock)
    assert due(grid).ts_us == START
    clock.advance(1.75)
    tick = due(grid)
    assert (tick.ts_us, tick.late_ms, tick.missed) == (START + S, 750, None)
    assert due(grid).ts_us == START + 2 * S


def test_missed_seconds_are_named() -> None:
    clock = VirtualClock(START)
    grid = TickGrid(clock)
    due(grid)
    clock.advance(4.2)
    tick = due(grid)
    assert (tick.ts_us, tick.late_ms) == (START + 4 * S, 200)
    assert tick.missed == Missed(START + S, START + 3 * S, "late_tick")


def test_a_step_forward_is_no_late_tick() -> None:
    clock = VirtualClock(START)
    grid = TickGrid(clock)
    due(grid)
    clock.step_wall(30)
    clock.advance(0.5)
    tick = due(grid)
    assert tick.ts_us == START + 30 * S
    assert tick.missed == Missed(
        START + S, START + 29 * S, "clock_step", "wall clock stepped by +30.0 s"
    )


def test_after_a_small_step_back_no_second_comes_twice() -> None:
    clock = VirtualClock(START)
    grid = TickGrid(clock)
    due(grid)
    last = due(grid).ts_us
    clock.step_wall(-5)
    before_ns = clock.monotonic_ns()
    tick = due(grid)
    assert tick.ts_us == last + S
    assert clock.monotonic_ns() - before_ns == pytest.approx(6e9, abs=1e6)
    assert tick.missed == Missed(last, last, "clock_step", "wall clock stepped by -5.0 s")
    assert due(grid).missed is None


def test_a_large_step_back_asks_for_a_new_epoch() -> None:
    clock = VirtualClock(START)
    grid = TickGrid(clock)
    due(grid)
    clock.step_wall(-(HOLD_BACK_US / S + 5))
    with pytest.raises(ClockSetBackError):
        grid.next()


def test_stop_ends_the_waiting() -> None:
    stop = threading.Event()
    grid = TickGrid(VirtualClock(START + 1), stop)
    stop.set()
    assert grid.next() is None


@given(
    st.lists(
        st.tuples(st.floats(0, 3.5), st.sampled_from([0.0] * 6 + [-9.0, -2.5, 0.7, 40.0])),
        max_size=40,
    )
)
def test_each_second_is_a_tick_or_missed_exactly_once(path: list[tuple[float, float]]) -> None:
    clock = VirtualClock(START + 400_000)
    grid = TickGrid(clock)
    covered: list[int] = []
    for work_s, step_s in path:
        try:
            tick = due(grid)
        except ClockSetBackError:
            return
        missed = tick.missed
        if missed is not None and missed.from_us not in covered:
            covered += range(missed.from_us, missed.to_us + 1, S)
        covered.append(tick.ts_us)
        assert 0 <= tick.late_us < S
        clock.advance(work_s)
        clock.step_wall(step_s)
    assert covered == list(range(covered[0], covered[-1] + 1, S)) if covered else True
