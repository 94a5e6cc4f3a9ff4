"""Naive forecasts from the series alone, which a model of a time series has to beat."""

from collections.abc import Iterable
from itertools import chain

import numpy as np
import polars as pl

from ml_assets.spec.forecasts import (
    DriftBaseline,
    Forecast,
    PersistenceBaseline,
    SeasonalNaiveBaseline,
)
from ml_assets.spec.pipeline import PipelineSpec

_AT, _VALUE = "__at", "__value"


def persistence(spec: PipelineSpec, rows: pl.DataFrame) -> np.ndarray | None:
    """[n] the value at each decision; None where the label is not taken from the future.

    Where it is not known then, the last known one of the entity; before the first, the mean of all.
    """
    if spec.label.ahead is None or spec.label.of is None or spec.label.task != "regression":
        return None
    history = _history(spec, rows)
    last = _last_known(spec, rows, history)
    mean = history[_VALUE].mean()
    return last.fill_null(mean if isinstance(mean, float) else 0.0).to_numpy()


def forecast(
    baseline: Forecast,
    spec: PipelineSpec,
    train: Iterable[pl.DataFrame],
    validation: Iterable[pl.DataFrame],
    holdout: pl.DataFrame,
) -> np.ndarray:
    """[n, 1] what the baseline predicts of the holdout's rows.

    A season ago may lie in any split: what the series was then is known when the row is decided.

    Args:
        train: shard by shard, as the validation is: one at a time is in memory.
    """
    now = persistence(spec, holdout)
    ahead = spec.label.ahead
    if now is None or ahead is None:
        raise ValueError(f"{baseline.name}: the label is not taken from the future")
    match baseline:
        case PersistenceBaseline():
            return now[:, None]
        case SeasonalNaiveBaseline():
            moment = pl.col(spec.features.decision_at) + ahead - baseline.season
            at = [*_entity(spec), _AT]
            asked = holdout.select(*at[:-1], moment.alias(_AT)).with_columns(
                pl.Series("__now", now)
            )
            shards = chain(train, validation, [holdout])
            known = [_history(spec, one).join(asked, on=at, how="semi") for one in shards]
            seen = pl.concat(known).unique(at, keep="first", maintain_order=True)
            found = asked.join(seen, on=at, how="left", maintain_order="left")
            return found.select(pl.col(_VALUE).fill_null(pl.col("__now"))).to_numpy()
        case DriftBaseline():
            steps = _slopes(spec, train, holdout) * (ahead.total_seconds())
            return (now + steps)[:, None]


def _entity(spec: PipelineSpec) -> list[str]:
    return [name for name in spec.features.key if name != spec.features.decision_at]


def _history(spec: PipelineSpec, rows: pl.DataFrame) -> pl.DataFrame:
    """The values of the series that were known, entity by entity."""
    value = pl.col(spec.label.of or "").cast(pl.Float64).alias(_VALUE)
    at = pl.col(spec.features.decision_at).alias(_AT)
    return rows.select(*_entity(spec), at, value).drop_nulls(_VALUE)


def _last_known(spec: PipelineSpec, rows: pl.DataFrame, history: pl.DataFrame) -> pl.Series:
    entity = _entity(spec)
    asked = rows.select(*entity, pl.col(spec.features.decision_at).alias(_AT))
    joined = (
        asked.with_row_index("__row")
        .sort(_AT)
        .join_asof(history.sort(_AT), on=_AT, by=entity or None, check_sortedness=False)
    )
    return joined.sort("__row")[_VALUE]


def _slopes(spec: PipelineSpec, train: Iterable[pl.DataFrame], holdout: pl.DataFrame) -> np.ndarray:
    """[n] change a second of each row's entity, over training; 0 of one that training has not."""
    entity = _entity(spec)
    ordered = pl.concat(_ends(_history(spec, shard), entity) for shard in train).sort(_AT)
    ends = [
        pl.col(_VALUE).last() - pl.col(_VALUE).first(),
        (pl.col(_AT).last() - pl.col(_AT).first()).dt.total_seconds(),
    ]
    changes = ordered.group_by(entity) if entity else ordered.group_by(pl.lit(0).alias("__one"))
    slope = pl.when(pl.col(_AT) > 0).then(pl.col(_VALUE) / pl.col(_AT)).alias("__slope")
    found = changes.agg(ends).select(*entity, slope)
    if not entity:
        return np.full(len(holdout), found["__slope"].fill_null(0.0).sum())
    joined = holdout.select(entity).join(found, on=entity, how="left", maintain_order="left")
    return joined["__slope"].fill_null(0.0).to_numpy()


def _ends(history: pl.DataFrame, entity: list[str]) -> pl.DataFrame:
    """The first and the last value of each entity."""
    ordered = history.sort(_AT)
    if not entity:
        return pl.concat([ordered.head(1), ordered.tail(1)])
    return pl.concat([ordered.unique(entity, keep="first"), ordered.unique(entity, keep="last")])
