"""The pictures of an evaluation report: which chart shows what, with its captions."""

from collections.abc import Mapping, Sequence

import polars as pl

from ml_assets.assets.evaluation_report.quality_pictures import FEW_CLASSES, quality
from ml_assets.errors import counted
from ml_assets.reports.drawing import Axis, Bar, Series, Tone, bar_chart, line_chart
from ml_assets.reports.inline_pictures import glance_at_bars
from ml_assets.reports.picture import Picture, Table
from ml_assets.reports.row_charts import Whisker, estimate_chart
from ml_assets.reports.wording import digits, order, title, with_ends
from ml_assets.spec.gates import HIGHER_IS_BETTER, LOSS_OF, AgainstChampion, MetricName
from ml_assets.spec.pipeline import PipelineSpec
from ml_assets.spec.records import (
    ChampionComparison,
    EvaluationReport,
    Interval,
    OriginReports,
    SliceMetrics,
)

SUSPECTS = 20
_SUSPECTS_WORDS = (
    "Rows of validation and holdout with the highest loss: the label is wrong, or the row is hard."
    " All that are kept: ml-assets models suspects {pipeline}"
)
SLICE_ROWS = 24
IMPORTANT_FEATURES = 15
LEADING = ("auc", "accuracy", "r2", "ndcg", "bits_per_byte")
"""The metric that slices are compared by: the first one that the task has."""
_BARS: tuple[tuple[MetricName, float], ...] = (
    ("auc", 0.5),
    ("log_loss", 0.0),
    ("accuracy", 0.0),
    ("rmse", 0.0),
    ("mae", 0.0),
    ("ndcg", 0.0),
    ("bits_per_byte", 0.0),
)
"""The metrics drawn as bars, and where their bars begin: a ROC AUC of 0.5 is guessing."""


def evaluation_pictures(report: EvaluationReport, spec: PipelineSpec) -> list[Picture]:
    """Every picture of a report, in the order of the page; that of many classes is too large."""
    shown = quality(report, spec)
    matrix = shown.confusion if shown.classes and len(shown.classes.rows) <= FEW_CLASSES else None
    return [
        *baseline_bars(report),
        *origin_pictures(report),
        *champion_picture(report, spec),
        *shown.pictures,
        *([matrix] if matrix else []),
        *slice_picture(report),
        *importance_picture(report, spec),
    ]


def baseline_bars(report: EvaluationReport) -> list[Picture]:
    """Bars for each of (at most) two metrics: the model, the champion, the baselines."""
    return [_bars(report, name, start) for name, start in _BARS if name in report.metrics][:2]


def origin_pictures(report: EvaluationReport) -> list[Picture]:
    """The first metrics over the origins: the model, and the baselines beside it."""
    if report.origins is None or len(report.origins.origins) < 2:
        return []
    rolled = report.origins
    pictures = [_over_origins(rolled, name) for name, _ in _BARS if name in report.metrics][:1]
    if "skill" in report.metrics:
        pictures.append(_over_origins(rolled, "skill"))
    return pictures


def _over_origins(rolled: OriginReports, metric: MetricName) -> Picture:
    own = [origin.metrics.get(metric) for origin in rolled.origins]
    series = [Series("model", _points([one and one.value for one in own]), "one", dots=True)]
    tones: tuple[Tone, ...] = ("two", "three", "four")
    for name, tone in zip(_best(rolled, metric), tones, strict=False):
        values = [origin.baselines.get(name, {}).get(metric) for origin in rolled.origins]
        series.append(Series(name, _points(values), tone, dots=True))
    last = float(len(rolled.origins) - 1)
    names = [origin.holdout[0] for origin in rolled.origins]
    x, y = Axis("", 0.0, last, names), Axis(title(metric))
    chart = line_chart(f"{title(metric)} over the origins", series, x, y, wide=True)
    side = "Higher is better" if HIGHER_IS_BETTER[metric] else "Lower is better"
    words = f"{side}. Each holdout is judged by a model that was trained on what came before it."
    return Picture(f"{title(metric)} over the origins", words, chart)


