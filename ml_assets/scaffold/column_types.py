"""Brings the columns of a table, whatever wrote it, to the types of a spec."""

from collections.abc import Collection, Sequence

import polars as pl

from ml_assets.errors import SpecError
from ml_assets.spec.sources import DType, patterns_among

DTYPES: dict[pl.DataType, DType] = {
    pl.Int64(): "int64",
    pl.Float64(): "float64",
    pl.String(): "string",
    pl.Boolean(): "boolean",
    pl.Date(): "date",
    pl.Datetime("us", "UTC"): "datetime",
}
LONGEST_NAME = 255
"""Characters of a column's name: YAML takes no key of more than a thousand."""


def typed_columns(
    frame: pl.DataFrame, needed: Collection[str]
) -> tuple[pl.DataFrame, tuple[str, ...]]:
    """The columns as the types of a spec, and what is to be said of those that fit none.

    Args:
        needed: columns that cannot be left out.

    Raises:
        SpecError: one of these fits no type, or a name is too long for a spec.
    """
    kept: list[pl.Series] = []
    notes: list[str] = []
    for values in frame.get_columns():
        _check_name(values.name)
        try:
            kept.append(_typed(values))
        except pl.exceptions.PolarsError:
            said = f"the column {values.name!r} holds values of the type {values.dtype}"
            if values.name in needed:
                raise SpecError(
                    f"T{said[1:]}: numbers, text, true or false, dates or times are expected. Write"
                    " it as one of these, or leave it out of the table."
                ) from None
            notes.append(f"{said}: it is left out")
    return pl.DataFrame(kept), tuple(notes)


def check_names(names: Sequence[str]) -> None:
    """Hold the names of a table's columns to those that mean one column.

    Raises:
        SpecError: one of them is a pattern.
    """
    if patterns := patterns_among(names):
        raise SpecError(
            f"The columns {patterns} have names that are patterns of several columns: rename them"
            " in the table."
        )


def _check_name(name: str) -> None:
    if len(name) > LONGEST_NAME:
        raise SpecError(
            f"The name of the column {name[:40]!r}... has {len(name):,} characters, {LONGEST_NAME}"
            " at most are expected: shorten it."
        )


def _typed(values: pl.Series) -> pl.Series:
    dtype = values.dtype
    if dtype.is_integer():
        numbers = values.cast(pl.Int64, strict=False)
        fits = numbers.null_count() == values.null_count()
        return numbers if fits else values.cast(pl.String)  # 64 bits without a sign: it is an id
    if dtype.is_numeric():
        return values.cast(pl.Float64).fill_nan(None)
    if isinstance(dtype, pl.Datetime):
        zoned = values if dtype.time_zone else values.dt.replace_time_zone("UTC")
        return zoned.dt.convert_time_zone("UTC").cast(pl.Datetime("us", "UTC"))
    return values if dtype in DTYPES else values.cast(pl.String, strict=False)
