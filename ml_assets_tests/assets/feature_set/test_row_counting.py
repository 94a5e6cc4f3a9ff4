"""An empty row in the history tells features that count rows from those that go by time."""

from datetime import UTC, datetime, timedelta

import polars as pl
import pytest

from ml_assets.assets.feature_set.history_features import Lag, Trailing, add_history, lag, trailing
from ml_assets.assets.feature_set.replay import Series, counted_rows, empty_rows
from ml_assets.spec.features import FeaturesSpec

START = datetime(2024, 1, 1, tzinfo=UTC)
HOUR = timedelta(hours=1)
GAP = range(30, 42)
"""Hours that have no row."""
MOMENT = START + 45 * HOUR
SERIES = Series("time", ("station",))
FEATURES = FeaturesSpec(
    function="features.py:build",
    key=("station", "time"),
    decision_at="time",
    numeric=("feature",),
)


def landed() -> pl.LazyFrame:
    """Two stations, an hour apart but for the gap; each value is another one."""
    rows = [
        {"station": station, "time": START + n * HOUR, "pm25": float(n * n + place)}
        for place, station in enumerate(("north", "south"))
        for n in range(46)
        if n not in GAP
    ]
    return pl.LazyFrame(rows)


def found(feature: pl.Expr | Lag | Trailing) -> str:
    """What an empty row changes in a feature of the rows of one moment."""

    def made(rows: pl.LazyFrame) -> pl.DataFrame:
        ordered = rows.sort("station", "time").collect()
        if isinstance(feature, pl.Expr):
            whole = ordered.with_columns(feature.over("station").alias("feature"))
        else:
            of = {"by": ["station"], "decision_at": "time", "known_at": "time"}
            whole = add_history(ordered, ordered, feature, **of)
        return whole.filter(pl.col("time") == MOMENT)

    batch = made(landed())
    empty = empty_rows(landed(), batch, SERIES, MOMENT)
    again = made(pl.concat([landed(), empty.lazy()]))
    return counted_rows(batch, again, FEATURES, empty["time"].max())


def test_the_empty_row_lies_between_the_last_two_of_each_entity() -> None:
    batch = landed().filter(pl.col("time") == MOMENT).collect()
    empty = empty_rows(landed(), batch, SERIES, MOMENT)
    assert empty["station"].to_list() == ["north", "south"]
    assert empty["time"].to_list() == [MOMENT - 1.5 * HOUR] * 2
    assert empty["pm25"].null_count() == 2


@pytest.mark.parametrize(
    "by_rows",
    [
        pl.col("pm25").shift(3),
        pl.col("pm25").rolling_mean(6, min_samples=1),
        pl.col("pm25").diff(2),
        pl.col("pm25").tail(24).sum(),
    ],
    ids=["shift", "rolling_mean", "diff", "tail"],
)
def test_what_counts_rows_is_found(by_rows: pl.Expr) -> None:
    said = found(by_rows)
    assert "'feature' of «(north, 2024-01-02 21:00:00+00:00)» is" in said
    assert "when an empty row is at 2024-01-02 19:30:00+00:00 before it" in said


@pytest.mark.parametrize(
    "by_time",
    [
        pl.col("pm25"),
        pl.col("pm25").rolling_mean_by("time", window_size="6h"),
        pl.col("pm25").drop_nulls().last(),
        pl.int_range(pl.len()).cast(pl.Float64),  # how many rows there are: it may be
        lag("pm25", "3h", name="feature"),
        trailing("pm25", "1d", name="feature"),
    ],
    ids=["own", "rolling_mean_by", "last_known", "how_many", "lag", "trailing"],
)
def test_what_goes_by_time_or_says_how_many_rows_there_are_is_not(
    by_time: pl.Expr | Lag | Trailing,
) -> None:
    assert found(by_time) == ""


def test_an_entity_with_one_row_has_no_history_to_change() -> None:
    first = landed().filter(pl.col("time") == START)
    assert empty_rows(first, first.collect(), SERIES, START + HOUR).is_empty()
