"""No node writes rows of another node's GPU, or with another epoch than its own."""

from __future__ import annotations

import pytest

from idlewatt.errors import WireError
from idlewatt.units import US_PER_MS, US_PER_S

REASONS = "SELECT table_name, reason, count(*) FROM quarantine GROUP BY ALL ORDER BY ALL"


def test_another_node_cannot_replace_samples(bench, kit):
    bench.send(kit.batch(1, [kit.sample(at, "A") for at in range(5)]))
    evil = [kit.sample(at, "A", 9, "evil", energy_uj=1) for at in range(10)]
    evil.append(kit.sample(0, "E", 9, "evil"))
    assert bench.send(kit.batch(1, evil, node="evil", epoch=9)).acked == 1
    found = bench.rows("SELECT node_id, gpu_uuid, count(*) FROM gpu_sample GROUP BY ALL ORDER BY 1")
    assert found == [("evil", "E", 1), ("n1", "A", 5)]
    assert bench.rows(REASONS) == [("gpu_sample", "foreign_gpu", 10)]
    bench.reopen()
    bench.send(kit.batch(2, [kit.sample(7, "A", 9, "evil")], node="evil", epoch=9))
    assert bench.rows(REASONS) == [("gpu_sample", "foreign_gpu", 11)]


def test_another_node_cannot_change_inventory_or_allocations(bench, kit):
    bench.send(kit.batch(1, [kit.sample(0, "A")]))
    now_us = bench.clock.now_us()
    tables = kit.tables(
        device=[kit.row("device", gpu_uuid="A", node_id="evil", valid_from_utc=now_us)],
        device_capability=[
            kit.row("device_capability", gpu_uuid="A", valid_from_utc=now_us, column_name="fan_pct")
        ],
        allocation=[kit.row("allocation", gpu_uuid="A", start_utc=now_us, job_key="x:1:0")],
    )
    bench.send(kit.batch(1, node="evil", tables=tables))
    assert [bench.count(name) for name in tables] == [0, 0, 0]
    assert bench.rows(REASONS) == [(name, "foreign_gpu", 1) for name in sorted(tables)]


def test_board_that_was_put_elsewhere_moves_and_history_keeps_its_node(make_bench, kit, tmp_path):
    bench = make_bench(tmp_path, server__gpu_move_s=300)
    start_s = bench.clock.now_us() // US_PER_S - kit.T0_S
    bench.send(kit.batch(1, [kit.sample(start_s, "A")]))
    bench.clock.advance(300)
    bench.send(kit.batch(1, [kit.sample(start_s + 300, "A", node="n2")], node="n2"))
    assert bench.count() == 1
    bench.clock.advance(1)
    moved = [kit.sample(at, "A", 5, node="n2") for at in (start_s, start_s + 301)]
    bench.send(kit.batch(1, moved, node="n2", epoch=5))
    # What the old node still held from before comes, what it claims of later does not.
    late = [kit.sample(at, "A") for at in (start_s - 1, start_s + 302)]
    bench.send(kit.batch(2, late))
    bench.reopen()
    bench.send(kit.batch(3, [kit.sample(start_s - 2, "A"), kit.sample(start_s + 303, "A")]))
    found = bench.rows("SELECT epoch_us(ts_utc), node_id FROM gpu_sample ORDER BY 1")
    t0 = (kit.T0_S + start_s) * US_PER_S
    assert [((at - t0) // US_PER_S, node) for at, node in found] == [
        (-2, "n1"),
        (-1, "n1"),
        (0, "n1"),
        (301, "n2"),
    ]
    holders = bench.rows("SELECT node_id FROM gpu_owner WHERE gpu_uuid = 'A' ORDER BY from_utc")
    assert holders == [("n1",), ("n2",)]
    bench.close()


def test_claim_of_a_batch_that_failed_is_forgotten(bench, kit, monkeypatch):
    committer = bench.ingestor._committer
    with monkeypatch.context() as patch:
        patch.setattr(committer, "_store_cursors", lambda *_: 1 / 0)
        with pytest.raises(Exception, match="try again"):
            bench.send(kit.batch(1, [kit.sample(0, "A", node="evil")], node="evil"))
    bench.send(kit.batch(1, [kit.sample(0, "A")]))
    assert bench.rows("SELECT node_id FROM gpu_sample") == [("n1",)]


def test_rows_of_another_epoch_than_the_batch_are_refused(bench, kit):
    with pytest.raises(WireError, match="another epoch"):
        bench.send(kit.batch(1, [kit.sample(0), kit.sample(1, epoch=1 << 61)]))
    assert bench.count() == 0


def test_epoch_of_the_day_after_tomorrow_is_refused(bench, kit):
    now_ms = bench.clock.now_us() // US_PER_MS
    ahead = now_ms + 86_400_000
    bench.send(kit.batch(1, [kit.sample(0, epoch=ahead)], epoch=ahead))
    with pytest.raises(WireError, match="future"):
        bench.send(kit.batch(1, [kit.sample(0, epoch=ahead + 1)], epoch=ahead + 1))
