"""The manifest: golden files, the published schemas, and every declared field seen to reach it.

``ML_ASSETS_TEST_WRITE_GOLDEN=1`` writes the golden files anew; read the difference.
"""

import dataclasses
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ml_assets.actions.render import Verb, as_yaml, job_order
from ml_assets.errors import SettingsError, SpecError
from ml_assets.launch.kubernetes.manifest import SCRATCH, job_manifest, manifests, service_manifest
from ml_assets.settings import Cluster
from ml_assets.settings.cluster import Taint, bytes_of
from ml_assets.spec.cluster import ClusterSpec, Toleration
from ml_assets.spec.pipeline import PipelineSpec
from ml_assets.spec.training import TrainingSpec
from ml_assets.spec.training_program.exit_codes import EXIT_BAD_REQUEST, VERDICTS
from ml_assets_tests.launch.kubernetes.manifest_parts import container_of, env_of, pod_of
from ml_assets_tests.launch.kubernetes.orders import (
    MANY,
    SMALL,
    SPOT,
    WHOLE,
    many_nodes,
    one_pod_score,
    spec_of,
    two_nodes,
    two_nodes_elsewhere,
)

GOLDEN = Path(__file__).parent / "golden"
KUBERNETES = ("1.31", "1.34", kubernetes_validate.latest_version())
CASES = {
    "one-pod-score": one_pod_score,
    "two-nodes-cpu": two_nodes,
    "two-nodes-elsewhere": two_nodes_elsewhere,
    "256-nodes-gpu-spot": many_nodes,
}


# --- golden files and schemas ---------------------------------------------------------------------


@pytest.mark.parametrize("name", CASES)
def test_the_manifest_is_the_golden_one(name: str) -> None:
    golden, text = GOLDEN / f"{name}.yaml", as_yaml(manifests(*CASES[name]()))
    if os.environ.get("ML_ASSETS_TEST_WRITE_GOLDEN"):
        golden.write_text(text)
    assert text == golden.read_text()


def test_every_golden_file_is_of_a_case() -> None:
    assert {path.stem for path in GOLDEN.iterdir()} == set(CASES)


@pytest.mark.parametrize("version", KUBERNETES)
@pytest.mark.parametrize("name", CASES)
def test_the_published_schema_takes_it(name: str, version: str) -> None:
    documents = list(yaml.safe_load_all((GOLDEN / f"{name}.yaml").read_text()))
    assert documents == manifests(*CASES[name]())
    for document in documents:
        kubernetes_validate.validate(document, version, strict=True)


def test_the_schema_refuses_a_field_that_is_none() -> None:
    job = job_manifest(*two_nodes())
    container_of(job)["imagePullPolice"] = "IfNotPresent"
    with pytest.raises(kubernetes_validate.ValidationError, match="imagePullPolice"):
        kubernetes_validate.validate(job, KUBERNETES[0], strict=True)


quantities = st.builds("{}{}".format, st.integers(1, 4000), st.sampled_from(["Mi", "Gi", "M", "G"]))
tolerations = st.builds(
    Toleration,
    key=st.sampled_from(["gpu", "node.example/kind"]),
    value=st.none() | st.just("yes"),
    effect=st.none() | st.sampled_from(["NoSchedule", "NoExecute"]),
)


@st.composite
def orders(draw: st.DrawFn) -> tuple[Any, Cluster]:
    nodes, here = draw(st.integers(1, 300)), draw(st.integers(1, 8))
    sizes = sorted((draw(quantities), draw(quantities)), key=lambda size: bytes_of(size) or 0)
    queue = draw(st.none() | st.just("team-a"))
    cluster = {
        "nodes": nodes,
        "gpus_per_node": draw(st.sampled_from([0, here])),
        "shared_memory": sizes[0],
        "memory": f"{(bytes_of(sizes[1]) or 0) + 1}",
        "scratch": draw(quantities),
        "node_selector": draw(st.sampled_from([{}, {"node.example/kind": "big"}])),
        "tolerations": [one.model_dump() for one in draw(st.lists(tolerations, max_size=2))],
        "queue": queue,
        "spread_over": draw(st.none() | st.just("topology.kubernetes.io/zone")),
    }
    spec = spec_of(cluster, processes=nodes * here, spot=draw(st.sampled_from([None, SPOT])))
    cluster_settings = draw(st.sampled_from([WHOLE, dataclasses.replace(WHOLE, pull_secret=None)]))
    verb = draw(st.sampled_from(["train", "score", "sanity"]))
    return job_order(spec, cluster_settings, verb, attempt=draw(st.integers(1, 99))), WHOLE


