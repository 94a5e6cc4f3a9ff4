"""What a release was trained on and how it did: all that later rows are compared with."""

from typing import Literal

from pydantic import Field

from ml_assets.assets.evaluation_report.drift_profile import Profile
from ml_assets.assets.evaluation_report.period_loss import PeriodLoss
from ml_assets.spec.base import Digest, Frozen

BASELINE_FILE = "baseline.json"


class Baseline(Frozen):
    """Stored with the report on a model; its digest is in the certificate of the decision."""

    schema_version: Literal[1] = 1
    pipeline: str
    model: Digest
    data: Digest
    """The training set."""
    features: Profile
    """The profile of the training split, by period."""
    labels: Profile
    """The profile of its labels."""
    unlabelled: float
    """The highest share of rows without a label in any training period."""
    predictions: Profile
    """The profile of the predictions on the holdout, which it never saw, by period."""
    losses: tuple[PeriodLoss, ...] = Field(strict=False)
    """The losses of the holdout's periods."""

    @property
    def trained_on(self) -> tuple[str, str]:
        """First and last period of the training split."""
        periods = [one.period or "" for one in self.features.periods]
        return periods[0], periods[-1]
