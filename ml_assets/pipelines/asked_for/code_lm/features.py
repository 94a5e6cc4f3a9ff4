"""Each source file as a text, and how many bytes it has: what bits are counted for."""

from collections.abc import Mapping

import polars as pl

from ml_assets.spec.window import Window


def build(tables: Mapping[str, pl.LazyFrame], window: Window) -> pl.LazyFrame:
    """One row for each file."""
    return tables["sources"].with_columns(pl.col("text").str.len_bytes().alias("bytes"))
