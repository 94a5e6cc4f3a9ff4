"""The Roles grant what is called, and no more: held to calls on a server that enforces them."""

import contextlib
import inspect
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
import yaml
from dagster._core.launcher import LaunchRunContext
from dagster._core.test_utils import create_run_for_test
from kubernetes.client import ApiException

from ml_assets.errors import MlAssetsError
from ml_assets.launch.kubernetes.api import KubernetesApi
from ml_assets.launch.kubernetes.rights import NEEDED
from ml_assets_tests.deploy import rules
from ml_assets_tests.servers.kubernetes import ApiServer
from ml_assets_tests.servers.kubernetes.resources import JOBS

DEPLOY = Path(__file__).parents[2] / "deploy"
ROLES = {
    one["metadata"]["name"]: one["rules"]
    for one in yaml.safe_load_all((DEPLOY / "base" / "roles.yaml").read_text())
    if one["kind"] == "Role"
}
OF_EVERYBODY = {("authorization.k8s.io", "selfsubjectaccessreviews", "create")}
"""Kubernetes lets every user ask what they may (``system:basic-user``)."""
LABELS = {"role": "test"}
SELECTOR = "role=test"
STUBBORN = "import signal, time; signal.signal(15, signal.SIG_IGN); print('up'); time.sleep(600)"


@pytest.fixture
def server() -> Iterator[ApiServer]:
    with ApiServer() as server:
        yield server


def kubeconfig(server: ApiServer, role: str, folder: Path) -> Path:
    """Of somebody who is bound to the Role, in its namespace, and to nothing else."""
    token = server.access.token("me", rules=ROLES[role], namespace=server.namespace)
    return server.write_kubeconfig(folder / role, token=token)


def granted(role: str) -> set[tuple[str, str, str]]:
    return {
        (group, resource, verb)
        for rule in ROLES[role]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


def called(server: ApiServer) -> set[tuple[str, str, str]]:
    refused = [call for call in server.calls if call.code == 403]
    assert [call for call in refused if call.resource != "nodes"] == [], "a node only explains"
    return server.calls.rules()


# --- our own launcher -----------------------------------------------------------------------------


class Everything:
    """Every public method of the client once; what it was not asked is an error of the test."""

    def __init__(self, api: KubernetesApi) -> None:
        self.api = api
        public = inspect.getmembers(KubernetesApi, inspect.isfunction)
        self.left = {name for name, _ in public if not name.startswith("_")}

    def ask(self, name: str, *arguments: Any, **named: Any) -> Any:
        self.left.discard(name)
        return getattr(self.api, name)(*arguments, **named)


def test_the_launcher_may_do_what_it_does_and_no_more(server: ApiServer, tmp_path: Path) -> None:
    environment = {"KUBECONFIG": str(kubeconfig(server, "training-launcher", tmp_path))}
    every = Everything(KubernetesApi(server.namespace, 20, environment))
    job = every.ask("create_job", a_job("one"))
    every.ask("create_service", a_service())
    every.ask("job", "one")
    every.ask("jobs", SELECTOR)
    every.ask("all_of", "services", SELECTOR)
    for kind in ("jobs", "pods"):
        page = every.ask("page", kind, SELECTOR)
        every.ask("stream", kind, SELECTOR, page.version, 1, 5.0).close()
    (pod,) = running(every)
    every.ask("log", pod.name).close()
    every.ask("tail", pod.name, 5)
    every.ask("cluster_events", job.uid)
    every.ask("queue_word", job, "nowhere")
    assert every.ask("node_type", "node-1") is None, "it explains, and is not granted"
    every.ask("delete_pod", pod.name)
    every.ask("delete", SELECTOR, within=1.0)  # by force: the pod takes no notice of TERM
    every.ask("require_rights")

    assert every.left == set()
    asked = called(server) - OF_EVERYBODY - {("", "nodes", "get")}
    assert asked == granted("training-launcher")
    assert {(one.group, one.resource, one.verb) for one in NEEDED} <= granted("training-launcher")


def running(every: Everything) -> Any:
    """The pods, once one has said that it is up."""
    while True:
        pods = every.ask("pods", SELECTOR)
        if pods and "up" in every.ask("tail", pods[0].name, 5):
            return pods


def test_without_a_verb_the_launcher_is_told_so(server: ApiServer, tmp_path: Path) -> None:
    """The server does enforce what it is given: a Role that lacks a verb is seen."""
    fewer = [rule for rule in ROLES["training-launcher"] if rule["resources"] != ["services"]]
    token = server.access.token("me", rules=fewer, namespace=server.namespace)
    path = server.write_kubeconfig(tmp_path / "fewer", token=token)
    api = KubernetesApi(server.namespace, 20, {"KUBECONFIG": str(path)})
    with pytest.raises(MlAssetsError, match="services"):
        api.create_service(a_service())


def a_job(name: str) -> dict[str, Any]:
    container = {"name": "main", "image": "i", "command": ["python", "-uc", STUBBORN]}
    pod = {
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": 600,
        "containers": [container],
    }
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "labels": LABELS},
        "spec": {
            "completionMode": "Indexed",
            "completions": 1,
            "parallelism": 1,
            "backoffLimit": 0,
            "template": {"metadata": {"labels": LABELS}, "spec": pod},
        },
    }


