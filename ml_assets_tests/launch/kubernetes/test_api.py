"""The real client against the tests' API server: what is asked, what is refused, what is left."""

import base64
import sys
from urllib.parse import urlsplit

import pytest
import yaml
from kubernetes.config import incluster_config

from ml_assets.errors import ClusterAway, ClusterRefused
from ml_assets.launch.failure import Ending
from ml_assets.launch.kubernetes import informer
from ml_assets.launch.kubernetes.api import KubernetesApi
from ml_assets.launch.kubernetes.diagnosis import PodObservations, diagnose
from ml_assets.launch.kubernetes.informer import JobInformer
from ml_assets.launch.kubernetes.starting import StartUp, Stuck
from ml_assets_tests.servers.kubernetes.sample_jobs import OBEDIENT, SLEEP, Namespace, job, until

SELECTOR = "claim=claim"
LABELS = {"claim": "claim"}
CUT_OFF = "the answer is cut off behind a call that was done, or before one that was not"
QUEUES = "it needs Kueue with a queue to give and take, which is of the whole cluster"
WATCHES = "a watch is broken, or told too late, at a moment that the test chooses"
NO_TOKEN = "a real token lasts ten minutes at least, and nobody can take it back"


@pytest.fixture
def api(cluster):
    return KubernetesApi(cluster.namespace, 30.0, {"KUBECONFIG": str(cluster.kubeconfig)})


@pytest.fixture
def a_job(cluster):
    """A Job of one pod that sleeps; its container and its spec may be changed."""

    def a_job(script=OBEDIENT, **how):
        return job(cluster, script, **how)

    return a_job


def left(api):
    return [*api.jobs(SELECTOR), *api.pods(SELECTOR)]


# --- once -----------------------------------------------------------------------------------------


def test_a_job_is_created_once_and_found_by_the_next(api, a_job):
    first, second = api.create_job(a_job()), api.create_job(a_job())
    assert first.uid == second.uid
    assert api.job("claim").uid == first.uid and api.job("other") is None


@pytest.mark.parametrize("code", [429, 500, 503])
def test_a_create_gets_through_a_busy_server(cluster, api, a_job, code):
    server = cluster.own_server("a real API server is not busy when a test wants it")
    server.faults.refuse(code, times=2, verb="create", resource="jobs")
    assert api.create_job(a_job()).name == "claim"


def test_a_create_whose_answer_was_cut_off_is_found_not_repeated(cluster, api, a_job):
    server = cluster.own_server(CUT_OFF)
    server.faults.reset(verb="create", resource="jobs", after=True)
    assert api.create_job(a_job()).name == "claim"
    calls = server.calls
    assert len(calls.of("create", "jobs")) == 1 and calls.of("get", "jobs")


def test_a_create_that_was_cut_off_before_is_repeated(cluster, api, a_job):
    cluster.own_server(CUT_OFF).faults.reset(verb="create", resource="jobs")
    assert api.create_job(a_job()).name == "claim"
    assert len(api.jobs(SELECTOR)) == 1


def test_a_service_that_is_there_is_ours(api):
    service = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "claim", "labels": LABELS},
        "spec": {"clusterIP": "None", "selector": LABELS, "ports": [{"port": 29500}]},
    }
    api.create_service(service)
    api.create_service(service)
    api.delete(SELECTOR, 20)


# --- bad input: one message, quickly, nothing left ------------------------------------------------


def test_a_forbidden_verb_is_named_and_nothing_is_made(cluster, api, a_job, tmp_path):
    rules = [{"apiGroups": ["batch"], "resources": ["jobs"], "verbs": ["get", "list", "watch"]}]
    theirs, _ = cluster.account("reader", rules, tmp_path / "reader")
    reader = KubernetesApi(cluster.namespace, 30.0, {"KUBECONFIG": str(theirs.kubeconfig)})
    with pytest.raises(ClusterRefused, match=r'reader.*cannot create resource "jobs".*Bind the'):
        reader.create_job(a_job())
    assert left(api) == []


def test_a_refused_create_is_asked_once(cluster, api, a_job):
    server = cluster.own_server("it counts the calls that reach the server")
    server.faults.refuse(403, times=2, verb="create", resource="jobs")
    with pytest.raises(ClusterRefused):
        api.create_job(a_job())
    assert len(server.calls.of("create", "jobs")) == 1


def test_a_missing_namespace_is_named(cluster, a_job):
    elsewhere = KubernetesApi("nowhere", 30.0, {"KUBECONFIG": str(cluster.kubeconfig)})
    with pytest.raises(
        ClusterRefused, match=r'namespaces "nowhere" not found.*ML_ASSETS_NAMESPACE'
    ):
        elsewhere.create_job(a_job())


