"""By simulation: unchanged streams stay quiet at every size, planted faults are found at once."""

from functools import cache

import numpy as np
import pytest

from ml_assets.assets.drift_report.findings import JudgedPeriod
from ml_assets.assets.evaluation_report.drift_profile import count
from ml_assets.spec.drift import DriftSpec
from ml_assets_tests.assets.drift_report.streams import SOUND, Fault, Stream, alarms, drifted, rows

WINDOWS = 100


@cache
def stream(rows_a_period: int) -> Stream:
    return Stream.of(rows_a_period, seed=rows_a_period)


@cache
def unchanged(rows_a_period: int, size: int) -> list[JudgedPeriod]:
    """So many rows each, judged."""
    one, draw = stream(rows_a_period), np.random.default_rng(size)
    return [one.seen(window) for window in one.windows(draw, size, WINDOWS)]


@pytest.mark.parametrize("rows_a_period", [200, 5_000])
@pytest.mark.parametrize("size", [100, 1_000, 10_000, 100_000, 1_000_000])
def test_of_a_hundred_unchanged_windows_at_most_one_drifts(rows_a_period: int, size: int) -> None:
    """Not one column of twenty, in one window: before it is asked of several periods."""
    windows = unchanged(rows_a_period, size)
    assert len([window.period for window in windows if drifted(window)]) <= 1


@pytest.mark.parametrize("rows_a_period", [200, 5_000])
@pytest.mark.parametrize("size", [100, 1_000, 10_000, 100_000, 1_000_000])
@pytest.mark.parametrize("spec", [DriftSpec(), DriftSpec(windows=8)], ids=["2 of 3", "2 of 8"])
def test_after_at_most_one_of_a_hundred_unchanged_windows_there_is_an_alarm(
    rows_a_period: int, size: int, spec: DriftSpec
) -> None:
    """By the rule that asks several periods: it is what trains again."""
    told = alarms(unchanged(rows_a_period, size), spec)
    assert sum(bool(outcomes) for outcomes in told) <= 1


@pytest.mark.parametrize("size", [100, 1_000])
def test_rows_that_are_counted_one_by_one_stay_quiet_as_well(size: int) -> None:
    draw = np.random.default_rng(size)
    one = stream(5_000)
    drawn = (count(rows(draw, size), one.profile.bins, str(n)) for n in range(WINDOWS))
    assert sum(bool(one.drifted(window)) for window in drawn) <= 1


PLANTED = {
    "a shift of 0.3 sigma": (Fault(shift=0.3), ("features", "x0")),
    "a doubled null rate": (Fault(nulls=0.1), ("nulls", "x0")),
    "a new category": (Fault(new=0.02), ("categories", "c0")),
}


@pytest.mark.parametrize(("fault", "expected"), PLANTED.values(), ids=list(PLANTED))
@pytest.mark.parametrize("size", [2_000, 10_000, 100_000])
def test_a_planted_fault_is_found_in_the_first_window_and_alarms_in_the_second(
    size: int, fault: Fault, expected: tuple[str, str]
) -> None:
    """In every one of ten streams; the same column without the fault is not named."""
    one = stream(5_000)
    for seed in range(10 if size < 100_000 else 3):
        draw = np.random.default_rng(seed)
        windows = [one.seen(window) for window in one.windows(draw, size, 2)]
        for name in ("first", "second"):
            windows.append(one.seen(count(rows(draw, size, fault), one.profile.bins, name)))
        assert all(expected in drifted(window) for window in windows[2:]), seed
        *before, alarmed = alarms(windows, DriftSpec())
        assert before == [(), (), ()], "one window is no alarm"
        assert {expected[0]} <= {outcome.kind for outcome in alarmed} <= {expected[0], "features"}
        assert expected not in one.drifted(count(rows(draw, size, SOUND), one.profile.bins, ""))


@pytest.mark.parametrize("size", [100, 300])
def test_in_a_few_rows_a_large_fault_is_found_and_the_bounds_are_wide(size: int) -> None:
    one, draw = stream(5_000), np.random.default_rng(size)
    fault = Fault(shift=1.0, nulls=0.4, new=0.2)
    found = one.drifted(count(rows(draw, size, fault), one.profile.bins, ""))
    assert found >= {("features", "x0"), ("nulls", "x0"), ("categories", "c0")}
    (few,) = (
        f
        for f in one.judge(one.windows(draw, size, 1)[0])
        if f.column == "x1" and f.kind == "features"
    )
    (many,) = (
        f
        for f in one.judge(one.windows(draw, 100_000, 1)[0])
        if f.column == "x1" and f.kind == "features"
    )
    for less, more in zip(few.measures, many.measures, strict=True):
        assert less.bound > more.bound
