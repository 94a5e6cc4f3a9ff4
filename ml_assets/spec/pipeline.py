"""PipelineSpec: everything a team declares about one model, checked once, here."""

from datetime import date
from typing import Annotated, Literal, Self

from pydantic import AliasChoices, Field, StringConstraints, field_validator, model_validator

from ml_assets.spec.base import Frozen, Name, Positive
from ml_assets.spec.gates import (
    BaselineSpec,
    BeatsBaseline,
    Bound,
    GateSpec,
    ReleaseSpec,
)
from ml_assets.spec.sources import SourceSpec, inside
from ml_assets.spec.tables import FunctionPath, TableSpec
from ml_assets.spec.training import ModelSpec, Task, TrainingSpec

SCHEMA = 1


class PartitionsSpec(Frozen):
    """How the data stages are cut in time. ``none``: every source is read whole."""

    cadence: Literal["none", "hourly", "daily", "weekly", "monthly"] = "none"
    start: Annotated[date, Field(strict=False)] | None = None
    end: Annotated[date, Field(strict=False)] | None = None
    """Exclusive; None: goes on."""
    timezone: str = "UTC"
    day_offset: Annotated[int, Field(ge=0, le=6)] = 0
    """First day of a week: 0 Sunday, 1 Monday, ..."""

    @model_validator(mode="after")
    def _cadence_needs_a_start(self) -> Self:
        if self.cadence != "none" and self.start is None:
            raise ValueError(f"partitions of cadence {self.cadence!r} need a 'start' date")
        return self

    @field_validator("timezone")
    @classmethod
    def _timezone_exists(cls, value: str) -> str:
        from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

        try:
            ZoneInfo(value)
        except (ZoneInfoNotFoundError, ValueError) as error:
            raise ValueError(f"{value!r} is not an IANA time zone") from error
        return value


class FeaturesSpec(Frozen):
    """The feature function and the columns it must return."""

    function: FunctionPath
    """(Mapping[str, LazyFrame], Window) -> LazyFrame."""
    key: tuple[str, ...] = Field(strict=False, min_length=1)
    decision_at: str
    """UTC datetime column: when the prediction is made. Nothing later may be used."""
    numeric: tuple[str, ...] = Field(default=(), strict=False)
    categorical: tuple[str, ...] = Field(default=(), strict=False)
    look_back: Annotated[int, Field(ge=0)] = 0
    """Earlier partitions that the function reads to make one partition."""

    @field_validator("function")
    @classmethod
    def _function_is_inside(cls, value: str) -> str:
        return inside(value)

    @model_validator(mode="after")
    def _has_columns(self) -> Self:
        columns = [*self.numeric, *self.categorical]
        if not columns:
            raise ValueError("declare at least one 'numeric' or 'categorical' feature")
        twice = sorted({c for c in columns if columns.count(c) > 1})
        if twice:
            raise ValueError(f"features {twice} are declared twice")
        return self


class LabelSpec(Frozen):
    """What is predicted. A null is an outcome that does not exist: not trained on."""

    column: str
    task: Task
    classes: tuple[str, ...] = Field(default=(), strict=False)
    """Multiclass: the labels, in the order of the predictions."""

    @model_validator(mode="after")
    def _classes_match_the_task(self) -> Self:
        if self.task == "multiclass" and len(self.classes) < 2:
            raise ValueError("a multiclass label needs 'classes', at least two of them")
        if self.task == "binary" and self.classes:
            raise ValueError("a binary label is true or false: remove 'classes'")
        return self


class TimeSplit(Frozen):
    """Split by partition, oldest to newest: train, embargo, validation, embargo, holdout."""

    kind: Literal["time"]
    train: Positive
    """Partitions to train on: a window shorter than declared is an error."""
    validation: Positive
    holdout: Positive
    embargo: Annotated[int, Field(ge=0)] = 1
    """Partitions left out on each side of the validation split."""


class RandomSplit(Frozen):
    """Split by a hash of the row's key; only for data without a time order."""

    kind: Literal["random"]
    validation: Annotated[float, Field(gt=0, lt=0.5)] = 0.15
    holdout: Annotated[float, Field(gt=0, lt=0.5)] = 0.2