def test_a_job_that_is_not_valid_is_told_with_the_field(api, a_job):
    wrong = a_job(template={"restartPolicy": "Always"})
    with pytest.raises(ClusterRefused, match=r"is not valid.*restartPolicy"):
        api.create_job(wrong)
    assert left(api) == []


def test_a_token_that_is_none_is_told(cluster, tmp_path):
    file = cluster.with_token("guessed", tmp_path / "wrong").kubeconfig
    with pytest.raises(ClusterRefused, match="token or certificate is missing"):
        KubernetesApi(cluster.namespace, 30.0, {"KUBECONFIG": str(file)}).jobs(SELECTOR)


def test_a_certificate_of_somebody_else_is_told(cluster, tmp_path):
    import certifi

    config = yaml.safe_load(cluster.kubeconfig.read_text())
    entry = config["clusters"][0]["cluster"]
    entry.pop("certificate-authority-data", None)
    entry["certificate-authority"] = certifi.where()
    file = tmp_path / "other-authority"
    file.write_text(yaml.safe_dump(config))
    with pytest.raises(ClusterRefused, match=r"certificate.*certificate-authority"):
        KubernetesApi(cluster.namespace, 30.0, {"KUBECONFIG": str(file)}).jobs(SELECTOR)


def test_a_server_that_is_not_there_is_told(cluster, tmp_path):
    config = yaml.safe_load(cluster.kubeconfig.read_text())
    config["clusters"][0]["cluster"]["server"] = "https://127.0.0.1:1"
    file = tmp_path / "nobody"
    file.write_text(yaml.safe_dump(config))
    nobody = KubernetesApi(cluster.namespace, 1.0, {"KUBECONFIG": str(file)})
    with pytest.raises(ClusterAway, match=r"127\.0\.0\.1:1 .*cannot be reached"):
        nobody.jobs(SELECTOR)


def refused_start(api, manifest, patience=0.0):
    """What an attempt that cannot start ends with, and that nothing is left of it then."""
    api.create_job(manifest)
    waited = Elapsed(patience)
    start = StartUp(api, 0.0, waited)
    with JobInformer(api, SELECTOR) as watch:

        def looked():
            seen = watch.now()
            waited.seconds += 10
            found = start.look(seen.jobs[0], seen.pods)
            # a real cluster pulls the image first, for as long as that takes
            done = isinstance(found, Ending) and found.cause != "NotStarted"
            return found if done else watch.wait(0.05) and None

        found = until(looked)
    api.delete(SELECTOR, 30)
    assert left(api) == []
    return found


class Elapsed:
    """Ten seconds pass between two looks: a person's patience is not tested here."""

    def __init__(self, seconds):
        self.seconds = seconds

    def __call__(self):
        return self.seconds


def test_an_image_that_cannot_be_pulled_is_told_in_the_kubelets_words(api, a_job):
    found = refused_start(api, a_job(container={"image": "registry.invalid/nope:1"}))
    assert (found.cause, found.then) == ("ImagePull", "stop")
    assert "registry.invalid/nope" in found.report("attempt 1")


def test_an_image_that_the_registry_does_not_have_is_told_in_its_words(cluster, api, a_job):
    server = cluster.own_server("it needs a registry that answers for an image of ours")
    server.images.failing["registry.test/nope"] = "registry.test/nope: not found"
    found = refused_start(api, a_job(container={"image": "registry.test/nope"}))
    assert (found.cause, found.then) == ("ImagePull", "stop")
    assert "registry.test/nope: not found" in found.report("attempt 1")


def test_a_missing_secret_is_named(api, a_job):
    source = [{"secretRef": {"name": "keys-of-nobody"}}]
    found = refused_start(api, a_job(container={"envFrom": source}))
    assert (found.cause, found.then) == ("CreateContainerConfigError", "stop")
    assert "keys-of-nobody" in found.report("attempt 1")


def test_a_quota_that_is_too_small_is_told_with_its_numbers(cluster, api, a_job):
    there = Namespace(cluster)
    quota = {"metadata": {"name": "team"}, "spec": {"hard": {"requests.cpu": "1"}}}
    there.core.create_namespaced_resource_quota(there.name, quota)
    until(lambda: there.quota_is_counted("team"))
    asked = {"requests": {"cpu": "4"}, "limits": {"cpu": "4"}}
    found = refused_start(api, a_job(container={"resources": asked}))
    assert (found.cause, found.then) == ("QuotaTooSmall", "stop")
    assert "exceeded quota: team" in found.words
    assert "limited: requests.cpu=1" in found.words
    assert "quota of the namespace is too small" in found.report("attempt 1")


def test_no_room_is_told_in_the_schedulers_words(api, a_job):
    asked = {"limits": {"nvidia.com/gpu": "64"}}
    found = refused_start(api, a_job(container={"resources": asked}))
    assert (found.cause, found.room) == ("Unschedulable", 0)
    assert "Insufficient nvidia.com/gpu" in found.words


