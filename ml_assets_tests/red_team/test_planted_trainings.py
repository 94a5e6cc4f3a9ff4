"""Finished trainings that somebody planted: as the model to judge, or as evidence beside it."""

import json
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from ml_assets.assets.evaluation_report.seed_spread import known_spread
from ml_assets.assets.trained_model.training_job import data_ref
from ml_assets.launch.launcher import TrainJob
from ml_assets.launch.session_name import train_session
from ml_assets.spec.base import canonical_json
from ml_assets.spec.training_program import CategoricalColumn, ModelManifest
from ml_assets.store.layout import read_record
from ml_assets.store.objects import describe, file_digest
from ml_assets.training.models.families import build
from ml_assets_tests.red_team.conftest import NAME, SPEC, Scene

SEEDS = SPEC.replace("    - {kind: champion}", "    - {kind: champion, margin: 0.2, seeds: 2}")
WHAT = {
    "a finished session": ("attempts/*/result.json", ""),
    "its checkpoints": ("checkpoints/*/manifest.json", "attempts"),
}
"""What is planted: the files that name the session, and what is left away."""


def session_of(scene: Scene, seed: int, *, evidence: bool) -> Path:
    """The folder of the training by a seed."""
    place = scene.place
    spec, state = place.spec, place.now()
    data = read_record(state.store, state.commit, place.address("training_set"))
    assert data is not None
    training = spec.training.model_copy(update={"seed": seed})
    set_ = data_ref(place, data)
    job = TrainJob(NAME, spec.model, training, set_, cluster=spec.cluster, evidence=evidence)
    return scene.objects.path("sessions", train_session(job))


@pytest.mark.parametrize("what", WHAT)
def test_a_planted_training_by_another_seed_says_nothing_of_their_spread(
    released: Scene, what: str
) -> None:
    """With the model's own weights in its place two seeds would not differ, and the gate would let
    the model through: the difference is small, the spread is not."""
    spec = released.world.pipelines / NAME / "defs.yaml"
    spec.write_text(SEEDS.replace("epochs: 30", "epochs: 29"))
    released.world.cli("run", NAME, "--through", "trained_model")
    first = released.place.spec.training.seed
    own = session_of(released, first, evidence=False)
    names, left_away = WHAT[what]
    for seed in (first, first + 1):
        there = session_of(released, seed, evidence=True)
        assert own.is_dir() and not there.exists()
        shutil.copytree(own, there, ignore=shutil.ignore_patterns(left_away))
        planted = list(there.glob(names))
        assert planted
        for file in planted:
            told = json.loads(file.read_bytes())
            file.write_text(json.dumps({**told, "session": there.name}))
    said = released.world.cli("run", NAME, code=3)
    spread = known_spread(released.place.now())
    assert spread is not None and spread.loss > 0.01, spread
    assert "champion" in said and released.in_production != released.candidate


def test_a_planted_model_that_reads_the_label_is_not_judged(released: Scene) -> None:
    """The rows that are scored have their label beside them: whoever reads it is always right."""
    own = session_of(released, released.place.spec.training.seed, evidence=False)
    spec = released.world.pipelines / NAME / "defs.yaml"
    spec.write_text(SPEC.replace("epochs: 30", "epochs: 28"))
    there = session_of(released, released.place.spec.training.seed, evidence=False)
    shutil.copytree(own, there)
    digest = read_the_label(there / "model")
    [result] = there.glob("attempts/*/result.json")
    told = json.loads(result.read_bytes())
    told["model"]["digest"] = digest
    result.write_text(json.dumps({**told, "session": there.name}))
    said = released.world.cli("run", NAME, code=3)
    assert "reads 'species', which is not a feature of irises" in said
    assert released.in_production != digest


def read_the_label(folder: Path) -> str:
    """Put a network in a model's place that repeats the column of the label; its digest."""
    manifest = ModelManifest.model_validate_json((folder / "model.json").read_bytes())
    label = CategoricalColumn(name="species", vocabulary=manifest.classes)
    reads = manifest.preprocessing.model_copy(update={"categorical": (label,)})
    torch.manual_seed(0)
    network = build(manifest.model, reads, manifest.task, manifest.classes)
    optimizer = torch.optim.Adam(network.parameters(), 0.01)
    for _ in range(200):
        target = torch.randint(0, 3, (64,))
        numeric, codes = torch.randn(64, len(reads.numeric)), (target + 1)[:, None].int()
        logits = network(numeric, codes, None).mean(dim=1)
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(logits, target).backward()
        optimizer.step()
    weights = folder / manifest.weights.path
    save_file({name: t.detach().contiguous() for name, t in network.state_dict().items()}, weights)
    described = describe(folder, [weights.name])[0]
    made = manifest.model_copy(update={"preprocessing": reads, "weights": described})
    (folder / "model.json").write_bytes(canonical_json(made))
    return file_digest(folder / "model.json")
