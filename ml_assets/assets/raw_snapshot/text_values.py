"""Values that are written as text, and what each declared type is in polars."""

from collections.abc import Mapping

import polars as pl

from ml_assets.spec.sources import DType

TYPES: Mapping[DType, pl.DataType] = {
    "int64": pl.Int64(),
    "float64": pl.Float64(),
    "string": pl.String(),
    "boolean": pl.Boolean(),
    "date": pl.Date(),
    "datetime": pl.Datetime("us", "UTC"),
}
"""What each declared type is in polars. NaN counts as no value, as it does in the contracts."""
_PLAIN = ("%Y-%m-%dT%H:%M:%S%.f", "%Y-%m-%dT%H:%M", "%Y-%m-%d")
"""Times without a zone, and days, which begin at midnight."""


def parse_text(
    text: pl.Series, dtype: DType, zone: str | None = None, decimal: str = "."
) -> pl.Series:
    """Text as values of a type; null where it is none.

    Args:
        zone: of times that are written without one; None: such a time is none.
        decimal: what stands before the fraction of a number.
    """
    match dtype:
        case "string":
            return text
        case "boolean":
            words = {"true": True, "false": False}
            return text.str.to_lowercase().replace_strict(
                words, default=None, return_dtype=pl.Boolean
            )
        case "date":
            return text.str.to_date("%Y-%m-%d", strict=False)
        case "datetime":
            iso = text.str.replace(" ", "T", literal=True).str.replace(r"[Zz]$", "+00:00")
            told = iso.str.to_datetime(
                "%Y-%m-%dT%H:%M:%S%.f%:z", time_unit="us", time_zone="UTC", strict=False
            )
            return told if zone is None else told.fill_null(_zoned(iso, zone))
        case "float64" if decimal != ".":
            pointed = pl.when(text.str.contains(".", literal=True)).then(None).otherwise(text)
            plain = pl.select(pointed).to_series().str.replace(decimal, ".", literal=True)
            return plain.alias(text.name).cast(TYPES[dtype], strict=False)
        case _:
            return text.cast(TYPES[dtype], strict=False)


def _zoned(iso: pl.Series, zone: str) -> pl.Series:
    """Times without a zone as those of one; an hour that comes twice is the first of the two."""
    plain = [iso.str.to_datetime(form, time_unit="us", strict=False) for form in _PLAIN]
    return (
        plain[0]
        .fill_null(plain[1])
        .fill_null(plain[2])
        .dt.replace_time_zone(zone, ambiguous="earliest", non_existent="null")
        .dt.convert_time_zone("UTC")
    )
