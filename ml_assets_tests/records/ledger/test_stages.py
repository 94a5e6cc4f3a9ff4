"""Which model is where, and since when: what the lines of a ledger say, and nothing else."""

from datetime import UTC, datetime, timedelta

import pytest

from ml_assets.errors import UnknownModel
from ml_assets.records.ledger.chain import read, register
from ml_assets.records.ledger.stages import (
    champion,
    find_model,
    left_by,
    put_out_line,
    serving_at,
    stage_line,
    stage_of,
    stages,
    standing_abort,
)
from ml_assets.spec.records import LedgerEntry
from ml_assets_tests.records.conftest import PIPELINE, A, B, C, refused, released

BEGIN = datetime(2026, 3, 1, 12, tzinfo=UTC)


def lines(*moves):
    """(model, stage) moves, an hour apart; a third part makes it a rollback from that model."""
    found = []
    for number, (model, stage, *away) in enumerate(moves, start=1):
        back = {"because": "rollback", "replaced": away[0]} if away else {}
        found.append(
            LedgerEntry(
                seq=number, previous=None if number == 1 else "00" * 32, kind="stage", model=model,
                stage=stage, author="me", reason="r", run="", **back,
                time=BEGIN + timedelta(hours=number),
            )
        )  # fmt: skip
    return tuple(found)


def test_a_model_that_moves_on_leaves_the_stages_before_and_the_one_it_replaces_is_archived():
    walk = lines((A, "staging"), (A, "canary"), (A, "production"), (B, "canary"))
    assert stages(walk[:1]) == {"staging": A}
    assert stages(walk[:2]) == {"canary": A}
    assert stages(walk[:3]) == {"production": A}
    assert stages(walk) == {"production": A, "canary": B}
    after = (*walk, *lines(*[(C, "staging")] * 4, (B, "production"))[4:])
    assert stages(after) == {"production": B}
    assert [stage_of(after, model) for model in (A, B, C)] == ["archived", "production", None]


def test_a_champion_that_is_released_to_a_stage_before_stays_champion():
    walk = lines((A, "production"), (A, "staging"))
    assert stages(walk) == {"production": A, "staging": A}
    assert stage_of(walk, A) == "production"


def test_a_model_leaves_its_stage_by_another_one_by_its_own_next_move_or_by_an_abort():
    walk = lines((A, "staging"), (A, "canary"), (B, "staging"), (A, "production"), (C, "staging"))
    stop = walk[4].model_copy(update={"seq": 6, "kind": "abort", "stage": None})
    aborted = (*walk, stop)
    gone = {one.seq: line.seq for one in walk if (line := left_by(aborted, one))}
    assert gone == {1: 2, 2: 4, 3: 5, 5: 6}
    assert left_by(aborted, walk[3]) is None, "no abort ends production"
    assert left_by(walk, walk[4]) is None


def test_a_stage_that_its_model_left_is_empty_and_has_no_line():
    walk = lines((A, "canary"), (A, "production"))
    assert stage_line(walk, "canary") is None
    assert stage_line(walk, "production") == walk[1]
    assert champion(walk, "canary") is None


def test_a_model_that_is_only_known_or_refused_is_in_no_stage(store):
    register(store, PIPELINE, A, "team", "run")
    refused(store, B)
    entries = read(store, PIPELINE)
    assert stages(entries) == {}
    assert stage_of(entries, A) is None
    assert stage_of(entries, B) is None


def test_every_moment_has_the_champion_of_the_last_move_before_it():
    walk = lines((A, "production"), (B, "production"), (C, "staging"), (A, "production", B))
    asked = {
        BEGIN: None,
        walk[0].time - timedelta(microseconds=1): None,
        walk[0].time: A,
        walk[1].time - timedelta(microseconds=1): A,
        walk[1].time: B,
        walk[2].time: B,
        walk[3].time: A,
        BEGIN + timedelta(days=9): A,
    }
    for time, model in asked.items():
        found = serving_at(walk, time)
        assert (found.model if found else None) == model, time


def test_a_model_is_held_by_a_rollback_until_a_move_puts_it_back():
    walk = lines((A, "production"), (B, "production"), (A, "production", B), (B, "production", A))
    assert put_out_line(walk[:2], B) is None
    assert put_out_line(walk[:3], B) == walk[2]
    assert put_out_line(walk[:3], A) is None
    assert put_out_line(walk, B) is None
    assert put_out_line(walk, A) == walk[3]


def test_an_abort_empties_canary_and_holds_its_model_until_another_one_comes():
    walk = lines((A, "production"), (B, "canary"))
    out = walk[1].model_copy(update={"seq": 3, "kind": "abort", "stage": None})
    after = (*walk, out)
    assert stages(after) == {"production": A}
    assert stage_line(after, "canary") is None
    assert stage_of(after, B) == "archived"
    assert put_out_line(after, B) == out == standing_abort(after)
    assert put_out_line(after, A) is None
    then = (*after, *lines(*[(C, "canary")] * 4)[3:])
    assert standing_abort(then) is None
    assert put_out_line(then, B) == out


def test_a_model_is_named_by_a_beginning_that_only_it_has(store):
    twin = "aaaaaaab" + "0" * 56
    released(store, A)
    released(store, B, champion=A)
    entries = read(store, PIPELINE)
    assert find_model(entries, "aaaaaa") == A
    assert find_model(entries, B) == B
    released(store, twin, champion=B)
    with pytest.raises(UnknownModel, match="begins 2 models"):
        find_model(read(store, PIPELINE), "aaaaaa")
    with pytest.raises(UnknownModel, match=r"no model 'cccccc'.*: aaaaaaab0000, bbbbbb"):
        find_model(read(store, PIPELINE), "cccccc")
    with pytest.raises(UnknownModel, match="give 6 characters"):
        find_model(entries, "aaaaa")
