"""The pictures of a model's quality; each task has its own."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from itertools import chain
from typing import Literal, assert_never

from ml_assets.errors import counted
from ml_assets.reports.drawing import Axis, Reference, Series, line_chart
from ml_assets.reports.picture import Picture, Table
from ml_assets.reports.row_charts import matrix_chart
from ml_assets.spec.gates import MetricName
from ml_assets.spec.pipeline import PipelineSpec
from ml_assets.spec.records import CalibrationBin, EvaluationReport, Ranking, Residuals
from ml_assets.spec.training import Task

FEW_CLASSES = 10
"""So many make a small matrix."""
CONFUSED = 20
"""Most classes of a confusion matrix that can be read."""
_OTHERS = "(others)"


@dataclass(frozen=True)
class Quality:
    """A section of the report: its pictures and the words above them."""

    heading: str
    about: str
    pictures: Sequence[Picture]
    samples: Table | None = None
    """Texts of a language model; None: it is none."""
    confusion: Picture | None = None
    """Of several classes, which are taken for which; None: there are not, or it was not kept."""
    classes: Table | None = None
    """Class by class, beside it."""


def quality(report: EvaluationReport, spec: PipelineSpec) -> Quality:
    """Return what the report shows of the predictions themselves."""
    match spec.label.task:
        case "binary" | "multiclass":
            rows = report.calibration[0].rows if report.calibration else 0
            return Quality(
                "How it ranks, and whether its probabilities can be believed",
                f"Each dot of the calibration is about {counted(rows, 'row')} with similar"
                " predictions.",
                [*_calibration_picture(report, spec), *_curve_pictures(report)],
                confusion=_confusion_picture(report, spec),
                classes=_classes_table(report, spec),
            )
        case "regression":
            seen = report.residuals
            rows = seen.deciles[0].rows if seen and seen.deciles else 0
            return Quality(
                "How near its predictions come, and where they err",
                f"Each dot is about {counted(rows, 'row')} with similar predictions.",
                [
                    *_observed_picture(report.calibration),
                    *(_residual_picture(seen) if seen else []),
                ],
            )
        case "language_model":
            return Quality(
                "How it continues texts it never saw",
                "The first tokens are from a text of the holdout; the model generated the rest.",
                [],
                sample_table(report),
            )
        case "ranking":
            return Quality(
                "How it orders what competes",
                _ranking_words(report.ranking),
                [*_day_picture(report.ranking), *_position_picture(report.ranking)],
            )
        case _:
            assert_never(spec.label.task)


def sample_table(report: EvaluationReport) -> Table:
    """Return what was given of a text, and what the model made of it."""
    rows = [(one.given, one.drawn) for one in report.samples]
    return Table("Samples", "", ("given", "drawn"), rows)


def label_words(report: EvaluationReport, task: Task) -> str:
    """The labels of the holdout in a few words."""
    match task:
        case "binary" | "multiclass":
            shares = ", ".join(f"{share:.3f}" for share in report.label_rate)
            return f"share in the holdout {shares}"
        case "regression":
            seen = report.residuals
            return f"in the holdout {seen.label_mean:.4g} ± {seen.label_std:.4g}" if seen else ""
        case "language_model":
            return f"{counted(report.rows, 'text')} in the holdout"
        case "ranking":
            seen = report.ranking
            return (
                f"{counted(seen.queries, 'query')} with a relevant row in the holdout"
                if seen
                else ""
            )
        case _:
            assert_never(task)


def _confusion_picture(report: EvaluationReport, spec: PipelineSpec) -> Picture | None:
    """Rows of each true class by the class predicted; of many classes, the most confused."""
    found, classes = report.confusion, _classes(report, spec)
    if not found:
        return None
    shown = _most_confused(report, classes)
    words = (
        "A line is a true class, a column what was predicted: the number of rows, and their share"
        " of the true class. On the diagonal it was right."
    )
    columns = list(shown)
    if len(shown) < len(classes):
        columns.append(_OTHERS)
        words += (
            f" Of {counted(len(classes), 'class')} the {len(shown)} that are confused most;"
            f" {_OTHERS} is every other class."
        )
    counts: list[list[int]] = []
    for name in shown:
        row = found.get(name, {})
        own = [row.get(column, 0) for column in shown]
        others = [sum(row.values()) - sum(own)] if len(columns) > len(shown) else []
        counts.append([*own, *others])
    axes = ("true class", "predicted class")
    chart = matrix_chart("Confusion matrix of the holdout", shown, columns, counts, axes)
    return Picture("Confusion matrix", words, chart)


def _classes(report: EvaluationReport, spec: PipelineSpec) -> list[str]:
    """The declared ones in their order, and what a report of another declaration has beside."""
    found = report.confusion
    return list(dict.fromkeys([*spec.label.classes, *found, *chain(*found.values())]))


def _most_confused(report: EvaluationReport, classes: Sequence[str]) -> list[str]:
    """As many classes as can be read, in their order: those of the largest confusions first."""
    if len(classes) <= CONFUSED:
        return list(classes)
    found = report.confusion
    pairs = [(t, p, n) for t, row in found.items() for p, n in row.items() if t != p]
    confused = [name for t, p, _ in sorted(pairs, key=lambda pair: -pair[2]) for name in (t, p)]
    largest = sorted(classes, key=lambda name: -sum(found.get(name, {}).values()))
    kept = set(list(dict.fromkeys([*confused, *largest]))[:CONFUSED])
    return [name for name in classes if name in kept]


def _classes_table(report: EvaluationReport, spec: PipelineSpec) -> Table | None:
    """Recall and precision of every class; a dash where it has no row, or is never predicted."""
    found = report.confusion
    if not found:
        return None
    predicted = Counter[str]()
    for row in found.values():
        predicted.update(row)
    rows: list[list[str]] = []
    for name in _classes(report, spec):
        true = sum(found.get(name, {}).values())
        right = found.get(name, {}).get(name, 0)
        shares = (f"{right / of:.3f}" if of else "–" for of in (true, predicted[name]))
        rows.append([name, f"{true:,}", *shares])
    return Table("Class by class", "", ["class", "rows", "recall", "precision"], rows)


def _calibration_picture(report: EvaluationReport, spec: PipelineSpec) -> list[Picture]:
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
    return [Picture("Calibration", "The dashed line is perfect calibration.", chart)]


def _curve_pictures(report: EvaluationReport) -> list[Picture]:
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
        found.append(Picture("ROC curve", "The dashed line is guessing.", chart))
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
        found.append(
            Picture("Precision and recall", f"The dashed line is guessing ({rate:.3f}).", chart)
        )
    return found


def _note(report: EvaluationReport, metric: MetricName, short: str) -> str:
    found = report.metrics.get(metric)
    return f"{short} {found.value:.4f}" if found else ""


def _observed_picture(bins: Sequence[CalibrationBin]) -> list[Picture]:
    if not bins:
        return []
    points = [(one.predicted, one.observed) for one in bins]
    low, high = min(map(min, points)), max(map(max, points))
    chart = line_chart(
        "Observed against predicted value",
        [Series("observed", points, dots=True)],
        Axis("predicted", low, high),
        Axis("observed", low, high),
        reference=Reference((low, low), (high, high)),
    )
    return [
        Picture("Predicted against observed", "The dashed line is a perfect prediction.", chart)
    ]


def _residual_picture(seen: Residuals) -> list[Picture]:
    at = [one.predicted for one in seen.deciles]
    lines: list[tuple[str, Literal["one", "two"], list[float]]] = [
        ("median", "one", [one.median for one in seen.deciles]),
        ("tenth percentile", "two", [one.low for one in seen.deciles]),
        ("ninetieth percentile", "two", [one.high for one in seen.deciles]),
    ]
    series = [
        Series(name, list(zip(at, values, strict=True)), tone, dots=True)
        for name, tone, values in lines
    ]
    ends = (at[0], at[-1])
    chart = line_chart(
        "Residuals by decile of the prediction",
        series,
        Axis("predicted", *ends),
        Axis("observed - predicted"),
        reference=Reference((ends[0], 0.0), (ends[1], 0.0)),
    )
    words = "The median, and the range of the middle 80%. The dashed line is no error."
    return [Picture("Residuals", words, chart)]


def _ranking_words(seen: Ranking | None) -> str:
    if seen is None:
        return ""
    without = f"{seen.without_relevant:,} without one are left out" if seen.without_relevant else ""
    judged = f"judged: {counted(seen.queries, 'query')} with a relevant row"
    return f"{'; '.join(part for part in (judged, without) if part)}. A gain is 2^grade - 1."


def _day_picture(seen: Ranking | None) -> list[Picture]:
    if seen is None or len(seen.days) < 2:
        return []
    first = date.fromisoformat(seen.days[0].day)
    points = [(float((date.fromisoformat(one.day) - first).days), one.ndcg) for one in seen.days]
    chart = line_chart(
        "NDCG by day",
        [Series(f"NDCG@{seen.at}", points, dots=True)],
        Axis(f"days since {first}", 0.0),
        Axis(f"NDCG@{seen.at}"),
    )
    return [Picture("NDCG by day", "The mean over the queries of each day.", chart)]


def _position_picture(seen: Ranking | None) -> list[Picture]:
    if seen is None:
        return []
    places = seen.positions
    chart = line_chart(
        "Mean gain by position",
        [
            Series("gain", [(float(one.position), one.gain) for one in places], dots=True),
            Series("best order", [(float(one.position), one.ideal) for one in places], "two"),
        ],
        Axis("position", 1.0, float(max(2, len(places)))),
        Axis("mean gain", 0.0),
    )
    return [
        Picture(
            "Gain by position", "The gain at each position, beside that of the best order.", chart
        )
    ]
