"""What the API says of a Job or a pod is read as it is written, and no more is kept."""

from datetime import UTC, datetime

from ml_assets.launch.kubernetes.observations import Observed, pod_state
from ml_assets_tests.launch.kubernetes.objects import (
    JOB,
    RUNNING,
    a_job,
    a_pod,
    condition,
    pod_json,
    terminated,
    waiting,
)


def second(number):
    return datetime(2026, 1, 5, 10, 0, number, tzinfo=UTC)


def test_a_failure_is_known_from_its_target_before_the_last_grace_has_passed():
    job = a_job(condition("FailureTarget", "PodFailurePolicy", "exit code 66"))
    assert job.failure is not None
    assert job.failure.message == "exit code 66"
    assert not job.complete


def test_a_condition_that_does_not_hold_is_none():
    assert a_job(condition("Failed", status="False")).failure is None
    assert a_job(condition("Complete")).complete


def test_a_pod_tells_its_index_its_job_its_node_and_its_times():
    pod = a_pod(1, RUNNING, condition("PodScheduled", second=1), node="node-7")
    assert (pod.index, pod.job, pod.node) == (1, JOB, "node-7")
    assert (pod.scheduled, pod.started) == (second(1), second(2))
    assert not pod.lost


def test_a_cluster_that_writes_the_index_as_a_label_only_is_understood():
    pod = pod_json(3)
    pod["metadata"]["labels"] |= pod["metadata"].pop("annotations")
    assert pod_state(pod).index == 3


def test_the_container_that_failed_is_told_not_the_one_that_ended_well():
    pod = pod_json(0, phase="Failed")
    pod["status"]["initContainerStatuses"] = [{"name": "fetch", "state": terminated(0)}]
    pod["status"]["containerStatuses"] = [
        {"name": "proxy", "state": terminated(0, "Completed")},
        {"name": "training", "state": terminated(137, "OOMKilled")},
    ]
    ended = pod_state(pod).ended
    assert ended is not None
    assert (ended.exit_code, ended.reason) == (137, "OOMKilled")


def test_a_pod_just_made_has_neither_node_nor_containers():
    bare = {"metadata": {"name": "p", "labels": {"job-name": "j"}}}
    pod = pod_state(bare)
    assert (pod.phase, pod.node, pod.index, pod.waiting, pod.job) == (
        "Pending", None, None, None, "j",
    )  # fmt: skip


def test_what_it_waits_for_is_told():
    pod = a_pod(0, waiting("ImagePullBackOff", "not found"), phase="Pending")
    assert pod.waiting is not None
    assert (pod.waiting.reason, pod.waiting.message) == ("ImagePullBackOff", "not found")


def test_a_pod_is_lost_from_when_its_deletion_was_asked_for_not_from_the_end_of_its_grace():
    pod = a_pod(0, deleted=4)
    assert pod.lost
    assert pod.lost_at == second(4)


def test_a_pod_that_did_its_work_is_not_lost_when_it_is_tidied_away():
    assert not a_pod(0, terminated(0, "Completed"), phase="Succeeded", deleted=5).lost


def test_a_job_is_found_by_its_name_and_a_pod_is_none():
    seen = Observed((a_job(),), (a_pod(0, job="other"),))
    assert seen.job(JOB) is not None and seen.job("other") is None
