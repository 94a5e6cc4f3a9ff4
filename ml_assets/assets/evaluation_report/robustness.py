"""Measures how much the loss rises when inputs are missing or shifted.

The spoiled copies are stacked and scored together with the holdout, in one call.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import polars as pl

from ml_assets.assets.evaluation_report.champion_comparison import Pair
from ml_assets.assets.evaluation_report.importance import sample
from ml_assets.assets.evaluation_report.rows import Holdout
from ml_assets.spec.gates import Robustness
from ml_assets.spec.pipeline import PipelineSpec
from ml_assets.spec.records import Estimate

SAMPLE_ROWS = 4000
"""Rows of each copy."""


@dataclass(frozen=True)
class Spoiled:
    """Copies of some rows of a holdout, each spoiled in one way."""

    stacked: pl.DataFrame
    cases: tuple[tuple[str, str], ...]
    """(gate, what was done), in the order of the stack."""
    sampled: np.ndarray
    """[r] which rows of the holdout each copy holds."""


@dataclass(frozen=True)
class Perturbed:
    """The predictions of the spoiled copies, [len(stacked), outputs]."""

    spoiled: Spoiled
    predictions: np.ndarray


def spoil(
    spec: PipelineSpec, rows: pl.DataFrame, deviations: Mapping[str, float]
) -> Spoiled | None:
    """Spoiled copies for the gates that ask for them; None where none does.

    Args:
        deviations: numeric column -> its standard deviation in the training split.
    """
    gates = [gate for gate in spec.gates if isinstance(gate, Robustness)]
    if not gates:
        return None
    draw = np.random.default_rng(spec.training.seed)
    sampled = sample(spec.label, rows, min(len(rows), SAMPLE_ROWS), draw)
    columns = list(spec.features.columns)
    asked = [spec.label.query] if spec.label.query else []
    plain = rows[sampled].select(list(dict.fromkeys([*columns, spec.label.column, *asked])))
    copies: list[pl.DataFrame] = []
    cases: list[tuple[str, str]] = []
    for gate in gates:
        if gate.missing is not None:
            copies.append(_without(plain, columns, gate.missing, draw))
            cases.append((gate.name, f"{gate.missing:.0%} of the inputs missing"))
        for sign, word in ((1, "raised"), (-1, "lowered")):
            if gate.shift is not None:
                moved = {name: sign * gate.shift * deviations[name] for name in deviations}
                copies.append(_moved(plain, moved))
                cases.append((gate.name, f"every number {word} by {gate.shift:g} deviations"))
    return Spoiled(pl.concat(copies, how="vertical_relaxed"), tuple(cases), sampled)


def rises(
    gate: Robustness, holdout: Holdout, own: np.ndarray, perturbed: Perturbed, seed: int, draws: int
) -> tuple[Estimate, ...]:
    """Return how much the mean loss of the sample rises in each case of a gate.

    Args:
        own: [n, outputs] predictions of the holdout as it is.
        draws: of the bootstrap.
    """
    spoiled = perturbed.spoiled
    truth, blocks = holdout.truth.of(spoiled.sampled), holdout.blocks[spoiled.sampled]
    copies = np.split(perturbed.predictions, len(spoiled.cases))
    mine = [
        (about, scores)
        for (name, about), scores in zip(spoiled.cases, copies, strict=True)
        if name == gate.name
    ]
    found: list[Estimate] = []
    for about, scores in mine:
        pair = Pair.of(truth, scores, own[spoiled.sampled], blocks, draws, seed)
        known = pair.resampler.blocks > 1
        rise = pair.loss_difference(claims=len(mine)) if known else None
        found.append(Estimate(about=about, rows=len(spoiled.sampled), interval=rise))
    return tuple(found)


def _without(
    rows: pl.DataFrame, columns: list[str], share: float, draw: np.random.Generator
) -> pl.DataFrame:
    gone = draw.random((len(rows), len(columns))) < share
    return rows.with_columns(
        pl.when(pl.Series(gone[:, place])).then(None).otherwise(pl.col(name)).alias(name)
        for place, name in enumerate(columns)
    )


def _moved(rows: pl.DataFrame, by: Mapping[str, float]) -> pl.DataFrame:
    return rows.with_columns(pl.col(name).cast(pl.Float64) + step for name, step in by.items())
