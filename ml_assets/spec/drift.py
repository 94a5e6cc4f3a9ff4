"""The spec of drift after a release: how far new data may be from the release's training data."""

from collections.abc import Iterable, Iterator, Sequence
from datetime import timedelta
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from ml_assets.errors import counted
from ml_assets.spec.automation import Duration, Status, duration_text
from ml_assets.spec.base import Frozen, Misfit, Positive, unset

DriftKind = Literal[
    "features", "nulls", "categories", "domain", "predictions", "labels", "performance"
]
"""What can drift: each is a check on drift_report."""
_ACTED_ON: tuple[DriftKind, ...] = (
    "features",
    "categories",
    "domain",
    "predictions",
    "labels",
    "performance",
)


class SeasonalSpec(Frozen):
    """The same season of before, as a second reference: what returns every year is no drift."""

    back: Positive
    """Partitions from a period to the same one of the season before: 52 of weeks in a year."""
    around: Annotated[int, Field(ge=0)] = 1
    """Partitions on each side of that one that count as well."""


class DriftBounds(Frozen):
    """Effects too small to matter, whatever the number of rows. Chance and the back-test on the
    release's own training periods raise these bounds, never lower them."""

    psi: Annotated[float, Field(gt=0)] = 0.1
    """Population stability index of a column."""
    ks: Annotated[float, Field(gt=0, lt=1)] = 0.1
    """Kolmogorov-Smirnov distance of a numeric column."""
    js: Annotated[float, Field(gt=0, lt=1)] = 0.1
    """Jensen-Shannon distance (base 2) of a column."""
    null_ratio: Annotated[float, Field(gt=1)] = 1.5
    """A null rate over that of the training rows; where most is null, the share of values there
    over that of the new rows."""
    new_share: Annotated[float, Field(gt=0, lt=1)] = 0.002
    """Share of rows whose category was in no training row."""
    domain_auc: Annotated[float, Field(gt=0.5, lt=1)] = 0.65
    """ROC AUC of a classifier that tells new rows from training rows."""
    loss_rise: Annotated[float, Field(gt=0)] = 0.1
    """Rise of the mean loss over the holdout's, as a share of it."""


class RetrainSpec(Frozen):
    """The trainings that the drift sensor may start automatically."""

    kinds: tuple[DriftKind, ...] = Field(default=_ACTED_ON, strict=False, min_length=1)
    """Kinds of drift that ask for a new model. Not ``nulls``: a source that lost its values is
    mended, not learned."""
    cooldown: Duration = timedelta(days=1)
    """The shortest time between two trainings that drift asked for; an alarm meanwhile waits."""
    runs_per_day: Positive = 1
    """The most trainings that drift may start in 24 hours, so that nobody can start trainings at
    will by sending odd rows."""
    status: Status = "running"


class DriftSpec(Frozen):
    """Describes how new periods are compared with the release's training data.

    A period is a partition. Where rows are read whole it is a slice of them, by ``every`` or by
    ``rows``, and new is a row whose key the release has not seen.
    """

    every: Duration | None = Field(default=None, exclude_if=unset)
    """The length of a slice, by ``features.decision_at``: ``1 week``."""
    rows: Annotated[int, Field(ge=50)] | None = Field(default=None, exclude_if=unset)
    """The number of rows of a slice, in the order of their key; for rows without a time."""
    windows: Positive = 3
    """The newest periods that are judged together."""
    alarm_at: Positive = 2
    """The number of those periods that must drift in the same column for an alarm."""
    false_alarms: Annotated[float, Field(gt=0, le=0.2)] = 0.01
    """The share of unchanged windows that may raise an alarm, over all columns."""
    bounds: DriftBounds = DriftBounds()
    seasonal: SeasonalSpec | None = None
    label_lag: Annotated[int, Field(ge=0)] = 0
    """Later periods that must be published before the labels of one count as matured."""
    leave_out: tuple[str, ...] = Field(default=(), strict=False)
    """Features that name the period (a week's number), which is always a new value."""
    retrain: RetrainSpec | None = None
    """None: drift is shown, and trains nothing."""

    @property
    def size(self) -> str:
        """Return how large a slice is, in words."""
        return duration_text(self.every) if self.every else counted(self.rows or 0, "row")

    @model_validator(mode="after")
    def _windows_hold_the_alarm(self) -> Self:
        if self.alarm_at > self.windows:
            raise ValueError(
                f"alarm_at {self.alarm_at} of {self.windows} windows can never happen: raise "
                "'windows'"
            )
        return self


def in_order(names: Iterable[str]) -> list[str]:
    """Periods, oldest first: days and partitions as they are written, rows by their number."""
    return sorted(names, key=lambda name: (len(name.partition("-")[0]), name))


_CUT = "by time, drift: {every: 1 week}, or by number, drift: {rows: 500}"


def how_to_watch(cadence: str) -> str:
    """Return what a spec without drift lacks, as its partitions have it."""
    if cadence != "none":
        return "its spec has no 'drift'. Add to it: drift: {}"
    return f"its spec has no 'drift'. Add to it how new rows are cut into periods: {_CUT}"


def drift_problems(
    drift: DriftSpec | None, cadence: str, features: Sequence[str]
) -> Iterator[Misfit]:
    """Periods that there are not, or of two kinds at once; and features that there are not."""
    if drift is None:
        return
    unknown = [name for name in drift.leave_out if name not in features]
    if unknown:
        said = f"drift.leave_out: {unknown} are not features, so they are not judged anyway"
        yield Misfit(("drift", "leave_out"), f"{said}: correct or remove them")
    cut = [name for name in ("every", "rows") if getattr(drift, name) is not None]
    if cadence != "none":
        for name in cut:
            said = f"drift.{name} cuts rows into periods; here a period is a partition"
            yield Misfit(("drift", name), f"{said}: remove it")
        return
    if len(cut) != 1:
        said = f"there are no partitions, so state how new rows are cut into periods: {_CUT}"
        yield Misfit(("drift",), said)
    if drift.seasonal is not None:
        said = "drift.seasonal counts partitions, and there are none: remove it, or set partitions"
        yield Misfit(("drift", "seasonal"), said)
