"""What the gates over parts of the holdout, calibration and spoiled inputs have to know."""

import numpy as np

from ml_assets.assets.evaluation_report.compare import ChampionScores
from ml_assets.assets.evaluation_report.metrics.calibration import reliability
from ml_assets.assets.evaluation_report.parts import against_champion, gaps, of_metric
from ml_assets.assets.evaluation_report.robustness import Perturbed, rises
from ml_assets.assets.evaluation_report.rows import Holdout
from ml_assets.spec.gates import Calibrated, Gap, GateSpec, Robustness, Slices
from ml_assets.spec.pipeline import PipelineSpec
from ml_assets.spec.records import Estimate


def estimates(
    spec: PipelineSpec,
    holdout: Holdout,
    predictions: np.ndarray,
    champion: ChampionScores | None,
    perturbed: Perturbed | None,
) -> dict[str, tuple[Estimate, ...]]:
    """Gate -> its estimates; what could not be estimated is not there, and the gate fails.

    Args:
        predictions: [n, outputs], in the order of the holdout's rows.
        perturbed: predictions of spoiled copies; None where no gate asks for them.
    """
    found: dict[str, tuple[Estimate, ...]] = {}
    for gate in spec.gates:
        seen = _of(gate, spec, holdout, predictions, champion, perturbed)
        if seen:
            found[gate.name] = seen
    return found


def _of(
    gate: GateSpec,
    spec: PipelineSpec,
    holdout: Holdout,
    predictions: np.ndarray,
    champion: ChampionScores | None,
    perturbed: Perturbed | None,
) -> tuple[Estimate, ...]:
    samples, seed = spec.evaluation.bootstrap_samples, spec.training.seed
    match gate:
        case Slices(margin=None, metric=str(metric)):
            return of_metric(gate, metric, holdout, predictions, seed)
        case Slices():
            rival = champion.predictions if champion and not champion.reason else None
            if rival is None or rival.shape != predictions.shape:
                return ()
            return against_champion(gate, holdout, predictions, rival, seed)
        case Gap():
            return gaps(gate, holdout, predictions, seed)
        case Calibrated():
            return (reliability(gate, holdout, predictions, samples, seed),)
        case Robustness() if perturbed is not None:
            return rises(gate, holdout, predictions, perturbed, seed, samples)
        case _:
            return ()
