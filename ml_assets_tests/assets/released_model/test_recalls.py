"""What a recall reached is not used, until it is made again from sound inputs, or it is lifted."""

from datetime import timedelta
from pathlib import Path

import pytest

from ml_assets.errors import Recalled, StorageError
from ml_assets.extras.recall.recall import carry_out, extent, lift
from ml_assets.records.ledger import chain as ledger
from ml_assets.records.recall_files import active, write
from ml_assets.records.recalls import quarantine, recalled, require_sound
from ml_assets.records.record_history import read_history
from ml_assets.spec.base import canonical_json
from ml_assets.spec.records import InputVersion
from ml_assets.store.embedded.store import EmbeddedStore
from ml_assets.store.layout import Address
from ml_assets_tests.assets.released_model.recall_walk import BAD, GOOD, MODEL, OTHER, TABLE, Walk


@pytest.fixture
def walk(tmp_path: Path) -> Walk:
    """Two pipelines over the same bad content; one model each, the second's from another table."""
    walk = Walk(tmp_path / "store")
    raw = walk.make("p/raw_snapshot/raw_s", BAD)
    table = walk.make("p/validated_table/s", TABLE, raw)
    data = walk.make("p/training_set", OTHER, table)
    walk.make("p/trained_model", MODEL, data)
    walk.make("q/raw_snapshot/raw_t", BAD)
    sound = walk.make("q/raw_snapshot/raw_u", GOOD)
    walk.make("q/trained_model", OTHER, walk.make("q/training_set", GOOD, sound))
    return walk


def test_it_reaches_every_pipeline_that_has_the_content_and_no_more(walk: Walk) -> None:
    found = extent(walk.store, BAD[:8]).recall
    assert {version.key for version in found.seeds} == {
        "p/raw_snapshot/raw_s",
        "q/raw_snapshot/raw_t",
    }
    assert [version.key for version in found.reached] == [
        "p/validated_table/s",
        "p/training_set",
        "p/trained_model",
    ]
    named = extent(walk.store, f"p/raw_snapshot/raw_s@{BAD[:8]}").recall
    assert {version.key for version in named.seeds} == {"p/raw_snapshot/raw_s"}


def test_what_is_only_looked_at_is_not_reached(walk: Walk) -> None:
    """A volume is compared with the partition before; the champion stands beside the candidate."""
    before = walk.make("p/raw_snapshot/raw_w", BAD[:-1] + "c", partition="1")
    this = walk.make("p/raw_snapshot/raw_w", GOOD, partition="2")
    walk.make("p/validated_table/w", GOOD, this, before, partition="2")
    champion = InputVersion(key="champion", partition=None, version=MODEL, commit=None)
    walk.make("p/evaluation_report", GOOD, champion)
    reached = extent(walk.store, f"p/raw_snapshot/raw_w/1@{before.version}").recall.reached
    assert reached == ()


def test_weights_that_a_training_began_with_reach_its_model(walk: Walk) -> None:
    begun = InputVersion(key="init_from", partition=None, version=MODEL, commit=None)
    walk.make("p/trained_model", GOOD, begun)
    assert ("p/trained_model", GOOD) in {
        (v.key, v.version) for v in extent(walk.store, BAD).recall.reached
    }


def test_nothing_that_it_reached_may_be_used_and_the_reason_is_said(walk: Walk) -> None:
    assert recalled(walk.store, walk.head, "p", MODEL) is None
    recall = walk.recall(BAD)
    found = recalled(walk.store, walk.head, "p", MODEL)
    assert found is not None and found.id == recall
    assert recalled(walk.store, walk.head, "q", OTHER) is None
    with pytest.raises(
        Recalled, match=rf"p/training_set 3333.* the scale was off \(recall {recall}"
    ):
        require_sound(walk.store, walk.head, walk.record("p/training_set"))
    line = ledger.read(walk.store, "p")[-1]
    assert (line.kind, line.model, line.author) == ("recall", MODEL, "ann")
    assert ledger.read(walk.store, "q") == ()


