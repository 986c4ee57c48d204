"""Nodes, jobs and a small scheduler: who holds which GPU when, from a seed alone.

Time is in float seconds from `ClusterSpec.origin_us`. The schedule is extended as far as somebody
asks and comes out the same in every process, however it is asked for.
"""

from __future__ import annotations

import bisect
import functools
import heapq
import threading
from dataclasses import dataclass
from typing import Final

import numpy as np

from collector.simulator.device import DeviceInfo, device_info, stable_key
from collector.simulator.profiles import GpuProfile, profile
from idlewatt.errors import UsageError
from idlewatt.units import US_PER_S

DEFAULT_MODELS: Final = ("H100-SXM", "A100-SXM4-80GB", "H100-SXM", "L40S", "H100-SXM", "H100-SXM")
DISPATCH_S: Final = 2.0
QUEUE_DEPTH: Final = 5
PATIENCE_S: Final = 3_600.0  # a job that finds no place for so long is cancelled
HOUR_S: Final = 3_600.0


@dataclass(frozen=True, slots=True)
class ClusterSpec:
    """A simulated cluster; everything about it follows from these few values.

    Attributes:
        seed: chooses identities, jobs and noise.
        nodes: number of nodes.
        gpus_per_node: GPUs of each node.
        origin_us: when the simulated driver was loaded and history begins, UTC µs.
        models: GPU model of each node, repeated as often as needed.
        nodes_per_rack: nodes in one rack.
        cluster: label of the cluster.
        fill: share of the GPUs that the scheduler tries to keep allocated.

    Raises:
        UsageError: it describes no cluster.
    """

    seed: int
    nodes: int
    gpus_per_node: int
    origin_us: int
    models: tuple[str, ...] = DEFAULT_MODELS
    nodes_per_rack: int = 2
    cluster: str = "sim"
    fill: float = 0.87

    def __post_init__(self) -> None:
        if self.nodes < 1 or self.gpus_per_node < 1 or not self.models:
            raise UsageError("a simulated cluster needs at least one node, one GPU and one model")
        if not 0.0 < self.fill <= 1.0 or self.nodes_per_rack < 1:
            raise UsageError("fill lies in (0, 1], and a rack holds at least one node")
        for model in self.models:
            profile(model)

    @property
    def gpus(self) -> int:
        """Return how many GPUs there are."""
        return self.nodes * self.gpus_per_node

    def seconds(self, time_us: int) -> float:
        """Return a UTC time as seconds from the origin."""
        return (time_us - self.origin_us) / US_PER_S

    def time_us(self, seconds: float) -> int:
        """Return seconds from the origin as a UTC time."""
        return self.origin_us + round(seconds * US_PER_S)

    def profile_of(self, node_index: int) -> GpuProfile:
        """Return the GPU model of a node."""
        return profile(self.models[node_index % len(self.models)])

    def node_gpus(self, node_index: int) -> range:
        """Return the cluster-wide numbers of a node's GPUs."""
        first = node_index * self.gpus_per_node
        return range(first, first + self.gpus_per_node)


def node_id(node_index: int) -> str:
    """Return the identity of a node."""
    return f"sim-{node_index:03d}"


def rack_of(spec: ClusterSpec, node_index: int) -> str:
    """Return the rack label of a node."""
    return f"rack-{node_index // spec.nodes_per_rack}"


@functools.lru_cache(maxsize=4096)
def device_of(spec: ClusterSpec, gpu: int) -> DeviceInfo:
    """Return the identity of a GPU by its cluster-wide number."""
    node, index = divmod(gpu, spec.gpus_per_node)
    return device_info(spec.seed, node, index, spec.profile_of(node))


@dataclass(frozen=True, slots=True)
class JobKind:
    """How a kind of job looks in the scheduler.

    Attributes:
        name: kind, which also chooses the pattern of work.
        job_class: class reported to the warehouse.
        weight: how often it is drawn.
        sizes: GPUs asked for; each is as likely as the others.
        hours: shortest and longest life, log-uniform.
        prefers: models tried first.
        titles: names its owners give it.
    """

    name: str
    job_class: str
    weight: float
    sizes: tuple[int, ...]
    hours: tuple[float, float]
    prefers: tuple[str, ...]
    titles: tuple[str, ...]


