"""A recalled model is told as recalled wherever it is shown, and MLflow leads nobody to it."""

import json
import shutil
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

import mlflow
import polars as pl
import pytest
from fastapi.testclient import TestClient

from ml_assets.assets.released_model.predict import Predictor, open_release
from ml_assets.errors import Recalled
from ml_assets.extras.api.access import Caller
from ml_assets.extras.api.app import Api
from ml_assets.extras.prove.proof import Proof, ProofRequest
from ml_assets.records.ledger.chain import Head, append, read
from ml_assets.records.ledger.stages import stages
from ml_assets.records.tracking.registered_model import MODEL_TAG, RECALLED_TAG, STAGE_TAG
from ml_assets.spec.records import LedgerEntry
from ml_assets.store.layout import Address, read_record
from ml_assets.store.open import open_snapshots
from ml_assets_tests.worlds.world import World, free_ports

WHY = "the scale was off"


def copied(released: World, root: Path) -> World:
    for name in ("state", "sources", "pipelines"):
        shutil.copytree(released.root / name, root / name)
    return World(root, released.extra)


def without_mlflow(world: World) -> World:
    (port,) = free_ports(1)
    away = {"MLFLOW_TRACKING_URI": f"http://127.0.0.1:{port}"}
    return replace(world, extra={**world.extra, **away, "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "0"})


def recall(world: World) -> str:
    """Recall the flowers; the recall's id."""
    store = open_snapshots(world.settings.snapshots)
    record = read_record(store, store.resolve(), Address("irises", "raw_snapshot", "flowers"))
    assert record is not None
    named = f"irises/raw_snapshot/raw_flowers@{record.data_version}"
    by = ("--author", "ann", "--reason", WHY, "--json")
    return json.loads(world.streams("data", "recall", named, *by).stdout)["recall"]["id"]


def shown(world: World) -> tuple[dict[str, str], dict[str, str | None]]:
    """What MLflow shows: alias -> model, and the tags of the irises' one version."""
    client = mlflow.MlflowClient(world.settings.tracking_uri, world.settings.tracking_uri)
    (version,) = client.search_model_versions("name = 'irises'")
    aliases = dict.fromkeys(client.get_registered_model("irises").aliases, version.tags[MODEL_TAG])
    return aliases, {tag: version.tags.get(tag) for tag in (STAGE_TAG, RECALLED_TAG)}


@pytest.mark.timeout(600)
def test_mlflow_leads_to_no_recalled_model_and_a_lift_gives_its_alias_back(
    released: World, tmp_path: Path
) -> None:
    world = copied(released, tmp_path)
    model = stages(read(open_snapshots(world.settings.snapshots), "irises"))["production"]
    whole = {"production": model}, {STAGE_TAG: "production", RECALLED_TAG: None}
    assert shown(world) == whole
    said = recall(world)
    bad = {}, {STAGE_TAG: "archived", RECALLED_TAG: f"recall {said}: {WHY}"}
    assert shown(world) == bad
    assert "ok       mlflow: its aliases lead" in world.cli("release", "verify", "irises", code=3)

    client = mlflow.MlflowClient(world.settings.tracking_uri, world.settings.tracking_uri)
    client.set_registered_model_alias("irises", "production", "1")
    for told in (world.cli("release", "verify", "irises", code=3), world.cli("status", "irises")):
        assert (
            f"MLflow shows model {model[:12]} in production; the ledger has no model that may be"
            f" used (recall {said}: {WHY}) there"
        ) in told
    assert "MLflow received the stages" in world.cli("release", "history", "irises")
    assert shown(world) == bad

    lifting = ("data", "recall", "--lift", said, "--author", "ann", "--reason", "it was right")
    lifted = without_mlflow(world).cli(*lifting)
    assert "is lifted, and the ledger says so" in lifted
    assert "note: MLflow still shows older stages of irises; the next command repairs" in lifted
    assert shown(world) == bad
    assert "MLflow received the stages" in world.cli("release", "history", "irises")
    assert shown(world) == whole
    assert "MLflow received" not in world.cli("release", "history", "irises")


@pytest.mark.timeout(600)
def test_a_run_that_recalled_data_stops_has_repaired_mlflow(
    released: World, tmp_path: Path
) -> None:
    world = copied(released, tmp_path)
    recall(without_mlflow(world))
    assert list(shown(world)[0]) == ["production"]
    assert "recalled by ann" in world.cli("run", "irises", code=1)
    assert shown(world)[0] == {}


@dataclass(frozen=True)
class Bad:
    """A world whose model is recalled, and who had opened it before."""

    world: World
    recall: str
    model: str
    opened: Predictor

    @property
    def said(self) -> str:
        return f"(recall {self.recall}: {WHY})"


@pytest.fixture(scope="module")
def bad(released: World, tmp_path_factory: pytest.TempPathFactory) -> Bad:
    """The model is in canary, too, by a line that no command of ours writes."""
    world = copied(released, tmp_path_factory.mktemp("recalled"))
    opened = open_release("irises", world.settings)
    model = opened.release.model.digest

    def line(head: Head) -> LedgerEntry:
        said = {"author": "ann", "reason": "", "run": "", "time": datetime.now(UTC)}
        place = {"seq": head.seq, "previous": head.previous, "kind": "stage", "stage": "canary"}
        return LedgerEntry.model_validate({**place, "model": model, **said})

    append(open_snapshots(world.settings.snapshots), "irises", line)
    return Bad(world, recall(world), model, opened)


def test_the_history_and_who_was_serving_say_it(bad: Bad) -> None:
    told = bad.world.cli("release", "history", "irises")
    for stage in ("canary", "production"):
        assert f"in {stage} now: {bad.model[:12]}  RECALLED {bad.said}\n" in told
    whole = json.loads(bad.world.cli("release", "history", "irises", "--json"))
    assert whole["recalled"] == dict.fromkeys(("canary", "production"), bad.said[1:-1])
    at = ("--at", datetime.now(UTC).isoformat())
    told = bad.world.cli("release", "was-serving", "irises", *at)
    assert f"  and is there still\n  note: it is RECALLED, and is not used {bad.said}\n" in told
    told = bad.world.cli("release", "was-serving", "irises", *at, "--json")
    assert json.loads(told)["recalled"] == bad.said[1:-1]
    told = json.loads(bad.world.cli("release", "history", "deliveries", "--json"))
    assert told["recalled"] == {}


def test_a_proof_notes_it(bad: Bad) -> None:
    proof = Proof(bad.world.settings, ProofRequest("irises"), print)
    note = f"model {bad.model[:12]} is RECALLED, and is not used {bad.said}"
    assert [said for said in proof.notes if "RECALLED" in said] == [note]


def test_who_opened_it_before_predicts_no_more(bad: Bad) -> None:
    with pytest.raises(Recalled, match=f"{bad.model[:12]} of irises is recalled by ann"):
        bad.opened.predict(pl.DataFrame({"flower": [1]}))


def test_it_is_moved_to_no_stage_through_the_api_the_one_it_is_in_neither(bad: Bad) -> None:
    with TestClient(Api(bad.world.settings).app({"t": Caller("olga", operator=True)})) as client:
        answer = client.put(
            f"/api/v1/models/irises/versions/{bad.model}/stage",
            json={"stage": "production", "reason": "complaints"},
            headers={"Authorization": "Bearer t"},
        )
    assert (answer.status_code, "is recalled by ann" in answer.json()["error"]) == (409, True)


def test_the_status_of_a_canary_says_it(bad: Bad) -> None:
    assert f"model {bad.model[:12]} is in canary: RECALLED" in bad.world.cli("status", "irises")
    assert bad.world.status("irises")["canary"]["recalled"] == bad.said[1:-1]
