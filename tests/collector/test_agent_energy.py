from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collector.energy import CounterState, Interval, row_energy
from idlewatt.model import EnergySource

SECOND = Interval(
    obs_ms=1000,
    span_ms=1000,
    hole=False,
    counter_mj=1_300_000,
    power_avg_mw=290_000,
    power_inst_mw=310_000,
    max_mw=700_000,
)
KNOWN = CounterState(energy_epoch=2, last_mj=1_000_000)


def test_the_difference_of_the_counter_is_the_energy_of_the_second() -> None:
    found = row_energy(KNOWN, SECOND)
    assert (found.energy_uj, found.source) == (300_000_000, EnergySource.COUNTER)
    assert found.gap_uj is None
    assert found.state == CounterState(2, 1_300_000)


def test_jitter_of_the_reading_does_not_scale_the_difference() -> None:
    assert row_energy(KNOWN, replace(SECOND, span_ms=1017)).energy_uj == 300_000_000


def test_after_a_hole_the_row_gets_its_share_and_the_gap_the_rest() -> None:
    found = row_energy(KNOWN, replace(SECOND, span_ms=3000, hole=True))
    assert (found.energy_uj, found.gap_uj) == (100_000_000, 200_000_000)


@pytest.mark.parametrize(
    ("counter_mj", "implausible"), [(999_999, False), (0, False), (9_000_000, True)]
)
def test_a_reset_or_a_leap_begins_an_epoch_and_power_stands_in(
    counter_mj: int, implausible: bool
) -> None:
    found = row_energy(KNOWN, replace(SECOND, counter_mj=counter_mj))
    assert (found.energy_uj, found.source) == (290_000_000, EnergySource.POWER_AVG)
    assert found.state == CounterState(3, counter_mj)
    assert found.implausible is implausible


def test_the_first_row_of_an_epoch_uses_power() -> None:
    found = row_energy(CounterState(), replace(SECOND, span_ms=None, power_avg_mw=None, first=True))
    assert (found.energy_uj, found.source) == (310_000_000, EnergySource.POWER_INST)
    assert found.state.last_mj == 1_300_000


def test_without_counter_and_power_there_is_no_energy() -> None:
    dark = replace(SECOND, counter_mj=None, power_avg_mw=None, power_inst_mw=None)
    found = row_energy(KNOWN, dark)
    assert (found.energy_uj, found.source) == (None, None)
    assert found.state.last_mj == KNOWN.last_mj


def test_energy_across_an_agents_absence_goes_to_the_gap() -> None:
    late = replace(SECOND, span_ms=10_000, hole=True, first=True, counter_mj=3_000_000)
    found = row_energy(KNOWN, late)
    assert (found.energy_uj, found.source) == (290_000_000, EnergySource.POWER_AVG)
    assert found.gap_uj == 2_000_000_000 - 290_000_000


def test_seconds_that_power_has_covered_are_not_counted_again() -> None:
    silent = row_energy(KNOWN, replace(SECOND, counter_mj=None))
    assert silent.state == CounterState(2, 1_000_000, 1000, 290_000_000)
    back = row_energy(silent.state, replace(SECOND, span_ms=2000, counter_mj=1_600_000))
    assert (back.energy_uj, back.gap_uj) == (300_000_000, None)


def test_a_counter_that_stands_still_under_power_gives_no_zero() -> None:
    still = replace(SECOND, counter_mj=1_000_000)
    state = KNOWN
    for _ in range(5):
        found = row_energy(state, still)
        assert (found.energy_uj, found.source) == (290_000_000, EnergySource.POWER_AVG)
        assert found.still
        state = found.state
    caught_up = row_energy(state, replace(SECOND, span_ms=6000, counter_mj=2_800_000))
    assert (caught_up.energy_uj, caught_up.source) == (300_000_000, EnergySource.COUNTER)
    stood = row_energy(state, replace(SECOND, span_ms=6000, counter_mj=1_300_000))
    assert (stood.energy_uj, stood.source) == (290_000_000, EnergySource.POWER_AVG)
    following = row_energy(stood.state, replace(SECOND, counter_mj=1_600_000))
    assert (following.energy_uj, following.source) == (300_000_000, EnergySource.COUNTER)


@pytest.mark.parametrize("power_mw", [0, None, 999])
def test_a_still_counter_without_power_is_zero(power_mw: int | None) -> None:
    dark = replace(SECOND, counter_mj=1_000_000, power_avg_mw=power_mw, power_inst_mw=power_mw)
    found = row_energy(KNOWN, dark)
    assert (found.energy_uj, found.source, found.still) == (0, EnergySource.COUNTER, False)


steps = st.lists(
    st.tuples(
        st.integers(0, 700_000),  # mean power of the span, mW
        st.integers(1, 40),  # seconds since the last row
        st.integers(-30, 30),  # jitter, ms
    ),
    min_size=1,
    max_size=40,
)


@given(start=st.integers(0, 10**12), path=steps)
def test_rows_and_gaps_together_hold_the_whole_counter(
    start: int, path: list[tuple[int, int, int]]
) -> None:
    state, counter = CounterState(0, start), start
    given_out = 0
    for power_mw, seconds, jitter in path:
        counter += power_mw * seconds // 1000
        interval = Interval(
            1000, seconds * 1000 + jitter, seconds > 1, counter, power_mw, power_mw, 700_000
        )
        found = row_energy(state, interval)
        assert found.source is EnergySource.COUNTER
        assert (found.gap_uj is None) == (seconds == 1)
        assert found.energy_uj is not None
        assert found.energy_uj >= 0
        given_out += found.energy_uj + (found.gap_uj or 0)
        state = found.state
    assert given_out == (counter - start) * 1000


@given(
    counters=st.lists(st.one_of(st.none(), st.integers(0, 10**10)), max_size=30),
    power_mw=st.one_of(st.none(), st.integers(0, 700_000)),
)
def test_no_reading_whatever_gives_negative_or_absurd_energy(
    counters: list[int | None], power_mw: int | None
) -> None:
    state = CounterState()
    for counter in counters:
        found = row_energy(state, Interval(1000, 1000, False, counter, power_mw, None, 700_000))
        assert found.energy_uj is None or 0 <= found.energy_uj <= 1.5 * 700_000 * 2000
        assert found.state.energy_epoch >= state.energy_epoch
        state = found.state
