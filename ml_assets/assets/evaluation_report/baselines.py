"""Fits the baselines on the training split, scores them on the holdout, and discards them."""

import gzip
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from math import ceil, log
from typing import Any, assert_never

import numpy as np
import polars as pl
from numpy.typing import NDArray

from ml_assets.assets.evaluation_report.rows import Rows
from ml_assets.errors import SpecError, counted, quoted
from ml_assets.spec.gates import (
    ConstantBaseline,
    FunctionBaseline,
    GradientBoostingBaseline,
    GroupRateBaseline,
)
from ml_assets.spec.pipeline import LabelSpec
from ml_assets.spec.texts import TextBaseline, Tokens
from ml_assets.spec.training import outputs_of
from ml_assets.spec.training_program import Shard

Fitted = ConstantBaseline | GroupRateBaseline | GradientBoostingBaseline
Rule = Callable[[pl.DataFrame, pl.DataFrame], object]
"""(train, holdout without the label) -> predictions: see ``score_rule``."""

BASELINE_ROWS = 500_000
"""Rows that baselines are fitted on where there are more: a step's memory has a bound."""
HELD_BACK = 0.1
"""Share of the training rows by which boosting stops early: scikit-learn's own."""
HELD_BACK_SEED = 2357136044
"""Which they are: what scikit-learn draws from its state 0 to hold back the same rows."""
SMOOTHING = 20
"""A group's rate counts as if this many rows at the overall rate had been seen as well."""
CATEGORIES = 254
"""Most categories of one column that histogram gradient boosting takes (255 bins, one for null)."""


def spread_shards(shards: tuple[Shard, ...], rows: int) -> tuple[Shard, ...]:
    """Return shards of so many rows at most, evenly spaced, the last among them; at least one."""
    for step in range(1, len(shards)):
        chosen = shards[::-step][::-1]
        if sum(one.rows for one in chosen) <= rows:
            return chosen
    return shards[-1:]


def score_baseline(spec: Fitted, train: Rows, holdout: Rows, label: LabelSpec) -> np.ndarray:
    """Predictions of the baseline on the holdout, [n, outputs] float64.

    Probabilities, values (regression), or the grade that is expected of a row (ranking).

    Raises:
        SpecError: a ``group_rate`` baseline names a column that the feature set does not have.
    """
    if not len(train.label):
        raise ValueError("the training split has no rows")
    if isinstance(spec, ConstantBaseline):
        return np.tile(_targets(train.label, label).mean(axis=0), (len(holdout.label), 1))
    if isinstance(spec, GroupRateBaseline):
        return _group_rate(spec, train, holdout, _targets(train.label, label))
    boosted = _Boosted(spec, train, holdout, label)
    match label.task:
        case "binary" | "multiclass":
            return boosted.probabilities(outputs_of(label.task, label.classes))
        case "regression" | "ranking":
            return boosted.values()
        case "language_model":
            raise AssertionError("score_texts has those of texts")
        case _:
            assert_never(label.task)


