"""PipelineSpec: everything a team declares about one model, checked once, here."""

import re
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, Literal, Self

from pydantic import (
    AfterValidator,
    AliasChoices,
    Field,
    SerializerFunctionWrapHandler,
    StringConstraints,
    model_serializer,
    model_validator,
)

from ml_assets.errors import counted
from ml_assets.spec.automation import AutomationSpec, duration_text
from ml_assets.spec.base import Frozen, Misfit, Misfits, Name, unset
from ml_assets.spec.cluster import ClusterSpec, cluster_problems
from ml_assets.spec.consistency import (
    Declared,
    baseline_problems,
    distill_problems,
    gate_problems,
    objective_problems,
    row_problems,
)
from ml_assets.spec.drift import DriftSpec, drift_problems
from ml_assets.spec.evaluation import EvaluationSpec, origin_problems, simple_model_problems
from ml_assets.spec.features import FeaturesSpec, OnlineSpec, TableSpec, online_problems
from ml_assets.spec.gates import AgainstChampion, GateSpec, ReleaseSpec
from ml_assets.spec.gpt import Gpt
from ml_assets.spec.label import LabelSpec
from ml_assets.spec.leaks import LeaksSpec, leak_problems
from ml_assets.spec.network_batch import batch_problems
from ml_assets.spec.parallel_consistency import parallel_problems
from ml_assets.spec.partitions import PartitionsSpec, clock_changes
from ml_assets.spec.paths import partition_parts
from ml_assets.spec.rollout import rollout_problems
from ml_assets.spec.sources import EventsSource, FilesSource, SourceSpec
from ml_assets.spec.split import RandomSplit, SplitSpec, TimeSharesSplit, WindowSplit, groups_of
from ml_assets.spec.stages import RAW_PREFIX, STAGES
from ml_assets.spec.training import ModelSpec, Module, TrainingSpec, XGBoost, without_meaning

SCHEMA = 1
_OWNER = r"team:[\w-]+|[A-Za-z0-9_][A-Za-z0-9._%+-]*@[A-Za-z0-9.-]+\.[A-Za-z]{2,7}"


def _known_to_dagster(owner: str) -> str:
    """Accept what ``dg.asset`` takes for an owner."""
    if not re.fullmatch(_OWNER, owner):
        raise ValueError(
            "it must be team:NAME, or an e-mail address that Dagster takes: a-z, digits and"
            " ._%+- before the @, and 2 to 7 letters at its end, as in ann@example.com"
        )
    return owner


