"""What only the tests' own API server can do: planned faults, a clock to move, its record."""

import threading
import time

import psutil
import pytest
import urllib3
from kubernetes import client, watch
from kubernetes.client import ApiException

from ml_assets_tests.servers.kubernetes import ApiServer
from ml_assets_tests.servers.kubernetes.cluster import TestCluster
from ml_assets_tests.servers.kubernetes.sample_jobs import (
    OBEDIENT,
    SLEEP,
    Namespace,
    after,
    condition,
    ended,
    has,
    is_running,
    job,
    until,
)


@pytest.fixture
def server(cluster: TestCluster) -> ApiServer:
    return cluster.server


@pytest.fixture
def there(server, cluster: TestCluster) -> Namespace:
    return Namespace(cluster, retries=False)


def alive(pid):
    """Whether a process runs; one that has ended and that nobody has waited for does not."""
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def jobs(there):
    return there.batch.list_namespaced_job(there.name)


# --- answers --------------------------------------------------------------------------------------


@pytest.mark.parametrize("code", [409, 410, 429, 500, 503])
def test_the_next_call_that_fits_is_refused_and_the_one_after_is_not(server, there, code):
    server.faults.refuse(code, verb="list", resource="jobs")
    assert there.pods() == []
    with pytest.raises(ApiException) as refused:
        jobs(there)
    assert refused.value.status == code
    assert ("Retry-After" in refused.value.headers) == (code in (429, 503))
    assert jobs(there).items == []


def test_a_reset_comes_before_or_after_the_call_was_carried_out(server, cluster, there):
    server.faults.reset(verb="create")
    with pytest.raises(urllib3.exceptions.HTTPError):
        there.create(job(cluster, "pass", suspend=True))
    assert jobs(there).items == []

    server.faults.reset(verb="create", after=True)
    with pytest.raises(urllib3.exceptions.HTTPError):
        there.create(job(cluster, "pass", suspend=True))
    assert len(jobs(there).items) == 1


def test_an_api_that_is_down_answers_nobody_and_its_jobs_run_on(server, cluster, there):
    there.create(job(cluster, OBEDIENT))
    until(lambda: there.is_up(0))
    (process,) = server.processes(there.pod(0).metadata.name)
    cut = []

    def follow():
        try:
            for _ in watch.Watch().stream(
                there.core.list_namespaced_pod, there.name, timeout_seconds=60
            ):
                pass
        except urllib3.exceptions.HTTPError as error:
            cut.append(error)

    calls = len(server.calls)
    watcher = threading.Thread(target=follow)
    watcher.start()
    until(lambda: len(server.calls) > calls)

    with server.faults.api_down():
        watcher.join(60)
        for _ in range(2):
            with pytest.raises(urllib3.exceptions.HTTPError):
                jobs(there)
        assert alive(process)
    assert not watcher.is_alive() and cut
    assert jobs(there).items[0].status.active == 1


def test_a_late_answer_comes(server, there):
    server.faults.delay(0.2, verb="list")
    start = time.monotonic()
    assert jobs(there).items == []
    assert time.monotonic() - start >= 0.2


# --- watches --------------------------------------------------------------------------------------


def test_an_expired_watch_says_410_in_its_stream(server, there):
    server.faults.expire_watch()
    with pytest.raises(ApiException) as refused:
        for _ in watch.Watch().stream(
            there.batch.list_namespaced_job, there.name, resource_version="1", timeout_seconds=5
        ):
            pass
    assert refused.value.status == 410


def test_after_compaction_old_versions_and_pages_are_gone(server, cluster, there):
    for name in ("a", "b"):
        there.create(job(cluster, "pass", name=name, suspend=True))
    page = there.batch.list_namespaced_job(there.name, limit=1)
    there.create(job(cluster, "pass", name="c", suspend=True))
    server.store.compact()

    with pytest.raises(ApiException) as paged:
        there.batch.list_namespaced_job(there.name, _continue=page.metadata._continue)
    assert paged.value.status == 410
    version = page.metadata.resource_version
    with pytest.raises(ApiException) as watched:
        for _ in watch.Watch().stream(
            there.batch.list_namespaced_job, there.name, resource_version=version, timeout_seconds=5
        ):
            pass
    assert watched.value.status == 410


def lines_of(there, **asked):
    """What a raw watch of the Jobs sends until it ends."""
    answer = there.batch.list_namespaced_job(
        there.name, watch=True, _preload_content=False, **asked
    )
    return b"".join(answer.stream())


