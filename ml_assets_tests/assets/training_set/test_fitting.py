"""What is fitted a part at a time is to the last bit what is fitted on rows in memory."""

import itertools
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ml_assets.assets.training_set.column_moments import moments
from ml_assets.assets.training_set.fitting import Fitted, fit
from ml_assets.assets.training_set.read_split import Part, SplitRows
from ml_assets.errors import SpecError
from ml_assets.spec.features import FeaturesSpec
from ml_assets.spec.pipeline import LabelSpec
from ml_assets.spec.training import Task

FEATURES = FeaturesSpec(
    function="f.py:b", key=("k",), decision_at="at", numeric=("x", "n", "empty"), categorical=("c",)
)
CUTS = st.lists(st.integers(0, 400), max_size=6)


def rows(count: int, task: Task) -> pl.DataFrame:
    draw = np.random.default_rng(count)
    x = pl.Series(draw.lognormal(3, 2, count)).scatter(range(0, count, 7), float("nan"))
    labels = {
        "binary": draw.random(count) < 0.3,
        "multiclass": draw.choice(["a", "b"], count),
        "regression": draw.normal(1e6, 3.0, count),
        "ranking": draw.integers(0, 3, count),
    }
    return pl.DataFrame(
        {
            "x": x.scatter(range(0, count, 11), None),
            "n": draw.integers(-5, 1000, count),
            "empty": pl.Series([None] * count, dtype=pl.Float64),
            "c": draw.choice(["north", "south", "ost"], count),
            "q": np.arange(count) // 9,
            "y": labels[task],
        }
    )


def cut(frame: pl.DataFrame, cuts: list[int]) -> SplitRows:
    ends = [0, *sorted(min(place, len(frame)) for place in cuts), len(frame)]
    pairs = itertools.pairwise(ends)
    return SplitRows(tuple(Part(frame[first:last].lazy()) for first, last in pairs))


def label_of(task: Task) -> LabelSpec:
    classes = ("a", "b") if task == "multiclass" else ()
    query = "q" if task == "ranking" else None
    return LabelSpec(column="y", task=task, classes=classes, query=query)


@pytest.mark.parametrize("task", ["binary", "multiclass", "regression", "ranking"])
def test_the_numbers_are_those_of_the_same_chunks_in_memory(task: Task, tmp_path: Path) -> None:
    frame = rows(1000, task)
    parts = cut(frame, [130, 131, 800])
    found = fit(parts, FEATURES, label_of(task), tmp_path)
    chunks = pl.concat((part.rows.collect() for part in parts.parts), rechunk=False)
    for column in found.preprocessing.numeric[:2]:
        values = chunks[column.name].drop_nulls().drop_nans()
        assert (column.mean, column.std) == (values.mean(), values.std())
    assert found.preprocessing.numeric[2].model_dump() == {"name": "empty", "mean": 0.0, "std": 1.0}
    assert found.preprocessing.null_flags == ("x", "empty")
    assert found.preprocessing.categorical[0].vocabulary == ("north", "ost", "south")
    _require_label(found, frame["y"], task)
    assert not list(tmp_path.iterdir()), "the files are gone"


def _require_label(found: Fitted, y: pl.Series, task: Task) -> None:
    match task:
        case "binary":
            assert found.label_rate == (float(y.cast(pl.Float32).to_numpy().mean()),)
        case "multiclass":
            assert found.label_rate == ((y == "a").mean(), (y == "b").mean())
        case "regression":
            scale = found.label_scale
            values = y.to_numpy()
            assert scale is not None
            assert (scale.mean, scale.std) == (values.mean(), values.std())
        case "ranking":
            assert found.label_rate == () and found.label_scale is None


@settings(max_examples=30)
@given(CUTS)
def test_moments_do_not_depend_on_the_cuts(cuts: list[int]) -> None:
    frame = rows(400, "binary")
    found = moments(cut(frame, cuts), ["x", "n", "empty"])
    values = frame["x"].fill_nan(None)
    x, n = found["x"], found["n"]
    assert (x.rows, x.nulls, x.count) == (400, frame["x"].null_count(), values.count())
    assert (x.low, x.high) == (values.min(), values.max())
    assert x.mean == pytest.approx(values.mean(), rel=1e-12)
    assert x.deviation == pytest.approx(values.std(), rel=1e-12)
    assert n.missing == 0.0 and found["empty"].missing == 1.0
    assert found["empty"].mean is None and found["empty"].deviation is None


@settings(max_examples=30)
@given(CUTS, st.integers(1, 50))
def test_every_nth_row_does_not_depend_on_the_cuts(cuts: list[int], step: int) -> None:
    frame = rows(400, "binary")
    assert cut(frame, cuts).every(step, ["x", "n"]).equals(frame.select("x", "n")[::step])


@pytest.mark.parametrize(
    ("value", "lengths"),
    [(80.19, (373, 389)), (26.98, (352, 273, 358, 107, 228, 272, 170)), (19.99, (100, 3))],
)
def test_a_constant_has_no_deviation_whatever_the_rounding(
    value: float, lengths: tuple[int, ...], tmp_path: Path
) -> None:
    frame = rows(sum(lengths), "binary").with_columns(x=pl.lit(value))
    fitted = fit(
        cut(frame, [*itertools.accumulate(lengths)]), FEATURES, label_of("binary"), tmp_path
    )
    (x, *_) = fitted.preprocessing.numeric
    assert (x.name, x.std) == ("x", 1.0)
    assert x.mean == pytest.approx(value)


def test_an_infinite_feature_is_refused_by_its_name(tmp_path: Path) -> None:
    frame = rows(100, "binary").with_columns(
        x=pl.when(pl.int_range(pl.len()) == 5).then(float("-inf")).otherwise("x")
    )
    with pytest.raises(SpecError, match=r"The feature 'x' is -inf in a training row"):
        fit(cut(frame, [50]), FEATURES, label_of("binary"), tmp_path)


@pytest.mark.parametrize("huge", [1e200, -1.7e308])
def test_a_feature_too_large_for_a_deviation_is_refused_by_its_name(
    huge: float, tmp_path: Path
) -> None:
    frame = rows(100, "binary").with_columns(
        x=pl.when(pl.int_range(pl.len()) < 5).then(huge).otherwise(1.0)
    )
    with pytest.raises(SpecError, match=r"The feature 'x' goes from .* in the training rows"):
        fit(cut(frame, [50]), FEATURES, label_of("binary"), tmp_path)


@pytest.mark.parametrize("words", [["yes", "no"], ["1", "perhaps"]])
def test_a_binary_label_in_words_is_refused_by_its_name(words: list[str], tmp_path: Path) -> None:
    frame = rows(100, "binary").with_columns(y=pl.Series(words * 50))
    with pytest.raises(SpecError, match=r"The binary label 'y' holds .* expected true and false"):
        fit(cut(frame, [50]), FEATURES, label_of("binary"), tmp_path)
