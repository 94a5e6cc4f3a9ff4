"""Computes a table's statistics in two streaming passes of Polars, keeping only a few rows.

The first pass finds counts, ranges and the sample, the second counts the bins that the ranges
allow.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import polars as pl

from ml_assets.store.table_statistics import (
    SAMPLED,
    WORDS,
    Column,
    Grouped,
    Histogram,
    Kind,
    Labels,
    Numbers,
    SampledRow,
    TableStatistics,
    Texts,
    bounded,
    finest_level,
    largest,
)

TEXT = 80
"""Characters of a value by which it is told from others; a cell of the sample shows fewer."""
_CELL = 60
_SEED = 0
_HASH = "hash"


@dataclass(frozen=True)
class LabelColumns:
    """Says which column is the label, and by what it is looked at."""

    label: str
    classes: Sequence[str] = ()
    """The classes of a label that is one of them; else it is a number, or true or false."""
    by: Sequence[str] = ()
    period: str | None = None
    """A column of times: labels by its days, in UTC."""


def survey(
    table: pl.LazyFrame | pl.DataFrame, key: Sequence[str], labels: LabelColumns | None = None
) -> TableStatistics:
    """The statistics of one table.

    Args:
        key: columns by which a row is known; all of them where there is none.
        labels: of a table that has a label.
    """
    names = table.lazy().collect_schema().names()
    place = {name: str(at) for at, name in enumerate(names)}
    rows = table.lazy().rename(place)  # a column may be called anything
    schema = rows.collect_schema()
    by = [place[name] for name in key] or schema.names()
    asked = [_counts(rows, schema, by), _sample(rows, schema, by)]
    placed = _placed(schema, labels, place) if labels else None
    groupings = ["", *_groupings(placed)] if placed else []
    asked += [_labels(rows, schema, placed, name) for name in groupings if placed]
    counts, sample, *groups = pl.collect_all(asked, engine="streaming")
    first = counts.row(0, named=True)
    second = _bins(rows, schema, first)
    told = [
        Grouped(by=names[int(by)] if by else "", groups=_group(frame))
        for by, frame in zip(groupings, groups, strict=True)
    ]
    repeated = first["rows"] - first["keys"]
    return TableStatistics(
        rows=first["rows"],
        columns=tuple(
            _column(name, place[name], schema[place[name]], first, second) for name in names
        ),
        key=tuple(key),
        repeated_keys=repeated,
        repeated_rows=_repeated(rows, first["rows"]) if repeated else 0,
        labels=told[0].groups[0] if told else None,
        grouped=tuple(told[1:]),
        sample=_sampled(sample),
        sampled_columns=tuple(names),
    )


def _placed(schema: pl.Schema, labels: LabelColumns, place: Mapping[str, str]) -> LabelColumns:
    """The same by the places of the columns; without those that are not there, or are no times."""
    period = place.get(labels.period or "")
    timed = period is not None and kind_of(schema[period]) == "time"
    by = dict.fromkeys(place[name] for name in labels.by if name in place)
    return LabelColumns(
        label=place[labels.label],
        classes=labels.classes,
        by=tuple(name for name in by if name != period),
        period=period if timed else None,
    )


def _groupings(labels: LabelColumns) -> list[str]:
    return [*labels.by, *([labels.period] if labels.period else [])]


def kind_of(dtype: pl.DataType) -> Kind:
    """Return how the values of a type are counted."""
    if dtype.is_numeric():
        return "number"
    if isinstance(dtype, (pl.Date, pl.Datetime)):
        return "time"
    if isinstance(dtype, pl.Duration):
        return "span"
    texts = (pl.String, pl.Boolean, pl.Categorical, pl.Enum, pl.Time)
    return "text" if isinstance(dtype, texts) else "other"


def _value(name: str, dtype: pl.DataType) -> pl.Expr:
    """A column as the numbers that are counted; what is not finite is null."""
    match kind_of(dtype):
        case "time":
            return pl.col(name).dt.epoch("us").cast(pl.Float64)
        case "span":
            return pl.col(name).dt.total_microseconds().cast(pl.Float64)
        case _:
            number = pl.col(name).cast(pl.Float64, strict=False)
            return pl.when(number.is_finite()).then(number)


def _counts(rows: pl.LazyFrame, schema: pl.Schema, key: Sequence[str]) -> pl.LazyFrame:
    asked = [pl.len().alias("rows"), pl.struct(key).n_unique().alias("keys")]
    for name, dtype in schema.items():
        asked.append(pl.col(name).null_count().alias(_named(name, "null")))
        if dtype.is_float():
            asked.append(pl.col(name).is_nan().sum().alias(_named(name, "nan")))
            asked.append(pl.col(name).is_infinite().sum().alias(_named(name, "infinite")))
        if kind_of(dtype) in ("number", "time", "span"):
            value = _value(name, dtype)
            asked += [
                value.count().alias(_named(name, "count")),
                value.min().alias(_named(name, "low")),
                value.max().alias(_named(name, "high")),
                value.mean().alias(_named(name, "mean")),
                value.var(ddof=0).alias(_named(name, "variance")),
            ]
    return rows.select(asked)


def _bins(
    rows: pl.LazyFrame, schema: pl.Schema, first: Mapping[str, Any]
) -> dict[str, pl.DataFrame]:
    """Column -> its bins or values (``value``), each with its ``count``."""
    asked: list[pl.Expr] = []
    for name, dtype in schema.items():
        kind = kind_of(dtype)
        if kind == "text":
            text = pl.col(name).cast(pl.String).str.slice(0, TEXT)
            asked.append(_counted(text, name))
        elif kind != "other" and first[_named(name, "count")]:
            level = finest_level(first[_named(name, "low")], first[_named(name, "high")])
            asked.append(_counted(_place(_value(name, dtype), level), name))
    if not asked:
        return {}
    found = rows.select(asked).collect(engine="streaming")
    return {one.name: one[0].struct.unnest() for one in found.get_columns()}


def _place(value: pl.Expr, level: int) -> pl.Expr:
    """The bin of a value; the power of two is taken in two steps, for one may be no float."""
    half = level // 2
    place = (value / 2.0**half / 2.0 ** (level - half)).floor().cast(pl.Int64)
    if level <= 0:
        return place
    lost = (value < 0) & (place == 0)  # less than the smallest float remained of it
    return pl.when(lost).then(-1).otherwise(place)


def _counted(value: pl.Expr, name: str) -> pl.Expr:
    counts = value.drop_nulls().alias("value").value_counts(name="count")
    return counts.implode().alias(name)


def _column(
    name: str,
    at: str,
    dtype: pl.DataType,
    first: Mapping[str, Any],
    second: Mapping[str, pl.DataFrame],
) -> Column:
    kind = kind_of(dtype)
    missing = first[_named(at, "null")] + (first.get(_named(at, "nan")) or 0)
    return Column(
        name=name,
        type=str(dtype),
        kind=kind,
        missing=missing,
        infinite=first.get(_named(at, "infinite")) or 0,
        numbers=_numbers(at, first, second) if kind not in ("text", "other") else None,
        texts=_texts(second[at]) if kind == "text" else None,
    )


def _texts(values: pl.DataFrame) -> Texts:
    ranked = values.sort("count", "value", descending=[True, False]).head(WORDS + 1)
    return Texts.of(dict(ranked.iter_rows()), int(values["count"].sum()), len(values), 0)


def _numbers(
    name: str, first: Mapping[str, Any], second: Mapping[str, pl.DataFrame]
) -> Numbers | None:
    rows = first[_named(name, "count")]
    if not rows:
        return None
    bins = second[name]
    low, high = first[_named(name, "low")], first[_named(name, "high")]
    squares = first[_named(name, "variance")] * rows
    return Numbers(
        rows=rows,
        low=low,
        high=high,
        mean=bounded(first[_named(name, "mean")]),
        squares=bounded(squares),
        histogram=Histogram.of(
            bins["value"].to_numpy(),
            bins["count"].cast(pl.Int64).to_numpy(),
            finest_level(low, high),
        ),
    )


def _repeated(rows: pl.LazyFrame, count: int) -> int:
    different = rows.select(pl.struct(pl.all()).n_unique()).collect(engine="streaming").item()
    return count - different


def _labels(rows: pl.LazyFrame, schema: pl.Schema, labels: LabelColumns, by: str) -> pl.LazyFrame:
    """Labels by the values of a column; of all rows where no column is named."""
    if not by:
        return rows.select(pl.lit("").alias("value"), *_sums(schema, labels))
    group = pl.col(by).dt.date() if by == labels.period else pl.col(by)
    value = group.cast(pl.String).fill_null("(missing)").str.slice(0, TEXT).alias("value")
    return rows.group_by(value).agg(_sums(schema, labels))


def _sums(schema: pl.Schema, labels: LabelColumns) -> list[pl.Expr]:
    label = pl.col(labels.label)
    if labels.classes:
        text = label.cast(pl.String)
        sums = [(text == name).sum().cast(pl.Float64) for name in labels.classes]
    else:
        number = label.cast(pl.Float64, strict=False)
        sums = [pl.when(number.is_finite()).then(number).sum()]
    missing = label.is_null()
    if schema[labels.label].is_float():
        missing |= label.is_nan()
    return [
        pl.len().alias("rows"),
        (~missing).sum().alias("labelled"),
        *(one.alias(f"sum {place}") for place, one in enumerate(sums)),
    ]


def _group(frame: pl.DataFrame) -> tuple[Labels, ...]:
    return largest(
        Labels(value=value, rows=rows, labelled=labelled, sums=tuple(map(bounded, sums)))
        for value, rows, labelled, *sums in frame.iter_rows()
    )


def _sample(rows: pl.LazyFrame, schema: pl.Schema, key: Sequence[str]) -> pl.LazyFrame:
    """The rows with the smallest hash of their key: the same whatever the order, and they add."""
    hashed = pl.struct(key).hash(seed=_SEED).alias(_HASH)
    # as text: Python has no year of five digits
    times = {name for name, dtype in schema.items() if kind_of(dtype) == "time"}
    shown = [pl.col(name).cast(pl.String if name in times else schema[name]) for name in schema]
    return rows.select(hashed, *shown).bottom_k(SAMPLED, by=[_HASH, *key])


def _sampled(sample: pl.DataFrame) -> tuple[SampledRow, ...]:
    rows = [
        SampledRow(hash=hashed, cells=tuple(_cell(value) for value in cells))
        for hashed, *cells in sample.iter_rows()
    ]
    return tuple(sorted(rows, key=lambda row: (row.hash, row.cells)))


def _cell(value: object) -> str:
    if value is None:
        return ""
    text = f"{value:.6g}" if isinstance(value, float) else str(value)
    return text if len(text) <= _CELL else f"{text[: _CELL - 1]}…"


def _named(column: str, what: str) -> str:
    return f"{column} {what}"
