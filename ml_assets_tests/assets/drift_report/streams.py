"""Streams whose truth is known: 15 numbers and 5 categories, unchanged or with a planted fault.

Large windows are drawn as counts (a multinomial over the bins' true shares): exactly what counting
so many rows gives, at the price of one draw.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from ml_assets.assets.drift_report.columns import Reference, judge_columns
from ml_assets.assets.drift_report.findings import Finding, JudgedPeriod, KindVerdict
from ml_assets.assets.drift_report.verdict import KINDS, conclude
from ml_assets.assets.evaluation_report.drift_profile import Period, Profile, count, make_profile
from ml_assets.spec.drift import DriftBounds, DriftSpec

NUMBERS = [f"x{n}" for n in range(15)]
WORDS = [f"c{n}" for n in range(5)]
NULLS = 0.05
PERIODS = 20
ALPHA = DriftSpec().false_alarms / len(KINDS) / (5 * len(NUMBERS + WORDS))
"""As ``Comparison`` divides it."""


@dataclass(frozen=True)
class Fault:
    """What is wrong with a stream, in its first columns."""

    shift: float = 0.0
    """Of x0, in standard deviations."""
    nulls: float = NULLS
    """Null rate of x0 to x4."""
    new: float = 0.0
    """Share of a new word in c0."""


SOUND = Fault()


def rows(draw: np.random.Generator, count_: int, fault: Fault = SOUND) -> pl.DataFrame:
    """So many rows of the stream."""
    columns: dict[str, np.ndarray] = {}
    for place, name in enumerate(NUMBERS):
        values = draw.normal(size=count_) if place % 2 else draw.exponential(size=count_)
        values += fault.shift * (place == 0)  # both have a deviation of one
        if place < 5:
            values[draw.random(count_) < fault.nulls] = np.nan
        columns[name] = values
    words = np.array([f"w{n}" for n in range(60)])
    chances = 1 / np.arange(1, 61)
    for place, name in enumerate(WORDS):
        drawn = draw.choice(words, size=count_, p=chances / chances.sum())
        if place == 0 and fault.new:
            drawn = np.where(draw.random(count_) < fault.new, "never seen", drawn)
        columns[name] = drawn
    return pl.DataFrame(columns)


@dataclass(frozen=True)
class Stream:
    """A baseline of some training periods, and the truth behind it."""

    profile: Profile
    reference: Reference
    truth: np.ndarray
    """[columns, bins] share of each bin in a great many rows of the same distribution."""

    @classmethod
    def of(cls, rows_a_period: int, seed: int) -> "Stream":
        draw = np.random.default_rng(seed)
        periods = {str(n): rows(draw, rows_a_period) for n in range(PERIODS)}
        profile = make_profile(periods, NUMBERS, WORDS)
        reference = Reference.of(profile, ALPHA)
        many = reference.columns.matrix(count(rows(draw, 1_000_000), profile.bins, None))
        return cls(profile, reference, many / many.sum(axis=1, keepdims=True))

    def windows(self, draw: np.random.Generator, rows_each: int, how_many: int) -> list[Period]:
        """Unchanged windows, as their counts."""
        drawn = np.stack([draw.multinomial(rows_each, share, how_many) for share in self.truth], 1)
        sizes = [one.size for one in self.profile.bins]
        return [
            Period(
                period=str(number),
                rows=rows_each,
                counts=tuple(
                    tuple(int(n) for n in column[:size])
                    for column, size in zip(window, sizes, strict=True)
                ),
            )
            for number, window in enumerate(drawn)
        ]

    def judge(self, window: Period) -> list[Finding]:
        return judge_columns(self.reference, None, window, DriftBounds(), ALPHA, "features")

    def seen(self, window: Period) -> JudgedPeriod:
        """A window as a report holds it."""
        return JudgedPeriod(
            period=window.period, rows=window.rows, findings=tuple(self.judge(window))
        )

    def drifted(self, window: Period) -> set[tuple[str, str]]:
        """(kind, column) of what is beyond its bound."""
        return drifted(self.seen(window))


def drifted(window: JudgedPeriod) -> set[tuple[str, str]]:
    """(kind, column) of what is beyond its bound."""
    return {(one.kind, one.column) for one in window.findings if one.drifted}


def alarms(windows: Sequence[JudgedPeriod], spec: DriftSpec) -> list[tuple[KindVerdict, ...]]:
    """After each window, the kinds that alarm then: by the rule that a pipeline declares."""
    ends = range(1, len(windows) + 1)
    told = (conclude(windows[max(end - spec.windows, 0) : end], spec, {}) for end in ends)
    return [tuple(outcome for outcome in outcomes if outcome.alarm) for outcomes in told]
