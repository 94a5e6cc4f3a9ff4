"""Every way in which the cluster ends an attempt becomes a sentence, a budget and a next step."""

from datetime import UTC, datetime
from pathlib import Path

import pytest

from ml_assets.launch.failure import TABLE
from ml_assets.launch.kubernetes.diagnosis import PodObservations, diagnose
from ml_assets.launch.kubernetes.pod_failures import CAUSES, of_cause
from ml_assets.spec.training_program.pod import TerminationMessage
from ml_assets_tests.launch.kubernetes.objects import (
    RUNNING,
    a_job,
    a_pod,
    an_event,
    condition,
    terminated,
)

PROJECT = Path(__file__).parents[3]


def failed(index, exit_code, reason="Error", message="", second=8, **how):
    state = terminated(exit_code, reason, message, second)
    return a_pod(index, state, phase="Failed", **how)


def said_by(index, code, reason, second=0):
    """The termination message of a pod."""
    return TerminationMessage(
        session="flights-train-1a2b",
        attempt=1,
        index=index,
        host=f"pod-{index}",
        code=code,
        reason=reason,
        log="",
        time=datetime(2026, 1, 5, second=second, tzinfo=UTC),
    )


def taken(reason, message="", index=1, **how):
    return a_pod(index, RUNNING, condition("DisruptionTarget", reason, message), **how)


# --- what the cluster took away -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("reason", "cause"),
    [
        ("PreemptionByScheduler", "Preempted"),
        ("EvictionByEvictionAPI", "NodeShutdown"),
        ("DeletionByTaintManager", "NodeLost"),
        ("DeletionByPodGC", "NodeLost"),
        ("TerminationByKubelet", "NodeShutdown"),
        ("SomethingOfALaterVersion", "NodeShutdown"),
    ],
)
def test_a_disruption_is_nobodys_error_whoever_caused_it(reason, cause):
    found = diagnose(PodObservations(a_job(), [a_pod(0), taken(reason, "the words")]))
    assert (found.cause, found.kind, found.then) == (cause, "infrastructure", "lost")
    assert found.words == "the words"
    assert found.node == "node-1"


def test_a_node_that_is_drained_of_spot_pods_was_taken_back():
    pods = [taken("TerminationByKubelet", "Pod was terminated in response to imminent shutdown")]
    assert diagnose(PodObservations(a_job(), pods, spot=True)).cause == "SpotTaken"


def test_a_spot_node_that_no_longer_answers_is_lost_whatever_it_costs():
    pods = [taken("DeletionByTaintManager", "taint node.kubernetes.io/unreachable")]
    assert diagnose(PodObservations(a_job(), pods, spot=True)).cause == "NodeLost"


@pytest.mark.parametrize(
    ("reason", "cause"),
    [
        ("Terminated", "NodeShutdown"),
        ("NodeShutdown", "NodeShutdown"),
        ("NodeLost", "NodeLost"),
        ("Preempting", "Preempted"),
        ("OutOfnvidia.com/gpu", "NodeRefused"),
        ("UnexpectedAdmissionError", "NodeRefused"),
    ],
)
def test_a_pods_own_reason_counts_where_no_condition_says_more(reason, cause):
    pods = [a_pod(0), a_pod(1, None, phase="Failed", reason=reason, message="why")]
    found = diagnose(PodObservations(a_job(), pods))
    assert (found.cause, found.then, found.words) == (cause, "lost", "why")


def test_an_eviction_tells_what_the_node_ran_short_of():
    pressed = "The node was low on resource: ephemeral-storage. Threshold quantity: 10Gi."
    pods = [a_pod(1, None, phase="Failed", reason="Evicted", message=pressed)]
    found = diagnose(PodObservations(a_job(), pods))
    assert (found.cause, found.then) == ("Evicted", "lost")
    assert "ephemeral-storage" in found.report("attempt 1")


def test_an_eviction_is_told_as_soon_as_its_condition_is_there():
    pods = [taken("TerminationByKubelet", "The node was low on resource: memory. ")]
    assert diagnose(PodObservations(a_job(), pods, spot=True)).cause == "Evicted"


@pytest.mark.parametrize(
    "message",
    [
        'Usage of EmptyDir volume "shm" exceeds the limit "1Gi".',
        "Pod ephemeral local storage usage exceeds the total limit of containers 20Gi.",
        'Container training exceeded its local ephemeral storage limit "20Gi". ',
    ],
)
def test_a_pod_that_overfills_its_own_scratch_would_do_so_again(message):
    pods = [a_pod(0, None, phase="Failed", reason="Evicted", message=message)]
    found = diagnose(PodObservations(a_job(), pods))
    assert (found.cause, found.then) == ("ScratchFull", "stop")


