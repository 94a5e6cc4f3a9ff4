"""Models that were made elsewhere: files that lie are refused, and none goes round the gates."""

import hashlib
import json
import logging
import pickle
import shutil
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from fastapi.testclient import TestClient
from safetensors.numpy import load_file, save_file

from ml_assets.actions.render_release import read_handover
from ml_assets.assets.released_model.predict import open_release
from ml_assets.assets.released_model.rows_to_predict import of_frame
from ml_assets.assets.trained_model.initial_weights import given_models
from ml_assets.errors import Recalled
from ml_assets.extras.api.access import Caller
from ml_assets.extras.api.app import Api
from ml_assets.records.ledger.audit import problems
from ml_assets.records.ledger.stages import registration, stages
from ml_assets.records.load_release import find_release
from ml_assets.records.recall_files import lift, write
from ml_assets.spec.base import canonical_json
from ml_assets.spec.handover import Handover
from ml_assets.spec.recalls import Lift, Recall
from ml_assets.spec.records import InputVersion, StageRecord
from ml_assets.store.layout import Address
from ml_assets.store.objects import file_digest
from ml_assets_tests.red_team.conftest import CANARY, NAME, Scene

PATH = "/api/v1/models/register"
TRAINED = ("checkpoints", "trained_model", "evaluation_report")


