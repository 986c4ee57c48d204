"""Batches that an agent gave up leave a gap that claims no more than is known."""

from __future__ import annotations

import datetime as dt

from idlewatt.units import US_PER_S


def gaps(bench):
    found = bench.rows("SELECT from_utc, to_utc, reason FROM gap ORDER BY from_utc")
    zero = dt.datetime(2026, 3, 1, 10)  # noqa: DTZ001 - as DuckDB gives it
    return [
        (int((a - zero).total_seconds()), int((b - zero).total_seconds()), reason)
        for a, b, reason in found
    ]


def test_bounds_survive_a_restart(bench, kit):
    bench.send(kit.batch(1, [kit.sample(s) for s in range(500)]))
    bench.reopen()
    bench.send(kit.batch(4, [kit.sample(510)]), given_up=(2, 3))
    assert gaps(bench) == [(500, 509, "given_up")]


def test_each_lane_has_bounds_of_its_own(bench, kit):
    bench.send(kit.batch(1, [kit.sample(s) for s in range(20)], lane="backfill"))
    bench.send(kit.batch(1, [kit.sample(s) for s in range(3000, 3010)]))
    bench.send(kit.batch(3, [kit.sample(30)], lane="backfill"), given_up=(2, 2))
    bench.reopen()
    bench.send(kit.batch(6, [kit.sample(60)], lane="backfill"), given_up=(4, 5))
    assert gaps(bench) == [(20, 29, "given_up"), (31, 59, "given_up")]


def test_seconds_that_came_another_way_are_not_claimed(bench, kit):
    bench.send(kit.batch(1, [kit.sample(0)]))
    bench.send(kit.batch(1, [kit.sample(s) for s in range(1, 51)], lane="backfill"))
    bench.send(kit.batch(3, [kit.sample(60)]), given_up=(2, 2))
    assert gaps(bench) == [(51, 59, "given_up")]


def test_where_nothing_bounds_them_the_gap_is_an_instant(bench, kit):
    now_s = bench.clock.now_us() // US_PER_S - kit.T0_S
    unplaced = (now_s, now_s, "given_up_unplaced")
    # Epoch 1 tells nothing of when the first batches were made; history may go backwards.
    bench.send(kit.batch(3, [kit.sample(10)]), given_up=(1, 2))
    bench.send(kit.batch(1, [kit.sample(7200)], lane="backfill"))
    bench.send(kit.batch(3, [kit.sample(3600)], lane="backfill"), given_up=(2, 2))
    bench.send(kit.batch(6), given_up=(4, 5))
    assert gaps(bench) == [unplaced] * 3
    details = [row[0] for row in bench.rows("SELECT detail FROM gap")]
    assert all("not known" in text for text in details)


def test_first_batches_of_an_epoch_lie_after_its_start(bench, kit):
    epoch = kit.T0_S * 1000 + 400
    bench.send(kit.batch(3, [kit.sample(10, epoch=epoch)], epoch=epoch), given_up=(1, 2))
    assert gaps(bench) == [(1, 9, "given_up")]


def test_within_one_commit_the_batches_before_count(bench, kit):
    bench.send(kit.batch(1, [kit.sample(0)]))
    with bench.ingestor._wake:
        futures = [
            bench.ingestor.submit(kit.batch(2, [kit.sample(5)])),
            bench.ingestor.submit(kit.batch(4, [kit.sample(10)]), given_up=(3, 3)),
        ]
    assert [future.result(30).acked for future in futures] == [2, 4]
    assert gaps(bench) == [(6, 9, "given_up")]
