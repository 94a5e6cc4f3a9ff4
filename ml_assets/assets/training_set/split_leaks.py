"""The guards of a training set: a leak is an error, not a better model.

Each guard is a function of the rows that will be trained and judged on, and ends in a finding. It
reads them a part at a time; keys and copies are found by hashes on disk.
"""

import math
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime, timedelta
from itertools import combinations, pairwise
from pathlib import Path
from typing import assert_never

import polars as pl

from ml_assets.assets.training_set.column_moments import moments
from ml_assets.assets.training_set.label_leaks import find_proxies
from ml_assets.assets.training_set.read_split import SplitRows
from ml_assets.assets.training_set.row_hashes import RowHashes, buckets_for
from ml_assets.assets.training_set.split_bias import find_bias
from ml_assets.assets.training_set.tokens import fit_tokens
from ml_assets.errors import counted, quoted
from ml_assets.spec.features import FeaturesSpec
from ml_assets.spec.gates import LeakAlarm
from ml_assets.spec.leaks import LeakFinding, SharedRows, training_set_checks
from ml_assets.spec.pipeline import LabelSpec, PipelineSpec
from ml_assets.spec.split import groups_of, is_by_time
from ml_assets.spec.training_program import SPLITS, ShardSchema, Split

Rows = Mapping[Split, SplitRows]
"""Labelled rows, before they are encoded."""
_PAIRS = tuple(combinations(SPLITS, 2))
"""Each split with each later one."""
_CHANCE_ERRORS = 3.0
"""Standard errors that chance may be off by."""
_FEWEST_EQUAL = 5
"""So many equal rows prove nothing: Fisher's irises have two."""
_FIT_TOLERANCE = 1e-6
"""Relative: sums in another order differ by less, a mean of other rows by more."""


def examine(
    rows: Rows, spec: PipelineSpec, embargo: timedelta, scratch: Path | None = None
) -> tuple[LeakFinding, ...]:
    """Every guard that needs the rows alone, those of the encoded set left out.

    Args:
        embargo: the time between a split and the next one.
        scratch: where hashes may lie meanwhile; None: where the machine has them.
    """
    found: list[LeakFinding] = []
    for name in training_set_checks(spec.split):
        match name:
            case "no_shared_keys":
                found.append(find_shared_keys(rows, spec, scratch))
            case "split_in_order":
                found.append(find_disorder(rows, spec.features.decision_at, embargo))
            case "no_shared_rows":
                guard = spec.leaks.shared_rows
                found.append(find_shared_rows(rows, spec.features, spec.label, guard, scratch))
            case "no_target_proxy":
                guard, alarm = spec.leaks.target_proxy, _alarm(spec)
                found.append(find_proxies(rows, spec.features, spec.label, guard, alarm))
            case "splits_alike":
                bias, by_time = spec.leaks.split_bias, is_by_time(spec.split)
                found.append(find_bias(rows, spec.features, spec.label, bias, by_time))
            case "fitted_on_train" | "no_future_events":
                pass
            case _:
                assert_never(name)
    return tuple(found)


def find_shared_keys(rows: Rows, spec: PipelineSpec, scratch: Path | None) -> LeakFinding:
    """No key, no query of a ranking and no entity of the split is in two splits."""
    query = [spec.label.query] if spec.label.query else []
    sets = [list(spec.features.key), query, list(groups_of(spec.split))]
    apart = [
        columns for place, columns in enumerate(sets) if columns and columns not in sets[:place]
    ]
    values = {tuple(columns): _values_in_two(rows, columns, scratch) for columns in apart}
    shared = 0
    reasons: list[str] = []
    named: list[str] = []
    for name, other in _PAIRS:
        for columns in apart:
            both = values[tuple(columns)].get((name, other), pl.DataFrame())
            if len(both):
                shared += len(both)
                named += [str(value) for value in both.head(3).rows()]
                are = "is" if len(both) == 1 else "are"
                reasons.append(
                    f"{counted(len(both), 'value')} of {columns} {are} in {name} and in {other},"
                    f" {quoted(both.row(0))} for one"
                )
    said = f"no value of {' or of '.join(str(columns) for columns in apart)} is in two splits"
    if reasons:
        told = "; ".join(reasons)
        said = f"{told}. Keep each value in one partition, or name these columns in split.groups"
    return LeakFinding(
        name="no_shared_keys",
        passed=not reasons,
        value=float(shared),
        bound=0.0,
        reason=said,
        named=tuple(named[:20]),
    )


