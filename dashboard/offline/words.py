"""Sentences and cells about files: the verdict, what is unknown, what looks wrong, what to do."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field
from typing import Final

from analysis.offline_model import GpuResult, IdleRun, Moment, Offline, Totals
from analysis.offline_rows import Gpu
from dashboard import format as fmt
from idlewatt.clock import utc_from_us
from idlewatt.model import Basis, EnergySource, State
from idlewatt.units import MS_PER_S, S_PER_HOUR, kwh_from_uj

TIMES: Final = "\u00d7"
HEADS: Final = (
    "GPU",
    "Held",
    "Active",
    "Execution-idle",
    "of held",
    "Deep idle",
    "Unknown",
    "Seen",
)
ENERGY_HEADS: Final = (
    *("GPU", "Energy", "Active", "Execution-idle", "of held", "Deep idle"),
    *("Mean", "Peak", "Limit", "Evidence"),
)
RUN_HEADS: Final = ("GPU", "From", "To", "Length", "Energy", "Mean", "Evidence")
MOMENT_HEADS: Final = (
    "GPU",
    "At",
    "State at that moment",
    "Power",
    "Utilisation, its memory",
    "Memory in use",
)

BASES: Final = {
    Basis.COUNTERS: "activity counters",
    Basis.UTILISATION: "utilisation",
    Basis.RESIDENCY: "no program",
    Basis.NONE: fmt.NOTHING,
}
_CONTROLS: Final = re.compile(r"[^\t\n\x20-\x7e\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_RAW: Final = {
    "active": "at work",
    "low": "held, doing nothing",
    "deep_idle": "held by nobody",
    "unknown": "unknown",
}


@dataclass(frozen=True, slots=True)
class Context:
    """What is known beside the rows.

    Attributes:
        files: what each file is.
        zone_known: whether times are UTC for certain.
        rules: by which rule GPUs are told apart.
        notes: how the files were understood.
        file_findings: what the reader of the files found.
        skipped: lines that were not used, the first ones, as (file, line, why).
        skipped_count: how many there were.
        price_per_kwh: what a kilowatt hour costs; 0 means that nobody said.
        currency: of the price.
    """

    files: dict[str, str] = field(default_factory=dict)
    zone_known: bool = True
    rules: frozenset[str] = frozenset()
    notes: tuple[str, ...] = ()
    file_findings: tuple[str, ...] = ()
    skipped: tuple[tuple[str, int, str], ...] = ()
    skipped_count: int = 0
    price_per_kwh: float = 0.0
    currency: str = ""

    @property
    def clock(self) -> str:
        """Return what the times are, in short."""
        return "UTC" if self.zone_known else "clock of the file"


def clean(value: str) -> str:
    """Return a text from outside without control characters."""
    return _CONTROLS.sub("\ufffd", value)


def _short(gpu: Gpu) -> str:
    if gpu.parent_uuid is not None:
        instance = gpu.name.removeprefix("MIG-").removeprefix(gpu.parent_uuid).lstrip("/")
        return f"MIG {instance.removeprefix('mig/')}"
    if gpu.index is not None:
        return f"GPU {gpu.index}"
    if gpu.name.endswith("/only"):
        return "the GPU"
    return f"{gpu.name[:12]}…" if gpu.name.startswith("GPU-") else gpu.name


def labels(result: Offline) -> dict[str, str]:
    """Return the shortest label that tells each GPU from the others, by its name."""
    gpus = [item.gpu for item in result.gpus]
    nodes = len({gpu.node_id for gpu in gpus}) > 1
    alike = Counter((gpu.node_id, _short(gpu)) for gpu in gpus)
    found: dict[str, str] = {}
    for gpu in gpus:
        short = _short(gpu)
        short = gpu.name if alike[gpu.node_id, short] > 1 else short
        with_node = nodes and not short.startswith(gpu.node_id)
        found[gpu.name] = f"{gpu.node_id} {short}" if with_node else short
    return found


def time(value_us: int) -> str:
    """Return a time with its day."""
    return f"{utc_from_us(value_us):%d %b %H:%M:%S}"


def length(value_ms: float) -> str:
    """Return a length of time; under an hour with seconds."""
    seconds = round(value_ms / MS_PER_S)
    if 60 <= seconds < S_PER_HOUR and seconds % 60:
        return f"{seconds // 60}{fmt.THIN}min {seconds % 60:02d}{fmt.THIN}s"
    return fmt.duration(value_ms / MS_PER_S)


def energy(value_uj: int | None) -> str:
    """Return an energy."""
    return fmt.energy(None if value_uj is None else kwh_from_uj(value_uj))


def cost(value_uj: int | None, context: Context) -> str:
    """Return `, 1.86 EUR` where a price is known."""
    if value_uj is None or context.price_per_kwh <= 0:
        return ""
    return ", " + fmt.money(kwh_from_uj(value_uj), context.price_per_kwh, context.currency)


def subtitle(result: Offline, context: Context) -> str:
    """Return what was looked at, in one line."""
    models = Counter(item.gpu.model or "unknown model" for item in result.devices)
    kinds = ", ".join(f"{count} {TIMES} {model}" for model, count in models.most_common(3))
    parts = [
        fmt.plural(len(context.files), "file"),
        kinds,
        f"{_stamp(result.from_us)} to {_stamp(result.to_us)} ({context.clock})",
        fmt.plural(result.rows, "reading"),
    ]
    if not result.only_moments:
        intervals = sorted({item.interval_ms for item in result.gpus})
        each = ", ".join(f"{ms / MS_PER_S:g}{fmt.THIN}s" for ms in intervals[:3])
        parts[-1] += f", one each {each}"
        parts.append(f"{fmt.share(result.totals.coverage)} of the time seen")
    return " · ".join(parts)


def _stamp(value_us: int) -> str:
    return f"{utc_from_us(value_us):%Y-%m-%d %H:%M:%S}"


def verdict(result: Offline, context: Context) -> str:
    """Return the one sentence that matters."""
    if not result.gpus:
        return "There is no reading of a GPU."
    if result.only_moments:
        return _moments_verdict(result)
    sums = result.totals
    devices = fmt.plural(len(result.devices), "GPU")
    subject = f"{devices} over {length((result.to_us - result.from_us) / 1_000)}"
    if not sums.held_ms:
        return f"{subject}: {_nobody(result, context)}"
    unknown = _unknown(sums)
    begin = f"{subject}: programs held {_them(result)} for {fmt.gpu_hours(sums.held_ms)}"
    idle = sums.of(State.EXECUTION_IDLE)
    if not idle.obs_ms:
        return (
            f"{begin}, and no stretch of {result.min_interval_s}{fmt.THIN}s or more without work "
            f"was seen (by {_bases(sums)}).{unknown}"
        )
    took = ""
    if idle.energy_uj is not None:
        share = fmt.share(sums.idle_energy_share)
        took = (
            f" and {share} of its energy ({energy(idle.energy_uj)}{cost(idle.energy_uj, context)})"
        )
    return (
        f"{begin}; {fmt.share(sums.idle_time_share)} of that time "
        f"({fmt.gpu_hours(idle.obs_ms)}){took} went by without work, as {evidence(sums)}.{unknown}"
    )


def _them(result: Offline) -> str:
    return "it" if len(result.devices) == 1 else "them"


def _unknown(sums: Totals) -> str:
    share = sums.of(State.UNKNOWN).obs_ms / sums.seen_ms
    return f" In {fmt.share(share)} of all time the state is unknown." if share >= 0.005 else ""


def _nobody(result: Offline, context: Context) -> str:
    sums, it = result.totals, _them(result)
    took = ""
    if sums.energy_uj is not None:
        took = f"; the energy was {energy(sums.energy_uj)}{cost(sums.energy_uj, context)}"
    if sums.of(State.DEEP_IDLE).obs_ms > sums.of(State.UNKNOWN).obs_ms:
        any_of = it if len(result.devices) == 1 else "any of them"
        return f"no program was seen to hold {any_of}{took}.{_unknown(sums)}"
    return f"whether {'it' if it == 'it' else 'they'} did any work cannot be told{took}."


def _moments_verdict(result: Offline) -> str:
    newest: dict[str, Moment] = {moment.gpu.name: moment for moment in result.moments}
    ours = {item.gpu.name for item in result.devices}
    counts = Counter(moment.raw for name, moment in newest.items() if name in ours)
    told = [
        f"{counts[raw]} {words}"
        for raw, words in (
            ("active", "at work"),
            ("low", "held by a program and doing nothing"),
            ("deep_idle", "held by nobody"),
            ("unknown", "in a state that cannot be told"),
        )
        if counts[raw]
    ]
    log = "single readings have no shares of time and energy, a log has."
    when = f"at the newest reading ({time(result.to_us)})"
    if len(ours) > 1:
        return f"{fmt.plural(len(ours), 'GPU')} {when}: {', '.join(told)}; {log}"
    return f"The GPU was {told[0].partition(' ')[2]} {when}; {log}"


def evidence(sums: Totals) -> str:
    """Return what the time in execution rests on."""
    counters, utilisation = (
        sums.basis_ms.get(basis, 0) for basis in (Basis.COUNTERS, Basis.UTILISATION)
    )
    if counters and utilisation:
        share = fmt.share(counters / (counters + utilisation))
        return f"activity counters show for {share} of it and utilisation of exactly 0 for the rest"
    return "activity counters show" if counters else "utilisation of exactly 0 shows"


def time_cells(item: GpuResult, name: str) -> list[str]:
    """Return one GPU's row under `HEADS`."""
    sums = item.totals
    cells = [name, length(sums.held_ms)]
    cells += [length(sums.of(State.ACTIVE).obs_ms), length(sums.of(State.EXECUTION_IDLE).obs_ms)]
    cells += [fmt.share(sums.idle_time_share)]
    cells += [length(sums.of(state).obs_ms) for state in (State.DEEP_IDLE, State.UNKNOWN)]
    return [*cells, fmt.share(sums.coverage)]


