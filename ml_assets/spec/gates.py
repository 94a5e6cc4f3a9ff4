"""The baselines a model is held against, and the policy that decides whether it is released."""

from typing import Annotated, Literal

from pydantic import Field

from ml_assets.spec.base import Frozen, Name, Positive

MetricName = Literal["auc", "average_precision", "log_loss", "brier", "accuracy", "ece"]
HIGHER_IS_BETTER: dict[MetricName, bool] = {
    "auc": True,
    "average_precision": True,
    "log_loss": False,
    "brier": False,
    "accuracy": True,
    "ece": False,
}


class ConstantBaseline(Frozen):
    """Predicts the label rate of the training split."""

    kind: Literal["constant"]
    name: Name = "constant"


class GroupRateBaseline(Frozen):
    """Predicts the label rate of the row's group in the training split, smoothed to the mean."""

    kind: Literal["group_rate"]
    by: tuple[str, ...] = Field(strict=False, min_length=1)
    name: Name = "group_rate"


class GradientBoostingBaseline(Frozen):
    """scikit-learn's histogram gradient boosting on the same features; fitted and forgotten."""

    kind: Literal["gradient_boosting"]
    name: Name = "gradient_boosting"
    iterations: Positive = 200


BaselineSpec = Annotated[
    ConstantBaseline | GroupRateBaseline | GradientBoostingBaseline, Field(discriminator="kind")
]


class Bound(Frozen):
    """A metric of the candidate on the holdout must not fall below (or rise above) a bound."""

    kind: Literal["bound"]
    name: Name
    metric: MetricName
    at_least: float | None = None
    at_most: float | None = None


class BeatsBaseline(Frozen):
    """The candidate must be better than a baseline by ``margin`` (negative: may be worse by it)."""

    kind: Literal["baseline"]
    name: Name
    metric: MetricName
    baseline: Name
    margin: float = 0.0


class AgainstChampion(Frozen):
    """Per-row log-loss against the champion on the same rows, interval from a block bootstrap.

    ``non_inferior``: the interval's upper end of (candidate - champion) is below ``margin``.
    ``superior``: it is below ``-margin``.
    """

    kind: Literal["champion"]
    name: Name = "champion"
    rule: Literal["non_inferior", "superior"] = "non_inferior"
    margin: Annotated[float, Field(ge=0)] = 0.005
    if_not_comparable: Literal["refuse", "accept"] = "refuse"
    """What to decide when the champion cannot be scored on these rows (its features are gone)."""


class LeakAlarm(Frozen):
    """A model that is too good to be true is refused: it saw something it will not have."""

    kind: Literal["leak_alarm"]
    name: Name = "leak_alarm"
    metric: MetricName = "auc"
    bound: float


class Size(Frozen):
    """The released files may not be larger than ``at_most_mb`` megabytes (10^6 bytes)."""

    kind: Literal["size"]
    name: Name = "size"
    at_most_mb: Annotated[float, Field(gt=0)]


class Latency(Frozen):
    """Milliseconds for one row (median); always recorded, blocks only with a bound."""

    kind: Literal["latency"]
    name: Name = "latency"
    at_most_ms: Annotated[float, Field(gt=0)] | None = None


GateSpec = Annotated[
    Bound | BeatsBaseline | AgainstChampion | LeakAlarm | Size | Latency,
    Field(discriminator="kind"),
]

Stage = Literal["staging", "canary", "production"]


class ReleaseSpec(Frozen):
    """Where a model that passes goes."""

    to: Stage = "production"
    canary: Literal["none"] = "none"
    """Recorded with each release: no canary evidence is asked for."""
