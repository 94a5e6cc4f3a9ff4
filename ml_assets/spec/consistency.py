"""Checks that loss, weights, baselines and gates of a spec fit its task and each other."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from math import inf, nextafter

from ml_assets.spec.automation import duration_text
from ml_assets.spec.base import Misfit, training_misfit
from ml_assets.spec.forecasts import Forecast, SeasonalNaiveBaseline
from ml_assets.spec.gates import (
    HIGHER_IS_BETTER,
    METRICS_OF,
    REACH,
    AgainstChampion,
    BaselineSpec,
    BeatsBaseline,
    Bound,
    Calibrated,
    Gap,
    GateSpec,
    Latency,
    LeakAlarm,
    Memory,
    MetricName,
    Robustness,
    Slices,
    Throughput,
    ValueBaseline,
)
from ml_assets.spec.texts import TextBaseline
from ml_assets.spec.training import Task, TrainingSpec

CLASSES: tuple[Task, ...] = ("binary", "multiclass")
LOSS_METRIC: Mapping[Task, MetricName] = {
    "binary": "log_loss",
    "multiclass": "log_loss",
    "ranking": "ndcg",
}
"""The metric whose reach the loss of the champion gate has; a squared error has no end."""


@dataclass(frozen=True)
class Declared:
    """Holds what of a spec its gates speak of."""

    task: Task
    baselines: Sequence[BaselineSpec]
    slices: Sequence[str]
    numbers: bool
    """Whether it has numeric features."""
    ahead: timedelta | None = None
    """How long after its decision an outcome is seen; None: in the row itself."""


def baseline_problems(declared: Declared) -> Iterator[Misfit]:
    """Every baseline that has no metric of the task, or the name of another one."""
    names = [one.name for one in declared.baselines]
    measured = METRICS_OF[declared.task]
    for number, baseline in enumerate(declared.baselines):
        at = ("evaluation", "baselines", number)
        if baseline.name in names[:number]:
            said = f"baseline name {baseline.name!r} is used twice: give each its own 'name'"
            yield Misfit((*at, "name"), said)
        for said in (*_forecast(baseline, declared), *_of_texts(baseline, declared)):
            yield Misfit(at, said)
        declares = baseline.metrics if isinstance(baseline, ValueBaseline) else ()
        for metric in (metric for metric in declares if metric not in measured):
            said = (
                f"baseline {baseline.name!r} declares {metric}, which a {declared.task} task"
                f" does not have; it has {', '.join(measured)}"
            )
            yield Misfit((*at, "metrics", metric), said)


def _of_texts(baseline: BaselineSpec, declared: Declared) -> Iterator[str]:
    """What is fitted on columns has nothing to say of texts, and the other way round."""
    texts = declared.task == "language_model"
    if isinstance(baseline, ValueBaseline) or isinstance(baseline, TextBaseline) == texts:
        return
    instead = "uniform, unigram, bigram, gzip" if texts else "constant, group_rate"
    yield f"baseline {baseline.name!r} is not for a {declared.task} task: use {instead}"


def _forecast(baseline: BaselineSpec, declared: Declared) -> Iterator[str]:
    if not isinstance(baseline, Forecast):
        return
    of = f"baseline {baseline.name!r} is for a time series"
    if declared.ahead is None:
        yield f"{of}: say how far ahead the label is, label: {{column: ..., ahead: 6h}}"
    elif declared.task != "regression":
        yield f"{of} for numbers, this label is {declared.task}: remove it"
    elif isinstance(baseline, SeasonalNaiveBaseline) and baseline.season < declared.ahead:
        ahead = duration_text(declared.ahead)
        yield f"{of}: one season before the outcome has to be known, so give {ahead} or more"


def gate_problems(gates: Sequence[GateSpec], declared: Declared) -> Iterator[Misfit]:
    """Every gate that cannot be decided on, with what to change."""
    names = [gate.name for gate in gates]
    for number, gate in enumerate(gates):
        at = ("gates", number)
        if gate.name in names[:number]:
            yield Misfit((*at, "name"), f"gate name {gate.name!r} is used twice")
        for rule in (_metric, _baseline, _bound, _reach, _columns, _calibration, _shift):
            yield from (Misfit((*at, *path), said) for path, said in rule(gate, declared))
    yield from _past_the_alarm(gates)
    if all(map(_only_records, gates)):
        said = "no gate can refuse a model: give one a bound, or add {kind: champion}"
        yield Misfit(("gates",), said)


def _only_records(gate: GateSpec) -> bool:
    match gate:
        case (
            Latency(at_most_ms=None, at_most_p99_ms=None)
            | Throughput(at_least_rows_per_second=None)
            | Memory(at_most_mb=None)
        ):
            return True
        case _:
            return False


_Found = Iterator[tuple[tuple[str, ...], str]]


def _metric(gate: GateSpec, declared: Declared) -> _Found:
    metric, measured = getattr(gate, "metric", None), METRICS_OF[declared.task]
    if metric is not None and metric not in measured:
        yield (
            ("metric",),
            f"gate {gate.name!r} asks for metric {metric!r}, which a {declared.task} task"
            f" does not have; it has {', '.join(measured)}",
        )
    if metric == "skill" and declared.task == "regression" and declared.ahead is None:
        yield ("metric",), "skill is against persistence, which takes a label with 'ahead'"


def _baseline(gate: GateSpec, declared: Declared) -> _Found:
    if not isinstance(gate, BeatsBaseline):
        return
    known = {one.name: one for one in declared.baselines}
    baseline = known.get(gate.baseline)
    if baseline is None:
        yield (
            ("baseline",),
            f"gate {gate.name!r} names baseline {gate.baseline!r};"
            f" evaluation.baselines has {sorted(known)}",
        )
    if isinstance(baseline, ValueBaseline) and gate.metric not in baseline.metrics:
        yield (
            ("metric",),
            f"gate {gate.name!r} asks for the {gate.metric} of baseline {gate.baseline!r}, which"
            f" declares {', '.join(baseline.metrics)}: declare it there, or ask for one of these",
        )


def _bound(gate: GateSpec, declared: Declared) -> _Found:
    if not isinstance(gate, Bound):
        return
    if gate.at_least is None and gate.at_most is None:
        yield (), f"gate {gate.name!r} needs 'at_least' or 'at_most'"
    elif gate.at_least is not None and gate.at_most is not None and gate.at_least > gate.at_most:
        yield (
            ("at_least",),
            f"gate {gate.name!r} asks for at least {gate.at_least:g} and at most {gate.at_most:g}, "
            "which no model meets: exchange them, or leave one out",
        )


def _reach(gate: GateSpec, declared: Declared) -> _Found:
    """A bound that every model meets, or none, decides nothing."""
    for name, low, value, high in _limits(gate, declared):
        if not low < value < high:
            yield (
                (name,),
                f"gate {gate.name!r} has {name}: {value:g}, which decides nothing: every model "
                f"passes, or every model fails. Give a number between {_rounded(low)} and "
                f"{_rounded(high)}",
            )


def _past_the_alarm(gates: Sequence[GateSpec]) -> Iterator[Misfit]:
    """A bound that only models meet which a leak alarm refuses."""
    alarms = {gate.metric: gate for gate in gates if isinstance(gate, LeakAlarm)}
    for number, gate in enumerate(gates):
        if not isinstance(gate, Bound) or (alarm := alarms.get(gate.metric)) is None:
            continue
        higher = HIGHER_IS_BETTER[gate.metric]
        name, value = ("at_least", gate.at_least) if higher else ("at_most", gate.at_most)
        if value is not None and (value >= alarm.bound if higher else value <= alarm.bound):
            said = (
                f"gate {gate.name!r} has {name}: {value:g}, and {alarm.name!r} refuses every model "
                f"that meets it, by its bound of {alarm.bound:g}: move one of the two"
            )
            yield Misfit(("gates", number, name), said)


def _rounded(limit: float) -> str:
    """A limit as a person writes it: the number next to 0 is 0."""
    return f"{round(limit, 9) + 0.0:g}"


def _limits(gate: GateSpec, declared: Declared) -> Iterator[tuple[str, float, float, float]]:
    """(field, the greatest value that is too small, value, the least that is too large)."""
    match gate:
        case Bound() | Slices() if gate.metric is not None:
            low, high = REACH[gate.metric]
            if gate.at_least is not None:
                yield "at_least", low, gate.at_least, nextafter(high, inf)
            if gate.at_most is not None:
                yield "at_most", nextafter(low, -inf), gate.at_most, high
        case Gap() if gate.metric is not None:
            low, high = REACH[gate.metric]
            yield "at_most", 0.0, gate.at_most, high - low
        case Calibrated(measure="ece"):
            low, high = REACH["ece"]
            yield "at_most", low, gate.at_most, high
        case LeakAlarm():
            low, high = REACH[gate.metric]
            if HIGHER_IS_BETTER[gate.metric]:
                yield "bound", low, gate.bound, nextafter(high, inf)
            else:
                yield "bound", nextafter(low, -inf), gate.bound, high
        case BeatsBaseline():
            low, high = REACH[gate.metric]
            yield "margin", low - high, gate.margin, high - low
        case AgainstChampion():
            limit = _farthest(gate, declared.task)
            yield "margin", -inf, gate.margin, limit
            if gate.min_effect is not None:
                yield "min_effect", 0.0, gate.min_effect, nextafter(limit, inf)
        case _:
            return


def _farthest(gate: AgainstChampion, task: Task) -> float:
    """What no model is worse by (``superior``: better by); a squared error has a unit, no end."""
    metric = gate.metric or LOSS_METRIC.get(task)
    if metric is None:
        return inf
    low, high = REACH[metric]
    if not gate.relative:
        return high - low
    falls = HIGHER_IS_BETTER[metric] == (gate.rule == "non_inferior")
    return 1.0 if falls else inf


def _columns(gate: GateSpec, declared: Declared) -> _Found:
    match gate:
        case Slices():
            field, asked = "columns", gate.columns
        case Gap():
            field, asked = "column", (gate.column,)
        case _:
            return
    unknown = [column for column in asked if column not in declared.slices]
    if unknown:
        yield (
            (field,),
            f"gate {gate.name!r} asks for {', '.join(unknown)}; evaluation.slices has"
            f" {list(declared.slices)}: add it there",
        )


def _calibration(gate: GateSpec, declared: Declared) -> _Found:
    if isinstance(gate, Calibrated) and declared.task not in CLASSES:
        said = f"gate {gate.name!r} is about probabilities, which a {declared.task} task"
        yield (), f"{said} predicts no probabilities: remove the gate"


def _shift(gate: GateSpec, declared: Declared) -> _Found:
    if isinstance(gate, Robustness) and declared.task == "language_model":
        yield (), f"gate {gate.name!r} alters columns, and a text has only one: remove it"
        return
    if isinstance(gate, Robustness) and gate.shift is not None and not declared.numbers:
        yield (
            ("shift",),
            f"gate {gate.name!r} shifts numbers, and features.numeric is empty: set shift to null",
        )


def objective_problems(
    training: TrainingSpec, task: Task, classes: Sequence[str]
) -> Iterator[Misfit]:
    """Yield what does not go together, each with what to set instead.

    Args:
        classes: of a multiclass label, else empty.
    """
    yield from _weights(training, task, classes)
    yield from _draws(training, task, classes)
    if task not in CLASSES and training.loss == "focal":
        yield training_misfit("loss", f"focal is for classes, this label is {task}: remove it")
    if task not in CLASSES and training.recalibrate:
        said = f"{task} predicts no probabilities, so there is nothing to calibrate: remove it"
        yield training_misfit("recalibrate", said)
    default = type(training).model_fields["focal_gamma"].default
    if training.loss != "focal" and training.focal_gamma != default:
        said = "it belongs to the focal loss: set training.loss: focal, or remove it"
        yield training_misfit("focal_gamma", said)


def distill_problems(training: TrainingSpec, task: Task) -> Iterator[Misfit]:
    """Yield where a teacher has nothing to say, and what to set instead."""
    if training.distill is None:
        return
    if task == "language_model":
        said = "a language model gives the nats of a text, not a distribution to learn from:"
        yield training_misfit("distill", f"{said} set training.init_from: release instead")
    if task == "ranking":
        said = "a score gives only the order within a query, so two models have no targets in"
        yield training_misfit("distill", f"{said} common: set training.init_from: release instead")
    default = type(training.distill).model_fields["temperature"].default
    if task == "regression" and training.distill.temperature != default:
        said = "temperature softens probabilities, which a number does not have: remove temperature"
        yield training_misfit("distill", said)


def row_problems(training: TrainingSpec, task: Task, numeric: Sequence[str]) -> Iterator[Misfit]:
    """Yield what a step cannot do to rows of this kind.

    Args:
        numeric: the numeric features.
    """
    changes, turn = training.augmentation, training.curriculum
    if task == "language_model":
        if training.ensemble:
            said = "texts of several models cannot be averaged: remove it"
            yield training_misfit("ensemble", said)
        said = "it changes and weighs rows of columns, and a window has tokens: remove it"
        for name in ("augmentation", "curriculum"):
            if getattr(training, name) is not None:
                yield training_misfit(name, said)
        return
    if changes and changes.mixup and task == "ranking":
        said = "mixup: a row of one query would be half of another one's: remove mixup"
        yield training_misfit("augmentation", said)
    if changes and changes.noise and not numeric:
        yield training_misfit(
            "augmentation", "noise is added to numbers, and features.numeric is empty: remove it"
        )
    if turn and task == "ranking":
        said = "a row is weighed only by its share of its query: remove it"
        yield training_misfit("curriculum", said)
    if turn and turn.column not in numeric:
        known = ", ".join(numeric) or "none"
        said = f"column {turn.column!r} is not in features.numeric ({known}): name one of these"
        yield training_misfit("curriculum", said)


def _weights(training: TrainingSpec, task: Task, classes: Sequence[str]) -> Iterator[Misfit]:
    weighed, given = training.positive_weight != 1, len(training.class_weights)
    if weighed and task != "binary":
        instead = "set training.class_weights" if task == "multiclass" else "remove it"
        said = f"training.positive_weight is for a binary label, this one is {task}: {instead}"
        yield Misfit(("training", "positive_weight"), said)
    if given and task != "multiclass":
        instead = "set training.positive_weight" if task == "binary" else "remove it"
        said = f"it is for a multiclass label, this one is {task}: {instead}"
        yield training_misfit("class_weights", said)
    elif given and given != len(classes):
        said = (
            f"it has {given} weights, label.classes has {len(classes)}: give one for each of"
            f" {list(classes)}, in this order"
        )
        yield training_misfit("class_weights", said)


def _draws(training: TrainingSpec, task: Task, classes: Sequence[str]) -> Iterator[Misfit]:
    share = training.oversample
    if share is None:
        return
    if task not in CLASSES:
        yield training_misfit("oversample", f"it is for classes, this label is {task}: remove it")
        return
    number = len(classes) if task == "multiclass" else 2
    if share * number > 1:
        said = (
            f"each of {number} classes cannot be at least {share:g} of the draws: set at most"
            f" {1 / number:.3g}"
        )
        yield training_misfit("oversample", said)
    if training.order == "blocks":
        said = (
            "rows that are drawn again can be anywhere, so order: blocks would read the whole "
            "set: use weights, or order: rows"
        )
        yield training_misfit("oversample", said)
    weights = "positive_weight" if task == "binary" else "class_weights"
    if training.positive_weight != 1 or training.class_weights:
        said = f"with training.{weights} a rare class is lifted twice: keep one of the two"
        yield training_misfit("oversample", said)
