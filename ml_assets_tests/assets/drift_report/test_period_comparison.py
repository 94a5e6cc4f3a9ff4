"""All kinds together: quiet on unchanged periods, each fault named by its kind, in pictures too."""

from datetime import UTC, datetime

import numpy as np
import polars as pl
import pytest

from ml_assets.assets.drift_report.findings import DriftReport, JudgedPeriod
from ml_assets.assets.drift_report.period_comparison import Comparison, NewPeriod, judge_loss
from ml_assets.assets.drift_report.pictures import at_a_glance, drift_pictures
from ml_assets.assets.drift_report.verdict import conclude, raise_alarm, remember
from ml_assets.assets.evaluation_report.drift_baseline import Baseline, PeriodLoss, period_loss
from ml_assets.assets.evaluation_report.drift_profile import make_profile
from ml_assets.reports.inline_pictures import INLINE
from ml_assets.reports.picture import IMAGE_BYTES
from ml_assets.spec.drift import DriftSpec

ROWS = 2000
ALPHA, FLOOR = 0.01, 0.1
DAYS, DAILY = 7, 200
SPEC = DriftSpec(leave_out=("week",))


def period(draw: np.random.Generator, number: int) -> pl.DataFrame:
    """A steady column, the weather of the week, the week's number, and a word."""
    return pl.DataFrame(
        {
            "steady": draw.normal(size=ROWS),
            "weather": draw.normal(size=ROWS) + 3 * draw.normal(),
            "week": np.full(ROWS, float(number)),
            "word": draw.choice(["a", "b", "<c>"], ROWS),
        }
    )


def baseline(train: dict[str | None, pl.DataFrame], held: int = 6) -> Baseline:
    draw = np.random.default_rng(1)
    beside = {
        str(n): pl.DataFrame({"prediction": draw.beta(2, 5, ROWS)}) for n in range(100, 100 + held)
    }
    return Baseline(
        pipeline="p",
        model="a" * 64,
        data="b" * 64,
        features=make_profile(train, ["steady", "weather", "week"], ["word"]),
        labels=make_profile(
            {key: pl.DataFrame({"late": draw.choice(["true", "false"], ROWS)}) for key in train},
            [],
            ["late"],
        ),
        unlabelled=0.0,
        predictions=make_profile(beside, ["prediction"], []),
        losses=(),
    )


@pytest.fixture(scope="module")
def judging() -> Comparison:
    draw = np.random.default_rng(2)
    train: dict[str | None, pl.DataFrame] = {str(n): period(draw, n) for n in range(12)}
    return Comparison(baseline(train), train, SPEC)


def judge(judging: Comparison, rows: pl.DataFrame, spread: float = 1.0) -> JudgedPeriod:
    draw = np.random.default_rng(3)
    predictions = pl.DataFrame({"prediction": draw.beta(2, 5, len(rows)) ** spread})
    return judging.judge(NewPeriod("20", rows, predictions=predictions))


def drifted(window: JudgedPeriod) -> set[tuple[str, str]]:
    return {(one.kind, one.column) for one in window.findings if one.drifted}


def test_weather_may_change_as_it_does_and_a_number_of_the_week_is_not_judged(
    judging: Comparison,
) -> None:
    draw = np.random.default_rng(4)
    for number in range(20, 30):
        assert drifted(judge(judging, period(draw, number))) == set()
    assert set(judging.restless) == {"weather", "week"}


def test_each_fault_is_named_by_its_kind_and_column(judging: Comparison) -> None:
    rows = period(np.random.default_rng(5), 20)
    shifted = drifted(judge(judging, rows.with_columns(pl.col("steady") + 0.3)))
    assert ("features", "steady") in shifted
    new = pl.when(pl.int_range(pl.len()) % 50 == 0).then(pl.lit("d")).otherwise("word")
    assert ("categories", "word") in drifted(judge(judging, rows.with_columns(new.alias("word"))))
    assert ("predictions", "prediction") in drifted(judge(judging, rows, spread=1.5))


def test_what_nobody_can_back_test_is_not_judged_and_says_so() -> None:
    draw = np.random.default_rng(6)
    train: dict[str | None, pl.DataFrame] = {str(n): period(draw, n) for n in range(3)}
    few = Comparison(baseline(train, held=2), train, SPEC)
    window = judge(few, period(draw, 20).with_columns(pl.col("steady") + 9))
    assert window.findings == ()
    outcomes = {one.kind: one for one in conclude([window], SPEC, few.not_judged)}
    assert outcomes["features"].value is None
    assert "the training split has 3 periods, at least 4 are needed" in outcomes["features"].reason
    assert "the holdout has 2 periods" in outcomes["predictions"].reason


