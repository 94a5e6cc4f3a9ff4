"""The reference page, from the code's own docstrings: ``python -m ml_assets_tests.reference``."""

import ast
import inspect
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from datetime import date, timedelta
from itertools import pairwise
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import AliasChoices, BaseModel
from pydantic_core import PydanticUndefined

from ml_assets.assets.feature_set import history_features
from ml_assets.reports.wording import TITLES
from ml_assets.spec import (
    augmentation,
    automation,
    cluster,
    drift,
    ensemble,
    evaluation,
    features,
    gates,
    label,
    leaks,
    network_batch,
    parallel,
    partitions,
    pipeline,
    rollout,
    search,
    search_parameter,
    sources,
    split,
    texts,
    training,
)
from ml_assets.spec.automation import duration_text
from ml_assets.spec.window import Window

PAGE = Path(__file__).parent.parent / "docs" / "reference.md"
_HEAD = """# Reference

Every field of a spec and of a `search.yaml`, with its default, the metrics, and what a feature
function is given. Written from the code's docstrings by `python -m ml_assets_tests.reference`, and
held to them by a test.
[Add a pipeline](add-a-pipeline.md) shows them at work.
"""
PARTS: tuple[tuple[str, object], ...] = (
    ("The spec", (pipeline.PipelineSpec,)),
    ("Sources", sources.SourceSpec),
    ("Parts of a source", (sources.Dialect, sources.VolumeSpec, sources.FreshnessSpec)),
    ("Partitions", (partitions.PartitionsSpec,)),
    (
        "Features",
        (
            features.FeaturesSpec,
            features.DecodeSpec,
            features.EngineSpec,
            features.SubjectSpec,
            features.TableSpec,
            texts.TokensSpec,
        ),
    ),
    ("Features online", (features.OnlineSpec,)),
    ("Label", (label.LabelSpec,)),
    ("Split", split.SplitSpec),
    ("Model", training.ModelSpec),
    ("Parts of a model", (network_batch.BatchTensor,)),
    (
        "Training",
        (
            training.TrainingSpec,
            augmentation.Augmentation,
            augmentation.Curriculum,
            parallel.Parallel,
            ensemble.Ensemble,
            ensemble.Distill,
            training.ProfileSpec,
            training.Spot,
        ),
    ),
    ("Evaluation", (evaluation.EvaluationSpec, evaluation.SimpleModel)),
    ("Rolling origin", (evaluation.OriginsSpec,)),
    ("Baselines", gates.BaselineSpec),
    ("Gates", gates.GateSpec),
    (
        "Leak guards",
        (leaks.LeaksSpec, leaks.FutureEvents, leaks.TargetProxy, leaks.SharedRows, leaks.SplitBias),
    ),
    ("Release", (gates.ReleaseSpec, gates.CanarySpec, rollout.RolloutSpec, rollout.AbortSpec)),
    (
        "Automation",
        (
            automation.AutomationSpec,
            automation.RefreshSpec,
            automation.ResumeDrillSpec,
            automation.LandingSpec,
            automation.FreshnessSpec,
        ),
    ),
    ("Cluster", (cluster.ClusterSpec, cluster.Toleration)),
    (
        "Search",
        (
            search.SearchSpec,
            search_parameter.Parameter,
            search.Then,
            search.Prune,
            search.Budget,
            automation.Timed,
        ),
    ),
    ("Drift", (drift.DriftSpec, drift.DriftBounds, drift.SeasonalSpec, drift.RetrainSpec)),
)
_EVERYWHERE: Mapping[str, str] = {
    "kind": "Which of the codes above.",
    "schema": "The version of the spec's format: 1.",
    "name": "The name in reports, checks and messages; unique.",
    "description": "One line for the UI.",
    "sources": "The tables to read, by name.",
    "partitions": "How data is cut by time; without partitions a table is read whole.",
    "features": "The team's function, and which columns the model sees.",
    "label": "The value to predict.",
    "split": "Which rows are for training, which for validation, which for the holdout.",
    "leaks": "The guards against a leak; all are on.",
    "model": "The family, and its size.",
    "training": "How it is trained.",
    "cluster": "The resources of a pod; a laptop ignores them.",
    "evaluation": "The content of the report beside the metrics.",
    "gates": "The gates that a model has to pass for its release.",
    "release": "The stage of a model that passed.",
    "automation": "What runs automatically.",
    "path": "Below the folder or bucket of ML_ASSETS_SOURCES.",
    "table": "The table's name in the database.",
    "within": "The greatest age of the newest data; older data is a warning.",
    "cadence": "The length of a partition.",
    "start": "The first partition; default: the first that is there.",
    "timezone": "The zone in which partitions begin and end.",
    "key": "The columns that identify a row.",
    "numeric": "The numeric columns that the model sees.",
    "categorical": "The categorical columns that the model sees.",
    "source": "The name of the source.",
    "task": "The kind of label: a number, a class, a rank or a text.",
    "validation": "Partitions, or a share of the rows, that decide when training stops.",
    "holdout": "Partitions, or a share of the rows, that only judge the model.",
    "groups": "Columns; rows of one group stay in one part.",
    "width": "Units of each layer.",
    "depth": "Layers.",
    "members": "Networks in one, whose predictions are averaged.",
    "dropout": "The share of units that a step drops.",
    "embedding_limit": "The largest width of an entity embedding.",
    "heads": "Attention heads; they divide the width.",
    "learning_rate": "The highest learning rate.",
    "num_leaves": "Leaves of a tree, at most.",
    "max_depth": "Depth of a tree, at most.",
    "min_child_samples": "Rows of a leaf, at least.",
    "lambda_l2": "L2 penalty of a leaf's value.",
    "max_bin": "The number of bins of a numeric column.",
    "seed": "The seed of all random draws; the same seed gives the same weights.",
    "epochs": "Passes over the training rows, at most.",
    "clip_norm": "The largest norm of a gradient; a larger one is scaled down to it.",
    "keep_last": "The number of newest checkpoints to keep.",
    "keep_best": "The number of checkpoints to keep that are best on validation.",
    "processes": "The processes of a training, torchrun's ranks, on all pods or on this machine.",
    "steps": "The number of steps to record.",
    "baselines": "The baselines to compare the model with; see Baselines.",
    "simple_model": "A model so simple that it would do, if it does as well.",
    "bootstrap_samples": "The number of draws for each interval.",
    "by": "The columns that make the groups.",
    "iterations": "The largest number of trees.",
    "metrics": "Metric and its value.",
    "metric": "The metric that decides; default: the task's loss. See Metrics.",
    "at_least": "Below this it refuses.",
    "at_most": "Above this it refuses.",
    "baseline": "The name of a baseline of `evaluation`.",
    "margin": "The margin, in the metric's unit; see the text above.",
    "rule": "Not shown to be worse by the margin, or shown to be better.",
    "bound": "A better value than this means a leak.",
    "at_most_mb": "The largest size in MB.",
    "at_most_ms": "The longest time in milliseconds; without it the value is only recorded.",
    "at_least_rows_per_second": "The lowest rate; without it the value is only recorded.",
    "if_not_comparable": "What to decide if the champion cannot be scored on these rows.",
    "future_events": "Values that were not known yet.",
    "target_proxy": "A column that is the label by another name.",
    "shared_rows": "The same row in two splits.",
    "split_bias": "Splits that differ in their columns.",
    "severity": "`critical` refuses the rows, `warning` only reports.",
    "to": "The stage of a model that passed every gate.",
    "abort": "When a canary is taken out at once.",
    "refresh": "A schedule that moves the window on and trains a model.",
    "resume_drill": "A schedule that kills a short training and compares the weights.",
    "landing": "A sensor that ingests what has arrived.",
    "freshness": "A sensor that reports late data.",
    "every": "How often.",
    "status": "Whether it is on when it is first loaded; after that the UI's switch counts.",
    "tolerations": "Tolerations, as in Kubernetes.",
    "bounds": "The distance from which a column has drifted.",
    "seasonal": "The same season of earlier years, as a second reference.",
}
"""What a field means that has no text of its own below it."""
_FUNCTIONS = (
    history_features.add_history,
    history_features.lag,
    history_features.trailing,
    history_features.latest,
    history_features.trailing_mean,
)


