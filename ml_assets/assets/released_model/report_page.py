"""The evaluation report as one self-contained HTML page: the verdict first, then its evidence.

Everything on it comes from records; equal records give an equal page. It loads nothing.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from types import MappingProxyType

import polars as pl

from ml_assets.assets.evaluation_report.lineage import lineage_section
from ml_assets.assets.evaluation_report.pictures import (
    baseline_bars,
    champion_picture,
    importance_picture,
    lead_metric,
    slice_picture,
)
from ml_assets.assets.evaluation_report.quality_pictures import label_words, quality
from ml_assets.assets.evaluation_report.suspects_table import suspects_table
from ml_assets.assets.released_model.gates.champion import NO_CHAMPION
from ml_assets.assets.released_model.gates.decide import passed, summary
from ml_assets.assets.released_model.pictures import (
    decisions_picture,
    gates_picture,
    ledger_table,
    override_banner,
)
from ml_assets.assets.trained_model.pictures import decoded_rows, training_pictures
from ml_assets.reports.changes import changes_table
from ml_assets.reports.data import feature_pictures
from ml_assets.reports.page import cards, cell, order, section, table
from ml_assets.reports.recovery import lost_attempts
from ml_assets.reports.style import DRAWING, STYLE
from ml_assets.reports.wording import digits, escape, plain_number, title, with_ends
from ml_assets.spec.pipeline import PipelineSpec
from ml_assets.spec.program import Preprocessing
from ml_assets.spec.records import (
    Decision,
    EvaluationReport,
    GateResult,
    InputVersion,
    Interval,
    LedgerEntry,
    Measured,
    ReleaseChanges,
    SliceMetrics,
    StageRecord,
)
from ml_assets.spec.training import LightGbm
from ml_assets.spec.training_story import TrainingStory


@dataclass(frozen=True)
class Background:
    """What led to a report: the training, the data, the decisions and releases before."""

    story: TrainingStory
    preprocessing: Preprocessing
    features: Sequence[StageRecord]
    """Of feature_set, one of each partition, oldest first."""
    changes: ReleaseChanges | None
    ledger: Sequence[LedgerEntry]
    lineage: Sequence[InputVersion]
    """The exact inputs of the report and the model."""
    override: LedgerEntry | None = None
    """A person's line against the decision that is shown."""
    suspects: pl.DataFrame | None = None
    """Rows that the model is most wrong about."""


def render(
    report: EvaluationReport,
    measured: Measured,
    gates: Sequence[GateResult],
    decision: Decision | None,
    background: Background,
    spec: PipelineSpec,
    ways: Mapping[str, str] = MappingProxyType({}),
) -> str:
    """The page.

    Args:
        gates: what the gates say of this report.
        decision: the one in the ledger, if it was made.
        ways: what a link says -> its address; nothing is loaded from there.
    """
    body = [
        _header(report, spec, ways),
        override_banner(background.override),
        _verdict(report, gates, decision, spec),
        _tiles(report, measured),
        _gates(gates, background.ledger, spec),
        _recommendation(report),
        section("What changed", "", changes_table(background.changes).card()),
        _baselines(report),
        _champion(report, spec),
        _curves(report, spec),
        _slices(report),
        _importance(report, spec),
        _suspects(background, spec),
        _training(background, spec),
        _data(background.features),
        section("The ledger", "", ledger_table(background.ledger).card()),
        lineage_section(background.lineage),
        _footer(report, measured, decision, spec),
    ]
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(spec.name)}: evaluation report</title>"
        f"<style>{STYLE}{DRAWING}</style></head>"
        f"<body><main>{''.join(body)}</main></body></html>\n"
    )


def _header(report: EvaluationReport, spec: PipelineSpec, ways: Mapping[str, str]) -> str:
    links = " · ".join(f'<a href="{escape(to)}">{escape(says)}</a>' for says, to in ways.items())
    first, last = report.holdout
    span = f", {escape(first)} to {escape(last)}" if first else ""
    return (
        f'<p class="eyebrow">Evaluation report · model <code>{report.model[:12]}</code>'
        f" · {report.rows:,} holdout rows{span}</p>"
        f'<h1>{escape(spec.name)}</h1><p class="lead">{escape(spec.description)}</p>'
        + (f'<p class="ways">{links}</p>' if links else "")
    )


def _verdict(
    report: EvaluationReport,
    gates: Sequence[GateResult],
    decision: Decision | None,
    spec: PipelineSpec,
) -> str:
    tone, headline, reasons = _judgement(report, gates, decision, spec)
    listed = "".join(f"<li>{escape(reason)}</li>" for reason in reasons)
    return (
        f'<section class="verdict {tone}" role="status"><strong>{escape(headline)}</strong>'
        + (f"<ul>{listed}</ul>" if len(reasons) > 1 else f"<p>{escape(''.join(reasons))}</p>")
        + "</section>"
    )


