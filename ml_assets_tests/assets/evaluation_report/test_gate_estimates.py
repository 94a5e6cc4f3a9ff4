"""Slices and gaps: a part that is left behind is found, and chance alone rarely finds one."""

import tracemalloc
from dataclasses import replace

import numpy as np
import polars as pl
import pytest

from ml_assets.assets.evaluation_report.champion_comparison import ChampionScores
from ml_assets.assets.evaluation_report.gate_estimates import (
    against_champion,
    estimates,
    gaps,
    of_metric,
    parts_of,
)
from ml_assets.assets.evaluation_report.rows import Holdout, Truth
from ml_assets.assets.released_model.gates.decide import decide
from ml_assets.spec.gates import Gap, Slices
from ml_assets.spec.records import ChampionComparison, Interval

SHOPS = ["a", "b", "c", "d"]
CHAMPION = "c4" * 32


def slices(**more):
    return Slices(kind="slices", columns=("shop",), min_rows=100, **more)


def gap(**more):
    return Gap(kind="gap", column="shop", min_rows=100, **more)


@pytest.fixture
def world():
    """Labels that the rows' chance tells, in four shops over forty days, and a shop of three."""
    rng = np.random.default_rng(5)
    shop = np.concatenate([rng.choice(SHOPS, 4000), ["e"] * 3])
    chance = rng.uniform(0.05, 0.95, len(shop))
    labels = (rng.random(len(shop)) < chance).astype(int)
    days = np.concatenate([np.arange(4000) // 100, [0, 1, 2]])
    holdout = Holdout(Truth("binary", labels), days, {"shop": pl.Series(shop)}, ("", ""))
    return holdout, chance[:, None]


def spoiled(holdout, scores, shop):
    """Blind in one shop."""
    there = (holdout.slices["shop"] == shop).to_numpy()
    return np.where(there[:, None], 0.5, scores)


def said(gate, report, measured, found, champion=None):
    if champion is not None:
        seen = ChampionComparison(
            champion=CHAMPION,
            comparable=True,
            reason="",
            loss="log-loss",
            loss_difference=Interval(value=0, low=0, high=0),
            metrics={},
        )
        report = report.model_copy(update={"champion": seen})
    told = report.model_copy(update={"estimates": {gate.name: found}})
    (result,) = decide([gate], told, measured, champion=champion)
    return result


def test_of_a_ranking_the_queries_of_a_slice_are_judged():
    rng = np.random.default_rng(2)
    queries = np.repeat(np.arange(400), 10)
    grades = rng.choice([0.0, 0.0, 1.0, 2.0], 4000)
    good = (grades + rng.normal(0, 0.8, 4000))[:, None]
    shop = pl.Series(np.repeat(rng.choice(["a", "b"], 400), 10))
    holdout = Holdout(Truth("ranking", grades, queries=queries), queries, {"shop": shop}, ("", ""))
    worse = np.where((shop == "b").to_numpy()[:, None], rng.normal(size=(4000, 1)), good)
    same, left = against_champion(slices(margin=0.02), holdout, worse, good, 0)
    assert same.interval.value == 0 and left.interval.low > 0.05
    (floor_a, floor_b) = of_metric(slices(metric="ndcg", at_least=0.5), "ndcg", holdout, worse, 0)
    assert floor_a.interval.low > floor_b.interval.high


def test_small_slices_are_left_out_and_null_is_one(world):
    holdout, _ = world
    assert [part.about for part in parts_of(holdout, ["shop"], 4)] == [f"shop {s}" for s in SHOPS]
    some = pl.Series([None, "x", "x"])
    few = Holdout(Truth("binary", np.array([0, 1, 1])), np.arange(3), {"shop": some}, ("", ""))
    assert [part.about for part in parts_of(few, ["shop"], 1)] == ["shop (none)", "shop x"]


def test_a_model_that_is_worse_in_one_slice_is_refused_and_the_slice_is_named(
    world, report, measured
):
    holdout, scores = world
    gate = slices(margin=0.02)
    worse = against_champion(gate, holdout, spoiled(holdout, scores, "c"), scores, 0)
    result = said(gate, report, measured, worse, CHAMPION)
    assert not result.passed
    assert ", «shop c» (" in result.reason and "rows, the worst of 4)" in result.reason
    assert result.value == result.interval.high > 0.02
    same = against_champion(gate, holdout, scores, scores, 0)
    assert said(gate, report, measured, same, CHAMPION).passed


def test_a_floor_is_held_to_the_worse_end_of_each_slice(world, report, measured):
    holdout, scores = world
    gate = slices(metric="auc", at_least=0.7)
    fine = said(gate, report, measured, of_metric(gate, "auc", holdout, scores, 0))
    assert fine.passed and fine.value == fine.interval.low
    blind = of_metric(gate, "auc", holdout, spoiled(holdout, scores, "b"), 0)
    result = said(gate, report, measured, blind)
    assert not result.passed and "shop b" in result.reason


def test_a_column_of_small_slices_alone_is_refused_beside_one_that_is_judged(
    world, report, measured
):
    holdout, scores = world
    till = pl.Series([f"t{number % 50}" for number in range(len(scores))])
    both = replace(holdout, slices={**holdout.slices, "till": till})
    report = report.model_copy(update={"rows": len(scores)})
    for bound in ({"metric": "auc", "at_least": 0.7}, {"margin": 0.02}):
        gate = slices(**bound).model_copy(update={"columns": ("shop", "till")})
        found = (
            of_metric(gate, "auc", both, scores, 0)
            if gate.metric
            else against_champion(gate, both, scores, scores, 0)
        )
        result = said(gate, report, measured, found, CHAMPION)
        assert not result.passed
        assert "no value of till has 100 rows" in result.reason
        fine = said(slices(**bound), report, measured, found, CHAMPION)
        assert fine.passed and fine.reason.endswith("in slices too small to judge: 3 rows by shop")


@pytest.mark.parametrize("metric", [None, "accuracy", "auc"])
def test_a_gap_between_two_groups_is_found_and_named(world, report, measured, metric):
    holdout, scores = world
    gate = gap(metric=metric, at_most=0.15)
    fair = said(gate, report, measured, gaps(gate, holdout, scores, 0))
    assert fair.passed and "the worst of 6" in fair.reason
    unfair = gaps(gate, holdout, spoiled(holdout, scores, "d"), 0)
    result = said(gate, report, measured, unfair)
    assert not result.passed and "shop d" in result.reason
    assert all(one.interval.value >= 0 for one in unfair)


@pytest.mark.parametrize("metric", [None, "accuracy"])
def test_many_groups_take_the_memory_of_each_and_not_of_each_pair(metric):
    rng, groups, rows = np.random.default_rng(0), 60, 40_000
    shop = pl.Series(rng.integers(0, groups, rows).astype(str))
    truth, days = Truth("binary", rng.integers(0, 2, rows)), rng.integers(0, 30, rows)
    holdout, scores = Holdout(truth, days, {"shop": shop}, ("", "")), rng.random((rows, 1))
    tracemalloc.start()
    found = gaps(gap(metric=metric, at_most=0.1), holdout, scores, 0)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    pairs = groups * (groups - 1) // 2
    assert len(found) == 60
    assert peak < pairs * rows / 2, "no pair holds a byte for each row"
    counts = dict(shop.value_counts().iter_rows())
    about = found[0].about.replace("shop ", "").split(" to ")
    assert found[0].rows == sum(counts[one] for one in about)


def test_one_group_is_no_gap_and_nothing_to_judge_is_refused(world, report, measured):
    holdout, scores = world
    few = gap(at_most=0.1).model_copy(update={"min_rows": 5000})
    assert gaps(few, holdout, scores, 0) == ()
    result = said(few, report, measured, ())
    assert not result.passed and "large enough to judge" in result.reason
    assert not said(slices(margin=9.0), report, measured, (), CHAMPION).passed


def test_a_slice_of_one_day_has_no_interval_and_is_refused(world, report, measured):
    holdout, scores = world
    first = pl.Series(np.where(holdout.blocks == 3, "one day", "others"))
    once = Holdout(holdout.truth, holdout.blocks, {"shop": first}, ("", ""))
    gate = slices(margin=9.0).model_copy(update={"min_rows": 50})
    found = against_champion(gate, once, scores, scores, 0)
    assert [one.interval is None for one in found] == [True, False]
    result = said(gate, report, measured, found, CHAMPION)
    assert not result.passed and "cannot be known for «shop one day» (100 rows)" in result.reason


def test_without_a_champion_the_slices_pass_and_an_incomparable_one_is_refused(
    world, report, measured, spec
):
    holdout, scores = world
    gate = slices(margin=0.02)
    spec = spec.model_copy(update={"gates": (gate,)})
    assert estimates(spec, holdout, scores, None, None) == {}
    first = report.model_copy(update={"champion": None})
    (result,) = decide([gate], first, measured)
    assert result.passed and result.reason == "no champion yet"
    gone = ChampionScores(CHAMPION, None, "its features are gone")
    assert estimates(spec, holdout, scores, gone, None) == {}
    (stale,) = decide([gate], report, measured, champion="ee" * 32)
    assert not stale.passed and "make the evaluation report again" in stale.reason


@pytest.mark.daemon
def test_all_slices_are_right_at_once_nineteen_times_out_of_twenty(world):
    """Each interval alone holds more often, so that together they hold: 40 slices, no effect."""
    _, _ = world
    wrong = 0
    for number in range(200):
        rng = np.random.default_rng(number)
        losses = rng.normal(size=(4000, 2)) * 0.02 + 0.7
        labels = np.ones(4000, int)
        names = pl.Series([f"s{n}" for n in np.arange(4000) % 40])
        days = rng.permutation(np.arange(4000) // 100)
        holdout = Holdout(Truth("binary", labels), days, {"shop": names}, ("", ""))
        own, rival = np.exp(-losses).T[:, :, None]
        found = against_champion(
            slices(margin=1.0).model_copy(update={"min_rows": 50}), holdout, own, rival, number
        )
        assert len(found) == 40
        wrong += any(one.interval.high < 0 or one.interval.low > 0 for one in found)
    assert wrong <= 0.08 * 200
