"""Whatever happens to a Job that runs is seen and told, and no broken watch hides it."""

import base64
import sys
from urllib.parse import urlsplit

import pytest
import yaml
from kubernetes.config import incluster_config

from ml_assets.launch.kubernetes import informer
from ml_assets.launch.kubernetes.api import KubernetesApi
from ml_assets.launch.kubernetes.informer import JobInformer
from ml_assets_tests.launch.kubernetes.api.claims import SELECTOR, ending, lost
from ml_assets_tests.servers.kubernetes.sample_jobs import SLEEP, Namespace, until

WATCHES = "a watch is broken, or told too late, at a moment that the test chooses"
NO_TOKEN = "a real token lasts ten minutes at least, and nobody can take it back"


@pytest.mark.parametrize(
    ("happens", "cause"),
    [
        (lambda server, pod: server.preempt(pod), "Preempted"),
        (lambda server, pod: server.drain(pod), "NodeLost"),
        (lambda server, pod: server.evict_for_pressure(pod), "Evicted"),
    ],
    ids=["preempted", "taint", "evicted"],
)
def test_a_pod_that_is_taken_away_is_seen_and_told(cluster, running, happens, cause):
    server = cluster.own_server("it takes a node's pods, which are of others, too")
    happens(server, running.now().pods[1].name)
    assert [pod.index for pod in lost(running)][:1] == [1]
    assert (ending(running).cause, ending(running).then) == (cause, "lost")


def test_a_pod_that_is_evicted_is_seen_and_told(cluster, running):
    Namespace(cluster).evict(running.now().pods[1].name)
    assert [pod.index for pod in lost(running)][:1] == [1]
    assert ending(running).then == "lost"


def test_a_pod_that_runs_out_of_memory_is_seen_and_told(api, a_job):
    script = "import time; held = b'x' * (400 << 20); time.sleep(600)"
    api.create_job(a_job(script, container={"resources": {"limits": {"memory": "128Mi"}}}))
    with JobInformer(api, SELECTOR) as watch:
        until(lambda: any(pod.ended for pod in watch.now().pods))
        assert (ending(watch).cause, ending(watch).then) == ("OOMKilled", "again")


def test_a_plain_delete_is_seen_and_told(cluster, running):
    from kubernetes import client

    victim = running.now().pods[1]
    core = client.CoreV1Api(cluster.client())
    core.delete_namespaced_pod(victim.name, cluster.namespace)
    assert lost(running)[0].name == victim.name
    assert (ending(running).cause, ending(running).pod) == ("PodDeleted", victim.name)


def test_watches_that_end_and_versions_that_grow_old_hide_nothing(cluster, api, a_job):
    server = cluster.own_server(WATCHES)
    api.create_job(a_job(SLEEP))  # a pod that takes its whole grace to end: the next look sees it
    with JobInformer(api, SELECTOR) as watch:
        until(lambda: any(pod.phase == "Running" for pod in watch.now().pods))
        server.faults.expire_watch(times=2)
        server.faults.drop_watches()
        server.store.compact()
        server.preempt(watch.now().pods[0].name)
        assert lost(watch)[0].disrupted.reason == "PreemptionByScheduler"


@pytest.mark.parametrize(
    "slow",
    [
        lambda faults: faults.delay(0.1, times=8, verb="watch"),
        lambda faults: faults.stall_watch(times=4),
    ],
    ids=["late", "stalled"],
)
def test_watches_that_come_late_or_say_nothing_hide_nothing(cluster, api, a_job, monkeypatch, slow):
    monkeypatch.setattr(informer, "SILENCE_SECONDS", 0.5)
    server = cluster.own_server(WATCHES)
    slow(server.faults)
    api.create_job(a_job())
    with JobInformer(api, SELECTOR) as watch:
        until(lambda: any(pod.phase == "Running" for pod in watch.now().pods))
        server.preempt(watch.now().pods[0].name)
        assert lost(watch)[0].index == 0


