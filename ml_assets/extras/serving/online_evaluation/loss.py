"""The loss of served predictions, once labels have come: by model, by slice, and one against
another.

The champion and the canary answered different rows, so a difference has the errors of both.
"""

from collections.abc import Iterator, Mapping
from math import sqrt

import numpy as np
import polars as pl
from numpy.typing import NDArray

from ml_assets.assets.evaluation_report.drift_baseline import PeriodLoss, labelled, period_loss
from ml_assets.assets.evaluation_report.metrics.metrics import judged
from ml_assets.assets.evaluation_report.rows import Holdout
from ml_assets.extras.serving.predictions.hour import typed_text
from ml_assets.spec.base import Digest, Frozen
from ml_assets.spec.gates import LOSS_OF, Target
from ml_assets.spec.pipeline import PipelineSpec
from ml_assets.spec.records import Interval, StageRecord
from ml_assets.spec.stages import PREDICTIONS_STAGE
from ml_assets.spec.training import Task
from ml_assets.store.pipeline_context import PipelineState

FEW = 30
"""Rows of a slice below which its loss is not shown."""


class SliceLoss(Frozen):
    """The mean loss of one part of the rows."""

    column: str
    value: str
    units: int
    loss: Interval


class ServedLoss(Frozen):
    """Describes how one model did on the rows that it answered."""

    stage: Target
    model: Digest
    units: int
    """Rows whose label has come; of a ranking, queries."""
    loss: Interval
    told: PeriodLoss
    """The same with its error."""
    slices: tuple[SliceLoss, ...] = ()


class OnlineReport(Frozen):
    """Holds what was served of one period, against what came true."""

    pipeline: str
    period: str | None
    loss: str
    """What the loss is called."""
    labelled: int
    """Rows of the period whose label has come."""
    models: tuple[ServedLoss, ...]
    difference: Interval | None
    """The canary's mean loss minus the champion's: below zero, the canary is better. Of the two
    that answered most; None where one of them answered too little."""


def served_loss(
    state: PipelineState, period: str | None, hours: Mapping[str, StageRecord]
) -> OnlineReport:
    """Join a period's labelled rows with what was served of them.

    A row that a model was asked for more than once counts with its first answer.

    Raises:
        SpecError: a label is not what the spec declares.
    """
    spec = state.spec
    features = state.scan(state.address("feature_set", partition=period)).collect()
    rows = labelled(features, spec.label)
    found = sorted(_of_models(state, rows, hours), key=lambda one: (one[0].stage, -one[0].units))
    best = {one.stage: loss for one, loss in reversed(found)}
    canary, against = best.get("canary"), best.get("production")
    return OnlineReport(
        pipeline=state.name,
        period=period,
        loss=LOSS_OF[spec.label.task],
        labelled=len(rows),
        models=tuple(one for one, _ in found),
        difference=difference(canary, against) if canary and against else None,
    )


def _of_models(
    state: PipelineState, rows: pl.DataFrame, hours: Mapping[str, StageRecord]
) -> Iterator[tuple[ServedLoss, PeriodLoss]]:
    key = [*state.spec.features.key]
    answered = _answered(state, rows.select(key), hours)
    if answered is None:
        return
    names = [name for name in answered.columns if name not in (*key, "stage", "model")]
    for (stage, model), group in answered.group_by(["stage", "model"]):
        mine = rows.join(group.select(*key, *(pl.col(n).alias(f"_{n}") for n in names)), on=key)
        outputs = _outputs(state.spec)
        predictions = mine.select(f"_{name}" for name in outputs).to_numpy().astype(np.float64)
        loss, slices = _losses(state.spec, mine, predictions)
        if loss is not None:
            interval = _interval(loss)
            told = ServedLoss(
                stage=stage,
                model=model,
                units=loss.units,
                loss=interval,
                told=loss,
                slices=slices,
            )
            yield told, loss


def _answered(
    state: PipelineState, keys: pl.DataFrame, hours: Mapping[str, StageRecord]
) -> pl.DataFrame | None:
    """The first answer of each model to each of the keys."""
    address = state.address(PREDICTIONS_STAGE)
    tables = [state.scan(address.at(hour)) for hour in sorted(hours)]
    if not tables or keys.is_empty():
        return None
    outputs = _outputs(state.spec)
    whole = pl.concat(tables, how="diagonal").unnest("key")
    there = whole.collect_schema()
    typed = [
        typed_text(pl.col(name), dtype)
        if there[name] == pl.String
        else pl.col(name).cast(dtype, strict=False)
        for name, dtype in keys.schema.items()
    ]
    # the whole log is never sorted; and a join promises no order
    found = whole.with_columns(typed).join(keys.lazy(), on=keys.columns, how="semi").sort("moment")
    of = [*keys.columns, "stage", "model"]
    first = found.select(*of, *outputs).unique(of, keep="first", maintain_order=True)
    return first.collect()


def _outputs(spec: PipelineSpec) -> list[str]:
    """The columns of the log that hold what a model of the task says, in its outputs' order."""
    plain: Mapping[Task, str] = {
        "binary": "probability",
        "regression": "prediction",
        "ranking": "score",
        "language_model": "nats",
    }
    label = spec.label
    if label.task == "multiclass":
        return [f"probability_{name}" for name in label.classes]
    return [plain[label.task]]


def _losses(
    spec: PipelineSpec, rows: pl.DataFrame, predictions: NDArray[np.float64]
) -> tuple[PeriodLoss | None, tuple[SliceLoss, ...]]:
    if rows.is_empty():
        return None, ()
    holdout = Holdout.of(spec, rows, ("", ""))
    told = judged(holdout.truth, predictions)
    losses, blocks = told.losses(), told.units(holdout.blocks)
    slices: list[SliceLoss] = []
    for column, values in holdout.slices.items():
        of_units = told.units(values.cast(pl.String).fill_null("").to_numpy())
        for value in sorted(set(of_units)):
            inside = of_units == value
            part = period_loss("", losses[inside], blocks[inside])
            if part is not None and part.units >= FEW:
                interval = _interval(part)
                slices.append(
                    SliceLoss(column=column, value=value, units=part.units, loss=interval)
                )
    return period_loss("", losses, blocks), tuple(slices)


def _interval(loss: PeriodLoss) -> Interval:
    """The 95 % interval of a mean: Student's t, by the blocks."""
    wide = _t(loss.blocks - 1) * loss.error
    return Interval(value=loss.mean, low=loss.mean - wide, high=loss.mean + wide)


def difference(canary: PeriodLoss, champion: PeriodLoss) -> Interval:
    """The difference of two independent means; the fewer blocks count for both."""
    value = canary.mean - champion.mean
    wide = _t(min(canary.blocks, champion.blocks) - 1) * sqrt(canary.error**2 + champion.error**2)
    return Interval(value=value, low=value - wide, high=value + wide)


def _t(freedom: int) -> float:
    from scipy.special import stdtrit

    return float(stdtrit(max(1, freedom), 0.975))