@settings(max_examples=40, suppress_health_check=[HealthCheck.too_slow])
@given(orders())
def test_whatever_a_spec_asks_for_is_a_manifest_of_the_same_shape(asked: Any) -> None:
    order, cluster = asked
    made = manifests(order, cluster)
    assert json.loads(json.dumps(made)) == made == manifests(order, cluster)
    for document in made:
        kubernetes_validate.validate(document, "1.34", strict=True)
    job = made[-1]
    held = container_of(job)["resources"]
    assert job["spec"]["completions"] == job["spec"]["parallelism"] == order.world.nodes
    assert held["requests"] == {"cpu": order.cluster.cpu, **held["limits"]}
    assert (len(made) == 2) == ("subdomain" in pod_of(job)) == (order.world.nodes > 1)
    if len(made) == 2:
        labels = job["spec"]["template"]["metadata"]["labels"]
        assert made[0]["spec"]["selector"].items() <= labels.items()


def test_256_nodes_are_as_small_as_two() -> None:
    sizes = [
        len(
            json.dumps(
                manifests(job_order(spec_of(MANY, processes=2048), WHOLE, "train", n), WHOLE)
            )
        )
        for n in (2, 256)
    ]
    assert sizes[1] - sizes[0] == 2 * len("56")
    assert sizes[1] < 6000


# --- every declared field reaches it --------------------------------------------------------------

LAUNCHER_ONLY = {"min_nodes", "shrink_after_minutes", "unschedulable_minutes"}
"""What the launcher does while it waits; no object of the cluster has it."""
OTHER_SPEC: dict[str, Any] = {
    "nodes": 128,
    "gpus_per_node": 0,
    "gpu_resource": "amd.com/gpu",
    "cpu": "3",
    "memory": "2Ti",
    "shared_memory": "2Gi",
    "scratch": "7Gi",
    "data_cache": "5Gi",
    "node_selector": {"other": "label"},
    "tolerations": (),
    "priority_class": "other",
    "queue": "other",
    "queue_priority": "other",
    "spread_over": "other",
    "min_nodes": 64,
    "shrink_after_minutes": 99.0,
    "unschedulable_minutes": 99.0,
    "deadline_hours": 1.0,
}
OTHER_SETTINGS: dict[str, Any] = {
    "objects": "s3://other",
    "image": "other@sha256:" + "b" * 64,
    "namespace": "other",
    "secret": "other",
    "pull_secret": "other",
    "spot_selector": (("other", "yes"),),
    "spot_taints": (Taint("other", None, "NoExecute"),),
    "bought": "reserved",
    "s3_endpoint": "http://other.example",
    "s3_region": "other",
}
OTHER_TOLERATION: dict[str, Any] = {"key": "other", "value": "other", "effect": "NoExecute"}


def whole_spec(cluster: ClusterSpec | None = None) -> PipelineSpec:
    spec = spec_of(MANY, processes=2048, spot=SPOT)
    return spec if cluster is None else spec.model_copy(update={"cluster": cluster})


def rendered(spec: PipelineSpec, cluster: Cluster = WHOLE) -> str:
    return as_yaml(manifests(job_order(spec, cluster, "train"), cluster))


def test_every_field_of_a_cluster_spec_reaches_the_manifest() -> None:
    assert set(OTHER_SPEC) == set(ClusterSpec.model_fields), "a field has no other value here"
    whole = whole_spec()
    changed = {
        field
        for field, value in OTHER_SPEC.items()
        if rendered(whole_spec(whole.cluster.model_copy(update={field: value}))) != rendered(whole)
    }
    assert set(OTHER_SPEC) - changed == LAUNCHER_ONLY


def test_every_field_of_a_toleration_reaches_the_manifest() -> None:
    assert set(OTHER_TOLERATION) == set(Toleration.model_fields)
    whole = whole_spec()
    (declared,) = whole.cluster.tolerations
    for field, value in OTHER_TOLERATION.items():
        other = (declared.model_copy(update={field: value}),)
        cluster = whole.cluster.model_copy(update={"tolerations": other})
        assert rendered(whole_spec(cluster)) != rendered(whole), field


