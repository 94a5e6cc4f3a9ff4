"""The evaluation report: the whole judgement of one model on its holdout, as one record."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import assert_never

import numpy as np

from ml_assets.assets.evaluation_report.champion_comparison import ChampionScores, Pair, compare
from ml_assets.assets.evaluation_report.gate_estimates import estimates
from ml_assets.assets.evaluation_report.metrics.classification import (
    calibration,
    confusion,
    curves,
)
from ml_assets.assets.evaluation_report.metrics.metrics import (
    evaluate,
    point_metrics,
    slice_metrics,
)
from ml_assets.assets.evaluation_report.metrics.ranking import ranking
from ml_assets.assets.evaluation_report.metrics.regression import (
    predicted_against_observed,
    residuals,
)
from ml_assets.assets.evaluation_report.robustness import Perturbed
from ml_assets.assets.evaluation_report.rows import Holdout, Truth
from ml_assets.spec.gates import LOSS_OF, BaselineSpec, GradientBoostingBaseline, ValueBaseline
from ml_assets.spec.pipeline import PipelineSpec
from ml_assets.spec.records import (
    CalibrationBin,
    Curve,
    EvaluationReport,
    FeatureImportance,
    Interval,
    Ranking,
    Recommendation,
    Residuals,
    SeedSpread,
)
from ml_assets.spec.training import Boosted, LightGbm, without_meaning

__all__ = ["ChampionScores", "Holdout", "judge"]


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
    perturbed: Perturbed | None = None,
    seeds: SeedSpread | None = None,
) -> EvaluationReport:
    """Judge a model; equal arguments give an equal report.

    Args:
        model: digest of the model.
        data: digest of the training set.
        predictions: [n, outputs], in the order of the holdout's rows.
        baselines: name -> [n, outputs] predictions on the same rows.
        champion: its scores on the same rows; None where no model was released yet.
        size_bytes: of the model's files.
        importance: of its features, on a sample of the rows.
        perturbed: its predictions where inputs are missing or shifted, if a gate asks for them.
        seeds: how much models differ that were trained alike, if it was measured.

    Raises:
        EvidenceError: no rows, or predictions that are none.
    """
    truth = holdout.truth
    samples, seed = spec.evaluation.bootstrap_samples, spec.training.seed
    metrics = evaluate(truth, predictions, holdout.blocks, samples, seed)
    shown = _pictured(spec, holdout, predictions)
    declared = [one for one in spec.evaluation.baselines if isinstance(one, ValueBaseline)]
    return EvaluationReport(
        pipeline=spec.name,
        model=model,
        data=data,
        rows=len(truth.labels),
        holdout=holdout.span,
        label_rate=_label_rate(truth),
        metrics={str(name): value for name, value in metrics.items()},
        baselines=baseline_metrics(truth, baselines, declared),
        sources={one.name: one.source for one in declared},
        champion=compare(spec, holdout, predictions, champion, seeds) if champion else None,
        slices=slice_metrics(truth, predictions, holdout.slices, holdout.blocks, seed=seed),
        calibration=shown.calibration,
        roc=shown.roc,
        precision_recall=shown.precision_recall,
        confusion=confusion(truth, predictions),
        residuals=shown.residuals,
        ranking=shown.ranking,
        importance=tuple(importance),
        size_bytes=size_bytes,
        recommendation=recommend(spec, holdout, predictions, baselines),
        estimates=estimates(spec, holdout, predictions, champion, perturbed),
        holdout_rows=holdout.digest,
        holdout_draw=holdout.draw,
    )


def baseline_metrics(
    truth: Truth, scored: Mapping[str, np.ndarray], declared: Sequence[ValueBaseline]
) -> dict[str, dict[str, float]]:
    """Name -> metrics: computed of the baselines that score rows, and as declared of the others."""
    computed = {name: point_metrics(truth, scores) for name, scores in scored.items()}
    return {
        **{name: {str(m): v for m, v in found.items()} for name, found in computed.items()},
        **{one.name: {str(m): v for m, v in one.metrics.items()} for one in declared},
    }


@dataclass(frozen=True)
class _Pictured:
    """What the pictures of the report show; each task has its own."""

    calibration: tuple[CalibrationBin, ...] = ()
    roc: Curve | None = None
    precision_recall: Curve | None = None
    residuals: Residuals | None = None
    ranking: Ranking | None = None


def _pictured(spec: PipelineSpec, holdout: Holdout, predictions: np.ndarray) -> _Pictured:
    truth = holdout.truth
    match truth.task:
        case "binary" | "multiclass":
            return _Pictured(calibration(truth, predictions), *curves(truth, predictions))
        case "regression":
            bins = predicted_against_observed(truth, predictions)
            return _Pictured(bins, residuals=residuals(truth, predictions))
        case "language_model":
            return _Pictured()
        case "ranking":
            days = holdout.blocks if spec.evaluation.block == "day" else None
            return _Pictured(ranking=ranking(truth, predictions, days))
        case _:
            assert_never(truth.task)


def _label_rate(truth: Truth) -> tuple[float, ...]:
    """Share of each class in the holdout (binary: of the positive one); a number has none."""
    match truth.task:
        case "binary":
            return (float(truth.labels.mean()),)
        case "multiclass":
            counts = np.bincount(truth.labels, minlength=len(truth.classes))
            return tuple(float(count / len(truth.labels)) for count in counts)
        case "regression" | "ranking" | "language_model":
            return ()
        case _:
            assert_never(truth.task)


def recommend(
    spec: PipelineSpec,
    holdout: Holdout,
    predictions: np.ndarray,
    baselines: Mapping[str, np.ndarray],
) -> Recommendation | None:
    """Keep the model, or release the simple one; None where the spec names none.

    The model is kept where it is better by the declared effect and its interval leaves out zero.

    Args:
        predictions: [n, outputs] of the model, in the order of the holdout's rows.
        baselines: name -> [n, outputs] on the same rows.
    """
    simple = spec.evaluation.simple_model
    if simple is None:
        return None
    samples, seed = spec.evaluation.bootstrap_samples, spec.training.seed
    rival = baselines[simple.baseline]
    difference = Pair.of(
        holdout.truth, rival, predictions, holdout.blocks, samples, seed
    ).loss_difference()
    keep = difference.value >= simple.min_effect and difference.low > 0
    baseline = next(b for b in spec.evaluation.baselines if b.name == simple.baseline)
    return Recommendation(
        baseline=simple.baseline,
        min_effect=simple.min_effect,
        difference=difference,
        keep=keep,
        reason=_reason(spec, baseline, difference, keep),
    )


def _reason(spec: PipelineSpec, baseline: BaselineSpec, seen: Interval, keep: bool) -> str:
    same = isinstance(baseline, GradientBoostingBaseline) and isinstance(spec.model, Boosted)
    if same and not keep:
        return "The model is gradient boosting itself, so there is nothing simpler to release."
    return _found(spec, baseline, seen, keep) + _advice(spec, baseline, keep)


def _found(spec: PipelineSpec, baseline: BaselineSpec, seen: Interval, keep: bool) -> str:
    """The measurement as a clause: what was found, and what was asked for."""
    simple, loss = spec.evaluation.simple_model, LOSS_OF[spec.label.task]
    assert simple is not None
    model = "The model" if isinstance(spec.model, Boosted) else "The network"
    better = seen.value > 0
    low, high = (seen.low, seen.high) if better else (-seen.high, -seen.low)
    by = f"{abs(seen.value):.4f} [{low:+.4f}, {high:+.4f}] {loss}"
    found = f"{model} is {'better' if better else 'worse'} than {_name(baseline)} by {by}"
    if keep:
        return f"{found}, and {simple.min_effect:g} was asked for"
    if seen.value < 0:
        return found
    if seen.value >= simple.min_effect:
        return f"{found}, but the interval holds zero: it may be chance"
    return f"{found}, not better by the declared {simple.min_effect:g}"


def _advice(spec: PipelineSpec, baseline: BaselineSpec, keep: bool) -> str:
    if keep:
        return ": keep it."
    if not isinstance(baseline, GradientBoostingBaseline):
        return f": {_name(baseline)} would do as well."
    trees = LightGbm(family="lightgbm")
    changed = spec.training.model_dump(exclude_defaults=True)  # a record does not say who set them
    left = sorted(without_meaning(trees) & changed.keys())
    without = f", and without {_listed(left)}, which trees do not have" if left else ""
    return f": release gradient boosting instead, model: {{family: lightgbm}}{without}."


def _listed(fields: Sequence[str]) -> str:
    """Fields of ``training`` in a sentence."""
    *first, last = (f"training.{name}" for name in fields)
    return f"{', '.join(first)} and {last}" if first else last


def _name(baseline: BaselineSpec) -> str:
    if isinstance(baseline, GradientBoostingBaseline):
        return "gradient boosting"
    return f"the baseline {baseline.name}"
