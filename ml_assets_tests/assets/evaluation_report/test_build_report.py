"""The judgement from raw rows: blocks by local day, labels checked, champion on the same rows."""

from datetime import UTC, datetime, timedelta

import numpy as np
import polars as pl
import pytest

from ml_assets.assets.evaluation_report.build_report import ChampionScores, judge
from ml_assets.assets.evaluation_report.rows import Holdout
from ml_assets.errors import SpecError
from ml_assets.spec.base import digest_of
from ml_assets.spec.gates import ValueBaseline
from ml_assets.spec.split import RandomSplit, StratifiedGroupSplit, TimeSharesSplit

SPAN = ("2013-11-04", "2013-11-11")


def frame(rows=1200):
    rng = np.random.default_rng(0)
    start = datetime(2013, 11, 4, tzinfo=UTC)
    return pl.DataFrame(
        {
            "id": range(rows),
            "late": rng.random(rows) < 0.3,
            "carrier": rng.choice(["AA", "UA"], rows),
            "decision_at": [start + timedelta(minutes=15 * i) for i in range(rows)],
        },
        schema_overrides={"decision_at": pl.Datetime("us", "UTC")},
    )


def judged(spec, champion=None):
    holdout = Holdout.of(spec, frame(), SPAN)
    scores = np.where(holdout.truth.labels == 1, 0.4, 0.2)[:, None]
    baselines = {"constant": np.full((len(scores), 1), 0.3)}
    return judge(
        spec,
        model="ab" * 32,
        data="d0" * 32,
        holdout=holdout,
        predictions=scores,
        baselines=baselines,
        champion=champion,
        size_bytes=10,
    )


def test_equal_arguments_give_an_equal_report(spec):
    report = judged(spec)
    assert digest_of(report) == digest_of(judged(spec))
    assert report.rows == 1200
    assert set(report.baselines) == {"constant"}
    assert {s.column for s in report.slices} == {"carrier"}
    assert report.champion is None
    assert report.metrics["auc"].value == 1.0


def test_declared_numbers_stand_beside_what_was_scored(spec):
    human = ValueBaseline(kind="value", name="human", metrics={"auc": 0.72}, source="two planners")
    evaluation = spec.evaluation.model_copy(update={"baselines": (human,)})
    report = judged(spec.model_copy(update={"evaluation": evaluation}))
    assert report.baselines["human"] == {"auc": 0.72}
    assert "auc" in report.baselines["constant"]
    assert report.sources == {"human": "two planners"}


def test_a_champion_on_the_same_rows_is_compared(spec):
    champion = ChampionScores("c4" * 32, np.full((1200, 1), 0.3), "")
    found = judged(spec, champion).champion
    assert found is not None and found.comparable
    assert found.loss_difference is not None and found.loss_difference.high < 0
    assert found.metrics["auc"] == 0.5


@pytest.mark.parametrize("scores", [None, np.full((1200, 3), 0.3)], ids=["none", "three classes"])
def test_a_champion_that_cannot_be_scored_is_not_comparable_and_says_why(spec, scores):
    found = judged(spec, ChampionScores("c4" * 32, scores, "")).champion
    assert found is not None and not found.comparable
    assert found.reason
    assert found.loss_difference is None


def test_blocks_are_days_of_the_pipelines_own_time_zone(spec):
    moments = [datetime(2013, 7, 2, 3, 30, tzinfo=UTC), datetime(2013, 7, 2, 4, 30, tzinfo=UTC)]
    two = frame(2).with_columns(decision_at=pl.Series(moments))
    first, second = Holdout.of(spec, two, SPAN).blocks
    assert second - first == 1, "midnight in New York is at 04:00 UTC in summer"


def test_rows_are_blocks_where_the_spec_says_so(spec):
    by_row = spec.model_copy(
        update={"evaluation": spec.evaluation.model_copy(update={"block": "row"})}
    )
    assert Holdout.of(by_row, frame(5), SPAN).blocks.tolist() == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("column", ["late", "carrier", "decision_at"])
def test_a_missing_column_is_named(spec, column):
    with pytest.raises(SpecError, match=column):
        Holdout.of(spec, frame(5).drop(column), SPAN)


def test_days_need_a_time_in_every_row(spec):
    with pytest.raises(SpecError, match=r"set evaluation\.block to 'row'"):
        Holdout.of(spec, frame(5).with_columns(decision_at=pl.lit(None)), SPAN)


def split_by(spec, split, seed=0):
    training = spec.training.model_copy(update={"seed": seed})
    return spec.model_copy(update={"split": split, "training": training})


def draw_of(spec, rows):
    draw = Holdout.of(spec, rows, ("", "")).draw
    assert draw is not None
    return draw


def test_a_random_draw_is_known_again_by_its_split_and_its_rows(spec):
    split, rows = RandomSplit(kind="random"), frame()
    first, more = (draw_of(split_by(spec, split), rows.head(n)) for n in (1199, 1200))
    assert first.split == more.split and len(first.sample) == 64
    assert len({*first.sample} & {*more.sample}) >= 63
    assert draw_of(split_by(spec, split, seed=1), rows).split != first.split
    more_validated = split.model_copy(update={"validation": 0.3})
    assert draw_of(split_by(spec, more_validated), rows).split == more.split
    less_held_out = split.model_copy(update={"holdout": 0.1})
    assert draw_of(split_by(spec, less_held_out), rows).split != more.split
    assert draw_of(split_by(spec, split), rows.reverse()) == more
    other = frame().with_columns(pl.col("id") + 5000)
    assert {*draw_of(split_by(spec, split), other).sample}.isdisjoint(first.sample)


def test_whole_entities_are_drawn_anew_when_one_more_comes(spec):
    split = StratifiedGroupSplit(kind="stratified_group", groups=("carrier",))
    first, more = (draw_of(split_by(spec, split), frame().head(n)) for n in (1199, 1200))
    assert first.split != more.split
    assert len({*first.sample} & {*more.sample}) >= 63


def test_a_holdout_that_is_cut_by_time_says_from_when_to_when(spec):
    found = Holdout.of(split_by(spec, TimeSharesSplit(kind="time_shares")), frame(5), ("", ""))
    assert found.span == ("2013-11-04 00:00:00", "2013-11-04 01:00:00")
    assert found.draw is None
    later = pl.col("decision_at").dt.offset_by("1ms").dt.convert_time_zone("America/New_York")
    rows = frame(5).with_columns(later)
    found = Holdout.of(split_by(spec, TimeSharesSplit(kind="time_shares")), rows, ("", ""))
    assert found.span[0] == "2013-11-04 00:00:00.001000"