def page() -> str:
    """The whole page."""
    parts = [_HEAD]
    for title, union in PARTS:
        parts.append(f"## {title}\n")
        parts += [_model(model) for model in members(union)]
    parts += ["## Metrics\n", _metrics(), "## The feature function\n", _window()]
    parts += [_function(one) for one in _FUNCTIONS]
    return "\n".join(parts)


def members(union: object) -> Sequence[type[BaseModel]]:
    if isinstance(union, tuple):
        return union
    return [one for one in flat(union) if isinstance(one, type) and issubclass(one, BaseModel)]


def flat(union: object) -> Iterator[object]:
    inner = get_args(union)
    if not inner:
        yield union
    for one in inner:
        yield from flat(one)


def _model(model: type[BaseModel]) -> str:
    fields = model.model_fields
    kind = fields.get("kind") or fields.get("family")
    tag = get_args(kind.annotation) if kind else ()
    only = tag[0] if len(tag) == 1 else None
    name = f"`{only or _snake(model.__name__.removesuffix('Spec'))}`"
    told = _said(model)
    rows = [
        _row(
            f"`{_written(field, info)}`",
            _takes(info.annotation),
            _default(info),
            _cell(told.get(field) or _EVERYWHERE.get(_written(field, info), "")),
        )
        for field, info in fields.items()
        if only is None or field not in ("kind", "family")
    ]
    table = ["| field | takes | default | |", "|---|---|---|---|", *rows, ""] if rows else []
    return "\n".join([f"### {name}\n", _text(inspect.getdoc(model) or ""), "", *table])