def test_the_same_content_from_sound_inputs_may_be_used_and_so_may_what_follows(walk: Walk) -> None:
    """A bad row that the contract kept out: mended, the table is the same, and so is the model."""
    walk.recall(f"p/raw_snapshot/raw_s@{BAD}")
    mended = walk.make("p/raw_snapshot/raw_s", GOOD)
    assert quarantine(walk.store, walk.head).of_record(walk.record("p/validated_table/s"))
    walk.make("p/validated_table/s", TABLE, mended)
    assert recalled(walk.store, walk.head, "p", MODEL) is None
    require_sound(walk.store, walk.head, walk.record("p/training_set"))


def test_it_stays_so_when_another_model_was_trained_and_the_table_has_moved_on(walk: Walk) -> None:
    """Nothing on main tells any more what the model in production was made from."""
    walk.recall(f"p/raw_snapshot/raw_s@{BAD}")
    mended = walk.make("p/raw_snapshot/raw_s", GOOD)
    table = walk.make("p/validated_table/s", TABLE, mended)
    data = walk.make("p/training_set", GOOD, table)
    walk.make("p/trained_model", GOOD, data)
    assert recalled(walk.store, walk.head, "p", MODEL) is None
    walk.make("p/validated_table/s", OTHER, walk.make("p/raw_snapshot/raw_s", TABLE))
    assert recalled(walk.store, walk.head, "p", MODEL) is None


def test_a_bad_model_stays_bad_when_another_one_was_trained(walk: Walk) -> None:
    walk.recall(BAD)
    sound = walk.make("p/raw_snapshot/raw_s", GOOD)
    table = walk.make("p/validated_table/s", GOOD, sound)
    walk.make("p/trained_model", GOOD, walk.make("p/training_set", GOOD, table))
    assert recalled(walk.store, walk.head, "p", MODEL)
    assert recalled(walk.store, walk.head, "p", GOOD) is None


def test_what_a_step_at_work_publishes_after_the_recall_is_bad_and_so_is_what_follows(
    walk: Walk,
) -> None:
    raw = walk.make("p/raw_snapshot/raw_w", BAD[:-1] + "c", partition="9")
    table = walk.make("p/validated_table/w", "4" * 64, raw, partition="9")
    recall = walk.recall(raw.version)
    features = walk.make("p/feature_set", "5" * 64, table, partition="9")
    data = walk.make("p/training_set", "6" * 64, features)
    walk.make("p/trained_model", "7" * 64, data)
    for key, partition in (("feature_set", "9"), ("training_set", None), ("trained_model", None)):
        with pytest.raises(Recalled, match=f"recall {recall}"):
            require_sound(walk.store, walk.head, walk.record(f"p/{key}", partition))
    assert recalled(walk.store, walk.head, "p", "7" * 64)


@pytest.mark.parametrize("given", ["init_from", "distill"])
def test_a_model_whose_teacher_is_recalled_while_it_learns_is_bad(walk: Walk, given: str) -> None:
    walk.recall(f"p/raw_snapshot/raw_s@{BAD}")
    data = walk.make("p/training_set", GOOD, walk.make("p/raw_snapshot/raw_s", GOOD))
    teacher = InputVersion(key=given, partition=None, version=MODEL, commit=None)
    walk.make("p/trained_model", GOOD, data, teacher)
    assert recalled(walk.store, walk.head, "p", GOOD)


def test_models_that_began_with_one_another_are_judged_by_the_first(walk: Walk) -> None:
    for version in (GOOD, OTHER, BAD):
        begun = walk.record("p/trained_model").data_version
        given = InputVersion(key="init_from", partition=None, version=begun, commit=None)
        walk.make("p/trained_model", version, given)
    walk.recall(f"p/raw_snapshot/raw_s@{BAD}")
    assert recalled(walk.store, walk.head, "p", BAD)
    walk.make("p/validated_table/s", TABLE, walk.make("p/raw_snapshot/raw_s", GOOD))
    assert recalled(walk.store, walk.head, "p", BAD) is None


