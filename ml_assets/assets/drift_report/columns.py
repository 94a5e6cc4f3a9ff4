"""Compares each column of new rows with a profile: distances, nulls and new categories, with
bounds.

A bound is the largest of an effect that matters, of chance with so many rows, and of what the
training periods themselves did, each against all others.
"""

from dataclasses import dataclass
from math import sqrt
from typing import get_args

import numpy as np

from ml_assets.assets.drift_report.distances import (
    Distances,
    Floats,
    Mask,
    chance,
    distances,
    noise,
)
from ml_assets.assets.drift_report.findings import Cause, Finding, Measure, Statistic
from ml_assets.assets.evaluation_report.drift_profile import (
    BinColumns,
    Bins,
    Counts,
    NumericBins,
    Period,
    Profile,
    labels,
    merge,
)
from ml_assets.errors import quoted
from ml_assets.spec.drift import DriftBounds, DriftKind

_DISTANCES: tuple[Statistic, ...] = ("psi", "ks", "js")
_OF_FEATURES: tuple[tuple[DriftKind, tuple[Statistic, ...]], ...] = (
    ("nulls", ("null_share",)),
    ("categories", ("new_share",)),
)
FEWEST_PERIODS = 4
"""The fewest periods; of fewer, nobody can tell how much they differ by themselves."""
SPREADS = 5.0
"""Most standard deviations that a back-tested bound lies above the mean of the periods."""
SMALLEST_RISE = 0.005
"""A null rate that rises by less is not worth a word."""
RESTLESS = 0.1
"""A column that in half of the training periods is so far from the others (Jensen-Shannon, chance
taken off) differs by itself: a classifier would tell every period by it."""


@dataclass(frozen=True)
class BackTest:
    """Holds what unchanged data did so far: each training period against the others. [columns]"""

    periods: int
    psi: Floats
    """To be added to the bound of chance; so are the squares of the next two."""
    ks: Floats
    js: Floats
    null: Floats
    """Highest null rate to expect."""
    new: Floats
    """Highest share of new words to expect."""
    restless: Mask
    """Columns that tell the period, such as a week's number or its weather."""


@dataclass(frozen=True)
class Reference:
    """Holds what new rows are held to: counts, and what chance and the periods do to them."""

    columns: BinColumns
    counts: Counts
    """[columns, bins]"""
    rows: int
    back: BackTest

    @classmethod
    def of(cls, profile: Profile, alpha: float) -> "Reference":
        """The reference of a profile, back-tested on its own periods."""
        columns = BinColumns(profile.bins)
        counts = columns.matrix(merge(profile.periods, None))
        return cls(columns, counts, profile.rows, back_test(profile, alpha))

    def of_season(self, season: Period) -> "Reference":
        """The same bins and the same back-test, with the counts of another time."""
        return Reference(self.columns, self.columns.matrix(season), season.rows, self.back)


def back_test(profile: Profile, alpha: float) -> BackTest:
    """Return how far each period was from all others together, beyond what chance does.

    The bound is mean + t sd sqrt(1 + 1/P) of the periods' distances (a prediction interval), t of
    P - 1 degrees and at most ``SPREADS``; the noise of the rows is taken off first.
    """
    columns, periods = BinColumns(profile.bins), len(profile.periods)
    width = len(profile.bins)
    if periods < FEWEST_PERIODS or not width:
        none = np.zeros(width)
        return BackTest(0, none, none, none, none, none, none.astype(bool))
    counts = np.stack([columns.matrix(period) for period in profile.periods])
    rest = counts.sum(axis=0) - counts
    found = distances(counts, rest, columns.real, columns.numeric)
    rows = counts.sum(axis=-1).max(axis=-1, initial=0)
    by_chance = noise(rows, rows.sum() - rows, columns.real.sum(axis=-1))
    spread = _Spread(periods, alpha)
    js = np.sqrt(np.maximum(found.js**2 - by_chance.js**2, 0))
    null = _taken(counts, columns.null) / np.maximum(rows, 1)[:, None]
    alone = np.array([period.alone or (0,) * width for period in profile.periods])
    return BackTest(
        periods=periods,
        psi=spread.bound(np.sqrt(np.maximum(found.psi - by_chance.psi, 0))) ** 2,
        ks=spread.bound(np.sqrt(np.maximum(found.ks**2 - by_chance.ks**2, 0))),
        js=spread.bound(js),
        null=spread.of_shares(null, rows),
        new=spread.of_shares(alone / np.maximum(rows, 1)[:, None], rows),
        restless=np.median(js, axis=0) > RESTLESS,
    )


