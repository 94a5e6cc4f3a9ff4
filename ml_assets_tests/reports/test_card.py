"""The data card: what it counts, and that it stays small (hostile text: test_hostile_text.py)."""

import polars as pl
import pytest

from ml_assets.reports.card import STRIPS, Card, card_page, card_pictures, distributions
from ml_assets.reports.picture import IMAGE_BYTES, Picture, svg_file
from ml_assets.spec.pipeline import LabelSpec
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
    from ml_assets.reports.card import _heights, _range

    frame = pl.DataFrame({"x": [*(n / 100 for n in range(1000)), 1e6, -1e6]})
    seen = survey(frame, []).columns[0].numbers
    assert seen is not None
    low, high = _range(seen)
    heights = _heights(seen, low, high)
    assert high - low < 1e6
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
