"""What a cluster does to a training: it goes on in the same bits, and nothing is left."""

import signal
import threading
from datetime import UTC, datetime
from pathlib import Path

import pytest

from ml_assets.errors import TrainingInterrupted
from ml_assets.launch import session_name, stall_detection
from ml_assets.launch.events import avoided_nodes
from ml_assets.launch.kubernetes import runner
from ml_assets.launch.kubernetes.names import ATTEMPT_LABEL, selector_of
from ml_assets.launch.kubernetes.resources import batch
from ml_assets.launch.launcher import SanityJob, ScoreJob
from ml_assets.launch.session_folder import SessionFolder
from ml_assets.launch.session_name import train_session
from ml_assets.launch.staging.mirror import SessionMirror
from ml_assets.launch.usage import session_usages
from ml_assets.spec.base import canonical_json
from ml_assets.spec.cluster import ClusterSpec
from ml_assets.spec.training_program import World
from ml_assets.spec.training_program.identity import Program, program_here
from ml_assets.spec.training_program.pod import TerminationMessage, attempt_of, termination_name
from ml_assets.spec.training_progress import TrainingStory
from ml_assets_tests.launch.kubernetes.sabotage import (
    AFTER,
    Saboteur,
    created,
    cut_off,
    delete,
    evict,
    signal_ranks,
    while_jobs_stay,
)
from ml_assets_tests.launch.kubernetes.stage import IMAGE, ONE_NODE, weights
from ml_assets_tests.launch.real import STEPS, by_number, named
from ml_assets_tests.servers.kubernetes.sample_jobs import until


def test_whichever_pod_is_taken_away_the_next_attempt_goes_on_in_the_same_bits(stage, undisturbed):
    job = stage.job()
    with Saboteur(stage, while_jobs_stay(delete(1)), evict(0)):
        result = stage.launcher().train(job, stage.events.append)
    assert (result.attempt, result.step) == (3, STEPS)
    assert weights(result) == weights(undisturbed[1])
    lost = [event.lost for event in named(stage.events, "warning") if event.lost]
    assert [one.cause for one in lost] == ["PodDeleted", "NodeShutdown"]
    assert all(one.goes_on == World(nodes=2) for one in lost)
    assert stage.left() == []
    assert by_number(stage.events) == by_number(stage.told(job)), "who comes later is told the same"


@pytest.mark.daemon
def test_pods_that_run_on_beside_their_successors_change_no_bit(stage, undisturbed):
    job = stage.job()
    with Saboteur(stage, cut_off(1), cut_off(0)):
        result = stage.launcher().train(job, stage.events.append)
    assert (result.attempt, result.step) == (3, STEPS)
    assert weights(result) == weights(undisturbed[1])
    lost = [event.lost for event in named(stage.events, "warning") if event.lost]
    assert [one.cause for one in lost] == ["NodeLost", "NodeLost"]
    assert stage.left() == []


def test_a_killed_run_worker_leaves_the_job_running_and_the_next_one_adopts_it(stage, tmp_path):
    job = stage.job(cluster=ONE_NODE, processes=1, epochs=12)
    worker = stage.launch_elsewhere(epochs=12)
    until(lambda: stage.saves_of(1) >= AFTER or worker.poll() is not None)
    assert worker.poll() is None, worker.communicate()[1]
    (there,) = stage.api().jobs(selector_of())
    worker.kill()
    worker.communicate()
    with stage.cluster.server.faults.api_down():
        until(lambda: stage.saves_of(1) >= 2 * AFTER)
    (still,) = stage.api().jobs(selector_of())
    assert (still.uid, still.deleting) == (there.uid, False)
    result = stage.launcher().train(job, stage.events.append)
    assert (result.attempt, result.step) == (1, 2 * STEPS)
    assert len(created(stage)) == 1, "it was adopted"
    assert stage.left() == []


