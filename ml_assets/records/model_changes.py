"""Compares a model with the previous release: spec, data, metrics, importance."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from ml_assets.spec.records import Change, EvaluationReport, ReleaseChanges, StageRecord

IMPORTANT = 5
"""Features that are compared: those that matter most to one of the two."""
Group = Literal["spec", "data", "metrics", "importance"]


@dataclass(frozen=True)
class Candidate:
    """A model, or what was to become one, with what it was made from and how it did."""

    spec: Mapping[str, Any]
    """The resolved spec, as JSON has it."""
    data: StageRecord | None
    """The record of its training set; None where a run did not come so far. So for the report."""
    report: EvaluationReport | None


def changes(before: Candidate, after: Candidate, since: str) -> ReleaseChanges:
    """Everything that differs from a release, named by its digest."""
    return ReleaseChanges(since=since, changes=differences(before, after))


def differences(before: Candidate, after: Candidate) -> tuple[Change, ...]:
    """Everything that differs, in the order of a page; equal candidates give none.

    Metrics and importance are compared where both were judged, data where both have it.
    """
    sides: dict[str, tuple[dict[str, str], dict[str, str]]] = {
        "spec": (_flat(before.spec), _flat(after.spec)),
    }
    if before.data and after.data:
        sides["data"] = (_window(before.data), _window(after.data))
    if before.report and after.report:
        sides["metrics"] = (_metrics(before.report), _metrics(after.report))
        sides["importance"] = _importance(before.report, after.report)
    found: list[Change] = []
    for group, (old, new) in sides.items():
        found += _differences(group, old, new)  # pyright: ignore[reportArgumentType]  one of the four above
    return tuple(found)


def _differences(group: Group, old: Mapping[str, str], new: Mapping[str, str]) -> Iterator[Change]:
    for name in dict.fromkeys([*new, *old]):
        was, now = old.get(name, ""), new.get(name, "")
        if was != now:
            yield Change(group=group, name=name, before=was, after=now)


def _flat(value: object, name: str = "") -> dict[str, str]:
    """``training.epochs`` -> ``3``; the parts of a list go by their names, where they have any."""
    if isinstance(value, Mapping):
        parts = {str(key): part for key, part in value.items()}
    elif isinstance(value, list | tuple) and value and all(_part_name(part) for part in value):
        parts = {_part_name(part): part for part in value}
    else:
        return {name: value if isinstance(value, str) else json.dumps(value, default=str)}
    flat: dict[str, str] = {}
    for key, part in parts.items():
        flat |= _flat(part, f"{name}.{key}" if name else key)
    return flat


def _part_name(part: object) -> str:
    return str(part.get("name") or part.get("kind") or "") if isinstance(part, Mapping) else ""


def _window(record: StageRecord) -> dict[str, str]:
    told = record.attributes
    partitions = [i.partition for i in record.inputs if i.partition]
    window = {
        "first partition": min(partitions, default=""),
        "last partition": max(partitions, default=""),
        "partitions": str(len(partitions) or ""),
        "holdout": " to ".join(str(end) for end in told.get("holdout", []) if end),
        "version": record.data_version[:12],
    }
    rows = {f"{split} rows": f"{count:,}" for split, count in told.get("rows", {}).items()}
    return {**window, **rows}


def _metrics(report: EvaluationReport) -> dict[str, str]:
    return {name: f"{found.value:.4f}" for name, found in report.metrics.items()}


def _importance(
    before: EvaluationReport, after: EvaluationReport
) -> tuple[dict[str, str], dict[str, str]]:
    told = [{one.column: one.loss_rise.value for one in r.importance} for r in (before, after)]
    if not all(told):
        return {}, {}
    leading = dict.fromkeys(
        name for rises in told for name in sorted(rises, key=lambda n: -rises[n])[:IMPORTANT]
    )
    old, new = ({n: f"{rises[n]:.4f}" for n in leading if n in rises} for rises in told)
    return old, new
