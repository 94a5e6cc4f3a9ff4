"""A loss that rises is decay where chance does not explain it and it is large enough to matter."""

import numpy as np
import pytest

from ml_assets.assets.drift_report.compare import judge_loss
from ml_assets.assets.evaluation_report.period_loss import PeriodLoss, period_loss

ALPHA, FLOOR = 0.01, 0.1
DAYS, ROWS = 7, 200


def week(draw: np.random.Generator, mean: float, day: float = 0.05, rows: int = ROWS) -> PeriodLoss:
    """A week whose days differ: rows of one day are not independent."""
    blocks = np.repeat(np.arange(DAYS), rows)
    of_day = draw.normal(scale=day, size=DAYS)[blocks]
    found = period_loss("w", mean + of_day + draw.normal(scale=0.3, size=len(blocks)), blocks)
    assert found
    return found


def test_one_more_week_of_the_same_kind_is_hardly_ever_decay() -> None:
    draw = np.random.default_rng(0)
    held = [week(draw, 0.5) for _ in range(8)]
    found = [judge_loss(held, week(draw, 0.5), ALPHA, FLOOR) for _ in range(200)]
    assert sum(one.drifted for one in found if one) <= 2


def test_a_loss_that_rose_by_a_half_is_decay() -> None:
    draw = np.random.default_rng(1)
    held = [week(draw, 0.5) for _ in range(8)]
    found = [judge_loss(held, week(draw, 0.75), ALPHA, FLOOR) for _ in range(20)]
    assert all(one.drifted for one in found if one)
    assert len([one for one in found if one]) == 20


def test_a_sure_rise_that_is_small_is_none() -> None:
    draw = np.random.default_rng(2)
    held = [week(draw, 0.5, day=0.0, rows=50_000) for _ in range(8)]
    found = judge_loss(held, week(draw, 0.52, day=0.0, rows=50_000), ALPHA, FLOOR)
    assert found
    assert found.worst.value == pytest.approx(0.04, abs=0.01)
    assert found.worst.bound == FLOOR
    assert not found.drifted


def test_weeks_of_the_holdout_that_differ_widen_the_bound() -> None:
    draw = np.random.default_rng(3)
    held = [week(draw, mean) for mean in (0.3, 0.7, 0.4, 0.6, 0.5, 0.8, 0.35, 0.45)]
    found = judge_loss(held, week(draw, 0.75), ALPHA, FLOOR)
    assert found
    assert not found.drifted


def test_few_labels_say_little_and_one_says_nothing() -> None:
    assert period_loss("w", np.array([0.5]), np.array([0])) is None
    draw = np.random.default_rng(4)
    held = [week(draw, 0.5) for _ in range(8)]
    few = period_loss("w", draw.normal(0.8, 0.3, size=6), np.array([0, 0, 0, 1, 1, 1]))
    assert few
    found = judge_loss(held, few, ALPHA, FLOOR)
    assert found
    assert not found.drifted


def test_the_error_is_that_of_the_blocks_not_of_the_rows() -> None:
    """Against the deviation of the mean over many weeks drawn alike."""
    draw = np.random.default_rng(5)
    weeks = [week(draw, 0.5, day=0.2) for _ in range(400)]
    spread = float(np.std([one.mean for one in weeks]))
    assert float(np.mean([one.error for one in weeks])) == pytest.approx(spread, rel=0.15)
