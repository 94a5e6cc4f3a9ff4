"""Through the launcher: what cannot run is one clear message, and nothing is left of it."""

from dataclasses import replace

import pytest

from ml_assets.errors import ClusterRefused, DoesNotFit, TrainingFailed
from ml_assets.launch.kubernetes import starting
from ml_assets.launch.kubernetes.api import KubernetesApi
from ml_assets.launch.kubernetes.launcher import KubernetesLauncher
from ml_assets.launch.kubernetes.names import REQUEST_ANNOTATION, job_name, selector_of
from ml_assets.launch.kubernetes.rights import NEEDED
from ml_assets.launch.session_name import train_session
from ml_assets.spec.cluster import ClusterSpec
from ml_assets.spec.training import Mlp
from ml_assets.store.embedded.trust import given_keys
from ml_assets_tests.launch.kubernetes.stage import URI, Stage
from ml_assets_tests.servers.kubernetes.sample_jobs import job as sample_job
from ml_assets_tests.servers.s3 import s3_server

SMALL = ClusterSpec(nodes=2, cpu="100m", memory="2Gi", unschedulable_minutes=60)


@pytest.fixture
def stage(tmp_path, cluster, monkeypatch):
    with s3_server(monkeypatch) as store:
        for cause in starting.PATIENCE:  # how long is another test's business
            monkeypatch.setitem(starting.PATIENCE, cause, 0.0)
        yield Stage(tmp_path / "home", cluster, store)


@pytest.fixture
def refused(stage):
    """The one message of a training that cannot run, with nothing left of it."""

    def refused(error, *, cluster=SMALL, api=None, left=(), **settings):
        launcher = KubernetesLauncher(
            stage.objects, replace(stage.settings, **settings), given_keys, api=api or stage.api()
        )
        with pytest.raises(error) as told:
            launcher.train(stage.job(cluster=cluster), lambda event: None)
        assert stage.left() == list(left)
        return str(told.value)

    return refused


def test_a_secret_that_is_not_there_is_named(refused):
    told = refused(TrainingFailed, secret="keys-of-nobody")
    assert 'secret "keys-of-nobody" not found' in told
    assert "What to do: Create what is named" in told


def test_a_network_that_cannot_fit_its_pods_is_refused_before_one_is_made(stage):
    model = Mlp(family="mlp", width=32768, depth=2)  # 2^30 weights, on two pods
    job = replace(stage.job(cluster=SMALL), model=model)
    with pytest.raises(DoesNotFit) as told:
        stage.launcher().train(job, lambda event: None)
    assert "each process needs at least " in str(told.value)
    assert "parameters x 4 numbers x 4 bytes / 2 processes = " in str(told.value)
    assert "a pod (cluster.memory: 2Gi) has 2.15 GB" in str(told.value)
    assert stage.cluster.server.calls.of("create", "jobs") == []


def test_a_cache_without_room_on_the_fewest_nodes_is_refused_before_a_pod_is_made(stage):
    blocks = {"order": "blocks", "block_rows": 12, "block_window": 2}
    cache = str(8 * 12 * 8)  # eight blocks of rows of a number and a label
    job = stage.job(
        cluster=SMALL.model_copy(update={"data_cache": cache, "min_nodes": 1}), **blocks
    )
    with pytest.raises(DoesNotFit, match=r"the fewest that cluster\.min_nodes allows, a process"):
        stage.launcher().train(job, lambda event: None)
    assert stage.cluster.server.calls.of("create", "jobs") == []


def test_verbs_that_are_missing_are_named_before_anything_is_begun(stage, refused, tmp_path):
    server = stage.cluster.server
    for allowed, missing in (NEEDED[::2], NEEDED[1::2]), (NEEDED[1::2], NEEDED[::2]):
        rules = [
            {"apiGroups": [right.group], "resources": [right.resource], "verbs": [right.verb]}
            for right in allowed
        ]
        token = server.access.token("trainer", rules=rules, namespace=server.namespace)
        few = server.write_kubeconfig(tmp_path / "few", token=token)
        api = KubernetesApi(server.namespace, environment={"KUBECONFIG": str(few)})
        told = refused(ClusterRefused, api=api)
        named = ", ".join(str(right) for right in missing)
        assert f"does not allow us to {named} in namespace {server.namespace};" in told
        assert "bind the Role training-launcher" in told
    assert server.calls.of("create", "jobs") == []
    assert stage.objects.place.folders("sessions/") == [], "no attempt was begun"


def test_who_may_not_even_ask_is_told_by_the_call_itself(stage, refused):
    faults = stage.cluster.server.faults
    faults.refuse(403, times=len(NEEDED), verb="create", resource="selfsubjectaccessreviews")
    faults.refuse(403, times=9, verb="create", resource="jobs")
    assert "refused to create Job" in refused(ClusterRefused)


def test_the_same_training_for_another_store_is_left_alone(stage, refused):
    job = stage.job(cluster=SMALL)
    name = job_name(train_session(job), 1)
    labels = dict(pair.split("=") for pair in selector_of(train_session(job)).split(","))
    other = sample_job(stage.cluster, "pass", name=name, suspend=True)
    other["metadata"]["labels"] = labels
    other["metadata"]["annotations"] = {REQUEST_ANNOTATION: "s3://elsewhere/request.json"}
    stage.cluster.server.apply(other)
    told = refused(ClusterRefused, left=[f"job {name}"])
    assert "another store" in told and "s3://elsewhere/request.json" in told
    assert f"below {URI}/" in told
