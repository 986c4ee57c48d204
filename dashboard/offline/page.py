"""The report about files as one HTML page: no script, nothing from elsewhere, light and dark."""

from __future__ import annotations

import html
import re
from collections.abc import Sequence
from typing import Final

from analysis.offline_model import GpuResult, Offline, Totals
from analysis.offline_series import GpuSeries
from dashboard import format as fmt
from dashboard.offline import advice, chart, words
from dashboard.offline.words import Context
from dashboard.theme import FONT, LABELS, PALETTES, Look, Palette, Scheme
from idlewatt import __version__
from idlewatt.model import State

MOST_GPUS: Final = 256
_CODE: Final = re.compile(r"`([^`<>]*)`")
_LOOKS: Final = {
    State.ACTIVE: Look.ACTIVE,
    State.EXECUTION_IDLE: Look.EXECUTION_IDLE,
    State.UNKNOWN: Look.UNKNOWN,
    State.DEEP_IDLE: Look.DEEP_IDLE,
}
_HELP: Final = {
    State.ACTIVE: "at work",
    State.EXECUTION_IDLE: "held by a program that did nothing",
    State.UNKNOWN: "cannot be told",
    State.DEEP_IDLE: "held by no program",
}
_CSS: Final = """
:root{color-scheme:light dark;@light}
@media (prefers-color-scheme:dark){:root{@dark}}
*{box-sizing:border-box}
body{margin:0;background:var(--background);color:var(--text);font:15px/1.5 @font}
main,footer{max-width:1180px;margin:0 auto;padding:0 24px}
header{max-width:1180px;margin:0 auto;padding:32px 24px 8px}
h1{font-size:14px;font-weight:600;letter-spacing:.04em;color:var(--muted);margin:0 0 12px}
h2{font-size:18px;margin:0 0 12px}
h3{font-size:15px;margin:0 0 2px}
.verdict{font-size:24px;line-height:1.35;font-weight:600;margin:0 0 10px;max-width:60ch;
text-wrap:pretty}
.muted,figcaption,footer{color:var(--muted);font-size:13px}
section{background:var(--panel);border:1px solid var(--grid);border-radius:10px;
padding:20px 22px;margin:16px 0}
section.alert{border-left:4px solid var(--execution_idle)}
ul{margin:0;padding-left:20px}li{margin:4px 0;max-width:100ch}
pre{background:var(--background);border:1px solid var(--grid);border-radius:6px;padding:12px;
white-space:pre-wrap;overflow-wrap:anywhere;font-size:13px;margin:12px 0 0}
.scroll{overflow-x:auto}
table{border-collapse:collapse;width:100%;font-variant-numeric:tabular-nums}
caption{text-align:left;color:var(--muted);font-size:13px;padding-bottom:8px}
th,td{padding:6px 10px;text-align:right;white-space:nowrap;border-bottom:1px solid var(--grid)}
th:first-child,td:first-child,.left{text-align:left}
thead th{color:var(--muted);font-size:13px;font-weight:600;vertical-align:bottom}
tbody th{font-weight:600}
.chip{display:inline-block;width:11px;height:11px;border-radius:2px;margin-right:7px;
border:1px solid var(--outline)}
.legend{display:flex;flex-wrap:wrap;gap:4px 20px;margin:0 0 14px;padding:0;list-style:none;
font-size:13px}.legend li{margin:0}
figure{margin:0 0 22px}figcaption{margin:0 0 6px}
figure svg{display:block;width:100%;min-width:680px;height:auto}
svg.bar{display:block;width:100%;height:22px;border-radius:4px;margin:2px 0 10px}
svg text{fill:var(--muted);font:11px @font}svg text.limit{fill:var(--limit)}
path.grid{stroke:var(--grid);fill:none}.none{fill:var(--no_data);stroke:var(--grid)}
path.band{fill:var(--band)}
path.mean{fill:none;stroke:var(--line);stroke-width:1.3;vector-effect:non-scaling-stroke}
path.limit{stroke:var(--limit);stroke-dasharray:5 4;fill:none}path.peak{fill:var(--text)}
@states
a{color:inherit}:focus-visible{outline:2px solid var(--line);outline-offset:2px}
footer{padding:4px 24px 32px}
@media print{section{break-inside:avoid}}
"""