def test_a_stalled_watch_says_nothing_until_its_time_is_over(server, cluster, there):
    there.create(job(cluster, "pass", suspend=True))
    server.faults.stall_watch()
    assert lines_of(there, timeout_seconds=1) == b""
    assert b"ADDED" in lines_of(there, timeout_seconds=1)


def test_a_slow_watch_tells_all_of_it_late(server, cluster, there):
    there.create(job(cluster, "pass", suspend=True))
    server.faults.delay(0.2, verb="watch")
    start = time.monotonic()
    assert b"ADDED" in lines_of(there, timeout_seconds=1)
    assert time.monotonic() - start >= 0.4, "the answer, and its first event"


def test_a_watch_that_repeats_tells_each_event_twice(server, cluster, there):
    there.create(job(cluster, "pass", suspend=True))
    server.faults.repeat_events()
    first, second = lines_of(there, timeout_seconds=1).splitlines()[:2]
    assert first == second and b"ADDED" in first


def test_dropped_watches_end(server, there):
    calls = len(server.calls)
    read = []
    reader = threading.Thread(target=lambda: read.append(lines_of(there, timeout_seconds=600)))
    reader.start()
    until(lambda: len(server.calls) > calls)
    until(lambda: (server.faults.drop_watches(), reader.join(0.05), not reader.is_alive())[2])
    assert read == [b""]


def test_time_that_passes_ends_a_watch(server, there):
    read = []
    reader = threading.Thread(target=lambda: read.append(lines_of(there, timeout_seconds=3600)))
    reader.start()
    until(lambda: (server.clock.advance(4000), reader.join(0.05), not reader.is_alive())[2])
    assert read == [b""]


# --- access ---------------------------------------------------------------------------------------


def test_a_token_is_worth_nothing_after_its_time(server, cluster, tmp_path):
    token = server.access.token("trainer", seconds=3600)
    other = Namespace(cluster.with_token(token, tmp_path / "trainer"))
    assert jobs(other).items == []
    server.clock.advance(3601)
    with pytest.raises(ApiException) as refused:
        jobs(other)
    assert refused.value.status == 401


def test_every_call_is_recorded_as_a_role_would_grant_it(server, cluster, there):
    server.calls.clear()
    there.create(job(cluster, "print('x')"))
    there.job_where(ended)
    there.log(there.pod(0).metadata.name)
    there.batch.delete_namespaced_job("claim", there.name, propagation_policy="Foreground")

    assert server.calls.rules() == {
        ("batch", "jobs", "create"),
        ("batch", "jobs", "watch"),
        ("", "pods", "list"),
        ("", "pods/log", "get"),
        ("batch", "jobs", "delete"),
    }
    assert {call.namespace for call in server.calls} == {there.name}


def test_an_access_review_answers_by_the_role(server, cluster, tmp_path):
    rules = [{"apiGroups": ["batch"], "resources": ["jobs"], "verbs": ["get"]}]
    token = server.access.token("trainer", rules=rules, namespace=server.namespace)
    api = client.AuthorizationV1Api(cluster.with_token(token, tmp_path / "trainer").client())
    for verb, granted in (("get", True), ("delete", False)):
        asked = {"namespace": server.namespace, "verb": verb, "group": "batch", "resource": "jobs"}
        review = api.create_self_subject_access_review({"spec": {"resourceAttributes": asked}})
        assert review.status.allowed is granted


# --- pods -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("lose", "reason"),
    [("preempt", "PreemptionByScheduler"), ("drain", "DeletionByTaintManager")],
)
def test_a_pod_that_is_taken_away_says_by_whom(server, cluster, there, lose, reason):
    there.create(job(cluster, OBEDIENT))
    until(lambda: there.is_up(0))
    pod = there.pod(0)

    getattr(server, lose)(pod.metadata.name)

    gone = there.pod_where(lambda seen: seen.status.phase == "Failed", **after(pod))
    assert condition(gone, "DisruptionTarget").reason == reason


def test_a_pod_that_the_kubelet_evicts_is_failed_and_says_why(server, cluster, there):
    there.create(job(cluster, SLEEP))
    until(lambda: there.is_up(0))
    pod = there.pod(0)

    server.evict_for_pressure(pod.metadata.name)

    gone = there.pod_where(lambda seen: seen.status.phase == "Failed", **after(pod))
    assert gone.status.reason == "Evicted"
    assert gone.status.message == "The node was low on resource: memory. "
    assert condition(gone, "DisruptionTarget").reason == "TerminationByKubelet"
    assert ended(there.job_where(ended)).reason == "BackoffLimitExceeded"


