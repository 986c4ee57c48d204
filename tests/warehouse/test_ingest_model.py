"""Any order of batches, repeats, holes, seals and restarts equals a plain Python model.

The model: a row is kept if its epoch is higher than that of the row that is there, or there is
none; a lane takes the next number and nothing else.
"""

from __future__ import annotations

import shutil
import tempfile
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from idlewatt.errors import SequenceError
from warehouse import segments
from warehouse.segments import seal

GPUS = ("GPU-a", "GPU-b", "GPU-c")
# A few seconds at the edges of three hours, so that rows collide often.
SECONDS = st.sampled_from([0, 1, 2, 3597, 3598, 3599, 3600, 3601, 3602, 7199, 7200])
ROWS = st.lists(st.tuples(SECONDS, st.sampled_from(GPUS)), min_size=0, max_size=8)
LANES = st.sampled_from(
    [("n1", 1, "live"), ("n1", 1, "backfill"), ("n1", 2, "live"), ("n1", 3, "backfill")]
)


class Warehouse(RuleBasedStateMachine):
    """Drives a real warehouse and the model side by side."""

    make_bench = None
    kit = None

    @initialize()
    def start(self):
        self.folder = Path(tempfile.mkdtemp(prefix="idlewatt-model-"))
        self.bench = self.make_bench(self.folder)
        self.rows: dict[tuple[int, str], tuple[int, int]] = {}
        self.seqs: Counter[tuple[str, int, str]] = Counter()
        self.bodies: dict[tuple[str, int, str, int], bytes] = {}
        self.gaps = 0
        self.mark = 0

    def teardown(self):
        if hasattr(self, "bench"):
            self.bench.close()
            shutil.rmtree(self.folder)

    def body(self, lane, seq, rows):
        node, epoch, name = lane
        samples = []
        for second, gpu in rows:
            self.mark += 1
            samples.append(self.kit.sample(second, gpu, epoch, node=node, power_avg_mw=self.mark))
        body = self.kit.batch(seq, samples, node=node, epoch=epoch, lane=name)
        return body, [sample[7] for sample in samples]

    def accept(self, lane, seq, rows, marks, body):
        self.seqs[lane] = seq
        self.bodies[(*lane, seq)] = body
        epoch = lane[1]
        for (second, gpu), mark in zip(rows, marks, strict=True):
            before = self.rows.get((second, gpu))
            if before is None or epoch > before[0]:
                self.rows[second, gpu] = (epoch, mark)

    @rule(lane=LANES, rows=ROWS)
    def send_next(self, lane, rows):
        seq = self.seqs[lane] + 1
        body, marks = self.body(lane, seq, rows)
        ack = self.bench.send(body)
        assert (ack.acked, ack.duplicate) == (seq, False)
        self.accept(lane, seq, rows, marks, body)

    @rule(first=LANES, second=LANES, rows=ROWS, more=ROWS)
    def send_two_at_once(self, first, second, rows, more):
        if first == second:
            return
        # Which of two batches in flight is committed first is open (live goes before backfill), so
        # a row of one epoch is never sent in both; no agent does that either.
        more = [row for row in more if row not in rows]
        sent = []
        for lane, content in ((first, rows), (second, more)):
            seq = self.seqs[lane] + 1
            body, marks = self.body(lane, seq, content)
            sent.append((self.bench.ingestor.submit(body), lane, seq, content, marks, body))
        for future, lane, seq, content, marks, body in sent:
            assert not future.result(timeout=30).duplicate
            self.accept(lane, seq, content, marks, body)

    @rule(data=st.data())
    def send_again(self, data):
        if self.bodies:
            key = data.draw(st.sampled_from(sorted(self.bodies)))
            ack = self.bench.send(self.bodies[key])
            assert (ack.acked, ack.duplicate) == (key[3], True)

    @rule(lane=LANES, ahead=st.integers(2, 4), rows=ROWS, give_up=st.booleans())
    def leave_a_hole(self, lane, ahead, rows, give_up):
        expected = self.seqs[lane] + 1
        seq = expected + ahead - 1
        body, marks = self.body(lane, seq, rows)
        if not give_up:
            with pytest.raises(SequenceError) as caught:
                self.bench.send(body)
            assert caught.value.expected == expected
            return
        assert self.bench.send(body, given_up=(expected, seq - 1)).acked == seq
        self.accept(lane, seq, rows, marks, body)
        self.gaps += 1

    @rule()
    def seal_all(self):
        for name in list(self.bench.store.layout.live):
            assert seal(self.bench.store, name) is not None

    @rule()
    def freeze_only(self):
        layout = self.bench.store.layout
        for name in list(layout.live):
            self.bench.store.write(lambda con, name=name: layout.freeze(con, name))

    @rule(lane=LANES, rows=ROWS)
    def send_while_sealing(self, lane, rows):
        """A batch arrives between the copy and the switch of every live table."""
        names = list(self.bench.store.layout.live)
        copied = []
        for name in names:
            table = self.bench.store.write(
                lambda con, name=name: segments._freeze(self.bench.store, con, name)
            )
            copied.append((table, segments._write_files(self.bench.store, table)))
        self.send_next(lane, rows)
        for table, written in copied:
            switched = self.bench.store.write(
                lambda con, table=table, written=written: segments._switch(
                    self.bench.store, con, table, written
                )
            )
            if not switched:
                segments._unlink(self.bench.store, written)

    @rule()
    def restart(self):
        self.bench.reopen()

    @invariant()
    def view_equals_the_model(self):
        if not hasattr(self, "bench"):
            return
        found = self.bench.rows(
            "SELECT epoch_us(ts_utc) // 1000000, gpu_uuid, epoch, power_avg_mw FROM gpu_sample"
        )
        t0 = self.kit.T0_S
        assert len(found) == len(self.rows)
        assert {(at - t0, gpu): (epoch, mark) for at, gpu, epoch, mark in found} == self.rows
        hours = Counter((t0 + second) // 3600 for second, _ in self.rows)
        noted = dict(
            self.bench.rows("SELECT epoch_us(hour_utc) // 3600000000, rows FROM hour_change")
        )
        assert {hour: rows for hour, rows in noted.items() if rows} == dict(hours)
        assert self.bench.count("gap") == self.gaps


def test_any_history_equals_the_model(make_bench, kit, request):
    bound = type("BoundWarehouse", (Warehouse,), {"make_bench": make_bench, "kit": kit})
    case = bound.TestCase
    # Every step touches a disk, so a failing history is shown as found: shrinking takes minutes.
    phases = (Phase.explicit, Phase.reuse, Phase.generate)
    case.settings = settings(max_examples=10, stateful_step_count=20, deadline=None, phases=phases)
    case("runTest").runTest()
