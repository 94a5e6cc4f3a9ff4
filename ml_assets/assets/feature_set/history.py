"""What had happened by the time of a decision: as-of joins that cannot see later.

An event counts for a row only where ``known_at < decision_at``: strictly, so that what becomes
known at the very moment of the decision does not.
"""

from collections.abc import Sequence
from datetime import timedelta

import polars as pl

_KNOWN = "__known_at"
_SUM = "__sum"
_COUNT = "__count"


def trailing_mean(
    rows: pl.DataFrame,
    events: pl.DataFrame,
    *,
    name: str,
    value: str,
    span: timedelta,
    by: Sequence[str] = (),
    prior: float | None = None,
    weight: float = 0.0,
    decision_at: str = "decision_at",
    known_at: str = "known_at",
) -> pl.DataFrame:
    """Add the mean of the events known in ``[decision_at - span, decision_at)``, by entity.

    Sums at the two ends of the span are looked up in running totals: exact, and linear in events.

    Args:
        rows: [n] with ``decision_at`` and the columns of ``by``.
        events: with ``known_at``, the columns of ``by``, and ``value`` (null: not an event).
        name: the column to add; null where no event is in the span and there is no prior.
        prior: with ``weight``: the mean is pulled to it as if so many events of it were seen.

    Returns:
        The rows, in their order, with the column ``name``.
    """
    seen = events.filter(pl.col(value).is_not_null(), pl.col(known_at).is_not_null())
    running = _running_totals(seen, value, known_at, by)
    upper = _as_of(rows, running, pl.col(decision_at), by)
    lower = _as_of(rows, running, pl.col(decision_at) - span, by)
    total, count = upper[_SUM] - lower[_SUM], upper[_COUNT] - lower[_COUNT]
    if prior is not None:
        mean = (total + prior * weight) / (count + weight)
    else:
        mean = pl.select(pl.when(count > 0).then(total / count)).to_series()
    return rows.with_columns(mean.alias(name))


def latest(
    rows: pl.DataFrame,
    events: pl.DataFrame,
    *,
    columns: Sequence[str],
    by: Sequence[str],
    within: timedelta,
    decision_at: str = "decision_at",
    known_at: str = "known_at",
) -> pl.DataFrame:
    """Add the columns of the newest event of the entity known before the decision.

    Returns:
        The rows, in their order; null where the newest event is older than ``within``.
    """
    right = (
        events.filter(pl.col(known_at).is_not_null())
        .select(*by, *columns, pl.col(known_at).alias(_KNOWN))
        .sort(_KNOWN)
    )
    left = rows.with_row_index("__row").sort(decision_at)
    joined = left.join_asof(
        right,
        left_on=decision_at,
        right_on=_KNOWN,
        by=list(by) or None,
        strategy="backward",
        allow_exact_matches=False,
        tolerance=within,
        check_sortedness=False,
    )
    return joined.sort("__row").drop("__row", _KNOWN, strict=False)


def _running_totals(
    events: pl.DataFrame, value: str, known_at: str, by: Sequence[str]
) -> pl.DataFrame:
    ordered = events.select(
        *by, pl.col(known_at).alias(_KNOWN), pl.col(value).cast(pl.Float64).alias(_SUM)
    ).sort(_KNOWN)
    total, count = pl.col(_SUM).cum_sum(), pl.int_range(1, pl.len() + 1)
    if by:
        total, count = total.over(by), count.over(by)
    return ordered.with_columns(total.alias(_SUM), count.cast(pl.Float64).alias(_COUNT))


def _as_of(
    rows: pl.DataFrame, running: pl.DataFrame, at: pl.Expr, by: Sequence[str]
) -> pl.DataFrame:
    left = rows.select(*by, at.alias("__at")).with_row_index("__row").sort("__at")
    joined = left.join_asof(
        running,
        left_on="__at",
        right_on=_KNOWN,
        by=list(by) or None,
        strategy="backward",
        allow_exact_matches=False,
        check_sortedness=False,
    )
    return joined.sort("__row").select(pl.col(_SUM).fill_null(0.0), pl.col(_COUNT).fill_null(0.0))