def test_what_hardly_anything_exceeds_is_told_with_its_cause() -> None:
    """Periods that differ by themselves as much as anything could: an alarm would never come."""
    draw = np.random.default_rng(8)

    def odd(number: int) -> pl.DataFrame:
        rows = period(draw, number)
        lost = pl.int_range(pl.len()) % 10 < draw.integers(0, 6)
        return rows.with_columns(
            steady=pl.col("steady") + 90 * draw.normal(),
            weather=pl.when(lost).then(None).otherwise(pl.lit(0.0)),
        )

    train: dict[str | None, pl.DataFrame] = {str(n): odd(n) for n in range(6)}
    judging = Comparison(baseline(train), train, SPEC)
    gone = odd(20).with_columns(steady=pl.lit(1e6))
    outcomes = {one.kind: one for one in conclude([judge(judging, gone)], SPEC, {})}
    assert outcomes["nulls"].word == "ok", "a word that is never lost is still watched"
    assert "1 of 3 columns cannot alarm, weather for one" in outcomes["nulls"].reason
    assert "cannot alarm, steady for one" in outcomes["features"].reason
    assert (
        "because the periods that it is compared with differ that much"
        in outcomes["features"].reason
    )
    assert outcomes["predictions"].word == "ok"
    assert "cannot alarm" not in outcomes["predictions"].reason


def test_few_rows_see_little_and_say_so() -> None:
    draw = np.random.default_rng(9)
    train: dict[str | None, pl.DataFrame] = {str(n): period(draw, 0).head(6) for n in range(6)}
    judging = Comparison(baseline(train), train, SPEC)
    window = judging.judge(NewPeriod("20", period(draw, 0).head(6)))
    outcomes = {one.kind: one for one in conclude([window], SPEC, {})}
    assert outcomes["features"].word == "cannot alarm"
    assert "chance alone goes that far in so few rows" in outcomes["features"].reason


def test_a_loss_that_would_have_to_double_cannot_alarm() -> None:
    draw = np.random.default_rng(10)
    held = [week(draw, mean) for mean in (0.1, 0.9, 0.2, 1.4)]
    found = judge_loss(held, week(draw, 1.2), ALPHA, FLOOR)
    assert found
    assert found.is_blind
    (told,) = [
        one
        for one in conclude([JudgedPeriod(period="1", rows=9, findings=(found,))], SPEC, {})
        if one.kind == "performance"
    ]
    assert told.word == "cannot alarm"
    assert "raise split.holdout" in told.reason


def test_the_pictures_are_small_and_hold_any_word(judging: Comparison) -> None:
    rows = period(np.random.default_rng(7), 20).with_columns(pl.col("steady") + 1)
    window = judge(judging, rows)
    outcomes = conclude([window, window.model_copy(update={"period": "21"})], SPEC, {})
    windows = (window, window.model_copy(update={"period": "21"}))
    report = DriftReport(
        pipeline="p",
        model="a" * 64,
        trained_on=("0", "11"),
        training_rows=12 * ROWS,
        back_tested=12,
        windows=windows,
        outcomes=outcomes,
        notes=(),
        alarm=raise_alarm(outcomes, "21", None),
        shapes=judging.shapes(rows, window),
        history=remember((), windows, "a" * 64),
        time=datetime(2024, 1, 1, tzinfo=UTC),
    )
    small = at_a_glance(report)
    assert small.startswith("21: each kind") and "data:image/svg" in small and len(small) < INLINE
    shown = drift_pictures(report)
    titles = [one.title for one in shown]
    assert titles[:3] == ["Drift", "Furthest from the training rows", "Drift over time"]
    assert "steady" in titles
    assert "ALARM" in shown[0].markdown()
    for one in shown:
        assert len(one.markdown()) < IMAGE_BYTES
        assert "<c>" not in one.markdown()


# --- performance: a loss that rises is decay where chance does not explain it --------------------


def week(
    draw: np.random.Generator, mean: float, day: float = 0.05, rows: int = DAILY
) -> PeriodLoss:
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
