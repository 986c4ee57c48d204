"""Texts, shares and holes have limits; history waits while too many hours are not sealed."""

from __future__ import annotations

import pytest

from idlewatt.errors import StoreError, UnavailableError, WireError
from warehouse import ingest, segments
from warehouse.ingest import parse_given_up
from warehouse.sealer import Sealer
from warehouse.store import Store

TEXT = "text of over 512 characters, or with control characters"


@pytest.mark.parametrize("name", ["x" * 513, "a\0b", "two\nlines", "\u202eevil"])
def test_text_that_is_no_name_is_refused(bench, kit, name):
    fine = "Trainingslauf größer ✓" + "x" * 400
    rows = [
        kit.row("job", job_key=f"c:{n}:0", job_name=text) for n, text in enumerate((fine, name))
    ]
    bench.send(kit.batch(1, tables=kit.tables(job=rows)))
    assert bench.rows("SELECT job_name FROM job") == [(fine,)]
    assert bench.rows("SELECT table_name, reason FROM quarantine") == [("job", TEXT)]


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        ({"share": -0.1}, "share or confidence outside 0 to 1"),
        ({"share": float("nan")}, "share or confidence outside 0 to 1"),
        ({"confidence": 1.1}, "share or confidence outside 0 to 1"),
        ({"end_utc": -1}, "ends before it starts"),
    ],
)
def test_allocation_that_cannot_be_is_refused(bench, kit, values, reason):
    start = kit.T0_S * 1_000_000
    values = {key: start + value if key == "end_utc" else value for key, value in values.items()}
    good = kit.row("allocation", gpu_uuid="A", start_utc=start, end_utc=start, job_key="c:1:0")
    bad = kit.row("allocation", gpu_uuid="A", start_utc=start, job_key="c:2:0", **values)
    bench.send(kit.batch(1, tables=kit.tables(allocation=[good, bad])))
    assert bench.rows("SELECT job_key FROM allocation") == [("c:1:0",)]
    assert bench.rows("SELECT reason FROM quarantine") == [(reason,)]


def test_hole_of_over_a_million_batches_is_refused():
    assert parse_given_up("1-1000000") == (1, 1_000_000)
    with pytest.raises(WireError, match="at most"):
        parse_given_up("1-1000001")


@pytest.mark.parametrize("name", ["what?", "a*b", "a[b"])
def test_folder_that_reads_as_a_pattern_is_refused(tmp_path, kit, name):
    with pytest.raises(StoreError, match="may not have"):
        Store.open(tmp_path / name, kit.settings())
    assert not (tmp_path / name).exists()


def test_history_waits_while_many_hours_are_not_sealed(bench, kit, monkeypatch):
    monkeypatch.setattr(ingest, "MAX_LIVE_TABLES", 3)
    bench.send(kit.batch(1, [kit.sample(3600 * h) for h in range(3)], lane="backfill"))
    more = kit.batch(2, [kit.sample(3600 * 5)], lane="backfill")
    with pytest.raises(UnavailableError, match="sealed") as caught:
        bench.send(more)
    assert (caught.value.status, caught.value.retry_after_s) == (503, 10)
    bench.send(kit.batch(1, [kit.sample(3600 * 4)]))
    assert Sealer(bench.store).run_once() == 4
    assert bench.send(more).acked == 2


def test_several_hours_are_sealed_in_one_switch(bench, kit, monkeypatch):
    bench.send(kit.batch(1, [kit.sample(3600 * h) for h in range(20)], lane="backfill"))
    writes = []
    write = bench.store.write
    monkeypatch.setattr(bench.store, "write", lambda fn: writes.append(fn) or write(fn))
    assert Sealer(bench.store)._seal_due() == 20
    assert len(writes) == 4
    assert bench.count() == len(bench.store.layout.segments) == 20


def test_stop_falls_between_two_hours(bench, kit, monkeypatch):
    bench.send(kit.batch(1, [kit.sample(3600 * h) for h in range(5)], lane="backfill"))
    sealer = Sealer(bench.store)
    answers = iter([False, False, False, True, True])
    monkeypatch.setattr(sealer._stop, "is_set", lambda: next(answers))
    assert sealer._seal_due() == 2
    assert len(bench.store.layout.live) == 3
    assert bench.count() == 5


def test_hours_before_one_that_fails_are_sealed(bench, kit, monkeypatch):
    bench.send(kit.batch(1, [kit.sample(3600 * h) for h in range(3)], lane="backfill"))
    write_files = segments._write_files

    def fail_last(store, table):
        if table.name.endswith("12_1"):
            raise StoreError("no")
        return write_files(store, table)

    monkeypatch.setattr(segments, "_write_files", fail_last)
    with pytest.raises(StoreError, match="no"):
        Sealer(bench.store)._seal_due()
    assert len(bench.store.layout.segments) == 2
    assert bench.count() == 3