def test_a_queue_that_is_not_there_is_named(api, a_job):
    manifest = a_job(suspend=True)
    manifest["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] = "flights"
    found = refused_start(api, manifest)
    assert (found.cause, found.then) == ("QueueMissing", "stop")
    assert "flights" in found.words
    assert "its Kueue queue is not there" in found.report("attempt 1")


def a_queue(name, **spec):
    return {
        "apiVersion": "kueue.x-k8s.io/v1beta1",
        "kind": "LocalQueue",
        "metadata": {"name": name},
        "spec": {"clusterQueue": "team", **spec},
    }


def test_a_queue_that_admits_nothing_now_is_waited_for_and_its_words_are_told(cluster, api, a_job):
    cluster.own_server(QUEUES).apply(a_queue("flights", stopPolicy="Hold"))
    manifest = a_job(suspend=True)
    manifest["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] = "flights"
    made = api.create_job(manifest)
    until(lambda: api.queue_word(made, "flights"))
    found = StartUp(api, 0.0).look(made, [])
    assert isinstance(found, Stuck) and found.cause == "Queued"
    assert found.words == "queue flights (LocalQueue flights is stopped)"


def test_a_job_whose_quota_kueue_takes_back_was_preempted(cluster, api, a_job):
    server = cluster.own_server(QUEUES)
    server.apply(a_queue("flights"))
    manifest = a_job(suspend=True)
    manifest["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] = "flights"
    api.create_job(manifest)
    with JobInformer(api, SELECTOR) as watch:
        until(lambda: any(pod.phase == "Running" for pod in watch.now().pods))
        server.kueue_preempt("claim")
        lost(watch)
        until(lambda: watch.now().jobs[0].suspended)
        assert (ending(watch).cause, ending(watch).then) == ("PreemptedByQueue", "lost")


# --- what happens to a Job that runs --------------------------------------------------------------


@pytest.fixture
def running(api, a_job):
    """A Job of two pods that run, and the watch that sees it."""
    api.create_job(a_job(pods=2))
    with JobInformer(api, SELECTOR) as watch:

        def both():
            pods = watch.now().pods
            return len(pods) == 2 and all(pod.phase == "Running" for pod in pods)

        until(both)
        yield watch


def lost(watch):
    return until(lambda: [pod for pod in watch.now().pods if pod.lost])


def ending(watch):
    seen = watch.now()
    return diagnose(PodObservations(next(iter(seen.jobs), None), seen.pods))


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


# --- what is left ---------------------------------------------------------------------------------


def test_a_deleted_job_leaves_nothing_and_its_pods_had_their_grace(cluster, api, running):
    api.delete(SELECTOR, 30)
    assert left(api) == []
    until(lambda: running.now().jobs == ())


def test_a_delete_of_nothing_is_fine(api):
    api.delete(SELECTOR, 5)


def test_a_delete_whose_answer_was_cut_off_is_finished(cluster, api, running):
    cluster.own_server(CUT_OFF).faults.reset(verb="delete", resource="jobs", after=True)
    api.delete(SELECTOR, 30)
    assert left(api) == []


def test_pods_that_will_not_end_are_deleted_by_force(api, a_job):
    deaf = "import signal, time\nsignal.signal(15, signal.SIG_IGN)\nprint('up', flush=True)\n"
    grace = {"terminationGracePeriodSeconds": 3600}
    api.create_job(a_job(deaf + "time.sleep(3600)", template=grace))
    until(lambda: any("up" in api.tail(pod.name, 5) for pod in api.pods(SELECTOR)))
    api.delete(SELECTOR, 2)
    assert left(api) == []


def test_an_explanation_that_we_may_not_read_is_no_error(cluster, a_job, tmp_path):
    rules = [{"apiGroups": ["batch"], "resources": ["jobs"], "verbs": ["get", "create"]}]
    theirs, _ = cluster.account("few", rules, tmp_path / "few")
    few = KubernetesApi(cluster.namespace, 30.0, {"KUBECONFIG": str(theirs.kubeconfig)})
    made = few.create_job(a_job())
    assert (few.tail("any", 5), few.cluster_events(made.uid)) == ("", ())
    assert few.queue_word(made, "q") is None


def test_an_explanation_that_the_server_cannot_give_now_is_no_error(cluster, api, a_job):
    server = cluster.own_server("a real API server is not busy when a test wants it")
    made = api.create_job(a_job())
    server.faults.refuse(503, verb="list", resource="events")
    assert api.cluster_events(made.uid) == ()


def test_the_end_of_a_log_is_read_and_none_is_none(api, a_job):
    api.create_job(a_job("print('one'); print('two'); print('three')"))
    until(lambda: [pod for pod in api.pods(SELECTOR) if pod.phase == "Succeeded"])
    assert api.tail(api.pods(SELECTOR)[0].name, 2) == "two\nthree\n"
    assert api.tail("nobody", 2) == ""