@pytest.fixture
def handover(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder that models are handed over in."""
    monkeypatch.setenv("ML_ASSETS_REGISTER_FROM", f"{tmp_path}/models")
    (tmp_path / "models").mkdir()
    return tmp_path / "models"


def api(scene: Scene) -> Iterator[TestClient]:
    app = Api(scene.world.settings).app({"eve's": Caller("eve", operator=True)})
    with TestClient(app, headers={"Authorization": "Bearer eve's"}) as client:
        yield client


@pytest.fixture
def eve(released: Scene) -> Iterator[TestClient]:
    """Eve is an operator; a model is in production."""
    yield from api(released)


def asked(folder: object, **other: object) -> dict[str, Any]:
    claims = {"accuracy": 1.0, "log_loss": 0.0}
    body = {"name": NAME, "version": "2.1", "artifact_uri": str(folder), "metrics": claims}
    return {**body, "stage": "production", **other}


def mistakes(eve: TestClient, folder: object, **other: object) -> str:
    answer = eve.post(PATH, json=asked(folder, **other))
    assert answer.status_code == 422, answer.text
    assert CANARY not in answer.text
    return "\n".join(one["said"] for one in answer.json()["problems"])


def made(scene: Scene, to: Path, noise: float = 1e-4) -> Path:
    """Another model of the same kind: the released one's weights, a little moved."""
    release = find_release(scene.place)
    to.mkdir()
    weights = load_file(Path(release.model.uri) / release.manifest.weights.path)
    save_file(
        {name: (w + noise).astype(w.dtype) for name, w in weights.items()}, to / "w.safetensors"
    )
    describe(scene, to, "w.safetensors")
    return to


def twin_of(model: Path, to: Path) -> Path:
    """The same weights under another digest: a space behind its manifest."""
    shutil.copytree(model, to)
    with (to / "model.json").open("a") as manifest:
        manifest.write(" ")
    return to


def describe(scene: Scene, folder: Path, weights: str, **other: object) -> None:
    """Write the manifest of what lies there, with all digests right."""
    data = (folder / weights).read_bytes()
    about = {"path": weights, "size": len(data), "sha256": hashlib.sha256(data).hexdigest()}
    manifest = json.loads((Path(find_release(scene.place).model.uri) / "model.json").read_bytes())
    (folder / "model.json").write_text(json.dumps({**manifest, "weights": about, **other}))


def judge(scene: Scene, model: str, *stages: str) -> str:
    config = {"ops": {f"{NAME}__train": {"config": {"registered": model}}}}
    return scene.materialize(*TRAINED, *stages, checks=True, run_config=config)


def hold_to_golden(scene: Scene, told: Handover) -> None:
    """What is released says of the golden vectors what the document says."""
    predictor = open_release(NAME, scene.world.settings)
    said = predictor.predictions(of_frame(pl.DataFrame(told.golden.inputs))).frame
    for name, expected in told.golden.outputs.items():
        if isinstance(expected[0], float):
            near = (told.golden.relative, told.golden.absolute)
            np.testing.assert_allclose(said[name].to_numpy(), expected, *near)


@pytest.mark.daemon
def test_a_registered_model_is_judged_by_the_gates_and_a_person_has_to_answer_for_it(
    eve: TestClient, released: Scene, handover: Path
) -> None:
    before = released.in_production
    body = asked(made(released, handover / "mine"))
    answer = eve.post(PATH, json=body)
    assert (answer.status_code, "Dagster does not answer" in answer.text) == (503, True)
    line = released.ledger[-1]
    assert (line.kind, line.author) == ("registration", "eve")
    assert "version 2.1 from" in line.reason and "accuracy 1" in line.reason
    eve.post(PATH, json=body)
    assert released.ledger[-1] == line, "it is known once"
    shown = eve.get(f"/api/v1/models/{NAME}/versions/{line.model}").json()
    assert (shown["stage"], shown["made_elsewhere"]["claims"]["accuracy"]) == (None, 1.0)

    said = judge(released, line.model, "released_model")
    assert "is not released" in said and "made_elsewhere" in said
    assert "AssetCheckResult" not in said, "the gates' own step ends well"
    assert released.in_production == before
    decision = released.ledger[-1].decision
    assert decision and decision.evidence.model == line.model
    failed = [gate.name for gate in decision.gates if not gate.passed]
    assert "made_elsewhere" in failed
    accuracy = next(gate for gate in decision.gates if gate.name == "accuracy_floor")
    assert accuracy.value and accuracy.value < 1, "measured, not claimed"
    assert "made_elsewhere" in released.materialize("released_model")
    path = f"/api/v1/models/{NAME}/versions/{line.model}/stage"
    refused = eve.put(path, json={"stage": "production"})
    assert (refused.status_code, "made_elsewhere" in refused.text) == (409, True)

    told = ("--author", "ada", "--reason", "its makers showed me their split")
    released.world.cli("release", "override", NAME, *told)
    assert released.materialize("released_model") == ""
    assert released.in_production == line.model

    spec = released.world.pipelines / NAME / "defs.yaml"
    spec.write_text(spec.read_text().replace("epochs: 30", "epochs: 30\n    init_from: release"))
    said = released.world.cli("run", NAME, code=3)
    assert f"it is not known which rows model {line.model[:12]} was trained on" in said
    assert released.in_production == line.model, "nobody answered for what learns from it"
    assert problems(released.ledger) == ()
    provenance = find_release(released.place).certificate.provenance
    assert provenance and provenance.registered == registration(released.ledger, line.model)
    released.world.cli("release", "verify", NAME)
    folder = released.world.root / f"out-{line.model[:6]}"
    released.world.cli("release", "export", NAME, "--to", str(folder))
    assert "made elsewhere" in (folder / "MODEL_CARD.md").read_text()
    told = read_handover(folder)
    assert (told.rollback_to, told.model) == (before, line.model)
    hold_to_golden(released, told)
    forged = json.loads((folder / "handover.json").read_text())
    forged["rollback_to"] = "0" * 64
    (folder / "handover.json").write_text(json.dumps(forged))
    assert "was altered" in released.world.cli("release", "verify", str(folder), code=3)
    shutil.rmtree(folder)


def test_a_version_is_one_model_and_a_model_is_registered_with_one_set_of_words(
    eve: TestClient, released: Scene, handover: Path
) -> None:
    mine = made(released, handover / "mine")
    eve.post(PATH, json=asked(mine))
    other = eve.post(PATH, json=asked(made(released, handover / "other", 2e-4)))
    assert (other.status_code, "Version 2.1 is model" in other.text) == (409, True)
    again = eve.post(PATH, json=asked(mine, metrics={"accuracy": 0.5}))
    assert (again.status_code, "with other details" in again.text) == (409, True)


def test_a_model_that_is_recalled_in_another_pipeline_is_not_registered_here(
    eve: TestClient, released: Scene, handover: Path
) -> None:
    mine = made(released, handover / "mine")
    model = InputVersion(
        key="roses/trained_model",
        partition=None,
        version=file_digest(mine / "model.json"),
        commit=None,
    )
    recall = Recall(
        id="9db76de6ad4f",
        snapshot="5a1bec29",
        seeds=(model.model_copy(update={"key": "roses/raw_snapshot/raw_roses"}),),
        reached=(model,),
        stages=(),
        author="ann",
        reason="the scale was off",
        time=datetime.now(UTC),
    )
    write(released.store, recall)
    ledger = released.ledger
    answer = eve.post(PATH, json=asked(mine))
    assert (answer.status_code, "is recalled by ann" in answer.text) == (409, True)
    twin = twin_of(mine, handover / "twin")
    answer = eve.post(PATH, json=asked(twin))
    assert (answer.status_code, "has the weights of model" in answer.text) == (409, True)
    weights = mine / "w.safetensors"
    spec, named = released.place.spec, f"{weights}@sha256:{file_digest(weights)}"
    training = spec.training.model_copy(update={"init_from": named})
    begun = replace(released.place, spec=spec.model_copy(update={"training": training}))
    with pytest.raises(Recalled, match=r"init_from .* has the weights of model"):
        given_models(logging.getLogger(), begun.now())
    assert released.ledger == ledger
    lift(released.store, Lift(id=recall.id, author="ann", reason="no", time=datetime.now(UTC)))
    eve.post(PATH, json=asked(mine))
    assert released.ledger[-1].model == model.version


def test_nor_is_one_that_a_step_at_work_published_after_the_recall(
    eve: TestClient, released: Scene, handover: Path
) -> None:
    mine = made(released, handover / "mine")
    raw = InputVersion(
        key="roses/raw_snapshot/raw_roses", partition=None, version="b" * 64, commit=None
    )
    said = {"author": "ann", "reason": "the scale was off", "time": datetime.now(UTC)}
    lists = {"seeds": (raw,), "reached": (), "stages": ()}
    recall = Recall.model_validate({"id": "9db76de6ad4e", "snapshot": "b" * 8, **lists, **said})
    write(released.store, recall)
    late = StageRecord(
        key="roses/trained_model",
        partition=None,
        run_key="1" * 64,
        code_version="1",
        data_version=file_digest(mine / "model.json"),
        rows=None,
        inputs=(raw,),
        run="run",
        time=datetime.now(UTC),
    )
    with released.store.open(released.store.resolve(), "late") as workspace:
        workspace.put_bytes(Address.of(late.key).record, canonical_json(late))
        workspace.commit("late", {})
        workspace.publish()
    answer = eve.post(PATH, json=asked(mine))
    assert (answer.status_code, "is recalled by ann" in answer.text) == (409, True)
    lift(released.store, Lift(id=recall.id, author="ann", reason="no", time=datetime.now(UTC)))


def test_a_model_of_here_is_no_model_from_elsewhere(
    refused: Scene, handover: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a gate refused comes back by no other name, and no run config makes it a candidate."""
    ledger = refused.ledger
    shutil.copytree(refused.objects.path("models", refused.candidate), handover / "mine")
    for eve in api(refused):
        answer = eve.post(PATH, json=asked(handover / "mine"))
        assert (answer.status_code, "it was made here" in answer.text) == (409, True)
    production = refused.in_production
    for model in (refused.candidate, production, "../..", "0" * 64):
        assert "knows no model" in judge(refused, model or ""), model
    assert refused.in_production == production
    assert refused.ledger == ledger


def test_only_weights_that_are_data_are_taken(
    eve: TestClient, released: Scene, handover: Path
) -> None:
    ledger = released.ledger
    for name, content in {
        "weights.safetensors": pickle.dumps(print),
        "weights.pkl": pickle.dumps(print),
        "weights.pt": b"PK\x03\x04" + b"0" * 100,
        "weights.txt": b"tree\nversion=v4\n",
    }.items():
        folder = handover / name
        folder.mkdir()
        (folder / name).write_bytes(content)
        describe(released, folder, name)
        said = mistakes(eve, folder)
        assert "not a complete safetensors file" in said or "Nothing is unpickled" in said, name
    trees = handover / "trees"
    trees.mkdir()
    (trees / "w.txt").write_bytes(pickle.dumps(print))
    model = {"family": "lightgbm", "rounds": 3}
    describe(released, trees, "w.txt", model=model)
    assert "Nothing is unpickled" in mistakes(eve, trees)
    network = made(released, handover / "network")
    describe(released, network, "w.safetensors", code="0" * 64, task="binary", classes=["a", "b"])
    said = mistakes(eve, network)
    assert (
        "It predicts a binary label" in said and "code is taken from the pipeline's folder" in said
    )
    assert released.ledger == ledger


def test_a_manifest_leads_nowhere_and_lies_about_nothing(
    eve: TestClient, released: Scene, handover: Path, tmp_path: Path
) -> None:
    mine = made(released, handover / "mine")
    manifest = json.loads((mine / "model.json").read_text())
    for weights in ({"path": "../w.safetensors"}, {"path": "/etc/passwd"}, {"path": "a/b"}):
        about = {**manifest["weights"], **weights}
        (mine / "model.json").write_text(json.dumps({**manifest, "weights": about}))
        assert "expected a file beside it" in mistakes(eve, mine)
    about = {**manifest["weights"], "sha256": "0" * 64}
    (mine / "model.json").write_text(json.dumps({**manifest, "weights": about}))
    assert "is damaged" in mistakes(eve, mine)
    (mine / "model.json").write_text(json.dumps({**manifest, "task": "guess", "secret": 1}))
    assert len(mistakes(eve, mine).splitlines()) >= 2
    (mine / "model.json").write_text("{")
    mistakes(eve, mine)


def test_an_address_stays_below_the_places_that_the_settings_name(
    eve: TestClient, released: Scene, handover: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    outside = made(released, handover.parent / "outside")
    (handover / "link").symlink_to(outside)
    (handover / "inner").mkdir()
    (handover / "inner" / "model.json").symlink_to(outside / "model.json")
    for uri in (
        outside,
        f"file://{outside}",
        f"{handover}/../outside",
        f"file://{handover}/%2e%2e/outside",
        f"{handover}-not/x",
        handover,
        "s3://somebody/elses",
        "http://169.254.169.254/latest/meta-data",
        "/etc",
        "\0",
    ):
        assert "is not below" in mistakes(eve, uri), uri
    assert "There is no folder" in mistakes(eve, handover / "link")
    assert "is a symbolic link" in mistakes(eve, handover / "inner")
    monkeypatch.delenv("ML_ASSETS_REGISTER_FROM")
    assert "This API registers no models" in mistakes(eve, outside)


def test_no_other_stage_and_no_claim_that_is_no_number(
    eve: TestClient, released: Scene, handover: Path
) -> None:
    mine = made(released, handover / "mine")
    assert "releases to production, not to staging" in mistakes(eve, mine, stage="staging")
    assert len(mistakes(eve, handover / "no", stage="staging").splitlines()) == 2, "both at once"
    for other in (
        {"metrics": {"accuracy": "1"}},
        {"metrics": {"accuracy": {"env": "ML_ASSETS_SIGNING_KEY"}}},
        {"stage": "archived"},
        {"gates": []},
        {"version": ""},
    ):
        mistakes(eve, mine, **other)
    nan = json.dumps(asked(mine)).replace("1.0", "NaN")
    assert eve.post(PATH, content=nan).status_code == 422
    assert eve.post(PATH, json=asked(mine, name="tulips")).status_code == 404


def test_claims_go_nowhere_near_a_gate(eve: TestClient, released: Scene, handover: Path) -> None:
    """Weights of noise that claim to be perfect."""
    noise = made(released, handover / "noise", 3.0)
    eve.post(PATH, json=asked(noise))
    model = released.ledger[-1].model
    before = stages(released.ledger)
    said = judge(released, model, "released_model")
    assert "beats_constant" in said and "AssetCheckResult" not in said
    decision = released.ledger[-1].decision
    assert decision and not decision.passed
    assert {"beats_constant", "made_elsewhere"} <= {g.name for g in decision.gates if not g.passed}
    assert stages(released.ledger) == before
    assert np.isfinite([g.value for g in decision.gates if g.name == "accuracy_floor"]).all()
