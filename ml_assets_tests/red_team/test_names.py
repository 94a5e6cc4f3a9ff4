"""Names that lead somewhere else are refused at every entrance; names that are markup stay text."""

import json
import shutil
from pathlib import Path

import dagster as dg
import pytest
from pydantic import ValidationError

from ml_assets.actions.read_table import read_table
from ml_assets.adapters.run_log import RunLog
from ml_assets.assets.trained_model.training_job import data_ref
from ml_assets.errors import SourceError, SpecError, StorageError
from ml_assets.records.tracking.outbox import OutboxEntry
from ml_assets.spec.load import load_spec
from ml_assets.spec.paths import inside as inside_spec
from ml_assets.store.embedded.blobs import Blobs
from ml_assets.store.layout import Address, read_record
from ml_assets.store.objects import inside
from ml_assets_tests.red_team.conftest import NAME, NASTY, SPEC, Scene
from ml_assets_tests.worlds.opened import pipeline_of

CLIMBING = ["../x", "a/../../x", "/etc/passwd", "..%2fx", "%252e%252e%252fx", "a\0b", "..\\x", ""]


@pytest.mark.parametrize("name", CLIMBING)
def test_at_the_stores_of_objects_and_files(released: Scene, tmp_path: Path, name: str) -> None:
    with pytest.raises(StorageError, match="leads out") as refused:
        released.objects.path("models", name)
    assert repr(name) in str(refused.value)
    with pytest.raises(StorageError, match="leads out"):
        inside(tmp_path, name)
    with pytest.raises(StorageError, match="not the digest"):
        Blobs(tmp_path).path(name)
    store = released.store
    with (
        store.open(store.resolve(), "key") as workspace,
        pytest.raises(StorageError, match="not a path of a snapshot"),
    ):
        workspace.put_bytes(name, b"x")


@pytest.mark.parametrize("name", CLIMBING)
def test_in_the_spec(released: Scene, name: str) -> None:
    with pytest.raises(ValueError, match="must be a relative path"):
        inside_spec(name)
    fields = {"path: irises.csv", "contract: flowers.json", "function: features.py:build"}
    for field in fields:
        key = field.split(":")[0]
        text = SPEC.replace(
            field, f"{key}: {json.dumps(name + ':build' if ':b' in field else name)}"
        )
        (released.world.pipelines / NAME / "defs.yaml").write_text(text)
        with pytest.raises(SpecError, match=key):
            load_spec(released.world.pipelines / NAME)
    (released.world.pipelines / NAME / "defs.yaml").write_text(
        SPEC.replace("name: irises", f"name: {json.dumps(name)}")
    )
    with pytest.raises(SpecError, match="name"):
        load_spec(released.world.pipelines / NAME)


@pytest.mark.parametrize("name", [one for one in CLIMBING if "\0" not in one and one])
def test_at_the_command_line(released: Scene, name: str, capsys) -> None:
    from ml_assets.cli.main import main

    commands = [
        ["run", name],
        ["status", name],
        ["release", "history", name],
        ["models", "report", name],
        ["predict", name, "--row", "{}"],
        ["release", "export", name],
        ["release", "verify", name],
        ["data", "read", name],
        ["data", "read", f"{NAME}/feature_set", "--version", name],
        ["data", "read", f"{NAME}/feature_set", "--partition", name],
        ["ops", "logs", name],
        ["new", name, "--into", str(released.world.root / "rooms")],
    ]
    for command in commands:
        if command == ["release", "verify", "/etc/passwd"]:
            continue  # a folder may lie anywhere: it is only looked at; this one is a file
        assert main(command) in (1, 3), command
        assert capsys.readouterr().err.startswith("error: "), command
    assert not (released.world.root / "rooms").exists()
    assert not (released.world.root.parent / "x").exists()


def test_a_version_of_64_characters_that_climbs_is_no_commit(released: Scene) -> None:
    climbing = ("../" * 20 + "etc/").ljust(64, "x")
    with pytest.raises(StorageError, match="is not the name of a state"):
        read_table(f"{NAME}/feature_set", version=climbing, settings=released.world.settings)