def test_memory_runs_out_on_demand(server, cluster, there):
    there.create(job(cluster, SLEEP))
    until(lambda: there.is_up(0))
    server.run_out_of_memory(there.pod(0).metadata.name)
    there.job_where(ended)
    killed = there.pod(0).status.container_statuses[0].state.terminated
    assert (killed.reason, killed.exit_code) == ("OOMKilled", 137)


def test_two_pods_of_one_index_can_live(server, cluster, there):
    there.create(job(cluster, SLEEP))
    until(lambda: there.is_up(0))
    second = server.double(there.pod(0).metadata.name)
    there.pod_where(is_running, second)
    live = [pod for pod in there.pods() if is_running(pod)]
    key = "batch.kubernetes.io/job-completion-index"
    assert [pod.metadata.labels[key] for pod in live] == ["0", "0"]


def test_the_processes_of_a_pod_on_a_node_that_is_cut_off_run_on(server, cluster, there):
    there.create(job(cluster, SLEEP))
    until(lambda: there.is_up(0))
    name, folder = there.pod(0).metadata.name, server.root / there.pod(0).metadata.uid[:8]

    (process,) = server.cut_off(name)

    assert ended(there.job_where(ended)).reason == "BackoffLimitExceeded"
    assert name not in [pod.metadata.name for pod in there.pods()] and alive(process)
    assert folder.is_dir(), "its volumes are its own as long as it runs"
    server.end_cut_off()
    assert not alive(process)


def waits(pod):
    return pod.status.container_statuses[0].state.waiting


def test_an_image_that_comes_back_is_pulled_at_the_next_try(server, cluster, there):
    server.images.failing[cluster.image] = "unauthorized: authentication required"
    there.create(job(cluster, "pass"))
    pod = there.pod_where(lambda seen: seen.status.container_statuses)
    until(lambda: "unauthorized" in there.warnings(pod.metadata.name))
    server.clock.advance(1)
    backs_off = there.pod_where(lambda seen: waits(seen).reason == "ImagePullBackOff")
    assert waits(backs_off).message.startswith(f'Back-off pulling image "{cluster.image}": ErrImag')
    assert "unauthorized" in waits(backs_off).message
    server.images.failing.clear()
    server.clock.advance(11)
    assert there.job_where(ended).status.succeeded == 1


def test_a_pod_without_gpus_left_waits_until_some_are_free(server, cluster, there):
    gpus = {"resources": {"limits": {"nvidia.com/gpu": "8"}}}
    there.create(job(cluster, OBEDIENT, name="first", container=gpus))
    there.pod_where(is_running)
    there.create(job(cluster, "pass", name="second", container=gpus))
    pod = there.pod_where(
        lambda seen: [c for c in seen.status.conditions or [] if c.reason == "Unschedulable"]
    )
    assert pod.status.conditions[0].message == (
        "0/1 nodes are available: 1 Insufficient nvidia.com/gpu. preemption: 0/1 nodes are"
        " available: 1 No preemption victims found for incoming pod."
    )

    there.batch.delete_namespaced_job("first", there.name, propagation_policy="Foreground")

    assert there.job_where(ended, "second").status.succeeded == 1


def test_a_tainted_node_takes_who_tolerates_it(server, cluster, there):
    server.remove_node("node-1")
    taint = {"key": "spot", "value": "true", "effect": "NoSchedule"}
    server.add_node("spot-1", labels={"price": "spot"}, taints=[taint])
    there.create(job(cluster, "pass", name="firm"))
    pod = there.pod_where(lambda seen: seen.status.conditions)
    assert "1 node(s) had untolerated taint {spot: true}" in pod.status.conditions[0].message

    toleration = {"key": "spot", "operator": "Equal", "value": "true", "effect": "NoSchedule"}
    template = {"nodeSelector": {"price": "spot"}, "tolerations": [toleration]}
    there.create(job(cluster, "pass", name="light", template=template))
    assert there.job_where(ended, "light").status.succeeded == 1


def test_a_job_whose_service_never_comes_does_not_find_its_peers(server, cluster, there):
    script = "import socket, sys; socket.getaddrinfo(sys.argv[1].split(':')[0], 1)"
    container = {"args": ["claim-0.nobody:29500"]}
    there.create(job(cluster, script, container=container, template={"subdomain": "nobody"}))
    pod = there.pod_where(lambda seen: seen.spec.node_name)
    until(lambda: (server.clock.advance(2), ended(there.read()))[1])
    assert "socket.gaierror" in there.log(pod.metadata.name)


