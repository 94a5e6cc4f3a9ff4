"""Claims about Jobs: true of the tests' own API server and of a real cluster."""

import pytest

from ml_assets_tests.launch.kubernetes.conftest import TestCluster
from ml_assets_tests.launch.kubernetes.sample_jobs import (
    OBEDIENT,
    SLEEP,
    Namespace,
    condition,
    ended,
    exit_code,
    has,
    is_running,
    job,
    until,
)


@pytest.fixture
def there(cluster: TestCluster) -> Namespace:
    return Namespace(cluster)


def test_an_indexed_job_completes_and_each_pod_knows_its_index(cluster, there):
    there.create(job(cluster, "import os; print(os.environ['JOB_COMPLETION_INDEX'])", pods=2))

    done = there.job_where(ended)

    assert [c.type for c in done.status.conditions] == ["SuccessCriteriaMet", "Complete"]
    assert done.status.succeeded == 2 and done.status.completed_indexes == "0,1"
    assert done.status.completion_time is not None and done.status.active is None
    for index, pod in enumerate(there.pods()):
        assert pod.metadata.name.startswith(f"claim-{index}-")
        assert len(pod.metadata.name) == len(f"claim-{index}-") + 5
        assert pod.spec.hostname == f"claim-{index}"
        key = "batch.kubernetes.io/job-completion-index"
        assert pod.metadata.labels[key] == pod.metadata.annotations[key] == str(index)
        assert there.log(pod.metadata.name) == f"{index}\n"


def test_an_exit_code_of_the_policy_dooms_the_job_at_once_and_ends_it_with_the_last_pod(
    cluster, there
):
    script = f"import os, sys\nif os.environ['JOB_COMPLETION_INDEX'] == '0': sys.exit(64)\n{SLEEP}"
    codes = {"containerName": "main", "operator": "In", "values": [64, 65]}
    policy = {"rules": [{"action": "FailJob", "onExitCodes": codes}]}
    made = there.create(job(cluster, script, pods=2, podFailurePolicy=policy, backoffLimit=6))

    doomed = there.job_where(has("FailureTarget"))
    assert not condition(doomed, "Failed")
    assert condition(doomed, "FailureTarget").reason == "PodFailurePolicy"
    assert "failed with exit code 64 matching FailJob rule at index 0" in (
        condition(doomed, "FailureTarget").message
    )
    assert made.spec.pod_replacement_policy == "Failed"

    over = there.job_where(ended)
    assert condition(over, "Failed").reason == "PodFailurePolicy"
    assert not [pod for pod in there.pods() if is_running(pod)]


def test_a_pod_that_is_deleted_counts_as_a_failure_and_is_no_disruption(cluster, there):
    there.create(job(cluster, OBEDIENT, pods=2))
    victim = there.pod_where(is_running)
    until(lambda: there.log(victim.metadata.name))
    there.core.delete_namespaced_pod(victim.metadata.name, there.name)

    going = there.pod_where(lambda pod: pod.metadata.deletion_timestamp, victim.metadata.name)
    assert condition(going, "DisruptionTarget") is None
    over = there.job_where(ended)
    assert condition(over, "Failed").reason == "BackoffLimitExceeded"


def test_foreground_deletion_leaves_nothing(cluster, there):
    there.create(job(cluster, OBEDIENT, pods=2))
    for index in range(2):
        until(lambda index=index: there.is_up(index))

    there.batch.delete_namespaced_job("claim", there.name, propagation_policy="Foreground")

    until(lambda: not there.batch.list_namespaced_job(there.name).items)
    assert there.pods() == []


def test_term_reaches_the_first_process_and_its_exit_code_is_told(cluster, there):
    there.create(job(cluster, OBEDIENT, podReplacementPolicy="Failed"))
    pod = there.pod_where(is_running)
    until(lambda: there.log(pod.metadata.name))

    there.core.delete_namespaced_pod(pod.metadata.name, there.name)

    gone = there.pod_where(lambda seen: exit_code(seen) is not None, pod.metadata.name)
    assert exit_code(gone) == 143 and gone.status.phase == "Failed"
