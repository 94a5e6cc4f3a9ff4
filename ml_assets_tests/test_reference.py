"""docs/reference.md is what the docstrings of the code say."""

from pydantic import BaseModel

from ml_assets.spec.pipeline import PipelineSpec
from ml_assets.spec.search import SearchSpec
from ml_assets_tests.reference import PAGE, PARTS, flat, members, page


def parts_of(model: type[BaseModel]) -> set[type[BaseModel]]:
    """The model and every other one that a field of it may hold, however deep."""
    held = (one for info in model.model_fields.values() for one in flat(info.annotation))
    below = [one for one in held if isinstance(one, type) and issubclass(one, BaseModel)]
    return {model}.union(*(parts_of(one) for one in below))


def test_every_part_of_the_spec_is_on_the_page() -> None:
    told = {model for _, union in PARTS for model in members(union)}
    assert parts_of(PipelineSpec) | parts_of(SearchSpec) == told


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


def test_no_bar_of_a_value_ends_a_cell() -> None:
    rows = [line for line in page().splitlines() if line.startswith("| `")]
    assert any("\\|" in row for row in rows)
    assert "\t" not in page()
    fields = page().split("| field | takes | default | |\n")[1:]
    for part in fields:
        table = part.split("\n\n", 1)[0].splitlines()[1:]
        assert all(row.replace("\\|", "").count("|") == 5 for row in table), table


def test_every_field_says_what_it_is() -> None:
    empty = [line for line in PAGE.read_text().splitlines() if line.endswith("|  |")]
    assert not [line for line in empty if not line.startswith("| field")]
