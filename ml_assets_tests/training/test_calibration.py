"""Probabilities that weights, draws or a focal loss moved: the known undone, the rest fitted."""

from pathlib import Path
from typing import Any
from weakref import ReferenceType, ref

import numpy as np
import polars as pl
import pytest
import torch

from ml_assets.spec.training import Task, TrainingSpec
from ml_assets.spec.training_program import Calibration, ModelManifest, Ref
from ml_assets.training import calibration
from ml_assets.training.calibration import Calibrator, calibrated, expected, fit
from ml_assets.training.events import EventWriter
from ml_assets.training.losses import row_losses, row_weights
from ml_assets.training.rows.arrays import Rows, SplitArrays, open_set
from ml_assets.training.rows.batches import Tensors
from ml_assets.training.rows.oversampling import OversampleIndex
from ml_assets.training.score import score
from ml_assets.training.weights import load_predictor
from ml_assets_tests.training.conftest import FEATURES, LABEL, SPEC, Attempt, Sessions, frame
from ml_assets_tests.worlds.shards import arrays_of, write_shards

NO_SHIFT = Calibration(shift=(0.0, 0.0))
CHANGED: dict[str, TrainingSpec] = {
    "weighted": TrainingSpec(positive_weight=20.0),
    "focal": TrainingSpec(loss="focal", focal_gamma=2.0),
    "both": TrainingSpec(loss="focal", focal_gamma=0.5, positive_weight=5.0),
}


def sigmoid(z: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-z))


def drawn(p: np.ndarray, seed: int = 0) -> np.ndarray:
    """Labels [n] of probabilities [n, classes], binary [n, 1]."""
    draw = np.random.default_rng(seed).random(len(p))
    if p.shape[1] == 1:
        return (draw < p[:, 0]).astype(np.int64)
    return (draw[:, None] > p.cumsum(axis=1)[:, :-1]).sum(axis=1)


def best_logits(rates: list[float], training: TrainingSpec, task: Task) -> np.ndarray:
    """The logits that minimize the training loss where class k has the share ``rates[k]``."""
    binary = task == "binary"
    logits = torch.zeros(1, 1, 1 if binary else len(rates), dtype=torch.float64, requires_grad=True)
    nothing = torch.zeros(len(rates), 0)
    label = torch.arange(len(rates), dtype=torch.float64 if binary else torch.int64)
    rows = Tensors(nothing, nothing.int(), label)
    weights = row_weights(rows, task, training.positive_weight, training.class_weights)
    shares = torch.tensor(rates, dtype=torch.float64) * weights
    gamma = training.focal_gamma if training.loss == "focal" else 0.0
    best = torch.optim.LBFGS([logits], max_iter=200, tolerance_grad=1e-12, tolerance_change=1e-14)

    def loss() -> float:
        best.zero_grad()
        each = row_losses(logits.expand(len(rates), -1, -1), rows, task, gamma)
        total = (each * shares).sum()
        total.backward()
        return float(total.detach())

    best.step(loss)
    return logits.detach().numpy()[0]


@pytest.mark.parametrize("name", CHANGED)
@pytest.mark.parametrize("rate", [0.003, 0.2, 0.7])
def test_what_is_known_of_a_loss_takes_its_optimum_back_to_the_frequency(
    name: str, rate: float
) -> None:
    training = CHANGED[name]
    undo = expected(training, ())
    assert undo is not None
    p = sigmoid(best_logits([1 - rate, rate], training, "binary"))
    assert abs(p[0, 0] - rate) > 0.2 * rate * (1 - rate), "the loss did move it"
    assert calibrated(p, undo)[0, 0] == pytest.approx(rate, rel=1e-4)


@pytest.mark.parametrize("loss", ["log_loss", "focal"])
def test_the_same_holds_for_several_classes(loss: str) -> None:
    training = TrainingSpec.model_validate({"loss": loss, "class_weights": (1.0, 3.0, 20.0)})
    undo, rates = expected(training, ("a", "b", "c")), [0.9, 0.09, 0.01]
    assert undo is not None
    logits = best_logits(rates, training, "multiclass")
    p = np.exp(logits) / np.exp(logits).sum()
    assert p[0, 2] > 0.05
    assert calibrated(p, undo)[0].tolist() == pytest.approx(rates, rel=1e-3)


