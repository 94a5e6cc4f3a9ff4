"""Bad data is recalled, refused everywhere, made again and released, on pipelines that ran."""

import json
import shutil
from datetime import UTC, datetime
from pathlib import Path

import dagster as dg
import pytest

from ml_assets.actions.export import export_release
from ml_assets.assets.released_model.made_from import require_made_here
from ml_assets.errors import Recalled
from ml_assets.extras.recall import recall
from ml_assets.extras.recall.recall import carry_out, extent
from ml_assets.extras.recall.recovery import RecoveryPlan
from ml_assets.records.ledger.chain import Head, append, read
from ml_assets.records.ledger.stages import stages
from ml_assets.records.recall_files import active, write
from ml_assets.spec.gates import Target
from ml_assets.spec.recalls import Recall
from ml_assets.spec.records import InputVersion, LedgerEntry
from ml_assets.store.layout import Address, read_record
from ml_assets.store.open import open_snapshots
from ml_assets.store.pipeline_context import open_pipeline
from ml_assets.store.snapshots import SnapshotStore
from ml_assets_tests.records.conftest import A, B, C
from ml_assets_tests.worlds import irises
from ml_assets_tests.worlds.world import World


def version_of(world: World, *address: str | None, partition: str | None = None) -> str:
    store = open_snapshots(world.settings.snapshots)
    pipeline, stage, source = address
    assert pipeline and stage
    record = read_record(store, store.resolve(), Address(pipeline, stage, source, partition))
    assert record is not None
    return record.data_version


def test_a_name_without_its_version_is_told_what_it_lacks(released: World) -> None:
    name = "deliveries/raw_snapshot/raw_orders/2024-02-05"
    answered = ["--author", "ann", "--reason", "the scale was off"]
    said = released.cli("data", "recall", name, *answered, code=1)
    assert "A name needs @VERSION behind it. `ml-assets status PIPELINE --json` lists" in said


def test_a_bad_week_reaches_the_weeks_that_look_back_at_it_and_the_model_and_no_other(
    released: World,
) -> None:
    week = "2024-02-05"
    bad = version_of(released, "deliveries", "raw_snapshot", "orders", partition=week)
    found = extent(
        open_snapshots(released.settings.snapshots),
        f"deliveries/raw_snapshot/raw_orders/{week}@{bad[:10]}",
    )
    (way,) = found.ways
    again = [(key.split("/", 1)[1], partition) for key, partition, _ in way.again]
    assert again == [
        ("raw_snapshot/raw_orders", week),
        ("validated_table/orders", week),
        ("derived_table/closed_orders", week),
        ("feature_set", week),
        ("feature_set", "2024-02-12"),
        ("training_set", None),
        ("checkpoints", None),
        ("trained_model", None),
        ("evaluation_report", None),
        ("released_model", None),
    ]
    assert way.command == "ml-assets run deliveries"
    assert [stage.stage for stage in found.recall.stages] == ["production"]


@pytest.fixture
def own(released: World, tmp_path: Path) -> World:
    """The released world as its own, to change."""
    for name in ("state", "sources", "pipelines"):
        shutil.copytree(released.root / name, tmp_path / name)
    return World(tmp_path, released.extra)


@pytest.mark.timeout(600)
def test_recalled_data_is_refused_everywhere_until_it_is_mended_and_made_again(own: World) -> None:
    bad = version_of(own, "irises", "raw_snapshot", "flowers")
    said = own.cli("data", "recall", bad[:10], "--dry-run")
    assert "would reach" in said
    assert own.status("irises")["release"]["recalled"] is None
    said = own.cli("data", "recall", bad[:10], "--author", "ann", "--reason", "the scale was off")
    assert "production of irises is model" in said
    assert "repair the source first; then: ml-assets run irises" in said
    flowers = str(own.sources / "irises.csv")
    for refused in (
        ("data", "read", "irises/feature_set"),
        ("data", "read", "irises/training_set"),
        ("predict", "irises", flowers),
        ("run", "irises"),
    ):
        assert "recalled by ann, for" in own.cli(*refused, code=1), refused
    status = own.status("irises")
    assert "the scale was off" in status["release"]["recalled"]
    assert all(stage["recalled"] for stage in status["stages"])
    with own.instance() as instance:
        key = dg.AssetKey(["irises", "trained_model"])
        (seen,) = instance.fetch_observations(key, limit=1).records
        assert seen.asset_observation is not None
        assert "the scale was off" in (seen.asset_observation.description or "")
    irises.write_flowers(own.sources, species_of_first="virginica")
    said = own.cli("run", "irises", code=3)
    assert "irises/raw_snapshot/raw_flowers: it is recalled" in said
    assert "is recalled, so no model is compared with it" in said
    answered = ("--author", "ann", "--reason", "nothing whole was in production before")
    own.cli("release", "override", "irises", *answered)
    own.cli("run", "irises")
    assert "one champion at every moment" in own.cli("release", "history", "irises", "--check")
    status = own.status("irises")
    assert not any(stage["recalled"] for stage in status["stages"])
    assert status["release"]["recalled"] is None
    assert (
        json.loads(own.cli("release", "history", "irises", "--json"))["history"][0]["kind"]
        == "stage"
    )
    own.cli("predict", "irises", flowers)


