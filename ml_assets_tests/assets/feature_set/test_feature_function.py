"""A feature function is held to the columns that its spec declares."""

from datetime import UTC, datetime
from pathlib import Path

import polars as pl
import pytest

from ml_assets.assets.feature_set.feature_function import check_features, load_function
from ml_assets.errors import SpecError
from ml_assets.spec.features import FeaturesSpec
from ml_assets.spec.pipeline import LabelSpec
from ml_assets_tests.worlds import irises
from ml_assets_tests.worlds.world import World

SPEC = FeaturesSpec(
    function="features.py:build",
    key=("k",),
    decision_at="at",
    numeric=("x",),
    categorical=("c",),
)
LABEL = LabelSpec(column="y", task="binary")
GOOD = pl.DataFrame(
    {"k": [1, 2], "at": [datetime(2024, 1, 1, tzinfo=UTC)] * 2, "x": [1, 2], "c": ["a", None]}
).with_columns(pl.lit(True).alias("y"), pl.lit(0).alias("unasked"))


def test_the_declared_columns_come_back_with_their_types() -> None:
    checked = check_features(GOOD, SPEC, LABEL)
    assert checked.columns == ["k", "at", "y", "x", "c"]
    assert checked.schema["x"] == pl.Float64


def test_a_number_that_is_none_comes_back_as_no_value() -> None:
    numbers = GOOD.with_columns(x=pl.Series([float("nan"), 2.0]))
    assert check_features(numbers, SPEC, LABEL)["x"].to_list() == [None, 2.0]


def test_a_missing_column_is_named_with_the_nearest_one() -> None:
    with pytest.raises(SpecError, match=r"'unaskd' \(there is 'unasked'\)"):
        check_features(GOOD, SPEC.model_copy(update={"numeric": ("unaskd",)}), LABEL)


def test_text_in_a_numeric_feature_says_where_it_belongs() -> None:
    with pytest.raises(SpecError, match="'categorical'"):
        check_features(GOOD.with_columns(pl.lit("a").alias("x")), SPEC, LABEL)


def test_a_key_that_is_there_twice_blames_the_join() -> None:
    with pytest.raises(SpecError, match="a join in the function multiplies rows"):
        check_features(pl.concat([GOOD, GOOD]), SPEC, LABEL)


def test_a_key_that_a_table_has_twice_blames_the_table(tmp_path: Path) -> None:
    world = World(tmp_path).plant(irises)
    file = world.sources / "irises.csv"
    lines = file.read_text().splitlines()
    file.write_text("\n".join([*lines, lines[-1]]))
    said = world.cli("run", "irises", "--through", "feature_set", code=1)
    assert "the table 'flowers' itself has 2 rows of this key. Leave all but one of each" in said
    assert "a join" not in said


def test_a_naive_decision_time_is_refused() -> None:
    with pytest.raises(SpecError, match="UTC"):
        check_features(GOOD.with_columns(pl.col("at").dt.replace_time_zone(None)), SPEC, LABEL)


@pytest.mark.parametrize(
    ("content", "said"),
    [(None, "create it"), ("x = (", "cannot be imported"), ("x = 1", "no function 'build'")],
)
def test_a_file_that_does_not_hold_the_function_says_so(
    tmp_path: Path, content: str | None, said: str
) -> None:
    if content is not None:
        (tmp_path / "features.py").write_text(content)
    with pytest.raises(SpecError, match=said):
        load_function(tmp_path, "features.py:build", "p")


def test_an_edited_file_is_loaded_again(tmp_path: Path) -> None:
    file = tmp_path / "features.py"
    for answer in ("1", "2"):
        file.write_text(f"def build(tables, window):\n    return {answer}\n")
        build = load_function(tmp_path, "features.py:build", "p")
        assert str(build({}, None)) == answer


def test_the_query_of_a_ranking_comes_with_the_rows_and_is_never_null() -> None:
    label = LabelSpec(column="y", task="ranking", query="q")
    frame = GOOD.with_columns(pl.Series("q", [7, 7]))
    checked = check_features(frame, SPEC, label)
    assert checked.columns == ["k", "at", "q", "y", "x", "c"]
    with pytest.raises(SpecError, match="'q'"):
        check_features(GOOD, SPEC, label)
    with pytest.raises(SpecError, match="is null in 1 row:"):
        check_features(frame.with_columns(pl.Series("q", [7, None])), SPEC, label)
