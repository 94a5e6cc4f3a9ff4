"""A release as objects of KServe and Argo Rollouts, held to their published schemas."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from jsonschema import Draft202012Validator, ValidationError

from ml_assets.actions.render_release import ServingPlatform, has_list, rendered
from ml_assets.errors import SettingsError
from ml_assets.spec.handover import Handover

SCHEMAS = Path(__file__).parent / "platform_schemas"
PLACE = ServingPlatform(
    "s3://models/", "registry.example.org/serve@sha256:1", "http://prometheus:9090"
)
NEW, OLD = "a" * 64, "b" * 64


def told(**other: Any) -> Handover:
    document = {
        "pipeline": "flight_delays",
        "model": NEW,
        "stage": "production",
        "ledger_line": 7,
        "released": "2026-01-01T00:00:00Z",
        "author": "team:flights",
        "reason": "decision in line 6",
        "inputs": [{"name": "distance", "datatype": "FP64"}],
        "outputs": [{"name": "probability", "datatype": "FP64"}],
        "golden": {"inputs": {}, "outputs": {}, "relative": 1e-5, "absolute": 1e-6},
        "rollback_to": OLD,
        "rollout": {"entity": ["carrier"], "share": 0.1, "steps": [0.05, 0.3], "minutes": 20},
        "drift_profile": None,
        "slices": [],
        "metrics": {},
        "measured": {"latency_ms": 1.0, "rows_per_second": 900.0},
    }
    return Handover.model_validate_json(json.dumps({**document, **other}))


def definition(**fields: object) -> str:
    """A cluster's definition of InferenceService, with these fields of its spec."""
    schema = {"properties": {"spec": {"properties": {"predictor": {}, **fields}}}}
    version = {"name": "v1beta1", "schema": {"openAPIV3Schema": schema}}
    return yaml.safe_dump({"spec": {"names": {"kind": "InferenceService"}, "versions": [version]}})


def objects(text: str) -> list[Any]:
    """The objects, each held to the schema of its kind."""
    assert "&id" not in text, "people read it, and not every reader knows anchors"
    found = [*yaml.safe_load_all(text)]
    for one in found:
        schema = json.loads((SCHEMAS / f"{one['kind']}.json").read_text())
        Draft202012Validator(schema).validate(one)
    return found


def test_kserve_without_a_list_of_canaries_sends_a_percentage_to_the_newest() -> None:
    (service,) = objects(rendered(told(), "kserve", PLACE, definition()))
    assert service["metadata"]["name"] == "flight-delays"
    predictor = service["spec"]["predictor"]
    assert predictor["canaryTrafficPercent"] == 10
    assert predictor["model"]["storageUri"] == f"s3://models/flight_delays-{NEW[:12]}"
    assert service["metadata"]["annotations"]["ml-assets/rollback-to"] == OLD


def test_kserve_with_a_list_has_the_champion_beside_the_canary() -> None:
    (service,) = objects(rendered(told(), "kserve", PLACE, definition(canary={})))
    stable, (canary,) = service["spec"]["predictor"], service["spec"]["canary"]
    assert stable["model"]["storageUri"].endswith(OLD[:12])
    assert canary["predictor"]["model"]["storageUri"].endswith(NEW[:12])
    assert canary["trafficPercent"] == 10
    assert canary["predictor"]["name"] != stable["name"], "KServe asks for names that differ"
    assert service["metadata"]["annotations"]["serving.kserve.io/deploymentMode"] == "Standard"


def test_argo_goes_by_the_specs_steps_and_its_thresholds_abort() -> None:
    rollout, analysis = objects(rendered(told(), "argo", PLACE, None))
    assert rollout["spec"]["strategy"]["canary"]["steps"] == [
        {"setWeight": 10},
        {"pause": {"duration": "20m"}},
        {"setWeight": 30},
        {"pause": {"duration": "20m"}},
    ]
    assert rollout["spec"]["strategy"]["canary"]["analysis"]["templates"] == [
        {"templateName": analysis["metadata"]["name"]}
    ]
    bounds = {one["name"]: one["failureCondition"] for one in analysis["spec"]["metrics"]}
    assert bounds == {
        "errors": "len(result) > 0 && result[0] > 0.02",
        "slower": "len(result) > 0 && result[0] > 3",
    }


def test_without_a_rollout_or_a_model_before_it_goes_up_at_once() -> None:
    for crd in (definition(), definition(canary={})):
        (service,) = objects(rendered(told(rollout=None), "kserve", PLACE, crd))
        assert service["spec"].keys() == {"predictor"}
        assert "canaryTrafficPercent" not in service["spec"]["predictor"]
    (first,) = objects(rendered(told(rollback_to=None), "kserve", PLACE, definition(canary={})))
    assert first["spec"]["predictor"]["model"]["storageUri"].endswith(NEW[:12])
    (rollout,) = objects(rendered(told(rollout=None), "argo", PLACE, None))
    assert rollout["spec"]["strategy"]["canary"]["steps"] == []


def test_a_field_that_the_platform_does_not_know_is_refused_by_its_schema() -> None:
    (service,) = objects(rendered(told(), "kserve", PLACE, None))
    service["spec"]["predictor"]["canaryPercent"] = 10
    with pytest.raises(ValidationError, match="canaryPercent"):
        objects(yaml.safe_dump(service))


@pytest.mark.parametrize("crd", ["", "[", "spec: {}", definition().replace("v1beta1", "v1alpha1")])
def test_what_is_no_definition_is_told(crd: str) -> None:
    with pytest.raises(SettingsError, match="kubectl get crd inferenceservices"):
        has_list(crd)
