"""The history features of a new time series: lags, trailing means, and its season."""

from datetime import timedelta
from typing import Literal

import polars as pl

from ml_assets.scaffold.labelled_table import LabelledTable, free_name
from ml_assets.spec.pipeline import SHORTEST

_ENTITIES = 50
"""With more of them, which one a row is of is no feature."""
_DAY, _WEEK = timedelta(days=1), timedelta(days=7)


def lags(table: LabelledTable) -> list[timedelta]:
    """Return how far back single values of the label's column are looked up."""
    step = _step(table)
    if step is None:
        return []
    if step < _DAY:
        return sorted({step, 3 * step, _DAY})
    return sorted({step, 2 * step, _WEEK} if step == _DAY else {step, 2 * step})


def spans(table: LabelledTable) -> list[timedelta]:
    """Over how long its mean is taken."""
    step = _step(table)
    if step is None:
        return []
    if step < _DAY:
        return sorted({6 * step, _DAY})
    return [_WEEK, 4 * _WEEK] if step == _DAY else [4 * step]


def season(table: LabelledTable) -> timedelta | None:
    """The length of the season, at least as long as the label is ahead; None: there is none."""
    step = _step(table)
    if step is None or step > _DAY or table.ahead is None:
        return None
    wave = _DAY if step < _DAY else _WEEK
    return -(-table.ahead // wave) * wave


def first_partitions(table: LabelledTable) -> int:
    """Return how many earlier partitions hold all of that past."""
    calendar = table.given.calendar
    if calendar is None:
        return 0
    reach = max([*lags(table), *spans(table)], default=timedelta(0)) + (table.ahead or timedelta(0))
    return -(-reach // SHORTEST[calendar.cadence])


def partitions_ahead(table: LabelledTable) -> int:
    """Return how many partitions lie between a decision and its outcome, at most."""
    calendar = table.given.calendar
    if calendar is None or table.ahead is None:
        return 0
    return -(-table.ahead // SHORTEST[calendar.cadence])


def numeric(table: LabelledTable) -> list[str]:
    """The numeric features: columns of the table, and those of its past."""
    own = [table.label] if table.ahead and table.task == "regression" else []
    past = [past_name(table, "lag", back) for back in lags(table)]
    past += [past_name(table, "mean", span) for span in spans(table)]
    return [*own, *table.names("numeric"), *past]


def past_name(table: LabelledTable, of: Literal["lag", "mean"], back: timedelta) -> str:
    """The name of a column of the past: a column of the table keeps its own."""
    return free_name(usual_name(table, of, back), table.frame.columns)


def usual_name(table: LabelledTable, of: Literal["lag", "mean"], back: timedelta) -> str:
    """The name that ``lag`` and ``trailing`` give."""
    return f"{table.label}_{of}_{short(back)}"


def categorical(table: LabelledTable) -> list[str]:
    """The categorical features: words, what the rows are of, and their hour and weekday."""
    moments = table.moments
    entity = [
        name
        for name in table.key
        if moments and moments.is_series and table.frame.schema[name] == pl.String()
        if table.frame[name].n_unique() <= _ENTITIES
    ]
    return [*entity, *table.names("categorical"), *calendar_features(table)]


def calendar_features(table: LabelledTable) -> dict[str, str]:
    """The name of a column that the function adds -> the part of the time that it is."""
    step = _step(table)
    if step is None or step > _DAY:
        return {}
    parts = ["hour", "weekday"] if step < _DAY else ["weekday"]
    return {free_name(part, table.frame.columns): part for part in parts}


def short(value: timedelta) -> str:
    """``3h``, ``7d``, ``15min``."""
    for unit, size in (("d", _DAY), ("h", timedelta(hours=1))):
        if value % size == timedelta(0):
            return f"{value // size}{unit}"
    return f"{value // timedelta(minutes=1)}min"


def _step(table: LabelledTable) -> timedelta | None:
    if table.moments is None or not table.moments.is_series or table.task != "regression":
        return None
    return table.moments.step