def test_an_api_that_is_down_for_a_while_hides_nothing(cluster, running):
    server = cluster.own_server("its API is down for a while")
    with server.faults.api_down():
        server.preempt(running.now().pods[0].name)
        running.wait(0.5)  # what was on its way may still come; what happens now does not
        seen = running.now().pods
        assert len(seen) == 2 and not any(pod.disrupted for pod in seen)
    assert lost(running)[0].disrupted is not None


def test_a_token_that_expires_is_read_again_and_nothing_is_lost(cluster, a_job, tmp_path):
    server = cluster.own_server(NO_TOKEN)
    old, new = server.access.token("worker"), server.access.token("worker")
    file = server.write_kubeconfig(tmp_path / "worker", token=old)
    api = KubernetesApi(cluster.namespace, 30.0, {"KUBECONFIG": str(file)})
    api.create_job(a_job())
    with JobInformer(api, SELECTOR) as watch:
        server.write_kubeconfig(tmp_path / "worker", token=new)
        server.access.revoke(old)
        server.faults.drop_watches()
        until(lambda: any(pod.phase == "Running" for pod in watch.now().pods))
        server.preempt(watch.now().pods[0].name)
        assert lost(watch)
    api.delete(SELECTOR, 30)


def as_a_pod(cluster, file, monkeypatch):
    """The token of a service account, which Kubernetes writes anew before it expires."""
    config = yaml.safe_load(cluster.kubeconfig.read_text())["clusters"][0]["cluster"]
    authority = file.with_name("ca.crt")
    authority.write_bytes(base64.b64decode(config["certificate-authority-data"]))
    address = urlsplit(config["server"])
    where = {"KUBERNETES_SERVICE_HOST": address.hostname, "KUBERNETES_SERVICE_PORT": address.port}
    for name, value in where.items():
        monkeypatch.setenv(name, str(value))
    monkeypatch.setattr(incluster_config, "SERVICE_TOKEN_FILENAME", str(file))
    monkeypatch.setattr(incluster_config, "SERVICE_CERT_FILENAME", str(authority))
    return where


def with_a_plugin(cluster, file, _):
    """A program that gets one, as those of the clouds do: it is run again."""
    version = "client.authentication.k8s.io/v1"
    program = (
        "import json, pathlib, sys; print(json.dumps({'kind': 'ExecCredential', 'apiVersion':"
        " sys.argv[2], 'status': {'token': pathlib.Path(sys.argv[1]).read_text()}}))"
    )
    run = {"apiVersion": version, "interactiveMode": "Never", "command": sys.executable}
    config = yaml.safe_load(cluster.kubeconfig.read_text())
    config["users"][0]["user"] = {"exec": {**run, "args": ["-c", program, str(file), version]}}
    kubeconfig = file.with_name("with-a-plugin")
    kubeconfig.write_text(yaml.safe_dump(config))
    return {"KUBECONFIG": str(kubeconfig)}


@pytest.mark.parametrize("configured", [as_a_pod, with_a_plugin])
def test_whoever_makes_tokens_is_asked_for_another_when_one_expires(
    cluster, tmp_path, monkeypatch, configured
):
    access, file = cluster.own_server(NO_TOKEN).access, tmp_path / "token"
    old, new = access.token("worker"), access.token("worker")
    file.write_text(old)
    api = KubernetesApi(cluster.namespace, 30.0, configured(cluster, file, monkeypatch))
    assert api.jobs(SELECTOR) == []
    file.write_text(new)
    access.revoke(old)
    assert api.jobs(SELECTOR) == []


def test_a_watch_ends_at_once_when_nobody_follows_any_more(api, a_job):
    api.create_job(a_job())
    with JobInformer(api, SELECTOR) as watch:
        threads = list(watch._threads)
    assert not any(thread.is_alive() for thread in threads)
