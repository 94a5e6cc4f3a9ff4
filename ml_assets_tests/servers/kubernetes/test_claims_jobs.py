"""Claims about Jobs: true of the tests' own API server and of a real cluster."""

import pytest

from ml_assets_tests.servers.kubernetes.cluster import TestCluster
from ml_assets_tests.servers.kubernetes.sample_jobs import (
    OBEDIENT,
    SLEEP,
    Namespace,
    after,
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
    grace = {"terminationGracePeriodSeconds": 1}
    manifest = job(cluster, script, pods=2, podFailurePolicy=policy, backoffLimit=6, template=grace)
    made = there.create(manifest)

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
    until(lambda: there.is_up(0) and there.is_up(1))
    victim = there.pod(1)
    there.core.delete_namespaced_pod(victim.metadata.name, there.name)

    going = there.pod_where(lambda pod: pod.metadata.deletion_timestamp, **after(victim))
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

    gone = there.pod_where(lambda seen: exit_code(seen) is not None, **after(pod))
    assert exit_code(gone) == 143 and gone.status.phase == "Failed"


# --- failures and retries -------------------------------------------------------------------------


def test_a_failure_that_no_rule_names_is_tried_again_after_a_pause_and_then_ends_the_job(
    cluster, there
):
    there.create(job(cluster, "raise SystemExit(3)", backoffLimit=1))
    once = there.job_where(lambda seen: seen.status.failed == 1)
    assert not ended(once) and len(there.pods()) == 1

    cluster.pass_time(10)

    over = there.job_where(ended)
    assert condition(over, "Failed").reason == "BackoffLimitExceeded"
    assert over.status.failed == 2 and [exit_code(pod) for pod in there.pods()] == [3, 3]


def test_an_evicted_pod_is_marked_and_an_ignore_rule_replaces_it(cluster, there):
    rule = {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget"}]}
    there.create(job(cluster, OBEDIENT, podFailurePolicy={"rules": [rule]}))
    until(lambda: there.is_up(0))
    first = there.pod(0)

    there.evict(first.metadata.name)

    cause = there.pod_where(has("DisruptionTarget"), **after(first))
    assert condition(cause, "DisruptionTarget").reason == "EvictionByEvictionAPI"
    there.pod_where(lambda seen: seen.status.phase == "Failed", **after(first))
    until(lambda: first.metadata.name not in [pod.metadata.name for pod in there.pods()])
    cluster.pass_time(10)
    until(lambda: there.is_up(0))
    now = there.batch.read_namespaced_job("claim", there.name)
    assert not now.status.failed and not ended(now)


def test_a_rule_on_disruption_dooms_the_job(cluster, there):
    rule = {"action": "FailJob", "onPodConditions": [{"type": "DisruptionTarget"}]}
    there.create(job(cluster, OBEDIENT, pods=2, podFailurePolicy={"rules": [rule]}))
    until(lambda: there.is_up(0) and there.is_up(1))
    victim = there.pod(1).metadata.name

    there.evict(victim)

    over = there.job_where(ended)
    why = condition(over, "Failed")
    assert why.reason == "PodFailurePolicy"
    assert (
        f"{victim} has condition DisruptionTarget matching FailJob rule at index 0" in why.message
    )


def test_a_job_past_its_deadline_fails_and_its_pods_are_deleted(cluster, there):
    there.create(job(cluster, OBEDIENT, activeDeadlineSeconds=5))
    until(lambda: there.is_up(0))

    cluster.pass_time(5)

    over = there.job_where(ended)
    assert condition(over, "Failed").reason == "DeadlineExceeded"
    assert condition(over, "Failed").message == "Job was active longer than specified deadline"
    until(lambda: there.pods() == [])


def test_a_finished_job_goes_after_its_time_to_live(cluster, there):
    there.create(job(cluster, "pass", ttlSecondsAfterFinished=3))
    there.job_where(ended)

    cluster.pass_time(3)

    until(lambda: not there.batch.list_namespaced_job(there.name).items)
    until(lambda: there.pods() == [])


def test_no_replacement_comes_while_the_lost_pod_still_ends(cluster, there):
    template = {"terminationGracePeriodSeconds": 3}
    manifest = job(cluster, SLEEP, template=template, podReplacementPolicy="Failed", backoffLimit=6)
    there.create(manifest)
    until(lambda: there.is_up(0))
    first = there.pod(0)

    there.core.delete_namespaced_pod(first.metadata.name, there.name)

    ending = there.job_where(lambda seen: seen.status.terminating == 1)
    assert not ending.status.active and not ending.status.failed
    assert [pod.metadata.name for pod in there.pods()] == [first.metadata.name]
    there.job_where(lambda seen: seen.status.failed == 1)
    cluster.pass_time(10)
    second = until(lambda: there.pod(0))
    assert second.metadata.name != first.metadata.name


def test_a_first_process_without_a_handler_is_killed_when_the_grace_is_over(cluster, there):
    there.create(job(cluster, SLEEP, template={"terminationGracePeriodSeconds": 1}))
    until(lambda: there.is_up(0))
    pod = there.pod(0)

    there.core.delete_namespaced_pod(pod.metadata.name, there.name)

    gone = there.pod_where(lambda seen: exit_code(seen) is not None, **after(pod))
    assert exit_code(gone) == 137
    assert gone.status.container_statuses[0].state.terminated.reason == "Error"


def test_a_container_over_its_memory_limit_is_oom_killed(cluster, there):
    script = "import time; held = b'x' * (400 << 20); time.sleep(600)"
    limits = {"resources": {"limits": {"memory": "128Mi"}}}
    there.create(job(cluster, script, container=limits))

    over = there.job_where(ended)

    assert condition(over, "Failed").reason == "BackoffLimitExceeded"
    killed = there.pod(0).status.container_statuses[0].state.terminated
    assert (killed.reason, killed.exit_code) == ("OOMKilled", 137)


def test_a_rule_may_name_the_container_whose_exit_code_it_means(cluster, there):
    codes = {"containerName": "main", "operator": "NotIn", "values": [0, 7]}
    policy = {"rules": [{"action": "FailJob", "onExitCodes": codes}]}
    there.create(job(cluster, "raise SystemExit(7)", podFailurePolicy=policy))
    assert condition(there.job_where(ended), "Failed").reason == "BackoffLimitExceeded"


# --- suspension and deletion ----------------------------------------------------------------------


def test_a_suspended_job_has_no_pod_until_it_is_released(cluster, there):
    there.create(job(cluster, OBEDIENT, suspend=True))
    held = there.job_where(has("Suspended"))
    assert held.status.start_time is None and there.pods() == []

    there.batch.patch_namespaced_job("claim", there.name, {"spec": {"suspend": False}})
    until(lambda: there.is_up(0))

    there.batch.patch_namespaced_job("claim", there.name, {"spec": {"suspend": True}})
    again = there.job_where(has("Suspended"))
    assert not again.status.failed
    until(lambda: there.pods() == [])


def test_a_job_deleted_without_a_policy_leaves_its_pods_behind(cluster, there):
    there.create(job(cluster, OBEDIENT))
    until(lambda: there.is_up(0))

    there.batch.delete_namespaced_job("claim", there.name)

    until(lambda: not there.batch.list_namespaced_job(there.name).items)
    until(lambda: there.pod(0).metadata.owner_references is None)
    assert is_running(there.pod(0)) and there.pod(0).metadata.deletion_timestamp is None


def test_background_deletion_removes_the_job_first_and_the_pods_after(cluster, there):
    there.create(job(cluster, OBEDIENT))
    until(lambda: there.is_up(0))

    there.batch.delete_namespaced_job("claim", there.name, propagation_policy="Background")

    assert there.batch.list_namespaced_job(there.name).items == []
    until(lambda: there.pods() == [])


def test_what_a_job_owns_goes_with_it(cluster, there):
    made = there.create(job(cluster, OBEDIENT))
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "claim", "uid": made.metadata.uid}
    service = {
        "metadata": {"name": "claim", "ownerReferences": [owner]},
        "spec": {"clusterIP": "None", "selector": {"claim": "claim"}},
    }
    there.core.create_namespaced_service(there.name, service)
    until(lambda: there.is_up(0))

    there.batch.delete_namespaced_job("claim", there.name, propagation_policy="Foreground")

    until(lambda: not there.batch.list_namespaced_job(there.name).items)
    until(lambda: not there.core.list_namespaced_service(there.name).items)


# --- other kinds of Jobs --------------------------------------------------------------------------


def test_a_job_without_indexes_counts_its_pods(cluster, there):
    manifest = job(cluster, "pass", pods=2)
    del manifest["spec"]["completionMode"]
    there.create(manifest)

    done = there.job_where(ended)

    assert done.status.succeeded == 2 and done.status.completed_indexes is None
    assert all(len(pod.metadata.name) == len("claim-") + 5 for pod in there.pods())
    assert there.pods()[0].spec.hostname is None


def test_a_container_may_be_started_again_in_its_pod(cluster, there):
    again = {"restartPolicy": "OnFailure"}
    there.create(job(cluster, "raise SystemExit(4)", template=again, backoffLimit=6))
    waits = there.pod_where(lambda seen: waiting_for(seen) == "CrashLoopBackOff")
    first = waits.status.container_statuses[0]
    assert (first.restart_count, first.last_state.terminated.exit_code) == (1, 4)

    cluster.pass_time(10)

    there.pod_where(lambda seen: seen.status.container_statuses[0].restart_count == 2)
    assert len(there.pods()) == 1


def waiting_for(pod):
    states = [status.state.waiting for status in pod.status.container_statuses or []]
    return states[0].reason if states and states[0] else None
