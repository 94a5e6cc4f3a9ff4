"""A model on its way is taken out by an operator's word; one that has arrived is not."""

from pathlib import Path

import mlflow
import pytest
from fastapi.testclient import TestClient

from ml_assets.assets.released_model.promote import Refused, Released, release
from ml_assets.extras.api.access import Caller
from ml_assets.extras.api.app import Api
from ml_assets.records.ledger.audit import problems
from ml_assets.records.ledger.chain import read, record_decision
from ml_assets.records.ledger.stages import champion, stages
from ml_assets.records.tracking.mlflow import Logged, Tracking
from ml_assets.records.tracking.projection import project_stages
from ml_assets.records.tracking.registered_model import MODEL_TAG, STAGE_TAG
from ml_assets.spec.gates import CanarySpec, ReleaseSpec, Target
from ml_assets.spec.records import Evidence
from ml_assets.store.pipeline_context import Pipeline, open_pipeline
from ml_assets_tests.records.conftest import A, B, C, decision, evidence, gate
from ml_assets_tests.worlds import irises
from ml_assets_tests.worlds.world import World


def released(pipeline: Pipeline, about: Evidence, spec: ReleaseSpec) -> None:
    passed = decision(about).model_copy(update={"pipeline": pipeline.name})
    record_decision(pipeline.store, passed, "me")
    outcome = release(pipeline.store, pipeline.name, about, spec, author="me", run="")
    assert isinstance(outcome, Released)


def in_mlflow(world: World) -> dict[str, str]:
    """Model -> the stage that MLflow shows."""
    client = mlflow.MlflowClient(world.settings.tracking_uri, world.settings.tracking_uri)
    found = client.search_model_versions("name = 'irises'")
    return {one.tags[MODEL_TAG]: one.tags.get(STAGE_TAG, "") for one in found}


def test_staging_and_canary_can_be_left_and_production_not(tmp_path: Path) -> None:
    world = World(tmp_path).plant(irises)
    pipeline = open_pipeline("irises", world.settings)
    released(pipeline, evidence(A), ReleaseSpec())
    released(pipeline, evidence(B, champion=A), ReleaseSpec(canary=CanarySpec()))
    released(pipeline, evidence(C), ReleaseSpec(to="staging"))
    tracking = Tracking.of(world.settings)
    tracking.ensure_database()
    for model in (A, B, C):
        assert tracking.link_model("irises", model, f"/objects/{model}", "s" * 64, None) == Logged()
    assert project_stages(pipeline.store, tracking, "irises") == Logged()
    shown = {A: "production", B: "canary", C: "staging"}
    assert in_mlflow(world) == shown
    with TestClient(Api(world.settings).app({"t": Caller("olga", operator=True)})) as client:

        def archive(model: str, reason: str = "complaints") -> tuple[int, dict[str, str]]:
            path = f"/api/v1/models/irises/versions/{model}/stage"
            body = {"stage": "archived", "reason": reason}
            answer = client.put(path, json=body, headers={"Authorization": "Bearer t"})
            return answer.status_code, answer.json()

        status, said = archive(A)
        assert (status, "a model can leave only staging and canary" in said["error"]) == (409, True)
        status, said = archive(B, "\u200b")
        assert (status, "an author and a reason" in said["error"]) == (409, True)
        for model in (B, C):
            assert (archive(model)[1]["status"], archive(model)[1]["status"]) == (
                "moved",
                "there already",
            )
            shown[model] = "archived"
            assert in_mlflow(world) == shown
    entries = read(pipeline.store, "irises")
    assert [(one.author, one.reason) for one in entries[-2:]] == [("olga", "complaints")] * 2
    assert stages(entries) == {"production": A}
    assert problems(entries) == ()


@pytest.mark.parametrize("to", ["staging", "canary"])
def test_the_stage_that_a_pipeline_releases_to_is_not_left(tmp_path: Path, to: Target) -> None:
    """With no champion, the next run would judge anew what lost against it, and let it in."""
    world = World(tmp_path).plant(irises)
    spec = world.pipelines / "irises" / "defs.yaml"
    spec.write_text(f"{irises.SPEC}  release: {{to: {to}}}\n")
    pipeline = open_pipeline("irises", world.settings)
    released(pipeline, evidence(A), pipeline.spec.release)
    lost, name = evidence(B, champion=A), {"pipeline": "irises"}
    verdict = decision(lost, (gate("champion", passed=False),)).model_copy(update=name)
    record_decision(pipeline.store, verdict, "me")
    lines = read(pipeline.store, "irises")
    with TestClient(Api(world.settings).app({"t": Caller("olga", operator=True)})) as client:
        path = f"/api/v1/models/irises/versions/{A}/stage"
        body = {"stage": "archived", "reason": "complaints"}
        answer = client.put(path, json=body, headers={"Authorization": "Bearer t"})
    assert (answer.status_code, f"irises releases to {to}" in answer.text) == (409, True)
    assert read(pipeline.store, "irises") == lines
    assert champion(lines, to) == A
    for now in (lost, evidence(B)):
        tried = release(pipeline.store, "irises", now, pipeline.spec.release, author="me", run="")
        assert isinstance(tried, Refused)
