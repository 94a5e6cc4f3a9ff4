"""Cuts rows without partitions into periods: by the time of their decision, or by number."""

from datetime import UTC, datetime, timedelta

import numpy as np
import polars as pl

from ml_assets.spec.drift import DriftSpec, in_order
from ml_assets.spec.pipeline import PipelineSpec

_MONDAY = datetime(2001, 1, 1, tzinfo=UTC)
"""Slices are counted from here, so that those of a week begin on its first day."""
_FEW = 0.5
"""Of the median slice: one with fewer rows joins the one before, for it says little by itself."""


def slice_names(rows: pl.DataFrame, spec: PipelineSpec, first: int = 0) -> pl.Series:
    """[n] the slice that each row is of.

    Args:
        rows: of feature_set.
        first: how many rows come before, where slices are counted in rows.
    """
    drift = spec.drift
    if drift is None or not len(rows):
        return pl.Series([], dtype=pl.String)
    places = _places(rows, drift, spec.features.decision_at)
    known, counts = np.unique(places, return_counts=True)
    few = counts < _FEW * np.median(counts)
    heads = [n for n in range(len(known)) if not few[n]]
    heads[0] = 0  # the first slices join the first that is long enough
    owner = known[np.array(heads)[np.searchsorted(heads, np.arange(len(known)), side="right") - 1]]
    owners = owner[np.searchsorted(known, places)]
    if drift.every is not None:
        names = {place: _moment(int(place), drift.every) for place in np.unique(owners)}
    else:
        ends = np.searchsorted(owners, np.unique(owners), side="right")
        begins = [0, *ends[:-1]]
        names = {
            owners[begin]: f"rows {first + begin + 1}-{first + end}"
            for begin, end in zip(begins, ends, strict=True)
        }
    return pl.Series([names[one] for one in owners])


def slices(rows: pl.DataFrame, spec: PipelineSpec, first: int = 0) -> dict[str, pl.DataFrame]:
    """Slice -> its rows, oldest first."""
    names = slice_names(rows, spec, first)
    return {name: rows.filter(names == name) for name in in_order(names.unique().to_list())}


def whole_slices(rows: pl.DataFrame, spec: PipelineSpec, first: int) -> dict[str, pl.DataFrame]:
    """The slices of new rows that nothing will be added to: those by time have ended, those by
    number are full."""
    drift = spec.drift
    if drift is None:
        return {}
    if drift.every is None:
        size = drift.rows or 1
        return slices(rows.head(len(rows) // size * size), spec, first)
    now = int((datetime.now(UTC) - _MONDAY) // drift.every)
    places = _places(rows, drift, spec.features.decision_at)
    return slices(rows.filter(pl.Series(places < now, dtype=pl.Boolean)), spec, first)


def _places(rows: pl.DataFrame, drift: DriftSpec, decision_at: str) -> np.ndarray:
    """[n] the number of each row's slice."""
    if drift.every is None:
        return np.arange(len(rows)) // (drift.rows or 1)
    since = (rows[decision_at] - _MONDAY).dt.total_microseconds().to_numpy()
    return since // (drift.every // timedelta(microseconds=1))


def _moment(place: int, every: timedelta) -> str:
    begin = _MONDAY + place * every
    return f"{begin:%Y-%m-%d}" if every % timedelta(days=1) == timedelta(0) else f"{begin:%F %H:%M}"
