"""Whose knowledge a model may have: of all behind it, and no longer with each generation."""

from datetime import UTC, datetime

import pytest

from ml_assets.assets.released_model.gate_decision import ancestors
from ml_assets.records.ledger.chain import read, record_decision
from ml_assets.spec.records import Ancestor, Decision, HoldoutRows, StageRecord
from ml_assets.spec.registered import MADE_ELSEWHERE
from ml_assets.spec.split import HoldoutDraw
from ml_assets.store.snapshots import SnapshotStore
from ml_assets_tests.records.conftest import PIPELINE, A, B, C, decision, evidence

D = "dd" * 32


def model(version: str, **more: object) -> StageRecord:
    """A model, with what it learned from."""
    told = {"code_version": "code", "attributes": {}} | more
    return StageRecord.model_validate(
        {
            "key": f"{PIPELINE}/trained_model",
            "partition": None,
            "run_key": "e" * 64,
            "data_version": version,
            "rows": None,
            "inputs": (),
            "run": "run",
            "time": datetime(2024, 4, 1, tzinfo=UTC),
            **told,
        }
    )


def learned(version: str, parent: str, by: str = "init") -> StageRecord:
    return model(version, attributes={by: {"uri": "there", "digest": parent}})


def judged(store: SnapshotStore, of: StageRecord, holdout: HoldoutRows) -> Decision:
    behind = ancestors(read(store, PIPELINE), of)
    more = {"holdout": holdout, "behind": behind}
    found = decision(evidence(of.data_version)).model_copy(update=more)
    record_decision(store, found, "me")
    return found


def week(day: str) -> HoldoutRows:
    return HoldoutRows(digest="1" * 64, first=day, last=day)


def drawn(split: str, digest: str = "1") -> HoldoutRows:
    draw = HoldoutDraw(split=split * 64, sample=())
    return HoldoutRows(digest=digest * 64, first="", last="", draw=draw)


def test_a_model_that_learned_from_none_has_none(store: SnapshotStore) -> None:
    assert judged(store, model(A), week("2024-03-04")).behind == ()
    assert judged(store, learned(B, "9" * 64), week("2024-03-04")).behind == (), "it is a file"


@pytest.mark.parametrize("by", ["init", "teacher"])
def test_the_latest_of_a_line_of_generations_stands_for_all(store: SnapshotStore, by: str) -> None:
    judged(store, model(A), week("2024-03-18"))
    judged(store, learned(B, A, by), week("2024-03-11"))
    judged(store, learned(C, B, by), week("2024-03-04"))
    (one,) = judged(store, learned(D, C, by), week("2024-03-25")).behind
    assert one == Ancestor(model=A, holdout=week("2024-03-18"))


def test_each_draw_is_asked_of_and_the_same_one_once(store: SnapshotStore) -> None:
    judged(store, model(A), drawn("5"))
    judged(store, learned(B, A), drawn("6", "2"))
    judged(store, learned(C, B), drawn("6", "3"))
    behind = judged(store, learned(D, C), drawn("6", "4")).behind
    assert {one.holdout.draw.split[0] for one in behind if one.holdout and one.holdout.draw} == {
        "5",
        "6",
    }
    assert len(behind) == 2


def test_what_was_made_elsewhere_is_told_of_itself_and_of_all_that_come_from_it(
    store: SnapshotStore,
) -> None:
    foreign = model(A, code_version=MADE_ELSEWHERE, attributes={"there_to": "2024-03-25"})
    (own,) = judged(store, foreign, week("2024-03-11")).behind
    assert own == Ancestor(model=A, holdout=None, there_to="2024-03-25")
    judged(store, learned(B, A), week("2024-03-11"))
    assert own in judged(store, learned(C, B), week("2024-04-01")).behind