def test_an_upgrade_in_mid_training_follows_the_older_program_s_job_to_its_end(stage, monkeypatch):
    job = stage.job(cluster=ONE_NODE, processes=1, epochs=12)
    worker = stage.launch_elsewhere(epochs=12)
    until(lambda: stage.saves_of(1) >= 1 or worker.poll() is not None)
    assert worker.poll() is None, worker.communicate()[1]
    worker.kill()
    worker.communicate()
    older, newer = program_here("network"), Program(sources="1" * 64, versions={})
    monkeypatch.setattr(session_name, "program_here", lambda part: newer)
    launcher = stage.launcher()
    found = launcher.under_way(job)
    assert found is not None and found.program == older
    assert train_session(found) != train_session(job)
    result = launcher.train(found, stage.events.append)
    assert (result.session, result.attempt, result.step) == (train_session(found), 1, 2 * STEPS)
    assert len(created(stage)) == 1, "nothing was begun beside it"
    assert stage.left() == []
    assert launcher.under_way(job) is None, "its own turn comes next"
    story = TrainingStory()
    for event in stage.events:
        story.take(event)
    (node,) = story.nodes
    assert (node.program, node.place.image) == (older, IMAGE)
    assert node.place.node and node.place.pod.startswith("demo-train-")


def test_who_is_told_to_stop_ends_it_with_its_steps_saved_and_nothing_left(stage):
    job = stage.job(cluster=ONE_NODE, processes=1, epochs=12)
    stop = threading.Event()
    with (
        Saboteur(stage, lambda _: stop.set()),
        pytest.raises(TrainingInterrupted, match="saved at step"),
    ):
        stage.launcher().train(job, stage.events.append, stop.is_set)
    assert stage.left() == []
    saved = named(stage.events, "checkpoint")[-1].step
    again = []
    result = stage.launcher().train(job, again.append)
    resumed = [event.step for event in named(again, "progress") if "resumed" in event.message]
    assert (result.attempt, resumed) == (2, [saved])


def test_a_job_that_somebody_deletes_is_not_made_again_and_its_machines_are_paid(
    stage, monkeypatch
):
    monkeypatch.setattr(runner, "_SUCCESSOR_SECONDS", 1.0)
    job = stage.job(cluster=ONE_NODE, processes=1, epochs=12)

    def delete_job(stage):
        """As kubectl does: the Job is gone before its pods are."""
        (there,) = stage.api().jobs(selector_of())
        how = {"propagation_policy": "Background"}
        batch(stage.cluster.client()).delete_namespaced_job(
            there.name, stage.cluster.namespace, **how
        )

    with (
        Saboteur(stage, delete_job),
        pytest.raises(TrainingInterrupted, match="somebody deleted its Job"),
    ):
        stage.launcher().train(job, stage.events.append)
    assert len(created(stage)) == 1
    assert stage.left() == []
    (usage,) = session_usages(SessionFolder(stage.folder(job)))
    held = usage.held
    assert held.scheduled is not None and held.created <= held.scheduled < held.ended


@pytest.mark.parametrize("goes_on", [True, False])
def test_an_interrupted_process_leaves_the_job_or_ends_it_as_it_is_told(stage, goes_on):
    class Cancelled(BaseException):
        """As Dagster's interrupt: no Exception."""

    def interrupt(event):
        raise Cancelled

    job = stage.job(cluster=ONE_NODE, processes=1, epochs=12)
    with pytest.raises(Cancelled):
        stage.launcher(goes_on=lambda: goes_on).train(job, interrupt)
    assert bool(stage.left()) is goes_on
    stage.clear()


def test_two_launchers_at_once_run_one_job_and_both_get_its_result(stage, tmp_path):
    other = stage.other_home(tmp_path / "other")
    job, found = stage.job(cluster=ONE_NODE, processes=1), []
    same = other.job(cluster=ONE_NODE, processes=1)

    def run():
        found.append(other.launcher().train(same, other.events.append))

    thread = threading.Thread(target=run)
    thread.start()
    result = stage.launcher().train(job, stage.events.append)
    thread.join()
    assert [(one.attempt, weights(one)) for one in found] == [(1, weights(result))]
    assert len(created(stage)) == 1
    ours, theirs = ([e for e in one.events if e.kind != "placed"] for one in (stage, other))
    assert ours == theirs, "the program told both the same"
    (here,), (there,) = (named(one.events, "placed") for one in (stage, other))
    assert here.places == there.places, "each looks where it runs by itself"
    assert stage.left() == []


@pytest.mark.daemon
def test_ranks_that_stand_still_are_ended_and_the_next_attempt_goes_on(stage, monkeypatch):
    monkeypatch.setattr(stall_detection, "_TIMES_PATIENCE", 1)

    job = stage.job(cluster=ONE_NODE, processes=1, epochs=12, hang_timeout_seconds=10)
    with Saboteur(stage, signal_ranks(signal.SIGSTOP)):
        result = stage.launcher().train(job, stage.events.append)
    assert result.attempt == 2
    assert "no heartbeat or event for" in named(stage.events, "warning")[0].message
    assert stage.left() == []