def _judgement(
    report: EvaluationReport,
    gates: Sequence[GateResult],
    decision: Decision | None,
    spec: PipelineSpec,
) -> tuple[str, str, list[str]]:
    """(tone, headline, reasons): a pass needs gates that passed and a decision on this model."""
    failed = [f"{gate.name}: {gate.reason}" for gate in gates if not gate.passed]
    if failed:
        return "bad", "✗ Refused: this model may not be released", failed
    if decision is None:
        why = f"{summary(gates)}." if gates else "No gate was evaluated."
        return "wait", "○ Not decided: no decision on this model is in the ledger", [why]
    if decision.evidence.model != report.model:
        about = f"The decision shown is about model {decision.evidence.model[:12]}, not this one."
        return "bad", "✗ Refused: this model may not be released", [about]
    if not decision.passed or not passed(gates):
        return "bad", "✗ Refused: this model may not be released", [decision.reason]
    headline = f"✓ Passed: this model may go to {spec.release.to}"
    return "good", headline, [f"{decision.reason[:1].upper()}{decision.reason[1:]}."]


def _tiles(report: EvaluationReport, measured: Measured) -> str:
    tiles = [
        _tile(
            title(name),
            f"{found.value:.{digits(name)}f}",
            f"95%: {found.low:.{digits(name)}f} to {found.high:.{digits(name)}f}",
        )
        for name, found in sorted(report.metrics.items(), key=lambda item: order(item[0]))
    ]
    tiles.append(_tile("Size", f"{report.size_bytes / 1e6:.2f} MB", "weights and manifest"))
    speed = f"{measured.rows_per_second:,.0f} rows/s in bulk"
    tiles.append(_tile("Time for one row", f"{measured.latency_ms:.3g} ms", speed))
    return f'<div class="tiles">{"".join(tiles)}</div>'


def _tile(name: str, value: str, below: str) -> str:
    return (
        f'<div class="tile"><span>{escape(name)}</span><b>{escape(value)}</b>'
        f"<small>{escape(below)}</small></div>"
    )


def _gates(gates: Sequence[GateResult], ledger: Sequence[LedgerEntry], spec: PipelineSpec) -> str:
    rows = [
        f"<tr><th>{escape(gate.name)}</th>"
        + ('<td class="pass">✓ pass</td>' if gate.passed else '<td class="fail">✗ fail</td>')
        + f'<td class="n">{plain_number(gate.value)}</td><td class="n">{plain_number(gate.bound)}'
        f'</td><td class="n">{with_ends(gate.interval)}</td>'
        f'<td class="why">{escape(gate.reason)}</td></tr>'
        for gate in gates
    ]
    head = (
        '<th>Gate</th><th></th><th class="n">Value</th><th class="n">Bound</th>'
        '<th class="n">Interval</th><th>Why</th>'
    )
    about = "Release verifies these again, whatever path led to it. What is missing fails."
    shown = [*gates_picture(gates, spec.gates), *decisions_picture(ledger, spec.gates)]
    body = f"{cards(shown, wide=True)}<br>{table(head, rows)}"
    return section("Gates", about, body if rows else "<p>No gate was evaluated.</p>")


def _recommendation(report: EvaluationReport) -> str:
    if report.recommendation is None:
        return ""
    about = "Beside the model that is simple enough to be released instead. This blocks nothing."
    words = f"<p>{escape(report.recommendation.reason)}</p>"
    return section("Is it worth its cost?", about, words)


def _baselines(report: EvaluationReport) -> str:
    names = sorted(report.metrics, key=order)
    rows = [_compared("this model", {n: i.value for n, i in report.metrics.items()}, names, True)]
    if report.champion and report.champion.comparable:
        rows.append(_compared("champion", report.champion.metrics, names))
    rows += [_compared(name, values, names) for name, values in report.baselines.items()]
    head = "<th></th>" + "".join(f'<th class="n">{escape(title(name))}</th>' for name in names)
    scored = "Scored on" if report.sources else "All scored on"
    about = f"{scored} the same holdout rows. The whisker is this model's 95% interval."
    told = "".join(
        f"<p>{escape(name)} is declared, not scored: {escape(source)}</p>"
        for name, source in report.sources.items()
    )
    body = f"{cards(baseline_bars(report), wide=True)}<br>{table(head, rows)}{told}"
    return section("Against the baselines", about, body)


def _compared(
    name: str, values: Mapping[str, float], metrics: Sequence[str], own: bool = False
) -> str:
    cells = "".join(cell(values, metric) for metric in metrics)
    opening = '<tr class="own">' if own else "<tr>"
    return f"{opening}<th>{escape(name)}</th>{cells}</tr>"


def _champion(report: EvaluationReport, spec: PipelineSpec) -> str:
    seen = report.champion
    if seen is None:
        words = f"{NO_CHAMPION.capitalize()}: no other model was released when this was made."
    elif not seen.comparable or seen.loss_difference is None:
        why = seen.reason or "no reason given"
        words = f"Champion {seen.champion[:12]} cannot be compared: {why}."
    else:
        words = (
            f"{seen.loss[:1].upper()}{seen.loss[1:]} minus that of champion {seen.champion[:12]} on"
            f" the same rows: {_gap(seen.loss_difference)}."
        )
    body = f"<p>{escape(words)}</p><br>{cards(champion_picture(report, spec), wide=True)}"
    return section("Against the champion", "", body)


