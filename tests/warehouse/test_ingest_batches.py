"""What becomes of a batch: oddities kept aside, dimensions merged, hours noted as changed."""

from __future__ import annotations

import json
import threading
from concurrent.futures import Future

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from idlewatt.columns import TABLES, Kind
from idlewatt.errors import AuthError, UnavailableError, WireError
from idlewatt.units import US_PER_S
from idlewatt.wire import Table, decode_batch, pack_column, rows_from_table, table_from_rows
from warehouse import columnar
from warehouse.ingest import Ingestor, parse_given_up
from warehouse.metrics import Metrics
from warehouse.sealer import Sealer
from warehouse.segments import seal


def test_impossible_rows_go_to_quarantine_and_the_rest_is_kept(bench, kit):
    far = 86_400 + 301
    body = kit.batch(
        1, [kit.sample(0), kit.sample(far), kit.sample(-(20 * 365 * 86_400)), kit.sample(1, "a\nb")]
    )
    assert not bench.send(body).duplicate
    assert bench.count() == 1
    kept = bench.rows("SELECT reason, content FROM quarantine ORDER BY reason")
    assert [reason for reason, _ in kept] == [
        "gpu_uuid is not a printable name",
        "ts_utc lies before 2015",
        "ts_utc lies in the future",
    ]
    content = json.loads(kept[2][1])
    assert content["ts_utc_us"] == (kit.T0_S + far) * US_PER_S
    assert content["power_avg_mw"] == 100_000


def test_impossible_times_of_other_tables_go_to_quarantine(bench, kit):
    good = kit.row("job", job_key="a:1:0", start_utc=kit.T0_S * US_PER_S)
    bad = kit.row("job", job_key="a:2:0", start_utc=-(2**62))
    bench.send(kit.batch(1, tables=kit.tables(job=[good, bad])))
    assert bench.rows("SELECT job_key FROM job") == [("a:1:0",)]
    assert bench.rows("SELECT table_name, reason FROM quarantine") == [("job", "impossible time")]


def test_nan_and_infinity_are_null(bench, kit):
    values = [float("nan"), float("inf"), 0.5]
    bench.send(kit.batch(1, [kit.sample(k, sm_active=value) for k, value in enumerate(values)]))
    assert bench.rows("SELECT sm_active FROM gpu_sample ORDER BY ts_utc") == [
        (None,),
        (None,),
        (0.5,),
    ]


def test_unknown_columns_and_tables_are_kept_and_counted(bench, kit):
    table = kit.tables(gpu_sample=[kit.sample(0)])["gpu_sample"]
    new = pack_column(Kind.I64, [42])
    assert new is not None
    tables = {
        "gpu_sample": Table(1, {**table.columns, "shiny_mw": new}),
        "brand_new": Table(1, {"x": new}),
    }
    bench.send(kit.batch(1, tables=tables))
    assert bench.count() == 1
    assert bench.ingestor.unknown == 2
    aside = bench.rows("SELECT table_name, columns, content FROM set_aside ORDER BY 1")
    assert [(name, columns) for name, columns, _ in aside] == [
        ("brand_new", ["x"]),
        ("gpu_sample", ["shiny_mw"]),
    ]
    assert decode_batch(aside[1][2]).tables["gpu_sample"].columns["shiny_mw"].data == new.data


def test_rows_of_another_node_are_refused(bench, kit):
    with pytest.raises(WireError, match="rows of another node"):
        bench.send(kit.batch(1, [kit.sample(0), kit.sample(1, node="n2")]))
    with pytest.raises(AuthError, match="another node"):
        bench.send(kit.batch(1, [kit.sample(0)]), node_id="n2")
    with pytest.raises(WireError, match="node_id holds"):
        bench.send(kit.batch(1, node="../etc"))
    assert bench.count() == 0
    assert not bench.send(kit.batch(1, [kit.sample(0)]), node_id="n1").duplicate


