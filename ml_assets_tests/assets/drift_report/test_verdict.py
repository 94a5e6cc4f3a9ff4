"""k of the last n periods, in words; and an alarm stands."""

from ml_assets.assets.drift_report.findings import Finding, JudgedPeriod, Measure
from ml_assets.assets.drift_report.verdict import conclude, measured, not_judged, remember, summary
from ml_assets.spec.drift import DriftKind
from ml_assets_tests.assets.drift_report.reports import MODEL, OTHER, SPEC, report, window


def test_one_period_of_three_is_no_alarm_and_two_are() -> None:
    quiet = report(window("1"), window("2"), window("3", 0.4))
    assert quiet.alarm is None
    assert "1 of the last 3 periods drifted (3), and an alarm needs 2" in quiet.outcomes[0].reason
    loud = report(window("1", 0.3), window("2"), window("3", 0.4))
    assert loud.alarm
    assert loud.outcomes[0].windows == ("1", "3")
    assert "x: PSI 0.4, bound 0.1" in loud.alarm.reason


def test_it_has_to_be_the_same_column() -> None:
    found = report(window("1", 0.3, y=0.0), window("2", 0.0, y=0.3), window("3", 0.0, y=0.0))
    assert found.alarm is None


def test_a_bound_that_hardly_anything_exceeds_is_told_as_that() -> None:
    blind = Measure(statistic="js", value=0.872, bound=1.0, because="periods")
    seeing = Measure(statistic="psi", value=0.1, bound=0.2)
    x = Finding(kind="features", column="x", measures=(blind,))
    y = Finding(kind="features", column="y", measures=(blind, seeing))
    both = JudgedPeriod(period="1", rows=9, findings=(x, y))
    (told,) = [one for one in conclude([both], SPEC, {}) if one.kind == "features"]
    assert (
        "1 of 2 columns cannot alarm, x for one: hardly anything exceeds a Jensen-Shannon distance"
        " of 1, because the periods that it is compared with differ that much without drift"
    ) in told.reason
    assert told.word == "ok"
    alone = report(JudgedPeriod(period="1", rows=9, findings=(x,)))
    assert alone.outcomes[0].word == "cannot alarm"
    assert "but these cannot alarm: features" in summary(alone)
    sees = JudgedPeriod(period="1", rows=9, findings=(y,))
    (told,) = [one for one in conclude([sees], SPEC, {}) if one.kind == "features"]
    assert "cannot alarm" not in told.reason


def test_a_large_share_is_written_out() -> None:
    rise = Measure(statistic="loss_rise", value=21.0, bound=5.166)
    assert measured(rise) == "rise of the mean loss 2,100 %, bound 517 %"
    far = Measure(statistic="psi", value=1234.0, bound=0.1)
    assert measured(far) == "PSI 1,234, bound 0.1"


def test_the_alarm_says_which_way_the_column_moved() -> None:
    moved = "the share above «3» rose from 10.0% to 60.0%"
    found = window("1", 0.4).findings[0].model_copy(update={"moved": moved})
    twice = [JudgedPeriod(period=name, rows=9, findings=(found,)) for name in "12"]
    alarm = report(*twice).alarm
    assert alarm and f"x: PSI 0.4, bound 0.1; {moved}; 2 of the last" in alarm.reason


def test_an_old_period_is_forgotten() -> None:
    assert report(window("1", 0.3), window("2", 0.3), window("3"), window("4")).alarm is None


def test_what_returns_every_season_is_no_drift() -> None:
    measure = Measure(statistic="psi", value=0.9, bound=0.1, seasonal=(0.02, 0.1))
    one = Finding(kind="features", column="temp", measures=(measure,))
    assert not one.drifted
    assert one.worst.ratio < 1


def test_what_could_not_be_judged_is_said_and_is_no_alarm() -> None:
    outcomes = conclude([window("1")], SPEC, {"performance": "performance waits for labels"})
    by_kind = {one.kind: one for one in outcomes}
    assert by_kind["performance"].value is None
    assert by_kind["performance"].reason == "performance waits for labels"
    assert not by_kind["performance"].alarm


def test_a_report_that_could_judge_little_says_so_and_is_no_all_clear() -> None:
    kinds: list[DriftKind] = ["features", "nulls", "categories", "domain", "labels"]
    why = dict.fromkeys(kinds, "the training split has 2 periods, at least 4 are needed")
    one = report(window("1", kind="performance"))
    told = one.model_copy(update={"outcomes": conclude(one.windows, SPEC, why)})
    assert summary(told) == (
        "1: could not judge features, nulls, categories, domain, labels; only performance could"
        " be, within bounds"
    )
    assert [*not_judged(told).values()] == [kinds], "one reason, told once"
    most = report(window("1"), window("2"))
    waits = most.model_copy(
        update={"outcomes": conclude(most.windows, SPEC, {"labels": "they wait"})}
    )
    assert summary(waits).endswith("within its bounds; could not judge labels")


def test_an_alarm_stands_until_another_model_is_released() -> None:
    first = report(window("1", 0.3), window("2", 0.3))
    later = report(window("3"), window("4"), window("5"), alarm=first.alarm)
    assert later.alarm == first.alarm
    assert "no drift now; the alarm of 2 remains" in summary(later)


def test_a_period_judged_again_takes_its_old_place_in_the_history() -> None:
    before = remember((), [window("1", 0.3), window("2")], MODEL)
    after = remember(before, [window("2", 0.5), window("3")], OTHER)
    assert [one.period for one in after] == ["1", "2", "3"]
    assert [one.model for one in after] == [MODEL, OTHER, OTHER]
    assert after[1].ratios == {"features": 5.0}
