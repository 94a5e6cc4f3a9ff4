"""The pictures of a classification: are its probabilities to be believed, and how does it rank?"""

from ml_assets.reports.drawing import Axis, Reference, Series, line_chart
from ml_assets.reports.picture import Picture
from ml_assets.spec.gates import MetricName
from ml_assets.spec.pipeline import PipelineSpec
from ml_assets.spec.records import EvaluationReport


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


def _note(report: EvaluationReport, metric: MetricName, short: str) -> str:
    found = report.metrics.get(metric)
    return f"{short} {found.value:.4f}" if found else ""