class PipelineSpec(Frozen):
    """One model pipeline: from its sources to its release."""

    schema_version: Annotated[Literal[1], Field(validation_alias=AliasChoices("schema"))] = SCHEMA
    name: Name
    description: Annotated[str, StringConstraints(min_length=1)]
    owner: Annotated[str, AfterValidator(_known_to_dagster)]
    """An e-mail address, or ``team:name``."""
    partitions: PartitionsSpec = PartitionsSpec()
    sources: dict[Name, SourceSpec] = Field(min_length=1)
    tables: dict[Name, TableSpec] = Field(default_factory=dict)
    """Assets of the team's own: each is made from sources and from tables above it."""
    features: FeaturesSpec
    online: OnlineSpec | None = Field(default=None, exclude_if=unset)
    """None: no features are served for look-ups."""
    label: LabelSpec
    split: SplitSpec
    leaks: LeaksSpec = LeaksSpec()
    model: ModelSpec
    training: TrainingSpec = TrainingSpec()
    cluster: ClusterSpec = Field(default=ClusterSpec(), exclude_if=lambda v: v == ClusterSpec())
    evaluation: EvaluationSpec = EvaluationSpec()
    gates: tuple[GateSpec, ...] = Field(strict=False, min_length=1)
    release: ReleaseSpec = ReleaseSpec()
    automation: AutomationSpec = AutomationSpec()
    drift: DriftSpec | None = Field(default=None, exclude_if=unset)
    """How new periods are compared with the release's training data; None: they are not."""

    def is_partitioned(self, name: str) -> bool:
        """Return whether a source or a derived table is cut in time."""
        if name in self.sources:
            return self.sources[name].partitioned
        return any(self.is_partitioned(read) for read in self.tables[name].reads)

    @model_validator(mode="after")
    def _parts_fit_together(self) -> Self:
        problems = [
            *_partition_problems(self),
            *_table_problems(self),
            *_name_problems(self),
            *_subject_problems(self),
            *_serving_problems(self),
            *_label_problems(self),
            *_ahead_problems(self),
            *_leak_problems(self),
            *_training_problems(self),
            *cluster_problems(self.cluster, self.model, self.training, self.label.task),
            *_evaluation_problems(self),
            *_gate_problems(self),
            *_canary_problems(self),
            *drift_problems(self.drift, self.partitions.cadence, self.features.columns),
        ]
        if problems:
            raise Misfits(problems)
        return self

    @model_serializer(mode="wrap")
    def _without_what_has_no_meaning(self, dump: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """A written spec can be read again: it holds no field that its family refuses."""
        written: dict[str, Any] = dump(self)
        for name in without_meaning(self.model):
            written.get("training", {}).pop(name, None)
        return written


_NAMED: Mapping[str, str] = {"hourly": "YmdH", "daily": "Ymd", "weekly": "Ymd", "monthly": "Ym"}
"""Cadence -> the parts of a moment that tell its partitions apart."""


def _path_problems(spec: PipelineSpec) -> Iterator[Misfit]:
    """Paths of which two partitions would be the same file."""
    needed = _NAMED[spec.partitions.cadence]
    for name, source in spec.sources.items():
        path = source.path if isinstance(source, FilesSource | EventsSource) else ""
        lost = "".join(part for part in needed if part not in partition_parts(path))
        if source.partitioned and not source.versioned and path and lost:
            said = (
                f"sources.{name}.path {path!r} does not tell {spec.partitions.cadence} partitions"
                f" apart: it lacks {', '.join(f'%{part}' for part in lost)}"
            )
            yield Misfit(("sources", name, "path"), said)
        elif source.partitioned and not source.versioned and path and _hour_comes_twice(spec, path):
            said = (
                f"sources.{name}.path {path!r} names one file for the hour that comes twice in"
                f" {spec.partitions.timezone} when the clocks go back: write {{partition}} without"
                " a format, or set partitions.timezone to UTC"
            )
            yield Misfit(("sources", name, "path"), said)


def _hour_comes_twice(spec: PipelineSpec, path: str) -> bool:
    """Whether a path drops the offset by which the keys of such an hour are told apart."""
    if spec.partitions.cadence != "hourly" or "{partition}" in path:
        return False
    calendar, now = spec.partitions, datetime.now(UTC).date()
    first, last = (calendar.start or now).year, (calendar.end or now).year + 1
    return clock_changes(calendar.timezone, first, last)


def _partition_problems(spec: PipelineSpec) -> Iterator[Misfit]:
    if spec.partitions.cadence != "none":
        yield from _path_problems(spec)
        if isinstance(spec.split, TimeSharesSplit):
            said = "a split by time counts partitions where there are any: give train, validation,"
            yield Misfit(("split", "kind"), f"{said} holdout")
        return
    cut = [name for name, source in spec.sources.items() if source.partitioned]
    if cut:
        said = f"sources {cut} are partitioned but partitions.cadence is 'none'"
        yield Misfit(("sources", cut[0], "partitioned"), said)
    if isinstance(spec.split, WindowSplit):
        said = (
            f"split.kind {spec.split.kind!r} counts partitions, and there are none: give shares"
            " ({kind: time, validation: 0.15, holdout: 0.2}), or set partitions"
        )
        yield Misfit(("split", "kind"), said)
    if spec.features.look_back:
        yield Misfit(("features", "look_back"), "features.look_back needs partitions")
    for name, table in spec.tables.items():
        if table.look_back:
            said = f"tables.{name}.look_back needs partitions"
            yield Misfit(("tables", name, "look_back"), said)


def _table_problems(spec: PipelineSpec) -> Iterator[Misfit]:
    known = list(spec.sources)
    for name, table in spec.tables.items():
        if name in spec.sources:
            said = f"tables.{name} has the name of a source: choose another"
            yield Misfit(("tables", name), said)
        unknown = [read for read in table.reads if read not in known]
        if unknown:
            said = f"tables.{name} reads {unknown}; declared before it are {known}"
            yield Misfit(("tables", name, "reads"), said)
        known.append(name)


def _name_problems(spec: PipelineSpec) -> list[Misfit]:
    """The last part of a key is what the lineage shows: two assets would be called the same."""
    raw = {f"{RAW_PREFIX}{name}": f"source {name!r} as it was read" for name in spec.sources}
    taken = {**{stage: "stage of every pipeline" for stage in STAGES}, **raw}
    return [
        Misfit((part, name), f"{part}.{name} has the name of the {taken[name]}: choose another")
        for part, names in (("sources", spec.sources), ("tables", spec.tables))
        for name in names
        if name in taken
    ]


def _subject_problems(spec: PipelineSpec) -> Iterator[Misfit]:
    subject = spec.features.subject
    if subject is None:
        return
    source = spec.sources.get(subject.source)
    if source is None:
        known = sorted(spec.sources)
        said = (
            f"features.subject.source {subject.source!r} is not a source; the sources are {known}"
        )
        yield Misfit(("features", "subject", "source"), said)
        return
    missing = [column for column in spec.features.key if column not in source.columns]
    if missing:
        said = f"features.key {missing} are not columns of the subject {subject.source!r}"
        yield Misfit(("features", "key"), said)
    if spec.partitions.cadence == "none" and subject.time is not None:
        said = "features.subject.time means nothing without partitions: remove it"
        yield Misfit(("features", "subject", "time"), said)
    if spec.partitions.cadence != "none" and source.columns.get(subject.time or "") != "datetime":
        said = (
            f"features.subject.time is {subject.time!r}; it must name the datetime column of"
            f" {subject.source!r} that says which partition a row is in"
        )
        yield Misfit(("features", "subject", "time"), said)


def _serving_problems(spec: PipelineSpec) -> list[Misfit]:
    features, partitioned = spec.features, spec.partitions.cadence != "none"
    columns = (features.key, features.numeric, features.categorical)
    found = online_problems(spec.online, *columns, partitioned=partitioned)
    known = [name for names in columns for name in names]
    return [*found, *rollout_problems(spec.release.rollout, known)]


def _label_problems(spec: PipelineSpec) -> Iterator[Misfit]:
    label = spec.label
    features = {*spec.features.columns}
    if label.column in features:
        said = f"label.column {label.column!r} is also a feature: the model would see the answer"
        yield Misfit(("label", "column"), said)
    if label.column == label.query:
        said = f"label.query {label.query!r} is the label itself: name another column"
        yield Misfit(("label", "query"), said)


SHORTEST: Mapping[str, timedelta] = {
    "hourly": timedelta(hours=1),
    "daily": timedelta(hours=23),
    "weekly": timedelta(days=7, hours=-1),
    "monthly": timedelta(days=28, hours=-1),
}
"""Cadence -> the shortest partition: clocks change."""


def _ahead_problems(spec: PipelineSpec) -> Iterator[Misfit]:
    """What a label from the future needs: a row for each moment, history, a gap in the split."""
    ahead, split = spec.label.ahead, spec.split
    if ahead is None:
        return
    told = duration_text(ahead)
    if spec.features.decision_at not in spec.features.key:
        said = (
            f"label.ahead looks for the row {told} after each, so features.key must hold"
            f" features.decision_at, {spec.features.decision_at!r}"
        )
        yield Misfit(("features", "key"), said)
    if isinstance(split, RandomSplit):
        said = (
            "label.ahead makes a time series, in which later hours reveal earlier ones: "
            "use kind: time"
        )
        yield Misfit(("split", "kind"), said)
    if spec.partitions.cadence == "none":
        if isinstance(split, TimeSharesSplit) and split.gap(ahead) < ahead:
            said = (
                f"split.embargo must be {told} at least: the outcomes of train are seen that late"
            )
            yield Misfit(("split", "embargo"), said)
        return
    partition = SHORTEST[spec.partitions.cadence]
    needed = -(-ahead // partition)
    if spec.features.look_back < needed:
        said = (
            f"label.ahead of {told} reads {counted(needed, 'earlier partition')}: set look_back:"
            f" {needed}"
        )
        yield Misfit(("features", "look_back"), said)
    if isinstance(split, WindowSplit) and split.embargo < needed:
        said = f"outcomes are seen {told} late: set split.embargo to {needed} or more"
        yield Misfit(("split", "embargo"), said)


def _leak_problems(spec: PipelineSpec) -> Iterator[Misfit]:
    features = {*spec.features.columns}
    after_event = {name: source.after_event for name, source in spec.sources.items()}
    return leak_problems(spec.leaks, spec.split, features, spec.label.column, after_event)


def _training_problems(spec: PipelineSpec) -> Iterator[Misfit]:
    refused = sorted(without_meaning(spec.model) & spec.training.model_fields_set)
    why = (
        f"it has no meaning for model.family {spec.model.family!r}, which grows trees in one "
        "process; remove it (model.rounds and model.learning_rate are its own; for rare classes "
        "there are training.positive_weight and training.class_weights)"
    )
    if isinstance(spec.model, Module):
        why = "it has no meaning with a model.loss of your own; remove one of the two"
    ranked = spec.label.task == "ranking"
    if ranked and isinstance(spec.model, Module) and spec.model.loss is not None:
        said = "model.loss is for one row, a ranking's loss is for a whole query: remove model.loss"
        yield Misfit(("model", "loss"), said)
    if ranked and isinstance(spec.model, XGBoost):
        said = (
            "model.family 'xgboost' cannot train a ranking: it would not resume to the same trees;"
            " set model.family to lightgbm, or a network"
        )
        yield Misfit(("model", "family"), said)
    if isinstance(spec.model, Module):
        columns = spec.features.numeric, spec.features.categorical
        yield from batch_problems(spec.model.batch, *columns)
    yield from _language_problems(spec)
    yield from parallel_problems(spec.training, spec.model)
    yield from objective_problems(spec.training, spec.label.task, spec.label.classes)
    yield from distill_problems(spec.training, spec.label.task)
    yield from row_problems(spec.training, spec.label.task, spec.features.numeric)
    yield from (Misfit(("training", name), f"training.{name}: {why}") for name in refused)


def _language_problems(spec: PipelineSpec) -> Iterator[Misfit]:
    """A language model, its task, its tokens: each of the three asks for the other two."""
    model, task = isinstance(spec.model, Gpt), spec.label.task == "language_model"
    texts = spec.features.tokens is not None
    if model == task == texts:
        return
    asked = "label.task language_model, model.family gpt and features.tokens go together"
    if not model:
        yield Misfit(("model", "family"), f"{asked}: this family is {spec.model.family}")
    if not task:
        yield Misfit(("label", "task"), f"{asked}: this task is {spec.label.task}")
    if not texts:
        yield Misfit(("features",), f"{asked}: say which column is the text, tokens: {{column: …}}")


def _evaluation_problems(spec: PipelineSpec) -> Iterator[Misfit]:
    if spec.evaluation.block == "entity" and not groups_of(spec.split):
        said = "evaluation.block 'entity' resamples what split.groups names: name it, or use 'row'"
        yield Misfit(("evaluation", "block"), said)
    yield from simple_model_problems(spec.evaluation)
    yield from origin_problems(spec.evaluation.origins, spec.split, spec.training)


def _gate_problems(spec: PipelineSpec) -> list[Misfit]:
    slices, numbers = spec.evaluation.slices, bool(spec.features.numeric)
    label, baselines = spec.label, spec.evaluation.baselines
    declared = Declared(label.task, baselines, slices, numbers, label.ahead)
    return [*baseline_problems(declared), *gate_problems(spec.gates, declared)]


def _canary_problems(spec: PipelineSpec) -> Iterator[Misfit]:
    canary = spec.release.canary
    if canary == "none":
        return
    if spec.partitions.cadence == "none":
        said = "release.canary waits for the next partition, and there are none: set partitions"
        yield Misfit(("release", "canary"), said)
    elif not isinstance(spec.split, WindowSplit):
        said = (
            "release.canary judges on the partition after the holdout, but this split holds out no"
            " whole partitions: use kind: time with numbers of partitions, or remove the canary"
        )
        yield Misfit(("release", "canary"), said)
    champions = [gate.name for gate in spec.gates if isinstance(gate, AgainstChampion)]
    if canary.gate not in champions:
        said = (
            f"release.canary.gate {canary.gate!r} is not a champion gate; gates has"
            f" {champions or 'none: add {kind: champion}'}"
        )
        yield Misfit(("release", "canary", "gate"), said)
