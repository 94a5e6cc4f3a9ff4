"""What the API server refuses or cannot start: one message, quickly, and nothing is left."""

import pytest
import yaml

from ml_assets.errors import ClusterAway, ClusterRefused
from ml_assets.launch.failure import Ending
from ml_assets.launch.kubernetes.api import KubernetesApi
from ml_assets.launch.kubernetes.informer import JobInformer
from ml_assets.launch.kubernetes.starting import StartUp, Stuck
from ml_assets_tests.launch.kubernetes.api.claims import SELECTOR, ending, left, lost
from ml_assets_tests.servers.kubernetes.sample_jobs import Namespace, until

QUEUES = "it needs Kueue with a queue to give and take, which is of the whole cluster"


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
