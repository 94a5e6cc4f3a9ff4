"""An ensemble through the command line: killed, trained, gated and released as one, and proved."""

import re
import signal
from pathlib import Path

import numpy as np
import polars as pl
import pytest
import torch

from ml_assets.assets.released_model.predict import open_release
from ml_assets.records.load_release import held_manifest
from ml_assets.spec.training_program import ModelManifest
from ml_assets.training.models.families import predictions
from ml_assets.training.rows.arrays import Rows
from ml_assets.training.rows.batches import tensors as tensors_of
from ml_assets.training.weights import held_tensors, load_predictor, networks_of
from ml_assets_tests.extras.serving.serving import serving
from ml_assets_tests.worlds import irises
from ml_assets_tests.worlds.world import World

pytestmark = pytest.mark.daemon


def plant(root: Path, ensemble: str) -> World:
    world = World(root)
    spec = irises.SPEC.replace("epochs: 30", f"epochs: 30\n    ensemble: {ensemble}")
    irises.plant(world.pipelines, world.sources)
    (world.pipelines / "irises" / "defs.yaml").write_text(spec)
    return world


def networks(world: World) -> int:
    model = world.status("irises")["release"]["version"]
    return held_manifest(world.root / "state" / "objects" / "models" / model, model).ensemble


@pytest.mark.parametrize("ensemble", ["{checkpoints: 2}", "{seeds: 2}"])
def test_it_is_released_as_one_and_proved(tmp_path: Path, ensemble: str) -> None:
    world = plant(tmp_path, ensemble)
    said = world.cli("run", "irises", "--verbose")
    assert ("seed 1 of an ensemble of 2 is trained" in said) == ("seeds" in ensemble)
    assert networks(world) == 2
    sessions = world.root / "state" / "objects" / "sessions"
    trained = sorted(one.name for one in sessions.glob("irises-train-*"))
    assert len(trained) == (2 if "seeds" in ensemble else 1)
    world.cli("run", "irises")
    assert sorted(one.name for one in sessions.glob("irises-train-*")) == trained
    proved = world.cli("release", "prove", "irises")
    for asset in ("configuration", "trained_model", "evaluation_report", "gates"):
        assert re.search(rf"equal +irises/{asset}", proved), proved


def test_it_predicts_is_exported_and_served_as_the_mean_of_its_networks(tmp_path: Path) -> None:
    world = plant(tmp_path, "{checkpoints: 2}")
    world.cli("run", "irises")
    measures = {"sepal_length": 5.9, "sepal_width": 3.0, "petal_length": 4.9, "petal_width": 1.7}
    said = open_release("irises", world.settings).predict(pl.DataFrame([measures]))
    names = [name for name in said.columns if name not in ("row", "prediction")]

    folder = tmp_path / "handed_on"
    world.cli("release", "export", "irises", "--to", str(folder))
    (file,) = folder.rglob("model.json")
    manifest = ModelManifest.model_validate_json(file.read_bytes())
    together = load_predictor(file.parent, manifest, 1)
    tensors = held_tensors(file.parent, manifest)
    rows = Rows(
        np.array([[0.1, -0.1, 0.6, 0.7]], np.float32), np.zeros((1, 0), np.int32), np.zeros(1)
    )
    assert {name.split(".")[0] for name in tensors} == {"0", "1"}
    each = [one(*inputs(rows), None) for one in networks_of(file.parent, manifest, None)]
    mean = np.mean([predictions(one, "multiclass").detach().numpy() for one in each], axis=0)
    assert np.allclose(together(rows), mean) and not torch.allclose(*each)

    with serving(world, "irises") as served:
        answer = served.ask("/predict", {"rows": [measures]})
    assert answer.status == 200
    found = pl.DataFrame(answer.body["predictions"])
    gap = found.select(names).to_numpy() - said.select(names).to_numpy()
    assert np.abs(gap).max() < 1e-6


def inputs(rows: Rows) -> tuple[torch.Tensor, torch.Tensor]:
    taken = tensors_of(rows)
    return taken.numeric, taken.categorical


def test_killed_twice_it_comes_to_the_same_weights(tmp_path: Path) -> None:
    for name in ("whole", "killed"):
        (tmp_path / name).mkdir()
    whole = plant(tmp_path / "whole", "{seeds: 2}")
    whole.cli("run", "irises")
    killed = plant(tmp_path / "killed", "{seeds: 2}")
    for moment in ("seed 1 of an ensemble of 2", "step 40 of"):
        killed.stopped_at(moment, signal.SIGKILL, "run", "irises", "--verbose")
    killed.cli("run", "irises")
    assert networks(killed) == 2
    versions = {one.status("irises")["release"]["version"] for one in (whole, killed)}
    assert len(versions) == 1
