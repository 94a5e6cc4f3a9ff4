"""Rows of a request are encoded to the bits of a table's rows, or refused with the mistakes."""

import math
from datetime import UTC, datetime

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ml_assets.assets.feature_set.feature_function import check_features
from ml_assets.assets.training_set.encoding import encode_rows
from ml_assets.errors import RowsRefused
from ml_assets.extras.serving.encoding import Encoder
from ml_assets.spec.features import FeaturesSpec
from ml_assets.spec.label import LabelSpec
from ml_assets.spec.training import Mlp
from ml_assets.spec.training_program import (
    CategoricalColumn,
    File,
    ModelManifest,
    NumericColumn,
    Preprocessing,
)

READ = Preprocessing(
    numeric=(
        NumericColumn(name="a", mean=1.5, std=0.3),
        NumericColumn(name="b", mean=-2e7, std=3e5),
        NumericColumn(name="c", mean=0.1, std=1e-3),
    ),
    null_flags=("a", "c"),
    categorical=(CategoricalColumn(name="w", vocabulary=("x", "y", "ü")),),
)
MANIFEST = ModelManifest(
    model=Mlp(family="mlp", width=4, depth=1),
    task="binary",
    classes=(),
    preprocessing=READ,
    weights=File(path="weights.safetensors", size=1, sha256="0" * 64),
    step=1,
)
NOW = datetime(2024, 1, 1, tzinfo=UTC)
ENCODER = Encoder(MANIFEST, frozenset({"key"}))

numbers = st.none() | st.floats(allow_infinity=False) | st.integers(-(2**70), 2**70)
words = st.none() | st.sampled_from(["x", "y", "ü", "never", ""]) | st.text(max_size=3)
rows = st.lists(st.tuples(numbers, numbers, numbers, words), min_size=1, max_size=5)


@given(rows)
def test_the_bits_are_those_of_a_table(given_rows: list[tuple[object, ...]]) -> None:
    columns = {name: [row[n] for row in given_rows] for n, name in enumerate("abcw")}
    typed = {
        name: pl.Series(name, [None if v is None else float(v) for v in values], pl.Float64)
        if name != "w"
        else pl.Series(name, values, pl.String)
        for name, values in columns.items()
    }
    frame = pl.DataFrame(typed).with_columns(pl.col(pl.Float64).fill_nan(None))
    numeric, categorical = encode_rows(frame, READ)

    found = ENCODER.encode(columns, len(given_rows))

    assert found.numeric.dtype == np.float32
    assert found.categorical.dtype == np.int32
    assert found.numeric.tobytes() == numeric.tobytes()
    assert found.categorical.tobytes() == categorical.tobytes()


def test_a_feature_that_is_no_number_is_to_the_server_what_it_was_in_training() -> None:
    numbers = {"a": [math.nan], "b": [1.0], "c": [math.nan]}
    features = FeaturesSpec(
        function="f.py:b", key=("k",), decision_at="at", numeric=("a", "b", "c"), categorical=("w",)
    )
    made = pl.DataFrame({**numbers, "k": [1], "at": [NOW], "w": ["x"], "y": [True]})
    table = check_features(made, features, LabelSpec(column="y", task="binary"))
    learned, _ = encode_rows(table, READ)
    assert ENCODER.encode({**numbers, "w": ["x"]}, 1).numeric.tobytes() == learned.tobytes()


def test_columns_that_the_model_does_not_read_may_come_along() -> None:
    row = {"a": [1.0], "b": [2], "c": [None], "w": ["x"]}
    with_key = ENCODER.encode({"key": [7], **row}, 1)
    assert with_key.numeric.tobytes() == ENCODER.encode(row, 1).numeric.tobytes()


def test_true_and_false_are_1_and_0_where_a_source_declares_them() -> None:
    flags = Encoder(MANIFEST, frozenset(), frozenset({"b"}))
    rest = {"a": [1.0] * 3, "c": [None] * 3, "w": ["x"] * 3}
    given = flags.encode({**rest, "b": [True, False, None]}, 3)
    assert (
        given.numeric.tobytes() == ENCODER.encode({**rest, "b": [1, 0, None]}, 3).numeric.tobytes()
    )
    with pytest.raises(RowsRefused, match="column 'a': «True» is not float64"):
        flags.encode({**rest, "b": [1] * 3, "a": [True] * 3}, 3)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"a": ["1.5"]}, "column 'a': «'1.5'» is not float64"),
        (
            {"a": [True]},
            "column 'a': «True» is not float64; float64 is a finite number, such as 3.14, so true"
            " is 1 and false is 0",
        ),
        ({"b": [math.inf]}, "column 'b'"),
        ({"w": [3]}, "column 'w': «3» is not string"),
        ({"other": [1]}, "column «'other'» is there but not declared"),
        (
            {"other": [1]},
            "\nSend a value, or null, for each feature: a, b, c, w.\nml-assets predict",
        ),
        ({"c": None}, "column 'c' is declared but not there"),
        ({"a": [10**400]}, "column 'a'"),
    ],
)
def test_what_is_not_of_its_type_is_refused_with_the_column(
    change: dict[str, list[object] | None], said: str
) -> None:
    row = {"a": [1.0], "b": [2], "c": [None], "w": ["x"], **change}
    with pytest.raises(RowsRefused) as refused:
        ENCODER.encode({name: values for name, values in row.items() if values is not None}, 1)
    assert said in str(refused.value)
