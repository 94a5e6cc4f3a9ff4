"""Splits: in the order of time, apart by the embargo, and never over a gap."""

from datetime import UTC, datetime, timedelta

import polars as pl
import pytest

from ml_assets.assets.training_set.split import (
    plan_time_split,
    random_split,
    rows_before,
    split_by_moment,
)
from ml_assets.errors import WindowError
from ml_assets.spec.split import RandomSplit, TimeSharesSplit, TimeSplit

ORDER = [f"w{number:02d}" for number in range(20)]
SPEC = TimeSplit(kind="time", train=5, validation=2, holdout=3, embargo=1)


def test_the_window_ends_with_as_of_and_the_splits_are_apart() -> None:
    plan = plan_time_split(SPEC, "w15", ORDER, ORDER)
    assert plan.train == ("w04", "w05", "w06", "w07", "w08")
    assert plan.validation == ("w10", "w11")
    assert plan.holdout == ("w13", "w14", "w15")
    assert plan.embargo == ("w09", "w12")


def test_a_window_longer_than_the_data_says_by_how_much() -> None:
    with pytest.raises(WindowError, match=r"needs 12 partitions up to w09 .* only 10 up to there"):
        plan_time_split(SPEC, "w09", ORDER, ORDER)


def test_waiting_is_advised_only_where_the_newest_partition_was_asked_for() -> None:
    with pytest.raises(WindowError, match="Train on fewer, or wait"):
        plan_time_split(SPEC, "w09", ORDER[:10], ORDER)
    with pytest.raises(WindowError, match="Train on fewer, or name a later as_of, up to w19"):
        plan_time_split(SPEC, "w09", ORDER, ORDER)


def test_a_gap_is_named_also_in_the_embargo() -> None:
    for gap in ("w06", "w09"):
        have = [key for key in ORDER if key != gap]
        with pytest.raises(WindowError, match=rf"gaps: {gap}"):
            plan_time_split(SPEC, "w15", have, ORDER)


def test_an_unknown_as_of_is_refused() -> None:
    with pytest.raises(WindowError, match="w99"):
        plan_time_split(SPEC, "w99", ORDER, ORDER)


def test_a_row_stays_in_its_split_when_others_come_and_go() -> None:
    spec = RandomSplit(kind="random", validation=0.2, holdout=0.3)
    frame = pl.DataFrame({"k": range(2000)})
    split = random_split(frame, ["k"], spec, seed=0)
    part = random_split(frame.filter(pl.col("k") >= 1000), ["k"], spec, seed=0)
    assert split[1000:].to_list() == part.to_list()
    shares = split.value_counts(normalize=True).rows_by_key("split")
    assert shares["holdout"][0][0] == pytest.approx(0.3, abs=0.04)
    assert shares["validation"][0][0] == pytest.approx(0.2, abs=0.04)


def test_rows_without_partitions_are_split_by_their_moments_and_a_gap() -> None:
    start, hour = datetime(2024, 1, 1, tzinfo=UTC), timedelta(hours=1)
    moments = pl.Series("at", [start + n % 100 * hour for n in range(200)])
    spec = TimeSharesSplit(kind="time_shares", validation=0.2, holdout=0.2)
    split = split_by_moment(moments, spec, 6 * hour)
    rows = pl.DataFrame({"at": moments, "split": split})
    found = rows.group_by("split").agg(
        pl.len(), pl.col("at").min().alias("from"), pl.col("at").max()
    )
    told = {row["split"]: row for row in found.iter_rows(named=True)}
    assert {name: row["len"] for name, row in told.items()} == {
        "train": 108,
        "validation": 28,
        "holdout": 40,
        None: 24,
    }
    assert told["validation"]["from"] - told["train"]["at"] == 7 * hour
    assert told["holdout"]["from"] - told["validation"]["at"] == 7 * hour
    assert rows.group_by("at").agg(pl.col("split").n_unique())["split"].max() == 1


def test_no_row_is_in_no_split() -> None:
    none = pl.Series("at", [], pl.Datetime("us", "UTC"))
    spec = TimeSharesSplit(kind="time_shares")
    assert split_by_moment(none, spec, timedelta(0)).to_list() == []


def test_holdouts_of_shares_follow_each_other_without_a_gap_or_a_row_twice() -> None:
    """Each is as long as the newest, and its training rows end before it begins."""
    begin, hour = datetime(2024, 1, 1, tzinfo=UTC), timedelta(hours=1)
    frame = pl.DataFrame({"at": [begin + n * hour for n in range(1000)]})
    spec = TimeSharesSplit(kind="time_shares", validation=0.1, holdout=0.15)
    held: list[datetime] = []
    for back in (3, 2, 1, 0):
        rows, shares = rows_before(frame, "at", spec, back)
        part = split_by_moment(rows["at"], shares, 6 * hour)
        holdout, train = (rows["at"].filter(part == name) for name in ("holdout", "train"))
        assert len(holdout) == 150
        assert len(rows.filter(part == "validation")) == 100 - 6
        assert train[-1] < holdout[0] - 100 * hour
        held += holdout.to_list()
    assert held == frame["at"][-600:].to_list()
