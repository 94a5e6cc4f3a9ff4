"""Rows made again without the future: what changes is named, and what cannot change is not."""

from datetime import UTC, datetime, timedelta

import polars as pl
import pytest

from ml_assets.assets.feature_set.future_check import (
    Hidden,
    cannot_be_made,
    compare,
    moment_to_hide_from,
    side_by_side,
)
from ml_assets.spec.features import FeaturesSpec

SPEC = FeaturesSpec(
    function="f.py:b", key=("k",), decision_at="at", numeric=("x",), categorical=("c",)
)
START = datetime(2024, 1, 1, tzinfo=UTC)


def hours(*numbers: int) -> pl.Series:
    return pl.Series(
        "at", [START + timedelta(hours=n) for n in numbers], dtype=pl.Datetime("us", "UTC")
    )


ROWS = pl.DataFrame(
    {
        "k": [0, 1, 2, 3],
        "at": hours(0, 1, 2, 3),
        "x": [0.5, None, 2.0, 3.0],
        "c": ["a", "b", None, "d"],
    }
)
HIDDEN = Hidden(START + timedelta(hours=2), 7, ())


def with_x(*values: float | None) -> pl.DataFrame:
    return ROWS.with_columns(pl.Series("x", values, dtype=pl.Float64))


def test_rows_that_are_the_same_pass_and_the_later_ones_are_not_asked() -> None:
    found = compare([(ROWS, with_x(0.5, None, 2.0, 99.0))], SPEC, HIDDEN)
    assert found.passed
    assert found.value == 0
    assert "3 rows decided by then are the same without 7 events" in found.reason


def test_a_sum_in_another_order_is_the_same() -> None:
    assert compare([(ROWS, with_x(0.5 + 1e-12, None, 2.0, 3.0))], SPEC, HIDDEN).passed
    assert not compare([(ROWS, with_x(0.5 + 1e-6, None, 2.0, 3.0))], SPEC, HIDDEN).passed


@pytest.mark.parametrize("again", [with_x(0.5, 1.0, 2.0, 3.0), with_x(0.5, None, None, 3.0)])
def test_a_value_that_comes_or_goes_is_a_change(again: pl.DataFrame) -> None:
    found = compare([(ROWS, again)], SPEC, HIDDEN)
    assert not found.passed
    assert found.value == 1
    assert found.named == ("x",)
    assert "features change: x (1 row); «(k " in found.reason


def test_a_word_and_the_moment_of_the_decision_count_as_features() -> None:
    word = ROWS.with_columns(pl.lit("z").alias("c"))
    assert compare([(ROWS, word)], SPEC, HIDDEN).named == ("c",)
    moved = ROWS.with_columns(pl.col("at") - timedelta(minutes=1))
    assert compare([(ROWS, moved)], SPEC, HIDDEN).named == ("at",)


def test_a_row_that_is_there_only_with_its_outcome_is_a_leak() -> None:
    found = compare([(ROWS, ROWS.filter(pl.col("k") != 1))], SPEC, HIDDEN)
    assert not found.passed
    assert "1 row is gone, «(k 1)» for one" in found.reason
    more = compare([(ROWS.head(3), ROWS)], SPEC, HIDDEN)
    assert "1 row is new, «(k 3)» for one" in more.reason


def test_a_row_may_be_the_very_event_that_it_is_decided_at() -> None:
    assert compare([(ROWS, ROWS.filter(pl.col("k") != 2))], SPEC, HIDDEN).passed


def test_a_feature_of_the_key_is_not_compared_with_itself() -> None:
    spec = SPEC.model_copy(update={"key": ("k", "c")})
    assert compare([(ROWS.drop_nulls("c"), ROWS.drop_nulls("c"))], spec, HIDDEN).passed


def test_the_moment_is_one_that_decisions_and_events_share() -> None:
    decisions = hours(0, 1, 1, 2, 3, 4)
    assert moment_to_hide_from(decisions, [hours(1, 1, 3), hours(9)]) == START + timedelta(hours=1)


def test_without_such_a_moment_it_is_in_the_middle_of_those_with_a_future() -> None:
    later = hours(1).dt.offset_by("30m")
    assert moment_to_hide_from(hours(0, 1, 2, 3, 4), [later]) == START + timedelta(hours=1)


def test_where_everything_was_known_before_there_is_no_future_to_hide() -> None:
    assert moment_to_hide_from(hours(5, 6), [hours(1, 2)]) is None
    assert moment_to_hide_from(hours(5, 6), [hours().clear()]) is None


def test_a_function_that_fails_without_the_future_would_have_on_the_day() -> None:
    found = cannot_be_made(ValueError("no row"), HIDDEN)
    assert not found.passed
    assert "fails without 7 events known at or after" in found.reason
    assert "ValueError: «no row»" in found.reason


@pytest.mark.parametrize("seed", range(4))
def test_rows_of_files_are_compared_in_parts_as_they_are_at_once(seed: int) -> None:
    """In the order of their keys; some are gone, some new, some changed, some in one part alone."""
    number = pl.int_range(9000)
    rows = pl.select(k=number // 3, x=number % 3).with_columns(at=pl.lit(START), c=pl.lit("a"))
    spec = SPEC.model_copy(update={"key": ("k", "x"), "numeric": ()})
    again = rows.sample(8000, seed=seed).sort("k", "x")
    again = again.with_columns(c=pl.when(pl.col("k") % 7 == seed).then(pl.lit("b")).otherwise("c"))
    more = again.tail(1).with_columns(pl.col("k") + 10)
    then, now = rows.head(8990), pl.concat([again, more])
    parts = list(side_by_side(then.lazy(), now.lazy(), spec.key))
    assert len(parts) > 4
    for whole, of in ((then, 0), (now, 1)):
        assert pl.concat([part[of] for part in parts]).equals(whole)
    assert compare(parts, spec, HIDDEN).value == compare([(then, now)], spec, HIDDEN).value
