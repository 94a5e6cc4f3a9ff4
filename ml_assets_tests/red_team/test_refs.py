"""What refs name is held to a signature: tags, grafts, a branch that is gone, all that reads."""

import json
from hashlib import sha256
from pathlib import Path

import pytest

from ml_assets.actions.verify import verify_pipelines
from ml_assets.assets.released_model.rollback import RollbackRequest, return_to
from ml_assets.assets.released_model.tags import take_away, unnamed_releases
from ml_assets.errors import EvidenceError, StorageError, StoreAway, UntrustedState
from ml_assets.extras.prove.clean_home import clean_home
from ml_assets.extras.recall.recall import carry_out, extent
from ml_assets.records.ledger.chain import path_of, read, run_key
from ml_assets.records.ledger.origin import find_origin
from ml_assets.records.ledger.stages import moves
from ml_assets.records.record_history import read_history
from ml_assets.records.tracking.mlflow import Tracking
from ml_assets.settings import read_settings
from ml_assets.spec.base import canonical_json
from ml_assets.spec.records import StageRecord
from ml_assets.store.embedded.store import EmbeddedStore
from ml_assets.store.layout import Address
from ml_assets.store.open import open_snapshots
from ml_assets.store.pipeline_context import open_pipeline
from ml_assets_tests.red_team.conftest import NAME, Scene
from ml_assets_tests.red_team.forging import forged_commit, point_main_at, refs, signed, tag

OLDEST, NEWEST = "1970-01-02T00:00:00+00:00", "2099-01-01T00:00:00+00:00"


def key_of_newest_move(scene: Scene) -> str:
    """The run key by which a commit claims to have published the newest move."""
    store, line = scene.store, moves(scene.ledger)[-1]
    data = store.read_bytes(store.resolve(), path_of(NAME, line.seq))
    return run_key(NAME, sha256(data).hexdigest())


def better_report(scene: Scene) -> dict[str, bytes]:
    """The candidate's report, with numbers that pass every gate."""
    store, address = scene.store, Address(NAME, "evaluation_report")
    head = store.resolve()
    report = json.loads(store.read_bytes(head, address.file("report.json")))
    report["metrics"]["log_loss"].update(value=1e-9, low=0.0, high=2e-9)
    data = canonical_json(report)
    record = json.loads(store.read_bytes(head, address.record))
    record["data_version"] = sha256(data).hexdigest()
    return {address.file("report.json"): data, address.record: canonical_json(record)}


def without_sources(scene: Scene) -> dict[str, bytes]:
    """The record of the model in production, as if nothing were behind it."""
    address, store = Address(NAME, "trained_model"), scene.store
    record = json.loads(store.read_bytes(store.resolve(), address.record))
    record["inputs"] = [i for i in record["inputs"] if not i["key"].endswith("training_set")]
    return {address.record: canonical_json(record)}


def test_no_command_signs_a_commit_that_it_did_not_publish(refused: Scene) -> None:
    """House-keeping gave the missing name of a release to a forged commit, and signed it."""
    root, world, before = refused.snapshots, refused.world, refused.in_production
    key, number = key_of_newest_move(refused), len(moves(refused.ledger))
    forged = forged_commit(refused.store, root, better_report(refused), key, OLDEST)
    with refs(root) as database:
        database.execute("delete from refs where name = ?", [f"{NAME}-release-{number}"])
    tag(root, "x", forged)

    assert "'x' of the snapshot store" in world.cli("ops", "gc", code=1)
    assert "is not the name of a state" in world.cli(
        "data", "tag", "mine", "--at", forged[:12], code=1
    )
    world.cli("release", "history", NAME)
    world.cli("data", "list")
    with pytest.raises(UntrustedState, match="nobody signed"):
        refused.store.tag("mine", forged)

    assert forged not in signed(root)
    assert refused.store.tags()[f"{NAME}-release-{number}"] != forged, "the true one has the name"
    point_main_at(root, forged)
    assert "nobody signed" in refused.materialize("released_model")
    with refs(root) as database:
        row = database.execute("select target from refs where name = 'main'").fetchone()
    assert row == (forged,), f"nothing was built on it, and {before} stays"
    assert forged not in signed(root)