def a_service() -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "one", "labels": LABELS},
        "spec": {"clusterIP": "None", "selector": LABELS, "ports": [{"port": 29500}]},
    }


# --- Dagster's own --------------------------------------------------------------------------------


@dg.op
def nothing() -> None: ...


@dg.job
def a_run() -> None:
    nothing()


@pytest.fixture
def instance(
    server: ApiServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[dg.DagsterInstance]:
    """Launches runs as the production dagster.yaml says, but from outside the cluster."""
    pytest.importorskip("dagster_k8s", reason="pip install '.[cluster]'")
    monkeypatch.setenv("ML_ASSETS_NAMESPACE", server.namespace)
    launcher = yaml.safe_load((DEPLOY / "dagster" / "dagster.yaml").read_text())["run_launcher"]
    outside = {
        "job_image": "registry.example.com/ml-assets/orchestrator@sha256:" + "0" * 64,
        "load_incluster_config": False,
        "kubeconfig_file": str(kubeconfig(server, "run-launcher", tmp_path)),
    }
    launcher["config"].update(outside)
    account = {"apiVersion": "v1", "kind": "ServiceAccount"}
    server.apply({**account, "metadata": {"name": "ml-assets-orchestrator"}})
    server.cordon("node-1")  # the run need not begin
    with dg.instance_for_test(overrides={"run_launcher": launcher}) as instance:
        yield instance


def test_dagster_may_launch_follow_and_stop_runs_and_steps(
    server: ApiServer, instance: dg.DagsterInstance
) -> None:
    launcher = instance.run_launcher
    run = launched(instance)
    (pod,) = server.pods()
    api = launcher._api_client  # pyright: ignore[reportAttributeAccessIssue]  the executor's too
    assert launcher.check_run_worker_health(run).status.value == "RUNNING"
    assert launcher.get_run_worker_debug_info(run)
    with contextlib.suppress(ApiException):  # it waits to start: asked all the same
        api.retrieve_pod_logs(pod["metadata"]["name"], server.namespace)
    assert launcher.terminate(run.run_id)

    assert called(server) == granted("run-launcher")


def test_the_pod_of_a_run_is_as_the_namespace_wants_it(
    server: ApiServer, instance: dg.DagsterInstance
) -> None:
    launched(instance)
    (job,) = server.store.all(JOBS, server.namespace)
    pod = job["spec"]["template"]
    assert job["spec"]["backoffLimit"] == 0
    limits = yaml.safe_load_all((DEPLOY / "base" / "quota.yaml").read_text())
    for rule in (rules.not_restricted, rules.unpinned, rules.unbounded, rules.cramped):
        assert rule([job, *limits]) == []
    assert pod["metadata"]["labels"]["ml-assets.io/part"] == "run"
    assert pod["spec"]["serviceAccountName"] == "ml-assets-orchestrator"
    names = [
        next(iter(source.values()))["name"] for source in pod["spec"]["containers"][0]["envFrom"]
    ]
    assert names == ["ml-assets-settings", "ml-assets-orchestrator"]
    pytest.importorskip("kubernetes_validate").validate(without_status(job), "1.34", strict=True)


MINE: dict[str, dict[str, Any]] = {
    "image": {"container_config": {"image": "registry.example.com/mine"}},
    "command": {"container_config": {"command": ["sh"]}},
    "variable": {"container_config": {"env": [{"name": "ML_ASSETS_SOURCES", "value": "/mine"}]}},
    "account": {"pod_spec_config": {"service_account_name": "mine"}},
    "mount": {"container_config": {"volume_mounts": [{"name": "m", "mountPath": "/m"}]}},
}


def test_a_run_says_nothing_about_its_pod_but_what_it_needs(
    server: ApiServer, instance: dg.DagsterInstance
) -> None:
    """A tag of a launch that would have another program, or another environment, decide."""
    for mine in MINE.values():
        with pytest.raises(Exception, match="violated the allowed list"):
            launched(instance, {"dagster-k8s/config": json.dumps(mine)})
    assert server.store.all(JOBS, server.namespace) == []


def without_status(job: dict[str, Any]) -> dict[str, Any]:
    """What was sent, of what the server holds."""
    return {key: value for key, value in job.items() if key != "status"}


def launched(instance: dg.DagsterInstance, tags: dict[str, str] | None = None) -> dg.DagsterRun:
    origin = dg.reconstructable(a_run).get_python_origin()
    run = create_run_for_test(instance, "a_run", job_code_origin=origin, tags=tags)
    instance.run_launcher.launch_run(LaunchRunContext(dagster_run=run, workspace=None))
    found = instance.get_run_by_id(run.run_id)
    assert found is not None
    return found
