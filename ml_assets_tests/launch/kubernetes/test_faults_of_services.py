"""An API server, a registry or a store that is away or refuses: nothing is left, and it is told."""

import threading

import pytest

from ml_assets.errors import ClusterAway, ClusterRefused, TrainingFailed, TrainingInterrupted
from ml_assets.launch.kubernetes import informer, runner
from ml_assets.launch.kubernetes.names import selector_of
from ml_assets_tests.launch.kubernetes.sabotage import Saboteur, created
from ml_assets_tests.launch.kubernetes.stage import ONE_NODE, TWO_NODES
from ml_assets_tests.launch.real import STEPS, named
from ml_assets_tests.servers.kubernetes.sample_jobs import until


def test_while_the_cluster_does_not_answer_the_training_goes_on(stage):
    job = stage.job(cluster=ONE_NODE, processes=1)

    def cut(stage):
        with stage.cluster.server.faults.api_down():
            until(lambda: stage.put("/result.json"))

    with Saboteur(stage, cut):
        result = stage.launcher().train(job, stage.events.append)
    assert (result.attempt, result.step) == (1, STEPS)
    assert stage.left() == []


def test_a_cluster_that_no_longer_lets_us_see_costs_the_follower_and_not_the_job(
    stage, monkeypatch
):
    monkeypatch.setattr(informer, "REFUSED_SECONDS", 0.0)
    server = stage.cluster.server
    server.images.failing[stage.settings.image] = "i/o timeout"  # it never begins to run

    def forbid():
        until(lambda: named(stage.events, "warning"))  # it waits for its image, and is followed
        for verb in ("watch", "list"):
            server.faults.refuse(403, times=10**6, verb=verb)
        server.faults.drop_watches()

    thread = threading.Thread(target=forbid)
    thread.start()
    with pytest.raises(ClusterAway, match="What runs in the cluster continues"):
        stage.launcher().train(stage.job(cluster=ONE_NODE, processes=1), stage.events.append)
    thread.join()
    server.faults.clear()
    assert [job.deleting for job in stage.api().jobs(selector_of())] == [False]
    stage.clear()


@pytest.mark.daemon
def test_what_cannot_be_cleared_away_costs_no_result(stage):
    faults = stage.cluster.server.faults
    faults.refuse(403, times=2, verb="delete", resource="jobs")
    job = stage.job(cluster=ONE_NODE, processes=1)
    result = stage.launcher().train(job, stage.events.append)
    assert (result.attempt, result.step) == (1, STEPS)
    (warned,) = named(stage.events, "warning")
    assert "Some objects of this session could not be deleted" in warned.message
    assert len(stage.left()) == 2, "the Job and its pod, until somebody may"
    stage.clear()


def test_an_image_that_cannot_be_pulled_is_one_message_and_leaves_nothing(stage):
    stage.cluster.server.images.failing[stage.settings.image] = "manifest unknown"
    job = stage.job(cluster=ONE_NODE, processes=1)
    with pytest.raises(TrainingFailed, match="ML_ASSETS_TRAINING_IMAGE"):
        stage.launcher().train(job, stage.events.append)
    assert stage.left() == []


WITH_GPUS = TWO_NODES.model_copy(update={"gpus_per_node": 1, "deadline_hours": 1.0})


@pytest.mark.parametrize(
    ("error", "words"),
    [(TrainingInterrupted, "told to stop"), (TrainingFailed, "cluster.deadline_hours")],
    ids=["cancelled", "its time is over"],
)
def test_whoever_ends_it_no_pod_service_or_gpu_is_left(stage, error, words):
    server = stage.cluster.server
    server.images.failing[stage.settings.image] = "i/o timeout"  # they hold, and wait

    def holds():
        given = [pod for pod in server.pods() if pod["spec"].get("nodeName")]
        return len(given) == 2 and bool(server.calls.of("create", "services"))

    def over():
        if holds() and error is TrainingFailed:
            server.clock.advance(3601)
        return holds() and error is TrainingInterrupted

    with pytest.raises(error, match=words):
        stage.launcher().train(stage.job(cluster=WITH_GPUS), stage.events.append, over)
    assert stage.left() == []


def test_who_is_told_to_stop_while_the_store_never_answers_leaves_nothing_either(
    stage, monkeypatch
):
    monkeypatch.setattr(runner, "_HASTY_SECONDS", 0.5)
    server, faults = stage.cluster.server, stage.store.faults
    faults.held = threading.Event()
    server.images.failing[stage.settings.image] = "i/o timeout"

    def told():
        if server.pods():
            faults.failing = -1
        return faults.failing == -1

    with pytest.raises(TrainingInterrupted):
        stage.launcher().train(stage.job(cluster=ONE_NODE, processes=1), stage.events.append, told)
    assert stage.left() == []
    faults.held.set()


def test_a_pod_that_is_lost_while_the_store_is_away_is_followed_by_another_attempt(stage):
    server, faults = stage.cluster.server, stage.store.faults
    server.images.failing[stage.settings.image] = "i/o timeout"

    def told():
        if len(created(stage)) == 1 and server.pods() and faults.failing == 0 and not waited():
            faults.failing = -1
            name, namespace = stage.pod(0), stage.cluster.namespace
            stage.core.delete_namespaced_pod(name, namespace, grace_period_seconds=0)
        return len(created(stage)) == 2

    def waited():
        return [e for e in named(stage.events, "warning") if "asked again" in e.message]

    def hear(event):
        stage.events.append(event)
        if waited():
            faults.failing = 0

    with pytest.raises(TrainingInterrupted):
        stage.launcher().train(stage.job(cluster=ONE_NODE, processes=1), hear, told)
    lost = [event.lost for event in named(stage.events, "warning") if event.lost]
    assert [one.cause for one in lost] == ["PodDeleted"]
    assert waited() and stage.left() == []


def test_a_forbidden_verb_is_one_message_and_leaves_nothing(stage):
    stage.cluster.server.faults.refuse(403, times=9, verb="create", resource="jobs")
    job = stage.job(cluster=ONE_NODE, processes=1)
    with pytest.raises(ClusterRefused, match="has no right to do that"):
        stage.launcher().train(job, stage.events.append)
    assert stage.left() == []
