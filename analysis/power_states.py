"""Power states of GPUs: what each second was, and the intervals that seconds make.

Pure, vectorised functions over numpy arrays, used alike by the incremental job, by
``idlewatt analyze`` and by the live page (`docs/how-numbers-are-computed.md`):

1. `classify`: each row by itself -> active, low, deep idle or unknown.
2. `raw_runs`: rows of one hour -> runs. Needs nothing from outside the hour, so runs are stored.
3. `stitch`: runs of any period -> intervals. Applies the length rule over all borders.

`state_now` and `states_now` give the newest state from the last minute of rows, `shares` the
in-execution shares, `totals` time and energy by state.
"""

from analysis.classify import RAW_NAMES, STATES, VERDICTS, Kind, Raw, Verdict, classify
from analysis.frame import (
    CLASSIFIER_COLUMNS,
    ENERGY_SOURCES,
    Column,
    Columns,
    Rows,
    columns_from_arrow,
)
from analysis.runs import Intervals, Runs, concat, firm_borders, raw_runs, stitch, take
from analysis.shares import (
    PAPER_INTERVALS_S,
    GpuNow,
    Now,
    Share,
    StateTotal,
    share,
    shares,
    state_now,
    states_now,
    totals,
)

__all__ = [
    "CLASSIFIER_COLUMNS",
    "ENERGY_SOURCES",
    "PAPER_INTERVALS_S",
    "RAW_NAMES",
    "STATES",
    "VERDICTS",
    "Column",
    "Columns",
    "GpuNow",
    "Intervals",
    "Kind",
    "Now",
    "Raw",
    "Rows",
    "Runs",
    "Share",
    "StateTotal",
    "Verdict",
    "classify",
    "columns_from_arrow",
    "concat",
    "firm_borders",
    "raw_runs",
    "share",
    "shares",
    "state_now",
    "states_now",
    "stitch",
    "take",
    "totals",
]