@pytest.mark.parametrize("uri", ["/etc", "/tmp/{}", "s3://b/{}", "x/shards/irises/../irises/{}"])
def test_in_a_stored_record(released: Scene, uri: str) -> None:
    record = read_record(released.store, released.store.resolve(), Address(NAME, "training_set"))
    assert record is not None
    assert Path(data_ref(pipeline_of(), record).uri).is_dir()
    moved = {**record.attributes, "uri": uri.format(record.data_version)}
    with pytest.raises(StorageError, match="is not followed"):
        data_ref(pipeline_of(), record.model_copy(update={"attributes": moved}))


def test_a_record_of_a_state_folder_that_was_moved_leads_to_where_it_is_now(
    released: Scene,
) -> None:
    record = read_record(released.store, released.store.resolve(), Address(NAME, "training_set"))
    assert record is not None
    elsewhere = f"/before/objects/shards/{NAME}/{record.data_version}"
    moved = record.model_copy(update={"attributes": {**record.attributes, "uri": elsewhere}})
    assert data_ref(pipeline_of(), moved) == data_ref(pipeline_of(), record)


def test_a_symbolic_link_in_the_place_of_a_training_set_or_a_model(
    released: Scene, tmp_path: Path
) -> None:
    record = read_record(released.store, released.store.resolve(), Address(NAME, "training_set"))
    assert record is not None
    place = Path(data_ref(pipeline_of(), record).uri)
    shutil.move(place, tmp_path / "set")
    place.symlink_to(tmp_path / "set")
    with pytest.raises(StorageError, match="by a symbolic link"):
        data_ref(pipeline_of(), record)
    weights = released.objects.path("models", released.candidate, "weights.safetensors")
    shutil.move(weights, tmp_path / "weights")
    weights.symlink_to(tmp_path / "weights")
    assert "symbolic link" in released.world.cli("predict", NAME, "--row", "{}", code=1)


def test_a_source_that_is_a_symbolic_link_out_of_the_sources(
    released: Scene, tmp_path: Path
) -> None:
    from ml_assets.assets.raw_snapshot.readers.files import file_receipt
    from ml_assets.spec.sources import FilesSource

    source = load_spec(released.world.pipelines / NAME).sources["flowers"]
    assert isinstance(source, FilesSource)
    (tmp_path / "irises.csv").symlink_to(released.world.sources / "irises.csv")
    with pytest.raises(SourceError, match="symbolic link that leads out"):
        file_receipt("flowers", source, tmp_path, None)


def test_a_session_that_dagsters_tags_or_a_note_name(released: Scene) -> None:
    with released.world.instance() as instance:
        run = instance.get_runs(limit=1)[0]
        instance.add_run_tags(run.run_id, {"ml_assets/sessions": "../../../etc"})
        with pytest.raises(StorageError, match="leads out"):
            list(RunLog(instance, run.run_id, released.objects.path("sessions")).new())
    with pytest.raises(ValidationError, match="session"):
        OutboxEntry(pipeline=NAME, session="../../x", status="FAILED", tags={}, params={})


def test_a_name_that_is_markup_is_text_on_every_page(released: Scene) -> None:
    root = released.world.root
    released.world.cli("release", "export", NAME, "--to", "card")
    pages = {
        str(file): file.read_text()
        for file in [*(released.state / "objects").rglob("*.html"), root / "card/MODEL_CARD.md"]
    }
    shutil.rmtree(root / "card")
    with released.world.instance() as instance:
        for key in instance.all_asset_keys():
            for record in instance.fetch_materializations(key, limit=50).records:
                assert record.asset_materialization is not None
                for label, value in record.asset_materialization.metadata.items():
                    if isinstance(value, dg.MarkdownMetadataValue):
                        pages[f"{key.to_user_string()} {label}"] = str(value.value)
    shown = [name for name, text in pages.items() if "alert(" in text]
    assert len(shown) >= 4, "the name is on the report, the card, the features' page and another"
    assert any(name.endswith(".html") for name in shown)
    for name, text in pages.items():
        assert "<script" not in text.replace("\\<script", ""), name
    assert NASTY.startswith("<script")
