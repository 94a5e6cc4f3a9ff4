"""The spec of the split, by time, by chance or by entity; and the rows that it held out."""

from datetime import timedelta
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from ml_assets.spec.automation import Duration
from ml_assets.spec.base import Digest, Frozen, Positive, unset

Groups = Annotated[tuple[str, ...], Field(strict=False, min_length=1)]
"""Columns that the feature function returns; together they name an entity (a plane, a patient)."""
_Share = Annotated[float, Field(gt=0, lt=0.5)]


class _Window(Frozen):
    train: Positive
    """Partitions to train on: a window shorter than declared is an error."""
    validation: Positive
    holdout: Positive
    embargo: Annotated[int, Field(ge=0)] = 1
    """Partitions left out on each side of the validation split."""

    @property
    def needed(self) -> int:
        """Return how many partitions a window takes."""
        return self.train + self.validation + self.holdout + 2 * self.embargo

    @property
    def sizes(self) -> str:
        """What it takes them for, in words."""
        return (
            f"train {self.train}, validation {self.validation}, holdout {self.holdout},"
            f" embargo 2 x {self.embargo}"
        )


class TimeSplit(_Window):
    """Split by partition, oldest to newest: train, embargo, validation, embargo, holdout."""

    kind: Literal["time"]


class TimeGroupSplit(_Window):
    """Split by partition, and no entity in two splits: rows of one that spans them are left out.

    They are never moved: a row in an older split than its own would break the order of time.
    """

    kind: Literal["time+group"]
    groups: Groups
    keep: Literal["first", "last"] = "first"
    """``first``: an entity stays where it is first seen, so that validation and holdout judge new
    ones; ``last``: where it is last seen, so that the holdout stays whole and train shrinks."""


class RandomSplit(Frozen):
    """Split by a hash of the row's key; only for data without a time order."""

    kind: Literal["random"]
    validation: _Share = 0.15
    holdout: _Share = 0.2


class TimeSharesSplit(Frozen):
    """Split rows that are read whole by their decision: the oldest train, the newest hold out.

    In a spec it is ``kind: time`` with shares in the place of numbers of partitions.
    """

    kind: Literal["time_shares"]
    validation: _Share = 0.15
    holdout: _Share = 0.2
    embargo: Duration | None = Field(default=None, exclude_if=unset)
    """Time left out on each side of the validation split; None: ``label.ahead``, else none."""

    def gap(self, ahead: timedelta | None) -> timedelta:
        """The time between two splits.

        Args:
            ahead: how long after its decision an outcome is known; None: with it.
        """
        return self.embargo or ahead or timedelta(0)


class StratifiedGroupSplit(Frozen):
    """Split whole entities, so that every split has its share of the rows and of each label."""

    kind: Literal["stratified_group"]
    groups: Groups
    validation: _Share = 0.15
    holdout: _Share = 0.2


WindowSplit = TimeSplit | TimeGroupSplit
"""The kinds that cut a window of partitions."""
ShareSplit = RandomSplit | TimeSharesSplit | StratifiedGroupSplit
"""The kinds that part rows that are read whole."""


class HoldoutDraw(Frozen):
    """How the rows of a holdout were drawn that is not cut in time, and a sample of them."""

    split: Digest
    """Equal for two draws: no row of one holdout was trained on by the split of the other."""
    sample: tuple[str, ...] = Field(strict=False)
    """The smallest hashes of their keys: two holdouts that share rows share some of these."""


class HoldoutRows(Frozen):
    """The rows that a decision rests on."""

    digest: Digest
    """The digest of their keys."""
    first: str
    last: str
    """First and last partition or moment, or two empty strings."""
    draw: HoldoutDraw | None = Field(default=None, exclude_if=unset)
    """How they were drawn, where they are not cut in time."""


class HoldoutUse(Frozen):
    """Describes how often rows of a holdout were looked at before."""

    models: int
    """Other models that were decided on before, with rows of it."""
    unknown: int
    """Other models of which it was not written down."""


def _time_in_shares(raw: Any) -> Any:
    """``kind: time`` that counts no partitions is a split of rows by shares."""
    if not isinstance(raw, dict) or raw.get("kind") != "time":
        return raw
    sizes = [raw.get(name) for name in ("train", "validation", "holdout")]
    if not any(isinstance(size, float) for size in sizes):
        sizes.append(raw.get("embargo"))  # beside shares it is a time
    return raw if any(isinstance(size, int) for size in sizes) else {**raw, "kind": "time_shares"}


SplitSpec = Annotated[
    TimeSplit | TimeGroupSplit | RandomSplit | TimeSharesSplit | StratifiedGroupSplit,
    Field(discriminator="kind"),
    BeforeValidator(_time_in_shares),
]


def groups_of(split: WindowSplit | ShareSplit) -> tuple[str, ...]:
    """The columns that name an entity; empty where the split knows none."""
    match split:
        case TimeGroupSplit() | StratifiedGroupSplit():
            return split.groups
        case TimeSplit() | RandomSplit() | TimeSharesSplit():
            return ()


def is_by_time(split: WindowSplit | ShareSplit) -> bool:
    """Return whether every row of a split was decided before those of the next."""
    return isinstance(split, WindowSplit | TimeSharesSplit)
