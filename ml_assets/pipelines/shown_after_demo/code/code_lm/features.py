"""One row per source file: its text, and its number of bytes, which bits are divided by."""

from collections.abc import Mapping

import polars as pl

from ml_assets.spec.window import Window


def build(tables: Mapping[str, pl.LazyFrame], window: Window) -> pl.LazyFrame:
    """One row for each file."""
    return tables["sources"].with_columns(pl.col("text").str.len_bytes().alias("bytes"))