def test_a_long_walk_of_tables_is_judged(walk: Walk) -> None:
    made = InputVersion(key="p/validated_table/s", partition=None, version=TABLE, commit=None)
    with walk.store.open(walk.head, "1" * 64) as workspace:
        for number in range(300):
            key, version = f"p/derived_table/t{number}", f"{number:064d}"
            record = walk.record("p/training_set").model_copy(
                update={"key": key, "data_version": version, "inputs": (made,)}
            )
            workspace.put_bytes(Address.of(key).record, canonical_json(record))
            made = InputVersion(key=key, partition=None, version=version, commit=None)
        workspace.commit("many tables", {})
        workspace.publish()
    carry_out(walk.store, extent(walk.store, BAD, "ann", "the scale was off"))
    with pytest.raises(Recalled):
        require_sound(walk.store, walk.head, walk.record("p/derived_table/t299"))
    walk.make("p/validated_table/s", TABLE, walk.make("p/raw_snapshot/raw_s", GOOD))
    require_sound(walk.store, walk.head, walk.record("p/derived_table/t299"))


def test_said_again_a_recall_reaches_what_was_published_since(walk: Walk) -> None:
    first = walk.recall(f"p/raw_snapshot/raw_s@{BAD}")
    data = InputVersion(key="p/training_set", partition=None, version=OTHER, commit=None)
    walk.make("p/trained_model", GOOD, data)
    assert walk.recall(f"p/raw_snapshot/raw_s@{BAD}") == first
    (recall,) = active(walk.store, walk.head)
    assert recall.models() == {"p": (MODEL, GOOD)}
    assert [line.model for line in ledger.read(walk.store, "p")] == [MODEL, GOOD]
    walk.make("p/trained_model", TABLE)
    assert recalled(walk.store, walk.head, "p", GOOD), "it is no longer on main"


def test_what_sound_data_had_given_before_is_spared(walk: Walk) -> None:
    """The contract kept the bad row out: the table is that of the day before."""
    sound = walk.make("p/raw_snapshot/raw_w", GOOD)
    walk.make("p/validated_table/w", GOOD, sound)
    bad = walk.make("p/raw_snapshot/raw_w", BAD[:-1] + "c")
    table = walk.make("p/validated_table/w", GOOD, bad)
    data = walk.make("p/training_set", GOOD, table)
    walk.recall(bad.version)
    for key in ("validated_table/w", "training_set"):
        require_sound(walk.store, walk.head, walk.record(f"p/{key}"))
    walk.recall(f"p/raw_snapshot/raw_w@{sound.version}")
    for key in ("validated_table/w", "training_set"):
        with pytest.raises(Recalled):
            require_sound(walk.store, walk.head, walk.record(f"p/{key}"))
    assert data


