"""Decides which rows are trained on, validated on and held out."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from itertools import accumulate, pairwise

import polars as pl

from ml_assets.errors import WindowError, counted
from ml_assets.spec.split import RandomSplit, TimeSharesSplit, WindowSplit
from ml_assets.spec.training_program import Split


@dataclass(frozen=True)
class SplitPlan:
    """The partitions of each split, oldest first; the embargo ones belong to none."""

    train: tuple[str, ...]
    validation: tuple[str, ...]
    holdout: tuple[str, ...]
    embargo: tuple[str, ...]

    @property
    def as_of(self) -> str:
        return self.holdout[-1]

    @property
    def splits(self) -> dict[Split, tuple[str, ...]]:
        return {"train": self.train, "validation": self.validation, "holdout": self.holdout}


def plan_time_split(
    spec: WindowSplit, as_of: str, available: Sequence[str], order: Sequence[str]
) -> SplitPlan:
    """Cut the window that ends with ``as_of``: train, embargo, validation, embargo, holdout.

    Args:
        as_of: last partition of the holdout.
        available: published partitions of the feature set.
        order: every partition there is, oldest first: what a gap is measured against.

    Raises:
        WindowError: the window is longer than the data, or has a gap; what is missing is named.
    """
    need = spec.needed
    if as_of not in order:
        raise WindowError(
            f"as_of {as_of!r} is not a partition of the feature set; the last one is {order[-1]!r}."
        )
    place = list(order).index(as_of)
    if place + 1 < need:
        newest = max(available, default=as_of)
        remedy = "wait" if as_of >= newest else f"name a later as_of, up to {newest}"
        raise WindowError(
            f"The split needs {counted(need, 'partition')} up to {as_of} ({spec.sizes}). The"
            f" feature set has only {place + 1} up to there, from {order[0]} on. Train on fewer,"
            f" or {remedy}."
        )
    window = list(order)[place + 1 - need : place + 1]
    have = set(available)
    missing = [key for key in window if key not in have]
    if missing:
        raise WindowError(
            f"The window {window[0]} .. {as_of} has gaps: {', '.join(missing[:10])} of the feature"
            f" set are not published ({len(missing)} of {need}). Materialize them first."
        )
    cuts = _cuts(spec)
    train, first, validation, second, holdout = (tuple(window[a:b]) for a, b in cuts)
    return SplitPlan(train, validation, holdout, (*first, *second))


def random_split(
    frame: pl.DataFrame, key: Sequence[str], spec: RandomSplit, seed: int
) -> pl.Series:
    """The split of each row by a hash of its key: the same key is always in the same split.

    Args:
        key: the row's key; of a ranking the query, whose rows stay together.
    """
    salted = pl.concat_str(
        [pl.lit(str(seed)), *(pl.col(k).cast(pl.String) for k in key)], separator="\x1f"
    )
    places = frame.select(salted.alias("key"))["key"].map_elements(unit, return_dtype=pl.Float64)
    names = (
        pl.when(places < spec.holdout)
        .then(pl.lit("holdout"))
        .when(places < spec.holdout + spec.validation)
        .then(pl.lit("validation"))
        .otherwise(pl.lit("train"))
    )
    return pl.select(names.alias("split"))["split"]


def split_by_moment(moments: pl.Series, spec: TimeSharesSplit, gap: timedelta) -> pl.Series:
    """The split of each row by when it was decided, oldest first; null: in the gap before the next.

    All rows of a moment are in one split; the shares are of the rows.

    Args:
        moments: when each row was decided.
        gap: the time that is left out before validation and before the holdout.
    """
    ordered = moments.sort()
    rows = len(ordered)
    if not rows:
        return pl.Series("split", [], pl.String)
    holdout = ordered[min(rows - 1, round(rows * (1 - spec.holdout)))]
    validation = ordered[min(rows - 1, round(rows * (1 - spec.holdout - spec.validation)))]
    at = pl.lit(moments)
    names = (
        pl.when(at >= holdout)
        .then(pl.lit("holdout"))
        .when((at >= validation) & (at < holdout - gap))
        .then(pl.lit("validation"))
        .when(at < validation - gap)
        .then(pl.lit("train"))
    )
    return pl.select(names.alias("split"))["split"]


def rows_before(
    frame: pl.DataFrame, at: str, spec: TimeSharesSplit, back: int
) -> tuple[pl.DataFrame, TimeSharesSplit]:
    """The rows that were decided before the newest ``back`` holdouts, and their split.

    Its shares are of fewer rows, so that a holdout is as long as the newest one.

    Args:
        at: the column that says when each row was decided.
    """
    if back == 0:
        return frame, spec
    ordered, rows = frame[at].sort(), len(frame)
    rest = 1 - back * spec.holdout
    end = ordered[min(rows - 1, round(rows * rest))]
    shares = {"holdout": spec.holdout / rest, "validation": spec.validation / rest}
    return frame.filter(pl.col(at) < end), spec.model_copy(update=shares)


def unit(text: str) -> float:
    """A number in [0, 1) that depends on the text alone, in every process and version."""
    import hashlib

    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") / 2**64


def _cuts(spec: WindowSplit) -> list[tuple[int, int]]:
    lengths = (spec.train, spec.embargo, spec.validation, spec.embargo, spec.holdout)
    return list(pairwise(accumulate(lengths, initial=0)))
