"""Which periods are judged by their labels."""

from types import SimpleNamespace
from typing import Any

import pytest

from ml_assets.assets.drift_report.windows import matured_periods
from ml_assets.spec.drift import DriftSpec

BASELINE: Any = SimpleNamespace(unlabelled=0.1)


def matured(shares: list[float], lag: int) -> list[str]:
    unseen = {f"2024-01-{day:02}": share for day, share in enumerate(shares, start=1)}
    return matured_periods(unseen, BASELINE, DriftSpec(label_lag=lag))


@pytest.mark.parametrize("count", range(8))
def test_a_period_has_matured_once_so_many_came_after_it(count: int) -> None:
    """However few came: three of them are no four."""
    assert len(matured([0.1] * count, lag=4)) == max(0, count - 4)


def test_a_period_whose_labels_are_still_missing_is_not_judged_by_them() -> None:
    assert matured([0.1, 0.9, 0.1, 0.9], lag=0) == ["2024-01-01", "2024-01-03"]
    assert matured([0.1, 0.9, 0.1, 0.9], lag=2) == ["2024-01-01"]
