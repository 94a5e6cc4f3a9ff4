"""The baselines for comparison with a model, and the policy that decides its release."""

from collections.abc import Mapping
from math import inf
from typing import Annotated, Any, Literal, Self

from pydantic import Field, StringConstraints, field_validator, model_validator

from ml_assets.spec.base import Frozen, Name, Positive, none_or_keys, unset
from ml_assets.spec.features import FunctionPath
from ml_assets.spec.forecasts import Forecast
from ml_assets.spec.rollout import RolloutSpec
from ml_assets.spec.texts import TextBaseline
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
    "skill",
    "ndcg",
    "bits_per_byte",
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
    "skill": True,
    "ndcg": True,
    "bits_per_byte": False,
}
REACH: Mapping[MetricName, tuple[float, float]] = {
    **dict.fromkeys(("auc", "average_precision", "brier", "accuracy", "ece", "ndcg"), (0.0, 1.0)),
    "log_loss": (0.0, 36.1),
    **dict.fromkeys(("rmse", "mae", "bits_per_byte"), (0.0, inf)),
    **dict.fromkeys(("r2", "skill"), (-inf, 1.0)),
}
"""Metric -> its least and its greatest value; a log-loss is of probabilities clipped at 2e-16."""
METRICS_OF: Mapping[Task, tuple[MetricName, ...]] = {
    "binary": ("auc", "average_precision", "log_loss", "brier", "accuracy", "ece"),
    "multiclass": ("auc", "log_loss", "brier", "accuracy", "ece"),
    "regression": ("rmse", "mae", "r2", "skill"),
    "ranking": ("ndcg",),
    "language_model": ("bits_per_byte",),
}
LOSS_OF: Mapping[Task, str] = {
    "binary": "log-loss",
    "multiclass": "log-loss",
    "regression": "squared error",
    "ranking": "1 - NDCG",
    "language_model": "bits per byte",
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


class FunctionBaseline(Frozen):
    """The team's own rule: a function of the pipeline's folder predicts the holdout."""

    kind: Literal["function"]
    name: Name
    function: FunctionPath
    """(train, holdout) -> predictions, both DataFrames; the holdout comes without the label."""


class ValueBaseline(Frozen):
    """The numbers that people or a former system reached: declared, with no predictions behind
    them."""

    kind: Literal["value"]
    name: Name
    metrics: Mapping[MetricName, float] = Field(min_length=1)
    source: Annotated[str, StringConstraints(strip_whitespace=True, min_length=1)]
    """Where the numbers come from, for whoever reads the report."""

    @field_validator("metrics")
    @classmethod
    def _can_be_reached(cls, values: Mapping[MetricName, float]) -> Mapping[MetricName, float]:
        for name, value in values.items():
            low, high = REACH[name]
            if not low <= value <= high:
                raise ValueError(f"no {name} is {value:g}: it goes from {low:g} to {high:g}")
        return values


BaselineSpec = Annotated[
    ConstantBaseline
    | GroupRateBaseline
    | GradientBoostingBaseline
    | TextBaseline
    | Forecast
    | FunctionBaseline
    | ValueBaseline,
    Field(discriminator="kind"),
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
    ``margin``. ``superior``: it is better by more than ``margin`` (0 where ``min_effect`` is
    given). Without a ``metric`` the loss is compared (see ``LOSS_OF``), better where it is lower;
    the margin is then in its unit (of a regression the label's, squared: there a ``relative``
    metric says more).
    """

    kind: Literal["champion"]
    name: Name = "champion"
    rule: Literal["non_inferior", "superior"] = "non_inferior"
    margin: Annotated[float, Field(ge=0)] = 0.005
    metric: MetricName | None = Field(default=None, exclude_if=unset)
    relative: bool = Field(default=False, exclude_if=unset)
    """The margin is a share of the champion's metric: 0.005 is half a percent of it."""
    min_effect: Annotated[float, Field(gt=0)] | None = Field(default=None, exclude_if=unset)
    """``superior``: the improvement that is worth a release. Some improvement has to be shown, and
    the better end of the interval must reach this one: less than it is not enough."""
    seeds: Annotated[int, Field(ge=0, le=20)] = Field(default=0, exclude_if=unset)
    """Train so many models that differ in the seed alone, once, and widen the interval by their
    spread; 0: as if another seed gave the same model."""
    if_not_comparable: Literal["refuse", "accept"] = "refuse"
    """What to decide when the champion cannot be scored on these rows (its features are gone)."""

    @model_validator(mode="before")
    @classmethod
    def _an_effect_has_no_margin(cls, raw: Any) -> Any:
        if isinstance(raw, dict) and raw.get("min_effect") is not None and "margin" not in raw:
            return {**raw, "margin": 0.0}
        return raw

    @model_validator(mode="after")
    def _goes_together(self) -> Self:
        if self.relative and self.metric is None:
            raise ValueError("'relative' is a share of a metric: name the 'metric', or remove it")
        if self.min_effect is not None and self.rule != "superior":
            raise ValueError("'min_effect' is for rule 'superior': set it, or give a 'margin'")
        if self.min_effect is not None and self.min_effect <= self.margin:
            raise ValueError("'min_effect' must be above 'margin': leave the margin out")
        if self.seeds == 1:
            raise ValueError("'seeds' is 1: a spread takes at least 2 models (0: not measured)")
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
    at_most_p99_ms: Annotated[float, Field(gt=0)] | None = Field(default=None, exclude_if=unset)
    """The latency of the slowest in a hundred."""


class Throughput(Frozen):
    """Rows scored per second, many at once; recorded, blocks only with a bound."""

    kind: Literal["throughput"]
    name: Name = "throughput"
    at_least_rows_per_second: Annotated[float, Field(gt=0)] | None = None


class Memory(Frozen):
    """Megabytes (10^6 bytes) that the scoring process held at most; blocks only with a bound."""

    kind: Literal["memory"]
    name: Name = "memory"
    at_most_mb: Annotated[float, Field(gt=0)] | None = None


class Slices(Frozen):
    """No part of the data is left behind: every slice of the holdout is shown to be good enough.

    Give ``margin`` (the loss there is not worse than the champion's by it), or a ``metric`` with
    ``at_least`` or ``at_most``. The intervals hold for all slices at once (Bonferroni).
    """

    kind: Literal["slices"]
    name: Name = "slices"
    columns: tuple[str, ...] = Field(strict=False, min_length=1)
    """Columns of ``evaluation.slices``; each of their values is a slice."""
    margin: Annotated[float, Field(ge=0)] | None = None
    metric: MetricName | None = None
    at_least: float | None = None
    at_most: float | None = None
    min_rows: Positive = 500
    """Smaller slices are not judged; a column with no larger one fails the gate."""
    if_not_comparable: Literal["refuse", "accept"] = "refuse"

    @model_validator(mode="after")
    def _has_one_bound(self) -> Self:
        given = [x for x in (self.margin, self.at_least, self.at_most) if x is not None]
        if len(given) != 1:
            raise ValueError("give exactly one of 'margin', 'at_least' and 'at_most'")
        if (self.margin is None) != (self.metric is not None):
            raise ValueError("'margin' is for the loss; 'at_least' and 'at_most' need a 'metric'")
        return self


class Gap(Frozen):
    """Groups fare alike: a metric does not differ between any two of them by more than a bound."""

    kind: Literal["gap"]
    name: Name = "gap"
    column: str
    """One of ``evaluation.slices``; its values are the groups."""
    metric: MetricName | None = None
    """None: the mean loss."""
    at_most: Annotated[float, Field(gt=0)]
    min_rows: Positive = 500
    """Smaller groups are not judged; with fewer than two others the gate fails."""


class Calibrated(Frozen):
    """The model's probabilities are calibrated: what it calls 30 % likely happens in 30 % of the
    cases, within a bound."""

    kind: Literal["calibration"]
    name: Name = "calibration"
    measure: Literal["ece", "slope", "intercept"] = "ece"
    """The expected calibration error; or how far the slope (of the outcome's log-odds on the
    predicted ones) is from 1, or the intercept (at a slope of 1) from 0."""
    at_most: Annotated[float, Field(gt=0)]


class Robustness(Frozen):
    """The model bears inputs that are missing or shifted: its mean loss rises by little."""

    kind: Literal["robustness"]
    name: Name = "robustness"
    missing: Annotated[float, Field(gt=0, le=1)] | None = 0.1
    """Share of all inputs that is taken away, at random; None: not tried."""
    shift: Annotated[float, Field(gt=0)] | None = 0.5
    """Standard deviations by which every number is raised, then lowered; None: not tried."""
    at_most: Annotated[float, Field(gt=0)]
    """Rise of the mean loss in the worst of these cases."""

    @model_validator(mode="after")
    def _tries_something(self) -> Self:
        if self.missing is None and self.shift is None:
            raise ValueError("give 'missing', 'shift' or both: otherwise there is nothing to test")
        return self


class DataEvidence(Frozen):
    """The contracts of the exact tables that the model was trained on were met."""

    kind: Literal["data_evidence"]
    name: Name = "data_evidence"
    warnings: Literal["allow", "refuse"] = "allow"
    """What to decide where an expectation of severity ``warning`` was not met."""


class HoldoutBudget(Frozen):
    """The holdout is used up: rows that judged too many models say little about the next one."""

    kind: Literal["holdout_budget"]
    name: Name = "holdout_budget"
    at_most: Positive
    """Different models decided on with these rows, this one included."""


GateSpec = Annotated[
    Bound
    | BeatsBaseline
    | AgainstChampion
    | LeakAlarm
    | Size
    | Latency
    | Throughput
    | Memory
    | Slices
    | Gap
    | Calibrated
    | Robustness
    | DataEvidence
    | HoldoutBudget,
    Field(discriminator="kind"),
]

Stage = Literal["staging", "canary", "production", "archived"]
"""Where a model is. It is archived when it was in a stage and another model took its place."""
Target = Literal["staging", "canary", "production"]
"""A stage that holds one model: the one that was moved there last."""


class CanarySpec(Frozen):
    """The conditions of production for a model in canary, beside its gates.

    It is scored with the champion on the first partitions behind its holdout, once their labels are
    known, and one of the champion gates decides on exactly those rows.
    """

    periods: Positive = 1
    """Partitions of feature_set."""
    gate: Name = "champion"
    """The champion gate, by its name under ``gates``."""


class ReleaseSpec(Frozen):
    """The stage of a model that passes its gates."""

    to: Target = "production"
    canary: Annotated[Literal["none"] | CanarySpec, none_or_keys(CanarySpec)] = "none"
    """``none`` is recorded with each release: no canary evidence is asked for."""
    rollout: RolloutSpec | None = Field(default=None, exclude_if=unset)
    """The traffic of a model in canary; None: it meets none, and no prediction is logged."""

    @model_validator(mode="after")
    def _a_canary_is_on_its_way_to_production(self) -> Self:
        if self.canary != "none" and self.to != "production":
            raise ValueError("'canary' leads to production: set 'to: production', or remove it")
        if self.rollout is not None and self.canary == "none":
            raise ValueError("'rollout' is for a model in canary: give 'canary', or remove it")
        return self

    @property
    def entrance(self) -> Target:
        """The stage that the gates lead to; from canary, its own evidence leads on."""
        return self.to if self.canary == "none" else "canary"

    @property
    def shown_by(self) -> Literal["released_model", "promoted_model"]:
        """The asset that says which model is in ``to``."""
        return "released_model" if self.canary == "none" else "promoted_model"
