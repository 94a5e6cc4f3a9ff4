"""The lessons of a study: how much is luck, which values matter, where to look next."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, exp, log

import numpy as np

from ml_assets.errors import counted
from ml_assets.spec.pipeline import PipelineSpec
from ml_assets.spec.search import SEARCH_FILE, SearchSpec, refused
from ml_assets.spec.search_parameter import Parameter, Value
from ml_assets.spec.study_record import Study, Trial

_TWO_SEEDS = 1.96 * 2**0.5
"""Standard deviations within which the losses of two equal settings differ, 19 times of 20."""
_EDGE = 0.05
"""Share of a range that is its edge."""
_BEST_SHARE = 0.1
_FEWEST_BEST = 3
"""The fewest of the best that make a crowd."""
_FURTHER = (0.5, 0.25, 0.1)
"""Shares of a range to search beyond its end: the first that the field allows."""
_BINS = 4
"""Parts of a range that is asked about value by value."""
_DRAWS = 400


@dataclass(frozen=True)
class Isolated:
    """The best that a scientific value came to, whatever the nuisance parameters were."""

    label: str
    best: float
    high: float
    """The 97.5th percentile of the best of as many trials, drawn anew from those of the value."""
    trials: int


@dataclass(frozen=True)
class Boundary:
    """The best of a study lies on an edge of its space."""

    path: str
    said: str


def spread(study: Study) -> float | None:
    """The standard deviation of the best setting's loss over seeds; None: it was not measured."""
    if len(study.seeds) < 2:
        return None
    return float(np.std(study.seeds, ddof=1))


def luck(study: Study) -> float | None:
    """The difference of two trials that is more than luck; None: it is not known."""
    found = spread(study)
    return None if found is None else _TWO_SEEDS * found


def tied(study: Study) -> tuple[Trial, ...]:
    """The finished trials that luck alone may hold apart from the best one, which is among them."""
    margin = luck(study)
    if margin is None:
        return study.finished[:1]
    best = study.best.loss or 0.0
    return tuple(one for one in study.finished if (one.loss or 0.0) - best <= margin)


def verdict(study: Study) -> tuple[str, ...]:
    """Return what to make of the best trial, a sentence each."""
    best, own, margin = study.best, study.own, luck(study)
    said: list[str] = []
    if all(one.own for one in study.finished):
        said.append("No trial was finished but the spec's own setting: nothing was learned.")
    elif own.end == "stopped" and study.winner is None:
        said.append(
            "The budget was spent before the spec's own setting was trained to its end: no trial is"
            " compared with it, and none wins. Allow more of it, and search again."
        )
    elif study.winner is None:
        said.append("No trial is better than the spec's own setting.")
    elif own.end != "finished":
        own_failed = "The spec's own setting failed"
        said.append(f"{own_failed}: there is nothing to compare trial {best.number} with.")
    elif own.loss is not None and best.loss is not None:
        gain = own.loss - best.loss
        named = f"The {study.judged_by} of trial {best.number} is {best.loss:.5f}"
        said.append(f"{named}, {gain:.5f} below that of the spec's own setting.")
        if margin is not None:
            beyond = gain > margin
            word = "more than" if beyond else "no more than"
            end = "" if beyond else ": another seed may reverse it"
            seeds = f"the usual difference between two seeds of one setting ({margin:.5f})"
            said.append(f"That is {word} {seeds}{end}.")
    if margin is None:
        said.append("How much seeds matter was not measured: set search.seeds to 2 or more.")
    elif len(same := tied(study)) > 1:
        names = ", ".join("the spec's own" if one.own else str(one.number) for one in same[:8])
        more = f" and {len(same) - 8} more" if len(same) > 8 else ""
        said.append(
            f"Any of these {len(same)} may be the best: {names}{more}. They differ by less than"
            " seeds do."
        )
    return tuple(said)


def unused_winner(study: Study, search: SearchSpec | None) -> tuple[str, ...]:
    """What to do with a winner that the spec does not adopt."""
    if study.winner is None or search is None or search.adopt:
        return ()
    return (
        f"Nothing is changed by it. To train with trial {study.winner}, set adopt: true in"
        f" {SEARCH_FILE}, and run again.",
    )


