"""The live page's states and the scores, from small tables."""

import numpy as np
import pyarrow as pa
import pytest

from analysis import score
from analysis.power_states import states_now
from analysis.tables import stamp
from idlewatt.model import Basis, State, Thresholds

T0_US = 1_771_200_000 * 1_000_000


def table(patterns, order=None):
    """Return samples; per second Active, Low, Deep idle, Nobody knows, or none."""
    rows = [
        {
            "gpu_uuid": gpu,
            "ts_utc": stamp(T0_US + second * 1_000_000),
            "obs_ms": 1000,
            "resident": {"D": False, "N": None}.get(what, True),
            "sm_active": 0.5 if what == "A" else 0.0,
            "pcie_tx_bytes_s": 0,
        }
        for gpu, pattern in patterns.items()
        for second, what in enumerate(pattern)
        if what != " "
    ]
    found = pa.Table.from_pylist(rows)
    return found if order is None else found.take(order(len(rows)))


def test_each_gpu_has_the_state_of_its_newest_second():
    now = states_now(
        table(
            {
                "busy": "LLLLLLLLLA",
                "idle": "AALLLLLLLL",
                "soon": "AAAAAALLLL",
                "free": "AAAAAADDDD",
                "dark": "AAAAAAAAAN",
                "hole": "LLLLL LLLL",
                "late": "LLLLLLL",
            }
        )
    )
    assert {gpu: (item.state, item.run_ms // 1000) for gpu, item in now.items()} == {
        "busy": (State.ACTIVE, 1),
        "idle": (State.EXECUTION_IDLE, 8),
        "soon": (State.ACTIVE, 10),
        "free": (State.DEEP_IDLE, 4),
        "dark": (State.UNKNOWN, 1),
        "hole": (State.ACTIVE, 4),
        "late": (State.EXECUTION_IDLE, 7),
    }
    assert now["late"].ts_us == T0_US + 6_000_000
    assert now["dark"].reason == "no_residency"
    assert (now["idle"].basis, now["free"].basis) == (Basis.COUNTERS, Basis.RESIDENCY)


def test_the_order_of_rows_says_nothing():
    patterns = {"a": "AALLLLLLLL", "b": "LLLLLLLLLA", "c": "DDDDD"}
    rng = np.random.default_rng(3)
    assert states_now(table(patterns, rng.permutation)) == states_now(table(patterns))


def test_thresholds_are_those_given_and_no_rows_give_no_states():
    soon = table({"soon": "AAAAAALLLL"})
    assert states_now(soon, Thresholds(min_interval_s=4))["soon"].state is State.EXECUTION_IDLE
    assert states_now(soon.slice(0, 0)) == {}


def test_scores_count_seconds_and_energy():
    true = np.array([0, 0, 1, 1, 1, 2], dtype=np.int8)
    found = np.array([0, 1, 1, 1, 0, 2], dtype=np.int8)
    got = score.detection(found, true)
    assert (got.precision, got.recall) == (pytest.approx(2 / 3), pytest.approx(2 / 3))
    assert score.detection(found, true, 3).precision is None
    assert score.confusion(found, true)[:3, :3].tolist() == [[1, 1, 0], [1, 2, 0], [0, 0, 1]]
    uj = np.array([10, 10, 10, 10, 10, 10])
    errors = score.energy_by_state(found, uj + 1, true, uj)
    assert errors[State.ACTIVE].error == pytest.approx(0.1)
    assert errors[State.EXECUTION_IDLE].error == pytest.approx(0.1)
    assert errors[State.UNKNOWN].error is None
    run_ms = np.array([1000, 5000, 5000, 30_000, 1000, 1000])
    short = score.energy_of_short_runs(found, run_ms, uj + 1, uj)
    assert (short.true_uj, short.found_uj) == (20, 22)