def test_of_two_recalls_of_a_model_each_is_lifted_by_itself_and_a_killed_lift_is_completed(
    own: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    answered = ("--author", "ann", "--reason", "the scale was off")
    for stage, table in (("raw_snapshot", "flowers"), ("feature_set", None)):
        own.cli("data", "recall", version_of(own, "irises", stage, table)[:10], *answered)
    store = open_snapshots(own.settings.snapshots)
    first, second = active(store, store.resolve())

    with monkeypatch.context() as killed:
        killed.setattr(recall, "_tell_ledgers", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            recall.lift(store, first.id, "ann", "it was right")
    assert own.cli("data", "recall", "--lift", first.id, *answered)
    lines = [line for line in read(store, "irises") if line.kind == "lift"]
    assert {line.reason for line in lines} == {f"recall {first.id} lifted: it was right"}
    assert [one.id for one in active(store, store.resolve())] == [second.id]
    assert own.status("irises")["release"]["recalled"], "the second one holds"
    own.cli("release", "history", "irises", "--check")
    own.cli("data", "recall", "--lift", second.id, *answered)
    assert own.status("irises")["release"]["recalled"] is None
    own.cli("release", "history", "irises", "--check")


def move(store: SnapshotStore, model: str, stage: Target, **more: str) -> None:
    def line(head: Head) -> LedgerEntry:
        said = {"author": "ann", "reason": "", "run": "", "time": datetime.now(UTC), **more}
        place = {"seq": head.seq, "previous": head.previous, "kind": "stage"}
        return LedgerEntry.model_validate({**place, "model": model, "stage": stage, **said})

    append(store, "irises", line)


def recall_model(store: SnapshotStore, model: str) -> None:
    """By another recall, that stands."""
    bad = InputVersion(key="irises/trained_model", partition=None, version=model, commit=None)
    by = {"author": "ann", "reason": "bad", "time": datetime.now(UTC)}
    whole = {"id": model[:12], "snapshot": "x", "seeds": (bad,), "reached": (), "stages": (), **by}
    write(store, Recall.model_validate(whole))


def test_the_way_back_is_one_that_a_rollback_takes(own: World) -> None:
    store = open_snapshots(own.settings.snapshots)
    bad = version_of(own, "irises", "feature_set", None)
    model = stages(read(store, "irises"))["production"]

    def way() -> RecoveryPlan:
        (found,) = extent(store, bad).ways
        return found

    assert (way().back_to, way().stranded) == (None, True)
    for one in (A, B, C, model):
        move(store, one, "production")
    assert (way().back_to, way().stranded) == (C, False)
    recall_model(store, C)
    assert way().back_to == B, "a recall of C stands"
    move(store, model, "production", because="rollback", replaced=B)
    assert way().back_to == A, "somebody rolled back from B"
    move(store, A, "production")
    move(store, B, "canary")
    move(store, model, "canary")
    assert (way().back_to, way().stranded) == (None, False), "what is released is sound"
    said = own.cli("data", "recall", bad[:10], "--dry-run")
    assert "canary of irises is model" in said
    assert "release rollback" not in said and "no earlier model can be used" not in said


def test_a_release_is_held_to_the_recalls_of_the_moment_not_of_its_beginning(own: World) -> None:
    pipeline = open_pipeline("irises", own.settings)
    state = pipeline.now()
    bad = version_of(own, "irises", "raw_snapshot", "flowers")
    carry_out(pipeline.store, extent(pipeline.store, bad, "ann", "the scale was off"))
    with pytest.raises(Recalled, match="is recalled by ann"):
        require_made_here(state)


def test_a_hand_over_names_no_recalled_model_to_go_back_to(own: World, tmp_path: Path) -> None:
    pipeline = open_pipeline("irises", own.settings)
    model = stages(read(pipeline.store, "irises"))["production"]
    for one in (A, B, C):
        move(pipeline.store, one, "production")
    move(pipeline.store, model, "production", because="rollback", replaced=C)

    def back(name: str) -> str | None:
        folder = export_release(pipeline, tmp_path / name).folder
        return json.loads((folder / "handover.json").read_text())["rollback_to"]

    assert back("first") == B
    recall_model(pipeline.store, B)
    assert back("second") == A
    recall_model(pipeline.store, A)
    assert back("third") is None