def score_rule(
    spec: FunctionBaseline, rule: Rule, train: Rows, holdout: Rows, label: LabelSpec
) -> np.ndarray:
    """Return what a function of the team's predicts for the holdout, [n, outputs] float64.

    It returns a Series or an array with a number for each row; of several classes a DataFrame or
    an array with a column for each.

    Raises:
        SpecError: what it returned is no prediction for each row.
    """
    outputs = outputs_of(label.task, label.classes)
    returned: Any = rule(train.frame, holdout.frame.drop(label.column))
    asked = f"baseline {spec.name!r}: {spec.function} must return"
    try:
        whole = returned.to_numpy() if isinstance(returned, pl.Series | pl.DataFrame) else returned
        found = np.asarray(whole, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise SpecError(f"{asked} numbers, one for each row: {quoted(str(error))}") from error
    shape = (len(holdout.label), outputs)
    if found.shape != shape and not (outputs == 1 and found.shape == shape[:1]):
        of_rows = f" for each of its {outputs} classes" if outputs > 1 else ""
        raise SpecError(
            f"{asked} a number{of_rows} for each of the {counted(shape[0], 'holdout row')}, in"
            f" their order; the shape of what it returned is {found.shape}"
        )
    found = found.reshape(shape)
    if not np.isfinite(found).all():
        wrong = int((~np.isfinite(found)).any(axis=1).sum())
        raise SpecError(
            f"{asked} finite numbers; of {counted(shape[0], 'row')} {wrong} have a null, NaN, inf"
        )
    if label.task in ("binary", "multiclass"):
        _require_probabilities(found, asked)
    return found


def _require_probabilities(found: np.ndarray, asked: str) -> None:
    if found.min(initial=0) < 0 or found.max(initial=0) > 1:
        raise SpecError(
            f"{asked} probabilities, from 0 to 1; it returned {found.min():g} to {found.max():g}"
        )
    sums = found.sum(axis=1)
    if found.shape[1] > 1 and not np.allclose(sums, 1, atol=1e-6):
        raise SpecError(
            f"{asked} probabilities whose sum is 1 in each row; it is {sums.min():g} to"
            f" {sums.max():g}"
        )


def _targets(values: np.ndarray, label: LabelSpec) -> np.ndarray:
    """[n, outputs] float64: what a rate is the mean of."""
    match label.task:
        case "binary" | "regression" | "ranking" | "language_model":
            return np.asarray(values, dtype=np.float64)[:, None]
        case "multiclass":
            return np.eye(len(label.classes))[np.asarray(values).astype(np.int64)]
        case _:
            assert_never(label.task)


def _group_rate(
    spec: GroupRateBaseline, train: Rows, holdout: Rows, target: np.ndarray
) -> np.ndarray:
    columns = holdout.frame.columns
    missing = [column for column in spec.by if column not in columns]
    if missing:
        raise SpecError(
            f"baseline {spec.name!r}: columns {missing} of 'by' are not in the feature set, which"
            f" has {sorted(columns)}; name columns that the feature function returns"
        )
    by = list(spec.by)
    both = pl.concat([train.frame.select(by), holdout.frame.select(by)], how="vertical_relaxed")
    group = both.select(pl.struct(by).rank("dense").cast(pl.Int64) - 1).to_series().to_numpy()
    seen, asked = group[: len(target)], group[len(target) :]
    groups = int(group.max()) + 1
    rows = np.bincount(seen, minlength=groups)[:, None]
    sums = np.stack([np.bincount(seen, weights=t, minlength=groups) for t in target.T], axis=1)
    rates = (sums + SMOOTHING * target.mean(axis=0)) / (rows + SMOOTHING)
    return rates[asked]


class _Boosted:
    """Histogram gradient boosting on the encoded features of both sides.

    Scikit-learn makes its rows float64, twice over for a moment. Beside them lies one array, whose
    last rows are those held back: left to scikit-learn they would be split off as another copy.
    """

    def __init__(
        self, spec: GradientBoostingBaseline, train: Rows, holdout: Rows, label: LabelSpec
    ) -> None:
        order, self.learned = _held_back_last(train.label, label)
        self.label = train.label[order]
        self.train, numeric = train.features(order)
        self.holdout, _ = holdout.features(np.arange(len(holdout.label)))
        categorical = list(range(numeric, self.train.shape[1]))
        for column in categorical:
            _cap(self.train[:, column], self.holdout[:, column])
        # scikit-learn has no type stubs: its parameters' types are guessed from their defaults.
        self.options: dict[str, Any] = {
            "max_iter": spec.iterations,
            "early_stopping": self.learned < len(order),
            "random_state": 0,
            "categorical_features": categorical or None,
        }

    def values(self) -> np.ndarray:
        """[n, 1] the mean that is expected of each holdout row."""
        from sklearn.ensemble import HistGradientBoostingRegressor

        with _threads_with_cores():
            model = HistGradientBoostingRegressor(**self.options)
            model.fit(**self._rows(self.label))
            return np.asarray(model.predict(self.holdout))[:, None]

    def probabilities(self, outputs: int) -> np.ndarray:
        """[n, outputs]; a class that was never seen gets no chance."""
        from sklearn.ensemble import HistGradientBoostingClassifier

        label = self.label.astype(np.int64)
        known = np.unique(label)
        if len(known) < 2:
            constant = np.zeros((len(self.holdout), outputs))
            constant[:, 0 if outputs == 1 else known[0]] = known[0] if outputs == 1 else 1.0
            return constant
        with _threads_with_cores():
            model = HistGradientBoostingClassifier(**self.options)
            model.fit(**self._rows(label))
            scores = model.predict_proba(self.holdout)
        if outputs == 1:
            return np.ascontiguousarray(scores[:, 1:])
        full = np.zeros((len(scores), outputs))
        full[:, known] = scores
        return full

    def _rows(self, label: np.ndarray) -> dict[str, np.ndarray]:
        """Those that are learned from, and those that are held back, as ``fit`` takes them."""
        (own, held), (y, y_held) = (np.split(one, [self.learned]) for one in (self.train, label))
        return {"X": own, "y": y, **({"X_val": held, "y_val": y_held} if len(held) else {})}


def _held_back_last(values: np.ndarray, label: LabelSpec) -> tuple[NDArray[np.int64], int]:
    """The order of the rows with those that are held back at its end; and how many come before."""
    from sklearn.model_selection import train_test_split

    rows = np.arange(len(values))
    if not _can_hold_back(values, label):
        return rows, len(rows)
    classes = values if label.task in ("binary", "multiclass") else None
    learned, held = train_test_split(
        rows, test_size=HELD_BACK, stratify=classes, random_state=HELD_BACK_SEED
    )
    return np.concatenate([learned, held]), len(learned)


def _can_hold_back(values: np.ndarray, label: LabelSpec) -> bool:
    """Whether a tenth of the rows can be held back to stop early by: of classes, rows of each."""
    if label.task not in ("binary", "multiclass"):
        return len(values) > 1
    rows = np.unique(values, return_counts=True)[1]
    return rows.min() > 1 and ceil(HELD_BACK * len(values)) >= len(rows)


@contextmanager
def _threads_with_cores() -> Iterator[None]:
    """All cores but one, which the model's own scoring needs at the same time.

    A thread that shares its core keeps the others of its team spinning: on two busy cores, two
    threads took three times the CPU seconds of one. How many there are changes no number.
    """
    from threadpoolctl import ThreadpoolController

    openmp = ThreadpoolController().select(user_api="openmp")
    cores = min((library["num_threads"] for library in openmp.info()), default=2)
    with openmp.limit(limits=max(1, cores - 1)):
        yield


def _cap(train: NDArray[np.float32], holdout: NDArray[np.float32]) -> None:
    """Bring a column's codes below ``CATEGORIES``, in place: the rarest become one."""
    words = int(max(train.max(initial=0), holdout.max(initial=0))) + 1
    rows = np.bincount(train.astype(np.int64), minlength=words)
    common_first = np.argsort(-rows, kind="stable")
    code = np.empty(words, dtype=np.float32)
    code[common_first] = np.minimum(np.arange(words), CATEGORIES - 1)
    for column in (train, holdout):
        column[:] = code[column.astype(np.int64)]


@dataclass(frozen=True)
class Texts:
    """The texts of a split."""

    frame: pl.DataFrame
    """[rows]."""
    tokens: NDArray[np.uint16]
    """[n] see ``ShardFiles``."""
    starts: NDArray[np.int64]
    """[rows + 1]."""


def score_texts(
    spec: TextBaseline, train: Texts, holdout: Texts, tokens: Tokens
) -> NDArray[np.float64]:
    """[rows, 1] the nats of each text of the holdout."""
    if spec.kind == "gzip":
        sizes = [
            len(gzip.compress(text.encode(), mtime=0)) for text in holdout.frame[tokens.column]
        ]
        return np.array(sizes, np.float64)[:, None] * 8 * log(2)
    if spec.kind == "uniform":
        each = np.full(len(holdout.tokens) - 1, log(tokens.size))
    elif spec.kind == "unigram":
        each = -np.log(_shares(train, tokens.size)[holdout.tokens[1:]])
    else:
        each = _bigram(train, holdout, tokens.size)
    return np.add.reduceat(each, holdout.starts[:-1] - 1)[:, None]


def _shares(train: Texts, size: int) -> NDArray[np.float64]:
    """[size] how often each token comes, and once more: none is impossible."""
    counts = np.bincount(train.tokens[1:], minlength=size) + 1.0
    return counts / counts.sum()


def _bigram(train: Texts, holdout: Texts, size: int) -> NDArray[np.float64]:
    """[n - 1] nats of each token after the one before it.

    Witten and Bell (1991): a token that was followed by T different ones, N times in all, leaves
    T / (N + T) to what never followed it, shared as the tokens are on the whole.
    """
    seen, counts = np.unique(_pairs(train, size), return_counts=True)
    before = seen // size
    times = np.bincount(before, counts, minlength=size)
    kinds = np.bincount(before, minlength=size)
    asked = _pairs(holdout, size)
    place = np.minimum(np.searchsorted(seen, asked), len(seen) - 1)
    found = np.where(seen[place] == asked, counts[place], 0)
    first, second = asked // size, asked % size
    whole = np.maximum(times[first] + kinds[first], 1)
    unknown = np.where(times[first] > 0, kinds[first] / whole, 1.0)
    return -np.log(found / whole + unknown * _shares(train, size)[second])


def _pairs(texts: Texts, size: int) -> NDArray[np.int64]:
    tokens = texts.tokens.astype(np.int64)
    return tokens[:-1] * size + tokens[1:]