def test_draws_count_as_a_weight_does() -> None:
    weighted = expected(TrainingSpec(positive_weight=5.0), ())
    again = OversampleIndex(label=1, rows=np.arange(10), draws=40)
    assert expected(TrainingSpec(oversample=0.2), (), (again,)) == weighted


def test_a_plain_loss_leaves_nothing_to_undo() -> None:
    assert expected(TrainingSpec(), ()) is None
    assert expected(TrainingSpec(class_weights=(2.0, 2.0)), ("a", "b")) is None


def test_the_fit_finds_scale_and_shift() -> None:
    z = np.random.default_rng(0).normal(-3, 2, (40_000, 1))
    labels = drawn(sigmoid(0.5 * z - 1.0))
    found = fit(sigmoid(z), labels, NO_SHIFT)
    assert found is not None
    assert found.scale == pytest.approx(0.5, abs=0.03)
    assert found.shift[0] == 0
    assert found.shift[1] == pytest.approx(-1.0, abs=0.1)
    assert found.log_loss is not None and found.log_loss_before is not None
    assert found.log_loss < found.log_loss_before
    assert found.rows == 40_000
    after = calibrated(sigmoid(z), found)
    assert after.mean() == pytest.approx(labels.mean(), rel=1e-3), "the mean is the frequency"
    assert (np.argsort(after[:, 0]) == np.argsort(z[:, 0])).all(), "nothing changes its place"


def test_the_fit_of_several_classes_finds_temperature_and_biases() -> None:
    z = np.random.default_rng(1).normal(0, 2, (40_000, 3))
    true = 0.6 * z + np.array([0.0, -1.0, 0.5])
    p, said = (np.exp(x) / np.exp(x).sum(axis=1, keepdims=True) for x in (true, z))
    found = fit(said, drawn(p), Calibration(shift=(0.0, 0.0, 0.0)))
    assert found is not None
    assert found.scale == pytest.approx(0.6, abs=0.03)
    assert found.shift == pytest.approx((0.0, -1.0, 0.5), abs=0.08)
    assert calibrated(said, found).sum(axis=1) == pytest.approx(np.ones(len(z)))


def test_a_split_that_a_model_separates_has_a_finite_fit() -> None:
    p = np.array([[0.4]] * 20 + [[0.6]] * 20)
    found = fit(p, (p[:, 0] > 0.5).astype(np.int64), NO_SHIFT)
    assert found is not None
    assert 1 < found.scale < 20


def test_few_rows_move_little_from_what_is_known() -> None:
    start = Calibration(shift=(0.0, -np.log(20.0)))
    p = np.full((30, 1), 0.5)
    found = fit(p, np.array([1] + [0] * 29), start)
    assert found is not None
    assert found.shift[1] == pytest.approx(start.shift[1], abs=0.5)


def test_a_model_that_is_worse_than_nothing_is_not_turned_round() -> None:
    z = np.random.default_rng(2).normal(0, 2, (2000, 1))
    assert fit(sigmoid(z), drawn(sigmoid(-z)), NO_SHIFT) is None


@pytest.mark.parametrize("value", [0.0, 1.0])
@pytest.mark.parametrize("gamma", [0.0, 0.5, 2.0])
def test_certainty_stays_a_finite_number(value: float, gamma: float) -> None:
    undo = Calibration(focal_gamma=gamma, shift=(0.0, -3.0))
    assert np.isfinite(calibrated(np.array([[value]]), undo)).all()


# --- at the end of a training ---------------------------------------------------------------------


def manifest_of(attempt: Attempt) -> ModelManifest:
    folder = Path(attempt.result().model.uri)
    return ModelManifest.model_validate_json((folder / "model.json").read_bytes())


@pytest.fixture(scope="module")
def lifted(tmp_path_factory: pytest.TempPathFactory, data: Ref) -> Attempt:
    """Positives weighed twenty times, on two processes."""
    spec = SPEC.model_copy(update={"positive_weight": 20.0})
    attempt = Sessions(tmp_path_factory.mktemp("lifted"), data).attempt("lifted", spec=spec)
    assert attempt.run() == 0
    return attempt


