"""Looks up a label from the future: the value of a column at the same entity's row, a while later.

A partition holds the rows whose outcomes fall into it, decided ``label.ahead`` before. So every
partition has its labels as soon as it is there, and none waits for the next.
"""

from dataclasses import replace
from datetime import timedelta

import polars as pl

from ml_assets.errors import SpecError
from ml_assets.spec.pipeline import LabelSpec, PipelineSpec
from ml_assets.spec.window import Window


def deciding(window: Window, label: LabelSpec, *, unknown: bool = False) -> Window:
    """The span of the decisions, and of their outcomes, that a partition's rows are made of.

    Args:
        unknown: also what is decided in it and comes out after it: rows that are predicted.
    """
    if label.ahead is None or window.start is None or window.end is None:
        return window
    end = window.end + (label.ahead if unknown else timedelta(0))
    return replace(window, start=window.start - label.ahead, end=end)


def with_outcomes(rows: pl.LazyFrame, spec: PipelineSpec, window: Window) -> pl.LazyFrame:
    """The rows whose outcomes fall into the window, with the label; null where it is not known.

    Args:
        rows: what the feature function returned for the window that ``deciding`` gave.

    Raises:
        SpecError: a column that the label is made of is missing.
    """
    label, decided = spec.label, spec.features.decision_at
    if label.ahead is None or label.of is None:
        return rows
    names = rows.collect_schema().names()
    missing = [name for name in (*spec.features.key, label.of) if name not in names]
    if missing:
        raise SpecError(
            f"The feature function's rows lack {missing}: the label {label.column!r} is the value"
            f" of {label.of!r} in the row {label.ahead} later. Return them."
        )
    outcome = pl.col(label.of).alias(label.column)
    at = (pl.col(decided) - label.ahead).alias(decided)
    others = [name for name in spec.features.key if name != decided]
    later = rows.select(*others, at, outcome).unique([*others, decided], keep="first")
    known = rows.drop(label.column, strict=False).join(
        later, on=[*others, decided], how="left", maintain_order="left"
    )
    return known if window.end is None else known.filter(pl.col(decided) < window.end - label.ahead)