def render(result: Offline, context: Context) -> str:
    """Return the page."""
    parts = [
        "<!DOCTYPE html>\n",
        '<html lang="en" xmlns="http://www.w3.org/1999/xhtml"><head><meta charset="utf-8"/>',
        '<meta name="viewport" content="width=device-width,initial-scale=1"/>',
        '<meta http-equiv="Content-Security-Policy" '
        "content=\"default-src 'none';style-src 'unsafe-inline'\"/>",
        f"<title>{_text('idlewatt: ' + ', '.join(list(context.files)[:3]))}</title>",
        f"<style>{_css()}</style></head><body>",
        f"<header><h1>idlewatt</h1>{_paragraph(words.verdict(result, context), 'verdict')}",
        f"{_paragraph(words.subtitle(result, context), 'muted')}</header><main>",
        _findings(result, context),
        _actions(result, context),
        _moments(result) if result.only_moments else _states(result, context),
        "" if result.only_moments else _lines(result, context),
        "" if result.only_moments else _gpus(result),
        _runs(result, context),
        _listed("What cannot be known", advice.unknowns(result, context)),
        _listed("How it was read", _how(result, context)),
        f"</main><footer>idlewatt {_text(__version__)} · times: {_text(context.clock)}</footer>",
        "</body></html>\n",
    ]
    return "".join(parts)


def _text(value: str) -> str:
    """Return a text that is safe anywhere in the page."""
    return html.escape(words.clean(value))


def _css() -> str:
    """Return the style sheet, with both palettes."""
    css = _CSS.replace("@font", FONT.replace('"', "'"))
    for scheme in Scheme:
        css = css.replace(f"@{scheme.value}", _variables(PALETTES[scheme]))
    states = "".join(
        f".{state.value}{{fill:var(--{look.value});background:var(--{look.value})}}"
        for state, look in _LOOKS.items()
    )
    return css.replace("@states", states)


def _variables(colours: Palette) -> str:
    values = {look.value: colour for look, colour in colours.states.items()}
    names = ("background", "panel", "text", "muted", "grid", "outline", "line", "band", "limit")
    values |= {name: getattr(colours, name) for name in names}
    return "".join(f"--{name}:{value};" for name, value in values.items())


def _paragraph(text: str, style: str) -> str:
    return f'<p class="{style}">{_text(text)}</p>'


def _items(items: Sequence[str]) -> str:
    told = (_CODE.sub(r"<code>\1</code>", _text(item)) for item in items)
    return "<ul>" + "".join(f"<li>{item}</li>" for item in told) + "</ul>"


def _listed(title: str, items: Sequence[str]) -> str:
    return f"<section><h2>{_text(title)}</h2>{_items(items)}</section>" if items else ""


def _how(result: Offline, context: Context) -> list[str]:
    files = [f"{name}: {kind}" for name, kind in context.files.items()]
    more = len(files) - 20
    shown = files[:20] + ([f"and {fmt.plural(more, 'more file')}"] if more > 0 else [])
    return [*advice.basis_notes(result, context), *shown]


def _findings(result: Offline, context: Context) -> str:
    lines = advice.finding_lines(result, context)
    if not lines:
        return ""
    return f'<section class="alert"><h2>What misleads</h2>{_items(lines)}</section>'


def _actions(result: Offline, context: Context) -> str:
    items = _items(advice.actions(result, context))
    command = advice.command(result)
    shown = _text(command or "").replace(",", ",<wbr/>")
    code = f"<pre><code>{shown}</code></pre>" if command else ""
    return f"<section><h2>What to do</h2>{items}{code}</section>"


