"""How the rows of a training set are parted: by time, by chance, and by entity."""

from typing import Annotated, Literal

from pydantic import Field

from ml_assets.spec.base import Frozen, Positive

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


class StratifiedGroupSplit(Frozen):
    """Split whole entities, so that every split has its share of the rows and of each label."""

    kind: Literal["stratified_group"]
    groups: Groups
    validation: _Share = 0.15
    holdout: _Share = 0.2


WindowSplit = TimeSplit | TimeGroupSplit
"""The kinds that cut a window of partitions."""
ShareSplit = RandomSplit | StratifiedGroupSplit
"""The kinds that part rows that are read whole."""
SplitSpec = Annotated[
    TimeSplit | TimeGroupSplit | RandomSplit | StratifiedGroupSplit, Field(discriminator="kind")
]


def groups_of(split: WindowSplit | ShareSplit) -> tuple[str, ...]:
    """The columns that name an entity; empty where the split knows none."""
    match split:
        case TimeGroupSplit() | StratifiedGroupSplit():
            return split.groups
        case TimeSplit() | RandomSplit():
            return ()
