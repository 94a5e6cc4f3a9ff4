"""XGBoost through the same program: exact after a kill, scored, and refused where it cannot be."""

import json
import os
import signal
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from pydantic import ValidationError

from ml_assets.spec.training import XGBoost
from ml_assets.spec.training_program import Ref
from ml_assets.training.boosting.by_xgboost import taken
from ml_assets_tests.training.conftest import LABEL, Attempt, Sessions, ranking_set
from ml_assets_tests.training.test_boosting import (
    SPEC,
    newest,
    score,
    shards,
    told,
    wait_for_checkpoint,
)
from ml_assets_tests.worlds.shards import arrays_of, shard_of

TREES = XGBoost(family="xgboost", rounds=60, max_depth=3, bagging_fraction=0.8)


def grown(sessions: Sessions, name: str = "trees", **more) -> Attempt:
    return sessions.attempt(name, **{"model": TREES, "spec": SPEC, "procs": 1, **more})


@pytest.fixture(scope="module")
def trees(tmp_path_factory: pytest.TempPathFactory, data: Ref) -> Attempt:
    attempt = grown(Sessions(tmp_path_factory.mktemp("trees"), data))
    assert attempt.run() == 0, told(attempt)
    return attempt


def test_its_files_are_ubjson_and_json_and_score_to_the_loss_that_was_told(
    trees: Attempt, tmp_path: Path
) -> None:
    losses = trees.validation_losses()
    assert list(losses) == list(range(5, 61, 5))
    assert min(losses.values()) < losses[5]
    folder = Path(trees.request.output.model)
    assert sorted(path.name for path in folder.iterdir()) == ["model.json", "weights.ubj"]
    assert json.loads((folder / "model.json").read_text())["model"]["family"] == "xgboost"
    code, p = score(trees, tmp_path)
    assert code == 0
    assert p is not None
    label = arrays_of(trees.request.data, "validation").label
    loss = -(label * np.log(p[:, 0]) + (1 - label) * np.log(1 - p[:, 0])).mean()
    assert loss == pytest.approx(trees.result().metrics["validation_loss"], abs=1e-6)


@pytest.mark.daemon
@pytest.mark.parametrize("signal_number", [signal.SIGKILL, signal.SIGTERM])
def test_an_interrupted_training_ends_in_the_same_bytes(
    sessions: Sessions, trees: Attempt, signal_number: signal.Signals
) -> None:
    slow = SPEC.model_copy(update={"checkpoint_minutes": 1e-9})
    first = grown(sessions, spec=slow)
    process = first.start()
    wait_for_checkpoint(first, 5)
    os.kill(process.pid, signal_number)
    assert process.wait(30) in {75, -signal.SIGKILL}
    again = grown(sessions, number=2, spec=slow, resume=newest(first))
    assert again.run() == 0
    assert again.weights() == trees.weights()
    assert again.validation_losses().items() <= trees.validation_losses().items()


def test_the_rows_of_a_round_are_a_function_of_its_number() -> None:
    one, other = taken(TREES, 3, 17, 1000), taken(TREES, 3, 18, 1000)
    assert (one == taken(TREES, 3, 17, 1000)).all()
    assert (one != other).any()
    assert 0.75 < one.mean() < 0.85


def test_three_classes_and_a_number(sessions: Sessions, tmp_path: Path) -> None:
    classes = ("low", "middle", "high")
    label = LABEL.model_copy(update={"task": "multiclass", "classes": classes})
    low, high = pl.col("x") < -0.5, pl.col("x") > 0.5
    places = pl.when(low).then(pl.lit("low")).when(high).then(pl.lit("high"))
    places = places.otherwise(pl.lit("middle"))
    data = shards(label, tmp_path / "classes", y=places)
    attempt = grown(sessions, "classes", data=data)
    assert attempt.run() == 0, told(attempt)
    code, p = score(attempt, tmp_path, data)
    assert code == 0
    assert p is not None
    truth = arrays_of(data, "validation").label
    assert p.shape == (200, 3)
    assert (p.argmax(axis=1) == truth).mean() > 0.9

    label = LABEL.model_copy(update={"task": "regression"})
    data = shards(label, tmp_path / "number", y=1000 + 300 * pl.col("x"))
    attempt = grown(sessions, "number", data=data)
    assert attempt.run() == 0, told(attempt)
    code, p = score(attempt, tmp_path, data)
    assert code == 0
    assert p is not None
    truth = pl.read_parquet(shard_of(data, "validation") / "rows.parquet")["y"].to_numpy()
    assert np.sqrt(((p[:, 0] - truth) ** 2).mean()) < 0.25 * truth.std()


def test_a_ranking_and_a_damaged_model_are_refused(
    sessions: Sessions, trees: Attempt, tmp_path: Path
) -> None:
    ranked = grown(sessions, "ranked", data=ranking_set(tmp_path / "ranking"))
    assert ranked.run() == 64
    assert "family: lightgbm" in told(ranked).reason
    with pytest.raises(ValidationError):
        XGBoost(family="xgboost", feature_fraction=0.5)  # pyright: ignore[reportCallIssue]
