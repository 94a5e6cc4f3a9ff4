"""History features see what was known before the decision, exactly, and nothing later."""

from datetime import UTC, datetime, timedelta

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ml_assets.assets.feature_set.history_features import (
    add_history,
    lag,
    latest,
    trailing,
    trailing_mean,
)
from ml_assets.errors import SpecError

START = datetime(2024, 1, 1, tzinfo=UTC)
SPAN = timedelta(hours=6)

EVENTS = st.lists(
    st.tuples(st.integers(0, 48), st.sampled_from("ab"), st.integers(0, 1)), max_size=30
)
ROWS = st.lists(st.tuples(st.integers(0, 48), st.sampled_from("ab")), min_size=1, max_size=10)


def events_of(events: list[tuple[int, str, int]]) -> pl.DataFrame:
    schema = {"known_at": pl.Datetime("us", "UTC"), "e": pl.String, "y": pl.Int64}
    rows = [(START + timedelta(hours=hour), entity, y) for hour, entity, y in events]
    return pl.DataFrame(rows, schema=schema, orient="row")


def rows_of(rows: list[tuple[int, str]]) -> pl.DataFrame:
    schema = {"decision_at": pl.Datetime("us", "UTC"), "e": pl.String}
    found = [(START + timedelta(hours=hour), entity) for hour, entity in rows]
    return pl.DataFrame(found, schema=schema, orient="row")


@given(events=EVENTS, rows=ROWS)
def test_the_mean_is_the_one_of_brute_force(
    events: list[tuple[int, str, int]], rows: list[tuple[int, str]]
) -> None:
    found = trailing_mean(
        rows_of(rows), events_of(events), name="m", value="y", span=SPAN, by=["e"]
    )
    for (hour, entity), mean in zip(rows, found["m"].to_list(), strict=True):
        seen = [y for at, e, y in events if e == entity and hour - 6 <= at < hour]
        assert (
            mean == (sum(seen) / len(seen) if seen else None)
            or abs(mean - sum(seen) / len(seen)) < 1e-9
        )


@pytest.mark.parametrize("wrong", [float("nan"), float("inf")])
def test_a_value_that_is_no_number_is_no_event(wrong: float) -> None:
    hours = [(hour, "a") for hour in range(48)]
    events = events_of([(hour, entity, 2) for hour, entity in hours])
    broken = events.with_columns(
        y=pl.when(pl.int_range(pl.len()) == 5).then(wrong).otherwise(pl.col("y").cast(pl.Float64))
    )
    sound = broken.filter(pl.col("y").is_finite())
    wanted = [trailing("y", "3h", of) for of in ("mean", "sum", "count", "min", "max")]
    rows = rows_of([(hour, entity) for hour, entity in hours if hour > 2])
    found = add_history(rows, broken, *wanted, by=["e"])
    assert found.equals(add_history(rows, sound, *wanted, by=["e"]))
    assert found["y_mean_3h"].to_list() == [2.0] * len(rows)
    mean = trailing_mean(rows, broken, name="m", value="y", span=SPAN, by=["e"])
    assert mean["m"].to_list() == [2.0] * len(rows)


@given(events=EVENTS, rows=ROWS, changed=st.integers(0, 48))
def test_changing_what_becomes_known_later_changes_no_row(
    events: list[tuple[int, str, int]], rows: list[tuple[int, str]], changed: int
) -> None:
    decided = [(min(hour, changed), entity) for hour, entity in rows]
    other = [(at, e, 1 - y if at >= changed else y) for at, e, y in events]

    def seen(history: list[tuple[int, str, int]]) -> pl.DataFrame:
        table = events_of(history)
        made = trailing_mean(rows_of(decided), table, name="m", value="y", span=SPAN, by=["e"])
        return latest(made, table, columns=["y"], by=["e"], within=SPAN)

    assert seen(events).equals(seen(other))


def test_a_prior_pulls_a_short_history_to_it() -> None:
    found = trailing_mean(
        rows_of([(10, "a"), (10, "b")]),
        events_of([(9, "a", 1)]),
        name="m",
        value="y",
        span=SPAN,
        by=["e"],
        prior=0.2,
        weight=9.0,
    )
    assert found["m"].to_list() == [(1 + 9 * 0.2) / 10, 0.2]


def test_the_newest_event_known_before_the_decision_is_taken() -> None:
    events = events_of([(3, "a", 0), (9, "a", 1), (10, "a", 0)])
    found = latest(rows_of([(10, "a"), (20, "a")]), events, columns=["y"], by=["e"], within=SPAN)
    assert found["y"].to_list() == [1, None]


@given(events=EVENTS, rows=ROWS)
def test_lags_and_trailing_values_go_by_time(
    events: list[tuple[int, str, int]], rows: list[tuple[int, str]]
) -> None:
    single = list({(hour, entity): (hour, entity, y) for hour, entity, y in events}.values())
    wanted = (
        lag("y", "3h"),
        *(trailing("y", "6h", of) for of in ("mean", "sum", "count", "min", "max")),
    )
    found = add_history(rows_of(rows), events_of(single), *wanted, by=["e"])
    assert found.select("decision_at", "e").equals(rows_of(rows))
    for (hour, entity), row in zip(rows, found.iter_rows(named=True), strict=True):
        past = [y for at, e, y in single if e == entity and hour - 6 <= at < hour]
        before = [y for at, e, y in single if e == entity and at == hour - 3]
        assert row["y_lag_3h"] == (before[0] if before else None)
        assert row["y_count_6h"] == len(past)
        assert row["y_sum_6h"] == (sum(past) if past else None)
        assert row["y_min_6h"] == (min(past) if past else None)
        assert row["y_max_6h"] == (max(past) if past else None)
        mean = sum(past) / len(past) if past else None
        assert row["y_mean_6h"] == (pytest.approx(mean) if past else None)


def test_a_lag_may_take_a_value_that_is_a_little_older() -> None:
    events, rows = events_of([(0, "a", 7)]), rows_of([(4, "a"), (5, "a"), (6, "a")])
    wanted = (lag("y", "3h"), lag("y", "3h", within="2h", name="about"))
    found = add_history(rows, events, *wanted, by=["e"])
    assert found["y_lag_3h"].to_list() == [None, None, None]
    assert found["about"].to_list() == [7, 7, None]


def test_rows_without_an_entity_are_not_the_history_of_each_other() -> None:
    events = events_of([(1, "a", 7), (2, "a", 9)]).with_columns(e=pl.lit(None, pl.String))
    wanted = [trailing("y", "6h", of) for of in ("mean", "sum", "count", "min", "max")]
    rows = rows_of([(3, "a")]).with_columns(e=pl.lit(None, pl.String))
    assert add_history(rows, events, *wanted, by=["e"]).row(0)[2:] == (None, None, 0.0, None, None)


def test_a_history_that_is_none_is_refused() -> None:
    with pytest.raises(SpecError, match="'soon' is not a duration"):
        lag("y", "soon")
    with pytest.raises(SpecError, match="'median'"):
        trailing("y", "6h", "median")  # pyright: ignore[reportArgumentType]  what a person may write
