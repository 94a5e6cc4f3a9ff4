"""The champion's margin of a new pipeline: what its holdout can tell apart, in words, too."""

from dataclasses import dataclass
from math import floor, log10, sqrt

import numpy as np
import polars as pl

from ml_assets.scaffold.labelled_table import Table

ALIKE = 0.9
"""How far the losses of two models that are as good go along, row by row: their correlation."""
_SHARE = 0.2
"""Of rows that are not cut in time so many are held out."""
_LEAST, _MOST = 0.01, 0.25
_SHOWN = 1.43
"""What is shown four times out of five, over half the width of the 95 % interval: see the gate."""
_SMALLEST_RATE = 1e-6


@dataclass(frozen=True)
class Margin:
    """How much worse than the champion a model may be, and why so much."""

    value: float
    said: str


def champion_margin(table: Table, partitions: int) -> Margin:
    """The difference to the champion that the holdout shows four times out of five.

    It is estimated by the losses of the simplest forecast there: two models that are alike differ
    by what their losses do not have in common, resampled by days as the gate does it. Of a number
    it is a share of the RMSE, of classes a difference in log-loss.

    Args:
        partitions: that are held out; 0: a share of the rows.
    """
    rows = _held_out(table, partitions)
    losses = rows.with_columns(_loss(table, rows)).drop_nulls("__loss")
    whole = float(losses["__loss"].mean() or 0.0)  # pyright: ignore[reportArgumentType]
    unit = "day" if table.moments else "row"
    sums = losses.group_by("__block").agg(pl.col("__loss").sum(), pl.len().alias("rows"))
    found = _detectable(sums["__loss"].to_numpy(), sums["rows"].to_numpy(), whole)
    if table.task == "regression":
        found = found / (2 * whole) if whole else np.inf
    count = f"{len(sums):,} {unit}{'' if len(sums) == 1 else 's'}"
    size, more = _size(table, min(found, _MOST)), f"the holdout's {count}"
    if found > _MOST:
        return Margin(
            _MOST,
            f"{more} show no difference below {size}: hold out more, and set a smaller margin",
        )
    if found < _LEAST:
        return Margin(_LEAST, f"{more} show smaller differences than {_size(table, _LEAST)}, too")
    return Margin(
        _upward(found),
        f"{more} show a difference of {size} four times out of five; a smaller margin refuses many"
        " models that are as good",
    )


def _held_out(table: Table, partitions: int) -> pl.DataFrame:
    """The rows that will be held out, with their block; where chance parts them, a sample."""
    frame = _with_outcome(table)
    moments = table.moments
    if moments is None:
        kept = frame.gather_every(round(1 / _SHARE))
        return kept.with_row_index("__block")
    blocked = frame.with_columns(pl.col(moments.time).cast(pl.Date).alias("__block"))
    days = blocked["__block"].unique().sort()
    calendar = table.given.calendar
    if calendar is None or not partitions:
        ordered = blocked[moments.time].sort()
        first = ordered[min(len(ordered) - 1, round(len(ordered) * (1 - _SHARE)))]
        return blocked.filter(pl.col(moments.time) >= first)
    share = partitions / len(calendar.keys)
    first = days[min(len(days) - 1, round(len(days) * (1 - share)))]
    return blocked.filter(pl.col("__block") >= first)


def _with_outcome(table: Table) -> pl.DataFrame:
    """The rows with what is predicted of them, and the value at their decision, where it counts."""
    frame, now = table.frame, pl.col(table.label)
    if table.ahead is None or table.moments is None:
        return frame.with_columns(now.alias("__label"))
    time, entity = table.moments.time, [name for name in table.key if name != table.moments.time]
    later = frame.select(*entity, pl.col(time) - table.ahead, now.alias("__label"))
    return frame.join(later, on=[*entity, time], how="left")


def _loss(table: Table, rows: pl.DataFrame) -> pl.Series:
    """[n] of the simplest forecast: nothing changes, else the mean, else how often a class is."""
    label = rows["__label"]
    if table.task == "regression":
        value = label.cast(pl.Float64)
        guess = rows[table.label].cast(pl.Float64) if table.ahead else value.mean()
        return ((value - guess) ** 2).alias("__loss")
    rates = label.drop_nulls().value_counts(normalize=True, name="rate")
    of_class = dict(zip(rates[label.name].to_list(), rates["rate"].to_list(), strict=True))
    rate = label.replace_strict(of_class, default=None, return_dtype=pl.Float64)
    return -rate.clip(_SMALLEST_RATE).log().alias("__loss")


def _detectable(sums: np.ndarray, rows: np.ndarray, mean: float) -> float:
    """The difference of two mean losses that is shown four times out of five.

    Args:
        sums: [blocks] of the losses of each block.
        rows: [blocks] how many they are of.
    """
    from scipy.stats import t

    blocks = len(sums)
    if blocks < 2:
        return float("inf")
    variance = blocks / (blocks - 1) * float(((sums - mean * rows) ** 2).sum()) / rows.sum() ** 2
    apart = sqrt(2 * (1 - ALIKE) * variance)
    return _SHOWN * float(t.isf(0.025, blocks - 1)) * apart


def _upward(value: float) -> float:
    """Two digits of a number, rounded up."""
    scale = 10 ** (floor(log10(value)) - 1)
    return round(-(-value // scale) * scale, 6)


def _size(table: Table, value: float) -> str:
    shown = _upward(value)
    return f"{shown:.2%}".replace(".00%", "%") if table.task == "regression" else f"{shown:g}"
