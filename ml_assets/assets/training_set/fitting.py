"""Fits means, deviations and vocabularies to the training split, in one pass over its parts.

While a column is added up it lies in a file, part by part. The sums equal those of rows in memory
to the last bit, and a set of any size takes the memory of one part.
"""

import tempfile
from dataclasses import dataclass, field
from math import isfinite, isinf
from pathlib import Path
from typing import Any, assert_never

import numpy as np
import polars as pl
from numpy.typing import NDArray

from ml_assets.assets.training_set.encoding import label_array
from ml_assets.assets.training_set.read_split import SplitRows
from ml_assets.assets.training_set.tokens import fit_tokens, token_rates
from ml_assets.errors import SpecError
from ml_assets.spec.features import FeaturesSpec
from ml_assets.spec.pipeline import LabelSpec
from ml_assets.spec.training_program import (
    CategoricalColumn,
    LabelScale,
    NumericColumn,
    Preprocessing,
)


@dataclass(frozen=True)
class Fitted:
    """Describes how rows become numbers, and what the labels of the training split are."""

    preprocessing: Preprocessing
    label_scale: LabelScale | None
    label_rate: tuple[float, ...]


def fit(train: SplitRows, features: FeaturesSpec, label: LabelSpec, scratch: Path | None) -> Fitted:
    """Means, deviations, null flags, vocabularies and the label's share or scale.

    Args:
        scratch: where files may lie meanwhile; None: where the machine has them.

    Raises:
        SpecError: a numeric feature is infinite, or so large that its deviation is.
    """
    if features.tokens:
        tokens = fit_tokens(train, features.tokens)
        none = Preprocessing(numeric=(), null_flags=(), categorical=())
        cut = none.model_copy(update={"tokens": tokens})
        return Fitted(cut, None, token_rates(train, tokens))
    with tempfile.TemporaryDirectory(dir=scratch) as folder:
        root = Path(folder)
        numbers = {
            name: _ColumnFile(root / str(place)) for place, name in enumerate(features.numeric)
        }
        words: dict[str, pl.Series | None] = dict.fromkeys(features.categorical)
        nulls = set[str]()
        labels = _Labels(label, _ColumnFile(root / "label"))
        queries = [label.query] if label.query else []
        wanted = dict.fromkeys([*numbers, *words, label.column, *queries])
        for frame in train.each(list(wanted)):
            for name, file in numbers.items():
                nulls |= {name} if frame[name].null_count() else set()
                file.append(frame[name].drop_nulls().drop_nans())
            for name, seen in words.items():
                new = frame[name].drop_nulls().unique()
                words[name] = new if seen is None else pl.concat([seen, new]).unique()
            labels.add(frame)
        preprocessing = Preprocessing(
            numeric=tuple(_numeric(name, file) for name, file in numbers.items()),
            null_flags=tuple(name for name in features.numeric if name in nulls),
            categorical=tuple(
                CategoricalColumn(name=name, vocabulary=tuple(seen.sort().to_list()))
                for name, seen in words.items()
                if seen is not None
            ),
        )
        return Fitted(preprocessing, labels.scale(), labels.rate())


@dataclass
class _ColumnFile:
    """The values of a column in a file; each part is a chunk of its own, as polars holds them."""

    file: Path
    _lengths: list[int] = field(default_factory=list)
    _dtype: np.dtype[Any] = field(default_factory=lambda: np.dtype(np.float64))

    def append(self, values: pl.Series) -> None:
        array = values.to_numpy()
        self._dtype = array.dtype
        self._lengths.append(len(array))
        with self.file.open("ab") as handle:
            handle.write(np.ascontiguousarray(array).data)

    def array(self) -> NDArray[Any]:
        """[values] as they lie in the file, mapped."""
        if not sum(self._lengths):
            return np.empty(0, self._dtype)
        return np.memmap(self.file, self._dtype, "r")

    def series(self) -> pl.Series:
        """The same as chunks, not copied."""
        ends = np.cumsum(self._lengths)
        chunks = [chunk for chunk in np.split(self.array(), ends[:-1]) if len(chunk)]
        return pl.concat(map(pl.Series, chunks or [np.empty(0)]), rechunk=False)


@dataclass
class _Labels:
    """The labels of the training split, added up."""

    spec: LabelSpec
    file: _ColumnFile
    rows: int = 0
    counts: NDArray[np.int64] | None = None

    def add(self, frame: pl.DataFrame) -> None:
        found = label_array(frame, self.spec) if len(frame) else np.empty(0)
        self.rows += len(found)
        match self.spec.task:
            case "binary" | "multiclass":
                classes = len(self.spec.classes) or 2
                counts = np.bincount(found.astype(np.int64), minlength=classes)
                self.counts = counts if self.counts is None else self.counts + counts
            case "regression":
                self.file.append(pl.Series(found))
            case "ranking" | "language_model":
                pass
            case _:
                assert_never(self.spec.task)

    def rate(self) -> tuple[float, ...]:
        """Binary: the share of positives, as float32. Multiclass: of each class. Else empty."""
        if self.counts is None:
            return ()
        if self.spec.task == "binary":
            return (float(np.float32(self.counts[1] / self.rows)),)
        return tuple(float(share) for share in self.counts / self.rows)

    def scale(self) -> LabelScale | None:
        """Mean and deviation of a regression label; None for other tasks."""
        if self.spec.task != "regression":
            return None
        values = self.file.array()
        std = float(values.std())
        return LabelScale(mean=float(values.mean()), std=std if std > 0 else 1.0)


def _numeric(name: str, file: _ColumnFile) -> NumericColumn:
    values = file.series()
    low, high = values.min(), values.max()
    for extreme in (low, high):
        if isinstance(extreme, float) and isinf(extreme):
            raise SpecError(
                f"The feature {name!r} is {extreme} in a training row, so its mean is not finite."
                " Let the feature function return null there (does it divide by zero?)."
            )
    mean = float(values.mean() or 0.0)  # pyright: ignore[reportArgumentType]  a float column's mean is a float
    std = float(values.std() or 0.0)  # pyright: ignore[reportArgumentType]  likewise
    if not (isfinite(mean) and isfinite(std)):
        raise SpecError(
            f"The feature {name!r} goes from {low} to {high} in the training rows: its mean or"
            " standard deviation overflows. Let the feature function return their logarithm,"
            " another unit, or null where a value is invalid."
        )
    # of equal values the deviation is rounding alone, and what deviates later would be cut off
    return NumericColumn(name=name, mean=mean, std=std if std > 0 and low != high else 1.0)