# --- Kueue ----------------------------------------------------------------------------------------


def queued(cluster, **how):
    manifest = job(cluster, OBEDIENT, **how)
    manifest["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] = "team-a"
    return manifest


def workload(there):
    api = client.CustomObjectsApi(there.batch.api_client)
    where = ("kueue.x-k8s.io", "v1beta1", there.name, "workloads")
    found = api.list_namespaced_custom_object(*where)["items"]
    return {c["type"]: c for c in found[0].get("status", {}).get("conditions", [])} if found else {}


def test_a_job_waits_for_its_queue_and_runs_when_that_is_there(server, cluster, there):
    server.add_node("gpu-1", labels={"pool": "gpu", "zone": "a"})
    flavors = {"resourceGroups": [{"coveredResources": [], "flavors": [{"name": "gpu"}]}]}
    for kind, name, spec in (
        ("ResourceFlavor", "gpu", {"nodeLabels": {"pool": "gpu"}}),
        ("ClusterQueue", "training", flavors),
    ):
        meta = {"apiVersion": "kueue.x-k8s.io/v1beta1", "metadata": {"name": name}}
        server.apply({**meta, "kind": kind, "spec": spec})
    there.create(queued(cluster, template={"nodeSelector": {"zone": "a"}}))
    there.job_where(has("Suspended"))
    told = until(lambda: workload(there).get("QuotaReserved"))
    assert (told["status"], told["reason"]) == ("False", "Inadmissible")
    assert told["message"] == "LocalQueue team-a doesn't exist"

    queue = {
        "apiVersion": "kueue.x-k8s.io/v1beta1",
        "kind": "LocalQueue",
        "metadata": {"name": "team-a"},
        "spec": {"clusterQueue": "training"},
    }
    server.apply(queue)
    until(lambda: there.is_up(0))
    assert workload(there)["Admitted"]["status"] == "True"
    assert there.pod(0).spec.node_name == "gpu-1", "the flavor says where it runs"

    server.kueue_preempt("claim")
    assert there.read().spec.template.spec.node_selector == {"zone": "a"}, "as it was made"
    there.job_where(has("Suspended"))
    assert workload(there)["Evicted"]["reason"] == "Preempted"


# --- the server itself ----------------------------------------------------------------------------


def test_nothing_is_left_when_the_server_stops(tmp_path):
    before = set(threading.enumerate())
    with ApiServer() as server:
        kubeconfig = server.write_kubeconfig(tmp_path / "kubeconfig")
        own = TestCluster(kubeconfig, server.namespace, "python:3.11-slim", server)
        there = Namespace(own)
        script = "import subprocess, sys, time; s = 'import time; time.sleep(600)'\n"
        script += "subprocess.Popen([sys.executable, '-c', s], start_new_session=True)\n"
        there.create(job(own, script + SLEEP))
        until(lambda: there.is_up(0))
        (process,) = server.processes(there.pod(0).metadata.name)
        own_family = until(lambda: family(process))
        root = server.root
        there.batch.api_client.rest_client.pool_manager.clear()
    until(lambda: not any(alive(pid) for pid in [process, *own_family]))
    assert not root.exists() and server.failures == []
    assert [t for t in set(threading.enumerate()) - before if t.is_alive()] == []


def family(pid):
    return [child.pid for child in psutil.Process(pid).children(recursive=True)]


def test_an_error_in_a_controller_is_kept_and_shown():
    with ApiServer() as server:
        server.loop.soon("planted", lambda: 1 / 0)
        until(lambda: server.failures)
    assert isinstance(server.failures[0], ZeroDivisionError)


def test_days_pass_in_no_time(server, cluster, there):
    there.create(job(cluster, OBEDIENT, activeDeadlineSeconds=72 * 3600))
    until(lambda: there.is_up(0))
    server.clock.advance(72 * 3600 - 60)
    assert not ended(there.read())
    server.clock.advance(60)
    assert ended(there.job_where(ended)).reason == "DeadlineExceeded"


def test_a_fast_clock_shortens_every_wait(tmp_path):
    with ApiServer(speed=1000) as server:
        own = TestCluster(server.write_kubeconfig(tmp_path / "k"), server.namespace, "any", server)
        there = Namespace(own)
        there.create(job(own, "raise SystemExit(3)", backoffLimit=3))
        over = there.job_where(ended)
        assert over.status.failed == 4
        started, end = over.status.start_time, ended(over).last_transition_time
        assert (end - started).total_seconds() >= 10 + 20 + 40