def _written(field: str, info: Any) -> str:
    """A field's name in a spec."""
    alias = info.validation_alias
    return str(alias.choices[0]) if isinstance(alias, AliasChoices) else field


def _row(*cells: str) -> str:
    return f"| {' | '.join(cells)} |"


def _said(model: type[BaseModel]) -> dict[str, str]:
    """Field -> the text below it, of the model and of what it inherits from."""
    found: dict[str, str] = {}
    for cls in reversed(model.__mro__):
        if not (issubclass(cls, BaseModel) and cls.__module__.startswith("ml_assets")):
            continue
        tree = ast.parse(textwrap.dedent(inspect.getsource(cls)))
        body = tree.body[0].body if isinstance(tree.body[0], ast.ClassDef) else []
        for here, below in pairwise(body):
            named = isinstance(here, ast.AnnAssign) and isinstance(here.target, ast.Name)
            said = isinstance(below, ast.Expr) and isinstance(below.value, ast.Constant)
            if named and said and isinstance(below.value.value, str):  # pyright: ignore[reportAttributeAccessIssue]
                found[here.target.id] = inspect.cleandoc(below.value.value)  # pyright: ignore[reportAttributeAccessIssue]
    return found


_NAMES: dict[object, str] = {
    str: "text",
    int: "whole number",
    float: "number",
    bool: "true, false",
    date: "`2024-01-31`",
    timedelta: "`10 days`",
}


def _takes(annotation: Any) -> str:
    """What a field's value may be, in words."""
    origin, inner = get_origin(annotation), get_args(annotation)
    if origin is Literal:
        return ", ".join(f"`{_choice(one)}`" for one in inner)
    if origin in (tuple, Sequence):
        return f"list: {_takes(inner[0])}"
    if origin in (dict, Mapping):
        return f"name: {_takes(inner[-1])}"
    if origin is Annotated:
        return _takes(inner[0])
    if origin in (Union, UnionType):
        return " or ".join(dict.fromkeys(_takes(one) for one in inner if one is not NoneType))
    return _NAMES.get(annotation, "fields")


def _default(info: Any) -> str:
    if info.is_required():
        return "needed"
    value = info.default
    if value is PydanticUndefined or value is None or value == ():
        return ""
    if isinstance(value, BaseModel):
        return "its own defaults"
    if isinstance(value, timedelta):
        value = duration_text(value)
    return f"`{list(value) if isinstance(value, tuple) else value}`"


def _metrics() -> str:
    tasks = {name: [t for t, held in gates.METRICS_OF.items() if name in held] for name in TITLES}
    rows = [
        f"| `{name}` | {shown} | {', '.join(tasks[name])} |"
        f" {'higher' if gates.HIGHER_IS_BETTER[name] else 'lower'} |"  # pyright: ignore[reportArgumentType]
        for name, shown in TITLES.items()
        if tasks[name]
    ]
    return "\n".join(["| metric | | tasks | better |", "|---|---|---|---|", *rows, ""])


def _window() -> str:
    text = inspect.getdoc(Window) or ""
    fields = ", ".join(f"`{name}`" for name in Window.__annotations__)
    said = (
        "`build(tables, window)` gets the published tables by name, lazily, each with its\n"
        "look-back, and returns one row per decision: the key, the time of the decision, the\n"
        "label and every declared feature."
    )
    return f"{said}\n\n### `Window`\n\n{_text(text)} Its fields: {fields}.\n"


def _function(function: Any) -> str:
    signature = str(inspect.signature(function)).replace("'", "").split(" -> ")[0]
    plain = signature.replace("polars.dataframe.frame.", "pl.").replace("collections.abc.", "")
    doc = inspect.getdoc(function) or ""
    return f"### `{function.__name__}`\n\n```text\n{function.__name__}{plain}\n\n{doc}\n```\n"


def _text(doc: str) -> str:
    return doc.replace("``", "`")


def _choice(value: object) -> str:
    """A value in a cell of a table: a bar is escaped, because it would end the cell."""
    return str(value).replace("\t", "\\t").replace("|", "\\|")


def _cell(doc: str) -> str:
    return " ".join(_text(doc).split()).replace("|", "\\|")


def _snake(name: str) -> str:
    return "".join(f"_{one.lower()}" if one.isupper() else one for one in name).lstrip("_")


if __name__ == "__main__":
    PAGE.write_text(page())
