"""Label suspects are the rows with the highest loss, of every task in which a row has one."""

from collections.abc import Callable
from functools import partial

import numpy as np
import polars as pl
import pytest

from ml_assets.assets.evaluation_report.suspect_labels import KEPT, Scores, has_suspects, suspects
from ml_assets.spec.pipeline import PipelineSpec

Make = Callable[..., PipelineSpec]


@pytest.fixture
def spec_of(spec: PipelineSpec) -> Make:
    """``spec_of(task, key, more of the label)``."""
    return partial(_changed, spec)


def _changed(spec: PipelineSpec, task: str, key: str = "order", **label: object) -> PipelineSpec:
    changed = spec.label.model_copy(update={"task": task, "column": "late", **label})
    features = spec.features.model_copy(update={"key": (key,)})
    return spec.model_copy(update={"label": changed, "features": features})


def scores(labels: list[object], predictions: list[list[float]], first: int = 0) -> Scores:
    orders = range(first, first + len(labels))
    return Scores(pl.DataFrame({"order": orders, "late": labels}), np.array(predictions))


def test_confident_and_wrong_comes_first_whichever_split_it_is_in(spec_of: Make) -> None:
    found = suspects(
        spec_of("binary"),
        {
            "validation": scores([True, False], [[0.9], [0.6]]),
            "holdout": scores([True, False], [[0.01], [0.02]], first=2),
        },
    )
    assert found.columns == ["order", "split", "late", "prediction", "loss"]
    assert found["order"].to_list() == [2, 1, 0, 3]
    assert found["split"].to_list()[0] == "holdout"
    assert found["prediction"].to_list()[0] == 0.01
    assert found["loss"].to_list()[0] == pytest.approx(-np.log(0.01))


def test_of_classes_it_says_which_one_is_likeliest(spec_of: Make) -> None:
    spec = spec_of("multiclass", classes=("a", "b", "c"))
    found = suspects(spec, {"holdout": scores(["a", "b"], [[0.1, 0.8, 0.1], [0.2, 0.7, 0.1]])})
    assert found["prediction"].to_list() == ["b", "b"]
    assert found["order"].to_list() == [0, 1]


def test_of_numbers_it_is_the_squared_error(spec_of: Make) -> None:
    found = suspects(spec_of("regression"), {"holdout": scores([1.0, 5.0], [[2.0], [9.0]])})
    assert found["loss"].to_list() == [16.0, 1.0]


def test_no_more_are_kept_than_somebody_looks_at(spec_of: Make) -> None:
    labels: list[object] = [True] * (KEPT + 50)
    many = scores(labels, [[0.5]] * len(labels))
    assert len(suspects(spec_of("binary"), {"holdout": many})) == KEPT


def test_a_key_that_is_called_like_a_column_of_ours_keeps_its_name(spec_of: Make) -> None:
    rows = pl.DataFrame({"loss": [7], "late": [True]})
    one = {"holdout": Scores(rows, np.array([[0.5]]))}
    found = suspects(spec_of("binary", key="loss"), one)  # pyright: ignore[reportArgumentType]
    assert found.columns == ["loss", "split", "late", "prediction", "loss_"]
    assert found["loss"].to_list() == [7]


def test_a_row_of_a_ranking_has_no_loss_of_its_own(spec_of: Make) -> None:
    assert not has_suspects(spec_of("ranking", query="q"))
    assert has_suspects(spec_of("binary"))
