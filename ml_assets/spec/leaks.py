"""The guards against leaks: their names, how strict a pipeline has them, and how one ended."""

from collections.abc import Iterator, Mapping, Sequence, Set
from typing import Annotated, Literal

from pydantic import Field

from ml_assets.spec.base import Fraction, Frozen, Misfit, Positive
from ml_assets.spec.split import ShareSplit, WindowSplit, groups_of, is_by_time

Severity = Literal["critical", "warning"]
"""``critical``: nothing is published; ``warning``: it is told."""
LeakCheckName = Literal[
    "no_future_events",
    "no_shared_keys",
    "split_in_order",
    "no_shared_rows",
    "no_target_proxy",
    "fitted_on_train",
    "splits_alike",
]
LEAK_CHECKS: dict[LeakCheckName, str] = {
    "no_future_events": "No row changes when what is known only after its decision is hidden.",
    "no_shared_keys": "No key, query or declared entity is in two splits.",
    "split_in_order": "Each split is older than the next one, and the embargo is between them.",
    "no_shared_rows": "Rows of one split are not in another under other keys.",
    "no_target_proxy": "No single feature reveals the label.",
    "fitted_on_train": "The preprocessing is fitted on the training rows alone.",
    "splits_alike": "Labels and features are distributed alike in all splits.",
}
"""What each guard holds its rows to."""


class FutureEvents(Frozen):
    """Features are made again without what was not known yet, and have to come out the same.

    Hidden are the rows of sources with a ``known_at`` at or after a decision, and the columns that
    sources declare as ``after_event``.
    """

    severity: Severity = "critical"
    partitions: Positive = 3
    """How many of the partitions that a run makes: the oldest, the newest, and some between."""


class TargetProxy(Frozen):
    """Limits how well one feature alone may predict the label of the validation rows.

    The measure is the area under the ROC curve (binary; ranking: of what is relevant), or the share
    of variance that is explained (of the classes; of a number's rank).
    """

    severity: Severity = "critical"
    bound: Annotated[float, Field(gt=0, le=1)] | None = None
    """None: the bound of a leak alarm on ``auc``, or 0.95 (binary); 0.92 (multiclass); 0.98."""
    except_for: tuple[str, ...] = Field(default=(), strict=False)
    """Features that may predict more."""


class SharedRows(Frozen):
    """Limits how many rows may have an equal one, features and label, in an earlier split."""

    severity: Severity = "critical"
    at_most: Fraction = 0.01
    """Share of the rows, beyond what chance makes equal; five rows prove nothing."""


class SplitBias(Frozen):
    """Limits how far validation and holdout may be from train, in label and features.

    The effect is Cohen's d of means and h of shares: 0.2 is small, 0.5 medium, 0.8 large.
    """

    severity: Severity = "warning"
    bound: Annotated[float, Field(gt=0)] | None = None
    """None: 0.5, and 2 for a split by time, because seasons differ."""
    except_for: tuple[str, ...] = Field(default=(), strict=False)
    """Columns that are known to differ, such as the weather of other seasons."""


class LeaksSpec(Frozen):
    """Describes how strict the guards are. What is certain (a key in two splits, a split out of
    order, preprocessing that saw other rows) blocks always."""

    future_events: FutureEvents = FutureEvents()
    target_proxy: TargetProxy = TargetProxy()
    shared_rows: SharedRows = SharedRows()
    split_bias: SplitBias = SplitBias()

    def severity(self, name: LeakCheckName) -> Severity:
        """Return what follows where a guard finds something."""
        match name:
            case "no_future_events":
                return self.future_events.severity
            case "no_target_proxy":
                return self.target_proxy.severity
            case "no_shared_rows":
                return self.shared_rows.severity
            case "splits_alike":
                return self.split_bias.severity
            case "no_shared_keys" | "split_in_order" | "fitted_on_train":
                return "critical"


class LeakFinding(Frozen):
    """Describes how one guard ended."""

    name: LeakCheckName
    passed: bool
    value: float | None
    """None: there was nothing to judge by."""
    bound: float
    reason: str
    """What was seen and, unless it passed, what to do."""
    named: tuple[str, ...] = Field(default=(), strict=False)
    """The columns or rows that it is about, the worst first."""


def training_set_checks(split: WindowSplit | ShareSplit) -> tuple[LeakCheckName, ...]:
    """The guards of a training set; only a split by time has an order."""
    left_out = {"no_future_events", *(() if is_by_time(split) else ("split_in_order",))}
    return tuple(name for name in LEAK_CHECKS if name not in left_out)


def leak_problems(
    leaks: LeaksSpec,
    split: WindowSplit | ShareSplit,
    features: Set[str],
    label: str,
    after_event: Mapping[str, Sequence[str]],
) -> Iterator[Misfit]:
    """Yield what a spec says of splits and leaks that does not go with the rest of it.

    Args:
        after_event: source -> its columns that are filled in too late for a feature.
    """
    if label in groups_of(split):
        said = f"split.groups has the label {label!r}: name what the rows are about"
        yield Misfit(("split", "groups"), said)
    for source, columns in after_event.items():
        early = sorted(features & set(columns))
        if early:
            said = (
                f"sources.{source}.after_event: {early} are features, and are known too "
                "late to be features"
            )
            yield Misfit(("sources", source, "after_event"), said)
    excepted = {
        "target_proxy": sorted({*leaks.target_proxy.except_for} - features),
        "split_bias": sorted({*leaks.split_bias.except_for} - features - {label}),
    }
    for guard, unknown in excepted.items():
        if unknown:
            said = f"leaks.{guard}.except_for: {unknown} are not features"
            yield Misfit(("leaks", guard, "except_for"), said)
