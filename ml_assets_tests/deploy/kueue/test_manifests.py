"""deploy/kueue: what a cluster with Kueue is given is what Kueue's own schemas allow, and what its
queues hand out finds room in the namespace."""

import json
from collections import defaultdict
from decimal import Decimal
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from ml_assets.actions.render import Verb, job_order
from ml_assets.adapters.executor import MOST_STEPS
from ml_assets.launch.kubernetes.manifest import job_manifest
from ml_assets.settings import read_cluster
from ml_assets_tests.deploy.test_manifests import built, named
from ml_assets_tests.launch.kubernetes.orders import SMALL, SPOT, spec_of
from ml_assets_tests.servers.kubernetes import quantities
from ml_assets_tests.servers.kubernetes.scheduler import tolerates

KUEUE = Path(__file__).parents[3] / "deploy" / "kueue"
SCHEMAS = {file.stem: json.loads(file.read_text()) for file in KUEUE.glob("schemas/*.json")}


def declared() -> list[dict[str, Any]]:
    names = yaml.safe_load((KUEUE / "kustomization.yaml").read_text())["resources"]
    return [one for name in names for one in yaml.safe_load_all((KUEUE / name).read_text())]


def of_kind(kind: str) -> dict[str, dict[str, Any]]:
    return {one["metadata"]["name"]: one for one in declared() if one["kind"] == kind}


def strict(schema: Any) -> Any:
    """The schema with no room for fields that it does not name: a typo is one."""
    if isinstance(schema, list):
        return [strict(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    found = {key: strict(value) for key, value in schema.items()}
    closed = isinstance(schema.get("properties"), dict) and schema.get("type") == "object"
    return {"additionalProperties": False, **found} if closed else found


@pytest.mark.parametrize("one", declared(), ids=lambda o: f"{o['kind']}-{o['metadata']['name']}")
def test_every_object_is_what_its_schema_allows(one: dict[str, Any]) -> None:
    assert one["apiVersion"] == "kueue.x-k8s.io/v1beta2"
    jsonschema.validate(one, strict(SCHEMAS[one["kind"]]))


@pytest.mark.parametrize(
    ("path", "wrong"),
    [
        (("queueingStrategy",), "FIFO"),
        (("cohort",), "training"),
        (("preemption", "reclaimWithinCohort"), "Always"),
        (("resourceGroups", 0, "flavors", 0, "resources", 0, "nominalQuota"), "many"),
    ],
)
def test_the_schemas_find_what_is_wrong(path: tuple[Any, ...], wrong: str) -> None:
    queue = json.loads(json.dumps(of_kind("ClusterQueue")["search"]))
    inner: Any = queue["spec"]
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = wrong
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(queue, strict(SCHEMAS["ClusterQueue"]))


def test_each_schema_names_its_source() -> None:
    assert set(SCHEMAS) == {one["kind"] for one in declared()}
    for schema in SCHEMAS.values():
        assert "kubernetes-sigs/kueue at " in schema["$comment"]
        assert "Apache-2.0" in schema["$comment"]


def test_three_teams_share_128_gpus_and_every_name_leads_somewhere() -> None:
    queues, flavors = of_kind("ClusterQueue"), of_kind("ResourceFlavor")
    gpus = 0
    for queue in queues.values():
        assert queue["spec"]["cohortName"] == "training"
        for flavor in queue["spec"]["resourceGroups"][0]["flavors"]:
            assert flavor["name"] in flavors
            covered = {
                resource["name"]: resource["nominalQuota"] for resource in flavor["resources"]
            }
            assert set(covered) == set(queue["spec"]["resourceGroups"][0]["coveredResources"])
            gpus += covered["nvidia.com/gpu"]
    assert gpus == 128
    assert {name.removesuffix("-spot") for name in queues} == {"forecasting", "search", "research"}
    local = of_kind("LocalQueue")
    assert {one["spec"]["clusterQueue"] for one in local.values()} == set(queues)


def test_the_namespace_has_room_for_all_that_the_queues_hand_out_and_for_the_runs() -> None:
    """Kueue does not look at a ResourceQuota: what it admits and that refuses waits for nothing."""
    asked = defaultdict[str, Decimal](Decimal)
    for queue in of_kind("ClusterQueue").values():
        for flavor in queue["spec"]["resourceGroups"][0]["flavors"]:
            for resource in flavor["resources"]:
                asked[resource["name"]] += quantities.read(resource["nominalQuota"])
    instance = yaml.safe_load((KUEUE.parent / "dagster" / "dagster.yaml").read_text())
    pods = instance["concurrency"]["runs"]["max_concurrent_runs"] * (1 + MOST_STEPS)
    for name, one in instance["run_launcher"]["config"]["resources"]["requests"].items():
        asked[name] += pods * quantities.read(one)
    hard = named(built("overlays/spot"), "ResourceQuota", "ml-assets")["spec"]["hard"]
    for name, amount in asked.items():
        assert amount <= quantities.read(hard[f"requests.{name}"]), name
    assert pods + asked["nvidia.com/gpu"] < quantities.read(hard["pods"])


@pytest.mark.parametrize("verb", ["train", "sanity", "score"])
def test_whatever_a_pipeline_on_spot_runs_may_go_where_its_queue_leads(verb: Verb) -> None:
    """Kueue admits no Job whose pods do not tolerate a flavor's taints: it would wait for ever."""
    overlay = yaml.safe_load((KUEUE.parent / "overlays" / "spot" / "settings.yaml").read_text())
    named = {"ML_ASSETS_OBJECTS": SMALL.objects, "ML_ASSETS_TRAINING_IMAGE": SMALL.image}
    settings = read_cluster({**overlay["data"], **named})
    spec = spec_of({"queue": "forecasting-spot"}, spot=SPOT)
    template = job_manifest(job_order(spec, settings, verb), settings)["spec"]["template"]
    queue = of_kind("LocalQueue")["forecasting-spot"]["spec"]["clusterQueue"]
    (group,) = of_kind("ClusterQueue")[queue]["spec"]["resourceGroups"]
    (flavor,) = (of_kind("ResourceFlavor")[one["name"]]["spec"] for one in group["flavors"])
    assert all(tolerates(template, taint) for taint in flavor["nodeTaints"])
    assert flavor["nodeLabels"].items() <= template["spec"]["nodeSelector"].items()