def _gap(gap: Interval) -> str:
    if gap.high < 0:
        shown = "this model is better"
    elif gap.low > 0:
        shown = "this model is worse"
    else:
        shown = "the interval holds zero, so neither is shown to be better"
    return f"{gap.value:+.4f} (95% interval {gap.low:+.4f} to {gap.high:+.4f}): {shown}"


def _curves(report: EvaluationReport, spec: PipelineSpec) -> str:
    shown = quality(report, spec)
    return section(shown.heading, shown.about, cards(shown.pictures))


def _slices(report: EvaluationReport) -> str:
    if not report.slices:
        return ""
    names = sorted({name for one in report.slices for name in one.metrics}, key=order)
    lead = lead_metric(report.slices)
    head = '<th>Column</th><th>Value</th><th class="n">Rows</th>' + "".join(
        f'<th class="n">{escape(title(name))}</th>{"<th></th>" if name == lead else ""}'
        for name in names
    )
    rows: list[str] = []
    for column, group in groupby(report.slices, key=lambda one: one.column):
        for index, one in enumerate(group):
            rows.append(_slice_row(one, column if index == 0 else "", names, lead))
    span = "from 0.5 (guessing) to 1" if lead == "auc" else "from 0 to 1"
    about = (
        "The most frequent values, largest first; values with too few rows to judge are left out."
        f" The bar is {title(lead)}, {span}."
    )
    body = f"{cards(slice_picture(report))}<br>{table(head, rows)}"
    return section("Slices", about, body)


def _importance(report: EvaluationReport, spec: PipelineSpec) -> str:
    shown = importance_picture(report, spec)
    return section("Features", "", cards(shown, wide=True)) if shown else ""


def _suspects(background: Background, spec: PipelineSpec) -> str:
    if background.suspects is None:
        return ""
    shown = suspects_table(spec.name, background.suspects)
    return section(shown.title, "", shown.card())


def _slice_row(one: SliceMetrics, column: str, names: Sequence[str], lead: str) -> str:
    cells = "".join(
        f"{cell(one.metrics, m)}{_meter(one.metrics.get(m), m) if m == lead else ''}" for m in names
    )
    opening = '<tr class="first">' if column else "<tr>"
    return (
        f"{opening}<th>{escape(column)}</th>"
        f'<td>{escape(one.value)}</td><td class="n">{one.rows:,}</td>{cells}</tr>'
    )


def _meter(value: float | None, name: str) -> str:
    if value is None:
        return "<td></td>"
    share = (value - 0.5) * 2 if name == "auc" else value
    width = f"{min(max(share, 0.0), 1.0):.1%}"
    return f'<td><span class="meter"><i style="width:{width}"></i></span></td>'


def _training(background: Background, spec: PipelineSpec) -> str:
    story, label = background.story, spec.label
    shown = training_pictures(story, label.task, label.classes)
    about = "As the training program told it, step by step; of a resumed run the last attempt's."
    found = section("Training", about, cards(shown, wide=True)) if shown else ""
    if story.lost:
        lost = lost_attempts(story.lost)
        found += section(lost.title, "", lost.card())
    if story.first_rows is None:
        return found
    rows = decoded_rows(story.first_rows, background.preprocessing, label.classes)
    return found + section(rows.title, "", rows.card())


def _data(features: Sequence[StageRecord]) -> str:
    shown = feature_pictures(features)
    about = "The feature rows over all partitions so far, those outside the window included."
    return section("Data", about, cards(shown, wide=True)) if shown else ""


def _footer(
    report: EvaluationReport, measured: Measured, decision: Decision | None, spec: PipelineSpec
) -> str:
    label = spec.label
    rows = {
        "Model": report.model,
        "Training set": report.data,
        "Label": f"{label.column} ({label.task}), {label_words(report, label.task)}",
        "Family": f"{spec.model.family}, {_trained(spec)}, seed {spec.training.seed}",
        "Intervals": f"95%, from {spec.evaluation.bootstrap_samples:,} bootstrap samples"
        f" of whole {spec.evaluation.block}s",
        "Owner": spec.owner,
    }
    if decision is not None:
        rows["Decided"] = f"{decision.time:%Y-%m-%d %H:%M %Z} in run {decision.run}"
        rows["Policy"] = decision.evidence.policy
    cells = "".join(f"<dt>{escape(k)}</dt><dd>{escape(v)}</dd>" for k, v in rows.items())
    return f"<footer><dl>{cells}</dl></footer>"


def _trained(spec: PipelineSpec) -> str:
    if isinstance(spec.model, LightGbm):
        return f"at most {spec.model.rounds} rounds in one process"
    training = spec.training
    return f"trained with strategy {training.strategy} on {training.processes} processes"
