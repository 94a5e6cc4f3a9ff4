"""Proposes a first contract that a table's partitions meet, for people to edit.

Keys, columns without missing values, the label's values, and the bounds of means of measured
numbers are proposed as critical. Other ranges, shares and sets are guesses from the data, with some
room: these are warnings.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import polars as pl

from ml_assets.assets.validated_table.contract.values import without_nan

ROOM = 0.25
"""A range is proposed this much wider on each side than what was seen, of its span."""
LABEL_ROOM = 1.0
"""The same of a label that is a number: beyond it lies a mistake of units, and no new season."""
RIGHT_LABELS = 0.99
"""So many labels have to be right. Rows with others are kept back; more refuse the table."""
RARE = 0.01
"""So many rows may share their key with others: the contract keeps them back."""
MEAN_FACTOR = 5.0
"""A mean may lie this many times above or below those seen, where all values have one sign.

Units that seasons resemble differ by less (miles 1.6, pounds 2.2, feet 3.3, km/h 3.6), other ones
by more: 7.5, 10, 18, 60, 100, 1,000."""
SEASONS = 120.0
"""Days. What was seen of fewer tells nothing of other seasons: its means are a warning."""
YEAR = 300.0
"""Days that show every season, about: before, the means themselves say how much more may come."""
MEAN_VALUES = 30
"""With fewer values in a usual partition the means say too little."""
MOST_CATEGORIES = 30
ROWS_A_CATEGORY = 20
"""A text column is taken for categories where each has so many rows on average."""


@dataclass(frozen=True)
class _Seen:
    """What the partitions hold of one column."""

    missing: float
    """The highest share of missing values of a partition."""
    low: Any
    high: Any
    values: tuple[Any, ...]
    """Distinct ones, at most one more than ``MOST_CATEGORIES``."""
    means: tuple[float, ...] | None = None
    """The mean of each partition; None: it has too few values, or they are no measurements."""


def propose(
    name: str,
    partitions: Sequence[pl.LazyFrame],
    key: Sequence[str],
    label: str | None = None,
    *,
    is_measured: bool = False,
) -> dict[str, Any]:
    """A suite as Great Expectations writes it.

    Args:
        partitions: each is one table that the contract will be held to; of equal columns.
        key: the columns that identify a row.
        label: the column that is predicted, if it is one of these.
        is_measured: the outcome of a row is the label of a later one, where any may be missing.
    """
    schema = partitions[0].collect_schema()
    rows = [frame.select(pl.len()).collect().item() for frame in partitions]
    stated = [
        _critical("expect_table_columns_to_match_set", column_set=schema.names(), exact_match=True),
        _warning(
            "expect_table_row_count_to_be_between",
            f"{_span(min(rows), max(rows))} rows were seen.",
            min_value=min(rows) // 2,
            max_value=max(rows) * 2,
        ),
        _unique(partitions, schema, key),
    ]
    days = _days(partitions, schema)
    for column, dtype in schema.items():
        seen = _look_at(partitions, column, schema)
        if column not in key and (dtype.is_float() or (dtype.is_numeric() and column == label)):
            stated += _mean(column, seen, days)
        if column == label:
            value = without_nan(column, schema)
            values = pl.concat([frame.select(value) for frame in partitions]).collect()
            stated += _label(values.to_series(), is_measured=is_measured)
            continue
        stated += _missing(column, seen)
        if dtype.is_numeric() and column not in key:
            stated += _range(column, dtype, seen)
        elif dtype == pl.String:
            stated += _categories(column, seen, sum(rows))
    return {"name": name, "expectations": stated, "meta": {}}


def _label(label: pl.Series, *, is_measured: bool) -> list[dict[str, Any]]:
    """What the label of a table may be: a wrong one would be learned, so it refuses.

    Args:
        label: [n] true and false, words, or numbers; null where an outcome is not known.
    """
    column, values = label.name, label.drop_nulls()
    stated: list[dict[str, Any]] = []
    if not label.null_count() and not is_measured:
        said = (
            "The model learns nothing from a row without its outcome. Make it a warning "
            "if the outcome may come later."
        )
        stated.append(_of_label("expect_column_values_to_not_be_null", said, column=column))
    if label.dtype == pl.Boolean or values.is_empty():
        return stated
    classes = values.unique().sort().to_list()
    if label.dtype == pl.String or set(classes) <= {0, 1}:
        said = "Another value is a mistake, or a class that label.classes has to name first."
        if len(classes) <= 2:  # most often true and false
            said = "Another value is a mistake: the label has no third one."
        kwargs = {"column": column, "value_set": classes}
        return [*stated, _of_label("expect_column_values_to_be_in_set", said, **kwargs)]
    seen = _Seen(0.0, values.min(), values.max(), ())
    ranges = _range(column, label.dtype, seen, LABEL_ROOM)
    return [*stated, *(_of_label(one["type"], one["notes"], **one["kwargs"]) for one in ranges)]


def _of_label(kind: str, said: str, /, **kwargs: Any) -> dict[str, Any]:
    return _entry(kind, {**kwargs, "mostly": RIGHT_LABELS}, "critical", said)


def _look_at(partitions: Sequence[pl.LazyFrame], column: str, schema: pl.Schema) -> _Seen:
    value = without_nan(column, schema)
    wanted = [
        (value.null_count() / pl.len()).alias("missing"),
        value.min().alias("low"),
        value.max().alias("high"),
        value.count().alias("known"),
        (value.mean() if schema[column].is_numeric() else pl.lit(None)).alias("mean"),
        value.drop_nulls().unique().sort().head(MOST_CATEGORIES + 1).implode().alias("values"),
    ]
    found = pl.concat([frame.select(wanted) for frame in partitions]).collect()
    distinct = found["values"].explode().drop_nulls().unique().sort()
    values = tuple(distinct.head(MOST_CATEGORIES + 1))
    missing = float(found["missing"].fill_nan(0.0).max() or 0.0)  # pyright: ignore[reportArgumentType]
    return _Seen(missing, found["low"].min(), found["high"].max(), values, _means(found, values))


def _means(found: pl.DataFrame, values: Sequence[Any]) -> tuple[float, ...] | None:
    """[partitions] their means: not of yes and no, nor of what only grows, such as a meter."""
    usual = found["known"].median()
    if found["mean"].null_count() or len(values) < 3 or not isinstance(usual, float):
        return None
    if usual < MEAN_VALUES:
        return None
    ordered = found.sort("low")
    if len(found) > 1 and (ordered["low"].shift(-1) > ordered["high"]).drop_nulls().all():
        return None
    means = tuple(float(mean) for mean in found["mean"])
    return means if all(map(math.isfinite, means)) else None


def _unique(
    partitions: Sequence[pl.LazyFrame], schema: pl.Schema, key: Sequence[str]
) -> dict[str, Any]:
    columns = [without_nan(name, schema) for name in key]
    again = (pl.len().over(columns) > 1).sum()
    counts = [frame.select(again=again, rows=pl.len()).collect() for frame in partitions]
    found = pl.concat(counts)
    share = float((found["again"] / found["rows"]).fill_nan(0.0).max() or 0.0)  # pyright: ignore[reportArgumentType]
    kind, said = "expect_compound_columns_to_be_unique", {"column_list": list(key)}
    if len(key) == 1:
        kind, said = "expect_column_values_to_be_unique", {"column": key[0]}
    if not share:
        return _critical(kind, **said)
    seen = f"{share:.2%} of the rows share their key with another."
    if int(found["again"].sum()) <= RARE * int(found["rows"].sum()):
        mostly = _at_least(max(0.0, 1 - 2 * share))
        return _entry(kind, {**said, "mostly": mostly}, "critical", seen)
    return _warning(kind, seen, **said, mostly=_at_least(1 - share))


def _missing(column: str, seen: _Seen) -> list[dict[str, Any]]:
    kind = "expect_column_values_to_not_be_null"
    if not seen.missing:
        return [_critical(kind, column=column)]
    if seen.missing > 0.5:
        return []
    said = f"Up to {seen.missing:.2%} of a partition's values are missing."
    mostly = _at_least(max(1 - 1.5 * seen.missing, 0.0))
    return [_warning(kind, said, column=column, mostly=mostly)]


def _days(partitions: Sequence[pl.LazyFrame], schema: pl.Schema) -> float:
    """How many days the rows are of: the shortest by any column of times; without one, endless."""
    times = [name for name, dtype in schema.items() if dtype.is_temporal()]
    if not times:
        return math.inf
    found = pl.concat([frame.select(times) for frame in partitions])
    spans = found.select((pl.col(times).max() - pl.col(times).min()).dt.total_seconds()).collect()
    return min((seconds or 0.0) / 86_400 for seconds in spans.row(0))


def _mean(column: str, seen: _Seen, days: float) -> list[dict[str, Any]]:
    """Where the mean of a partition may lie: in another unit it would lie elsewhere."""
    if seen.means is None:
        return []
    low, high = min(seen.means), max(seen.means)
    said = f"{_span(low, high)} was seen; far from it, values are wrong or in another unit."
    swing = 2 * (high - low) if days < YEAR else 0.0
    if seen.low > 0:
        low, high = min(low / MEAN_FACTOR, low - swing), max(high * MEAN_FACTOR, high + swing)
    elif seen.high < 0:
        low, high = min(low * MEAN_FACTOR, low - swing), max(high / MEAN_FACTOR, high + swing)
    else:
        span = float(seen.high) - float(seen.low)
        low, high = low - span, high + span
    low, high = _round_down(low), -_round_down(-high)
    bounds = {"max_value": high}
    if seen.low < 0 or low > 0:
        bounds = {"min_value": low, **bounds}
    if not all(map(math.isfinite, bounds.values())):
        return []
    severity = "critical" if days >= SEASONS else "warning"
    kind = "expect_column_mean_to_be_between"
    return [_entry(kind, {"column": column, **bounds}, severity, said)]


def _range(
    column: str, dtype: pl.DataType, seen: _Seen, wider: float = ROOM
) -> list[dict[str, Any]]:
    if seen.low is None:
        return []
    room = wider * (float(seen.high) - float(seen.low))
    low, high = _round_down(seen.low - room), -_round_down(-(seen.high + room))
    if not (math.isfinite(low) and math.isfinite(high)):
        return []
    low, high = min(low, seen.low), max(high, seen.high)
    if seen.low >= 0:
        low = max(low, 0.0)
    bounds = (math.floor(low), math.ceil(high)) if dtype.is_integer() else (low, high)
    said = f"{_span(seen.low, seen.high)} was seen."
    kind = "expect_column_values_to_be_between"
    return [_warning(kind, said, column=column, min_value=bounds[0], max_value=bounds[1])]


def _categories(column: str, seen: _Seen, rows: int) -> list[dict[str, Any]]:
    few = 0 < len(seen.values) <= MOST_CATEGORIES
    if not few or rows < ROWS_A_CATEGORY * len(seen.values):
        return []
    said = "A new value is worth a look, but not yet a fault."
    kind = "expect_column_values_to_be_in_set"
    return [_warning(kind, said, column=column, value_set=list(seen.values))]


def _span(low: float, high: float) -> str:
    return f"{low:,.6g}" if low == high else f"{low:,.6g} to {high:,.6g}"


def _at_least(share: float) -> float:
    """Rounded down, so that what was seen meets it."""
    return math.floor(share * 1000) / 1000


def _round_down(value: float) -> float:
    """To two significant digits, away from what was seen."""
    unit = 10.0 ** (math.floor(math.log10(abs(value))) - 1) if 0 < abs(value) < math.inf else 0.0
    if not unit:  # zero, infinite, or too small to have digits
        return float(value)
    return float(f"{math.floor(value / unit) * unit:.12g}")


def _critical(kind: str, **kwargs: Any) -> dict[str, Any]:
    return _entry(kind, kwargs, "critical", None)


def _warning(kind: str, seen: str, /, **kwargs: Any) -> dict[str, Any]:
    return _entry(kind, kwargs, "warning", seen)


def _entry(kind: str, kwargs: Mapping[str, Any], severity: str, seen: str | None) -> dict[str, Any]:
    notes = {"notes": seen} if seen else {}
    return {"type": kind, "kwargs": dict(kwargs), "severity": severity, **notes, "meta": {}}