class _Spread:
    """Prediction bounds for one more period. [periods, columns] -> [columns]"""

    def __init__(self, periods: int, alpha: float) -> None:
        from scipy.stats import t

        times = min(float(t.isf(alpha, periods - 1)), SPREADS)
        self._factor = times * sqrt(1 + 1 / periods)

    def bound(self, values: Floats) -> Floats:
        return values.mean(axis=0) + self._factor * values.std(axis=0, ddof=1)

    def of_shares(self, values: Floats, rows: np.ndarray) -> Floats:
        """The same, the binomial noise of so many rows taken off."""
        mean = values.mean(axis=0)
        sampled = mean * (1 - mean) * (1 / np.maximum(rows, 1)).mean()
        own = np.maximum(values.var(axis=0, ddof=1) - sampled, 0)
        return np.where(own > 0, mean + self._factor * np.sqrt(own), 0.0)


@dataclass(frozen=True)
class Held:
    """Values and bounds of every statistic, [columns] each; ``new_share`` -1: not judged."""

    values: dict[Statistic, Floats]
    bounds: dict[Statistic, Floats]
    causes: dict[Statistic, list[Cause]]
    """What sets each bound."""


def hold(reference: Reference, new: Counts, rows: int, effects: DriftBounds, alpha: float) -> Held:
    """New counts [columns, bins] beside their bounds."""
    columns, back = reference.columns, reference.back
    found = distances(new, reference.counts, columns.real, columns.numeric)
    by_chance = chance(rows, reference.rows, columns.real.sum(axis=-1), alpha)
    distance_bounds = Distances(
        psi=np.maximum(effects.psi, by_chance.psi + back.psi),
        ks=np.clip(np.hypot(by_chance.ks, back.ks), effects.ks, 1.0),
        js=np.clip(np.hypot(by_chance.js, back.js), effects.js, 1.0),
    )
    null = _Shares(_taken(reference.counts, columns.null), reference.rows, rows, alpha)
    once = np.array([getattr(one, "once", 0) for one in columns.bins])
    fresh = _Shares(once, reference.rows, rows, alpha)
    matter = np.maximum(_risen(null.rate, effects.null_ratio), null.rate + SMALLEST_RISE)
    return Held(
        values={
            "psi": found.psi,
            "ks": found.ks,
            "js": found.js,
            "null_share": _taken(new, columns.null) / max(rows, 1),
            "new_share": np.where(columns.new < 0, -1, _taken(new, columns.new) / max(rows, 1)),
        },
        bounds={
            "psi": distance_bounds.psi,
            "ks": distance_bounds.ks,
            "js": distance_bounds.js,
            "null_share": np.clip(null.bound(back.null), matter, 1.0),
            "new_share": np.maximum(effects.new_share, fresh.bound(back.new)),
        },
        causes={
            "psi": _causes(distance_bounds.psi, effects.psi, by_chance.psi, back.psi),
            "ks": _causes(distance_bounds.ks, effects.ks, by_chance.ks, back.ks),
            "js": _causes(distance_bounds.js, effects.js, by_chance.js, back.js),
            "null_share": _causes(null.bound(back.null), matter, null.highest, back.null),
            "new_share": _causes(fresh.bound(back.new), effects.new_share, fresh.highest, back.new),
        },
    )


def _causes(bound: Floats, effect: Floats | float, chance: Floats, periods: Floats) -> list[Cause]:
    """What sets each of the bounds. [columns]"""
    beside = np.where(chance >= periods, "chance", "periods")
    names = np.where(bound <= effect, "effect", beside).tolist()
    return [cause for name in names for cause in get_args(Cause) if cause == name]