KINDS: Final = (
    JobKind(
        "training",
        "training",
        0.40,
        (1, 1, 1, 2, 2, 2, 4, 4, 8),
        (0.7, 10.0),
        ("H100-SXM", "A100-SXM4-80GB"),
        ("llm-pretrain", "vision-finetune", "lora-sweep", "speech-train", "diffusion-train"),
    ),
    JobKind(
        "serving",
        "serving",
        0.08,
        (1, 1, 2, 4),
        (2.0, 12.0),
        ("L40S", "H100-SXM"),
        ("chat-serve", "embed-serve", "code-serve", "rerank-serve"),
    ),
    JobKind(
        "batch",
        "batch",
        0.28,
        (1, 1, 2),
        (0.2, 3.0),
        ("A100-SXM4-80GB", "L40S"),
        ("caption-batch", "score-batch", "transcribe-batch"),
    ),
    JobKind(
        "notebook",
        "interactive",
        0.12,
        (1,),
        (0.7, 8.0),
        ("L40S", "A100-SXM4-80GB"),
        ("jupyter", "debug-shell"),
    ),
    JobKind(
        "held",
        "other",
        0.13,
        (1, 1, 2),
        (0.3, 2.0),
        ("A100-SXM4-80GB", "L40S"),
        ("reserve", "sleep-hold"),
    ),
)


@dataclass(frozen=True, slots=True)
class Job:
    """One job and where it runs.

    Attributes:
        number: counts jobs from 1.
        kind: training, serving, batch, notebook or held.
        gpus: cluster-wide numbers of its GPUs, in rank order.
        submit_s: when it was asked for.
        start_s: when its allocation begins.
        end_s: when its allocation ends.
        context_s: when its programs open their contexts; `end_s` where they never do.
        exit_s: when its programs close them.
    """

    number: int
    key: str
    raw_id: str
    user: str
    project: str
    title: str
    kind: str
    job_class: str
    gpus: tuple[int, ...]
    submit_s: float
    start_s: float
    end_s: float
    context_s: float
    exit_s: float


@dataclass(frozen=True, slots=True)
class _Wish:
    """A job before it has a place."""

    number: int
    kind: JobKind
    size: int
    life_s: float
    delay_s: float
    rng: np.random.Generator


