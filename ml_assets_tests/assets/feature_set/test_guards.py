"""No partition is published that the guards of its step could not judge."""

from types import SimpleNamespace
from typing import Any, cast

import polars as pl
import pytest

from ml_assets.assets.feature_set import guards, replay
from ml_assets.assets.feature_set.guards import JudgedRows, RowGuards
from ml_assets.assets.feature_set.replay import Parity
from ml_assets.errors import FeaturesDiffer, StoreAway
from ml_assets.store.layout import Address

WEEKS = ("2024-01-01", "2024-01-08", "2024-01-15")
AWAY = StoreAway("the store does not answer")
ROWS = pl.LazyFrame({"k": [1]})


class Step:
    """A step over three weeks, whose stores fail as a test says."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.rows_fail: set[str] = set()
        self.replay_fails: set[str] = set()
        self.replay_finds = Parity(1, None, "")
        monkeypatch.setattr(replay, "replay", self._replay)
        monkeypatch.setattr(guards, "sampled", lambda *_: frozenset())
        events = SimpleNamespace(partitions=0)
        spec = SimpleNamespace(leaks=SimpleNamespace(future_events=events))
        state = SimpleNamespace(commit="c")
        pipeline = SimpleNamespace(
            spec=spec,
            now=lambda: state,
            address=lambda stage, partition: Address("p", stage, partition=partition),
        )
        reads = cast("Any", SimpleNamespace(pipeline=pipeline))
        self.guards = RowGuards(reads, WEEKS, cast("Any", None), self._rows_of)

    def judge(self, week: str) -> JudgedRows:
        return self.guards.judge(Address("p", "feature_set", partition=week))

    def _rows_of(self, _: object, week: str | None) -> pl.LazyFrame:
        if week in self.rows_fail:
            raise AWAY
        return ROWS

    def _replay(self, _: object, week: str, *__: object) -> Parity:
        if week in self.replay_fails:
            raise AWAY
        return self.replay_finds


@pytest.fixture
def step(monkeypatch: pytest.MonkeyPatch) -> Step:
    return Step(monkeypatch)


def test_rows_that_could_not_be_made_at_first_are_replayed_when_their_turn_comes(
    step: Step,
) -> None:
    step.rows_fail, step.replay_finds = {*WEEKS}, Parity(1, None, "it differs")
    with pytest.raises(StoreAway):
        step.judge(WEEKS[0])
    step.rows_fail = set()
    judged = step.judge(WEEKS[2])
    assert isinstance(judged.error, FeaturesDiffer)
    assert [check.passed for check in judged.checks] == [False]


def test_a_store_that_is_away_during_a_replay_is_told_and_the_rows_are_replayed_again(
    step: Step,
) -> None:
    step.replay_fails = {WEEKS[2]}
    for week in WEEKS:
        with pytest.raises(StoreAway):
            step.judge(week)
    step.replay_fails = set()
    assert step.judge(WEEKS[0]).rows is not None
    assert [check.passed for check in step.judge(WEEKS[2]).checks] == [True]


def test_a_store_that_is_away_while_the_future_is_hidden_holds_every_other_partition_back(
    step: Step, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(*_: object) -> None:
        raise AWAY

    monkeypatch.setattr(guards, "_known_times", lambda *_: iter(()))
    monkeypatch.setattr(step.guards.future, "examined", {WEEKS[0]})
    reads = cast("Any", step.guards.future.reads)
    reads.addresses = away
    reads.pipeline.spec.sources = {"s": SimpleNamespace(after_event=("x",))}
    reads.pipeline.spec.features = SimpleNamespace(decision_at="k")
    with pytest.raises(StoreAway):
        step.judge(WEEKS[0])
    judged = step.judge(WEEKS[1])
    assert judged.rows is None
    assert judged.error is AWAY