def test_given_up_batches_leave_a_gap_row(bench, kit):
    bench.send(kit.batch(1, [kit.sample(0)]))
    bench.send(kit.batch(4, [kit.sample(10)]), given_up=(2, 3))
    found = bench.rows("SELECT node_id, from_utc, to_utc, reason, detail FROM gap")
    assert [(row[0], row[1].second, row[2].second, row[3]) for row in found] == [
        ("n1", 1, 9, "given_up")
    ]
    assert "live batches 2-3" in found[0][4]


@pytest.mark.parametrize("text", ["", "3", "3-", "-3", "4-3", "0-1", "a-b", "1-2-3", "9" * 50])
def test_given_up_header_must_make_sense(text):
    with pytest.raises(WireError):
        parse_given_up(text)


def test_dimensions_keep_the_newest_and_a_late_null_forgets_nothing(bench, kit):
    def at(second):
        return (kit.T0_S + second) * US_PER_S

    device = [
        kit.row("device", gpu_uuid="G", node_id="n1", valid_from_utc=at(s), driver_version=v)
        for s, v in ((0, "1"), (9, "2"))
    ]
    done = kit.row("job", job_key="a:1:0", start_utc=at(0), end_utc=at(50))
    still = kit.row("job", job_key="a:1:0", start_utc=at(0), user_name="u")
    bench.send(kit.batch(1, tables=kit.tables(device=device[::-1], job=[done])))
    bench.send(kit.batch(2, tables=kit.tables(device=device[:1], job=[still])))
    assert bench.rows("SELECT driver_version FROM device") == [("2",)]
    assert bench.count("device_history") == 2
    assert bench.rows("SELECT epoch_us(end_utc), user_name FROM job") == [(at(50), "u")]


def test_allocation_changes_touch_the_hours_they_change_and_no_others(bench, kit):
    def held(end_s, share=1.0):
        end = None if end_s is None else (kit.T0_S + end_s) * US_PER_S
        return kit.tables(
            allocation=[
                kit.row(
                    "allocation",
                    gpu_uuid="GPU-0",
                    start_utc=kit.T0_S * US_PER_S,
                    end_utc=end,
                    job_key="a:1:0",
                    share=share,
                )
            ]
        )

    def changes():
        return [
            seq for (seq,) in bench.rows("SELECT change_seq FROM hour_change ORDER BY hour_utc")
        ]

    bench.send(kit.batch(1, [kit.sample(hour * 3600) for hour in range(4)]))
    start = changes()
    bench.send(kit.batch(2, tables=held(None)))
    opened = changes()
    assert all(new > old for new, old in zip(opened, start, strict=True))
    bench.send(kit.batch(3, tables=held(None)))
    assert changes() == opened
    bench.send(kit.batch(4, tables=held(2 * 3600 + 60)))
    closed = changes()
    assert closed[:2] == opened[:2]
    assert closed[2] > opened[2]
    assert closed[3] > opened[3]
    bench.send(kit.batch(5, tables=held(2 * 3600 + 60)))
    assert changes() == closed
    bench.send(kit.batch(6, tables=held(2 * 3600 + 60, share=0.5)))
    shared = changes()
    assert all(new > old for new, old in zip(shared[:3], closed[:3], strict=True))
    assert shared[3] == closed[3]


def test_allocation_that_closes_and_changes_at_once_touches_what_it_held_before(bench, kit):
    def held(**more):
        row = kit.row(
            "allocation",
            gpu_uuid="GPU-0",
            start_utc=kit.T0_S * US_PER_S,
            job_key="a:1:0",
            **more,
        )
        return kit.tables(allocation=[row])

    sql = "SELECT change_seq FROM hour_change ORDER BY hour_utc"
    bench.send(kit.batch(1, [kit.sample(hour * 3600) for hour in range(3)]))
    bench.send(kit.batch(2, tables=held(share=1.0)))
    before = bench.rows(sql)
    bench.send(kit.batch(3, tables=held(share=0.5, end_utc=(kit.T0_S + 60) * US_PER_S)))
    assert all(new > old for new, old in zip(bench.rows(sql), before, strict=True))


