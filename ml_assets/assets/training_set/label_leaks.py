"""Finds features that predict the label by themselves: such a feature is the label, or was recorded
after it.

Each feature alone is made a model (the mean label of its values, in bins), fitted on training rows
and judged on validation rows, so that learning many values by heart does not count.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Literal, assert_never

import numpy as np
import polars as pl
from numpy.typing import NDArray

from ml_assets.assets.training_set.read_split import SplitRows
from ml_assets.spec.features import FeaturesSpec
from ml_assets.spec.leaks import LeakFinding, TargetProxy
from ml_assets.spec.pipeline import LabelSpec
from ml_assets.spec.training import Task
from ml_assets.spec.training_program import Split

BINS = 256
"""At most; of fewer training rows one for every ten."""
ROWS = 50_000
"""Rows of a split, evenly spread: the error of an area from so many is 0.003."""
_AT_ONCE = 8
"""Features whose values are held at once."""
FEWEST = 20
"""Rows of each side of a label below which an area says more about chance."""
Measure = Literal["auc", "r2"]
_MEASURES: Mapping[Task, tuple[Measure, float]] = {
    "binary": ("auc", 0.95),
    "ranking": ("auc", 0.98),
    "multiclass": ("r2", 0.92),
    "regression": ("r2", 0.98),
    "language_model": ("r2", 0.98),
}
_WORDS: Mapping[Measure, str] = {
    "auc": "area under the curve",
    "r2": "share of variance explained",
}


def find_proxies(
    rows: Mapping[Split, SplitRows],
    features: FeaturesSpec,
    label: LabelSpec,
    guard: TargetProxy,
    alarm: float | None,
) -> LeakFinding:
    """No feature alone is better than the bound.

    Args:
        alarm: the bound of the pipeline's leak alarm, if it is of the same measure.
    """
    measure, usual = _MEASURES[label.task]
    bound = guard.bound if guard.bound is not None else usual if alarm is None else alarm
    known, judged = (
        targets(_thinned(rows[name], [label.column]), rows["train"], label)
        for name in ("train", "validation")
    )
    if features.tokens or not _can_be_judged(judged, measure):
        return LeakFinding(
            name="no_target_proxy",
            passed=True,
            value=None,
            bound=bound,
            reason="not judged: a text is not a single feature"
            if features.tokens
            else f"not judged: the validation rows are too few, or too alike ({len(judged):,})",
        )
    found = dict[str, float]()
    for some in _in_groups(features):
        columns = [*some.numeric, *some.categorical]  # those before are let go of first
        thinned = (_thinned(rows[name], columns) for name in ("train", "validation"))
        found |= strengths(next(thinned), next(thinned), known, judged, some, measure)
    bad = [n for n, value in found.items() if value > bound and n not in guard.except_for]
    ranked = sorted(found, key=lambda name: -found[name])
    told = ", ".join(f"{name} {found[name]:.3f}" for name in (bad or ranked)[:5])
    said = f"the best features alone, by {_WORDS[measure]}: {told}"
    if bad:
        said = (
            f"{told}. No single feature should reveal so much of the label ({_WORDS[measure]}: at "
            f"most {bound:g}). Find out when each value becomes known: a column that is filled in "
            "after the event belongs under after_event of its source. Name a feature that may "
            "reveal so much in leaks.target_proxy.except_for"
        )
    return LeakFinding(
        name="no_target_proxy",
        passed=not bad,
        value=max(found[name] for name in bad or ranked[:1]),
        bound=bound,
        reason=said,
        named=tuple(sorted(bad, key=lambda name: -found[name])),
    )


def _in_groups(features: FeaturesSpec) -> Iterator[FeaturesSpec]:
    """The same features, some of them at a time."""
    for kind in ("numeric", "categorical"):
        names = getattr(features, kind)
        none = {"numeric": (), "categorical": ()}
        for first in range(0, len(names), _AT_ONCE):
            yield features.model_copy(update={**none, kind: names[first : first + _AT_ONCE]})


def targets(rows: pl.DataFrame, train: SplitRows, label: LabelSpec) -> NDArray[np.float64]:
    """[rows, targets] what is to be told of each row: 1 or 0, for each class, or a number's rank.

    Ranks are among the labels of ``train``, in [0, 1]: a few huge labels do not hide the rest.
    """
    column = rows[label.column]
    match label.task:
        case "binary":
            return column.cast(pl.Float64).to_numpy()[:, None]
        case "ranking":
            return (column > 0).cast(pl.Float64).to_numpy()[:, None]
        case "multiclass":
            words = column.cast(pl.String).to_numpy()
            return np.stack([(words == name).astype(np.float64) for name in label.classes], axis=1)
        case "regression" | "language_model":
            among = train.column(label.column).cast(pl.Float64).sort().to_numpy()
            values = column.cast(pl.Float64).to_numpy()
            return (np.searchsorted(among, values, "right") / len(among))[:, None]
        case _:
            assert_never(label.task)


def strengths(
    train: pl.DataFrame,
    validation: pl.DataFrame,
    known: NDArray[np.float64],
    judged: NDArray[np.float64],
    features: FeaturesSpec,
    measure: Measure,
) -> dict[str, float]:
    """Feature -> how well its bins tell the targets of the validation rows.

    Args:
        known: [train rows, targets].
        judged: [validation rows, targets].
    """
    found: dict[str, float] = {}
    for name, fitted, asked in _bins(train, validation, features):
        cells = int(max(fitted.max(initial=0), asked.max(initial=0))) + 1
        counts = np.bincount(fitted, minlength=cells)[:, None] + 1.0  # one row of the mean, each
        sums = np.stack([np.bincount(fitted, k, minlength=cells) for k in known.T], axis=1)
        rates = (sums + known.mean(axis=0)) / counts
        match measure:
            case "auc":
                found[name] = _area(rates[asked, 0], judged[:, 0])
            case "r2":
                left = ((judged - rates[asked]) ** 2).sum()
                found[name] = float(1 - left / ((judged - judged.mean(axis=0)) ** 2).sum())
            case _:
                assert_never(measure)
    return found


def _bins(
    train: pl.DataFrame, validation: pl.DataFrame, features: FeaturesSpec
) -> Iterator[tuple[str, NDArray[np.int64], NDArray[np.int64]]]:
    """Each feature with the bin of every training row, and of every validation row."""
    for name in features.numeric:
        values, asked = (_numbers(frame[name]) for frame in (train, validation))
        edges = _edges(values[~np.isnan(values)])
        yield name, _places(values, edges), _places(asked, edges)
    for name in features.categorical:
        words = pl.concat([train[name], validation[name]]).fill_null("\0")
        codes = words.rank("dense").cast(pl.Int64).to_numpy()
        yield name, codes[: len(train)], codes[len(train) :]


def _edges(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Where one bin ends and the next begins: quantiles of what is there."""
    bins = min(BINS, len(values) // 10)
    return np.unique(np.quantile(values, np.linspace(0, 1, bins + 1)[1:-1])) if bins else values[:0]


def _places(values: NDArray[np.float64], edges: NDArray[np.float64]) -> NDArray[np.int64]:
    """0 for what is missing, which is a bin of its own."""
    return np.where(np.isnan(values), 0, np.searchsorted(edges, values, "left") + 1)


def _numbers(column: pl.Series) -> NDArray[np.float64]:
    return column.cast(pl.Float64).fill_null(float("nan")).to_numpy()


def _area(scores: NDArray[np.float64], truth: NDArray[np.float64]) -> float:
    """Area under the ROC curve (Mann and Whitney), ties counted as half."""
    _, level = np.unique(scores, return_inverse=True)
    positive = np.bincount(level, truth)
    negative = np.bincount(level, 1 - truth)
    below = np.cumsum(negative) - negative
    return float((positive * (below + negative / 2)).sum() / (positive.sum() * negative.sum()))


def _thinned(rows: SplitRows, columns: Sequence[str]) -> pl.DataFrame:
    return rows.every(-(-len(rows) // ROWS), columns)


def _can_be_judged(judged: NDArray[np.float64], measure: Measure) -> bool:
    if measure == "auc":
        return min(judged.sum(), (1 - judged).sum()) >= FEWEST
    return len(judged) >= FEWEST and bool((judged.std(axis=0) > 0).any())
