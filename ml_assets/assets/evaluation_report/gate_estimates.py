"""Estimates for the gates on parts of the holdout, on calibration and on spoiled inputs.

The metrics and losses of parts come from shared draws: the same days are drawn for each, so that
two of them can be distinguished in spite of a bad day.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from math import comb, isfinite, nan

import numpy as np
import polars as pl

from ml_assets.assets.evaluation_report.bootstrap import Resampler, student
from ml_assets.assets.evaluation_report.champion_comparison import ChampionScores
from ml_assets.assets.evaluation_report.metrics.calibration import reliability
from ml_assets.assets.evaluation_report.metrics.metrics import judged
from ml_assets.assets.evaluation_report.robustness import Perturbed, rises
from ml_assets.assets.evaluation_report.rows import Holdout
from ml_assets.spec.gates import Calibrated, Gap, GateSpec, MetricName, Robustness, Slices
from ml_assets.spec.pipeline import PipelineSpec
from ml_assets.spec.records import Estimate

SAMPLES = 400
"""Bootstrap draws of each part: a standard error needs fewer than a percentile."""
MOST = 60
"""Most estimates kept of the pairs of a column, the largest first."""


@dataclass(frozen=True)
class HoldoutPart:
    """A part of a holdout's rows that is judged by itself."""

    about: str
    rows: np.ndarray
    """[n] bool."""


@dataclass(frozen=True)
class Measurement:
    """A number that was seen on a part, or on two of them."""

    about: str
    rows: int
    value: float
    """NaN where it is not defined."""
    draws: np.ndarray
    blocks: int
    """Different ones that it rests on."""


def parts_of(holdout: Holdout, columns: Sequence[str], min_rows: int) -> list[HoldoutPart]:
    """Every value of the columns with enough rows, by column and value; null is one of its own."""
    found: list[HoldoutPart] = []
    for column in columns:
        text = holdout.slices[column].cast(pl.String).fill_null("(none)").to_numpy()
        names, place, rows = np.unique(text, return_inverse=True, return_counts=True)
        found += [
            HoldoutPart(f"{column} {name}", place.reshape(-1) == index)
            for index, name in enumerate(names)
            if rows[index] >= min_rows
        ]
    return found


def against_champion(
    gate: Slices, holdout: Holdout, own: np.ndarray, champion: np.ndarray, seed: int
) -> tuple[Estimate, ...]:
    """The mean loss of each slice, less the champion's.

    Args:
        own: [n, outputs] predictions of the candidate.
        champion: [n, outputs] the champion's, of the same rows.
    """
    mine, theirs = judged(holdout.truth, own), judged(holdout.truth, champion)
    resampler = Resampler(mine.units(_blocks(holdout)), SAMPLES, seed)
    parts = parts_of(holdout, gate.columns, gate.min_rows)
    masks = [mine.units(part.rows) for part in parts]
    seen = _means(mine.losses() - theirs.losses(), parts, masks, resampler)
    return tuple(_estimate(one, len(seen)) for one in seen)


def of_metric(
    gate: Slices, metric: MetricName, holdout: Holdout, predictions: np.ndarray, seed: int
) -> tuple[Estimate, ...]:
    """A metric of each slice."""
    parts = parts_of(holdout, gate.columns, gate.min_rows)
    seen = _metrics(metric, holdout, predictions, parts, seed)
    return tuple(_estimate(one, len(seen)) for one in seen)


def gaps(gate: Gap, holdout: Holdout, predictions: np.ndarray, seed: int) -> tuple[Estimate, ...]:
    """Return what each two groups differ by, from the one with less to the one with more."""
    parts = parts_of(holdout, [gate.column], gate.min_rows)
    if gate.metric is None:
        model = judged(holdout.truth, predictions)
        resampler = Resampler(model.units(_blocks(holdout)), SAMPLES, seed)
        masks = [model.units(part.rows) for part in parts]
        seen = _means(model.losses(), parts, masks, resampler)
    else:
        seen = _metrics(gate.metric, holdout, predictions, parts, seed)
    pairs = comb(len(seen), 2)
    found = [_estimate(_pair(one, other), pairs) for one, other in combinations(seen, 2)]
    return tuple(sorted(found, key=_end, reverse=True)[:MOST])


def _means(
    values: np.ndarray,
    parts: Sequence[HoldoutPart],
    masks: Sequence[np.ndarray],
    resampler: Resampler,
) -> list[Measurement]:
    """The mean of [units] values over each part."""
    if not parts:
        return []
    sums = resampler.totals_of(mask * values for mask in masks)
    units = resampler.totals_of(mask * 1.0 for mask in masks)
    with np.errstate(divide="ignore", invalid="ignore"):
        draws = sums / units
    return [
        Measurement(
            part.about,
            int(part.rows.sum()),
            float(values[mask].mean()) if mask.any() else nan,
            draws[:, number],
            len(np.unique(resampler.block[mask])),
        )
        for number, (part, mask) in enumerate(zip(parts, masks, strict=True))
    ]


def _metrics(
    metric: MetricName,
    holdout: Holdout,
    predictions: np.ndarray,
    parts: Sequence[HoldoutPart],
    seed: int,
) -> list[Measurement]:
    blocks = _blocks(holdout)
    whole = Resampler(blocks, SAMPLES, seed)
    found: list[Measurement] = []
    for part in parts:
        model = judged(holdout.truth.of(part.rows), predictions[part.rows])
        here = model.units(blocks[part.rows])
        value = model.points().get(metric, nan)
        draws = np.empty(0)
        if isfinite(value):
            with np.errstate(divide="ignore", invalid="ignore"):  # a draw without rows of the part
                draws = model.draws(whole.sharing(here))[metric]
        rows = int(part.rows.sum())
        found.append(Measurement(part.about, rows, value, draws, len(np.unique(here))))
    return found


def _pair(one: Measurement, other: Measurement) -> Measurement:
    """What two values of a column differ by: no row has both."""
    less, more = sorted((one, other), key=lambda seen: seen.value)
    about, rows = f"{less.about} to {more.about}", less.rows + more.rows
    known = less.draws.shape == more.draws.shape
    draws = more.draws - less.draws if known else np.empty(0)
    blocks = min(less.blocks, more.blocks)
    return Measurement(about, rows, more.value - less.value, draws, blocks)


def _estimate(seen: Measurement, claims: int) -> Estimate:
    """None of an interval where the rows cannot tell one."""
    known = isfinite(seen.value) and seen.blocks > 1 and np.isfinite(seen.draws).sum() > 1
    return Estimate(
        about=seen.about,
        rows=seen.rows,
        interval=student(seen.value, seen.draws, seen.blocks, claims=claims) if known else None,
    )


def _end(one: Estimate) -> float:
    return one.interval.high if one.interval else np.inf


def _blocks(holdout: Holdout) -> np.ndarray:
    """[n] the block of each row; the rows themselves where all are of one block."""
    several = len(np.unique(holdout.blocks)) > 1
    return holdout.blocks if several else np.arange(len(holdout.blocks))


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
