"""Checks a network against what training requires, on made-up rows, in a minute."""

from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import polars as pl

from ml_assets.actions.check.check import world_and_room
from ml_assets.assets.training_set.shards import write_labelled
from ml_assets.assets.training_set.split_rows import Part, labelled_rows
from ml_assets.errors import DoesNotFit
from ml_assets.launch.ephemeral_session import ephemeral_launcher
from ml_assets.launch.launcher import SanityJob
from ml_assets.settings import Settings
from ml_assets.spec.footprint import footprint, require_fits
from ml_assets.spec.load import load_spec
from ml_assets.spec.pipeline import LabelSpec, PipelineSpec
from ml_assets.spec.program import Split
from ml_assets.spec.sanity import NetworkSize, SanityCheck
from ml_assets.spec.training import Boosted, TrainingSpec
from ml_assets.store.pipeline_context import Pipeline

_ROWS: dict[Split, int] = {"train": 512, "validation": 64, "holdout": 64}
_WORDS = ("a", "b", "c", "d", "e")
"""The words of each category, for there need not be a training set yet."""
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
            few_rows(spec.training),
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


def few_rows(training: TrainingSpec) -> TrainingSpec:
    """The same training with two rows a microbatch."""
    return training.model_copy(update={"batch_size": 2 * training.microbatches, "accumulate": 1})


def made_up(spec: PipelineSpec, rows: int, seed: int) -> pl.DataFrame:
    """Feature rows of the spec's columns, drawn at random; every number has a null now and then."""
    draw = np.random.default_rng(seed)
    features, label = spec.features, spec.label
    columns: dict[str, object] = {name: np.arange(rows) for name in features.key}
    columns |= {
        name: pl.Series(draw.normal(size=rows)).scatter(range(0, rows, 10), None)
        for name in features.numeric
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
