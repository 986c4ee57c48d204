"""One segment that is gone or damaged stops neither ingest nor the start."""

from __future__ import annotations

from warehouse.segments import seal


def sealed(bench, kit):
    """Return two segment files, of the hours 10 and 11."""
    bench.send(kit.batch(1, [kit.sample(at) for at in (0, 10, 20, 3600)]))
    for name in list(bench.store.layout.live):
        seal(bench.store, name)
    return [bench.store.layout.root / path for path in sorted(bench.store.layout.segments)]


def test_new_hour_is_taken_while_a_file_is_gone(bench, kit):
    first, _ = sealed(bench, kit)
    first.unlink()
    bench.send(kit.batch(2, [kit.sample(7200)]))
    assert bench.count() == 2
    assert len(bench.store.problems) == 1
    assert "left out" in bench.store.problems[0]
    bench.send(kit.batch(3, [kit.sample(10_800)]))
    assert len(bench.store.problems) == 1


def test_late_row_is_taken_where_the_file_of_its_hour_is_gone(bench, kit):
    first, _ = sealed(bench, kit)
    bench.reopen()  # nothing of the file is in memory
    first.unlink()
    bench.send(kit.batch(2, [kit.sample(15)]))
    assert bench.count() == 2
    assert len(bench.store.problems) == 1


def test_late_row_is_taken_where_the_file_of_its_hour_is_damaged(bench, kit):
    first, _ = sealed(bench, kit)
    bench.reopen()
    size = first.stat().st_size
    first.write_bytes(bytes(size))
    bench.send(kit.batch(2, [kit.sample(15)]))
    assert bench.count() == 2
    assert "content changed" in bench.store.problems[0]


def test_file_of_zeros_does_not_stop_the_start(bench, kit):
    first, _ = sealed(bench, kit)
    bench.close()
    first.write_bytes(bytes(first.stat().st_size))
    bench.open()
    assert bench.count() == 1
    assert "content changed" in bench.store.problems[0]
