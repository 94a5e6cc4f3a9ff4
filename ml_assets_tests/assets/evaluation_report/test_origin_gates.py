"""Gates over several origins: the mean or the worst of them, and nothing where one is missing."""

import pytest

from ml_assets.assets.evaluation_report.pictures import origin_pictures, origins_table
from ml_assets.assets.evaluation_report.rolling_origin import mean_over
from ml_assets.assets.released_model.gates.decide import decide
from ml_assets.spec.gates import BeatsBaseline, Bound
from ml_assets.spec.records import (
    EvaluationReport,
    GateResult,
    Interval,
    Measured,
    OriginReport,
    OriginReports,
)

MEASURED = Measured(latency_ms=1.0, rows_per_second=1.0)


def at(value: float) -> Interval:
    return Interval(value=value, low=value - 0.01, high=value + 0.01)


def rolled(judge: str, *values: tuple[float, float], missing: str = "") -> EvaluationReport:
    """A report whose origins have these RMSEs, of the model and of persistence."""
    origins = tuple(
        OriginReport(
            holdout=(f"day {n}", f"day {n}"),
            trained_on=("a", "b"),
            rows=10,
            model="a" * 64,
            metrics={"rmse": at(own), "skill": at(1 - own / base)},
            baselines={"persistence": {"rmse": base}},
        )
        for n, (own, base) in enumerate(values)
    )
    last = origins[-1]
    return EvaluationReport(
        pipeline="p",
        model="a" * 64,
        data="b" * 64,
        rows=10,
        holdout=last.holdout,
        label_rate=(),
        metrics=last.metrics,
        baselines=last.baselines,
        champion=None,
        slices=(),
        calibration=(),
        roc=None,
        precision_recall=None,
        size_bytes=1,
        origins=OriginReports.model_validate(
            {
                "judge": judge,
                "asked": len(values),
                "origins": origins,
                "mean": mean_over([one.metrics for one in origins]),
                "missing": missing,
            }
        ),
    )


def said(report: EvaluationReport, gate: Bound | BeatsBaseline) -> GateResult:
    (found,) = decide([gate], report, MEASURED)
    return found


BEATS = BeatsBaseline(kind="baseline", name="b", metric="rmse", baseline="persistence")
FLOOR = Bound(kind="bound", name="f", metric="skill", at_least=0.1)
MIXED = ((1.0, 2.0), (2.2, 2.0), (1.0, 2.0))
"""The newest holdout and the mean are won; the one in the middle is lost."""


def test_the_mean_of_the_origins_is_held_to_the_bound() -> None:
    found = said(rolled("mean", *MIXED), BEATS)
    assert found.passed
    assert "rmse is 1.4000 in the mean of 3 origins (1.0000 to 2.2000), below the 2.0000" in (
        found.reason
    )
    lost = ((3.0, 2.0), (3.0, 2.0), (1.0, 2.0))
    assert not said(rolled("mean", *lost), BEATS).passed, "the newest alone would pass"


def test_the_worst_of_the_origins_is_held_to_the_bound() -> None:
    found = said(rolled("worst", *MIXED), BEATS)
    assert not found.passed
    assert "rmse is 2.2000 at the worst of 3 origins (day 1), not below" in found.reason
    floor = said(rolled("worst", *MIXED), FLOOR)
    assert not floor.passed
    assert floor.value == pytest.approx(-0.1)
    assert said(rolled("mean", *MIXED), FLOOR).passed


def test_the_worst_is_where_the_baseline_is_ahead_not_where_the_loss_is_largest() -> None:
    hard = ((9.0, 20.0), (2.2, 2.0), (1.0, 2.0))
    assert "(day 1)" in said(rolled("worst", *hard), BEATS).reason


def test_a_ceiling_takes_the_highest_and_a_floor_the_lowest() -> None:
    both = Bound(kind="bound", name="f", metric="rmse", at_least=0.5, at_most=2.0)
    found = said(rolled("worst", *MIXED), both)
    assert not found.passed
    assert found.value == 2.2


def test_a_missing_origin_refuses() -> None:
    report = rolled("mean", *MIXED, missing="3 of the 9 origins asked for could be judged: why")
    for gate in (BEATS, FLOOR):
        found = said(report, gate)
        assert not found.passed
        assert "3 of the 9 origins asked for" in found.reason


def test_a_metric_that_one_origin_lacks_refuses() -> None:
    report = rolled("mean", *MIXED)
    assert report.origins
    first, *rest = report.origins.origins
    bare = first.model_copy(update={"metrics": {}, "baselines": {}})
    origins = (bare, *rest)
    mean = mean_over([one.metrics for one in origins])
    without = report.model_copy(
        update={"origins": report.origins.model_copy(update={"origins": origins, "mean": mean})}
    )
    assert not said(without, BEATS).passed
    assert not said(without, FLOOR).passed


def test_the_interval_of_the_mean_is_that_of_the_origins() -> None:
    mean = mean_over([{"rmse": at(1.0)}, {"rmse": at(2.0)}, {"rmse": at(3.0)}])["rmse"]
    assert mean.value == 2.0
    assert (mean.high - mean.value) == pytest.approx(4.3027 / 3**0.5, rel=1e-4)
    assert mean_over([{"rmse": at(1.0)}]) == {}


def test_the_page_shows_each_origin_and_what_it_cost() -> None:
    table = origins_table(rolled("worst", *MIXED), {"trainings": 2, "seconds": 61.4})
    assert table
    assert [row[0] for row in table.rows] == ["day 2", "day 1", "day 0", "mean"]
    assert table.rows[0][1] == "a to b"
    assert "use the worst of them. It took 2 more trainings, 61 seconds in total." in table.words
    titles = [one.title for one in origin_pictures(rolled("mean", *MIXED))]
    assert titles == ["RMSE over the origins", "Skill against persistence over the origins"]
