"""What was served decides: a canary that lost is named, a release that decays raises an alarm."""

from collections.abc import Sequence
from math import sqrt

import pytest

from ml_assets.assets.evaluation_report.drift_baseline import PeriodLoss
from ml_assets.extras.serving.online_evaluation.loss import OnlineReport, ServedLoss
from ml_assets.extras.serving.online_evaluation.verdict import canary_verdict, loss_alarm
from ml_assets.spec.drift import DriftSpec
from ml_assets.spec.gates import Target
from ml_assets.spec.records import Interval
from ml_assets_tests.records.conftest import A, B

C = "c" * 64
T = 2.4469
"""Student's quantile of a 95 % interval over seven blocks."""


def loss(period: str, mean: float, error: float = 0.004) -> PeriodLoss:
    return PeriodLoss(period=period, units=700, blocks=7, mean=mean, error=error)


def served(stage: Target, model: str, told: PeriodLoss) -> ServedLoss:
    around = Interval(value=told.mean, low=told.mean - 0.01, high=told.mean + 0.01)
    return ServedLoss(stage=stage, model=model, units=told.units, loss=around, told=told)


def report(
    difference: tuple[float, float] | None = None,
    canary: str = B,
    champion: str = A,
    mean: float = 0.4,
    period: str = "2024-04-01",
    others: Sequence[ServedLoss] = (),
) -> OnlineReport:
    """A period in which the canary's loss less the champion's was found to lie between two values.

    Args:
        difference: None: the canary answered too little.
        others: models that answered more than these two.
    """
    error, models = 0.004, [*others]
    if difference is not None:
        low, high = difference
        error = (high - low) / 2 / T / sqrt(2)
        models.append(served("canary", canary, loss(period, mean + (low + high) / 2, error)))
    models.append(served("production", champion, loss(period, mean, error)))
    return OnlineReport(
        pipeline="deliveries",
        period=period,
        loss="log-loss",
        labelled=1400,
        models=tuple(sorted(models, key=lambda one: one.stage)),
        difference=None,
    )


@pytest.mark.parametrize(
    ("differences", "passed"),
    [
        ([(0.01, 0.03)], False),
        ([(-0.01, 0.03)], True),
        ([(-0.03, -0.01)], True),
        ([(-0.001, 0.021), (-0.001, 0.021), (-0.001, 0.021)], False),  # together it is no chance
        ([(0.01, 0.03), (-0.03, -0.01)], True),
    ],
)
def test_a_canary_is_refused_where_it_lost_beyond_chance(
    differences: list[tuple[float, float]], passed: bool
) -> None:
    said = canary_verdict([report(one) for one in differences], B, A)
    assert (said.passed, said.bound) == (passed, 0.0)
    assert said.interval and said.value == said.interval.low
    assert f"on {700 * len(differences):,} labelled rows" in said.reason


def test_what_is_about_others_refuses_nothing() -> None:
    lost = (0.1, 0.2)
    others = [report(lost, canary=C), report(lost, champion=C), report(None)]
    said = canary_verdict(others, B, A)
    assert (said.passed, said.value) == (True, None)
    assert "served no labelled rows side by side yet" in said.reason
    assert not canary_verdict([report(lost, champion=C)], B, None).passed, "a first release"


@pytest.mark.parametrize("stage", ["canary", "production"])
def test_who_answered_more_in_the_same_period_hides_nothing(stage: Target) -> None:
    other = served(stage, C, loss("2024-04-01", 0.4).model_copy(update={"units": 9000}))
    said = canary_verdict([report((0.1, 0.2), others=[other])], B, A)
    assert not said.passed and said.interval
    assert said.interval.low == pytest.approx(0.1, abs=1e-4)
    assert "on 700 labelled rows" in said.reason
    badly, drift = report(mean=0.6, others=[other]), DriftSpec(windows=3, alarm_at=2)
    assert loss_alarm([badly, badly], A, HELD, drift)
    assert not loss_alarm([badly, badly], B, HELD, drift), "it was not served"


HELD = [loss("1", 0.40), loss("2", 0.41), loss("3", 0.39)]


def test_a_loss_that_rose_in_so_many_periods_is_an_alarm_of_performance() -> None:
    drift = DriftSpec(windows=3, alarm_at=2)
    well, badly = report(mean=0.4, period="4"), report(mean=0.6, period="5")
    assert loss_alarm([well, well, badly], A, HELD, drift) is None
    assert loss_alarm([badly, badly, well, well], A, HELD, drift) is None, "it has passed"
    alarm = loss_alarm([well, badly, badly], A, HELD, drift)
    assert alarm and (alarm.period, alarm.kinds) == ("5", ("performance",))
    assert "the log-loss of what was served rose (5: +50%" in alarm.reason
