"""XGBoost through the same program: exact after a kill, scored, and refused where it cannot be."""

import json
import os
import signal
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from pydantic import ValidationError

from ml_assets.spec.training import LightGbm, XGBoost
from ml_assets.spec.training_program import Ref, Split
from ml_assets.spec.training_program.exit_codes import EXIT_BAD_REQUEST
from ml_assets.training.boosting.by_lightgbm import LightGbmEngine
from ml_assets.training.boosting.by_xgboost import taken
from ml_assets.training.rows.arrays import open_set
from ml_assets.training.stop import BadRequest
from ml_assets_tests.training.conftest import FEATURES, LABEL, Attempt, Sessions, frame, ranking_set
from ml_assets_tests.training.test_boosting import (
    SPEC,
    newest,
    score,
    shards,
    told,
)
from ml_assets_tests.worlds.shards import arrays_of, shard_of, write_shards

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
    first.wait_for(5)
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


@pytest.mark.daemon
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


@pytest.mark.parametrize("seed", [0, 3])
def test_trees_begin_with_the_share_of_all_rows_whatever_the_first_round_draws(
    sessions: Sessions, tmp_path: Path, seed: int
) -> None:
    """Of 1,000 rows 6 are positive, and the first round takes a third of the rows."""

    def rare(rows: int, first: int, positives: int) -> pl.LazyFrame:
        made = frame(rows, first).collect()
        last = made["x"].fill_null(-99).rank("ordinal") > rows - positives
        return made.with_columns(y=last).lazy()

    splits: dict[Split, pl.LazyFrame] = {
        "train": rare(1000, 0, 6),
        "validation": rare(400, 2000, 8),
        "holdout": rare(20, 3000, 2),
    }
    data = write_shards(splits, FEATURES, LABEL, tmp_path / "rare")
    model = TREES.model_copy(update={"bagging_fraction": 0.3, "learning_rate": 0.3})
    spec = SPEC.model_copy(update={"seed": seed})
    attempt = grown(sessions, model=model, spec=spec, data=data)
    assert attempt.run() == 0, told(attempt)
    assert attempt.result().metrics["validation_loss"] < 0.15


def test_a_round_of_less_than_one_row_is_refused(sessions: Sessions) -> None:
    attempt = grown(sessions, model=TREES.model_copy(update={"bagging_fraction": 1e-5}))
    assert attempt.run() == EXIT_BAD_REQUEST
    assert "is less than one row" in told(attempt).reason


def test_lightgbm_refuses_such_a_round_too(data: Ref) -> None:
    model = LightGbm(family="lightgbm", rounds=5, bagging_fraction=1e-5)
    with pytest.raises(BadRequest, match="is less than one row"):
        LightGbmEngine().grow(model, SPEC, *open_set(data), 0, None, 1, lambda *_: True)


@pytest.mark.daemon
def test_new_checkpoints_are_kept_though_damaged_ones_are_further_on(
    sessions: Sessions, trees: Attempt
) -> None:
    spec = SPEC.model_copy(update={"checkpoint_every": 1, "keep_last": 2, "keep_best": 1})
    first = grown(sessions, spec=spec)
    first.kill_after(20)
    folder = first.folder / "checkpoints"
    newest_two = sorted(folder.glob("step-*/manifest.json"))[-2:]
    damaged = [manifest.parent for manifest in newest_two]
    for one in damaged:
        content = bytearray((one / "trees.ubj").read_bytes())
        content[len(content) // 2] ^= 1
        (one / "trees.ubj").write_bytes(content)
    again = grown(sessions, number=2, spec=spec, resume=newest(first))
    process = again.start()
    again.wait_for(int(damaged[0].name[5:11]))
    process.kill()
    process.wait(30)
    kept = {one.parent.name for one in folder.glob("step-*/manifest.json")}
    assert any(name.endswith(".a2") for name in kept), kept
    last = grown(sessions, number=3, spec=spec, resume=newest(again))
    assert last.run() == 0
    assert last.weights() == trees.weights()
