"""House-keeping over random histories: what is reached stays whole, what is not goes in time."""

import json
import os
from datetime import timedelta
from pathlib import Path

import pytest

from ml_assets.assets.released_model.rollback import RolledBack, Way, append_rollback, way_back
from ml_assets.assets.released_model.tags import release_name
from ml_assets.automation.housekeeping.reach import passed_sets
from ml_assets.errors import StateInUse, StorageError
from ml_assets.launch.session_folder import SessionFolder
from ml_assets.records.ledger import chain as ledger
from ml_assets.settings import Retention
from ml_assets.spec.base import digest_of
from ml_assets.spec.gates import ReleaseSpec
from ml_assets.spec.training_program import SCHEMA_FILE, ShardSchema
from ml_assets.store.home import exclusive
from ml_assets.store.layout import Address, read_record
from ml_assets_tests.actions.house import DAY, PIPELINE, House, Trained


@pytest.fixture
def house(tmp_path: Path) -> House:
    return House(tmp_path)


def test_nothing_younger_than_the_grace_goes_whatever_the_policy_says(tmp_path: Path) -> None:
    nothing = dict.fromkeys(vars(Retention()), timedelta())
    house = House(tmp_path, Retention(**{**nothing, "grace": DAY}))
    first, second = house.train(), house.train()
    house.pass_days(0.5)
    assert house.collect().freed_bytes == 0
    house.pass_days(1)
    house.collect()
    assert not house.objects.path("models", first.model).exists()
    assert house.objects.path("models", second.model).exists()


def test_a_dry_run_frees_nothing_and_tells_what_the_next_one_frees(house: House) -> None:
    house.train()
    house.train()
    house.pass_days(100)
    before = sorted(house.root.rglob("*"))
    told = house.housekeeping().collect(dry_run=True)
    assert [p for p in sorted(house.root.rglob("*")) if p.name != "housekeeping.lock"] == before
    done = house.collect()
    assert told.freed_bytes == done.freed_bytes > 60_000


def test_every_big_thing_has_a_reason_to_be_kept(house: House) -> None:
    trained = house.train()
    house.decide(passes=True)
    house.pass_days(100)
    reasons = {v.thing.name: v.reason for v in house.collect().plan.verdicts if v.keep}
    assert reasons[trained.model] == "production of irises"
    assert reasons[trained.data] == "line 1 of the ledger of irises (passed)"
    assert "records/irises" in reasons[trained.session]


def test_sets_of_passed_releases_go_by_age_and_those_a_rollback_needs_stay(house: House) -> None:
    first = released(house)
    refused = released(house, passes=False)
    second, third = released(house), released(house)
    since = released(house, passes=False)
    house.train()
    sets = house.objects.path("shards", PIPELINE)
    house.pass_days(house.retention.shards.days - 1)
    house.collect()
    assert (sets / first.data).is_dir(), "it is too young"
    house.pass_days(2)
    plan = house.collect().plan
    gone = {verdict.thing.name for verdict in plan.dropped("shards")}
    assert gone == {first.data, refused.data}
    assert not any((sets / name).exists() for name in gone)
    assert all((sets / one.data).is_dir() for one in (second, third, since))
    assert house.objects.path("models", first.model).is_dir(), "the model itself stays"
    release = house.store.resolve(release_name(PIPELINE, 1))
    manifest = Address(PIPELINE, "training_set").file(SCHEMA_FILE)
    kept = ShardSchema.model_validate_json(house.store.read_bytes(release, manifest))
    assert digest_of(kept) == first.data, "and so does what names the rows that it was trained on"


def test_a_shard_stays_as_long_as_a_set_that_is_kept_names_it(house: House) -> None:
    house.lay_out("first week", "second week")
    data = house.lay_out("second week", "third week")
    house.begin_session(data)
    house.pass_days(house.retention.shards.days + 1)
    house.collect()
    left = {folder.name for folder in house.objects.path("shards", PIPELINE).iterdir()}
    assert left == {data, digest_of("second week"), digest_of("third week")}


def test_after_a_rollback_the_model_that_is_back_keeps_its_set(house: House) -> None:
    first, second, third = (released(house) for _ in range(3))
    policy = ReleaseSpec(to="production")
    lines = ledger.read(house.store, PIPELINE)
    for back in (second.model, first.model):
        way = way_back(lines, policy, back)
        assert isinstance(way, Way)
        moved = append_rollback(house.store, PIPELINE, way, policy, "ann", "worse")
        assert isinstance(moved, RolledBack)
        lines = ledger.read(house.store, PIPELINE)
    assert passed_sets([lines]) == {second.data, third.data}


def released(house: House, *, passes: bool = True) -> Trained:
    trained = house.train()
    house.decide(passes=passes)
    return trained


def test_checkpoints_of_a_finished_session_go_before_it_and_those_in_use_stay(
    house: House,
) -> None:
    old = house.train()
    house.decide(passes=True)
    new = house.train()
    house.decide(passes=True)
    interrupted = house.begin_session(house.lay_out())
    house.pass_days(20)
    house.collect()
    sessions = house.objects.path("sessions")
    assert not (sessions / old.session / "checkpoints").exists()
    assert SessionFolder(sessions / old.session).finished_training()
    assert (sessions / new.session / "checkpoints").exists()
    assert Path(interrupted.checkpoints).exists()


