"""The champion's margin of a new pipeline: the difference that its holdout can detect."""

from dataclasses import dataclass
from math import floor, inf, isfinite, log10, sqrt

import polars as pl

from ml_assets.errors import counted
from ml_assets.scaffold.labelled_table import LabelledTable

ALIKE = 0.9
"""How far the losses of two models that are as good go along, row by row: their correlation."""
_SHARE = 0.2
"""The share of rows that is held out, where they are not cut in time."""
_LEAST, _MOST = 0.01, 0.25
_ENOUGH = 10
"""Days of a holdout whose spread is taken for that of days; of fewer, that of all days is."""
_SHOWN = 1.43
"""What is shown four times out of five, over half the width of the 95 % interval: see the gate."""
_SMALLEST_RATE = 1e-6
_LARGEST = 1e150
"""The square of a larger number is none."""


@dataclass(frozen=True)
class Margin:
    """Describes how much worse than the champion a model may be, and why so much."""

    value: float
    said: str


def champion_margin(table: LabelledTable, partitions: int) -> Margin:
    """The difference to the champion that the holdout shows four times out of five.

    It is estimated by the losses of the simplest forecast there: two models that are alike differ
    by what their losses do not have in common, resampled by days as the gate does it. Of a number
    it is a share of the RMSE, of classes a difference in log-loss.

    Args:
        partitions: that are held out; 0: a share of the rows.
    """
    blocked = _blocked(table)
    held = _held_out(table, blocked, partitions)
    blocks = held["__block"].n_unique()
    known = held if blocks >= _ENOUGH else blocked  # of few days nobody knows how they differ
    losses = known.with_columns(_loss(table, known)).drop_nulls("__loss")
    found = _detectable(losses, blocks)
    if table.task == "regression" and isfinite(found):
        # the share of a root is half that of what is below it
        mean = float(losses["__loss"].to_numpy().mean())
        found = found / (2 * mean) if mean > 0 else inf
    told, shows = f"the holdout's {counted(blocks, 'day')}", "shows" if blocks == 1 else "show"
    if not table.moments:  # chance parts them
        told, shows = f"a holdout of about {counted(blocks, 'row')}", "shows"
    size = _size(table, min(max(found, _LEAST), _MOST))
    if found > _MOST:
        said = f"{told} cannot show a difference of {size}: hold out more, then make it smaller"
        return Margin(_MOST, said)
    if found < _LEAST:
        said = f"{told} {shows} smaller differences than {size}, too: it may be smaller"
        return Margin(_LEAST, said)
    said = f"{told} {shows} a difference of {size} four times out of five"
    return Margin(_upward(found), f"{said}; a smaller margin refuses models that are as good")


def _blocked(table: LabelledTable) -> pl.DataFrame:
    """All rows with their outcome and their block: the day, or the row where nothing says when."""
    frame = _with_outcome(table)
    if table.moments is None:
        return frame.with_row_index("__block")
    day = pl.col(table.moments.time)
    if table.given.calendar and frame.schema[table.moments.time] != pl.Date():
        day = day.dt.convert_time_zone(table.given.calendar.zone)
    return frame.with_columns(day.cast(pl.Date).alias("__block"))


def _held_out(table: LabelledTable, blocked: pl.DataFrame, partitions: int) -> pl.DataFrame:
    """The rows that will be held out; where chance parts them, as many."""
    moments, calendar = table.moments, table.given.calendar
    if moments is None:
        return blocked.gather_every(round(1 / _SHARE))
    if calendar and calendar.cadence == "daily" and partitions:
        days = blocked["__block"].unique().sort()[-partitions:]
        return blocked.filter(pl.col("__block").is_in(days.implode()))
    share = partitions / len(calendar.keys) if calendar and partitions else _SHARE
    ordered = blocked[moments.time].sort()
    first = ordered[min(len(ordered) - 1, round(len(ordered) * (1 - share)))]
    return blocked.filter(pl.col(moments.time) >= first)


def _with_outcome(table: LabelledTable) -> pl.DataFrame:
    """The rows with what is predicted of them, and the value at their decision, where it counts."""
    time = [table.moments.time] if table.moments else []
    frame = table.frame.select(*dict.fromkeys([*table.key, *time, table.label]))
    now = pl.col(table.label)
    if table.ahead is None or table.moments is None:
        return frame.with_columns(now.alias("__label"))
    time, entity = table.moments.time, [name for name in table.key if name != table.moments.time]
    later = frame.select(*entity, pl.col(time) - table.ahead, now.alias("__label"))
    return frame.join(later, on=[*entity, time], how="left")


def _loss(table: LabelledTable, rows: pl.DataFrame) -> pl.Series:
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


def _detectable(losses: pl.DataFrame, blocks: int) -> float:
    """The difference of two mean losses that so many blocks show four times out of five.

    Args:
        losses: rows with ``__loss`` and ``__block``.
    """
    from scipy.stats import t

    sums = losses.group_by("__block").agg(pl.col("__loss").sum(), pl.len().alias("rows"))
    known = len(sums)
    if known < 2 or blocks < 2:
        return inf
    total, rows = sums["__loss"].to_numpy(), sums["rows"].to_numpy()
    if not total.max() < _LARGEST:
        return inf
    mean = total.sum() / rows.sum()
    spread = sqrt(float(((total - mean * rows) ** 2).sum()) / (known - 1)) / float(rows.mean())
    apart = spread * sqrt(2 * (1 - ALIKE) / blocks)
    return _SHOWN * float(t.isf(0.025, blocks - 1)) * apart


def _upward(value: float) -> float:
    """Two digits of a number, rounded up."""
    scale = 10 ** (floor(log10(value)) - 1)
    return round(-(-value // scale) * scale, 6)


def _size(table: LabelledTable, value: float) -> str:
    shown = _upward(value)
    return (
        f"{100 * shown:g}% of the RMSE" if table.task == "regression" else f"{shown:g} in log-loss"
    )