@pytest.mark.daemon
def test_where_a_node_does_not_come_back_fewer_go_on_and_the_losses_agree(stage, undisturbed):
    server = stage.cluster.server
    server.remove_node("node-1")
    for name in ("small-1", "small-2"):
        server.add_node(name, cpu="1")
    job = stage.job(
        cluster=ClusterSpec(
            nodes=2, cpu="1", memory="2Gi", scratch="1Gi", min_nodes=1, shrink_after_minutes=0.02
        )
    )

    def take_node(stage):
        (pod,) = (pod for pod in stage.api().pods(selector_of()) if pod.index == 1)
        server.cordon(pod.node)
        server.preempt(pod.name)

    with Saboteur(stage, take_node):
        result = stage.launcher().train(job, stage.events.append)
    assert result.step == STEPS
    lost = [event.lost for event in named(stage.events, "warning") if event.lost]
    assert [one.cause for one in lost] == ["Preempted", "Unschedulable"]
    assert (lost[-1].world, lost[-1].goes_on) == (World(nodes=2), World(nodes=1))
    one, two = losses(stage.events), losses(undisturbed[2])
    assert two.keys() <= one.keys(), "it may have been evaluated once more: when it was told to go"
    assert max(abs(one[step] - two[step]) for step in two) < 1e-5
    assert stage.left() == []


def losses(events):
    return {event.step: event.metrics["validation_loss"] for event in named(events, "metrics")}


@pytest.mark.daemon
def test_a_node_whose_gpu_failed_is_left_alone_until_there_is_no_other(stage, tmp_path):
    server, met = stage.cluster.server, []
    server.remove_node("node-1")
    for name in ("small-1", "small-2"):
        server.add_node(name, cpu="1")
    alone = ClusterSpec(cpu="1", memory="2Gi", scratch="1Gi", shrink_after_minutes=0.02)
    job = stage.job(cluster=alone, processes=1)

    def gpu_fails(stage):
        """The pod says so and is gone: no GPU of this machine can be broken."""
        (pod,) = stage.api().pods(selector_of())
        met.append(pod.node)
        word = TerminationMessage(
            session=train_session(job),
            attempt=1,
            index=0,
            host=pod.name,
            code=70,
            reason="NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus.",
            log="",
            time=datetime.now(UTC),
        )
        place = stage.objects.place.at(attempt_of(word.session, 1))
        place.write(termination_name(0), canonical_json(word))
        stage.core.delete_namespaced_pod(pod.name, stage.cluster.namespace, grace_period_seconds=0)

    def drain_the_other(stage):
        (pod,) = stage.api().pods(f"{selector_of()},{ATTEMPT_LABEL}=2")
        met.append(pod.node)
        other = stage.other_home(tmp_path / "other")
        SessionMirror(SessionFolder(other.folder(job)), other.objects).adopt()
        met.append(avoided_nodes(other.told(job)))
        server.cordon(pod.node)
        evict(0)(stage)

    with Saboteur(stage, gpu_fails, drain_the_other):
        result = stage.launcher().train(job, stage.events.append)
    bad, good, known = met
    assert bad != good
    assert known == (bad,), "who takes the session over knows it, too"
    lost = [event.lost for event in named(stage.events, "warning") if event.lost]
    assert [one.cause for one in lost] == ["GpuFault", "NodeShutdown", "Unschedulable"]
    assert [one.node for one in lost] == [bad, good, None]
    assert [one.avoid for one in lost] == [(bad,), (bad,), ()]
    assert (result.attempt, result.step) == (4, STEPS)
    assert stage.left() == []


def test_scores_and_examinations_are_jobs_of_one_pod_and_count_everywhere(stage, tmp_path):
    job = stage.job(cluster=ONE_NODE, processes=1)
    launcher = stage.launcher()
    model = launcher.train(job, stage.events.append).model
    kept = stage.objects.adopt(model, "models", "model.json")
    score = launcher.score(
        ScoreJob("demo", kept, job.data, "holdout", cluster=ONE_NODE), stage.events.append
    )
    assert score.rows == 120
    assert Path(score.predictions.path).name == "predictions.npy"
    examination = SanityJob("demo", job.model, job.training, job.data, ONE_NODE)
    assert launcher.known_sanity(examination) is None
    sanity = launcher.sanity(examination, stage.events.append)
    assert launcher.known_sanity(examination) == sanity
    assert stage.left() == []
    assert len(created(stage)) == 3
