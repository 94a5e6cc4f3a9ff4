"""What a message quotes never leaves the house, wherever it was cut; and one row is one row."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import ml_assets
from ml_assets.errors import counted, outside, quoted

COUNT = re.compile(r"(len|sum)\(|.*\.(null_count\(\)|error_count\(\)|height|width)$")
"""Expressions that are a number of things; so is whatever is written with the format ``:,``."""
PLURAL = re.compile(
    r" (?:[a-z]+ )?(rows|partitions|periods|days|files|columns|values|models|steps|gates|origins"
    r"|classes|texts|nulls|labels|predictions|attempts|queries|versions|features|names|runs)\b"
)
OF_MANY = re.compile(r" (are|were|have|do)\b")

WORDS = st.text("abc «»‹›'\n", max_size=8).filter(lambda text: not set(text) & set("«»"))
VALUES = st.text("123«»‹›'\n", max_size=12)


def test_people_outside_get_the_message_without_what_it_quotes():
    said = f"line 1, column 'id': {quoted(repr('jane'))} is not int64 ({quoted(4.5)})"
    assert said == "line 1, column 'id': «'jane'» is not int64 («4.5»)"
    assert outside(said) == "line 1, column 'id': … is not int64 (…)"
    assert outside("nothing is quoted") == "nothing is quoted"


def test_a_quotation_in_a_quotation_stays_in_it():
    assert outside(f"it said {quoted(f'a {quoted(1)} b')}.") == "it said …."


@given(st.lists(st.tuples(WORDS, VALUES), max_size=4), WORDS, st.integers(0), st.booleans())
def test_wherever_a_message_is_cut_no_value_is_left(
    parts: list[tuple[str, str]], end: str, cut: int, tail: bool
):
    message = "".join(word + quoted(value) for word, value in parts) + end
    place = cut % (len(message) + 1)
    shown = outside(message[place:] if tail else message[:place])
    assert not set(shown) & set("123«»")


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        (counted(1, "row", "are"), "1 row is"),
        (counted(1200, "row", "are"), "1,200 rows are"),
        (counted(1, "query", "wait"), "1 query waits"),
        (counted(2, "query"), "2 queries"),
        (counted(2, "day"), "2 days"),
        (counted(0, "process"), "0 processes"),
        (counted(2, "microbatch"), "2 microbatches"),
        (counted(30, "epoch"), "30 epochs"),
    ],
)
def test_a_noun_and_its_verb_agree_with_their_number(said: str, expected: str):
    assert said == expected


def disagreeing(text: ast.JoinedStr) -> Iterator[str]:
    """The counts of an f-string with a noun, or a verb, that is right for many only."""
    for before, one, after in zip([None, *text.values], text.values, text.values[1:], strict=False):
        if not isinstance(one, ast.FormattedValue) or not isinstance(after, ast.Constant):
            continue
        said, rest = ast.unparse(one.value), str(after.value)
        written = ast.unparse(one.format_spec) if one.format_spec else ""
        of_more = isinstance(before, ast.Constant) and re.search(
            r"of (the |its )?$", str(before.value)
        )
        if said.startswith("counted("):
            if OF_MANY.match(rest) and not of_more:
                yield f"{said}{rest}"
        elif not said.isupper() and (COUNT.match(said) or written == "f','") and PLURAL.match(rest):
            yield f"{said}{rest}"


def test_every_message_that_counts_is_right_for_one():
    """By ``counted``, which knows the noun and the verb of one; constants in capitals are many."""
    found = [
        f"{file.name}, line {text.lineno}: {said!r}"
        for file in sorted(Path(ml_assets.__file__).parent.rglob("*.py"))
        for text in ast.walk(ast.parse(file.read_text()))
        if isinstance(text, ast.JoinedStr)
        for said in disagreeing(text)
    ]
    assert not found, "\n".join(found)
