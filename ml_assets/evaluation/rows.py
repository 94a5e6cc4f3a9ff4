"""The rows a model is judged on: labels as numbers, and the block that each row belongs to."""

from dataclasses import dataclass

import numpy as np
import polars as pl

from ml_assets.errors import SpecError
from ml_assets.spec.pipeline import LabelSpec, PipelineSpec


@dataclass(frozen=True)
class Rows:
    """The rows of one split, raw and encoded, in one order."""

    frame: pl.DataFrame
    """[n] the columns before encoding."""
    label: np.ndarray
    """[n] int64: 0 or 1, or the place of the class."""
    numeric: np.ndarray
    """[n, m] float32; NaN is allowed."""
    categorical: np.ndarray
    """[n, c] int32 codes, 0 for null or unknown."""

    @classmethod
    def of(
        cls, label: LabelSpec, frame: pl.DataFrame, numeric: np.ndarray, categorical: np.ndarray
    ) -> "Rows":
        """The rows with their labels encoded.

        Raises:
            SpecError: a label is null, or none of the declared ones.
        """
        if not len(frame) == len(numeric) == len(categorical):
            raise ValueError(
                f"{len(frame)} rows, {len(numeric)} numeric and {len(categorical)} categorical:"
                " they must be the same rows"
            )
        return cls(frame, encode_labels(label, frame), numeric, categorical)


@dataclass(frozen=True)
class Holdout:
    """The rows a model never saw, as its judge needs them."""

    labels: np.ndarray
    """[n] int64: 0 or 1, or the place of the class."""
    blocks: np.ndarray
    """[n] rows of one block are resampled together."""
    slices: dict[str, pl.Series]
    """Column -> [n] values to report on separately."""
    span: tuple[str, str]
    """First and last partition, or two empty strings."""

    @classmethod
    def of(cls, spec: PipelineSpec, frame: pl.DataFrame, span: tuple[str, str]) -> "Holdout":
        """The labels, blocks and slice columns of holdout rows.

        Raises:
            SpecError: a column is missing, a label is null or none of the declared ones.
        """
        for column in spec.evaluation.slices:
            _require(frame, column, "evaluation.slices")
        return cls(
            labels=encode_labels(spec.label, frame),
            blocks=_blocks(spec, frame),
            slices={column: frame[column] for column in spec.evaluation.slices},
            span=span,
        )


def encode_labels(label: LabelSpec, frame: pl.DataFrame) -> np.ndarray:
    """[n] int64: 0 or 1 (binary: true or false, or such numbers), or the place of the class.

    Raises:
        SpecError: a label is null, or none of the declared ones.
    """
    _require(frame, label.column, "label.column")
    column = frame[label.column]
    if label.task == "binary":
        numbers = column.cast(pl.Float64, strict=False)
        wrong = column.filter(~numbers.is_in([0.0, 1.0]).fill_null(False))
        rule = "true or false, 1 or 0"
    else:
        place = {name: index for index, name in enumerate(label.classes)}
        numbers = column.cast(pl.String).replace_strict(
            place, default=None, return_dtype=pl.Float64
        )
        wrong = column.filter(numbers.is_null())
        rule = f"one of {list(label.classes)}"
    if len(wrong):
        raise SpecError(
            f"label.column {label.column!r}: {len(wrong)} of {len(column)} values are not {rule},"
            f" the first is {wrong[0]!r}; correct label.task, label.classes or the feature function"
        )
    return numbers.cast(pl.Int64).to_numpy()


def _blocks(spec: PipelineSpec, frame: pl.DataFrame) -> np.ndarray:
    """[n] the local day of the decision, or the row itself."""
    if spec.evaluation.block == "row":
        return np.arange(len(frame))
    _require(frame, spec.features.decision_at, "features.decision_at")
    moment = frame[spec.features.decision_at]
    if not isinstance(moment.dtype, pl.Datetime) or moment.null_count():
        raise SpecError(
            f"features.decision_at {spec.features.decision_at!r} is {moment.dtype} with"
            f" {moment.null_count()} nulls; evaluation.block 'day' needs a time in every row:"
            " return one from the feature function, or set evaluation.block to 'row'"
        )
    if moment.dtype.time_zone is None:
        moment = moment.dt.replace_time_zone("UTC")
    local = moment.dt.convert_time_zone(spec.partitions.timezone)
    return local.dt.date().cast(pl.Int32).to_numpy()


def _require(frame: pl.DataFrame, column: str, field: str) -> None:
    if column not in frame.columns:
        raise SpecError(
            f"{field} names {column!r}, which the feature set does not have;"
            f" it has {sorted(frame.columns)}"
        )