def _best(rolled: OriginReports, metric: MetricName) -> list[str]:
    """The baselines that have the metric, the best on the newest holdout first."""
    newest = rolled.origins[-1].baselines
    held = {name: values[metric] for name, values in newest.items() if metric in values}
    return sorted(held, key=lambda name: held[name], reverse=HIGHER_IS_BETTER[metric])


def _points(values: Sequence[float | None]) -> list[tuple[float, float]]:
    return [(float(n), value) for n, value in enumerate(values) if value is not None]


def origins_table(report: EvaluationReport, cost: Mapping[str, float]) -> Table | None:
    """A line for each origin, and what it cost; None where the newest holdout alone was judged.

    Args:
        cost: ``trainings`` and ``seconds``, as the record of the report has them.
    """
    rolled = report.origins
    if rolled is None:
        return None
    names = sorted(report.metrics, key=order)
    rows = [
        [
            " to ".join(dict.fromkeys(one.holdout)),
            " to ".join(dict.fromkeys(one.trained_on)),
            f"{one.rows:,}",
            *(with_ends(one.metrics.get(name)) for name in names),
        ]
        for one in reversed(rolled.origins)
    ]
    mean = [with_ends(rolled.mean.get(name)) for name in names]
    if rolled.mean:
        rows.append(["mean", "", "", *mean])
    words = (
        f"The same spec on holdouts that follow each other, the newest first; gates on a bound or a"
        f" baseline use {_JUDGED[rolled.judge]}. It took"
        f" {counted(int(cost.get('trainings', 0)), 'more training')},"
        f" {cost.get('seconds', 0.0):,.0f} seconds in total."
    )
    missing = f" {rolled.missing}." if rolled.missing else ""
    head = ["holdout", "trained on", "rows", *(title(name) for name in names)]
    return Table("Rolling origin", words + missing, head, rows)


_JUDGED = {"mean": "their mean", "worst": "the worst of them"}


def champion_picture(report: EvaluationReport, spec: PipelineSpec) -> list[Picture]:
    """The differences to the champion on the same rows, beside zero and the margins asked for."""
    seen = report.champion
    if seen is None or seen.loss_difference is None:
        return []
    gates = [gate for gate in spec.gates if isinstance(gate, AgainstChampion)]
    of_loss = [gate for gate in gates if gate.metric is None]
    found = [_difference(seen, seen.loss, seen.loss_difference, of_loss, higher_is_better=False)]
    for gate in gates:
        gap = seen.differences.get(gate.metric or "")
        shown = gap and (gap.relative if gate.relative else gap.absolute)
        if gate.metric is None or shown is None:
            continue
        name = f"{title(gate.metric)}{', as a share of it' if gate.relative else ''}"
        found.append(_difference(seen, name, shown, [gate], HIGHER_IS_BETTER[gate.metric]))
    return found


def _difference(
    seen: ChampionComparison,
    of: str,
    gap: Interval,
    gates: Sequence[AgainstChampion],
    higher_is_better: bool,
) -> Picture:
    sign = 1 if higher_is_better else -1
    best, worst = (gap.low, gap.high) if higher_is_better else (-gap.high, -gap.low)
    tone = "good" if best > 0 else "bad" if worst < 0 else "one"
    margins = [
        Whisker(
            f"{gate.name}: margin",
            sign * (gate.margin if gate.rule == "superior" else -gate.margin),
            tone="plain",
        )
        for gate in gates
    ]
    chart = estimate_chart(
        f"Difference in {of} to the champion",
        [Whisker("this model − champion", gap.value, gap.low, gap.high, tone), *margins],
        Axis(f"difference in {of}"),
        reference=0.0,
        digits=4,
    )
    side = "Right" if higher_is_better else "Left"
    words = f"{side} of the dashed zero, this model is better than {seen.champion[:12]}."
    return Picture(f"Champion against challenger: {of}", words, chart)