def test_every_setting_of_the_cluster_reaches_the_manifest() -> None:
    assert set(OTHER_SETTINGS) == {field.name for field in dataclasses.fields(Cluster)}
    paid = whole_spec().model_copy(update={"training": TrainingSpec(processes=2048)})
    for field, value in OTHER_SETTINGS.items():
        spec = paid if field == "bought" else whole_spec()  # of machines that are not spot
        other = dataclasses.replace(WHOLE, **{field: value})
        assert rendered(spec, other) != rendered(spec), field


# --- what it says ---------------------------------------------------------------------------------


def test_no_environment_of_ours_and_no_secret_is_in_it(monkeypatch: pytest.MonkeyPatch) -> None:
    before = rendered(whole_spec())
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "hush")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "7")
    monkeypatch.setenv("PYTHONPATH", "/mine")
    assert rendered(whole_spec()) == before
    assert container_of(job_manifest(*many_nodes()))["envFrom"] == [
        {"secretRef": {"name": WHOLE.secret}}
    ]


def test_a_pod_keeps_the_restricted_standard() -> None:
    """Kubernetes documentation, "Pod Security Standards": the profile ``restricted``."""
    job = job_manifest(*many_nodes())
    pod, own = pod_of(job), container_of(job)["securityContext"]
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["runAsUser"] > 0
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert own["allowPrivilegeEscalation"] is False
    assert own["capabilities"] == {"drop": ["ALL"]}
    assert own["readOnlyRootFilesystem"] is True
    assert pod["automountServiceAccountToken"] is False
    assert not {"hostNetwork", "hostPID", "hostIPC"} & pod.keys()
    assert all(volume.keys() == {"name", "emptyDir"} for volume in pod["volumes"])


def test_what_the_program_writes_lies_on_a_volume() -> None:
    job = job_manifest(*two_nodes())
    mounted = {one["mountPath"] for one in container_of(job)["volumeMounts"]}
    assert mounted == {SCRATCH, "/dev/shm"}
    for name in ("HOME", "TMPDIR"):
        assert env_of(job)[name].startswith(SCRATCH)


def test_the_program_gets_its_threads() -> None:
    assert env_of(job_manifest(*two_nodes()))["OMP_NUM_THREADS"] == "2"


def test_a_verdict_of_the_program_or_a_lost_pod_ends_the_whole_job() -> None:
    spec = job_manifest(*two_nodes())["spec"]
    codes, taken = spec["podFailurePolicy"]["rules"]
    assert set(codes["onExitCodes"]["values"]) == VERDICTS
    assert codes["onExitCodes"]["containerName"] == container_of({"spec": spec})["name"]
    assert taken["onPodConditions"] == [{"type": "DisruptionTarget", "status": "True"}]
    assert {codes["action"], taken["action"]} == {"FailJob"}
    assert (spec["backoffLimit"], spec["podReplacementPolicy"]) == (0, "Failed")


def test_only_a_training_takes_gpus_and_one_for_each_process() -> None:
    spec = spec_of({"gpus_per_node": 4, "nodes": 2}, processes=8)
    order = job_order(spec, SMALL, "train")
    halved = dataclasses.replace(order, world=order.world.model_copy(update={"procs": 2}))
    limits = {
        "train": container_of(job_manifest(order, SMALL))["resources"]["limits"],
        "halved": container_of(job_manifest(halved, SMALL))["resources"]["limits"],
        "score": container_of(job_manifest(job_order(spec, SMALL, "score"), SMALL))["resources"][
            "limits"
        ],
    }
    assert {name: held.get("nvidia.com/gpu") for name, held in limits.items()} == {
        "train": "4",
        "halved": "2",
        "score": None,
    }


def test_pods_of_several_nodes_find_each_other_by_name() -> None:
    order, cluster = two_nodes()
    service, job = manifests(order, cluster)
    name = service["metadata"]["name"]
    assert name == job["metadata"]["name"] == pod_of(job)["subdomain"] == order.name
    assert service["spec"]["publishNotReadyAddresses"] is True
    arguments = container_of(job)["args"]
    said = dict(zip(arguments[::2], arguments[1::2], strict=True))
    assert said["--rendezvous"] == f"{name}-0.{name}:{service['spec']['ports'][0]['port']}"
    assert said["--address"] == f"{name}-$(JOB_COMPLETION_INDEX).{name}"


