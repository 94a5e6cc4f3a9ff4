"""The baselines a model is held against, and the policy that decides whether it is released."""

from collections.abc import Mapping
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from ml_assets.spec.base import Frozen, Name, Positive, unset
from ml_assets.spec.training import Task

MetricName = Literal[
    "auc",
    "average_precision",
    "log_loss",
    "brier",
    "accuracy",
    "ece",
    "rmse",
    "mae",
    "r2",
    "ndcg",
]
HIGHER_IS_BETTER: dict[MetricName, bool] = {
    "auc": True,
    "average_precision": True,
    "log_loss": False,
    "brier": False,
    "accuracy": True,
    "ece": False,
    "rmse": False,
    "mae": False,
    "r2": True,
    "ndcg": True,
}
METRICS_OF: Mapping[Task, tuple[MetricName, ...]] = {
    "binary": ("auc", "average_precision", "log_loss", "brier", "accuracy", "ece"),
    "multiclass": ("auc", "log_loss", "brier", "accuracy", "ece"),
    "regression": ("rmse", "mae", "r2"),
    "ranking": ("ndcg",),
}
LOSS_OF: Mapping[Task, str] = {
    "binary": "log-loss",
    "multiclass": "log-loss",
    "regression": "squared error",
    "ranking": "1 - NDCG",
}
"""What the champion gate compares where it names no metric: a loss per row (ranking: per query)."""


class ConstantBaseline(Frozen):
    """Predicts the label rate (of a number: the mean) of the training split."""

    kind: Literal["constant"]
    name: Name = "constant"


class GroupRateBaseline(Frozen):
    """Predicts the label rate (of a number: the mean) of the row's group, smoothed to the whole."""

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
    """The candidate against the champion on the same rows, interval from a block bootstrap.

    ``non_inferior``: the worse end of the interval of (candidate - champion) is not worse by
    ``margin``. ``superior``: it is better by more than ``margin``. Without a ``metric`` the loss is
    compared (see ``LOSS_OF``), better where it is lower; the margin is then in its unit (of a
    regression the label's, squared: there a ``relative`` metric says more).
    """

    kind: Literal["champion"]
    name: Name = "champion"
    rule: Literal["non_inferior", "superior"] = "non_inferior"
    margin: Annotated[float, Field(ge=0)] = 0.005
    metric: MetricName | None = Field(default=None, exclude_if=unset)
    relative: bool = Field(default=False, exclude_if=unset)
    """The margin is a share of the champion's metric: 0.005 is half a percent of it."""
    if_not_comparable: Literal["refuse", "accept"] = "refuse"
    """What to decide when the champion cannot be scored on these rows (its features are gone)."""

    @model_validator(mode="after")
    def _a_share_is_of_a_metric(self) -> Self:
        if self.relative and self.metric is None:
            raise ValueError("'relative' is a share of a metric: name the 'metric', or remove it")
        return self


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

Stage = Literal["staging", "canary", "production", "archived"]
"""Where a model is. It is archived when it was in a stage and another model took its place."""
Target = Literal["staging", "canary", "production"]
"""A stage that holds one model: the one that was moved there last."""


class CanarySpec(Frozen):
    """What production asks of a model in canary, beside its gates.

    It is scored with the champion on the first partitions behind its holdout, once their labels are
    known, and one of the champion gates decides on exactly those rows.
    """

    periods: Positive = 1
    """Partitions of feature_set."""
    gate: Name = "champion"
    """The champion gate, by its name under ``gates``."""


class ReleaseSpec(Frozen):
    """Where a model that passes goes."""

    to: Target = "production"
    canary: Literal["none"] | CanarySpec = "none"
    """``none`` is recorded with each release: no canary evidence is asked for."""

    @model_validator(mode="after")
    def _a_canary_is_on_its_way_to_production(self) -> Self:
        if self.canary != "none" and self.to != "production":
            raise ValueError("'canary' leads to production: set 'to: production', or remove it")
        return self

    @property
    def entrance(self) -> Target:
        """The stage that the gates lead to; from canary, its own evidence leads on."""
        return self.to if self.canary == "none" else "canary"

    @property
    def shown_by(self) -> Literal["released_model", "promoted_model"]:
        """The asset that says which model is in ``to``."""
        return "released_model" if self.canary == "none" else "promoted_model"
