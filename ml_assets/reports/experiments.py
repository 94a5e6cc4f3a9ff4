"""The last runs of a pipeline side by side, as one self-contained HTML page that loads nothing.

Every cell is text that was escaped. A small script sorts by the heads that are clicked; the page is
whole without it.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ml_assets.reports.page import cards, order, section, table
from ml_assets.reports.picture import Picture
from ml_assets.reports.run_rows import ReleaseStep, Row, plain_loss, span
from ml_assets.reports.sortable import POLICY, SCRIPT
from ml_assets.reports.style import DRAWING, STYLE
from ml_assets.reports.wording import digits, escape, title

_CHANGES = 60


@dataclass(frozen=True)
class Column:
    """A column of the page: how a row is shown in it, and by what it is sorted."""

    name: str
    about: str
    cell: Callable[[Row], str]
    """HTML."""
    value: Callable[[Row], float | str | None]
    number: bool = True


def render(
    pipeline: str,
    rows: Sequence[Row],
    releases: Sequence[ReleaseStep],
    ways: Mapping[str, str],
    machines: Sequence[Picture] = (),
) -> str:
    """The page.

    Args:
        rows: newest first.
        releases: newest first.
        ways: what a link says -> its address; nothing is loaded from there.
        machines: what machines were used for.
    """
    links = " · ".join(f'<a href="{escape(to)}">{escape(says)}</a>' for says, to in ways.items())
    count = "1 run" if len(rows) == 1 else f"the last {len(rows)} runs"
    body = [
        f'<p class="eyebrow">Experiments · {count}, newest first</p><h1>{escape(pipeline)}</h1>',
        '<p class="lead">What was tried, why, and what came of it. Click a head to sort by it.</p>',
        f'<p class="ways">{links}</p><br>',
        _runs(rows),
        _footnotes(rows),
        _machines(machines),
        _releases(releases),
    ]
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(pipeline)}: experiments</title>"
        f"<style>{STYLE}{DRAWING}{_STYLE}</style></head>"
        f"<body><main>{''.join(body)}</main><script>{SCRIPT}</script></body></html>\n"
    )


def _runs(rows: Sequence[Row]) -> str:
    if not rows:
        return "<p>No run is written down yet.</p>"
    columns = _columns(rows)
    head = "".join(
        f'<th{_n(one)} scope="col" title="{escape(one.about)}">{escape(one.name)}</th>'
        for one in columns
    )
    return table(head, [_line(row, columns) for row in rows]).replace(
        '<div class="scroll">', '<div class="scroll runs" tabindex="0">', 1
    )


def _line(row: Row, columns: Sequence[Column]) -> str:
    cells: list[str] = []
    for place, column in enumerate(columns):
        value = column.value(row)
        sort = "" if value is None else escape(f"{value:.12g}" if _is(value) else str(value))
        kind = "th" if place == 0 else "td"
        cells.append(f'<{kind}{_n(column)} data-sort="{sort}">{column.cell(row)}</{kind}>')
    return f"<tr>{''.join(cells)}</tr>"


def _columns(rows: Sequence[Row]) -> list[Column]:
    metrics = sorted({name for row in rows for name in row.metrics}, key=order)
    return [
        Column("Run", "When it began, UTC", _run, lambda r: r.time.isoformat(), number=False),
        Column("Came to", "The gates' decision", _came_to, lambda r: r.outcome.said, number=False),
        Column("Stage", "Of its model, now", _text("stage"), lambda r: r.stage, number=False),
        Column(
            "Experiment",
            "Why it was run, and what was made of it",
            _experiment,
            lambda r: r.words.get("experiment"),
            number=False,
        ),
        *(_metric(name) for name in metrics),
        _measure("Validation loss", "The lowest while training", "validation_loss", plain_loss),
        _measure("Training loss", "The last", "train_loss", plain_loss),
        _measure("Learning rate", "As the spec has it", "learning_rate", lambda v: f"{v:g}"),
        Column("Epochs", "Trained, of those asked for", _epochs, lambda r: r.epochs),
        _measure("Batch", "Rows of a step", "batch", lambda v: f"{v:,}"),
        _measure("Wall time", "Of the training in this run", "seconds", span),
        _measure("CPU time", "Wall time x processes x threads", "cpu_seconds", span),
        _measure("GPU time", "Wall time x GPUs", "gpu_seconds", lambda v: span(v) if v else "–"),
        _measure("Cost", "Wall time x the price of an hour", "cost", lambda v: f"{v:,.4g}"),
        _measure("Rows", "To train on", "rows", lambda v: f"{v:,}"),
        Column(
            "Data", "Last partition, and version of the training set", _data, _data_order, False
        ),
    ]


def _run(row: Row) -> str:
    model = f"model {escape(row.model[:12])}" if row.model else "no model"
    if row.report:
        model = f'<a href="{escape(row.report)}">{model}</a>'
    return (
        f"{row.time:%Y-%m-%d %H:%M:%S}<small>run {escape(row.run[:8])}</small>"
        f"<small>{model}</small>"
    )


def _came_to(row: Row) -> str:
    said, why = escape(row.outcome.said), escape(row.outcome.why)
    return (
        f'<span class="mark {row.outcome.tone}">{said}</span>'
        f"<details><summary>why</summary>{why}</details>"
    )


def _experiment(row: Row) -> str:
    parts = [f"<b>{escape(row.words['experiment'])}</b>"] if "experiment" in row.words else []
    for name in ("hypothesis", "goal"):
        if name in row.words:
            parts.append(f"<small><i>{name}</i> {escape(row.words[name])}</small>")
    if row.verdict:
        parts.append(f'<small><i>verdict</i> <b class="{row.verdict}">{row.verdict}</b></small>')
    if row.note:
        by = f" ({escape(row.author)})" if row.author else ""
        parts.append(f"<small><i>note</i> {escape(row.note)}{by}</small>")
    return "".join(parts) or "–"


def _metric(name: str) -> Column:
    def cell(row: Row) -> str:
        found = row.metrics.get(name)
        if found is None:
            return "–"
        low, high = (f"{end:.{digits(name)}f}" for end in (found.low, found.high))
        return f"{found.value:.{digits(name)}f}<small>{low} to {high}</small>"

    def value(row: Row) -> float | None:
        return row.metrics[name].value if name in row.metrics else None

    return Column(title(name), "On the run's own holdout, with its 95% interval", cell, value)


def _measure(name: str, about: str, field: str, write: Callable[[Any], str]) -> Column:
    def cell(row: Row) -> str:
        value = getattr(row, field)
        return "–" if value is None else escape(write(value))

    return Column(name, about, cell, lambda row: getattr(row, field))


def _text(field: str) -> Callable[[Row], str]:
    return lambda row: escape(getattr(row, field) or "–")


def _epochs(row: Row) -> str:
    if row.epochs is None:
        return "–"
    asked = f"<small>of {row.epochs_asked}</small>" if row.epochs_asked else ""
    return f"{row.epochs:.3g}{asked}"


def _data(row: Row) -> str:
    if row.data is None:
        return "–"
    return f"{escape(row.as_of or 'all rows')}<small><code>{escape(row.data[:12])}</code></small>"


def _data_order(row: Row) -> str | None:
    return f"{row.as_of or ''} {row.data}" if row.data else None


def _footnotes(rows: Sequence[Row]) -> str:
    said = [
        "Times and costs are of the training that the run itself did: a session that had ended"
        " before costs nothing again. CPU time is what was reserved: processes x threads x time."
    ]
    if any(row.cost is None and row.seconds for row in rows):
        said.append(
            "A dash for the cost: no price was known when it ran. Set ML_ASSETS_PRICES to what"
            " an hour of a machine costs."
        )
    return "".join(f'<p class="about foot">{escape(words)}</p>' for words in said)


def _machines(shown: Sequence[Picture]) -> str:
    about = "Of every training, score and examination, from asking for machines to their end."
    body = cards(shown, wide=True)
    return section("What the machines were used for", about, body) if shown else ""


def _releases(releases: Sequence[ReleaseStep]) -> str:
    if not releases:
        return section("What changed between releases", "There is no second release here.", "")
    parts = [_release(step, opened=place == 0) for place, step in enumerate(releases)]
    about = "Each against the release before it. Metrics are of each model's own holdout."
    return section("What changed between releases", about, "".join(parts))


def _release(step: ReleaseStep, opened: bool) -> str:
    rows = [
        f"<tr><th>{escape(one.group)}</th><td>{escape(one.name)}</td>"
        f"<td>{escape(one.before or '–')}</td><td>{escape(one.after or '–')}</td></tr>"
        for one in step.changes[:_CHANGES]
    ]
    left = len(step.changes) - len(rows)
    more = f'<p class="about">and {left} more: ml-assets models compare</p>' if left > 0 else ""
    head = "<th>Part</th><th>What</th><th>Before</th><th>After</th>"
    body = f"{table(head, rows)}{more}" if rows else "<p>Nothing: the same spec, data, results.</p>"
    return (
        f"<details{' open' if opened else ''}><summary>{step.time:%Y-%m-%d %H:%M} UTC:"
        f" {escape(step.after[:12])} after {escape(step.before[:12])}</summary>{body}</details>"
    )


def _n(column: Column) -> str:
    return ' class="n"' if column.number else ""


def _is(value: float | str) -> bool:
    return isinstance(value, int | float)


_STYLE = """
main{max-width:1800px}
.runs{overflow:auto}
.runs table{font-size:13.5px}
.runs th,.runs td{padding:9px 10px}
.runs small{display:block;color:var(--faint);font-size:11.5px;font-weight:400;white-space:nowrap}
.runs td:nth-child(4){min-width:230px}
.runs td:nth-child(4) small{white-space:normal}
.runs td:nth-child(2){min-width:150px}
.runs i{color:var(--soft)}
.runs tbody th,.runs thead th:first-child{position:sticky;left:0;background:var(--card);z-index:1;
font-variant-numeric:tabular-nums;border-right:1px solid var(--line)}
.runs thead th[tabindex]{cursor:pointer;user-select:none}
.runs thead th[tabindex]:hover,.runs thead th[aria-sort]{color:var(--ink)}
.runs thead th[aria-sort=ascending]::after{content:" ▲"}
.runs thead th[aria-sort=descending]::after{content:" ▼"}
.runs details{font-size:12.5px;color:var(--soft);max-width:320px}
.mark{font-weight:620}
.mark.good,.confirmed{color:var(--good)}
.mark.bad,.rejected{color:var(--bad)}
.mark.wait,.open{color:var(--wait)}
.foot{margin:10px 0 0}
section>details{margin:10px 0}
section>details>summary{margin-bottom:8px}
@media(max-width:640px){main{padding:24px 12px}.runs tbody th{white-space:normal;min-width:96px}}
"""