def _risen(rate: Floats, ratio: float) -> Floats:
    """A null rate so many times as high; where most is null, so many times fewer values."""
    return np.minimum(rate * ratio, 1 - (1 - rate) / ratio)


class _Shares:
    """A share that ``hits`` of ``rows`` have, and the highest that chance gives ``new`` rows."""

    def __init__(self, hits: np.ndarray, rows: int, new: int, alpha: float) -> None:
        self._hits, self._rows, self._new, self._alpha = hits, max(rows, 1), max(new, 1), alpha

    @property
    def rate(self) -> Floats:
        return self._hits / self._rows

    @property
    def highest(self) -> Floats:
        """The highest rate that the reference leaves possible (Clopper-Pearson)."""
        from scipy.special import betaincinv

        misses = np.maximum(self._rows - self._hits, 0)
        return np.where(
            misses > 0, betaincinv(self._hits + 1, np.maximum(misses, 1), 1 - self._alpha), 1.0
        )

    def bound(self, expected: Floats) -> Floats:
        """The binomial quantile at the highest rate, or at the expected one if that is higher."""
        from scipy.stats import binom

        rate = np.minimum(np.maximum(self.highest, expected), 1.0)
        return binom.isf(self._alpha, self._new, rate) / self._new


def judge_columns(
    reference: Reference,
    season: Reference | None,
    period: Period,
    effects: DriftBounds,
    alpha: float,
    kind: DriftKind,
) -> list[Finding]:
    """The findings of each column of a period; features have nulls and new categories apart.

    Args:
        alpha: the chance that one statistic of one column may be beyond its bound.
    """
    new = reference.columns.matrix(period)
    held = hold(reference, new, period.rows, effects, alpha)
    beside = hold(season, new, period.rows, effects, alpha) if season else None
    found: list[Finding] = []
    parts = [(kind, _DISTANCES), *(_OF_FEATURES if kind == "features" else ())]
    for place, bins in enumerate(reference.columns.bins):
        for name, statistics in parts:
            measures = tuple(
                _measure(held, beside, statistic, place)
                for statistic in statistics
                if held.values[statistic][place] >= 0
                and (statistic != "ks" or reference.columns.numeric[place])
            )
            if measures:
                one = Finding(kind=name, column=bins.name, measures=measures)
                if one.drifted and name == kind:
                    said = moved(bins, new[place], reference.counts[place])
                    one = one.model_copy(update={"moved": said})
                found.append(one)
    return found


def moved(bins: Bins, new: np.ndarray, before: np.ndarray) -> str:
    """Return the share of a column that changed most, in words; empty where none did.

    Of numbers that is the share above a value, so that it says whether they rose or fell.
    """
    now, then = (cells[: bins.size] / max(cells.sum(), 1) for cells in (new, before))
    names = [quoted(name) for name in labels(bins)]
    if isinstance(bins, NumericBins):
        now, then = ((1 - part[:-1].cumsum() - part[-1], part[-1]) for part in (now, then))
        now, then = (np.append(above[:-1], null) for above, null in (now, then))
        names = [*(f"above {quoted(f'{edge:.4g}')}" for edge in bins.edges), "null"]
    most = int(np.abs(now - then).argmax())
    if now[most] == then[most]:
        return ""
    verb = "rose" if now[most] > then[most] else "fell"
    return f"the share {names[most]} {verb} from {then[most]:.1%} to {now[most]:.1%}"


def _measure(held: Held, season: Held | None, statistic: Statistic, place: int) -> Measure:
    beside = (
        (float(season.values[statistic][place]), float(season.bounds[statistic][place]))
        if season
        else None
    )
    return Measure(
        statistic=statistic,
        value=float(held.values[statistic][place]),
        bound=float(held.bounds[statistic][place]),
        because=held.causes[statistic][place],
        seasonal=beside,
    )


def _taken(counts: np.ndarray, places: np.ndarray) -> np.ndarray:
    """[..., columns] the cell of each column at its place."""
    return np.take_along_axis(counts, np.broadcast_to(places, counts.shape[:-1])[..., None], -1)[
        ..., 0
    ]