@pytest.mark.daemon
def test_a_lifted_model_holds_its_calibration_and_is_scored_with_it(
    lifted: Attempt, tmp_path: Path
) -> None:
    manifest = manifest_of(lifted)
    found = manifest.calibration
    assert found is not None and found.log_loss is not None and found.log_loss_before is not None
    assert found.rows == 300
    assert found.log_loss < 0.7 * found.log_loss_before
    p = scored(lifted, tmp_path)
    label = arrays_of(lifted.request.data, "validation").label
    loss = -(label * np.log(p) + (1 - label) * np.log(1 - p)).mean()
    assert loss == pytest.approx(found.log_loss, abs=1e-9)
    plain = manifest.model_copy(update={"calibration": None})
    raw = load_predictor(Path(lifted.result().model.uri), plain, 1)
    folder, schema = open_set(lifted.request.data)
    rows = SplitArrays(folder, schema, "validation").whole()
    assert np.array_equal(p, calibrated(raw(rows), found)[:, 0])


@pytest.mark.daemon
def test_the_losses_of_a_lifted_training_are_those_of_frequencies(
    lifted: Attempt, whole: Attempt
) -> None:
    """Uncalibrated they would rise as it learns, and patience would end it at once."""
    lifted_losses, plain = lifted.validation_losses(), whole.validation_losses()
    best = lifted.result()
    assert best.best_step > 10
    assert best.metrics["validation_loss"] < lifted_losses[5]
    assert best.metrics["validation_loss"] == pytest.approx(min(plain.values()), abs=0.05)


def scored(attempt: Attempt, folder: Path) -> np.ndarray:
    """[rows] what the program says of the validation split."""
    request = attempt.score_request(folder)
    score(request, EventWriter(folder / "events.jsonl", "score", 1, rank=0))
    return np.load(folder / "p.npy", allow_pickle=False)[:, 0]


def calibrator(folder: Path, data: Ref, spec: TrainingSpec) -> Calibrator:
    opened, schema = open_set(data)
    events = EventWriter(folder / "events.jsonl", "s", 1, rank=0)
    rows = SplitArrays(opened, schema, "validation")
    return Calibrator(spec, rows, schema.classes, expected(spec, schema.classes), events)


@pytest.mark.parametrize(
    ("training", "fitted"),
    [
        ({}, False),
        ({"recalibrate": True}, True),
        ({"positive_weight": 3.0}, True),
        ({"positive_weight": 3.0, "recalibrate": False}, False),
        ({"oversample": 0.4}, True),
        ({"loss": "focal"}, True),
    ],
)
def test_it_is_fitted_where_something_moved_the_probabilities_or_it_is_asked_for(
    tmp_path: Path, data: Ref, training: dict[str, Any], fitted: bool
) -> None:
    spec = TrainingSpec.model_validate(training)
    found = calibrator(tmp_path, data, spec)(lambda: constant)
    assert (found is not None) == fitted
    assert not (tmp_path / "events.jsonl").exists()


def test_no_more_rows_are_held_than_are_predicted_at_once(
    tmp_path: Path, data: Ref, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(calibration, "_CHUNK", 100)  # of 300 rows
    seen: list[ReferenceType[np.ndarray]] = []
    held: list[int] = []

    def predict(rows: Rows) -> np.ndarray:
        seen.append(ref(rows.numeric))
        held.append(sum(one() is not None for one in seen))
        return constant(rows)

    assert calibrator(tmp_path, data, TrainingSpec(recalibrate=True))(lambda: predict) is not None
    assert held == [1, 1, 1]


def constant(rows: Rows) -> np.ndarray:
    return np.full((len(rows.label), 1), 0.3)


@pytest.mark.parametrize("positives", [0, 9])
def test_a_split_with_too_few_of_a_class_leaves_the_model_as_it_is_aloud(
    tmp_path: Path, positives: int
) -> None:
    few = frame(100, 5).with_columns(pl.int_range(pl.len()).lt(positives).alias("y"))
    splits = {"train": frame(100, 0), "validation": few, "holdout": frame(9, 1)}
    data = write_shards(splits, FEATURES, LABEL, tmp_path / "set")  # pyright: ignore[reportArgumentType]
    spec = TrainingSpec(positive_weight=3.0)
    assert calibrator(tmp_path, data, spec)(lambda: constant) is None
    told = (tmp_path / "events.jsonl").read_text()
    assert (
        "takes 10 validation rows of each class or more, and there are"
        f" {100 - positives} false, {positives} true. Make"
    ) in told