def test_kueue_preempts_by_suspending_the_job():
    job = a_job(condition("Suspended", "JobSuspended"), suspend=True)
    told = an_event("Stopped", "Preempted to accommodate a workload of higher priority")
    found = diagnose(PodObservations(job, [a_pod(0, deleted=4), a_pod(1, deleted=4)], [told]))
    assert (found.cause, found.then) == ("PreemptedByQueue", "lost")
    assert "higher priority" in found.words


def test_a_plain_delete_is_told_though_the_survivor_says_only_that_its_peer_is_gone():
    survivor, gone = failed(0, 71, second=9), a_pod(1, deleted=5)
    word = said_by(0, 71, "connection closed by peer")
    found = diagnose(PodObservations(a_job(), [survivor, gone], words=[word]))
    assert (found.cause, found.then, found.pod) == ("PodDeleted", "lost", gone.name)


def test_a_plain_delete_is_told_though_the_pod_saved_and_stopped_as_it_should():
    gone = a_pod(1, terminated(75, second=7), deleted=5)
    word = said_by(1, 75, "told to stop, saved at step 40")
    assert diagnose(PodObservations(a_job(), [a_pod(0), gone], words=[word])).cause == "PodDeleted"


def test_a_plain_delete_is_told_though_the_survivor_takes_it_for_a_fault_of_nccl():
    survivor, gone = failed(0, 70, second=9), a_pod(1, deleted=5)
    said = "ncclRemoteError: A call failed possibly due to a network error"
    assert diagnose(PodObservations(a_job(), [survivor, gone], said=said)).cause == "PodDeleted"


def test_the_pods_that_a_failed_job_tidies_away_were_not_deleted_by_somebody():
    job = a_job(condition("Failed", "BackoffLimitExceeded"))
    found = diagnose(PodObservations(job, [failed(0, 70, second=5), a_pod(1, deleted=6)]))
    assert (found.cause, found.then, found.of_program) == ("exit 70", "stop", True)


def test_a_job_that_somebody_deleted_waits_for_them():
    assert diagnose(PodObservations(None)).then == "interrupted"
    assert diagnose(PodObservations(None, [a_pod(0, deleted=4)])).cause == "JobDeleted"


def test_told_to_stop_without_a_reason_was_most_likely_the_node():
    found = diagnose(PodObservations(a_job(), [failed(0, 143), a_pod(1)]))
    assert (found.cause, found.then, found.code) == ("ToldToStop", "lost", -15)


# --- what the program did -------------------------------------------------------------------------


@pytest.mark.parametrize("code", [64, 65, 66, 67, 69, 72, 77])
def test_the_programs_own_verdict_is_the_cause_whatever_happened_beside_it(code):
    pods = [failed(0, code), taken("PreemptionByScheduler")]
    found = diagnose(PodObservations(a_job(), pods))
    assert (found.code, found.then, found.kind) == (code, "stop", "error")
    assert found.what == TABLE[code].what


def test_the_last_word_tells_the_true_code_where_torchrun_says_one_for_all():
    found = diagnose(
        PodObservations(a_job(), [failed(1, 1)], words=[said_by(1, 66, "loss nan at step 7")])
    )
    assert (found.code, found.words) == (66, "loss nan at step 7")
    assert "loss nan at step 7" in found.report("attempt 1")


def test_the_code_in_the_jobs_message_counts_when_the_pods_are_gone():
    message = "Container training for pod ns/a-0-x failed with exit code 66 matching FailJob rule"
    found = diagnose(
        PodObservations(a_job(condition("FailureTarget", "PodFailurePolicy", message)))
    )
    assert (found.code, found.then) == (66, "stop")


def test_a_save_that_an_eviction_cut_short_is_no_full_disk():
    pods = [a_pod(0, terminated(74), condition("DisruptionTarget", "EvictionByEvictionAPI"))]
    assert diagnose(PodObservations(a_job(), pods)).then == "lost"
    assert diagnose(PodObservations(a_job(), [failed(0, 74)])).then == "stop"


def test_memory_over_the_limit_is_told_from_a_plain_kill():
    killed, oom = failed(1, 137, "Error"), failed(1, 137, "OOMKilled")
    peer = failed(0, 71)
    found = diagnose(PodObservations(a_job(), [peer, oom]))
    assert (found.cause, found.then, found.code) == ("OOMKilled", "again", -9)
    assert diagnose(PodObservations(a_job(), [peer, killed])).cause == "SIGKILL"


def test_the_memory_of_a_gpu_is_told_from_the_memory_of_the_machine():
    cuda = said_by(0, 73, "CUDA out of memory. Tried to allocate 2.00 GiB (GPU 0; 79 GiB total)")
    assert (
        diagnose(PodObservations(a_job(), [failed(0, 73)], words=[cuda])).cause == "CudaOutOfMemory"
    )
    plain = said_by(0, 73, "DefaultCPUAllocator: can't allocate memory")
    assert diagnose(PodObservations(a_job(), [failed(0, 73)], words=[plain])).cause == "exit 73"
    uncaught = "torch.OutOfMemoryError: CUDA out of memory."
    assert (
        diagnose(PodObservations(a_job(), [failed(0, 1)], said=uncaught)).cause == "CudaOutOfMemory"
    )


