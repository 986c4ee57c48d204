"""Start-up never destroys rows: what the catalogue forgot is used again or put aside."""

from __future__ import annotations

import shutil

import pytest

from warehouse import segments
from warehouse.segments import seal

KEYS = "SELECT count(*), count(DISTINCT (gpu_uuid, ts_utc)), sum(epoch), sum(energy_uj) FROM "


def seal_all(bench):
    for name in list(bench.store.layout.live):
        assert seal(bench.store, name) is not None


def files(bench):
    return sorted(bench.store.layout.root.rglob("*.parquet*"))


def put_aside(bench):
    return sorted(file.name for file in (bench.folder / "quarantine").glob("*"))


def forget(bench):
    """Close, and move the database away."""
    bench.close()
    (bench.folder / "idlewatt.duckdb").rename(bench.folder / "idlewatt.duckdb.bad")
    bench.open()


def test_files_are_used_again_when_the_database_was_moved_away(bench, kit):
    rows = [kit.sample(at, f"GPU-{g}") for at in range(3500, 3700) for g in range(3)]
    bench.send(kit.batch(1, rows))
    seal_all(bench)
    before, names = bench.rows(KEYS + "gpu_sample"), files(bench)
    forget(bench)
    assert bench.rows(KEYS + "gpu_sample") == before == [(600, 600, 600, 60_000_000_000)]
    assert files(bench) == names
    assert bench.rows("SELECT sum(rows) FROM hour_change") == [(600,)]
    assert any("2 whole segment files" in text for text in bench.store.problems)
    bench.reopen()
    assert bench.store.problems == []
    assert bench.count() == 600


def test_replaced_file_does_not_come_back_when_the_database_was_moved_away(bench, kit):
    bench.send(kit.batch(1, [kit.sample(at) for at in range(10)]))
    seal_all(bench)
    bench.clock.advance(5)
    bench.send(kit.batch(1, [kit.sample(3, epoch=2, energy_uj=7)], epoch=2))
    seal_all(bench)
    before = bench.rows(KEYS + "gpu_sample")
    assert len(files(bench)) == 2
    forget(bench)
    assert bench.rows(KEYS + "gpu_sample") == before == [(10, 10, 11, 900_000_007)]
    assert len(put_aside(bench)) == 1
    assert bench.rows("SELECT sum(rows) FROM hour_change") == [(10,)]


@pytest.mark.parametrize("later_epoch", [1, 2])
def test_rows_that_only_a_file_holds_survive_the_loss_of_the_log(bench, kit, later_epoch):
    bench.send(kit.batch(1, [kit.sample(at) for at in range(10)]))
    bench.reopen()
    file = bench.folder / "idlewatt.duckdb"
    shutil.copy(file, bench.folder / "copy")
    more = [kit.sample(at, epoch=later_epoch) for at in range(5, 20)]
    bench.send(kit.batch(2 if later_epoch == 1 else 1, more, epoch=later_epoch))
    seal_all(bench)
    before = bench.rows(KEYS + "gpu_sample")
    bench.close()
    (bench.folder / "copy").rename(file)
    bench.open()
    assert bench.rows(KEYS + "gpu_sample") == before
    assert bench.rows("SELECT sum(rows) FROM hour_change") == [(20,)]
    assert any("10 rows" in text for text in bench.store.problems)
    assert len(put_aside(bench)) == 1
    seal_all(bench)
    assert bench.rows(KEYS + "gpu_sample") == before


def test_crash_between_rename_and_commit_doubles_nothing(bench, kit):
    bench.send(kit.batch(1, [kit.sample(at) for at in range(10)]))
    (name,) = bench.store.layout.live
    table = bench.store.write(lambda con: segments._freeze(bench.store, con, name))
    (written,) = segments._write_files(bench.store, table)
    assert files(bench) == [bench.store.layout.root / written.segment.path]
    bench.reopen()
    assert bench.rows(KEYS + "gpu_sample") == [(10, 10, 10, 1_000_000_000)]
    assert bench.store.problems == []
    assert files(bench) == []


def test_only_drafts_are_unlinked(bench, kit):
    bench.send(kit.batch(1, [kit.sample(0)]))
    seal_all(bench)
    (whole,) = files(bench)
    draft = whole.with_name("g001-s000-dead.parquet.part")
    torn = whole.with_name("g001-s000-beef.parquet")
    kept = whole.with_name(whole.name + "x")
    draft.write_bytes(b"half")
    torn.write_bytes(whole.read_bytes()[:-20])
    kept.write_bytes(b"a person's own")
    bench.reopen()
    assert files(bench) == sorted([whole, kept])
    assert put_aside(bench) == ["day=2026-03-01_hour=10_g001-s000-beef.parquet"]
    assert any("no whole Parquet file" in text for text in bench.store.problems)
    assert bench.count() == 1


def test_file_whose_content_is_damaged_is_put_aside(bench, kit):
    bench.send(kit.batch(1, [kit.sample(at, power_avg_mw=at * 7919) for at in range(600)]))
    seal_all(bench)
    (whole,) = files(bench)
    content = bytearray(whole.read_bytes())
    content[200:1000] = bytes(800)
    whole.write_bytes(content)
    forget(bench)
    assert bench.count() == 0
    assert len(put_aside(bench)) == 1


def test_seal_leaves_no_draft_behind_where_it_fails(bench, kit, monkeypatch):
    def fail(file):
        raise OSError("no space")

    bench.send(kit.batch(1, [kit.sample(0)]))
    (name,) = bench.store.layout.live
    monkeypatch.setattr(segments, "_settle", fail)
    with pytest.raises(OSError, match="no space"):
        seal(bench.store, name)
    assert files(bench) == []
    assert bench.count() == 1
