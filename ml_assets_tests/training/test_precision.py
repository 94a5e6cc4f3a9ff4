"""bf16 and fp16 through the program: bitwise resumes, and overflows that are skipped."""

import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from ml_assets.spec.training import TrainingSpec
from ml_assets.spec.training_program import Ref
from ml_assets.spec.training_program.events import Failed, Metrics
from ml_assets.store.objects import file_digest
from ml_assets.training.checkpoints.whole_checkpoints import read_state
from ml_assets_tests.training.conftest import SPEC, Attempt, Sessions

SHORT = SPEC.model_copy(update={"epochs": 2, "keep_last": 100})
OVERFLOWING = {"precision": "fp16", "positive_weight": 1e4}
"""Losses so large that the first scales overflow."""


def resumed(sessions: Sessions, whole: Attempt, step: int, spec: TrainingSpec) -> Attempt:
    """Another attempt of what is left when ``whole`` is killed after a checkpoint."""
    left = sessions.root / "left" / "checkpoints"
    for folder in sorted((whole.folder / "checkpoints").glob("step-*")):
        if folder.name <= f"step-{step:06d}.a1":
            newest = shutil.copytree(folder, left / folder.name)
    ref = Ref(uri=str(newest), digest=file_digest(newest / "manifest.json"))
    procs = whole.request.world.procs
    return sessions.attempt("left", number=2, procs=procs, spec=spec, resume=ref)


def after(attempt: Attempt, step: int) -> dict[int, float]:
    return {at: loss for at, loss in attempt.validation_losses().items() if at > step}


@pytest.mark.daemon
def test_bf16_resumes_to_the_same_bits_under_another_strategy_too(sessions: Sessions) -> None:
    spec = SHORT.model_copy(update={"precision": "bf16", "strategy": "shard"})
    whole = sessions.attempt("whole", spec=spec)
    assert whole.run() == 0
    replicas = spec.model_copy(update={"strategy": "replicate"})
    again = resumed(sessions, whole, 10, replicas)
    assert again.run() == 0
    assert again.validation_losses() == after(whole, 10)
    assert again.weights() == whole.weights()
    exported = load_file(Path(whole.request.output.model) / "weights.safetensors")
    assert {tensor.dtype for tensor in exported.values()} == {torch.float32}


@pytest.mark.daemon
def test_fp16_skips_what_overflows_and_resumes_with_its_scale_to_the_same_bits(
    sessions: Sessions,
) -> None:
    spec = SHORT.model_copy(update=OVERFLOWING)
    whole = sessions.attempt("whole", spec=spec)
    assert whole.run() == 0
    told = [event.metrics for event in whole.events() if isinstance(event, Metrics)]
    skipped = [metrics["skipped_steps"] for metrics in told]
    assert skipped[0] == 5 < skipped[-1] == skipped[-2] < 12, "it found a scale that works"
    assert told[-1]["loss_scale"] == 2.0**16 / 2 ** skipped[-1]
    kept = read_state(whole.folder / "checkpoints" / "step-000005.a1").loss_scale
    assert kept is not None and kept.skipped_in_a_row == 5
    again = resumed(sessions, whole, 5, spec)
    assert again.run() == 0
    assert again.validation_losses() == after(whole, 5)
    assert len(set(after(whole, 5).values())) > 2, "it was trained"
    assert again.weights() == whole.weights()


@pytest.mark.daemon
def test_fp16_that_overflows_at_every_scale_stops_and_says_what_to_set(
    sessions: Sessions,
) -> None:
    hopeless = {**OVERFLOWING, "positive_weight": 1e30, "epochs": 4}
    attempt = sessions.attempt("never", procs=1, spec=SHORT.model_copy(update=hopeless))
    assert attempt.run() == 66
    (failed,) = [event for event in attempt.events() if isinstance(event, Failed)]
    assert "set training.precision to bf16 or fp32" in failed.reason