@pytest.mark.parametrize("case", [one_pod_score, two_nodes])
def test_the_program_of_a_pod_takes_its_arguments(case: Any) -> None:
    container = container_of(job_manifest(*case()))
    python, *program = container["command"]
    assert python == "python"
    arguments = ["nowhere" if one.startswith("s3://") else one for one in container["args"]]
    given = [sys.executable, *program, *arguments]
    done = subprocess.run(given, capture_output=True, text=True)
    assert done.returncode == EXIT_BAD_REQUEST, done.stderr  # wrong usage would be 2
    assert "names no bucket" in done.stderr


def test_the_service_goes_with_its_job() -> None:
    order, cluster = two_nodes()
    service = service_manifest(order, cluster, "uid-of-the-job")
    kubernetes_validate.validate(service, KUBERNETES[0], strict=True)
    (owner,) = service["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["name"], owner["uid"]) == ("Job", order.name, "uid-of-the-job")
    assert "ownerReferences" not in service_manifest(order, cluster)["metadata"]


def test_a_queue_holds_the_job_back_until_it_is_admitted() -> None:
    queued, free = job_manifest(*many_nodes()), job_manifest(*two_nodes())
    assert (queued["spec"]["suspend"], free["spec"]["suspend"]) == (True, False)
    assert queued["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] == "team-a"
    assert queued["metadata"]["labels"]["kueue.x-k8s.io/priority-class"] == "urgent"
    assert not any("kueue" in label for label in free["metadata"]["labels"])


@pytest.mark.parametrize("verb", ["train", "sanity", "score"])
def test_what_a_spec_on_spot_runs_goes_to_the_nodes_that_are_taken_away(verb: Verb) -> None:
    pod = pod_of(job_manifest(job_order(whole_spec(), WHOLE, verb), WHOLE))
    assert pod["nodeSelector"]["cloud.example/spot"] == "true"
    assert [one["key"] for one in pod["tolerations"]] == ["nvidia.com/gpu", "cloud.example/spot"]
    plain = spec_of(MANY, processes=2048)
    pod = pod_of(job_manifest(job_order(plain, WHOLE, verb), WHOLE))
    assert "cloud.example/spot" not in pod["nodeSelector"]
    assert [one["key"] for one in pod["tolerations"]] == ["nvidia.com/gpu"]


@pytest.mark.parametrize("verb", ["sanity", "score"])
@pytest.mark.parametrize("settings", [SMALL, WHOLE])
def test_without_a_queue_what_goes_with_a_training_on_spot_stays_on_the_ordinary_nodes(
    verb: Verb, settings: Cluster
) -> None:
    on_spot, plain = spec_of({"nodes": 2}, spot=SPOT), spec_of({"nodes": 2})
    made, ordinary = (job_order(spec, settings, verb) for spec in (on_spot, plain))
    assert job_manifest(made, settings) == job_manifest(ordinary, settings)


def test_spot_is_refused_where_nothing_says_which_nodes_those_are() -> None:
    spec = spec_of({"nodes": 2}, spot=SPOT)
    with pytest.raises(SettingsError, match="ML_ASSETS_SPOT_SELECTOR"):
        job_manifest(job_order(spec, SMALL, "train"), SMALL)
    queued = spec_of({"nodes": 2, "queue": "spot"}, spot=SPOT)
    assert job_manifest(job_order(queued, SMALL, "train"), SMALL)["spec"]["suspend"] is True


def test_an_attempt_that_cannot_be_is_refused() -> None:
    spec = spec_of({"nodes": 2})
    for verb, nodes in (("train", 3), ("train", 0), ("score", 2)):
        with pytest.raises(SpecError, match=f"never runs on {nodes} nodes"):
            job_order(spec, SMALL, verb, nodes)
    with pytest.raises(SpecError, match="no attempt 0"):
        job_order(spec, SMALL, "train", attempt=0)
    assert job_order(spec, SMALL, "train", 1).world.processes == 1
