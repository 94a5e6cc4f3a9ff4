"""Whether the baselines and gates of a spec fit its task, each other and its features."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from ml_assets.spec.base import Misfit
from ml_assets.spec.gates import (
    METRICS_OF,
    BaselineSpec,
    BeatsBaseline,
    Bound,
    Calibrated,
    Gap,
    GateSpec,
    Robustness,
    Slices,
    ValueBaseline,
)
from ml_assets.spec.training import Task

CLASSES: tuple[Task, ...] = ("binary", "multiclass")


@dataclass(frozen=True)
class Declared:
    """What of a spec its gates speak of."""

    task: Task
    baselines: Sequence[BaselineSpec]
    slices: Sequence[str]
    numbers: bool
    """Whether it has numeric features."""


def baseline_problems(declared: Declared) -> list[Misfit]:
    """Every baseline that has no metric of the task, or the name of another one."""
    problems: list[Misfit] = []
    names = [one.name for one in declared.baselines]
    measured = METRICS_OF[declared.task]
    for number, baseline in enumerate(declared.baselines):
        at = ("evaluation", "baselines", number)
        if baseline.name in names[:number]:
            said = f"baseline name {baseline.name!r} is used twice: give each a 'name' of its own"
            problems.append(Misfit((*at, "name"), said))
        if isinstance(baseline, ValueBaseline):
            problems += [
                Misfit(
                    (*at, "metrics", metric),
                    f"baseline {baseline.name!r} declares {metric}, which a {declared.task} task"
                    f" does not have; it has {', '.join(measured)}",
                )
                for metric in baseline.metrics
                if metric not in measured
            ]
    return problems


def gate_problems(gates: Sequence[GateSpec], declared: Declared) -> list[Misfit]:
    """Every gate that cannot be decided on, with what to change."""
    problems: list[Misfit] = []
    names = [gate.name for gate in gates]
    for number, gate in enumerate(gates):
        at = ("gates", number)
        if gate.name in names[:number]:
            problems.append(Misfit((*at, "name"), f"gate name {gate.name!r} is used twice"))
        for rule in (_metric, _baseline, _bound, _columns, _calibration, _shift):
            problems += [Misfit((*at, *path), said) for path, said in rule(gate, declared)]
    return problems


_Found = Iterator[tuple[tuple[str, ...], str]]
_Rule = Callable[[GateSpec, Declared], _Found]


def _metric(gate: GateSpec, declared: Declared) -> _Found:
    metric, measured = getattr(gate, "metric", None), METRICS_OF[declared.task]
    if metric is not None and metric not in measured:
        yield (
            ("metric",),
            f"gate {gate.name!r} asks for metric {metric!r}, which a {declared.task} task"
            f" does not have; it has {', '.join(measured)}",
        )


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
    if isinstance(gate, Bound) and gate.at_least is None and gate.at_most is None:
        yield (), f"gate {gate.name!r} needs 'at_least' or 'at_most'"


def _columns(gate: GateSpec, declared: Declared) -> _Found:
    asked = (
        gate.columns
        if isinstance(gate, Slices)
        else (gate.column,)
        if isinstance(gate, Gap)
        else ()
    )
    unknown = [column for column in asked if column not in declared.slices]
    if unknown:
        yield (
            ("columns" if isinstance(gate, Slices) else "column",),
            f"gate {gate.name!r} asks for {', '.join(unknown)}; evaluation.slices has"
            f" {list(declared.slices)}: add it there",
        )


def _calibration(gate: GateSpec, declared: Declared) -> _Found:
    if isinstance(gate, Calibrated) and declared.task not in CLASSES:
        said = "which predicts no probabilities: remove the gate"
        yield (
            (),
            f"gate {gate.name!r} is about probabilities, not for a {declared.task} task, {said}",
        )


def _shift(gate: GateSpec, declared: Declared) -> _Found:
    if isinstance(gate, Robustness) and gate.shift is not None and not declared.numbers:
        yield (
            ("shift",),
            f"gate {gate.name!r} shifts numbers, and features.numeric is empty: set shift to null",
        )
