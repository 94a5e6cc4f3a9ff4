"""Pictures that Dagster shows by itself: short enough, well-formed, and of what they are given."""

import re
from base64 import b64decode
from math import nan
from xml.etree import ElementTree

from ml_assets.reports.drawing import Bar, Series
from ml_assets.reports.inline_pictures import INLINE, glance_at_bars, glance_at_lines


def svg_of(markdown: str) -> ElementTree.Element:
    found = re.search(r"data:image/svg\+xml;base64,([^)]+)\)$", markdown)
    assert found
    return ElementTree.fromstring(b64decode(found[1]))


def words_of(markdown: str) -> list[str]:
    return [one.text or "" for one in svg_of(markdown).iter() if one.tag.endswith("tspan")]


def test_bars_carry_names_and_values_and_their_lengths_are_the_values() -> None:
    bars = [Bar("this model", 0.75), Bar("constant", 0.5), Bar("a < b & c", 0.625)]
    shown = glance_at_bars("ROC AUC, higher is better", bars, start=0.5)
    assert shown.startswith("ROC AUC, higher is better\n\n![") and len(shown) < INLINE
    assert words_of(shown) == ["this model 0.75", "constant 0.5", "a < b & c 0.625"]
    lengths = re.findall(r"h(\d+)", b64decode(shown.split(",")[-1][:-1]).decode())
    assert [int(length) for length in lengths[-3:]] == [210, 1, 105]


def test_of_too_many_bars_the_first_are_shown_and_it_stays_short() -> None:
    bars = [Bar(f"baseline number {place} of a long name", 1.0 + place) for place in range(40)]
    shown = glance_at_bars("RMSE, lower is better", bars)
    assert 800 < len(shown) < INLINE
    assert 4 <= len(words_of(shown)) < 40


def test_what_is_no_number_is_no_bar_and_values_below_the_start_are_drawn() -> None:
    bars = [Bar("this model", 0.4), Bar("broken", nan)]
    assert words_of(glance_at_bars("ROC AUC", bars, start=0.5)) == ["this model 0.4"]


def test_lines_keep_their_last_point_and_stay_short() -> None:
    curve = [(float(step), 1.0 / (1 + step)) for step in range(300)]
    flat = [(float(step), 0.5) for step in range(0, 300, 30)]
    shown = glance_at_lines("Loss", [Series("train", curve), Series("validation", flat, "two")])
    assert len(shown) < INLINE
    assert words_of(shown) == ["train 0.003333", "validation 0.5"]
    assert len([one for one in svg_of(shown) if one.tag.endswith("path")]) == 2


def test_counts_are_written_in_full_and_their_line_begins_at_zero() -> None:
    counts = [(0.0, 207_000.0), (1.0, 207_808.0)]
    shown = glance_at_lines("Rows", [Series("rows", counts)], low=0.0)
    assert words_of(shown) == ["rows 207,808"]
    (path,) = [one for one in svg_of(shown) if one.tag.endswith("path")]
    heights = [int(place.split()[1]) for place in str(path.get("d"))[1:].split("L")]
    assert heights == [3, 3], "almost as many is almost as high"
    assert glance_at_lines("Rows", []) == glance_at_bars("Rows", []) == ""
