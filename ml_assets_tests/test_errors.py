"""What a message quotes never leaves the house, wherever the message was cut."""

from hypothesis import given
from hypothesis import strategies as st

from ml_assets.errors import outside, quoted

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
