"""Claims about what happens to pods: true of the tests' own API server and of a real cluster."""

import base64
import threading

import pytest
from kubernetes.client import ApiException

from ml_assets_tests.servers.kubernetes.cluster import TestCluster
from ml_assets_tests.servers.kubernetes.sample_jobs import (
    OBEDIENT,
    Namespace,
    condition,
    ended,
    is_running,
    job,
    until,
)

NOT_THERE = "registry.invalid/none:1"


@pytest.fixture
def there(cluster: TestCluster) -> Namespace:
    return Namespace(cluster)


def waiting(pod):
    """The reason why the first container waits."""
    for status in pod.status.container_statuses or []:
        if status.state.waiting:
            return status.state.waiting.reason
    return None


def secret(there, name, **data):
    coded = {key: base64.b64encode(value.encode()).decode() for key, value in data.items()}
    there.core.create_namespaced_secret(there.name, {"metadata": {"name": name}, "data": coded})


# --- environment ----------------------------------------------------------------------------------


def test_the_environment_comes_from_values_fields_secrets_and_earlier_variables(cluster, there):
    secret(there, "keys", TOKEN="s3cret", OTHER="more")
    variables = [
        {"name": "FIRST", "value": "one"},
        {"name": "SECOND", "value": "$(FIRST)-$(MISSING)-$$(FIRST)"},
        {"name": "POD", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
        {"name": "TOKEN", "valueFrom": {"secretKeyRef": {"name": "keys", "key": "TOKEN"}}},
    ]
    names = ("SECOND", "POD", "TOKEN", "K_OTHER")
    words = f"import os, sys; print(*(os.environ[n] for n in {names}), sys.argv[1])"
    container = {
        "env": variables,
        "envFrom": [{"prefix": "K_", "secretRef": {"name": "keys"}}],
        "args": ["$(FIRST):$(JOB_COMPLETION_INDEX)"],
    }
    there.create(job(cluster, words, container=container))

    assert there.job_where(ended).status.succeeded == 1
    name = there.pod(0).metadata.name
    assert there.log(name) == f"one-$(MISSING)-$(FIRST) {name} s3cret more one:0\n"


def test_a_container_waits_for_its_secret_and_starts_when_it_comes(cluster, there):
    source = {"secretKeyRef": {"name": "late", "key": "TOKEN"}}
    container = {"env": [{"name": "TOKEN", "valueFrom": source}]}
    there.create(job(cluster, "import os; print(os.environ['TOKEN'])", container=container))

    pod = there.pod_where(lambda seen: waiting(seen) == "CreateContainerConfigError")
    told = pod.status.container_statuses[0].state.waiting.message
    assert told == 'secret "late" not found'
    assert "Error: secret" in until(lambda: there.warnings(pod.metadata.name))

    secret(there, "late", TOKEN="here")
    assert there.job_where(ended).status.succeeded == 1


def test_a_key_that_a_secret_lacks_is_named(cluster, there):
    secret(there, "keys", OTHER="x")
    source = {"secretKeyRef": {"name": "keys", "key": "TOKEN"}}
    container = {"env": [{"name": "TOKEN", "valueFrom": source}]}
    there.create(job(cluster, "pass", container=container))

    pod = there.pod_where(lambda seen: waiting(seen) == "CreateContainerConfigError")

    told = pod.status.container_statuses[0].state.waiting.message
    assert told == f"couldn't find key TOKEN in Secret {there.name}/keys"


# --- containers and volumes -----------------------------------------------------------------------


def test_init_containers_run_first_and_share_volumes(cluster, there):
    mount = {"volumeMounts": [{"name": "scratch", "mountPath": "/scratch"}]}
    first = {
        "name": "first",
        "image": cluster.image,
        "command": ["python", "-c", "open('/scratch/word', 'w').write('hello')"],
        **mount,
    }
    template = {"volumes": [{"name": "scratch", "emptyDir": {}}], "initContainers": [first]}
    script = "import sys; print(open(sys.argv[1]).read())"
    main = {**mount, "args": ["/scratch/word"]}
    if cluster.own:  # a local process has no /scratch: paths are rewritten in commands only
        first["command"] = ["python", "-c", "import sys; open(sys.argv[1], 'w').write('hello')"]
        first["args"] = ["/scratch/word"]
    there.create(job(cluster, script, template=template, container=main))

    assert there.job_where(ended).status.succeeded == 1
    assert there.log(there.pod(0).metadata.name, container="main") == "hello\n"


def test_a_sidecar_lives_as_long_as_the_main_container(cluster, there):
    sidecar = {
        "name": "beside",
        "image": cluster.image,
        "restartPolicy": "Always",
        "command": ["python", "-c", OBEDIENT],
    }
    there.create(job(cluster, "pass", template={"initContainers": [sidecar]}))

    assert there.job_where(ended).status.succeeded == 1
    assert there.pod(0).status.phase == "Succeeded"


def test_a_program_that_is_not_there_is_a_start_error(cluster, there):
    there.create(job(cluster, "", container={"command": ["no-such-program"]}))

    assert condition(there.job_where(ended), "Failed")
    failed = there.pod(0).status.container_statuses[0].state.terminated
    assert (failed.reason, failed.exit_code) == ("StartError", 128)
    assert 'exec: "no-such-program": executable file not found in $PATH' in failed.message


def test_the_end_of_the_log_is_the_message_where_that_is_asked_for(cluster, there):
    script = "print('the last word', flush=True); raise SystemExit(5)"
    there.create(
        job(cluster, script, container={"terminationMessagePolicy": "FallbackToLogsOnError"})
    )
    there.job_where(ended)
    assert there.pod(0).status.container_statuses[0].state.terminated.message == "the last word\n"


def test_the_pods_of_a_job_find_each_other_by_name(cluster, there):
    service = {"metadata": {"name": "claim"}, "spec": {"clusterIP": "None"}}
    service["spec"]["selector"] = {"claim": "claim"}
    service["spec"]["publishNotReadyAddresses"] = True
    there.core.create_namespaced_service(there.name, service)
    script = """
import os, socket, sys, time
host, port = sys.argv[1].rsplit(':', 1)
if os.environ['JOB_COMPLETION_INDEX'] == '0':
    server = socket.create_server(('', int(port)))
    print(server.accept()[0].recv(100).decode(), flush=True)
else:
    for _ in range(600):
        try:
            socket.create_connection((host, int(port))).sendall(b'from index 1')
            break
        except OSError:
            time.sleep(0.1)
"""
    container = {"args": ["claim-0.claim:29500"]}
    template = {"subdomain": "claim"}
    there.create(job(cluster, script, pods=2, container=container, template=template))

    assert there.job_where(ended).status.succeeded == 2
    assert there.log(there.pod(0).metadata.name) == "from index 1\n"


# --- images and nodes -----------------------------------------------------------------------------


def test_an_image_that_cannot_be_pulled_is_waited_for(cluster, there):
    there.create(job(cluster, "", container={"image": NOT_THERE}))

    pod = there.pod_where(lambda seen: waiting(seen) in ("ErrImagePull", "ImagePullBackOff"))

    assert pod.status.phase == "Pending"
    cluster.pass_time(2)
    there.pod_where(lambda seen: waiting(seen) == "ImagePullBackOff")
    told = until(lambda: there.warnings(pod.metadata.name))
    assert f'Failed to pull image "{NOT_THERE}"' in told and "no such host" in told


def test_an_image_that_may_not_be_pulled_and_is_not_there_says_so(cluster, there):
    container = {"image": NOT_THERE, "imagePullPolicy": "Never"}
    there.create(job(cluster, "", container=container))
    there.pod_where(lambda seen: waiting(seen) == "ErrImageNeverPull")


def test_a_pod_that_fits_no_node_is_pending_in_the_schedulers_words(cluster, there):
    much = {"resources": {"limits": {"example.com/no-such-device": "1"}}}
    there.create(job(cluster, "pass", container=much))

    def refused(pod):
        return any(c.reason == "Unschedulable" for c in pod.status.conditions or [])

    pod = there.pod_where(refused)
    assert pod.status.phase == "Pending" and pod.spec.node_name is None
    words = next(c.message for c in pod.status.conditions if c.reason == "Unschedulable")
    assert "nodes are available" in words and "Insufficient example.com/no-such-device" in words
    events = until(lambda: there.events(pod.metadata.name))
    told = events[0]  # by the newer API of events it has no source, but a reporter
    by = (told.source and told.source.component) or told.reporting_component
    assert (told.reason, by) == ("FailedScheduling", "default-scheduler")


def test_a_node_selector_that_no_node_has_is_named(cluster, there):
    template = {"nodeSelector": {"no-such-label": "anywhere"}}
    there.create(job(cluster, "pass", template=template))
    pod = there.pod_where(lambda seen: seen.status.conditions)
    assert "didn't match Pod's node affinity/selector" in pod.status.conditions[0].message


# --- quota ----------------------------------------------------------------------------------------


def test_a_job_over_the_quota_has_no_pods_and_an_event_that_says_why(cluster, there):
    quota = {"metadata": {"name": "small"}, "spec": {"hard": {"pods": "0"}}}
    there.core.create_namespaced_resource_quota(there.name, quota)
    until(lambda: there.quota_is_counted("small"))
    there.create(job(cluster, "pass"))

    told = until(lambda: there.warnings("claim"))

    assert "Error creating: pods" in told
    assert "is forbidden: exceeded quota: small, requested: pods=1, used: pods=0" in told
    assert there.pods() == []


# --- logs -----------------------------------------------------------------------------------------

TALK = """
import time
for i in range(5):
    print('line', i, flush=True)
time.sleep(600)
"""


def test_a_log_can_be_followed_to_its_end(cluster, there):
    script = "import time\nfor i in range(3):\n    print(i, flush=True); time.sleep(0.2)"
    there.create(job(cluster, script))
    pod = there.pod_where(is_running)
    answer = there.core.read_namespaced_pod_log(
        pod.metadata.name, there.name, follow=True, _preload_content=False
    )
    assert b"".join(answer.stream()) == b"0\n1\n2\n"


def test_the_end_of_a_log_and_what_came_since_a_time_can_be_asked_for(cluster, there):
    there.create(job(cluster, TALK))
    until(lambda: there.pod(0) and is_running(there.pod(0)))
    name = there.pod(0).metadata.name
    until(lambda: there.log(name).count("\n") == 5)

    assert there.log(name, tail_lines=2) == "line 3\nline 4\n"
    stamped = there.log(name, timestamps=True).splitlines()
    assert [line.partition(" ")[2] for line in stamped] == [f"line {i}" for i in range(5)]
    assert there.log(name, since_seconds=3600).count("\n") == 5
    assert there.log(name, limit_bytes=4) == "line"


def test_which_container_must_be_said_where_there_are_two(cluster, there):
    other = {"name": "other", "image": cluster.image, "command": ["python", "-c", "print(2)"]}
    manifest = job(cluster, "print(1)")
    manifest["spec"]["template"]["spec"]["containers"].append(other)
    there.create(manifest)
    there.job_where(ended)
    name = there.pod(0).metadata.name

    with pytest.raises(ApiException, match=r"a container name must be specified .*main other"):
        there.log(name)
    assert there.log(name, container="other") == "2\n"


def test_a_deleted_pods_log_is_gone_and_whoever_follows_it_is_let_go(cluster, there):
    there.create(job(cluster, OBEDIENT))
    until(lambda: there.is_up(0))
    name = there.pod(0).metadata.name
    answer = there.core.read_namespaced_pod_log(
        name, there.name, follow=True, _preload_content=False
    )
    read = []
    reader = threading.Thread(target=lambda: read.append(b"".join(answer.stream())))
    reader.start()

    there.batch.delete_namespaced_job("claim", there.name, propagation_policy="Foreground")

    reader.join(60)
    assert not reader.is_alive() and read == [b"up\n"]
    until(lambda: there.pods() == [])
    with pytest.raises(ApiException, match="not found") as refused:
        there.log(name)
    assert refused.value.status == 404