@pytest.mark.parametrize(
    "said",
    [
        "RuntimeError: CUDA error: uncorrectable ECC error encountered",
        "NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus.",
        "RuntimeError: No CUDA-capable device is detected",
    ],
)
def test_a_gpu_that_fails_is_left_for_another_node(said):
    words = [said_by(1, 70, said)]
    pods = [failed(0, 71, node="node-1"), failed(1, 70, node="node-2")]
    found = diagnose(PodObservations(a_job(), pods, words=words))
    assert (found.cause, found.then, found.avoid) == ("GpuFault", "lost", "node-2")


def test_a_bug_in_a_kernel_is_no_fault_of_the_gpu():
    word = said_by(0, 70, "CUDA error: device-side assert triggered")
    found = diagnose(PodObservations(a_job(), [failed(0, 70)], words=[word]))
    assert (found.cause, found.then) == ("exit 70", "stop")


def test_nodes_that_lose_each_other_are_left_for_others():
    said = "a line\n[rank0]: torch.distributed.DistBackendError: NCCL error in: x.cpp:77\nanother"
    found = diagnose(
        PodObservations(a_job(), [failed(0, 70, second=5), failed(1, 71, second=6)], said=said)
    )
    assert (found.cause, found.then) == ("NcclFault", "lost")
    assert found.words.startswith("[rank0]")


@pytest.mark.parametrize(
    ("code", "then", "cause"), [(70, "stop", "exit 70"), (137, "again", "SIGKILL")]
)
def test_what_ended_one_rank_is_the_cause_whatever_its_peers_take_it_for(code, then, cause):
    own = said_by(0, code, "IndexError: index 7 is out of bounds")
    peer = said_by(1, 134, "NCCL error: remote process exited or there was a network error")
    pods = [failed(0, code, second=5), failed(1, 134, second=6)]
    found = diagnose(PodObservations(a_job(), pods, words=[own, peer]))
    assert (found.then, found.cause, found.pod) == (then, cause, pods[0].name)


@pytest.mark.parametrize("code", [70, 137])
def test_what_ends_after_a_fault_of_nccl_is_not_its_cause(code):
    lost = said_by(0, 134, "Watchdog caught collective operation timeout", second=5)
    after = said_by(1, code, "", second=6)
    pods = [failed(0, 134, second=5), failed(1, code, second=6)]
    found = diagnose(PodObservations(a_job(), pods, words=[after, lost]))
    assert (found.cause, found.then) == ("NcclFault", "lost")


def test_a_container_that_never_was_is_told_from_a_program_that_ended():
    pods = [failed(0, 128, "StartError", 'exec: "python": executable file not found in $PATH')]
    found = diagnose(PodObservations(a_job(), pods))
    assert (found.cause, found.then) == ("ContainerStart", "stop")


def test_a_deadline_is_told_as_one():
    job = a_job(condition("Failed", "DeadlineExceeded", "Job was active longer than specified"))
    found = diagnose(PodObservations(job, [a_pod(0, terminated(75), deleted=5)]))
    assert (found.cause, found.then) == ("DeadlineExceeded", "stop")


def test_what_nobody_explains_is_tried_again_with_what_is_known():
    job = a_job(condition("Failed", "BackoffLimitExceeded", "it reached the limit"))
    found = diagnose(PodObservations(job, [failed(0, 3)]))
    assert (found.cause, found.then, found.words) == ("Unexplained", "again", "exit code 3")
    assert diagnose(PodObservations(job)).words == "it reached the limit"


# --- the table ------------------------------------------------------------------------------------


def test_a_report_says_what_where_and_what_to_do_and_nothing_that_is_not_known():
    found = of_cause("OOMKilled", "a\n  b", failed(1, 137, "OOMKilled"))
    first, said, remedy = found.report("flights: attempt 2 of session s").splitlines()
    assert first.startswith("flights: attempt 2 of session s stopped: memory ran out")
    assert first.endswith("(flights-train-1a2b-a1-1-x7k2p, on node-1).")
    assert said == "  It said: a b"
    assert remedy.startswith("  What to do: Raise cluster.memory")
    assert len(of_cause("JobDeleted").report("flights").splitlines()) == 2


def test_the_table_in_the_docs_is_the_table():
    lines = (PROJECT / "docs" / "operate.md").read_text().splitlines()
    wanted = [
        f"| {cause} | {line.what} | {NEXT[line.then]} | {line.remedy} |"
        for cause, line in CAUSES.items()
    ]
    assert [line for line in wanted if line not in lines] == []


NEXT = {
    "stop": "it stops",
    "again": "again",
    "lost": "again, at once",
    "unstarted": "again, a few times",
    "no_room": "with fewer nodes, where that is allowed",
    "interrupted": "it waits for you",
}
