"""The pictures of an evaluation report: which chart shows what, with the words around it."""

from collections.abc import Sequence

from ml_assets.pictures.drawing import Axis, Bar, Reference, Series, bar_chart, line_chart
from ml_assets.pictures.picture import Picture
from ml_assets.pictures.rows import Estimate, estimate_chart
from ml_assets.pictures.wording import digits, title
from ml_assets.spec.gates import HIGHER_IS_BETTER, AgainstChampion, MetricName
from ml_assets.spec.pipeline import PipelineSpec
from ml_assets.spec.records import EvaluationReport, SliceMetrics

SLICE_ROWS = 24
IMPORTANT_FEATURES = 15
_BARS: tuple[tuple[MetricName, float], ...] = (("auc", 0.5), ("log_loss", 0.0), ("accuracy", 0.0))
"""The metrics drawn as bars, and where their bars begin: a ROC AUC of 0.5 is guessing."""


def evaluation_pictures(report: EvaluationReport, spec: PipelineSpec) -> list[Picture]:
    """Every picture of a report, in the order of the page."""
    return [
        *baseline_bars(report),
        *champion_picture(report, spec),
        *calibration_picture(report, spec),
        *curve_pictures(report),
        *slice_picture(report),
        *importance_picture(report),
    ]


def baseline_bars(report: EvaluationReport) -> list[Picture]:
    """Bars for each of (at most) two metrics: the model, the champion, the baselines."""
    return [_bars(report, name, start) for name, start in _BARS if name in report.metrics][:2]


def champion_picture(report: EvaluationReport, spec: PipelineSpec) -> list[Picture]:
    """The difference to the champion on the same rows, beside zero and the margin asked for."""
    gap = report.champion.log_loss_difference if report.champion else None
    if report.champion is None or gap is None:
        return []
    limits = [
        Estimate(
            f"{gate.name}: margin", gate.margin if gate.rule == "non_inferior" else -gate.margin
        )
        for gate in spec.gates
        if isinstance(gate, AgainstChampion)
    ]
    tone = "good" if gap.high < 0 else "bad" if gap.low > 0 else "one"
    own = Estimate("this model − champion", gap.value, gap.low, gap.high, tone)
    chart = estimate_chart(
        "Difference in log-loss to the champion",
        [own, *(Estimate(one.label, one.value, tone="plain") for one in limits)],
        Axis("difference in log-loss"),
        reference=0.0,
        digits=4,
    )
    words = f"Left of the dashed zero, this model is better than {report.champion.champion[:12]}."
    return [Picture("Champion against challenger", words, chart)]


def calibration_picture(report: EvaluationReport, spec: PipelineSpec) -> list[Picture]:
    """Predicted against observed rate; on the dashed line, a probability means what it says."""
    if not report.calibration:
        return []
    points = [(one.predicted, one.observed) for one in report.calibration]
    top = max(max(point) for point in points)
    limit = next(step for step in (0.1, 0.2, 0.4, 0.6, 0.8, 1.0) if top <= step or step == 1.0)
    of = "top class's " if spec.label.task == "multiclass" else ""
    found = report.metrics.get("ece")
    chart = line_chart(
        "Calibration: observed against predicted rate",
        [Series("observed", points, dots=True)],
        Axis(f"{of}predicted probability", 0.0, limit),
        Axis("observed rate", 0.0, limit),
        reference=Reference((0.0, 0.0), (limit, limit)),
        note=f"error {found.value:.4f}" if found else "",
    )
    return [Picture("Calibration", "Dashed: perfect.", chart)]


def curve_pictures(report: EvaluationReport) -> list[Picture]:
    """The ROC and the precision-recall curve, where the report has them."""
    found: list[Picture] = []
    if report.roc is not None:
        points = list(zip(report.roc.x, report.roc.y, strict=True))
        chart = line_chart(
            "ROC curve",
            [Series("true positive rate", points)],
            Axis("false positive rate", 0.0, 1.0),
            Axis("true positive rate", 0.0, 1.0),
            reference=Reference((0.0, 0.0), (1.0, 1.0)),
            note=_note(report, "auc", "AUC"),
        )
        found.append(Picture("ROC curve", "Dashed: guessing.", chart))
    if report.precision_recall is not None:
        curve, rate = report.precision_recall, report.label_rate[0]
        chart = line_chart(
            "Precision-recall curve",
            [Series("precision", list(zip(curve.x, curve.y, strict=True)))],
            Axis("recall", 0.0, 1.0),
            Axis("precision", 0.0, 1.0),
            reference=Reference((0.0, rate), (1.0, rate)),
            note=_note(report, "average_precision", "AP"),
        )
        found.append(Picture("Precision and recall", f"Dashed: guessing ({rate:.3f}).", chart))
    return found


def slice_picture(report: EvaluationReport) -> list[Picture]:
    """The leading metric of each slice with its interval, against that of all rows."""
    lead = lead_metric(report.slices)
    shown = [one for one in report.slices if lead in one.metrics][:SLICE_ROWS]
    if not shown or lead not in report.metrics:
        return []
    rows: list[Estimate] = []
    column = ""
    for one in shown:
        found = one.intervals.get(lead)
        head = one.column if one.column != column else ""
        column = one.column
        low, high = (found.low, found.high) if found else (None, None)
        label = f"{one.value} ({one.rows:,})"
        rows.append(Estimate(label, one.metrics[lead], low, high, head=head))
    chart = estimate_chart(
        f"{title(lead)} by slice",
        rows,
        Axis(title(lead)),
        reference=report.metrics[lead].value,
        digits=digits(lead),
    )
    words = "Dashed: all rows. In brackets: rows of the slice. Whiskers: 95% intervals."
    return [Picture(f"{title(lead)} by slice", words, chart)]


def importance_picture(report: EvaluationReport) -> list[Picture]:
    """How much worse the model is without each feature, the most important first."""
    if not report.importance:
        return []
    ranked = sorted(report.importance, key=lambda one: -one.loss_rise.value)
    shown = ranked[:IMPORTANT_FEATURES]
    rows = [
        Estimate(one.column, one.loss_rise.value, one.loss_rise.low, one.loss_rise.high)
        for one in shown
    ]
    chart = estimate_chart(
        "Feature importance", rows, Axis("rise in log-loss"), reference=0.0, digits=4
    )
    left = f" The first {len(shown)} of {len(ranked)}." if len(ranked) > len(shown) else ""
    words = "How much the log-loss rises where the column is shuffled among the holdout's rows."
    return [Picture("Feature importance", words + left, chart)]


def lead_metric(slices: Sequence[SliceMetrics]) -> str:
    """The metric that slices are compared by."""
    return "auc" if any("auc" in one.metrics for one in slices) else "accuracy"


def _bars(report: EvaluationReport, metric: MetricName, start: float) -> Picture:
    own = report.metrics[metric]
    bars = [Bar("this model", own.value, own.low, own.high, "one")]
    if report.champion is not None and metric in report.champion.metrics:
        bars.append(Bar("champion", report.champion.metrics[metric], tone="two"))
    bars += [
        Bar(name, values[metric]) for name, values in report.baselines.items() if metric in values
    ]
    side = "Higher is better" if HIGHER_IS_BETTER[metric] else "Lower is better"
    origin = "; bars begin at 0.5, which is guessing" if start else ""
    name = f"{title(metric)} of the model and the baselines"
    return Picture(title(metric), f"{side}{origin}.", bar_chart(name, bars, start=start))


def _note(report: EvaluationReport, metric: MetricName, short: str) -> str:
    found = report.metrics.get(metric)
    return f"{short} {found.value:.4f}" if found else ""
