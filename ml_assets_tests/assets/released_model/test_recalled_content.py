"""A recall is of content: it holds whoever reads it again, under another name or elsewhere."""

from pathlib import Path
from typing import Any

import pytest

from ml_assets.errors import Recalled
from ml_assets.extras.recall.recall import carry_out, extent, lift
from ml_assets.records import recall_files
from ml_assets.records.ledger.chain import read, register
from ml_assets.records.recall_files import active, lost_recalls
from ml_assets.records.recalls import recalled, require_sound, require_sound_model
from ml_assets.spec.records import InputVersion
from ml_assets.spec.registered import Registered
from ml_assets_tests.assets.released_model.recall_walk import BAD, GOOD, MODEL, OTHER, TABLE, Walk
from ml_assets_tests.red_team.forging import point_main_at


def a_walk(walk: Walk, pipeline: str, source: str) -> None:
    """One model, from one table."""
    raw = walk.make(f"{pipeline}/raw_snapshot/raw_{source}", BAD)
    table = walk.make(f"{pipeline}/validated_table/{source}", TABLE, raw)
    walk.make(
        f"{pipeline}/trained_model", MODEL, walk.make(f"{pipeline}/training_set", OTHER, table)
    )


@pytest.fixture
def walk(tmp_path: Path) -> Walk:
    walk = Walk(tmp_path / "store")
    a_walk(walk, "p", "s")
    return walk


def test_another_pipeline_that_reads_it_later_is_held_to_it(walk: Walk) -> None:
    recall = walk.recall(BAD)
    a_walk(walk, "q", "t")
    with pytest.raises(Recalled, match="ml-assets run q;"):
        require_sound(walk.store, walk.head, walk.record("q/raw_snapshot/raw_t"))
    found = recalled(walk.store, walk.head, "q", MODEL)
    assert found and found.id == recall


def test_a_table_that_is_called_otherwise_since_is_held_to_it_in_its_pipeline_alone(
    walk: Walk,
) -> None:
    walk.recall(f"p/raw_snapshot/raw_s@{BAD}")
    a_walk(walk, "p", "renamed")
    assert recalled(walk.store, walk.head, "p", MODEL)
    a_walk(walk, "q", "t")
    assert recalled(walk.store, walk.head, "q", MODEL) is None, "it named a table of p"


def test_said_again_it_lists_who_has_read_it_since_and_is_one_recall(walk: Walk) -> None:
    first = walk.recall(BAD)
    a_walk(walk, "q", "t")
    assert walk.recall(BAD) == first
    (recall,) = active(walk.store, walk.head)
    assert [seed.key for seed in recall.seeds] == [
        "p/raw_snapshot/raw_s",
        "q/raw_snapshot/raw_t",
    ]
    assert recall.models() == {"p": (MODEL,), "q": (MODEL,)}


def test_a_model_that_was_registered_is_recalled_with_the_one_that_it_is(walk: Walk) -> None:
    """Nobody knows here what it was made from; there they do."""
    said = Registered(version="1", uri="file:///there")
    register(walk.store, "q", MODEL, "eve", "", said)
    rows = walk.make("q/training_set", GOOD)
    walk.make("q/trained_model", MODEL, rows, attributes={"registered": said.model_dump()})
    begun = InputVersion(key="init_from", partition=None, version=MODEL, commit=None)
    walk.make("q/trained_model", OTHER, rows, begun)
    assert recalled(walk.store, walk.head, "q", MODEL) is None
    walk.recall(BAD)
    assert recalled(walk.store, walk.head, "q", MODEL), "though another candidate took its place"
    assert recalled(walk.store, walk.head, "q", OTHER), "and so is what began with it"
    assert read(walk.store, "q")[-1].kind == "recall"
    assert extent(walk.store, BAD).recall.models()["q"] == (MODEL, OTHER)


def test_the_tag_of_a_recall_tells_that_main_was_put_back_and_goes_when_it_is_lifted(
    walk: Walk, tmp_path: Path
) -> None:
    before = walk.head
    recall = walk.recall(BAD)
    assert lost_recalls(walk.store) == []
    point_main_at(tmp_path / "store", before)
    register(walk.store, "p", GOOD, "eve", "")  # a ledger that begins anew is no other home's
    assert [f"recall-{recall}" in said for said in lost_recalls(walk.store)] == [True]
    with pytest.raises(Recalled, match=r"No model of p is used.*put back to an earlier state"):
        require_sound_model(walk.store, walk.head, "p", GOOD)
    walk.store.untag(f"recall-{recall}")
    walk.store.tag(f"recall-{recall}", before)
    assert len(lost_recalls(walk.store)) == 1, "a name that was moved tells as much"
    walk.store.untag(f"recall-{recall}")
    again = walk.recall(BAD)
    lift(walk.store, again, "ann", "it was right")
    assert f"recall-{again}" not in walk.store.tags()


def test_two_who_recall_the_same_at_once_make_one_recall(
    walk: Walk, monkeypatch: pytest.MonkeyPatch
) -> None:
    theirs = extent(walk.store, BAD, "cy", "the scale was off")
    write = recall_files.write

    def second(*given: Any, **named: Any) -> None:
        monkeypatch.undo()
        carry_out(walk.store, theirs)
        write(*given, **named)

    monkeypatch.setattr(recall_files, "write", second)
    assert walk.recall(BAD) == theirs.recall.id
    assert [one.id for one in active(walk.store, walk.head)] == [theirs.recall.id]
    assert [name for name in walk.store.tags() if name.startswith("recall-")] == [
        f"recall-{theirs.recall.id}"
    ]
