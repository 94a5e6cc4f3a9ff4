"""Checks that a training begins well: a few steps on the newest training set, of which nothing
stays."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from ml_assets.assets.trained_model.training_job import adopt_model, train_job
from ml_assets.errors import StorageError
from ml_assets.graph.inputs import require_record
from ml_assets.launch.drill import short_job
from ml_assets.launch.ephemeral_session import ephemeral_launcher
from ml_assets.spec.program import ModelManifest, Ref
from ml_assets.spec.program.events import Event, Metrics
from ml_assets.store.objects import read_verified
from ml_assets.store.pipeline_context import Pipeline

_DOES_NOT_CONVERGE = ("plateau:", "divergence:")


_STILL, _ROSE = 0.002, 1.5
"""Losses that stay within this share of the first, or end so far above it, do not converge. The
rows are those of the validation split each time, so there is no chance in it."""


@dataclass(frozen=True)
class FewSteps:
    """What a few steps of a training came to."""

    passed: bool
    reason: str


def train_few_steps(pipeline: Pipeline, steps: int) -> FewSteps:
    """Train a few steps as the spec says, and judge their losses and their model.

    Raises:
        StorageError: there is no training set yet.
        TrainingFailed: a step failed: a loss that is no number, memory that ran out.
    """
    losses: list[float] = []

    def follow(event: Event) -> None:
        if isinstance(event, Metrics) and "validation_loss" in event.metrics:
            losses.append(event.metrics["validation_loss"])

    data = require_record(pipeline.now(), pipeline.address("training_set"))
    job = train_job(pipeline, data, None, {})
    with ephemeral_launcher(pipeline.settings, "steps", retries=0, restarts=0) as session:
        short = short_job(replace(job, data=session.reachable(job.data)), steps)
        result = session.launcher.train(short, follow)
        try:
            held = whole_model(adopt_model(session.objects, result.model))
        except (StorageError, OSError) as error:
            return FewSteps(False, f"{result.step} steps left no whole model: {error}")
    said = converges(losses)
    whole = f"{result.step} steps left a whole model of {held:,} bytes"
    return FewSteps(not said, f"{result.step} steps do not converge: {said}" if said else whole)


def converges(losses: Sequence[float]) -> str:
    """Why validation losses do not converge; empty where they do, or there are too few to tell."""
    if len(losses) < 2:
        return ""
    first, last = losses[0], losses[-1]
    moved = (max(losses) - min(losses)) / max(abs(first), 1e-12)
    if moved < _STILL:
        return (
            f"the validation loss stayed within {moved:.2%} of {first:.4f}. Raise"
            " training.learning_rate tenfold, or train more steps (--steps)."
        )
    if last >= _ROSE * first:
        return (
            f"the validation loss rose from {first:.4f} to {last:.4f}. Lower"
            " training.learning_rate tenfold, or raise training.warmup."
        )
    return ""


def whole_model(model: Ref) -> int:
    """The bytes of a model's weights, which are those that its manifest names.

    Raises:
        StorageError: they are lost, or others.
    """
    folder = Path(model.uri)
    manifest = ModelManifest.model_validate_json((folder / "model.json").read_bytes())
    return len(read_verified(manifest.weights, folder))
