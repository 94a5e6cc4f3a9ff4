"""Changes and weighs the rows of a step, as a pure function of (seed, step, row)."""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from ml_assets.spec.base import Fraction, Frozen, unset


class Augmentation(Frozen):
    """Describes how rows are changed before a step learns from them; those of validation never are.

    What is drawn follows from seed, step and microbatch: the same after a kill, and on any number
    of processes.
    """

    noise: Annotated[float, Field(ge=0)] = Field(default=0.0, exclude_if=unset)
    """Standard deviation of what is added to each standardized number; flags of nulls stay."""
    feature_dropout: Annotated[float, Field(ge=0, lt=1)] = Field(default=0.0, exclude_if=unset)
    """Share of the values of a row that are hidden: a number becomes the mean, a word unknown."""
    mixup: Annotated[float, Field(ge=0)] = Field(default=0.0, exclude_if=unset)
    """Both parameters of a Beta distribution (Zhang et al., "mixup", 2018). A draw is the share of
    the row's own numbers and loss; the rest is another row's of its microbatch. A category is
    taken from one of the two."""

    @model_validator(mode="after")
    def _changes_something(self) -> Self:
        if not (self.noise or self.feature_dropout or self.mixup):
            raise ValueError("give noise, feature_dropout or mixup a value above 0")
        return self


class Curriculum(Frozen):
    """Rows whose turn has not come yet count less in the loss: a pure function of (step, row).

    A row's place is where its value lies in a normal distribution of the column, from 0 to 1.
    """

    column: str
    """One of ``features.numeric``; a null is in the middle."""
    first: Literal["low", "high"] = "low"
    """Which values come first."""
    until: Annotated[Fraction, Field(gt=0)] = 0.5
    """Share of all steps after which the turn of every row has come."""
    weight_before: Annotated[float, Field(gt=0, lt=1)] = 0.1
    """The weight of a row before its turn; then 1."""
