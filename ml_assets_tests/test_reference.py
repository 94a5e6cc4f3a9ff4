"""docs/reference.md is what the docstrings of the code say."""

from ml_assets_tests.reference import PAGE, page


def test_the_page_is_written_from_the_code() -> None:
    assert PAGE.read_text() == page(), "python -m ml_assets_tests.reference"


def test_every_kind_has_a_sentence_and_says_what_each_field_takes() -> None:
    parts = page().split("\n### ")[1:]
    assert len(parts) > 30
    for part in parts:
        said = [line for line in part.splitlines()[1:] if line]
        assert said and not said[0].startswith("|"), part.splitlines()[0]
    rows = [line for line in page().splitlines() if line.startswith("| `")]
    assert len(rows) > 100 and all(row.split(" | ")[1].strip() for row in rows)
