"""An attacker with the token of an operator: the API opens no door that the gates keep shut."""

from collections.abc import Iterator
from typing import Any

import pytest
from fastapi.testclient import TestClient

from ml_assets.extras.api.access import Caller
from ml_assets.extras.api.app import Api
from ml_assets_tests.red_team.conftest import CANARY, NAME, Scene

V1 = "/api/v1"
HEADERS = {"Authorization": "Bearer eve's"}


@pytest.fixture
def eve(refused: Scene) -> Iterator[TestClient]:
    """The API of the world in which a second model failed a gate; eve is an operator."""
    app = Api(refused.world.settings).app({"eve's": Caller("eve", operator=True)})
    with TestClient(app, headers=HEADERS) as client:
        yield client


def put(eve: TestClient, model: str, stage: str = "production") -> tuple[int, Any]:
    path = f"{V1}/models/{NAME}/versions/{model}/stage"
    answer = eve.put(path, json={"stage": stage, "reason": "because"})
    return answer.status_code, answer.json()


def test_a_refused_model_goes_nowhere_and_the_gate_is_named(
    eve: TestClient, refused: Scene
) -> None:
    before, ledger = refused.in_production, refused.ledger
    status, said = put(eve, refused.candidate)
    assert status == 409
    assert "too_good" in said["error"]
    for stage in ("staging", "canary"):
        status, said = put(eve, refused.candidate, stage)
        assert (status, "releases to production" in said["error"]) == (409, True)
    for model in (refused.candidate, before):
        status, said = put(eve, model or "", "archived")
        assert (status, "a model can leave only staging and canary" in said["error"]) == (409, True)
    assert (refused.in_production, refused.ledger) == (before, ledger)


def test_a_version_is_named_by_a_digest_of_the_ledger_alone(
    eve: TestClient, refused: Scene
) -> None:
    ledger = refused.ledger
    for name in ("0" * 64, "..", "%2e%2e", "%00", "latest", refused.candidate[:5]):
        assert put(eve, name)[0] in (404, 405), name
    assert refused.ledger == ledger


def test_no_body_names_a_variable_a_source_or_a_gate(eve: TestClient, refused: Scene) -> None:
    env = {"env": "ML_ASSETS_SIGNING_KEY"}
    for config in (
        {"data_source": "ML_ASSETS_SQL_WAREHOUSE"},
        {"data_source": env},
        {"hyperparams": {"epochs": env}},
        {"hyperparams": {"epochs": True}},
        {"hyperparams": {"fresh": "salt"}},
        {"hyperparams": {"seed": 7}},
        {"hyperparams": {"init_from": "/tmp/weights.safetensors"}},
        {"resources": {"node_selector": env}},
        {"resources": {"priority_class": "system-node-critical"}},
        {"gates": []},
        {"ops": {f"{NAME}__train": {"config": {"epochs": 1}}}},
        {"tags": {"ml_assets/released_by": "eve"}},
    ):
        answer = eve.post(f"{V1}/pipelines/runs", json={"pipeline_id": NAME, "config": config})
        assert answer.status_code == 422, (config, answer.text)
        assert CANARY not in answer.text
    whole = {"pipeline_id": NAME, "asset_selection": ["released_model"]}
    assert eve.post(f"{V1}/pipelines/runs", json=whole).status_code == 422


def test_what_is_shown_holds_no_secret(eve: TestClient, refused: Scene) -> None:
    pages = [f"{V1}/pipelines", f"{V1}/experiments", f"{V1}/models/{NAME}/versions"]
    pages += [f"{V1}/experiments/{NAME}/runs", f"{V1}/models/{NAME}/versions/{refused.candidate}"]
    runs = eve.get(f"{V1}/experiments/{NAME}/runs").json()["items"]
    pages += [f"{V1}/experiments/{NAME}/runs/{run['run_id']}" for run in runs]
    for path in (*pages, "/docs", "/openapi.json"):
        answer = eve.get(path)
        assert answer.status_code == 200, path
        assert CANARY not in answer.text, path


def test_a_name_of_the_data_is_text_in_an_answer(eve: TestClient) -> None:
    answer = eve.get(f"{V1}/pipelines/runs/<script>alert(1)</script>")
    assert answer.status_code == 404
    assert answer.headers["content-type"] == "application/json"
