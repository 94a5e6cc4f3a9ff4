"""Baselines of a time series: what a forecast has to beat."""

from typing import Literal

from ml_assets.spec.automation import Duration
from ml_assets.spec.base import Frozen, Name


class PersistenceBaseline(Frozen):
    """Predicts that nothing changes: the value at the decision (with ``label.ahead``)."""

    kind: Literal["persistence"]
    name: Name = "persistence"


class SeasonalNaiveBaseline(Frozen):
    """Predicts the value of one season before the outcome; where it is not known, persistence."""

    kind: Literal["seasonal_naive"]
    name: Name = "seasonal_naive"
    season: Duration
    """A day, a week: not shorter than ``label.ahead``."""


class DriftBaseline(Frozen):
    """Predicts that it goes on as from the first to the last value of training, from now on."""

    kind: Literal["drift"]
    name: Name = "drift"


Forecast = PersistenceBaseline | SeasonalNaiveBaseline | DriftBaseline
"""Baselines of a time series: of a number that ``label.ahead`` takes from the future."""
