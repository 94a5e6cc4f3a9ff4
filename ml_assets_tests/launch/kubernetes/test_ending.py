"""What an attempt held is told by its pods: no machine that none of them got."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

from ml_assets.launch.kubernetes.ending import PodEvidence, held_by
from ml_assets.launch.kubernetes.following import Over
from ml_assets.launch.kubernetes.manifest import JobOrder
from ml_assets.launch.kubernetes.observations import JobState, PodState
from ml_assets.spec.cluster import ClusterSpec
from ml_assets.spec.program import World
from ml_assets.spec.program.pod import TerminationMessage

CREATED = datetime(2026, 1, 5, tzinfo=UTC)
ORDER = JobOrder(
    pipeline="demo",
    session="demo-train-0",
    attempt=1,
    verb="train",
    world=World(nodes=4, procs=8),
    cluster=ClusterSpec(nodes=4, gpus_per_node=8),
    spot=True,
    request="s3://store/request.json",
    grace_seconds=60,
)
JOB = JobState("job", "1", {}, "", 4, False, False, 0, 0, 0, 0, (), CREATED, CREATED)


def pod(index, scheduled, started):
    def moment(seconds):
        return None if seconds is None else CREATED + timedelta(seconds=seconds)

    state = PodState(
        name=f"job-{index}",
        uid=str(index),
        job="job",
        index=index,
        labels={},
        phase="Pending",
        reason="",
        message="",
        node=None,
        ready=False,
        deleting=False,
        unscheduled=None,
        disrupted=None,
        waiting=None,
        ended=None,
        created=CREATED,
        scheduled=moment(scheduled),
        started=moment(started),
    )
    return state


def held(pods, words=None, order=ORDER):
    return held_by(order, PodEvidence(Over(JOB, tuple(pods)), words or {}, (), (), True), "spot")


def word(index, staged):
    return TerminationMessage(
        session="demo-train-0",
        attempt=1,
        index=index,
        host=f"job-{index}",
        code=0,
        reason="done",
        log="",
        staged_bytes=staged,
        time=CREATED,
    )


def test_machines_are_held_from_the_first_pod_that_got_one_and_start_with_the_last():
    found = held([pod(n, 10 + n, 30 + n) for n in range(4)], {0: word(0, 70), 3: word(3, 50)})
    assert (found.nodes, found.gpus_per_node, found.price_class) == (4, 8, "spot")
    assert found.scheduled == CREATED + timedelta(seconds=10)
    assert found.started == CREATED + timedelta(seconds=33)
    assert found.staged_bytes == 120


def test_what_some_pods_never_got_nobody_held():
    found = held([pod(0, 10, 30), pod(1, 12, None), pod(2, None, None), pod(3, None, None)])
    assert (found.nodes, found.started) == (2, None)
    assert held([pod(n, None, None) for n in range(4)]).scheduled is None


def test_a_pod_that_was_replaced_is_no_machine_more():
    lost = replace(pod(0, 5, 20), gone=True)
    assert held([lost, *(pod(n, 10, 30) for n in range(4))]).nodes == 4


def test_a_score_on_machines_with_gpus_held_none_of_them():
    assert held([pod(0, 1, 2)], order=replace(ORDER, verb="score")).gpus_per_node == 0
