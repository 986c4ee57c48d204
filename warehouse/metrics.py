"""Counters of the server in Prometheus text form."""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from warehouse.commit import Outcome

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
COMMIT_BUCKETS_S: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)


class Histogram:
    """Counts of observations up to each bound."""

    def __init__(self, bounds: tuple[float, ...] = COMMIT_BUCKETS_S) -> None:
        self._bounds = bounds
        self._counts = [0] * (len(bounds) + 1)
        self._sum = 0.0
        self._lock = threading.Lock()

    def observe(self, value: float) -> None:
        """Count one observation."""
        with self._lock:
            self._counts[bisect_left(self._bounds, value)] += 1
            self._sum += value

    def lines(self, name: str, text: str) -> list[str]:
        """Return the lines of the exposition."""
        with self._lock:
            counts, total = list(self._counts), self._sum
        out = [f"# HELP {name} {text}", f"# TYPE {name} histogram"]
        seen = 0
        for bound, count in zip(self._bounds, counts, strict=False):
            seen += count
            out.append(f'{name}_bucket{{le="{bound:g}"}} {seen}')
        out.append(f'{name}_bucket{{le="+Inf"}} {sum(counts)}')
        return [*out, f"{name}_sum {total:.6f}", f"{name}_count {sum(counts)}"]


class Metrics:
    """What the server counts; safe on any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: Counter[str] = Counter()
        self._rejected: Counter[str] = Counter()
        self.commit_s = Histogram()
        self.query_s = Histogram((0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 30.0))

    def add(self, name: str, amount: int = 1) -> None:
        """Add to a plain counter."""
        with self._lock:
            self._counts[name] += amount

    def get(self, name: str) -> int:
        """Return a plain counter."""
        with self._lock:
            return self._counts[name]

    def rejected(self, kind: str) -> None:
        """Count a batch that was refused, by the name of its error."""
        with self._lock:
            self._rejected[kind] += 1

    def committed(self, outcome: Outcome, size: int) -> None:
        """Count a batch that was acknowledged."""
        with self._lock:
            self._counts["ingest_batches"] += 1
            self._counts["ingest_bytes"] += size
            self._counts["ingest_duplicates"] += outcome.duplicate
            self._counts["ingest_rows"] += outcome.rows
            self._counts["ingest_quarantined_rows"] += outcome.quarantined
            self._counts["ingest_unknown_tables"] += outcome.unknown

    def lines(self) -> list[str]:
        """Return all counters and histograms."""
        with self._lock:
            counts, rejected = dict(self._counts), dict(self._rejected)
        out: list[str] = []
        for name, text in _HELP.items():
            out += sample(f"idlewatt_{name}_total", text, "counter", counts.get(name, 0))
        out += labelled(
            "idlewatt_ingest_rejected_total", "batches refused", "counter", "error", rejected
        )
        out += self.commit_s.lines("idlewatt_commit_seconds", "time of one ingest transaction")
        out += self.query_s.lines("idlewatt_query_seconds", "time of one query")
        return out


_HELP: Final[dict[str, str]] = {
    "ingest_batches": "batches acknowledged, duplicates included",
    "ingest_duplicates": "batches that had been committed before",
    "ingest_rows": "rows committed",
    "ingest_bytes": "bytes of acknowledged batches as sent",
    "ingest_quarantined_rows": "rows that cannot be true",
    "ingest_unknown_tables": "tables with columns unknown to this version, kept aside",
    "queries": "queries answered",
    "queries_failed": "queries refused, failed or stopped",
    "sealed_hours": "live tables turned into segments",
    "sealed_rows": "rows written to segments",
}


def sample(name: str, text: str, kind: str, value: float | int | None) -> list[str]:
    """Return the lines of one unlabelled metric; none where the value is missing."""
    if value is None:
        return []
    return [f"# HELP {name} {text}", f"# TYPE {name} {kind}", f"{name} {value}"]


def labelled(
    name: str, text: str, kind: str, label: str, values: Mapping[str, float | int]
) -> list[str]:
    """Return the lines of one metric with one label."""
    head = [f"# HELP {name} {text}", f"# TYPE {name} {kind}"]
    return head + [f'{name}{{{label}="{_escape(key)}"}} {value}' for key, value in values.items()]


def exposition(lines: Iterable[str]) -> bytes:
    """Return the body of the answer."""
    return ("\n".join(lines) + "\n").encode()


def _escape(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