def test_one_bad_batch_does_not_hold_up_its_neighbours(bench, kit):
    """A value that DuckDB refuses fails its own batch only."""
    broken = kit.batch(1, tables=kit.tables(job=[kit.row("job", job_key="a:1:0")]), node="n2")
    fine = kit.batch(1, [kit.sample(0)])
    commit = bench.ingestor._committer.commit

    def fail_on_n2(con, group):
        if any(batch.header.node_id == "n2" for batch, _ in group):
            raise RuntimeError("boom")
        return commit(con, group)

    bench.ingestor._committer.commit = fail_on_n2
    blocker: Future[None] = bench.store.submit(lambda con: threading.Event().wait(0.1) and None)
    futures = [bench.ingestor.submit(body) for body in (broken, fine)]
    blocker.result()
    with pytest.raises(UnavailableError):
        futures[0].result(timeout=10)
    assert futures[1].result(timeout=10).acked == 1
    bench.ingestor._committer.commit = commit
    assert not bench.send(broken).duplicate


def test_full_disk_refuses_with_507(bench, kit):
    metrics = Metrics()
    ingestor = Ingestor(bench.store, metrics, free_bytes=lambda: -1)
    with pytest.raises(UnavailableError) as caught:
        ingestor.submit(kit.batch(1, [kit.sample(0)])).result(timeout=10)
    ingestor.close()
    assert caught.value.status == 507
    assert bench.count() == 0
    assert 'rejected_total{error="UnavailableError"} 1' in "\n".join(metrics.lines())


def test_waiting_batches_are_bounded(bench, kit, monkeypatch):
    monkeypatch.setattr("warehouse.ingest.MAX_WAITING", 2)
    hold = threading.Event()
    blocker = bench.store.submit(lambda con: hold.wait(10))
    futures = [bench.ingestor.submit(kit.batch(1, [kit.sample(0)], node="n1"))]
    refused = []
    for number in range(2, 8):
        body = kit.batch(1, [kit.sample(0, f"G{number}", node=f"n{number}")], node=f"n{number}")
        futures.append(bench.ingestor.submit(body))
    refused = [f for f in futures if f.done() and f.exception() is not None]
    hold.set()
    blocker.result()
    assert refused
    assert all(f.exception().status == 429 for f in refused)
    taken = [f for f in futures if f not in refused]
    assert all(f.result(timeout=10).acked == 1 for f in taken)


def test_live_batches_are_committed_before_history(bench, kit):
    """While a commit is under way a heap of history arrives, then one live batch."""
    order = []
    hold = threading.Event()
    blocker = bench.store.submit(lambda con: hold.wait(10))
    first = bench.ingestor.submit(kit.batch(1, [kit.sample(0, "F", node="n9")], node="n9"))
    futures = []
    for number in range(5):
        rows = [
            kit.sample(s, f"G{number}{g}", node=f"b{number}") for g in range(6) for s in range(3000)
        ]
        body = kit.batch(1, rows, node=f"b{number}", lane="backfill")
        futures.append((f"b{number}", bench.ingestor.submit(body)))
    futures.append(("live", bench.ingestor.submit(kit.batch(1, [kit.sample(9000, "L")]))))
    for name, future in futures:
        future.add_done_callback(lambda _, name=name: order.append(name))
    hold.set()
    blocker.result()
    assert first.result(timeout=60).acked == 1
    for _, future in futures:
        future.result(timeout=60)
    assert order.index("live") <= 2
    assert len(order) == 6


