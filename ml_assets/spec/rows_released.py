"""Rows in quarantine that are published after all: the author and the reason."""

from pydantic import Field

from ml_assets.spec.base import Frozen
from ml_assets.spec.records import Time

RELEASED_BY = "ml_assets/released_by"
RELEASE_REASON = "ml_assets/release_reason"
"""Tags of the run that audits kept rows again."""


class RowsReleased(Frozen):
    """One release of a partition's rows, written down in the record of its table."""

    author: str = Field(min_length=1)
    reason: str = Field(min_length=1)
    rows: int
    """Rows that were kept back before and are published now."""
    run: str
    """Dagster run id."""
    time: Time