def _values_in_two(
    rows: Rows, columns: list[str], scratch: Path | None
) -> dict[tuple[Split, Split], pl.DataFrame]:
    """Two splits -> the values that both have, in the order of the first; pairs without any not."""
    found: dict[tuple[Split, Split], pl.DataFrame] = {}
    with _hashed(rows, columns, scratch) as hashes:
        for name, other in _PAIRS:
            equal, _ = hashes[name].shared(hashes[other])
            if len(equal):  # two values may have one hash: these few are compared themselves
                here, there = (
                    pl.concat(hashes[one].having(equal, columns)).unique(maintain_order=True)
                    for one in (name, other)
                )
                both = here.join(there, on=columns, how="semi", maintain_order="left")
                found[name, other] = both
    return found


@contextmanager
def _hashed(
    rows: Rows, columns: list[str], scratch: Path | None
) -> Iterator[dict[Split, RowHashes]]:
    """The hashes of some columns of each split, on disk."""
    buckets = buckets_for(list(rows.values()))
    with tempfile.TemporaryDirectory(dir=scratch) as folder:
        yield {
            name: RowHashes(split, columns, Path(folder) / name, buckets)
            for name, split in rows.items()
        }


def find_disorder(rows: Rows, column: str, embargo: timedelta) -> LeakFinding:
    """The last decision of a split, and the embargo, come before the first of the next split."""
    least = timedelta.max
    reasons: list[str] = []
    for name, other in pairwise(SPLITS):
        last = pl.concat(f.max() for f in rows[name].each([column]))[column].max()
        first = pl.concat(f.min() for f in rows[other].each([column]))[column].min()
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


def find_shared_rows(
    rows: Rows,
    features: FeaturesSpec,
    label: LabelSpec,
    guard: SharedRows,
    scratch: Path | None,
) -> LeakFinding:
    """Rows whose features and label are those of a row of an earlier split, under another key.

    Where few columns have few values, rows are equal by chance: what chance explains, as if the
    columns were independent of each other, is not counted.
    """
    columns = [*features.columns, label.column]
    worst, where, named = 0.0, "", ()
    with _hashed(rows, columns, scratch) as hashes:
        for early, late in _PAIRS:
            equal, count = hashes[late].shared(hashes[early])
            total = len(rows[late])
            share = count / total
            if count <= _FEWEST_EQUAL or share <= max(worst, guard.at_most):
                continue  # chance can only lessen it
            share -= _by_chance(rows[early], rows[late], columns)
            if share > worst:
                keys = pl.concat(part.head(10) for part in hashes[late].having(equal, features.key))
                worst, where = (
                    share,
                    f"{count:,} of the {counted(total, 'row')} of {late} are in {early}",
                )
                named = tuple(str(key) for key in keys.head(10).rows())
    passed = worst <= guard.at_most
    said = f"beyond chance, {worst:.2%} of a split's rows repeat rows of an earlier split"
    if not passed:
        said = (
            f"{where} with the same features and label, under other keys: {worst:.1%} more than"
            f" expected by chance, and at most {guard.at_most:.1%} are allowed. Remove the copies"
            " before the split, or keep them together (split.groups); where the columns are few"
            " and depend on each other, raise leaks.shared_rows.at_most"
        )
    return LeakFinding(
        name="no_shared_rows",
        passed=passed,
        value=max(0.0, worst),
        bound=guard.at_most,
        reason=said,
        named=() if passed else named,
    )


def _alarm(spec: PipelineSpec) -> float | None:
    """The bound on ``auc``: what is too good for a whole model is too good for one feature."""
    if spec.label.task != "binary":
        return None
    alarms = [g.bound for g in spec.gates if isinstance(g, LeakAlarm) and g.metric == "auc"]
    return min(alarms, default=None)


def _by_chance(early: SplitRows, late: SplitRows, columns: list[str]) -> float:
    """The largest share of ``late`` with an equal row in ``early``, were the columns independent.

    A row has none with probability exp(-n prod_j p_j), p_j the frequency of its value in ``early``.
    It holds one column at a time.
    """
    earlier, later = len(early), len(late)
    expected = pl.repeat(float(earlier), later, eager=True)
    for column in columns:
        seen = early.column(column).to_frame()
        counts = seen.group_by(column).agg((pl.len() / earlier).alias("__p"))
        found = (
            late.column(column)
            .to_frame()
            .join(counts, on=column, how="left", maintain_order="left", nulls_equal=True)
        )
        expected = expected * found["__p"].fill_null(0.0)
    chance = float(1 - (-expected).exp().mean())  # pyright: ignore[reportOperatorIssue]  a float column's mean is a float
    fewest = min(earlier, later)
    return chance + _CHANCE_ERRORS * math.sqrt(chance * (1 - chance) / fewest)


