"""Segment files that no longer hold what was written are found, left out and reported."""

from __future__ import annotations

import os
from contextlib import closing, suppress

import pytest

from idlewatt.clock import SystemClock
from idlewatt.errors import QueryError
from warehouse.queries import run_query
from warehouse.sealer import Sealer
from warehouse.segments import seal
from warehouse.verify import Verifier

ROWS = 4_000


@pytest.fixture
def sealed(bench, kit):
    """Two sealed hours of one GPU; the rows of the first are many, so that its file is large."""
    rows = [
        kit.sample(s % 3600, f"GPU-{s // 3600}", energy_uj=int.from_bytes(os.urandom(4), "big"))
        for s in range(ROWS)
    ]
    bench.send(kit.batch(1, [*rows, kit.sample(3700)]))
    for name in sorted(bench.store.layout.live):
        seal(bench.store, name)
    return bench


def overwrite(bench, at=None):
    """Write 4 kB over a file in place; its size stays."""
    path = min(bench.store.layout.segments)
    file = bench.store.layout.root / path
    size = file.stat().st_size
    assert size > 12_000
    with file.open("r+b") as stream:
        stream.seek(size // 3 if at is None else at(size))
        stream.write(b"\xa5" * 4096)
    assert file.stat().st_size == size
    return path


HOUR_2 = "SELECT count(*) FROM gpu_sample WHERE ts_utc >= TIMESTAMP '2026-03-01 11:00:00'"
HOUR_1 = "SELECT sum(energy_uj), max(node_id), sum(epoch) FROM gpu_sample WHERE hour(ts_utc) = 10"


def test_all_is_well_where_nothing_changed(sealed):
    assert Verifier(sealed.store).run_once() == []
    assert sealed.store.problems == []
    assert sealed.count() == ROWS + 1


def test_changed_content_of_the_same_size_is_left_out_and_reported(sealed):
    path = overwrite(sealed)
    assert Verifier(sealed.store).run_once() == [path]
    (problem,) = sealed.store.problems
    assert path in problem
    assert "its content changed (sha256" in problem
    assert sealed.count() == 1
    assert run_query(sealed.store, HOUR_2).table.to_pylist() == [{"count_star()": 1}]
    (kept,) = sealed.rows(f"SELECT problem FROM segment WHERE path = '{path}'")
    assert kept[0].startswith("its content changed")
    # Once reported, it is not looked at again; a restart says the same.
    assert Verifier(sealed.store).run_once() == []
    sealed.reopen()
    assert sealed.store.problems == [problem]
    assert sealed.count() == 1


def test_a_file_put_right_is_used_again(sealed):
    path = min(sealed.store.layout.segments)
    good = (sealed.store.layout.root / path).read_bytes()
    overwrite(sealed)
    Verifier(sealed.store).run_once()
    (sealed.store.layout.root / path).write_bytes(good)
    sealed.reopen()
    assert sealed.store.problems == []
    assert sealed.count() == ROWS + 1


def test_a_read_error_has_the_file_checked_at_once(sealed):
    path = overwrite(sealed, at=lambda size: size - 4096)
    verifier = Verifier(sealed.store)
    assert not sealed.store.suspicion.is_set()
    with pytest.raises(QueryError) as caught:
        run_query(sealed.store, HOUR_1)
    assert str(sealed.folder) not in str(caught.value)
    assert sealed.store.suspicion.is_set()
    assert verifier.run_once() == [path]
    assert not sealed.store.suspicion.is_set()
    assert run_query(sealed.store, HOUR_2).table.to_pylist() == [{"count_star()": 1}]


def test_mistakes_of_a_query_raise_no_suspicion(sealed):
    for sql in ("SELECT nonsense FROM gpu_sample", "SELECT 1 / x", "SELECT 'a'::INTEGER"):
        with pytest.raises(QueryError):
            run_query(sealed.store, sql)
    assert not sealed.store.suspicion.is_set()


@pytest.mark.integration
def test_it_runs_beside_the_sealer_and_wakes_up_for_a_read_error(make_bench, kit, tmp_path):
    with closing(make_bench(tmp_path / "data", server__verify_mib_s=1.0)) as bench:
        bench.store.clock = SystemClock()
        rows = [kit.sample(s, energy_uj=int.from_bytes(os.urandom(4), "big")) for s in range(3600)]
        bench.send(kit.batch(1, rows))
        seal(bench.store, min(bench.store.layout.live))
        with Sealer(bench.store):
            path = overwrite(bench, at=lambda size: size - 4096)
            with suppress(QueryError):  # the verifier may have been first
                run_query(bench.store, HOUR_1)
            for _ in range(300):
                if bench.store.problems:
                    break
                bench.store.clock.wait(0.05)
            assert path in bench.store.problems[0]
        assert bench.count() == 0