def _table(caption: str, heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table; the first cell of each row is its heading."""
    left = [all(row[n][:1].isalpha() for row in rows) for n in range(len(heads))]
    cls = [' class="left"' if is_left else "" for is_left in left]
    head = "".join(
        f'<th scope="col"{c}>{_text(text)}</th>' for text, c in zip(heads, cls, strict=True)
    )
    body = "".join(
        f'<tr><th scope="row">{_text(row[0])}</th>'
        + "".join(f"<td{c}>{_text(cell)}</td>" for cell, c in zip(row[1:], cls[1:], strict=True))
        + "</tr>"
        for row in rows
    )
    return (
        f'<div class="scroll" tabindex="0" role="region" aria-label="{_text(caption)}">'
        f"<table><caption>{_text(caption)}</caption>"
        f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>"
    )


def _states(result: Offline, context: Context) -> str:
    """Return time and energy by state: two bars and the table of the same numbers."""
    sums = result.totals
    shown = [state for state in chart.STACK if sums.of(state).obs_ms]
    bars = [_bar("Time", {state: float(sums.of(state).obs_ms) for state in shown})]
    if sums.energy_uj:
        bars.append(_bar("Energy", {s: float(sums.of(s).energy_uj or 0) for s in shown}))
    rows = "".join(_state_row(state, sums, context) for state in shown)
    head = '<th scope="col">State</th><th scope="col" class="left">What it means</th>' + "".join(
        f'<th scope="col">{text}</th>'
        for text in ("Time", "of all", "Energy", "of all", "Mean power per GPU")
    )
    title = "Time and energy by state"
    return (
        f"<section><h2>{title}</h2>{''.join(bars)}"
        f'<div class="scroll" tabindex="0" role="region" aria-label="{title}">'
        f"<table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table></div></section>"
    )


def _bar(what: str, values: dict[State, float]) -> str:
    return f'<div class="muted">{what}</div>{chart.bar(values, _told(what, values))}'


def _state_row(state: State, sums: Totals, context: Context) -> str:
    total, whole_uj = sums.of(state), sums.energy_uj
    energy = words.energy(total.energy_uj) + words.cost(total.energy_uj, context)
    share = (total.energy_uj or 0) / whole_uj if whole_uj else None
    cells = (
        fmt.gpu_hours(total.obs_ms),
        fmt.share(total.obs_ms / sums.seen_ms),
        energy,
        fmt.share(share),
        fmt.power(sums.mean_w(state)),
    )
    return (
        f'<tr><th scope="row"><span class="chip {state.value}"></span>'
        f'{_text(LABELS[_LOOKS[state]])}</th><td class="left">{_HELP[state]}</td>'
        + "".join(f"<td>{_text(cell)}</td>" for cell in cells)
        + "</tr>"
    )


def _told(what: str, values: dict[State, float]) -> str:
    total = sum(values.values()) or 1.0
    told = ", ".join(
        f"{LABELS[_LOOKS[state]].lower()} {fmt.share(value / total)}"
        for state, value in values.items()
    )
    return f"{what}: {told}"


def _lines(result: Offline, context: Context) -> str:
    """Return the time line of each GPU."""
    whole = result.series
    if whole is None:
        return ""
    names = words.labels(result)
    present = [s for s in chart.STACK if result.totals.of(s).obs_ms]
    legend = "".join(
        f'<li><span class="chip {state.value}"></span>{_text(LABELS[_LOOKS[state]])}</li>'
        for state in present
    )
    width = fmt.duration(whole.bucket_s)
    caption = (
        f"Each column stands for {width} and is shared by the states in proportion to their time; "
        "blank is time without a reading. Below: power, the band from the lowest to the highest "
        f"reading of each {width}, the line their mean. Time axis: "
        + ("UTC." if context.zone_known else "clock of the file as written, zone not known.")
    )
    if whole.left_out:
        caption += (
            f" Drawn are the {len(whole.gpus)} GPUs with the most execution-idle time; the table "
            f"has all {len(result.gpus)}."
        )
    figures = [_figure(result, result.gpus[item.code], item, names) for item in whole.gpus]
    return (
        f"<section><h2>Time lines</h2>{_paragraph(caption, 'muted')}"
        f'<ul class="legend">{legend}</ul>{"".join(figures)}</section>'
    )


def _figure(result: Offline, item: GpuResult, series: GpuSeries, names: dict[str, str]) -> str:
    assert result.series is not None  # noqa: S101 - drawn only where there is one
    name, sums = names[item.gpu.name], item.totals
    idle = sums.of(State.EXECUTION_IDLE)
    told = "no program held it"
    if sums.held_ms:
        told = (
            f"held for {words.length(sums.held_ms)}, "
            f"{fmt.share(sums.idle_time_share)} of that without work ({words.length(idle.obs_ms)})"
        )
    power = ""
    if item.peak_w is not None and item.peak_us is not None:
        power = (
            f"; mean {fmt.power(item.mean_w)}, peak {fmt.power(item.peak_w)} at "
            f"{words.time(item.peak_us)}"
        )
    drawn = chart.gpu_chart(item, series, result.series, f"{name}: {told}{power}")
    return (
        f"<figure><h3>{_text(name)}</h3><figcaption>{_text(told + power)}</figcaption>"
        f'<div class="scroll" tabindex="0" role="region" aria-label="{_text(name)}">{drawn}</div>'
        "</figure>"
    )


def _gpus(result: Offline) -> str:
    names = words.labels(result)
    shown = result.gpus[:MOST_GPUS]
    times = [words.time_cells(item, names[item.gpu.name]) for item in shown]
    energies = [words.energy_cells(item, names[item.gpu.name]) for item in shown]
    more = (
        _paragraph(f"{len(result.gpus) - len(shown)} more GPUs are in --json.", "muted")
        if len(result.gpus) > len(shown)
        else ""
    )
    return (
        f"<section><h2>GPUs</h2>{_table('Time by state', words.HEADS, times)}<br/>"
        f"{_table('Energy by state, and power', words.ENERGY_HEADS, energies)}{more}</section>"
    )


def _runs(result: Offline, context: Context) -> str:
    if not result.runs:
        return ""
    names = words.labels(result)
    rows = [words.run_cells(run, names[run.gpu.name]) for run in result.runs]
    caption = f"Held by a program, no work; times: {context.clock}"
    return (
        "<section><h2>Longest execution-idle runs</h2>"
        f"{_table(caption, words.RUN_HEADS, rows)}</section>"
    )


def _moments(result: Offline) -> str:
    names = words.labels(result)
    rows = [words.moment_cells(item, names[item.gpu.name]) for item in result.moments]
    caption = "Each GPU at single moments"
    return f"<section><h2>Moments</h2>{_table(caption, words.MOMENT_HEADS, rows)}</section>"
