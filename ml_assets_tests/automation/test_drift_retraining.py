"""When drift asks for a training: an alarm that stands, a cooldown, and a budget of a day."""

from datetime import timedelta

from ml_assets.automation.drift_sensor import Retrain, Wait, decide
from ml_assets.spec.drift import RetrainSpec
from ml_assets_tests.assets.drift_report.reports import MODEL, NOW, OTHER, report, window

RETRAIN = RetrainSpec(cooldown=timedelta(hours=6), runs_per_day=2)
LOUD = report(window("1", 0.3), window("2", 0.3))


def test_an_alarm_asks_for_a_training_and_says_what_it_saw() -> None:
    found = decide(LOUD, MODEL, RETRAIN, [], NOW)
    assert isinstance(found, Retrain)
    assert "drift in features since 2: x: PSI 0.3, bound 0.1" in found.reason


def test_within_the_cooldown_the_alarm_is_kept_and_acted_on_after_it() -> None:
    begun = [NOW - timedelta(hours=5)]
    found = decide(LOUD, MODEL, RETRAIN, begun, NOW)
    assert isinstance(found, Wait)
    assert "the alarm of 2 is kept" in found.reason
    assert "cooldown of 6 hours ends at 2024-05-01 13:00 UTC" in found.reason
    assert isinstance(decide(LOUD, MODEL, RETRAIN, begun, NOW + timedelta(hours=1)), Retrain)


def test_a_quiet_period_within_the_cooldown_does_not_lose_the_alarm() -> None:
    quiet = report(window("3"), window("4"), window("5"), alarm=LOUD.alarm)
    begun = [NOW - timedelta(hours=5)]
    assert isinstance(decide(quiet, MODEL, RETRAIN, begun, NOW), Wait)
    assert isinstance(decide(quiet, MODEL, RETRAIN, begun, NOW + timedelta(hours=2)), Retrain)


def test_the_budget_of_a_day_holds_whatever_drifts() -> None:
    begun = [NOW - timedelta(hours=20), NOW - timedelta(hours=10)]
    found = decide(LOUD, MODEL, RETRAIN, begun, NOW)
    assert isinstance(found, Wait)
    assert "drift may ask for 2 in a day, and has; again at 2024-05-01 16:00 UTC" in found.reason
    assert isinstance(decide(LOUD, MODEL, RETRAIN, begun, NOW + timedelta(hours=5)), Retrain)


def test_lost_values_ask_for_no_training() -> None:
    lost = report(window("1", 0.3, "nulls"), window("2", 0.3, "nulls"))
    assert lost.alarm
    found = decide(lost, MODEL, RETRAIN, [], NOW)
    assert isinstance(found, Wait)
    assert "repair the source" in found.reason


def test_a_report_on_another_release_or_none_asks_for_nothing() -> None:
    found = decide(LOUD, OTHER, RETRAIN, [], NOW)
    assert isinstance(found, Wait)
    assert "no longer the release" in found.reason
    assert isinstance(decide(None, MODEL, RETRAIN, [], NOW), Wait)
    quiet = decide(report(window("1")), MODEL, RETRAIN, [], NOW)
    assert isinstance(quiet, Wait)
    assert "within its bounds" in quiet.reason
