"""Stitching runs of any chunking gives what a plain loop over seconds gives."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from analysis.classify import RAW_OF_KIND, Kind, Raw
from analysis.frame import sort_order
from analysis.power_states import Rows, concat, firm_borders, raw_runs, stitch, take
from analysis.runs import differing, join
from idlewatt.units import US_PER_HOUR

HOUR_US = 491_000 * US_PER_HOUR
FIELDS = (
    "gpu",
    "first_us",
    "last_us",
    "kind",
    "job",
    "samples",
    "obs_ms",
    "energy_obs_ms",
    "run_ms",
)

seconds = st.lists(
    st.tuples(
        st.sampled_from(
            [
                Kind.LOW_COUNTERS,
                Kind.LOW_COUNTERS,
                Kind.LOW_UTILISATION,
                Kind.ACTIVE_COUNTERS,
                Kind.ACTIVE_UTILISATION,
                Kind.DEEP_IDLE,
                Kind.NO_RESIDENCY,
            ]
        ),
        st.integers(1, 7),  # repeated so often
        st.sampled_from([0, 0, 0, 0, 1, 3]),  # then so many seconds missing
        st.integers(-1, 1),  # owner
        st.sampled_from([-1, 0, 0, 1]),  # energy source
    ),
    max_size=25,
)
fleets = st.lists(st.tuples(st.integers(-60, 3), seconds), min_size=1, max_size=3)


def expand(fleet):
    """Return (gpu, ts_us, kind, job, energy_uj, source) rows."""
    found = []
    for gpu, (offset, pattern) in enumerate(fleet):
        ts_us = HOUR_US + offset * 1_000_000
        for kind, repeat, missing, job, source in pattern:
            for _ in range(repeat):
                found.append((gpu, ts_us, int(kind), job, 7 if source >= 0 else 0, source))
                ts_us += 1_000_000
            ts_us += missing * 1_000_000
    return found


def joined(row, before):
    return before is not None and row[0] == before[0] and row[1] - before[1] == 1_000_000


def relabelled(rows, minimum):
    """Return rows whose short low stretches count as active."""
    final, stretch, before = [], [], None

    def close():
        for row in stretch:
            final.append((*row[:2], row[2] if len(stretch) >= minimum else row[2] - 2, *row[3:]))
        stretch.clear()

    for row in rows:
        low = RAW_OF_KIND[row[2]] == Raw.LOW
        if not joined(row, before) or not low:
            close()
        (stretch if low else final).append(row)
        before = row
    close()
    return sorted(final, key=lambda row: row[:2])


def grouped(rows, key):
    """Return consecutive rows without a hole that share a key."""
    groups = []
    for row in rows:
        if groups and joined(row, groups[-1][-1]) and key(row) == key(groups[-1][-1]):
            groups[-1].append(row)
        else:
            groups.append([row])
    return groups


def reference(rows, minimum):
    """Return pieces by a plain loop, written from the definition alone."""
    pieces = []
    for run in grouped(relabelled(rows, minimum), lambda row: RAW_OF_KIND[row[2]]):
        for piece in grouped(run, lambda row: (row[2], row[3], row[1] // US_PER_HOUR)):
            energies = tuple(sum(row[4] for row in piece if row[5] == code) for code in range(3))
            length = len(piece)
            seen = sum(1000 for row in piece if row[5] >= 0)
            gpu, first, kind, job = *piece[0][:2], piece[0][2], piece[0][3]
            key = (gpu, first, piece[-1][1], kind, job)
            pieces.append((*key, length, 1000 * length, seen, 1000 * len(run), energies))
    return pieces


def arrays(rows):
    columns = [np.array([row[at] for row in rows], dtype=np.int64) for at in range(6)]
    gpu, ts_us, kind, job, energy, source = columns
    frame = Rows(
        gpu.astype(np.int32),
        ts_us,
        np.full(len(rows), 1000, dtype=np.int64),
        energy,
        source.astype(np.int8),
    )
    return frame, kind.astype(np.int8), job.astype(np.int32)


def chunked(rows, cuts):
    """Return the runs of rows taken in chunks at hours and at extra seconds."""
    parts = []
    for key in sorted(
        {(row[1] // US_PER_HOUR, sum(row[1] >= cut for cut in cuts)) for row in rows}
    ):
        part = [
            row
            for row in rows
            if (row[1] // US_PER_HOUR, sum(row[1] >= cut for cut in cuts)) == key
        ]
        parts.append(raw_runs(*arrays(part)))
    return concat(parts) if parts else raw_runs(*arrays([]))


def as_tuples(pieces):
    plain = zip(*(getattr(pieces, name).tolist() for name in FIELDS), strict=True)
    return [(*row, tuple(pieces.energy_uj[:, at].tolist())) for at, row in enumerate(plain)]


@settings(max_examples=150, deadline=None)
@given(fleets, st.sampled_from([1, 2, 5, 10]), st.lists(st.integers(-60, 60), max_size=3))
def test_stitched_chunks_equal_a_loop_over_seconds(fleet, minimum, cuts):
    rows = expand(fleet)
    cuts_us = [HOUR_US + cut * 1_000_000 for cut in cuts]
    assert as_tuples(stitch(chunked(rows, cuts_us), minimum)) == reference(rows, minimum)


@settings(max_examples=100, deadline=None)
@given(fleets, st.sampled_from([1, 5]), st.integers(-50, 60))
def test_nothing_beyond_a_firm_border_changes_what_lies_behind_it(fleet, minimum, at):
    """Cut all rows at a second; behind the last firm border before it, results stay the same."""
    rows = expand(fleet)
    cut_us = HOUR_US + at * 1_000_000
    runs = chunked(rows, [cut_us])
    whole = stitch(runs, minimum)
    left = take(runs, runs.first_us < cut_us)
    firm = np.flatnonzero(firm_borders(left, minimum))
    alone = stitch(left, minimum)
    for gpu in range(len(fleet)):
        mine = firm[left.gpu[firm] == gpu]
        if len(mine):
            border_us = left.first_us[mine[-1]]
            before = (whole.gpu == gpu) & (whole.first_us < border_us)
            expected = (alone.gpu == gpu) & (alone.first_us < border_us)
            assert as_tuples(take(alone, expected)) == as_tuples(take(whole, before))


@settings(max_examples=60, deadline=None)
@given(fleets, st.integers(-50, 60))
def test_a_further_cut_splits_pieces_and_keeps_every_sum(fleet, at):
    rows = expand(fleet)
    cut_us = HOUR_US + at * 1_000_000
    whole = stitch(raw_runs(*arrays(rows)), 5)
    cut = stitch(raw_runs(*arrays(rows), cuts_us=[cut_us]), 5, cuts_us=[cut_us])
    assert not ((cut.first_us < cut_us) & (cut.last_us >= cut_us)).any()
    for state in range(4):
        for name in ("obs_ms", "samples", "energy_obs_ms"):
            assert (
                getattr(cut, name)[cut.state == state].sum()
                == getattr(whole, name)[whole.state == state].sum()
            )


@settings(max_examples=60, deadline=None)
@given(fleets, st.sampled_from([0, 3 * US_PER_HOUR]), st.randoms())
def test_rows_in_any_order_come_out_in_order(fleet, later_us, rng):
    """Within an hour, and over a period too long for the quick way."""
    rows = expand(fleet)
    rows += [(row[0], row[1] + later_us, *row[2:]) for row in rows if later_us]
    expected = arrays(sorted(rows))[0]
    found = arrays(rng.sample(rows, len(rows)))[0]
    order = sort_order(found.gpu, found.ts_us)
    if order is not None:
        found = found.take(order)
    assert found.gpu.tolist() == expected.gpu.tolist()
    assert found.ts_us.tolist() == expected.ts_us.tolist()


RUN_FIELDS = tuple(name for name in FIELDS if name != "run_ms")


def run_tuples(runs):
    plain = zip(*(getattr(runs, name).tolist() for name in RUN_FIELDS), strict=True)
    return [
        (*row, runs.energy_uj[:, at].tolist(), runs.energy_seen[:, at].tolist())
        for at, row in enumerate(plain)
    ]


@settings(max_examples=100, deadline=None)
@given(fleets, st.integers(1, 9), st.integers(-50, 60))
def test_runs_of_portions_joined_are_the_runs_of_all_rows(fleet, size, at):
    """Portions end anywhere, between GPUs, at holes and inside runs."""
    rows = expand(fleet)
    cuts_us = [HOUR_US + at * 1_000_000]
    parts = [
        raw_runs(*arrays(rows[low : low + size]), cuts_us=cuts_us)
        for low in range(0, len(rows), size)
    ]
    whole = raw_runs(*arrays(rows), cuts_us=cuts_us)
    joined_runs = join(concat([raw_runs(*arrays([])), *parts]), cuts_us)
    assert run_tuples(joined_runs) == run_tuples(whole)


@settings(max_examples=100, deadline=None)
@given(fleets, fleets, st.data())
def test_what_differs_between_two_sets_of_runs(one, other, data):
    """Against a plain comparison of sets; some GPUs are the same on both sides."""
    shared = [data.draw(st.sampled_from([mine, *other])) for mine in one]
    old, new = (raw_runs(*arrays(expand(fleet))) for fleet in (one, shared))
    gone, added = differing(old, new)
    was, now = run_tuples(old), run_tuples(new)
    assert gone.tolist() == [row not in now for row in was]
    assert added.tolist() == [row not in was for row in now]
