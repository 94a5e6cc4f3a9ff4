"""Boosted trees through the same program: exact after any interruption, scored, and explained."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from ml_assets.spec.base import canonical_json
from ml_assets.spec.pipeline import LabelSpec
from ml_assets.spec.training import LightGbm, TrainingSpec
from ml_assets.spec.training_program import Ref, ScoreResult, Split
from ml_assets.spec.training_program.events import Checkpoint, Failed
from ml_assets.store.objects import file_digest
from ml_assets.training.boosting.by_lightgbm import draws
from ml_assets_tests.training.conftest import FEATURES, LABEL, Attempt, Sessions, frame
from ml_assets_tests.worlds.shards import arrays_of, shard_of, write_shards

TREES = LightGbm(
    family="lightgbm", rounds=60, num_leaves=7, feature_fraction=0.7, bagging_fraction=0.8
)
SPEC = TrainingSpec(evaluate_every=5, patience=100)


def grown(sessions: Sessions, name: str = "trees", **more) -> Attempt:
    return sessions.attempt(name, **{"model": TREES, "spec": SPEC, "procs": 1, **more})


def program(verb: str, request: Path, **environment: str) -> int:
    command = [sys.executable, "-m", "ml_assets.training", verb, "--request", str(request)]
    env = {**os.environ, **environment}
    return subprocess.run(command, env=env, capture_output=True, timeout=60, check=False).returncode


def score(attempt: Attempt, folder: Path, data: Ref | None = None) -> tuple[int, np.ndarray | None]:
    """The exit code, and the predictions on the validation split."""
    request = attempt.score_request(folder, data)
    (folder / "request.json").write_bytes(canonical_json(request))
    code = program("score", folder / "request.json")
    return code, np.load(folder / "p.npy", allow_pickle=False) if code == 0 else None


def told(attempt: Attempt) -> Failed:
    return next(event for event in attempt.events() if isinstance(event, Failed))


@pytest.fixture(scope="module")
def trees(tmp_path_factory: pytest.TempPathFactory, data: Ref) -> Attempt:
    """Trees that grew with nothing in their way."""
    attempt = grown(Sessions(tmp_path_factory.mktemp("trees"), data))
    assert attempt.run() == 0
    return attempt


def test_trees_learn_and_tell_their_losses_by_round(trees: Attempt) -> None:
    losses = trees.validation_losses()
    assert list(losses) == list(range(5, 61, 5))
    assert trees.result().stopped == "rounds"
    assert trees.result().metrics["validation_loss"] == min(losses.values()) < losses[5]


def test_the_released_files_are_text_and_json(trees: Attempt) -> None:
    folder = Path(trees.request.output.model)
    assert sorted(path.name for path in folder.iterdir()) == ["model.json", "weights.txt"]
    assert json.loads((folder / "model.json").read_text())["model"]["family"] == "lightgbm"
    assert (folder / "weights.txt").read_text().startswith("tree\nversion=")


def test_scores_are_in_the_order_of_the_rows_and_have_the_loss_that_was_told(
    trees: Attempt, tmp_path: Path
) -> None:
    code, p = score(trees, tmp_path)
    assert code == 0
    assert p is not None
    label = arrays_of(trees.request.data, "validation").label
    loss = -(label * np.log(p[:, 0]) + (1 - label) * np.log(1 - p[:, 0])).mean()
    assert p.shape == (300, 1)
    assert p.dtype == np.float64
    assert loss == pytest.approx(trees.result().metrics["validation_loss"], abs=1e-9)
    scored = ScoreResult.model_validate_json((tmp_path / "result.json").read_bytes())
    assert scored.latency_ms > 0


@pytest.mark.parametrize("signal_number", [signal.SIGKILL, signal.SIGTERM])
def test_interrupted_trees_go_on_to_the_same_model(
    sessions: Sessions, trees: Attempt, signal_number: signal.Signals
) -> None:
    first = grown(sessions, model=TREES)
    process = first.start()
    first.wait_for(15)
    os.kill(process.pid, signal_number)
    assert process.wait(30) in {75, -signal.SIGKILL}
    again = grown(sessions, number=2, resume=newest(first))
    assert again.run() == 0
    assert again.result().best_step == trees.result().best_step
    assert again.weights() == trees.weights()
    assert not any(isinstance(e, Checkpoint) and e.step <= 15 for e in again.events())


@pytest.mark.parametrize(
    "more",
    [
        {"bagging_fraction": 0.5},  # LightGBM reads it and the number before it as the same
        {"bagging_fraction": 0.5, "min_child_samples": 14},  # rounds that split no leaf
        {"bagging_fraction": 0.6, "min_child_samples": 18},  # the first one does not
    ],
    ids=["half of the rows", "barren rounds", "a barren first round"],
)
def test_rounds_without_a_tree_are_counted_when_training_goes_on(
    sessions: Sessions, tmp_path: Path, more: dict[str, float]
) -> None:
    splits: dict[Split, pl.LazyFrame] = {
        "train": frame(60, 0),
        "validation": frame(300, 2000),
        "holdout": frame(50, 3000),
    }
    few = write_shards(splits, FEATURES, LABEL, tmp_path / "few")
    model = LightGbm.model_validate({"family": "lightgbm", "rounds": 60, **more})
    every = SPEC.model_copy(update={"checkpoint_every": 1})
    asked = {"model": model, "spec": every, "data": few}
    whole = grown(sessions, "whole", **asked)
    assert whole.run() == 0
    first = grown(sessions, "killed", **asked)
    first.kill_after(20)
    again = grown(sessions, "killed", number=2, resume=newest(first), **asked)
    assert again.run() == 0
    for result in (whole.result(), again.result()):
        assert (result.step, result.stopped) == (60, "rounds")
    assert again.result().best_step == whole.result().best_step
    assert again.weights() == whole.weights()


def test_a_checkpoint_by_the_clock_changes_no_bit(sessions: Sessions, trees: Attempt) -> None:
    clocked = grown(sessions, spec=SPEC.model_copy(update={"checkpoint_minutes": 1e-6}))
    assert clocked.run() == 0
    steps = [event.step for event in clocked.events() if isinstance(event, Checkpoint)]
    assert steps == list(range(1, 61))
    assert clocked.weights() == trees.weights()


def test_trees_stop_when_patience_ends_and_the_best_ones_are_released(sessions: Sessions) -> None:
    model = TREES.model_copy(update={"rounds": 2000, "learning_rate": 0.5})
    attempt = grown(sessions, model=model, spec=SPEC.model_copy(update={"patience": 2}))
    assert attempt.run() == 0
    result = attempt.result()
    assert result.stopped == "patience"
    assert result.step == result.best_step + 2 * SPEC.evaluate_every
    again = grown(sessions, number=2, model=model, resume=newest(attempt))
    assert again.run() == 0


def test_draws_are_a_function_of_the_round_and_neighbours_differ() -> None:
    assert draws(TREES, 3, 17) == draws(TREES, 3, 17) != draws(TREES, 4, 17)
    for number in range(100):
        here, there = draws(TREES, 0, number), draws(TREES, 0, number + 1)
        assert all(here[name] != there[name] for name in here if name != "bagging_freq")


def test_three_classes_with_nulls_and_words_never_seen(sessions: Sessions, tmp_path: Path) -> None:
    classes = ("low", "middle", "high")
    label = LABEL.model_copy(update={"task": "multiclass", "classes": classes})
    places = (
        pl.when(pl.col("x") < -0.5)
        .then(pl.lit("low"))
        .when(pl.col("x") < 0.5)
        .then(pl.lit("middle"))
        .otherwise(pl.lit("high"))
    )
    splits = {
        "train": frame(600, 0).with_columns(y=places),
        "validation": frame(200, 1).with_columns(y=places),
        "holdout": frame(200, 2).with_columns(y=places, c=pl.lit("never seen"), z=None),
    }
    data = write_shards(splits, FEATURES, label, tmp_path / "set")  # pyright: ignore[reportArgumentType]
    attempt = grown(sessions, data=data)
    assert attempt.run() == 0
    code, p = score(attempt, tmp_path, data)
    assert code == 0
    assert p is not None
    assert p.shape == (200, 3)
    assert p.sum(axis=1) == pytest.approx(np.ones(200))
    truth = arrays_of(data, "validation").label
    assert (p.argmax(axis=1) == truth).mean() > 0.95


def test_a_number_is_predicted_in_its_own_unit(sessions: Sessions, tmp_path: Path) -> None:
    label = LABEL.model_copy(update={"task": "regression"})
    rent = 1000 + 300 * pl.col("x")
    data = shards(label, tmp_path, y=rent)
    attempt = grown(sessions, data=data)
    assert attempt.run() == 0
    code, p = score(attempt, tmp_path, data)
    assert code == 0
    assert p is not None
    truth = pl.read_parquet(shard_of(data, "validation") / "rows.parquet")["y"].to_numpy()
    assert np.sqrt(((p[:, 0] - truth) ** 2).mean()) < 0.25 * truth.std()


def test_rows_are_ranked_within_their_query_and_resume_to_the_same_trees(
    sessions: Sessions, tmp_path: Path
) -> None:
    label = LABEL.model_copy(update={"task": "ranking", "query": "q"})
    grade = (pl.col("x") > 0).cast(pl.Int64) + (pl.col("x") > 1).cast(pl.Int64)
    data = shards(label, tmp_path, y=grade, q=pl.col("k") // 10)
    whole = grown(sessions, "ranked", data=data)
    assert whole.run() == 0
    losses = whole.validation_losses()
    assert min(losses.values()) < 0.05
    code, scores = score(whole, tmp_path, data)
    assert code == 0
    assert scores is not None
    rows = pl.read_parquet(shard_of(data, "validation") / "rows.parquet")
    best = (
        rows.with_columns(score=scores[:, 0])
        .group_by("q")
        .agg(pl.col("y").get(pl.col("score").arg_max()) == pl.col("y").max())
    )
    assert best["y"].sum() > 0.9 * len(best)

    first = grown(sessions, "killed", data=data)
    first.kill_after(15)
    again = grown(sessions, "killed", number=2, data=data, resume=newest(first))
    assert again.run() == 0
    assert again.weights() == whole.weights()


def shards(label: LabelSpec, folder: Path, **columns: pl.Expr) -> Ref:
    """A training set of the planted features, with other labels."""
    sizes: dict[Split, tuple[int, int]] = {"train": (600, 0), "validation": (200, 2000)}
    rows: dict[Split, pl.LazyFrame] = {
        name: frame(*size).with_columns(**columns) for name, size in sizes.items()
    }
    return write_shards(rows, FEATURES, label, folder / "set")


@pytest.mark.parametrize(
    ("raised", "remedy"),
    [
        (
            "ImportError('no module named lightgbm')",
            "requirements.lock -e '.[boosting]'",
        ),
        ("OSError('libgomp.so.1: cannot open shared object file')", "libgomp1"),
    ],
)
def test_a_package_or_library_that_is_missing_is_told_before_training(
    sessions: Sessions, tmp_path: Path, raised: str, remedy: str
) -> None:
    planted = tmp_path / "planted"
    planted.mkdir()
    (planted / "lightgbm.py").write_text(f"raise {raised}\n")
    attempt = grown(sessions)
    request = attempt.folder / "request.json"
    request.write_bytes(canonical_json(attempt.request))
    path = os.pathsep.join([str(planted), *sys.path])
    assert program("train", request, PYTHONPATH=path) == 69
    assert remedy in told(attempt).reason
    assert not Path(attempt.request.output.checkpoints).exists()


def test_a_damaged_model_is_not_scored(sessions: Sessions, tmp_path: Path) -> None:
    attempt = grown(sessions, model=TREES.model_copy(update={"rounds": 5}))
    assert attempt.run() == 0
    weights = Path(attempt.request.output.model) / "weights.txt"
    weights.write_text(weights.read_text().replace("leaf_value=", "leaf_value=9"))
    assert score(attempt, tmp_path)[0] == 65


def test_no_torch_is_loaded_for_trees_and_no_lightgbm_for_a_network() -> None:
    loaded = (
        "import importlib, sys; importlib.import_module(sys.argv[1]);"
        "print({'torch', 'lightgbm', 'xgboost'} & set(sys.modules))"
    )

    def engines(module: str) -> str:
        command = [sys.executable, "-c", loaded, f"ml_assets.training.{module}"]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()

    assert engines("boosting.train") == engines("boosting.engines") == engines("score") == "set()"
    assert engines("train") == "{'torch'}"


def newest(attempt: Attempt) -> Ref:
    manifest = sorted((attempt.folder / "checkpoints").glob("*/manifest.json"))[-1]
    return Ref(uri=str(manifest.parent), digest=file_digest(manifest))


def test_trees_weigh_a_rare_class_and_are_calibrated_after(
    sessions: Sessions, tmp_path: Path
) -> None:
    weighed = grown(sessions, "weighed", spec=SPEC.model_copy(update={"positive_weight": 20.0}))
    assert weighed.run() == 0
    losses = weighed.validation_losses()
    assert weighed.result().best_step > 5, "the validation loss is what the trees minimize"
    assert min(losses.values()) < losses[5]
    model = json.loads((Path(weighed.result().model.uri) / "model.json").read_text())
    found = model["calibration"]
    assert found["log_loss"] < 0.7 * found["log_loss_before"]
    code, p = score(weighed, tmp_path)
    assert code == 0 and p is not None
    label = arrays_of(weighed.request.data, "validation").label
    assert p.mean() == pytest.approx(label.mean(), abs=0.01)
