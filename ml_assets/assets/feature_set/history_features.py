"""As-of joins: what had happened by the time of a decision, and nothing later.

An event counts for a row only if ``known_at < decision_at``: strictly, so an event that becomes
known at the very moment of the decision does not count. Everything goes by time, never by counting
rows: over a gap the third row before is not the value of three hours ago.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Literal, cast, get_args

import polars as pl

from ml_assets.assets.feature_set.portable import Rows, on_its_engine
from ml_assets.errors import SpecError, quoted
from ml_assets.spec.automation import parse_duration

_KNOWN = "__known_at"
_SUM = "__sum"
_COUNT = "__count"


Of = Literal["mean", "sum", "count", "min", "max"]


@dataclass(frozen=True)
class Lag:
    """The value of a column so long before the decision; see ``lag``."""

    column: str
    name: str
    back: timedelta
    within: timedelta


@dataclass(frozen=True)
class Trailing:
    """Holds what a column's values were in the time before the decision; see ``trailing``."""

    column: str
    name: str
    span: timedelta
    of: Of


def lag(column: str, back: str, *, within: str | None = None, name: str | None = None) -> Lag:
    """The value that was known exactly ``back`` before the decision, null where there is none.

    ``lag("pm25", "3h")`` is the column ``pm25_lag_3h``.

    Args:
        within: how much older than that the value may be; None: not at all.
        name: of the column, instead.

    Raises:
        SpecError: a duration is none.
    """
    tolerance = _duration(within) if within else timedelta(0)
    return Lag(column, name or f"{column}_lag_{_short(back)}", _duration(back), tolerance)


def trailing(column: str, span: str, of: Of = "mean", *, name: str | None = None) -> Trailing:
    """The mean (sum, count, min, max) of the values known in the ``span`` before the decision.

    The moment of the decision itself does not count, nor does a value that is NaN or infinite. A
    mean and a sum are of running totals, see ``trailing_mean``.
    Without a value in the span it is null, a count 0. ``trailing("pm25", "24h", "max")`` is the
    column ``pm25_max_24h``.

    Args:
        name: of the column, instead.

    Raises:
        SpecError: the span is no duration, or ``of`` is none of these.
    """
    if of not in get_args(Of):
        raise SpecError(f"trailing({column!r}, {span!r}, {of!r}): there are {get_args(Of)}.")
    return Trailing(column, name or f"{column}_{of}_{_short(span)}", _duration(span), of)


def add_history(
    rows: Rows,
    events: Rows,
    *wanted: Lag | Trailing,
    by: Sequence[str] = (),
    decision_at: str = "decision_at",
    known_at: str = "known_at",
) -> Rows:
    """Add a column for each lag and trailing value of the events, entity by entity.

    Args:
        rows: [n] with ``decision_at`` and the columns of ``by``.
        events: with ``known_at``, the columns of ``by``, and those that are asked for; null is no
            value.
        by: the columns that name an entity: a station, a shop. Empty: all rows are of one. A row
            where one of them is null has no history.

    Returns:
        The rows, in their order, with the columns.
    """
    names = {"by": by, "decision_at": decision_at, "known_at": known_at}
    return on_its_engine(_add_history, rows, events, *wanted, **names)


def _add_history(
    rows: pl.DataFrame,
    events: pl.DataFrame,
    *wanted: Lag | Trailing,
    by: Sequence[str],
    decision_at: str,
    known_at: str,
) -> pl.DataFrame:
    found = [
        _lagged(rows, events, one, by, decision_at, known_at)
        if isinstance(one, Lag)
        else _trailed(rows, events, one, by, decision_at, known_at)
        for one in wanted
    ]
    return rows.with_columns(found)


def _lagged(
    rows: pl.DataFrame,
    events: pl.DataFrame,
    one: Lag,
    by: Sequence[str],
    decision_at: str,
    known_at: str,
) -> pl.Series:
    known = events.filter(pl.col(known_at).is_not_null())
    right = known.select(*by, pl.col(known_at).alias(_KNOWN), one.column).sort(_KNOWN, one.column)
    at = (pl.col(decision_at) - one.back).alias("__at")
    left = rows.select(*by, at).with_row_index("__row").sort("__at")
    joined = left.join_asof(
        right,
        left_on="__at",
        right_on=_KNOWN,
        by=list(by) or None,
        strategy="backward",
        tolerance=one.within,
        check_sortedness=False,
    )
    return joined.sort("__row")[one.column].alias(one.name)


def _trailed(
    rows: pl.DataFrame,
    events: pl.DataFrame,
    one: Trailing,
    by: Sequence[str],
    decision_at: str,
    known_at: str,
) -> pl.Series:
    seen = _seen(events, one.column, known_at)
    if one.of in ("min", "max"):
        return _extreme(rows, seen, one, by, decision_at, known_at)
    running = _running_totals(seen, one.column, known_at, by)
    upper = _as_of(rows, running, pl.col(decision_at), by)
    lower = _as_of(rows, running, pl.col(decision_at) - one.span, by)
    total, count = upper[_SUM] - lower[_SUM], upper[_COUNT] - lower[_COUNT]
    if one.of == "count":
        return count.alias(one.name)
    value = total / count if one.of == "mean" else total
    return pl.select(pl.when(count > 0).then(value)).to_series().alias(one.name)