def test_quiet_hours_are_sealed_and_current_ones_are_not(make_bench, kit, tmp_path):
    bench = make_bench(tmp_path, server__seal_after_s=300, server__seal_quiet_s=20)
    now_s = bench.clock.now_us() // US_PER_S - kit.T0_S
    bench.send(kit.batch(1, [kit.sample(0), kit.sample(now_s - 5)]))
    sealer = Sealer(bench.store)
    assert sealer.run_once() == 0
    bench.clock.advance(21)
    assert sealer.run_once() == 1
    assert bench.count() == 2
    bench.send(kit.batch(2, [kit.sample(1)]))
    bench.clock.advance(21)
    assert sealer.run_once() == 1
    assert len(bench.store.layout.segments) == 2
    assert bench.count() == 3
    bench.close()


def test_replaced_file_stays_a_day(bench, kit):
    bench.send(kit.batch(1, [kit.sample(0), kit.sample(1)]))
    (name,) = bench.store.layout.live
    seal(bench.store, name)
    (path,) = bench.store.layout.segments
    bench.send(kit.batch(1, [kit.sample(0, epoch=2)], epoch=2))
    sealer = Sealer(bench.store)
    assert sealer.run_once() == 2
    assert (bench.store.layout.root / path).exists()
    bench.reopen()
    assert (bench.store.layout.root / path).exists()
    bench.clock.advance(25 * 3600)
    Sealer(bench.store).run_once()
    assert not (bench.store.layout.root / path).exists()
    assert bench.rows("SELECT count(*), max(epoch) FROM gpu_sample") == [(2, 2)]


def test_sealing_under_ingest_loses_nothing(make_bench, kit, tmp_path):
    bench = make_bench(tmp_path, server__seal_after_s=-0)
    sealer, stop, sealed = Sealer(bench.store), threading.Event(), []

    def housekeeping():
        while not stop.is_set():
            sealed.append(sealer.run_once())

    thread = threading.Thread(target=housekeeping)
    thread.start()
    for seq in range(1, 41):
        rows = [kit.sample(seq * 10 + k, f"GPU-{g}") for k in range(10) for g in range(4)]
        bench.send(kit.batch(seq, rows))
    stop.set()
    thread.join()
    assert sum(sealed) > 0
    assert bench.rows("SELECT count(*), count(DISTINCT (gpu_uuid, ts_utc)) FROM gpu_sample") == [
        (1600, 1600)
    ]
    bench.close()


KIND_VALUES = {
    Kind.TS: st.integers(0, 2**53),
    Kind.I64: st.integers(-(2**63), 2**63 - 1),
    Kind.I32: st.integers(-(2**31), 2**31 - 1),
    Kind.I16: st.integers(-(2**15), 2**15 - 1),
    Kind.F32: st.floats(width=32, allow_nan=False, allow_infinity=False),
    Kind.F64: st.floats(allow_nan=False, allow_infinity=False),
    Kind.BOOL: st.booleans(),
    Kind.STR: st.text(max_size=3),
}


@settings(max_examples=50)
@given(data=st.data(), counts=st.lists(st.integers(1, 11), min_size=1, max_size=4))
def test_joined_buffers_hold_what_each_batch_held(data, counts):
    spec = TABLES["job"] + TABLES["allocation"][4:5] + TABLES["device_capability"][3:4]
    tables, expected = [], []
    for count in counts:
        columns = []
        for column in spec:
            value = KIND_VALUES[column.kind]
            maybe = value if column.required else st.one_of(st.none(), value)
            columns.append(data.draw(st.lists(maybe, min_size=count, max_size=count)))
        rows = list(zip(*columns, strict=True))
        tables.append(table_from_rows(spec, rows))
        expected += rows_from_table(spec, tables[-1])
    found = columnar.gather(spec, tables)
    for number, column in enumerate(spec):
        wanted = [row[number] for row in expected]
        if column.name not in found.column_names:
            assert wanted == [None] * len(wanted)
            continue
        array = found[column.name]
        if column.kind is Kind.TS:
            array = array.cast("int64")
        assert array.to_pylist() == wanted
