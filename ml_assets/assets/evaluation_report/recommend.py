"""Whether a model is worth its cost: held against the baseline that is simple enough to release."""

from collections.abc import Mapping

import numpy as np

from ml_assets.assets.evaluation_report.compare import Pair
from ml_assets.assets.evaluation_report.rows import Holdout
from ml_assets.spec.gates import LOSS_OF, BaselineSpec, GradientBoostingBaseline
from ml_assets.spec.pipeline import PipelineSpec
from ml_assets.spec.records import Interval, Recommendation
from ml_assets.spec.training import Boosted


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
        reason=_found(spec, baseline, difference, keep) + _advice(spec, baseline, keep),
    )


def _found(spec: PipelineSpec, baseline: BaselineSpec, seen: Interval, keep: bool) -> str:
    """The measurement as a clause: what was found, and what was asked for."""
    simple, loss = spec.evaluation.simple_model, LOSS_OF[spec.label.task]
    assert simple is not None
    model = "The model" if isinstance(spec.model, Boosted) else "The network"
    by = f"{abs(seen.value):.4f} [{seen.low:+.4f}, {seen.high:+.4f}] {loss}"
    found = f"{model} is {'better' if seen.value > 0 else 'worse'} than {_name(baseline)} by {by}"
    if keep:
        return f"{found}, and {simple.min_effect:g} was asked for"
    if seen.value >= simple.min_effect:
        return f"{found}, but the interval holds zero: it may be chance"
    return f"{found}, not better by the declared {simple.min_effect:g}"


def _advice(spec: PipelineSpec, baseline: BaselineSpec, keep: bool) -> str:
    if keep:
        return ": keep it."
    if not isinstance(baseline, GradientBoostingBaseline):
        return f": {_name(baseline)} would do as well."
    if isinstance(spec.model, Boosted):
        return ": it is gradient boosting itself, so there is nothing simpler to release."
    return ": release gradient boosting instead, model: {family: lightgbm}."


def _name(baseline: BaselineSpec) -> str:
    if isinstance(baseline, GradientBoostingBaseline):
        return "gradient boosting"
    return f"the baseline {baseline.name}"
