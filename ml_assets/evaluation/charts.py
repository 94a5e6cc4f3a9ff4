"""The pictures of the report: which chart shows what, with the words around it."""

from collections.abc import Mapping, Sequence
from html import escape

from ml_assets.evaluation.pictures import (
    Axis,
    Bar,
    Reference,
    Series,
    bar_chart,
    line_chart,
)
from ml_assets.evaluation.wording import title
from ml_assets.spec.gates import HIGHER_IS_BETTER, MetricName
from ml_assets.spec.pipeline import PipelineSpec
from ml_assets.spec.records import EvaluationReport

HISTORY_POINTS = 300
_BARS: tuple[tuple[MetricName, float], ...] = (
    ("auc", 0.5),
    ("log_loss", 0.0),
    ("accuracy", 0.0),
    ("rmse", 0.0),
    ("mae", 0.0),
    ("ndcg", 0.0),
)
"""The metrics drawn as bars, and where their bars begin: a ROC AUC of 0.5 is guessing."""


def baseline_bars(report: EvaluationReport) -> list[str]:
    """A card of bars for each of (at most) two metrics: the model, the champion, the baselines."""
    return [_bars(report, name, start) for name, start in _BARS if name in report.metrics][:2]


def calibration_card(report: EvaluationReport, spec: PipelineSpec) -> str:
    """Predicted against observed rate; on the dashed line, a probability means what it says."""
    if not report.calibration:
        return ""
    points = [(one.predicted, one.observed) for one in report.calibration]
    top = max(max(point) for point in points)
    limit = next(step for step in (0.1, 0.2, 0.4, 0.6, 0.8, 1.0) if top <= step or step == 1.0)
    of = "top class's " if spec.label.task == "multiclass" else ""
    found = report.metrics.get("ece")
    return card(
        "Calibration",
        "Dashed: perfect.",
        line_chart(
            "Calibration: observed against predicted rate",
            [Series("observed", points, dots=True)],
            Axis(f"{of}predicted probability", 0.0, limit),
            Axis("observed rate", 0.0, limit),
            reference=Reference((0.0, 0.0), (limit, limit)),
            note=f"error {found.value:.4f}" if found else "",
        ),
    )


def curve_cards(report: EvaluationReport) -> list[str]:
    """The ROC and the precision-recall curve, where the report has them."""
    cards: list[str] = []
    if report.roc is not None:
        points = list(zip(report.roc.x, report.roc.y, strict=True))
        x, y = Axis("false positive rate", 0.0, 1.0), Axis("true positive rate", 0.0, 1.0)
        chart = line_chart(
            "ROC curve",
            [Series("true positive rate", points)],
            x,
            y,
            reference=Reference((0.0, 0.0), (1.0, 1.0)),
            note=_note(report, "auc", "AUC"),
        )
        cards.append(card("ROC curve", "Dashed: guessing.", chart))
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
        words = f"Dashed: guessing ({rate:.3f})."
        cards.append(card("Precision and recall", words, chart))
    return cards


def history_cards(history: Mapping[str, Sequence[tuple[int, float]]]) -> list[str]:
    """The loss curves in one chart and the learning rate in another; steps may differ."""
    losses = [name for name in ("train_loss", "validation_loss") if history.get(name)]
    cards: list[str] = []
    if losses:
        series = [
            Series(_words(name), _thin(history[name]), tone)
            for name, tone in zip(losses, ("one", "two"), strict=False)
        ]
        low, high = _loss_range(series)
        chart = line_chart(
            "Loss by step", series, Axis("step", 0.0), Axis("loss", low, high), wide=True
        )
        keys = "".join(
            f'<span class="key {one.tone}"><i></i>{escape(one.name)}</span>' for one in series
        )
        cards.append(card("Loss", keys, chart, escaped=True))
    if history.get("learning_rate"):
        points = _thin(history["learning_rate"])
        chart = line_chart(
            "Learning rate by step",
            [Series("learning rate", points)],
            Axis("step", 0.0),
            Axis("learning rate", 0.0),
            wide=True,
        )
        words = f"Highest {max(value for _, value in points):.2g}: warm-up, then decay."
        cards.append(card("Learning rate", words, chart))
    return cards


def _bars(report: EvaluationReport, metric: MetricName, start: float) -> str:
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
    return card(title(metric), f"{side}{origin}.", bar_chart(name, bars, start=start))


def _loss_range(series: Sequence[Series]) -> tuple[float | None, float | None]:
    """The range of the losses, cut where a few first steps would flatten all that follows."""
    values = sorted(value for one in series for _, value in one.points)
    usual = values[int(len(values) * 0.97)] if len(values) > 20 else values[-1]
    spread = usual - values[0]
    return None, (usual + 0.25 * spread) if values[-1] - values[0] > 3 * spread > 0 else None


def _thin(points: Sequence[tuple[int, float]]) -> list[tuple[float, float]]:
    every = max(1, -(-len(points) // HISTORY_POINTS))
    kept = [*points[::every]]
    if points[-1] not in kept[-1:]:
        kept.append(points[-1])
    return [(float(step), float(value)) for step, value in kept]


def _note(report: EvaluationReport, metric: MetricName, short: str) -> str:
    found = report.metrics.get(metric)
    return f"{short} {found.value:.4f}" if found else ""


def _words(name: str) -> str:
    return name.replace("_", " ")


def card(name: str, words: str, picture: str, *, escaped: bool = False) -> str:
    """A picture with its name and a few words."""
    said = words if escaped else escape(words)
    return f'<div class="card"><h3>{escape(name)}</h3><p>{said}</p>{picture}</div>'
