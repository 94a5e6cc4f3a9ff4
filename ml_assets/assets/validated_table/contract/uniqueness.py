"""Proofs that no two rows share a key, cheaper than counting the rows of each key.

Each is certain where it says yes; where it says no, the rows have to be counted. Tables of the
store are sorted by their keys, so the first proof is nearly always enough.
"""

from collections.abc import Sequence
from functools import reduce

import polars as pl


def no_repeats(rows: pl.LazyFrame, key: Sequence[pl.Expr]) -> bool:
    """Whether it is certain that no two rows have equal keys; two nulls are equal here."""
    keys = rows.select(part.alias(str(place)) for place, part in enumerate(key))
    schema = keys.collect_schema()
    if not all(_has_order(dtype) for dtype in schema.dtypes()):
        return False
    if _is_increasing(keys, schema.names()):
        return True
    return not any(dtype.is_float() for dtype in schema.dtypes()) and _hashes_differ(keys)


def _has_order(dtype: pl.DataType) -> bool:
    return dtype.is_numeric() or dtype.is_temporal() or dtype in (pl.String, pl.Boolean)


def _is_increasing(keys: pl.LazyFrame, names: Sequence[str]) -> bool:
    """Each key is greater than the one before, so it differs from all before it."""

    def after(greater: pl.Expr, name: str) -> pl.Expr:
        here, before = pl.col(name), pl.col(name).shift(1)
        return (here > before) | ((here == before) & greater)

    greater = reduce(after, reversed(names), pl.lit(False))
    steps, rows = (
        keys.select(greater.sum(), pl.len().alias("rows")).collect(engine="streaming").row(0)
    )
    return rows <= 1 or steps == rows - 1


def _hashes_differ(keys: pl.LazyFrame) -> bool:
    """Equal keys have equal hashes (but for -0.0 and 0.0), so as many hashes prove as many keys."""
    counted = keys.select(pl.struct(pl.all()).hash().n_unique(), pl.len().alias("rows"))
    hashes, rows = counted.collect(engine="streaming").row(0)
    return hashes == rows