class Schedule:
    """All jobs of a cluster, extended on demand: whole GPUs, first come, small ones may pass."""

    def __init__(self, spec: ClusterSpec) -> None:
        self.spec = spec
        self._lock = threading.Lock()
        self._free: list[list[int]] = [list(spec.node_gpus(node)) for node in range(spec.nodes)]
        self._ends: list[tuple[float, int]] = []
        self._jobs: dict[int, Job] = {}
        self._by_gpu: list[list[Job]] = [[] for _ in range(spec.gpus)]
        self._count = 0
        self._now_s = -1.0
        self._queue: list[tuple[float, _Wish]] = []
        self._populate()

    def jobs_on(self, gpu: int, from_s: float, to_s: float) -> list[Job]:
        """Return the jobs that hold `gpu` in [from_s, to_s), in order of time."""
        self.extend(to_s)
        jobs = self._by_gpu[gpu]
        first = bisect.bisect_right(jobs, from_s, key=lambda job: job.end_s)
        last = bisect.bisect_left(jobs, to_s, key=lambda job: job.start_s)
        return jobs[first:last]

    def extend(self, until_s: float) -> None:
        """Run the scheduler up to `until_s`, where it has not been already."""
        with self._lock:
            while self._now_s <= until_s:
                self._step()

    def _allocated(self) -> int:
        return self.spec.gpus - sum(map(len, self._free))

    def _wish(self) -> _Wish:
        self._count += 1
        rng = np.random.default_rng(stable_key(self.spec.seed, "job", self._count))
        weights = np.array([kind.weight for kind in KINDS])
        kind = KINDS[int(rng.choice(len(KINDS), p=weights / weights.sum()))]
        size = min(int(rng.choice(kind.sizes)), self.spec.gpus_per_node)
        if self._count == 1 and self.spec.nodes >= 4:  # one job that spans nodes
            kind, size = KINDS[0], 2 * self.spec.gpus_per_node
        low, high = np.log(kind.hours)
        life_s = float(np.exp(rng.uniform(low, high))) * HOUR_S
        return _Wish(self._count, kind, size, life_s, float(rng.exponential(60.0)), rng)

    def _populate(self) -> None:
        """Start with a cluster in the middle of its work; some jobs began long ago."""
        misses = 0
        while self._allocated() < self.spec.fill * self.spec.gpus and misses < QUEUE_DEPTH:
            wish = self._wish()
            begun_s = -wish.life_s * float(wish.rng.uniform(0.02, 0.98))
            if not self._place(wish, begun_s, begun_s - DISPATCH_S):
                misses += 1
        self._now_s = 0.0

    def _step(self) -> None:
        wanted = self._allocated() < self.spec.fill * self.spec.gpus
        if wanted and len(self._queue) < QUEUE_DEPTH:
            wish = self._wish()
            submit_s = self._now_s + wish.delay_s
            while self._ends and self._ends[0][0] <= submit_s:
                self._finish()
            self._now_s = submit_s
            self._queue.append((submit_s, wish))
        else:
            self._finish()
        self._dispatch()

    def _dispatch(self) -> None:
        """Start what fits, oldest first; who has waited for too long gives up."""
        for waiting in list(self._queue):
            submit_s, wish = waiting
            if self._place(wish, self._now_s + DISPATCH_S, submit_s):
                self._queue.remove(waiting)
        self._queue = [waiting for waiting in self._queue if self._now_s - waiting[0] <= PATIENCE_S]

    def _finish(self) -> None:
        end_s, number = heapq.heappop(self._ends)
        self._now_s = max(self._now_s, end_s)
        for gpu in self._jobs[number].gpus:
            self._free[gpu // self.spec.gpus_per_node].append(gpu)

    def _find(self, wish: _Wish) -> tuple[int, ...] | None:
        per_node = self.spec.gpus_per_node
        need = min(wish.size, per_node)
        whole = max(wish.size // per_node, 1)
        by_model: dict[str, list[int]] = {}
        for node, free in enumerate(self._free):
            if len(free) >= need:
                by_model.setdefault(self.spec.profile_of(node).key, []).append(node)
        fitting = [nodes for nodes in by_model.values() if len(nodes) >= whole]
        if not fitting:
            return None

        def rank(node: int) -> tuple[bool, int, int]:
            liked = self.spec.profile_of(node).key in wish.kind.prefers
            return (not liked, len(self._free[node]), node)

        ordered = [sorted(nodes, key=rank) for nodes in fitting]
        chosen = min(ordered, key=lambda nodes: rank(nodes[0]))[:whole]
        return tuple(gpu for node in chosen for gpu in sorted(self._free[node])[:need])

    def _place(self, wish: _Wish, start_s: float, submit_s: float) -> bool:
        gpus = self._find(wish)
        if gpus is None:
            return False
        for gpu in gpus:
            self._free[gpu // self.spec.gpus_per_node].remove(gpu)
        job = self._job(wish, gpus, round(start_s, 3), round(submit_s, 3))
        self._jobs[job.number] = job
        for gpu in gpus:
            self._by_gpu[gpu].append(job)
        heapq.heappush(self._ends, (job.end_s, job.number))
        return True

    def _job(self, wish: _Wish, gpus: tuple[int, ...], start_s: float, submit_s: float) -> Job:
        rng, kind = wish.rng, wish.kind
        end_s = round(start_s + wish.life_s, 3)
        # What comes before the first context: images, data, a person who reads mail first.
        early_s = float(np.clip(rng.lognormal(np.log(45.0), 0.7), 5.0, 0.3 * wish.life_s))
        context_s = end_s if kind.name == "held" else round(start_s + early_s, 3)
        exit_s = end_s if kind.name == "held" else round(end_s - float(rng.uniform(0.2, 6.0)), 3)
        title = kind.titles[int(rng.integers(len(kind.titles)))]
        raw_id = str(100_000 + wish.number)
        return Job(
            number=wish.number,
            key=f"{self.spec.cluster}:{raw_id}:0",
            raw_id=raw_id,
            user=f"user-{int(rng.integers(1, 25)):02d}",
            project=f"project-{'abcdef'[int(rng.integers(6))]}",
            title=f"{title}-{int(rng.integers(1, 100)):02d}",
            kind=kind.name,
            job_class=kind.job_class,
            gpus=gpus,
            submit_s=submit_s,
            start_s=start_s,
            end_s=end_s,
            context_s=context_s,
            exit_s=exit_s,
        )


@functools.lru_cache(maxsize=8)
def schedule_of(spec: ClusterSpec) -> Schedule:
    """Return the one schedule of a cluster in this process."""
    return Schedule(spec)