def test_a_tag_on_a_forged_commit_does_not_say_where_a_model_comes_from(
    released: Scene, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, root = released.store, released.snapshots
    key = key_of_newest_move(released)
    forged = forged_commit(store, root, without_sources(released), key, NEWEST)
    tag(root, "x", forged)
    origin = find_origin(released.store, NAME, released.candidate)
    assert origin is not None and origin.commit != forged
    assert forged not in {commit.id for commit in released.store.history()}
    monkeypatch.setenv("ML_ASSETS_SOURCES", str(tmp_path / "elsewhere"))
    [verified] = verify_pipelines(read_settings(), NAME, None)
    assert any("was read from" in check.reason for check in verified.checks)
    assert not verified.holds


@pytest.mark.parametrize("way", ["bytes", "exists", "list", "scan", "diff", "copy", "open"])
def test_a_commit_that_nobody_signed_is_read_in_no_way(
    released: Scene, tmp_path: Path, way: str
) -> None:
    store, record = released.store, Address(NAME, "trained_model").record
    head = store.resolve()
    forged = forged_commit(store, released.snapshots, without_sources(released))
    asked = {
        "bytes": lambda: store.read_bytes(forged, record),
        "exists": lambda: store.exists(forged, record),
        "list": lambda: store.list(forged),
        "scan": lambda: store.scan(forged, record),
        "diff": lambda: store.diff(head, forged),
        "copy": lambda: store.copy_out(forged, record, tmp_path / "out"),
        "open": lambda: store.open(forged, "mine").remove(record),
    }
    with pytest.raises(UntrustedState, match="nobody signed"):
        asked[way]()


def test_an_unsigned_tag_does_not_stop_a_recall(released: Scene) -> None:
    """Nor is anything brought from it into a clean home, where it would be signed."""
    raw = Address(NAME, "raw_snapshot/raw_flowers").record
    assert released.store.exists(released.store.resolve(), raw)
    before = read_history(released.store)
    forged = forged_commit(released.store, released.snapshots, {raw: b"{}"}, time=NEWEST)
    tag(released.snapshots, "y", forged)
    assert read_history(released.store) == before
    version = next(made.record.data_version for made in before.made if "/raw_" in made.record.key)
    reached = {one.key for one in extent(released.store, version).recall.reached}
    assert f"{NAME}/trained_model" in reached


@pytest.mark.parametrize("to", ["a forged commit", "nothing"])
def test_a_graft_that_nobody_signed_neither_adds_to_history_nor_hides_it(
    released: Scene, to: str
) -> None:
    store, root = released.store, released.snapshots
    whole = store.log()
    forged = forged_commit(store, root, without_sources(released), time=NEWEST)
    with refs(root) as database:
        row = [whole[0].id, forged if to == "a forged commit" else None]
        database.execute("insert into grafts values (?, ?)", row)
    for asked in (released.store.log, released.store.history, released.store.collect_garbage):
        with pytest.raises(UntrustedState, match="A graft"):
            asked()
    [verified] = verify_pipelines(released.world.settings, NAME, None)
    assert not verified.holds


def test_what_was_collected_is_led_over_by_grafts_that_are_signed(released: Scene) -> None:
    store = released.store
    named = {*store.tags().values()}
    first, second, *_ = [one.id for one in store.log()[2:] if one.id not in named]
    store.collect_garbage([first])
    after = released.store
    assert first not in {commit.id for commit in after.log()}
    assert len(after.log()) == len(store.log())
    after.collect_garbage([second])
    assert released.store.log()


def test_a_branch_that_is_gone_does_not_begin_again(released: Scene) -> None:
    with refs(released.snapshots) as database:
        database.execute("delete from refs where name = 'main'")
    for untagged in (False, True):
        if untagged:
            with refs(released.snapshots) as database:
                database.execute("delete from refs")
        assert "no main: somebody removed the branch" in released.materialize("released_model")
        [verified] = verify_pipelines(released.world.settings, NAME, None)
        assert not verified.holds
    with refs(released.snapshots) as database:
        assert not database.execute("select * from refs").fetchall()


def test_a_name_of_a_move_that_the_ledger_does_not_tell_of_stops_the_next_one(
    passed: Scene,
) -> None:
    """A ledger that was put back, while its names stayed."""
    head = passed.store.resolve()
    tag(passed.snapshots, f"{NAME}-release-1", head)
    assert f"'{NAME}-release-1' names commit" in passed.materialize("released_model")
    assert passed.in_production is None
    [verified] = verify_pipelines(passed.world.settings, NAME, None)
    assert any(c.name == "tags" and c.outcome == "refused" for c in verified.checks)
    passed.world.cli("data", "untag", f"{NAME}-release-1")
    assert passed.materialize("released_model") == ""
    assert passed.in_production == passed.candidate


def test_main_that_is_put_back_to_before_a_recall_is_told_and_nothing_is_moved(
    passed: Scene,
) -> None:
    """Every signature still holds: only the name of the recall's state tells."""
    store, head = passed.store, passed.store.resolve()
    raw = Address(NAME, "raw_snapshot/raw_flowers").record
    version = StageRecord.model_validate_json(store.read_bytes(head, raw)).data_version
    recall, _ = carry_out(store, extent(store, version, "ann", "the scale was off"))
    with pytest.raises(StorageError, match="is the name of a recall"):
        take_away(store, f"recall-{recall.id}")
    [verified] = verify_pipelines(passed.world.settings, NAME, None)
    assert [c.outcome for c in verified.checks if c.name == "tags"] == ["ok"]
    point_main_at(passed.snapshots, head)
    [verified] = verify_pipelines(passed.world.settings, NAME, None)
    [said] = [c.reason for c in verified.checks if c.name == "tags" and c.outcome == "refused"]
    assert "main does not know this recall: it was put back to an earlier state" in said
    assert f"No model of {NAME} is used." in passed.materialize("released_model")
    assert passed.in_production is None


def test_a_planted_name_is_told_and_can_be_taken_away(released: Scene) -> None:
    forged = forged_commit(released.store, released.snapshots, without_sources(released))
    tag(released.snapshots, "x", forged)
    [verified] = verify_pipelines(released.world.settings, NAME, None)
    [note] = [check for check in verified.checks if check.name == "tags" and "'x'" in check.reason]
    assert (note.outcome, "ml-assets data untag x" in note.reason) == ("note", True)
    with pytest.raises(StorageError, match="is the name of a release"):
        take_away(released.store, f"{NAME}-release-1")
    with pytest.raises(StorageError, match="There is no tag 'main'"):
        take_away(released.store, "main")
    assert take_away(released.store, "x") == forged
    assert "x" not in released.store.tags()
    assert f"{NAME}-release-1" in released.store.tags()
    assert released.store.collect_garbage() is not None


def test_a_move_whose_state_could_not_be_named_is_told(
    passed: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(*_: object) -> None:
        raise StoreAway("the server of tags is away")

    with monkeypatch.context() as patch:
        patch.setattr(EmbeddedStore, "tag", away)
        assert passed.materialize("released_model") == ""
    assert passed.in_production == passed.candidate
    with passed.world.instance() as instance:
        run = instance.get_runs(limit=1)[0].run_id
        said = [log.user_message for log in instance.all_logs(run)]
    assert any("has no name yet" in one and "the server of tags is away" in one for one in said)
    assert f"{NAME}-release-1" not in passed.store.tags()
    assert unnamed_releases(passed.store, NAME) == []
    assert f"{NAME}-release-1" in passed.store.tags()


def test_a_ledger_that_was_put_back_behind_its_names_makes_no_move(released: Scene) -> None:
    line = path_of(NAME, moves(released.ledger)[0].seq)
    store = released.store
    before = next(c.id for c in store.log() if not store.exists(c.id, line))
    point_main_at(released.snapshots, before)
    assert released.in_production is None
    assert "put back to an earlier state" in released.materialize("released_model")
    assert released.in_production is None
    [verified] = verify_pipelines(released.world.settings, NAME, None)
    assert not verified.holds


def test_verify_holds_the_names_of_the_releases_to_the_ledger(released: Scene) -> None:
    name = f"{NAME}-release-1"
    [whole] = verify_pipelines(released.world.settings, NAME, None)
    assert whole.holds and any(c.name == "tags" and c.outcome == "ok" for c in whole.checks)
    tag(released.snapshots, name, released.store.log()[-2].id)
    [moved] = verify_pipelines(released.world.settings, NAME, None)
    [said] = [check.reason for check in moved.checks if check.outcome == "refused"]
    assert said.startswith(f"The tag {name!r} names commit") and "published by" in said


def test_a_rollback_is_held_to_sources_whatever_a_tag_says(
    released: Scene, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    forged = forged_commit(
        released.store,
        released.snapshots,
        without_sources(released),
        key_of_newest_move(released),
        NEWEST,
    )
    tag(released.snapshots, "x", forged)
    monkeypatch.setenv("ML_ASSETS_SOURCES", str(tmp_path / "elsewhere"))
    place = open_pipeline(NAME, read_settings())
    tracking = Tracking(place.settings.tracking_uri, place.settings.home)
    with pytest.raises(EvidenceError, match="was read from"):
        return_to(
            place, tracking, RollbackRequest("eve", "because", released.candidate[:12]), print
        )
    with pytest.raises(StorageError):
        released.store.read_bytes(forged, Address(NAME, "trained_model").record)


def test_what_is_brought_into_a_clean_home_is_signed_with_a_key_that_is_gone(
    released: Scene, tmp_path: Path
) -> None:
    """The real key vouches for no second store: copied over the real one it would be served."""
    commit = released.store.resolve()
    with clean_home(released.world.settings, tmp_path / "kept") as home:
        home.bring_ledger(NAME, commit)
        assert read(home.store, NAME) == read(home.real, NAME) != ()
        place = home.settings.snapshots
    with pytest.raises(UntrustedState, match="that key is not trusted"):
        open_snapshots(place).resolve()