def find_foreign_fit(schema: ShardSchema, train: SplitRows, label: LabelSpec) -> LeakFinding:
    """Every statistic of a set is what its training rows say, counted here a second time.

    Args:
        schema: of the set as it was written.
        train: its labelled training rows.
    """
    wrong = {
        **_foreign_numbers(schema, train),
        **_foreign_words(schema, train),
        **_foreign_label(schema, train, label),
    }
    count = len(schema.preprocessing.numeric) + len(schema.preprocessing.categorical)
    rows = counted(len(train), "training row")
    said = f"the statistics of {counted(count, 'feature')} and of the label are those of the {rows}"
    if wrong:
        told = "; ".join(f"{name}: {words}" for name, words in list(wrong.items())[:5])
        said = (
            f"Not fitted on the training rows alone: {counted(len(wrong), 'column')}, {told}. Fit"
            " on the training rows, and apply that to the other splits"
        )
    return LeakFinding(
        name="fitted_on_train",
        passed=not wrong,
        value=float(len(wrong)),
        bound=0.0,
        reason=said,
        named=tuple(wrong),
    )


def _foreign_numbers(schema: ShardSchema, train: SplitRows) -> dict[str, str]:
    fitted = schema.preprocessing.numeric
    own_moments = moments(train, [column.name for column in fitted])
    flagged = set(schema.preprocessing.null_flags)
    wrong: dict[str, str] = {}
    for column in fitted:
        found = own_moments[column.name]
        own = found.mean or 0.0, (found.deviation if found.constant is None else None) or 1.0
        size = abs(own[0])  # a deviation is exact to the digits that its numbers have
        if not (_close(own[0], column.mean) and _close(own[1], column.std, size)):
            wrong[column.name] = (
                f"mean {column.mean:.6g} and deviation {column.std:.6g}; the training rows give"
                f" {own[0]:.6g} and {own[1]:.6g}"
            )
        elif bool(found.nulls) != (column.name in flagged):
            wrong[column.name] = f"{counted(found.nulls, 'null')} in the training rows"
    return wrong


def _foreign_words(schema: ShardSchema, train: SplitRows) -> dict[str, str]:
    fitted = {c.name: set(c.vocabulary) for c in schema.preprocessing.categorical}
    own: dict[str, set[str]] = {name: set() for name in fitted}
    for frame in train.each(list(fitted)):
        for name, words in own.items():
            words.update(frame[name].drop_nulls().unique())
    wrong: dict[str, str] = {}
    for name, vocabulary in fitted.items():
        foreign = vocabulary ^ own[name]
        if foreign:
            wrong[name] = (
                f"{sorted(foreign)[:5]} are in its vocabulary or in the training rows, not in both"
            )
    return wrong


def _foreign_label(schema: ShardSchema, train: SplitRows, label: LabelSpec) -> dict[str, str]:
    own: tuple[float, ...] = ()
    fitted: tuple[float, ...] = schema.label_rate
    match label.task:
        case "binary":
            own = (moments(train, [label.column])[label.column].average,)
        case "multiclass":
            words = Counter[str]()
            for frame in train.each([label.column]):
                words.update(dict(frame[label.column].cast(pl.String).value_counts().iter_rows()))
            own = tuple(words[name] / words.total() for name in label.classes)
        case "regression":
            found = moments(train, [label.column])[label.column]
            scale = schema.label_scale
            own = (found.average, math.sqrt(found.squares / found.count) or 1.0)
            fitted = (scale.mean, scale.std) if scale else ()
        case "ranking":
            pass
        case "language_model":
            fitted, tokens = (), schema.preprocessing.tokens
            if tokens is None or fit_tokens(train, tokens.asked) != tokens:
                return {label.column: "its vocabulary is not the one that the training rows give"}
    if len(own) == len(fitted) and all(_close(*pair) for pair in zip(own, fitted, strict=True)):
        return {}
    return {label.column: f"{fitted}; the training rows give {own}"}


def _close(one: float, other: float, size: float = 1.0) -> bool:
    return math.isclose(one, other, rel_tol=_FIT_TOLERANCE, abs_tol=1e-9 * max(1.0, size))
