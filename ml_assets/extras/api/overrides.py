"""Checks a run's overrides against the spec: a run may train longer, and change nothing else.

Sources, features, labels, gates, the family and its size are the spec's, which is reviewed. The
single override (``ops.NAME__train.config.epochs``) is the one in Dagster's own form.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from ml_assets.errors import MlAssetsError, SpecError, did_you_mean
from ml_assets.extras.api.shapes import Problem, RunOverrides
from ml_assets.spec.pipeline import PipelineSpec
from ml_assets.spec.training import without_meaning
from ml_assets.store.pipeline_context import Pipeline

_FREE = "epochs"
_MOST_EPOCHS = 1_000_000


class NotAllowed(MlAssetsError):
    """A request asks for what it may not; every mistake is listed."""

    def __init__(self, problems: list[Problem]) -> None:
        super().__init__("; ".join(f"{one.field}: {one.said}" for one in problems))
        self.problems = problems


def run_config(pipeline: Pipeline, asked: RunOverrides) -> dict[str, Any]:
    """The run configuration that the overrides come to; empty: the spec as it is.

    Raises:
        NotAllowed: one is unknown, or is not a run's to choose.
    """
    problems = list(_problems(pipeline, asked))
    if problems:
        raise NotAllowed(problems)
    epochs = asked.hyperparams.get(_FREE)
    if epochs is None:
        return {}
    return {"ops": {f"{pipeline.name}__train": {"config": {_FREE: epochs}}}}


def _problems(pipeline: Pipeline, asked: RunOverrides) -> Iterator[Problem]:
    spec = pipeline.spec
    source, family = asked.data_source, spec.model.family
    if source is not None and source not in spec.sources:
        yield Problem(
            field="config.data_source",
            said=f"{spec.name} has no source {source!r}.{did_you_mean(source, spec.sources)} It"
            f" reads {', '.join(spec.sources)}; to read another one, declare it in defs.yaml.",
        )
    if asked.model_type not in (None, family):
        yield Problem(
            field="config.model_type",
            said=f"The model of {spec.name} is {family!r}, not {asked.model_type!r}. Another family"
            " is another spec: change model.family in defs.yaml.",
        )
    yield from _hyperparameters(pipeline, asked.hyperparams)
    known = spec.cluster.model_dump(mode="json")
    yield from _as_the_spec("resources", asked.resources, known, "cluster")


def _hyperparameters(pipeline: Pipeline, asked: Mapping[str, Any]) -> Iterator[Problem]:
    rest = {name: value for name, value in asked.items() if name != _FREE}
    yield from _as_the_spec("hyperparams", rest, _trained_by(pipeline.spec), "model or training")
    if _FREE not in asked:
        return
    epochs = asked[_FREE]
    if type(epochs) is not int or not 1 <= epochs <= _MOST_EPOCHS:
        said = f"epochs is {epochs!r:.80}; expected a whole number from 1 to {_MOST_EPOCHS:,}."
        yield Problem(field="config.hyperparams.epochs", said=said)
        return
    try:
        pipeline.with_epochs(epochs)
    except SpecError as error:
        yield Problem(field="config.hyperparams.epochs", said=str(error))


def _trained_by(spec: PipelineSpec) -> dict[str, Any]:
    """Name -> value of what the spec says of the model and its training."""
    training = spec.training.model_dump(mode="json")
    kept = {name: v for name, v in training.items() if name not in without_meaning(spec.model)}
    return {**kept, **spec.model.model_dump(mode="json")}


def _as_the_spec(
    group: str, asked: Mapping[str, Any], known: Mapping[str, Any], where: str
) -> Iterator[Problem]:
    for name, value in asked.items():
        field = f"config.{group}.{name}"
        if name not in known:
            near = did_you_mean(name, [*known, _FREE] if group == "hyperparams" else known)
            yield Problem(field=field, said=f"There is no such setting.{near}")
        elif value != known[name] or isinstance(value, bool) != isinstance(known[name], bool):
            yield Problem(
                field=field,
                said=f"{name} is {known[name]!r} in the spec; {value!r:.80} was asked for. A run"
                f" may change hyperparams.{_FREE} alone: change {where} in defs.yaml.",
            )
