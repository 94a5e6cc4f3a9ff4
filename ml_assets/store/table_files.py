"""Tables as Parquet files with equal bytes for equal content, and what the UI shows of them."""

import os
import re
from collections.abc import Sequence
from pathlib import Path

import polars as pl

from ml_assets.errors import counted, visible

ROW_GROUP_SIZE = 100_000
_MARKUP = re.compile(r"([\\`<>|\[\]])")
"""What Markdown and HTML would take for something else in a cell."""


def write_table(frame: pl.LazyFrame | pl.DataFrame, file: Path, key: Sequence[str]) -> int:
    """Write a table sorted by its key and return its number of rows.

    The order, the size of a row group and the compression are fixed: equal content is equal bytes
    (with one version of polars). The file appears whole, by rename; a store syncs its own copy.
    Rows of a file that lie in the order of their key stream through memory.
    """
    rows = frame.lazy()
    if not in_order(rows, key):
        ties = [name for name in rows.collect_schema().names() if name not in key]
        rows = rows.collect().sort([*key, *ties], maintain_order=True).lazy()
    draft = file.with_name(f".{file.name}.{os.getpid()}")
    rows.sink_parquet(draft, compression="zstd", compression_level=3, row_group_size=ROW_GROUP_SIZE)
    os.replace(draft, file)
    return pl.scan_parquet(file, glob=False).select(pl.len()).collect().item()


def in_order(rows: pl.LazyFrame | pl.DataFrame, key: Sequence[str]) -> bool:
    """Whether rows lie as they would be sorted by their key, and no key is null or there twice."""
    after = pl.lit(False)
    for name in reversed(key):
        before, value = pl.col(name).shift(), pl.col(name)
        after = (before < value) | ((before == value) & after)
    ordered = after.slice(1).all(ignore_nulls=False)
    return bool(key) and rows.lazy().select(ordered).collect(engine="streaming").item() is True


def column_schema(frame: pl.LazyFrame | pl.DataFrame) -> dict[str, str]:
    """Column -> type, as polars names it."""
    return {name: str(dtype) for name, dtype in frame.lazy().collect_schema().items()}


def missing_shares(frame: pl.LazyFrame | pl.DataFrame) -> dict[str, float]:
    """Column -> share of its values that are missing (null, NaN), of the columns that have any."""
    lazy = frame.lazy()
    counts = lazy.select(
        pl.len().alias(""),
        *(_missing(name, dtype).sum().alias(name) for name, dtype in lazy.collect_schema().items()),
    ).collect(engine="streaming")
    rows, *missing = counts.row(0)
    return {
        name: count / rows for name, count in zip(counts.columns[1:], missing, strict=True) if count
    }


def _missing(name: str, dtype: pl.DataType) -> pl.Expr:
    null = pl.col(name).is_null()
    return null | pl.col(name).is_nan().fill_null(False) if dtype.is_float() else null


def preview_markdown(frame: pl.LazyFrame | pl.DataFrame, rows: int = 5, columns: int = 12) -> str:
    """The first rows as a Markdown table; wide tables are cut and say so."""
    names = frame.lazy().collect_schema().names()
    head = frame.lazy().select(names[:columns]).head(rows).collect()
    columns_shown = " | ".join(_cell(name) for name in head.columns)
    lines = [f"| {columns_shown} |", f"|{'---|' * len(head.columns)}"]
    for row in head.iter_rows():
        lines.append(f"| {' | '.join(_cell(value) for value in row)} |")
    if len(names) > columns:
        more = ", ".join(_cell(name) for name in names[columns:])
        lines.append(f"\n{counted(len(names) - columns, 'more column')}: {more}")
    return "\n".join(lines)


def _cell(value: object) -> str:
    if value is None:
        return ""
    text = f"{value:.4g}" if isinstance(value, float) else str(value)
    return _MARKUP.sub(r"\\\1", visible(" ".join(text[:60].split())))