def _extreme(
    rows: pl.DataFrame,
    seen: pl.DataFrame,
    one: Trailing,
    by: Sequence[str],
    decision_at: str,
    known_at: str,
) -> pl.Series:
    """The least or the greatest value of the span: rows and events in one line of time."""
    seen = seen.drop_nulls(list(by)) if by else seen  # a row without an entity has no history
    value = pl.col(one.column).cast(pl.Float64).alias(_SUM)
    at = pl.col(decision_at).alias(_KNOWN)
    asked = rows.select(*by, at, pl.lit(None, pl.Float64).alias(_SUM)).with_row_index("__row")
    told = seen.select(*by, pl.col(known_at).cast(rows.schema[decision_at]).alias(_KNOWN), value)
    line = pl.concat([asked, told], how="diagonal").sort(_KNOWN)
    best = pl.col(_SUM).min() if one.of == "min" else pl.col(_SUM).max()
    spans = line.rolling(_KNOWN, period=one.span, closed="left", group_by=list(by) or None).agg(
        best.alias(one.name)
    )
    # rolling keeps the order of the line within a group, and puts the groups one after the other
    ordered = line.sort(*by, maintain_order=True) if by else line
    placed = spans.sort(*by, maintain_order=True) if by else spans
    found = ordered.select("__row").hstack(placed.select(one.name))
    return found.drop_nulls("__row").sort("__row")[one.name]


def _duration(text: str) -> timedelta:
    try:
        found = parse_duration(text)
    except ValueError as error:
        raise SpecError(f"{quoted(error)}.") from error
    return cast("timedelta", found)


def _short(text: str) -> str:
    return text.replace(" ", "")


def trailing_mean(
    rows: Rows,
    events: Rows,
    *,
    name: str,
    value: str,
    span: timedelta,
    by: Sequence[str] = (),
    prior: float | None = None,
    weight: float = 0.0,
    decision_at: str = "decision_at",
    known_at: str = "known_at",
) -> Rows:
    """Add the mean of the events known in ``[decision_at - span, decision_at)``, by entity.

    Sums at the two ends of the span are looked up in running totals: linear in events. Of fractions
    a total keeps sixteen digits: after a value of 1e20 an entity's sums of single units are lost.
    Let the contract refuse such a value, or make it null.

    Args:
        rows: [n] with ``decision_at`` and the columns of ``by``.
        events: with ``known_at``, the columns of ``by``, and ``value`` (null, NaN or infinite: not
            an event).
        name: the column to add; null where no event is in the span and there is no prior.
        prior: with ``weight``: the mean is pulled to it as if so many events of it were seen.

    Returns:
        The rows, in their order, with the column ``name``.
    """
    asked = {"name": name, "value": value, "span": span, "prior": prior, "weight": weight}
    names = {"by": by, "decision_at": decision_at, "known_at": known_at}
    return on_its_engine(_trailing_mean, rows, events, **asked, **names)


def _trailing_mean(
    rows: pl.DataFrame,
    events: pl.DataFrame,
    *,
    name: str,
    value: str,
    span: timedelta,
    by: Sequence[str],
    prior: float | None,
    weight: float,
    decision_at: str,
    known_at: str,
) -> pl.DataFrame:
    seen = _seen(events, value, known_at)
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
    rows: Rows,
    events: Rows,
    *,
    columns: Sequence[str],
    by: Sequence[str],
    within: timedelta,
    decision_at: str = "decision_at",
    known_at: str = "known_at",
) -> Rows:
    """Add the columns of the newest event of the entity known before the decision.

    Of events that became known at the same moment it is the last in the order of these columns.

    Returns:
        The rows, in their order; null where the newest event is older than ``within``.
    """
    asked = {"columns": columns, "by": by, "within": within}
    names = {"decision_at": decision_at, "known_at": known_at}
    return on_its_engine(_latest, rows, events, **asked, **names)


def _latest(
    rows: pl.DataFrame,
    events: pl.DataFrame,
    *,
    columns: Sequence[str],
    by: Sequence[str],
    within: timedelta,
    decision_at: str,
    known_at: str,
) -> pl.DataFrame:
    right = (
        events.filter(pl.col(known_at).is_not_null())
        .select(*by, *columns, pl.col(known_at).alias(_KNOWN))
        .sort(_KNOWN, *columns)
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


def _seen(events: pl.DataFrame, value: str, known_at: str) -> pl.DataFrame:
    """The events whose value counts: in running totals one NaN would be in all that follow."""
    counts = pl.col(value).is_not_null()
    if events.schema[value].is_float():
        counts &= pl.col(value).is_finite()
    return events.filter(counts, pl.col(known_at).is_not_null())


def _running_totals(
    events: pl.DataFrame, value: str, known_at: str, by: Sequence[str]
) -> pl.DataFrame:
    is_float = events.schema[value].is_float()  # sums of others are exact in any order
    ordered = events.select(
        *by, pl.col(known_at).alias(_KNOWN), pl.col(value).cast(pl.Float64).alias(_SUM)
    ).sort(_KNOWN, *([_SUM] if is_float else []))
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
