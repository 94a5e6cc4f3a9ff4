"""The data card: what it counts, and that it stays small (hostile text: test_hostile_text.py)."""

from datetime import UTC, datetime, timedelta

import polars as pl
import pytest

from ml_assets.reports.card import (
    STRIPS,
    Card,
    ColumnRow,
    _described,
    _heights,
    _in_order,
    _range,
    card_page,
    card_pictures,
    distributions,
)
from ml_assets.reports.picture import IMAGE_BYTES, Picture, svg_file
from ml_assets.spec.pipeline import LabelSpec
from ml_assets.store.table_statistics import TableStatistics
from ml_assets.store.table_survey import LabelColumns, survey


def wide_card(columns: int) -> Card:
    frame = pl.DataFrame({f"column_{n}": range(n, n + 500) for n in range(columns)})
    return Card("p", "t", "2024-01-01", survey(frame, ["column_0"]))


def test_the_page_says_what_is_missing_repeated_and_labelled() -> None:
    rows = pl.DataFrame({"k": [1, 1, 2, 3], "x": [None, None, 5.0, 6.0], "y": [1, 1, 0, None]})
    seen = survey(rows, ["k"], LabelColumns("y", by=("k",)))
    page = card_page(Card("p", "t", "w", seen, LabelSpec(column="y", task="binary")), {})
    for name, value in {
        "rows": "4",
        "rows with a duplicate key": "1",
        "duplicate rows": "1",
        "rows with a label": "3",
        "label rate": "0.6667",
        "columns with missing values": "2, most in x (50.0%)",
    }.items():
        assert f"<tr><th>{name}</th><td>{value}</td></tr>" in page
    assert "Label rate by k" in page


def test_a_picture_of_many_columns_stays_small_and_the_page_shows_them_all() -> None:
    card = wide_card(50)
    shown = [one for one in card_pictures(card) if isinstance(one, Picture)]
    assert len(shown) == 1
    assert all(len(svg_file(one.svg)) < IMAGE_BYTES for one in shown)
    drawn = distributions(card)
    assert len(drawn) == -(-50 // STRIPS)
    assert "column_49" in drawn[-1].svg


def test_values_far_out_are_in_the_outermost_column() -> None:
    frame = pl.DataFrame({"x": [*(n / 100 for n in range(1000)), 1e3, -1e3]})
    seen = survey(frame, []).columns[0].numbers
    assert seen is not None
    low, high = _range(seen)
    heights = _heights(seen, low, high)
    assert high - low < 1e3
    assert sum(heights) == 1002


@pytest.mark.parametrize("rows", [0, 1])
def test_a_table_of_no_row_or_of_one_has_a_card(rows: int) -> None:
    frame = pl.DataFrame({"k": [1], "x": [None], "at": ["2024"]}).head(rows)
    seen = survey(frame, ["k"], LabelColumns("x", by=("k",)))
    page = card_page(Card("p", "t", "w", seen, LabelSpec(column="x", task="regression")), {})
    assert "nothing but missing values" in page or rows == 1


def test_a_year_that_no_calendar_has_is_no_error() -> None:
    frame = pl.DataFrame({"at": pl.Series([0, 2**62]).cast(pl.Datetime("us"))})
    assert "no year of four digits" in card_page(Card("p", "t", "w", survey(frame, [])), {})


def test_a_value_of_nearly_all_rows_stands_at_its_place_and_not_in_the_middle() -> None:
    card = Card("p", "t", "w", survey(pl.DataFrame({"holiday": [*[0.0] * 990, *[1.0] * 10]}), []))
    seen = card.statistics.columns[0].numbers
    assert seen is not None
    heights = _heights(seen, *_range(seen))
    assert (heights[0], heights[-1], sum(heights)) == (990, 10, 1000)


def test_quantiles_are_no_more_exact_than_what_they_are_of() -> None:
    start = datetime(2022, 1, 1, tzinfo=UTC)
    frame = pl.DataFrame(
        {
            "few": [float(n % 8) for n in range(18_000)],
            "many": [float(n % 181) for n in range(18_000)],
            "at": [start + timedelta(hours=n) for n in range(18_000)],
        }
    )
    few, many, at = _described_columns(survey(frame, []))
    assert list(few.ends) == ["0", "0", "3", "7", "7"]
    assert all(end.isdigit() for end in many.ends)
    assert all(len(end) == len("2022-01-01") for end in at.ends[1:-1])
    assert at.ends[0] == "2022-01-01 00:00"


def test_what_is_counted_roughly_is_said_to_be_at_least_so_many() -> None:
    names = [f"city_{n}" for n in range(300) for _ in range(300 if n == 7 else 2)]
    rows = pl.DataFrame({"k": range(len(names)), "city": names, "y": [1, 0] * (len(names) // 2)})
    seen = survey(rows, ["k"], LabelColumns("y", by=("city",)))
    page = card_page(Card("p", "t", "w", seen, LabelSpec(column="y", task="binary")), {})
    assert "at least 300 values: city_7 (≥ 300)" in page
    assert "city_7 (300)" in page
    assert "The 24 largest of at least 300." in page


def test_groups_that_are_numbers_stand_in_their_order() -> None:
    rows = pl.DataFrame({"k": range(24), "hour": [str(n) for n in range(23)] + [None]})
    rows = rows.with_columns(y=pl.lit(1.0))
    seen = survey(rows, ["k"], LabelColumns("y", by=("hour",)))
    order = [group.value for group in _in_order(seen.grouped[0].groups)]
    assert order == [*map(str, range(23)), "(missing)"]


def _described_columns(seen: TableStatistics) -> list[ColumnRow]:
    return [_described(column, seen) for column in seen.columns]