def counted_reads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The paths that are read from now on."""
    read: list[str] = []
    whole = EmbeddedStore.read_bytes

    def counted(store: EmbeddedStore, commit: str, path: str) -> bytes:
        read.append(path)
        return whole(store, commit, path)

    monkeypatch.setattr(EmbeddedStore, "read_bytes", counted)
    return read


def test_the_recalls_of_a_commit_are_read_once_for_all_records(
    walk: Walk, monkeypatch: pytest.MonkeyPatch
) -> None:
    walk.recall(BAD)
    head, record = walk.head, walk.record("q/training_set")
    read = counted_reads(monkeypatch)
    for _ in range(3):
        require_sound(walk.store, head, record)
    # the recall itself was read when it was carried out
    assert [path for path in read if path.startswith("recalls/")] == ["recalls/active.json"]
    assert len(read) == len(set(read))


def test_bad_content_stays_bad_when_it_is_read_again(walk: Walk) -> None:
    walk.recall(f"p/raw_snapshot/raw_s@{BAD}")
    walk.make("p/raw_snapshot/raw_s", BAD)
    with pytest.raises(Recalled):
        require_sound(walk.store, walk.head, walk.record("p/raw_snapshot/raw_s"))


def test_said_twice_it_is_one_recall_and_one_line_and_it_can_be_lifted(walk: Walk) -> None:
    first = walk.recall(BAD)
    assert walk.recall(BAD) == first
    assert len(active(walk.store, walk.head)) == 1
    assert len(ledger.read(walk.store, "p")) == 1
    lift(walk.store, first[:6], "bob", "the scale was right")
    assert active(walk.store, walk.head) == ()
    assert recalled(walk.store, walk.head, "p", MODEL) is None
    line = ledger.read(walk.store, "p")[-1]
    assert line.reason == f"recall {first} lifted: the scale was right"
    with pytest.raises(StorageError, match="In force: none"):
        lift(walk.store, first, "bob", "again")


@pytest.mark.parametrize("partition", ["9", None])
def test_what_a_step_at_work_published_stays_bad_when_its_inputs_are_mended(
    walk: Walk, partition: str | None
) -> None:
    raw = walk.make("p/raw_snapshot/raw_w", BAD[:-1] + "c", partition=partition)
    table = walk.make("p/validated_table/w", "4" * 64, raw, partition=partition)
    recall = walk.recall(raw.version)
    features = walk.make("p/feature_set", "5" * 64, table, partition=partition)
    walk.make("p/trained_model", "7" * 64, walk.make("p/training_set", "6" * 64, features))
    mended = walk.make("p/raw_snapshot/raw_w", GOOD, partition=partition)
    table = walk.make("p/validated_table/w", "e" * 64, mended, partition=partition)
    features = walk.make("p/feature_set", "f" * 64, table, partition=partition)
    with pytest.raises(Recalled, match=f"recall {recall}"):
        require_sound(walk.store, walk.head, walk.record("p/training_set"))
    assert recalled(walk.store, walk.head, "p", "7" * 64)
    walk.make("p/trained_model", "8" * 64, walk.make("p/training_set", "1" * 64, features))
    assert recalled(walk.store, walk.head, "p", "8" * 64) is None


def test_what_is_older_than_a_recall_is_judged_by_its_list_and_looked_up_nowhere(
    walk: Walk, monkeypatch: pytest.MonkeyPatch
) -> None:
    raw = walk.make("p/raw_snapshot/raw_w", GOOD)
    features = walk.make("p/feature_set", GOOD, walk.make("p/validated_table/w", GOOD, raw))
    walk.make("p/training_set", GOOD, features)
    found = extent(walk.store, BAD, "ann", "the scale was off").recall
    later = found.model_copy(update={"time": found.time + timedelta(hours=2)})
    write(walk.store, later)
    walk.make("p/feature_set", OTHER)
    head, record = walk.head, walk.record("p/training_set")
    read = counted_reads(monkeypatch)
    require_sound(walk.store, head, record)
    assert [path for path in read if path.startswith("records/")] == [
        Address.of("p/feature_set").record
    ]


@pytest.fixture
def recalled_long_ago(walk: Walk) -> Walk:
    """A recall of two hours ago stands; 20 partitions of a training set were read since."""
    found = extent(walk.store, BAD, "ann", "the scale was off").recall
    write(walk.store, found.model_copy(update={"time": found.time - timedelta(hours=2)}))
    for name in map(str, range(20)):
        raw = walk.make("p/raw_snapshot/raw_w", GOOD, partition=name)
        walk.make("p/feature_set", GOOD, raw, partition=name)
    features = (
        InputVersion(key="p/feature_set", partition=name, version=GOOD, commit=walk.head)
        for name in map(str, range(20))
    )
    walk.make("p/training_set", GOOD, *features)
    return walk


def test_what_was_read_after_a_recall_and_replaced_since_is_looked_up_nowhere(
    recalled_long_ago: Walk, monkeypatch: pytest.MonkeyPatch
) -> None:
    walk = recalled_long_ago
    for name in map(str, range(20)):
        walk.make("p/raw_snapshot/raw_w", OTHER, partition=name)
    looked: set[str] = set()
    tree = EmbeddedStore.tree
    monkeypatch.setattr(
        EmbeddedStore, "tree", lambda store, commit: looked.add(commit) or tree(store, commit)
    )
    records = [walk.record("p/feature_set", name) for name in map(str, range(20))]
    for record in (*records, walk.record("p/training_set")):
        require_sound(walk.store, walk.head, record)
    assert looked == {walk.head}


def test_what_was_mended_to_the_same_content_stays_sound_when_it_is_replaced(walk: Walk) -> None:
    """The reader asked the recall, which lists the content that it had before."""
    raw = walk.make("p/raw_snapshot/raw_w", BAD[:-1] + "c", partition="9")
    features = walk.make("p/feature_set", "5" * 64, raw, partition="9")
    walk.make("p/training_set", "6" * 64, features)
    found = extent(walk.store, raw.version, "ann", "the scale was off").recall
    write(walk.store, found.model_copy(update={"time": found.time - timedelta(hours=2)}))
    mended = walk.make("p/raw_snapshot/raw_w", GOOD, partition="9")
    walk.make(
        "p/training_set", "6" * 64, walk.make("p/feature_set", "5" * 64, mended, partition="9")
    )
    require_sound(walk.store, walk.head, walk.record("p/training_set"))
    walk.make("p/feature_set", "7" * 64, partition="9")
    require_sound(walk.store, walk.head, walk.record("p/training_set"))


def test_a_name_that_was_first_given_may_be_of_several_by_now(walk: Walk) -> None:
    first = walk.recall(f"p/raw_snapshot/raw_s@{BAD[:6]}")
    walk.make("p/raw_snapshot/raw_s", BAD[:-1] + "c")
    data = InputVersion(key="p/training_set", partition=None, version=OTHER, commit=None)
    walk.make("p/trained_model", GOOD, data)
    assert walk.recall(f"p/raw_snapshot/raw_s@{BAD}") == first
    assert [line.model for line in ledger.read(walk.store, "p")] == [MODEL, GOOD]


def test_what_is_published_while_a_recall_is_put_together_is_listed_too(
    walk: Walk,
) -> None:
    found = extent(walk.store, BAD, "ann", "the scale was off")
    data = InputVersion(key="p/training_set", partition=None, version=OTHER, commit=None)
    walk.make("p/trained_model", GOOD, data)
    kept, last = carry_out(walk.store, found)
    assert kept.models() == last.recall.models() == {"p": (MODEL, GOOD)}
    assert GOOD in {node[2] for way in last.ways for node in way.again}
    assert [line.model for line in ledger.read(walk.store, "p")] == [MODEL, GOOD]


def test_a_name_of_nothing_or_of_several_is_refused(walk: Walk) -> None:
    walk.make("p/raw_snapshot/raw_s", BAD[:-1] + "0")
    for name in ("b" * 6, "f" * 8, "bb", "p/raw_snapshot/raw_s", f"p/raw_snapshot/raw_x@{BAD}"):
        with pytest.raises(StorageError):
            extent(walk.store, name)


def test_where_no_model_is_reached_none_is_made_again(walk: Walk) -> None:
    raw = walk.make("p/raw_snapshot/raw_s", "c" * 64, partition="9")
    walk.make("p/validated_table/s", "d" * 64, raw, partition="9")
    (way,) = extent(walk.store, "c" * 8).ways
    assert way.command == "ml-assets run p --through validated_table"
    assert way.stays == 4


def test_a_commit_stands_for_what_it_brought(walk: Walk) -> None:
    commit = next(m.commit for m in read_history(walk.store).made if m.record.data_version == TABLE)
    found = extent(walk.store, commit[:12]).recall
    assert [version.key for version in found.seeds] == ["p/validated_table/s"]


def test_a_history_is_read_in_one_pass_each_record_once(
    walk: Walk, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = counted_reads(monkeypatch)
    history = read_history(walk.store)
    assert len(history.made) == len(read) == 8
