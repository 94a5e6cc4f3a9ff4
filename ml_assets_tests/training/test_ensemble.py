"""An ensemble of checkpoints is one model: its weights, its predictions, what begins with it."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from ml_assets.spec.ensemble import Ensemble
from ml_assets.spec.training_program import ModelManifest, Ref
from ml_assets.spec.training_program.events import Progress, Warning
from ml_assets.training.model_folder import open_model
from ml_assets.training.models.families import build, predictions
from ml_assets.training.rows.arrays import SplitArrays, open_set
from ml_assets.training.stop import BadData
from ml_assets.training.weights import load_predictor, read_tensors
from ml_assets_tests.training.conftest import MODEL, SPEC, Attempt, Sessions
from ml_assets_tests.training.test_exactness import left_at

THREE = SPEC.model_copy(
    update={
        "epochs": 2,
        "keep_last": 100,
        "ensemble": Ensemble(checkpoints=3),
        "positive_weight": 2.0,
    }
)


@pytest.fixture(scope="module")
def three(tmp_path_factory: pytest.TempPathFactory, data: Ref) -> Attempt:
    attempt = Sessions(tmp_path_factory.mktemp("three"), data).attempt("three", spec=THREE)
    assert attempt.run() == 0
    return attempt


def manifest_of(attempt: Attempt) -> ModelManifest:
    return open_model(attempt.result().model)


def test_its_members_are_the_best_checkpoints_and_it_predicts_their_mean(three: Attempt) -> None:
    manifest = manifest_of(three)
    folder = Path(three.result().model.uri)
    assert manifest.ensemble == 3
    held, _ = read_tensors(folder / "weights.safetensors")
    losses = three.validation_losses()
    best = sorted(losses, key=lambda step: losses[step])[:3]
    assert manifest.step == best[0]
    schema = open_set(three.request.data)[1]
    rows = SplitArrays(open_set(three.request.data)[0], schema, "validation").whole()
    each: list[np.ndarray] = []
    for number, step in enumerate(best):
        checkpoint = Path(three.request.output.checkpoints) / f"step-{step:06d}.a1"
        rounded, _ = read_tensors(checkpoint / "weights.bf16.safetensors")
        own = {n.removeprefix(f"{number}."): t for n, t in held.items() if n[0] == str(number)}
        assert own.keys() == rounded.keys()
        assert all(torch.equal(own[name].bfloat16(), rounded[name]) for name in own)
        network = build(manifest.model, manifest.preprocessing, manifest.task, manifest.classes)
        network.load_state_dict(own)
        with torch.no_grad():
            numeric, categorical = (
                torch.from_numpy(rows.numeric),
                torch.from_numpy(rows.categorical),
            )
            logits = network.eval()(numeric, categorical, None)
        each.append(predictions(logits, manifest.task).numpy())
    predicted = load_predictor(folder, manifest, 1)(rows)
    assert np.allclose(predicted, np.mean(each, axis=0), atol=1e-12)
    assert not np.allclose(predicted, each[0], atol=1e-4)
    assert manifest.calibration is not None  # which is fitted to the whole


def test_it_is_the_same_after_a_kill_and_a_training_begins_with_its_best(
    three: Attempt, sessions: Sessions
) -> None:
    whole = three.weights()
    killed = sessions.attempt("killed", spec=THREE)
    assert killed.run() == 0
    again = sessions.attempt("killed", spec=THREE, number=2, resume=left_at(killed, 10))
    assert again.run() == 0
    assert again.weights() == whole
    more = sessions.attempt("more", procs=1, spec=THREE, init=three.result().model)
    more.run_here()
    said = [event.message for event in more.events() if isinstance(event, Progress)]
    assert any("training begins with the weights of" in one for one in said)


def test_one_that_has_fewer_checkpoints_says_so(sessions: Sessions) -> None:
    few = sessions.attempt("few", procs=1, spec=THREE.model_copy(update={"max_steps": 6}))
    few.run_here()
    assert manifest_of(few).ensemble == 2
    (told,) = [event.message for event in few.events() if isinstance(event, Warning)]
    assert "asks for 3 checkpoints, and 2 were judged" in told


def test_models_of_other_seeds_are_exported_with_its_own_as_one(
    sessions: Sessions,
) -> None:
    def asked(name: str, seed: int, *members: Ref) -> Attempt:
        spec = SPEC.model_copy(update={"epochs": 1, "seed": seed})
        if members:
            spec = spec.model_copy(update={"ensemble": Ensemble(seeds=3)})
        attempt = sessions.attempt(name, procs=1, spec=spec)
        return replace(attempt, request=attempt.request.model_copy(update={"members": members}))

    alone = [asked(f"seed-{seed}", seed) for seed in range(3)]
    for one in alone:
        one.run_here()
    whole = asked("whole", 0, *(one.result().model for one in alone[1:]))
    whole.run_here()
    manifest, folder = manifest_of(whole), Path(whole.result().model.uri)
    assert manifest.ensemble == 3
    held, _ = read_tensors(folder / "weights.safetensors")
    for number, one in enumerate(alone):
        own, _ = read_tensors(Path(one.result().model.uri) / "weights.safetensors")
        assert all(torch.equal(held[f"{number}.{name}"], tensor) for name, tensor in own.items())
    other = sessions.attempt("narrow", procs=1, model=MODEL.model_copy(update={"width": 8}))
    other.run_here()
    with pytest.raises(BadData, match="of another network or other columns"):
        asked("mixed", 0, other.result().model).run_here()
