"""Guards of a training set: a row that tells what it should not is an error, not a better model.

Each guard is a function of the rows that will be trained and judged on, and ends in a finding.
"""

from collections.abc import Mapping
from datetime import datetime, timedelta
from itertools import pairwise
from typing import assert_never

import polars as pl

from ml_assets.assets.training_set.shared_rows import find_shared_rows
from ml_assets.assets.training_set.split_bias import find_bias
from ml_assets.assets.training_set.target_proxy import find_proxies
from ml_assets.errors import quoted
from ml_assets.spec.gates import LeakAlarm
from ml_assets.spec.leaks import LeakFinding, training_set_checks
from ml_assets.spec.pipeline import PipelineSpec
from ml_assets.spec.program import Split
from ml_assets.spec.split import WindowSplit, groups_of

ORDER: tuple[Split, ...] = ("train", "validation", "holdout")
Rows = Mapping[Split, pl.DataFrame]
"""Labelled rows, before they are encoded."""


def examine(rows: Rows, spec: PipelineSpec, embargo: timedelta) -> tuple[LeakFinding, ...]:
    """Every guard that needs the rows alone, those of the encoded set left out.

    Args:
        embargo: the time between a split and the next one.
    """
    found: list[LeakFinding] = []
    for name in training_set_checks(spec.split):
        match name:
            case "no_shared_keys":
                found.append(find_shared_keys(rows, spec))
            case "split_in_order":
                found.append(find_disorder(rows, spec.features.decision_at, embargo))
            case "no_shared_rows":
                found.append(
                    find_shared_rows(rows, spec.features, spec.label, spec.leaks.shared_rows)
                )
            case "no_target_proxy":
                guard, alarm = spec.leaks.target_proxy, _alarm(spec)
                found.append(find_proxies(rows, spec.features, spec.label, guard, alarm))
            case "splits_alike":
                by_time = isinstance(spec.split, WindowSplit)
                found.append(
                    find_bias(rows, spec.features, spec.label, spec.leaks.split_bias, by_time)
                )
            case "fitted_on_train" | "no_future_events":
                pass
            case _:
                assert_never(name)
    return tuple(found)


def find_shared_keys(rows: Rows, spec: PipelineSpec) -> LeakFinding:
    """No key, no query of a ranking and no entity of the split is in two splits."""
    query = [spec.label.query] if spec.label.query else []
    sets = [list(spec.features.key), query, list(groups_of(spec.split))]
    apart = [
        columns for place, columns in enumerate(sets) if columns and columns not in sets[:place]
    ]
    shared = 0
    reasons: list[str] = []
    named: list[str] = []
    for position, name in enumerate(ORDER):
        for other in ORDER[position + 1 :]:
            for columns in apart:
                there = rows[name].select(columns).unique(maintain_order=True)
                both = there.join(rows[other], on=columns, how="semi", maintain_order="left")
                if len(both):
                    shared += len(both)
                    named += [str(value) for value in both.head(3).rows()]
                    reasons.append(
                        f"{len(both):,} values of {columns} are in {name} and in {other},"
                        f" {quoted(both.row(0))} for one"
                    )
    said = f"no value of {' or of '.join(str(columns) for columns in apart)} is in two splits"
    if reasons:
        said = f"{'; '.join(reasons)}. Give each one partition, or name its columns in split.groups"
    return LeakFinding(
        name="no_shared_keys",
        passed=not reasons,
        value=float(shared),
        bound=0.0,
        reason=said,
        named=tuple(named[:20]),
    )


def find_disorder(rows: Rows, column: str, embargo: timedelta) -> LeakFinding:
    """The last decision of a split, and the embargo, come before the first of the next split."""
    least = timedelta.max
    reasons: list[str] = []
    for name, other in pairwise(ORDER):
        last, first = rows[name][column].max(), rows[other][column].min()
        if not isinstance(last, datetime) or not isinstance(first, datetime):
            continue
        least = min(least, first - last)
        if first - last <= timedelta(0):
            reasons.append(
                f"{name} has a decision at {quoted(last)}, {other} begins at {quoted(first)}: a"
                " split by time must not overlap. Make the feature function return the rows of its"
                " window only"
            )
        elif first - last < embargo:
            reasons.append(
                f"from the last decision of {name}, {quoted(last)}, to the first of {other},"
                f" {quoted(first)}, are {first - last}; the embargo is {embargo}. Make the feature"
                " function return the rows of its window only, or set a longer split.embargo"
            )
    days = least / timedelta(days=1) if least < timedelta.max else None
    return LeakFinding(
        name="split_in_order",
        passed=not reasons,
        value=days,
        bound=embargo / timedelta(days=1),
        reason="; ".join(reasons)
        or f"each split begins {least} or more after the last decision of the one before;"
        f" the embargo is {embargo}",
    )


def _alarm(spec: PipelineSpec) -> float | None:
    """What is too good of a whole model is too good of one feature: the bound on ``auc``."""
    if spec.label.task != "binary":
        return None
    alarms = [g.bound for g in spec.gates if isinstance(g, LeakAlarm) and g.metric == "auc"]
    return min(alarms, default=None)