def isolated(study: Study, search: SearchSpec) -> dict[str, list[Isolated]]:
    """Scientific parameter -> each of its values with the best that was found for it."""
    draw = np.random.default_rng(0)
    found: dict[str, list[Isolated]] = {}
    for path, one in search.searched.items():
        if one.role != "scientific":
            continue
        groups: dict[str, list[float]] = {name: [] for name in groups_of(one)}
        for trial in study.finished:
            if one.holds(trial.values[path]):  # the spec's own may lie outside
                groups[_group(one, trial.values[path])].append(trial.loss or 0.0)
        found[path] = [
            Isolated(name, min(losses), _high(losses, draw), len(losses))
            for name, losses in groups.items()
            if losses
        ]
    return found


def _high(losses: Sequence[float], draw: np.random.Generator) -> float:
    drawn = draw.choice(np.asarray(losses), size=(_DRAWS, len(losses)))
    return float(np.percentile(drawn.min(axis=1), 97.5))


def groups_of(one: Parameter) -> list[str]:
    """The values that a scientific parameter is told by: those of a choice, parts of a range."""
    if one.kind == "choice":
        return [str(value) for value in one.values]
    ends = [unscaled(one, part / _BINS) for part in range(_BINS + 1)]
    return [f"{ends[n]:.3g} to {ends[n + 1]:.3g}" for n in range(_BINS)]


def _group(one: Parameter, value: Value) -> str:
    names = groups_of(one)
    if one.kind == "choice":
        return str(value)
    return names[min(_BINS - 1, int(place(one, value) * _BINS))]


def place(one: Parameter, value: Value) -> float:
    """Return where a value lies in its range, from 0 to 1, on the scale that it is searched by."""
    if one.kind == "choice":
        names = [str(v) for v in one.values]
        known = names.index(str(value)) if str(value) in names else 0
        return known / max(1, len(names) - 1)
    low, high = one.bounds
    number = min(max(float(value or 0), low), high)
    if one.log:
        return (log(number) - log(low)) / (log(high) - log(low))
    return (number - low) / (high - low)


def unscaled(one: Parameter, share: float) -> float:
    """The number at a place of a range, from 0 to 1; what ``place`` says the other way round."""
    low, high = one.bounds
    if one.log:
        return exp(log(low) + share * (log(high) - log(low)))
    return low + share * (high - low)


def boundaries(study: Study, search: SearchSpec, spec: PipelineSpec) -> tuple[Boundary, ...]:
    """Edges of the space that the best trials press against, with the range to try next.

    An edge that the field itself has is none: there is nothing beyond it.
    """
    inside = [one for one in study.finished if search.holds(one.values)]
    if all(one.own for one in inside):
        return ()
    few = inside[: max(_FEWEST_BEST, ceil(_BEST_SHARE * len(inside)))]
    found: list[Boundary] = []
    for path, one in search.searched.items():
        if one.kind == "choice" and not _ordered(one):
            continue
        for low_end in (True, False):
            near = [_from_edge(one, trial.values[path], low_end=low_end) for trial in few]
            on_edge = near[0] <= _EDGE
            crowd = len(few) >= _FEWEST_BEST and max(near) <= 2 * _EDGE
            if (on_edge or crowd) and (said := _beyond(one, path, spec, low_end=low_end)):
                who = (
                    "The best trial is"
                    if on_edge
                    else f"The best {counted(len(few), 'trial')} crowd"
                )
                found.append(Boundary(path, f"{who} at the {said}"))
    return tuple(found)


def _ordered(one: Parameter) -> bool:
    """Whether a list has edges: of two values, the best one always lies at an end."""
    numbers = [v for v in one.values if isinstance(v, int | float) and not isinstance(v, bool)]
    return len(numbers) == len(one.values) > 2 and numbers == sorted(numbers)


def _from_edge(one: Parameter, value: Value, *, low_end: bool) -> float:
    at = place(one, value)
    return at if low_end else 1 - at


def _beyond(one: Parameter, path: str, spec: PipelineSpec, *, low_end: bool) -> str:
    """What to try next, in words; empty: the field allows nothing beyond."""
    side = "lower" if low_end else "upper"
    if one.kind == "choice":
        end = one.values[0 if low_end else -1]
        further = "below" if low_end else "above"
        return f"{side} end of {path} ({end}): add values {further} it."
    low, high = one.bounds
    for more in _FURTHER:
        drawn = unscaled(one, -more if low_end else 1 + more)
        further = round(drawn) if one.whole else float(f"{drawn:.3g}")
        if further not in (low, high) and not refused(spec, {path: further}, path):
            span = f"{further:g} to {high:g}" if low_end else f"{low:g} to {further:g}"
            return f"{side} end of {path} ({low if low_end else high:g}): search {span} next."
    return ""
