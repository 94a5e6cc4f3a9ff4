"""The whole judgement of one model on its holdout, as one record."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from ml_assets.evaluation.compare import compare
from ml_assets.evaluation.metrics import (
    calibration,
    curves,
    evaluate,
    point_metrics,
    slice_metrics,
)
from ml_assets.evaluation.rows import Holdout
from ml_assets.spec.pipeline import PipelineSpec
from ml_assets.spec.records import ChampionComparison, EvaluationReport, FeatureImportance

__all__ = ["ChampionScores", "Holdout", "judge"]


@dataclass(frozen=True)
class ChampionScores:
    """The champion's predictions on the candidate's holdout, or why there are none."""

    digest: str
    predictions: np.ndarray | None
    reason: str
    """Why it cannot be compared; empty where it can."""


def judge(
    spec: PipelineSpec,
    *,
    model: str,
    data: str,
    holdout: Holdout,
    predictions: np.ndarray,
    baselines: Mapping[str, np.ndarray],
    champion: ChampionScores | None,
    size_bytes: int,
    importance: Sequence[FeatureImportance] = (),
) -> EvaluationReport:
    """Judge a model; equal arguments give an equal report.

    Args:
        model: digest of the model.
        data: digest of the training set.
        predictions: [n, outputs] probabilities, in the order of the holdout's rows.
        baselines: name -> [n, outputs] probabilities on the same rows.
        champion: its scores on the same rows; None where no model was released yet.
        size_bytes: of the model's files.
        importance: of its features, on a sample of the rows.

    Raises:
        EvidenceError: no rows, or predictions that are no probabilities.
    """
    task, classes, labels = spec.label.task, spec.label.classes, holdout.labels
    samples, seed = spec.evaluation.bootstrap_samples, spec.training.seed
    metrics = evaluate(task, classes, labels, predictions, holdout.blocks, samples, seed)
    roc, precision_recall = curves(task, labels, predictions)
    return EvaluationReport(
        pipeline=spec.name,
        model=model,
        data=data,
        rows=len(labels),
        holdout=holdout.span,
        label_rate=_label_rate(spec, labels),
        metrics={str(name): value for name, value in metrics.items()},
        baselines={
            name: {str(m): v for m, v in point_metrics(task, classes, labels, scores).items()}
            for name, scores in baselines.items()
        },
        champion=_compare(spec, holdout, predictions, champion) if champion else None,
        slices=slice_metrics(
            task, classes, labels, predictions, holdout.slices, holdout.blocks, seed=seed
        ),
        calibration=calibration(task, classes, labels, predictions),
        roc=roc,
        precision_recall=precision_recall,
        importance=tuple(importance),
        size_bytes=size_bytes,
    )


def _compare(
    spec: PipelineSpec, holdout: Holdout, predictions: np.ndarray, champion: ChampionScores
) -> ChampionComparison:
    scores = champion.predictions
    reason = champion.reason
    if scores is None:
        reason = reason or "it could not be scored on these rows"
    elif scores.shape != predictions.shape:
        reason = f"it predicts {scores.shape[-1]} classes, the candidate {predictions.shape[-1]}"
    if scores is None or reason:
        return ChampionComparison(
            champion=champion.digest,
            comparable=False,
            reason=reason,
            log_loss_difference=None,
            metrics={},
        )
    task, labels = spec.label.task, holdout.labels
    difference = compare(
        task,
        labels,
        predictions,
        scores,
        holdout.blocks,
        spec.evaluation.bootstrap_samples,
        spec.training.seed,
    )
    metrics = point_metrics(task, spec.label.classes, labels, scores)
    return ChampionComparison(
        champion=champion.digest,
        comparable=True,
        reason="",
        log_loss_difference=difference,
        metrics={str(name): value for name, value in metrics.items()},
    )


def _label_rate(spec: PipelineSpec, labels: np.ndarray) -> tuple[float, ...]:
    """Share of each class in the holdout (binary: of the positive one)."""
    if spec.label.task == "binary":
        return (float(labels.mean()),)
    counts = np.bincount(labels, minlength=len(spec.label.classes))
    return tuple(float(count / len(labels)) for count in counts)
