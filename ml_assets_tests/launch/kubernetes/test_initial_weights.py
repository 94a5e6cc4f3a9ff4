"""Weights that a training begins with, where it runs in pods: staged, and the same afterwards."""

import hashlib
from dataclasses import replace
from pathlib import Path

import pytest

from ml_assets.launch.local.launcher import LocalLauncher
from ml_assets.spec.training_program import Ref
from ml_assets_tests.launch.kubernetes.stage import ONE_NODE, weights
from ml_assets_tests.launch.real import named

pytestmark = [pytest.mark.daemon, pytest.mark.timeout(900)]


@pytest.mark.parametrize("given", ["a model", "a file"])
def test_a_training_in_a_pod_begins_with_the_weights_it_was_given(
    stage, undisturbed, tmp_path, given
):
    model = undisturbed[1].model
    file = Path(model.uri) / "weights.safetensors"
    digest = hashlib.sha256(file.read_bytes()).hexdigest()
    init = model if given == "a model" else Ref(uri=str(file), digest=digest)
    job = replace(stage.job(cluster=ONE_NODE, processes=1), init=init, steps=5)
    there = stage.launcher().train(job, stage.events.append)
    told = [event.message for event in named(stage.events, "progress")]
    assert any("begins with the weights" in message for message in told), told
    here = LocalLauncher(tmp_path / "here").train(job, lambda _: None)
    fresh = LocalLauncher(tmp_path / "fresh").train(replace(job, init=None), lambda _: None)
    assert weights(there) == weights(here) != weights(fresh)
    assert stage.left() == []
