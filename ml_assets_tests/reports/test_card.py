"""The data card: whatever the data is called or holds, it is text on a page that loads nothing."""

import re
from html.parser import HTMLParser
from xml.etree import ElementTree

import polars as pl
import pytest

from ml_assets.reports.card import STRIPS, Card, card_page, card_pictures, distributions
from ml_assets.reports.picture import IMAGE_BYTES, Picture, album, svg_file
from ml_assets.spec.pipeline import LabelSpec
from ml_assets.store.table_survey import LabelColumns, survey

NASTY = "<script>alert('x')</script>"
SVG = re.compile(r"<svg.*?</svg>", re.DOTALL)
VOID = {"meta", "br"}


class Tags(HTMLParser):
    """Names of the tags, and whether each is closed."""

    def __init__(self) -> None:
        super().__init__()
        self.opened: list[str] = []
        self.seen: set[str] = set()

    def handle_starttag(self, tag, attrs):
        self.seen.add(tag)
        if tag not in VOID:
            self.opened.append(tag)

    def handle_endtag(self, tag):
        assert self.opened.pop() == tag


def nasty_card() -> Card:
    rows = pl.DataFrame(
        {
            NASTY: [1.0, 2.0, None, 4.0],
            "depot": [NASTY, NASTY, 'a"b', None],
            "late": [True, False, True, None],
            "note": ["| a | b |\n# c", "\x00\x0b", "![x](http://evil)", "é"],
        }
    )
    labels = LabelColumns("late", by=("depot", NASTY))
    seen = survey(rows, [NASTY], labels)
    return Card("p", "t", "all", seen, LabelSpec(column="late", task="binary"))


def wide_card(columns: int) -> Card:
    frame = pl.DataFrame({f"column_{n}": range(n, n + 500) for n in range(columns)})
    return Card("p", "t", "2024-01-01", survey(frame, ["column_0"]))


def test_hostile_names_and_values_are_text_on_the_page_and_in_the_ui() -> None:
    card = nasty_card()
    page = card_page(card, {NASTY: f"http://x/{NASTY}"})
    reader = Tags()
    reader.feed(page)
    assert reader.opened == []
    assert not reader.seen & {"script", "img", "iframe", "link"}
    assert "&lt;script&gt;" in page
    for drawing in SVG.findall(page):
        ElementTree.fromstring(drawing)
    markdown = album(card_pictures(card))
    assert re.search(r"(?<!\\)<", markdown) is None
    assert "![x]" not in markdown
    for one in card_pictures(card):
        if isinstance(one, Picture):
            ElementTree.fromstring(svg_file(one.svg))


def test_the_page_says_what_is_missing_repeated_and_labelled() -> None:
    rows = pl.DataFrame({"k": [1, 1, 2, 3], "x": [None, None, 5.0, 6.0], "y": [1, 1, 0, None]})
    seen = survey(rows, ["k"], LabelColumns("y", by=("k",)))
    page = card_page(Card("p", "t", "w", seen, LabelSpec(column="y", task="binary")), {})
    for name, value in {
        "rows": "4",
        "rows whose key is taken": "1",
        "rows that are there twice": "1",
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