SplitSpec = Annotated[TimeSplit | RandomSplit, Field(discriminator="kind")]


class EvaluationSpec(Frozen):
    """How a model is judged on the holdout."""

    baselines: tuple[BaselineSpec, ...] = Field(default=(), strict=False)
    slices: tuple[str, ...] = Field(default=(), strict=False)
    """Categorical columns of the feature set to report on separately."""
    bootstrap_samples: Positive = 1000
    block: Literal["row", "day"] = "day"
    """Rows of one day share weather and delays: resample days, not rows."""


class PipelineSpec(Frozen):
    """One model pipeline: from its sources to its release."""

    schema_version: Annotated[Literal[1], Field(validation_alias=AliasChoices("schema"))] = SCHEMA
    name: Name
    description: Annotated[str, StringConstraints(min_length=1)]
    owner: Annotated[str, StringConstraints(pattern=r"^(team:[\w-]+|[^@\s]+@[^@\s]+\.[^@\s]+)$")]
    """An e-mail address, or ``team:name``."""
    partitions: PartitionsSpec = PartitionsSpec()
    sources: dict[Name, SourceSpec] = Field(min_length=1)
    tables: dict[Name, TableSpec] = Field(default_factory=dict)
    """Assets of the team's own: each is made from sources and from tables above it."""
    features: FeaturesSpec
    label: LabelSpec
    split: SplitSpec
    model: ModelSpec
    training: TrainingSpec = TrainingSpec()
    evaluation: EvaluationSpec = EvaluationSpec()
    gates: tuple[GateSpec, ...] = Field(strict=False, min_length=1)
    release: ReleaseSpec = ReleaseSpec()

    @model_validator(mode="after")
    def _parts_fit_together(self) -> Self:
        problems = [
            *_partition_problems(self),
            *_table_problems(self),
            *_label_problems(self),
            *_gate_problems(self),
        ]
        if problems:
            raise ValueError("; ".join(problems))
        return self


def _partition_problems(spec: PipelineSpec) -> list[str]:
    if spec.partitions.cadence != "none":
        return []
    cut = [name for name, source in spec.sources.items() if source.partitioned]
    problems = [f"sources {cut} are partitioned but partitions.cadence is 'none'"] if cut else []
    if spec.split.kind == "time":
        problems.append("split.kind 'time' needs partitions; use 'random', or set partitions")
    if spec.features.look_back:
        problems.append("features.look_back needs partitions")
    problems += [
        f"tables.{n}.look_back needs partitions" for n, t in spec.tables.items() if t.look_back
    ]
    return problems


def _table_problems(spec: PipelineSpec) -> list[str]:
    known = list(spec.sources)
    problems: list[str] = []
    for name, table in spec.tables.items():
        if name in spec.sources:
            problems.append(f"tables.{name} has the name of a source: choose another")
        unknown = [read for read in table.reads if read not in known]
        if unknown:
            problems.append(f"tables.{name} reads {unknown}; declared before it are {known}")
        known.append(name)
    return problems


def _label_problems(spec: PipelineSpec) -> list[str]:
    features = {*spec.features.numeric, *spec.features.categorical}
    if spec.label.column in features:
        return [
            f"label.column {spec.label.column!r} is also a feature: the model would see the answer"
        ]
    return []


def _gate_problems(spec: PipelineSpec) -> list[str]:
    names = [gate.name for gate in spec.gates]
    problems = [
        f"gate name {n!r} is used twice" for n in sorted({n for n in names if names.count(n) > 1})
    ]
    baselines = {baseline.name for baseline in spec.evaluation.baselines}
    for gate in spec.gates:
        if isinstance(gate, BeatsBaseline) and gate.baseline not in baselines:
            problems.append(
                f"gate {gate.name!r} names baseline {gate.baseline!r};"
                f" evaluation.baselines has {sorted(baselines)}"
            )
        if isinstance(gate, Bound) and gate.at_least is None and gate.at_most is None:
            problems.append(f"gate {gate.name!r} needs 'at_least' or 'at_most'")
    return problems
