"""Checks a network against what training requires, on made-up rows, in a minute; and that its
training begins well: a few steps on its newest training set, of which nothing stays."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import polars as pl

from ml_assets.actions.check.spot_machines import world_and_room
from ml_assets.assets.trained_model.training_job import adopt_model, train_job
from ml_assets.assets.training_set.read_split import Part, labelled_rows
from ml_assets.assets.training_set.shards import write_labelled
from ml_assets.errors import DoesNotFit, StorageError
from ml_assets.graph.inputs import require_record
from ml_assets.launch.drill import short_job
from ml_assets.launch.ephemeral_session import ephemeral_launcher
from ml_assets.launch.launcher import SanityJob
from ml_assets.settings import Settings
from ml_assets.spec.load import load_spec
from ml_assets.spec.memory_estimate import footprint, require_fits
from ml_assets.spec.pipeline import LabelSpec, PipelineSpec
from ml_assets.spec.sanity import NetworkSize, SanityCheck
from ml_assets.spec.training import Boosted, Module, TrainingSpec
from ml_assets.spec.training_program import ModelManifest, Ref, Split
from ml_assets.spec.training_program.events import Event, Metrics
from ml_assets.store.objects import read_verified
from ml_assets.store.pipeline_context import Pipeline

_ROWS: dict[Split, int] = {"train": 512, "validation": 64, "holdout": 64}
_WORDS = ("a", "b", "c", "d", "e")
"""The words of each category, for there need not be a training set yet."""
_OF_OWN = 8
"""Rows of a microbatch of a team's network: with fewer its batch norms would be warned of."""
_OF_A_QUERY = 4
_WORDS_OF_A_TEXT = 300


def conformance(folder: Path, settings: Settings) -> tuple[SanityCheck, ...]:
    """The checks of the network that a pipeline declares; none of boosted trees, which it is not.

    Nothing of it stays.

    Raises:
        SpecError: the spec, or the code of the network, is wrong.
        TrainingFailed: the network cannot be built; the message has the line.
    """
    spec = load_spec(folder)
    if isinstance(spec.model, Boosted):
        return ()
    pipeline = Pipeline(spec, folder, settings)
    with ephemeral_launcher(settings, "deep", retries=0, restarts=0) as session:
        shards = session.objects.folder("shards", spec.name)
        splits: dict[Split, list[Part]] = {
            name: [Part(made_up(spec, rows, seed=rows).lazy())] for name, rows in _ROWS.items()
        }
        rows = labelled_rows(splits, spec.label)
        data = write_labelled(rows, spec.features, spec.label, shards).ref
        job = SanityJob(
            spec.name,
            spec.model,
            few_rows(spec.training, _OF_OWN if isinstance(spec.model, Module) else 2),
            data,
            spec.cluster,
            pipeline.network,
            deep=True,
        )
        found = session.launcher.sanity(job, lambda _: None)
    return (*found.checks, *_memory(spec, settings, found.size))


def _memory(
    spec: PipelineSpec, settings: Settings, size: NetworkSize | None
) -> tuple[SanityCheck, ...]:
    """Whether its training fits the machines of the settings; of ours `check` says so by itself."""
    if size is None:
        return ()
    world, room = world_and_room(spec, settings)
    asked, held = (spec.model, spec.training, world), size.held_numbers
    try:
        require_fits(*asked, size.parameters, room, held=held)
        outcome, needs = "passed", footprint(size.parameters, *asked, held=held, gpus=room.gpus)
        reason = f"A process holds at least {needs.bytes / 1e9:,.3f} GB: {needs.how}."
    except DoesNotFit as error:
        outcome, reason = "failed", str(error)
    check = SanityCheck(
        name="memory", outcome=outcome, value=None, bound=float(room.bytes), reason=reason
    )
    return (check,)


def few_rows(training: TrainingSpec, most: int) -> TrainingSpec:
    """The same training with few rows a microbatch."""
    rows = min(most, training.batch_size // training.microbatches)
    return training.model_copy(update={"batch_size": rows * training.microbatches, "accumulate": 1})


def made_up(spec: PipelineSpec, rows: int, seed: int) -> pl.DataFrame:
    """Feature rows of the spec's columns, drawn at random; every number has a null now and then.

    Columns have them in different rows: rows without any number would be equal, and two of them in
    one microbatch have no variance.
    """
    draw = np.random.default_rng(seed)
    features, label = spec.features, spec.label
    columns: dict[str, object] = {name: np.arange(rows) for name in features.key}
    columns |= {
        name: pl.Series(draw.normal(size=rows)).scatter(range(place % 10, rows, 10), None)
        for place, name in enumerate(features.numeric)
    }
    columns |= {name: draw.choice(_WORDS, rows) for name in features.categorical}
    columns[features.decision_at] = [datetime(2000, 1, 1, tzinfo=UTC)] * rows
    if label.query:
        columns[label.query] = np.arange(rows) // _OF_A_QUERY
    if features.tokens:
        texts = [" ".join(draw.choice(_WORDS, _WORDS_OF_A_TEXT)) for _ in range(rows)]
        columns |= {features.tokens.column: texts, label.column: [len(text) for text in texts]}
    else:
        columns[label.column] = _labels(label, rows, draw)
    return pl.DataFrame(columns)


def _labels(label: LabelSpec, rows: int, draw: np.random.Generator) -> object:
    match label.task:
        case "binary":
            return draw.random(rows) < 0.3
        case "multiclass":
            return draw.choice(label.classes, rows)
        case "regression":
            return draw.normal(size=rows)
        case "ranking":
            return draw.integers(0, 3, rows)


_STILL, _ROSE = 0.002, 1.5
"""Losses that stay within this share of the first, or end so far above it, do not converge. The
rows are those of the validation split each time, so there is no chance in it."""


@dataclass(frozen=True)
class FewSteps:
    """The result of a few steps of a training."""

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
            return FewSteps(False, f"{result.step} steps left no complete model: {error}")
    said = converges(losses)
    whole = f"{result.step} steps left a complete model of {held:,} bytes"
    return FewSteps(not said, f"{result.step} steps do not converge: {said}" if said else whole)


def converges(losses: Sequence[float]) -> str:
    """Return why validation losses do not converge; empty: they do, or there are too few."""
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
