"""Evidence that what was fitted before any training was fitted to the training rows alone."""

import math

import polars as pl

from ml_assets.spec.leaks import LeakFinding
from ml_assets.spec.pipeline import LabelSpec
from ml_assets.spec.program import ShardSchema

TOLERANCE = 1e-6
"""Relative: sums in another order differ by less, a mean of other rows by more."""


def find_foreign_fit(schema: ShardSchema, train: pl.DataFrame, label: LabelSpec) -> LeakFinding:
    """Every statistic of a set is what its training rows say, counted here a second time.

    Args:
        schema: of the set as it was written.
        train: its labelled training rows.
    """
    wrong = {**_numbers(schema, train), **_words(schema, train), **_label(schema, train, label)}
    count = len(schema.preprocessing.numeric) + len(schema.preprocessing.categorical)
    said = f"the statistics of {count} features and of the label are those of {len(train):,} rows"
    if wrong:
        told = "; ".join(f"{name}: {words}" for name, words in list(wrong.items())[:5])
        said = (
            f"{len(wrong)} columns were not fitted on the training rows alone: {told}. Fit on train"
            " and apply to the others"
        )
    return LeakFinding(
        name="fitted_on_train",
        passed=not wrong,
        value=float(len(wrong)),
        bound=0.0,
        reason=said,
        named=tuple(wrong),
    )


def _numbers(schema: ShardSchema, train: pl.DataFrame) -> dict[str, str]:
    fitted = schema.preprocessing.numeric
    if not fitted:
        return {}
    finite = [pl.col(c.name).cast(pl.Float64).fill_nan(None) for c in fitted]
    means = train.lazy().select(c.mean() for c in finite)
    deviations = train.lazy().select(c.std() for c in finite)
    nulls = train.lazy().select(pl.col(c.name).null_count() for c in fitted)
    mean, deviation, null = (
        f.row(0, named=True) for f in pl.collect_all([means, deviations, nulls])
    )
    flagged = set(schema.preprocessing.null_flags)
    wrong: dict[str, str] = {}
    for column in fitted:
        own = mean[column.name] or 0.0, deviation[column.name] or 1.0
        size = abs(own[0])  # a deviation is exact to the digits that its numbers have
        if not (_close(own[0], column.mean) and _close(own[1], column.std, size)):
            wrong[column.name] = (
                f"mean {column.mean:.6g} and deviation {column.std:.6g}, of the training rows"
                f" {own[0]:.6g} and {own[1]:.6g}"
            )
        elif bool(null[column.name]) != (column.name in flagged):
            wrong[column.name] = f"{null[column.name]} nulls in the training rows"
    return wrong


def _words(schema: ShardSchema, train: pl.DataFrame) -> dict[str, str]:
    wrong: dict[str, str] = {}
    for column in schema.preprocessing.categorical:
        foreign = set(column.vocabulary) ^ set(train[column.name].drop_nulls().unique())
        if foreign:
            wrong[column.name] = f"{sorted(foreign)[:5]} not in both vocabulary and training rows"
    return wrong


def _label(schema: ShardSchema, train: pl.DataFrame, label: LabelSpec) -> dict[str, str]:
    values = train[label.column]
    own: tuple[float, ...] = ()
    fitted: tuple[float, ...] = schema.label_rate
    match label.task:
        case "binary":
            own = (float(values.cast(pl.Float64).mean()),)  # pyright: ignore[reportArgumentType]  a float column's mean is a float
        case "multiclass":
            words = values.cast(pl.String)
            own = tuple(int((words == name).sum()) / len(words) for name in label.classes)
        case "regression":
            numbers = values.cast(pl.Float64)
            scale = schema.label_scale
            own = (float(numbers.mean()), float(numbers.std(ddof=0)) or 1.0)  # pyright: ignore[reportArgumentType]  likewise
            fitted = (scale.mean, scale.std) if scale else ()
        case "ranking":
            pass
    if len(own) == len(fitted) and all(_close(*pair) for pair in zip(own, fitted, strict=True)):
        return {}
    return {label.column: f"{fitted}, of the training rows {own}"}


def _close(one: float, other: float, size: float = 1.0) -> bool:
    return math.isclose(one, other, rel_tol=TOLERANCE, abs_tol=1e-9 * max(1.0, size))