def slice_picture(report: EvaluationReport) -> list[Picture]:
    """The leading metric of each slice with its interval, against that of all rows."""
    lead = lead_metric(report.slices)
    shown = [one for one in report.slices if lead in one.metrics][:SLICE_ROWS]
    if not shown or lead not in report.metrics:
        return []
    rows: list[Whisker] = []
    column = ""
    for one in shown:
        found = one.intervals.get(lead)
        head = one.column if one.column != column else ""
        column = one.column
        low, high = (found.low, found.high) if found else (None, None)
        label = f"{one.value} ({one.rows:,})"
        rows.append(Whisker(label, one.metrics[lead], low, high, head=head))
    chart = estimate_chart(
        f"{title(lead)} by slice",
        rows,
        Axis(title(lead)),
        reference=report.metrics[lead].value,
        digits=digits(lead),
    )
    words = (
        "The dashed line is all rows. In brackets are the rows of the slice; whiskers are 95%"
        " intervals."
    )
    return [Picture(f"{title(lead)} by slice", words, chart)]


def importance_picture(report: EvaluationReport, spec: PipelineSpec) -> list[Picture]:
    """Return how much worse the model is without each feature, the most important first."""
    if not report.importance:
        return []
    ranked = sorted(report.importance, key=lambda one: -one.loss_rise.value)
    shown = ranked[:IMPORTANT_FEATURES]
    rows = [
        Whisker(one.column, one.loss_rise.value, one.loss_rise.low, one.loss_rise.high)
        for one in shown
    ]
    loss = LOSS_OF[spec.label.task]
    chart = estimate_chart(
        "Feature importance", rows, Axis(f"rise in {loss}"), reference=0.0, digits=4
    )
    left = f" The first {len(shown)} of {len(ranked)}." if len(ranked) > len(shown) else ""
    words = f"How much the {loss} rises where the column is shuffled among the holdout's rows."
    return [Picture("Feature importance", words + left, chart)]


def suspects_table(pipeline: str, rows: pl.DataFrame, most: int = SUSPECTS) -> Table:
    """Rows whose label may be wrong: the first of them."""
    cells = [tuple(_cell(value) for value in row) for row in rows.head(most).iter_rows()]
    return Table("Label suspects", _SUSPECTS_WORDS.format(pipeline=pipeline), rows.columns, cells)


def _cell(value: object) -> str:
    if value is None:
        return ""
    text = f"{value:.4g}" if isinstance(value, float) else str(value)
    return text if len(text) <= 60 else f"{text[:59]}…"


def lead_metric(slices: Sequence[SliceMetrics]) -> str:
    """The metric that slices are compared by."""
    measured = {name for one in slices for name in one.metrics}
    return next((name for name in LEADING if name in measured), LEADING[0])


def at_a_glance(report: EvaluationReport) -> str:
    """Markdown of the first of these bars, as small as an asset page shows it by itself."""
    for name, start in _BARS:
        if name in report.metrics:
            side = "higher" if HIGHER_IS_BETTER[name] else "lower"
            return glance_at_bars(f"{title(name)}, {side} is better", _values(report, name), start)
    return ""


def _values(report: EvaluationReport, metric: MetricName) -> list[Bar]:
    own = report.metrics[metric]
    bars = [Bar("this model", own.value, own.low, own.high, "one")]
    if report.champion is not None and metric in report.champion.metrics:
        bars.append(Bar("champion", report.champion.metrics[metric], tone="two"))
    others = report.baselines.items()
    return [*bars, *(Bar(name, values[metric]) for name, values in others if metric in values)]


def _bars(report: EvaluationReport, metric: MetricName, start: float) -> Picture:
    side = "Higher is better" if HIGHER_IS_BETTER[metric] else "Lower is better"
    origin = "; bars begin at 0.5, which is guessing" if start else ""
    name = f"{title(metric)} of the model and the baselines"
    return Picture(
        title(metric), f"{side}{origin}.", bar_chart(name, _values(report, metric), start=start)
    )