def energy_cells(item: GpuResult, name: str) -> list[str]:
    """Return one GPU's row under `ENERGY_HEADS`."""
    sums = item.totals
    return [
        name,
        energy(sums.energy_uj),
        energy(sums.of(State.ACTIVE).energy_uj),
        energy(sums.of(State.EXECUTION_IDLE).energy_uj),
        fmt.share(sums.idle_energy_share),
        energy(sums.of(State.DEEP_IDLE).energy_uj),
        fmt.power(item.mean_w),
        fmt.power(item.peak_w),
        fmt.power(item.limit_w),
        _bases(sums),
    ]


def _bases(sums: Totals) -> str:
    found = [
        BASES[basis] for basis in (Basis.COUNTERS, Basis.UTILISATION) if basis in sums.basis_ms
    ]
    if not found and sums.of(State.DEEP_IDLE).obs_ms:
        found = [BASES[Basis.RESIDENCY]]
    return ", ".join(found) or fmt.NOTHING


def run_cells(run: IdleRun, name: str) -> list[str]:
    """Return a run's row under `RUN_HEADS`."""
    mean_w = None if run.energy_uj is None else run.energy_uj / run.length_ms / 1_000
    return [
        name,
        time(run.begin_us),
        time(run.end_us),
        length(run.length_ms),
        energy(run.energy_uj),
        fmt.power(mean_w),
        BASES[run.basis],
    ]


def moment_cells(moment: Moment, name: str) -> list[str]:
    """Return a moment's row under `MOMENT_HEADS`."""
    memory = moment.mem_used_mib
    use = [
        fmt.NOTHING if value is None else f"{value}{fmt.THIN}%"
        for value in (moment.util_gpu_pct, moment.util_mem_pct)
    ]
    return [
        name,
        time(moment.at_us),
        _RAW[moment.raw],
        fmt.power(moment.power_w),
        ", ".join(use),
        fmt.NOTHING if memory is None else f"{fmt.count(memory)}{fmt.THIN}MiB",
    ]


def source_words(result: Offline) -> str | None:
    """Return where the energy comes from."""
    words = {
        EnergySource.COUNTER: "the driver's energy counter",
        EnergySource.POWER_AVG: f"the driver's 1 s average power {TIMES} interval",
        EnergySource.POWER_INST: f"momentary power {TIMES} interval",
    }
    found = dict.fromkeys(source for item in result.gpus for source in item.sources)
    return "Energy is " + ", ".join(words[source] for source in found) + "." if found else None
