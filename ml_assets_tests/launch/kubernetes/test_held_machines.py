"""How long an attempt held how many machines, as its pods and its events tell."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

from ml_assets.launch.kubernetes.diagnosis import PodObservations, held_by
from ml_assets.launch.kubernetes.manifest import JobOrder, job_manifest
from ml_assets.launch.kubernetes.observations import JobState, PodState
from ml_assets.spec.cluster import ClusterSpec
from ml_assets.spec.training_program import World
from ml_assets.spec.training_program.events import Progress, Warning
from ml_assets.spec.training_program.pod import TerminationMessage
from ml_assets_tests.launch.kubernetes.orders import WHOLE

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
JOB = JobState("job", "1", {}, "", 4, False, False, (), CREATED)


def pod(index, scheduled, started):
    def moment(seconds):
        return None if seconds is None else CREATED + timedelta(seconds=seconds)

    state = PodState(
        name=f"job-{index}",
        uid=str(index),
        job="job",
        index=index,
        phase="Pending",
        reason="",
        message="",
        node=None,
        deleting=False,
        unscheduled=None,
        disrupted=None,
        waiting=None,
        ended=None,
        scheduled=moment(scheduled),
        started=moment(started),
    )
    return state


def held(pods, words=(), order=ORDER):
    return held_by(order, PodObservations(JOB, pods, words=words, spot=True), "spot", ())


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
    found = held([pod(n, 10 + n, 30 + n) for n in range(4)], [word(0, 70), word(3, 50)])
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


def test_a_job_that_is_gone_held_its_machines_from_the_first_pod_on():
    gone = PodObservations(None, [pod(n, 10 + n, 30 + n) for n in range(4)])
    found = held_by(ORDER, gone, "spot", ())
    assert found.created == found.scheduled == CREATED + timedelta(seconds=10)
    assert found.started == CREATED + timedelta(seconds=33)
    assert held_by(ORDER, PodObservations(None), "spot", ()).scheduled is None


def told(kind, seconds):
    time = CREATED + timedelta(seconds=seconds)
    return kind(session=ORDER.session, attempt=1, seq=0, time=time, **WORDS[kind])


WORDS = {Progress: {"step": 1, "steps": 9, "message": ""}, Warning: {"message": "from here"}}


def test_a_job_that_was_gone_for_days_held_its_machines_until_it_was_last_heard_of():
    pods = [pod(n, 10, 30) for n in range(4)]
    deleted = replace(pods[0], deleted=CREATED + timedelta(seconds=90))
    words = [word(0, 0).model_copy(update={"time": CREATED + timedelta(seconds=95)})]
    early, late, ours = told(Progress, 80), told(Progress, 99), told(Warning, 3 * 86400)
    for seen, events, seconds in (
        (PodObservations(None, pods), (early, ours), 80),
        (PodObservations(None, [deleted, *pods[1:]]), (early, ours), 90),
        (PodObservations(None, [deleted, *pods[1:]], words=words), (early, ours), 95),
        (PodObservations(None, [deleted, *pods[1:]], words=words), (early, late, ours), 99),
    ):
        found = held_by(ORDER, seen, "spot", events)
        assert found.ended == CREATED + timedelta(seconds=seconds)
    assert held_by(ORDER, PodObservations(None, pods), "spot", (ours,)).ended > ours.time
    assert held(pods).ended > ours.time, "its Job is still there"


def test_an_attempt_with_fewer_processes_held_as_many_gpus_as_it_asked_for():
    session = "demo-train-0123456789abcdef0123"
    halved = replace(ORDER, session=session, world=World(nodes=4, procs=4))
    found = held([pod(n, 10, 30) for n in range(4)], order=halved)
    (container,) = job_manifest(halved, WHOLE)["spec"]["template"]["spec"]["containers"]
    assert container["resources"]["requests"]["nvidia.com/gpu"] == str(found.gpus_per_node) == "4"


def test_a_score_on_machines_with_gpus_held_none_of_them():
    assert held([pod(0, 1, 2)], order=replace(ORDER, verb="score")).gpus_per_node == 0