def test_rejected_rows_go_in_their_time_and_their_bytes_with_the_history(house: House) -> None:
    path = house.reject("2026-001")
    house.pass_days(20)
    late = house.reject("2026-002")
    house.pass_days(15)
    house.collect()
    assert not house.store.exists(house.store.resolve(), path)
    assert house.store.exists(house.store.resolve(), late)
    house.pass_days(40)
    house.collect()
    house.pass_days(40)
    house.collect()
    files = (house.root / "snapshots" / "objects").rglob("*")
    assert not [file for file in files if file.is_file() and file.stat().st_size == 3000]


def test_a_state_is_kept_its_time_from_when_another_took_its_place(house: House) -> None:
    house.land("2026-001")
    long_the_head = house.store.resolve()
    house.pass_days(100)
    house.land("2026-002")

    def there() -> set[str]:
        house.collect()
        return {commit.id for commit in house.store.history()}

    house.pass_days(29)
    assert long_the_head in there()
    house.pass_days(3)
    assert long_the_head not in there()


def test_an_input_made_again_since_can_still_be_read_at_its_commit(house: House) -> None:
    """A release remembers the commit of its training set; a later one took its place before."""
    house.train()
    evidence = house.decide(passes=True)
    assert evidence is not None
    house.pass_days(100)
    house.land("2026-001")
    house.pass_days(100)
    house.collect()
    line = next(c for c in house.store.log() if c.message.startswith("ledger "))
    record = json.loads(
        house.store.read_bytes(line.id, f"records/{PIPELINE}/training_set/all.json")
    )
    assert record["data_version"] == evidence.data


def test_a_decided_model_keeps_the_state_by_whose_ledger_it_was_trained(house: House) -> None:
    """``prove`` makes it again with that ledger, however many came after it."""

    def trained_at() -> str:
        record = read_record(house.store, house.store.resolve(), Address(PIPELINE, "trained_model"))
        assert record and record.inputs[0].commit
        return record.inputs[0].commit

    house.train()
    undecided = trained_at()
    released(house, passes=False)
    refused = trained_at()
    released(house)
    passed = trained_at()
    released(house)
    house.pass_days(100)
    house.land("2026-001")
    house.collect()
    kept = {commit.id for commit in house.store.history()}
    assert {refused, passed} <= kept
    assert undecided not in kept


def test_what_is_taken_up_again_while_it_is_deleted_is_put_back(house: House) -> None:
    house.train()
    folder = house.objects.folder("models", "0" * 64)
    (folder / "model.json").write_text("{}")

    def taken_up(moved: Path) -> bool:
        os.utime(moved / "model.json")
        return False

    assert not house.objects.discard(folder, taken_up)
    assert (folder / "model.json").read_text() == "{}"


def test_what_lies_behind_a_link_is_somebody_elses(house: House, tmp_path: Path) -> None:
    others = tmp_path / "others"
    places = (
        *(house.objects.root / kind for kind in ("models", "sessions", "shards", "reports")),
        house.settings.scratch,
        house.root / "snapshots" / "drafts",
    )
    kept = []
    for place in places:
        there = others / place.name / "ab"
        there.mkdir(parents=True)
        kept.append(there / "photo.jpg")
        kept[-1].write_text("not ours")
        os.utime(kept[-1], (0, 0))
        if place.exists():
            place.rename(place.with_name(f"{place.name}-before"))
        place.parent.mkdir(parents=True, exist_ok=True)
        place.symlink_to(others / place.name, target_is_directory=True)
    blobs = house.root / "snapshots" / "objects"
    foreign = others / "objects" / "zz" / ("a" * 64)
    foreign.parent.mkdir(parents=True)
    foreign.write_text("of another home")
    (blobs / "zz").symlink_to(foreign.parent, target_is_directory=True)
    (blobs / "yy").mkdir()
    (blobs / "yy" / ("b" * 64)).symlink_to(others / "gone")
    (blobs / "yy" / ("c" * 64)).mkdir()
    house.collect()
    assert all(file.exists() for file in [*kept, foreign])


def test_two_housekeepings_at_once_are_one(house: House) -> None:
    with (
        exclusive(house.root / "housekeeping.lock", "house-keeping", ""),
        pytest.raises(StateInUse, match="run again later"),
    ):
        house.collect()


def test_a_broken_ledger_stops_everything(house: House) -> None:
    house.train()
    house.decide(passes=True)
    with house.store.open(house.store.resolve(), "fault") as workspace:
        workspace.remove(f"ledger/{PIPELINE}/000001.json")
        workspace.commit("fault", {})
        workspace.publish()
    house.pass_days(400)
    before = sorted((house.root / "objects").rglob("*"))
    with pytest.raises(StorageError, match="is broken"):
        house.collect()
    assert sorted((house.root / "objects").rglob("*")) == before
