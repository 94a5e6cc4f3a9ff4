"""The findings of a comparison: each number beside its bound."""

from typing import Literal

from pydantic import Field

from ml_assets.spec.base import Digest, Frozen
from ml_assets.spec.drift import DriftKind
from ml_assets.spec.records import Time

Statistic = Literal["psi", "ks", "js", "null_share", "new_share", "auc", "loss_rise"]
Cause = Literal["effect", "chance", "periods"]
"""What sets a bound: the spec's effect, chance with so few rows, or periods that differ."""
HARDLY: dict[Statistic, float] = {
    **dict.fromkeys(("ks", "js", "new_share"), 0.8),
    "null_share": 0.5,
    "auc": 0.98,
    "psi": 5.0,
    "loss_rise": 1.0,
}
"""A bound from which on it sees almost nothing: distances go to 1, a doubled loss is 1."""
ALL_COLUMNS = "all features"
"""The column of what is about all of them together."""


class Measure(Frozen):
    """One statistic of one column, against the training rows and against the same season."""

    statistic: Statistic
    value: float
    bound: float
    """The largest of: an effect that matters, chance with so many rows, the back-test."""
    because: Cause = "effect"
    """Which of the three it is."""
    seasonal: tuple[float, float] | None = Field(default=None, strict=False)
    """Value and bound against the same season of before; None: there is no such history."""

    @property
    def is_blind(self) -> bool:
        """Return whether hardly anything could exceed the bound.

        A null rate that was high may rise to a higher one and still matter: the effect sees it.
        """
        if self.statistic == "null_share" and self.because == "effect":
            return False
        return self.bound >= HARDLY[self.statistic]

    @property
    def ratio(self) -> float:
        """Value over bound, the smaller of both references: above one, it drifted."""
        own = self.value / self.bound
        return own if self.seasonal is None else min(own, self.seasonal[0] / self.seasonal[1])


class Finding(Frozen):
    """One column of one window."""

    kind: DriftKind
    column: str
    measures: tuple[Measure, ...] = Field(strict=False, min_length=1)
    moved: str = ""
    """Which way, in words; empty where it did not drift, or its statistic says it."""

    @property
    def worst(self) -> Measure:
        return max(self.measures, key=lambda measure: measure.ratio)

    @property
    def is_blind(self) -> bool:
        """Return whether none of its statistics could alarm."""
        return all(measure.is_blind for measure in self.measures) and not self.drifted

    @property
    def drifted(self) -> bool:
        return self.worst.ratio > 1


class JudgedPeriod(Frozen):
    """One period against the release."""

    period: str
    rows: int
    findings: tuple[Finding, ...] = Field(strict=False)


class KindVerdict(Frozen):
    """Holds what the windows say of one kind of drift, all together."""

    kind: DriftKind
    alarm: bool
    value: float | None
    """The value of the column that is furthest beyond its bound; None: nothing could be judged."""
    bound: float | None
    column: str
    windows: tuple[str, ...] = Field(strict=False)
    """Periods in which it drifted."""
    cannot_alarm: bool = False
    """Hardly anything exceeds the bounds of all that was judged: that it is quiet says nothing."""
    reason: str

    @property
    def word(self) -> Literal["ALARM", "cannot alarm", "not judged", "ok"]:
        """The verdict in a word."""
        if self.alarm:
            return "ALARM"
        if self.cannot_alarm:
            return "cannot alarm"
        return "not judged" if self.value is None else "ok"


class Alarm(Frozen):
    """Drift that stands until another model is released."""

    period: str
    """The newest one when it was raised."""
    kinds: tuple[DriftKind, ...] = Field(strict=False)
    reason: str


class PastPeriod(Frozen):
    """A period that was judged: one point of the picture over time."""

    period: str
    model: Digest
    ratios: dict[DriftKind, float]
    """The worst value over its bound, of each kind that was judged."""


class Shape(Frozen):
    """A column as a histogram: new rows beside the training rows."""

    column: str
    bins: tuple[str, ...] = Field(strict=False)
    training: tuple[float, ...] = Field(strict=False)
    """Share of the rows in each bin."""
    new: tuple[float, ...] = Field(strict=False)


class DriftReport(Frozen):
    """New periods against what one release was trained on."""

    schema_version: Literal[1] = 1
    pipeline: str
    model: Digest
    """The release."""
    trained_on: tuple[str, str] = Field(strict=False)
    """First and last partition of its training split."""
    training_rows: int
    back_tested: int
    """Training periods that the bounds were held to; 0: too few, and features are not judged."""
    windows: tuple[JudgedPeriod, ...] = Field(strict=False, min_length=1)
    """Oldest first."""
    outcomes: tuple[KindVerdict, ...] = Field(strict=False)
    notes: tuple[str, ...] = Field(strict=False)
    """What could not be judged, and why."""
    alarm: Alarm | None
    shapes: tuple[Shape, ...] = Field(default=(), strict=False)
    """The shapes of the newest period: the columns that are furthest beyond their bounds."""
    history: tuple[PastPeriod, ...] = Field(default=(), strict=False)
    time: Time

    @property
    def newest(self) -> JudgedPeriod:
        return self.windows[-1]
