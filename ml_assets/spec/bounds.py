"""What is expected of a source beside its contract: how many rows, and how recent they are."""

from typing import Annotated, Literal

from pydantic import Field

from ml_assets.spec.automation import Duration
from ml_assets.spec.base import Frozen, Positive, unset

Severity = Literal["critical", "warning"]


class VolumeSpec(Frozen):
    """How many rows a partition may have, against the ones before it."""

    within: Annotated[float, Field(gt=0)] = 0.2
    """Relative: 0.2 accepts from 80 % to 120 % of the rows before."""
    severity: Severity = "critical"
    """``critical`` keeps the partition from being published."""
    every: Positive = Field(default=1, exclude_if=lambda value: value == 1)
    """Compare with every so-manieth partition back: 7 of daily ones is the same weekday, 24 of
    hourly ones the same hour, 52 of weekly ones the same season."""
    periods: Positive = Field(default=1, exclude_if=lambda value: value == 1)
    """With so many of those; their median counts."""


class FreshnessSpec(Frozen):
    """How old the newest row of a source may be, by its own time."""

    within: Duration
    severity: Severity = "warning"
    """What the check shows; nothing is unpublished for its age."""
    column: str | None = Field(default=None, exclude_if=unset)
    """The datetime column to judge by; None: ``known_at``, or the ``watermark`` of a SQL source."""
