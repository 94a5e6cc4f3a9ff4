"""Two homes on one cluster and one store: whose word counts for a score that is there, and that
who slept follows what the other went on with, and ends none of it."""

import base64
import signal
import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from ml_assets.errors import TrainingInterrupted
from ml_assets.launch.kubernetes import runner
from ml_assets.launch.kubernetes.names import selector_of
from ml_assets.launch.kubernetes.resources import batch
from ml_assets.launch.launcher import ScoreJob, TrainJob
from ml_assets.launch.session_folder import SessionFolder
from ml_assets.launch.session_name import program_of
from ml_assets.launch.usage import session_usages
from ml_assets.store.signing import Keys
from ml_assets_tests.launch.kubernetes.sabotage import Saboteur, created, delete, signal_ranks
from ml_assets_tests.launch.kubernetes.stage import ONE_NODE, Stage
from ml_assets_tests.launch.real import STEPS, named
from ml_assets_tests.servers.kubernetes.sample_jobs import until

OURS, THEIRS = (base64.b64encode(bytes([n]) * 32).decode() for n in (1, 2))
pytestmark = [pytest.mark.daemon, pytest.mark.timeout(900)]


def test_a_score_counts_in_a_home_that_trusts_its_key_and_in_no_other(
    tmp_path, cluster, store, undisturbed, monkeypatch
):
    first = Stage(tmp_path / "first", cluster, store).furnish()

    def score(home: Stage) -> str:
        data = home.job().data
        job = ScoreJob("demo", undisturbed[1].model, data, "holdout", cluster=ONE_NODE)
        made = home.launcher().score(job, lambda _: None)
        return made.predictions.sha256

    def jobs() -> list[str]:
        return sorted({call.name[-3:] for call in cluster.server.calls.of("delete", "jobs")})

    monkeypatch.setenv("ML_ASSETS_SIGNING_KEY", OURS)
    scored = score(first)
    assert jobs() == ["-a1"]
    monkeypatch.setenv("ML_ASSETS_SIGNING_KEY", THEIRS)
    with monkeypatch.context() as trusting:
        trusting.setenv("ML_ASSETS_TRUSTED_KEYS", Keys.of(OURS).public)
        assert score(first.other_home(tmp_path / "trusting")) == scored
    assert jobs() == ["-a1"], "it was taken over, and not scored again"
    assert score(first.other_home(tmp_path / "stranger")) == scored
    assert jobs() == ["-a1", "-a2"]
    assert first.left() == []


class Sleeper:
    """Another home that trains the same, and hears nothing from the first checkpoint on until it
    is woken."""

    def __init__(self, home: Stage, wakes: Callable[[], object]) -> None:
        self.home, self._wakes = home, wakes
        self.awake, self.stops = threading.Event(), threading.Event()
        self.result: Any = None
        self.error: Exception | None = None
        self._thread = threading.Thread(target=self._train, daemon=True)

    def __enter__(self) -> "Sleeper":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._thread.join(120)

    @property
    def sleeps(self) -> bool:
        return bool(named(self.home.events, "checkpoint"))

    def job(self) -> TrainJob:
        return self.home.job(cluster=ONE_NODE, processes=1, epochs=12)

    def _train(self) -> None:
        job = self.job()
        launcher, told_to_stop = self.home.launcher(), self._told_to_stop
        try:
            self.result = launcher.train(job, self._hear, told_to_stop)
        except Exception as error:
            self.error = error

    def _told_to_stop(self) -> bool:
        return self.awake.is_set() and self.stops.is_set()

    def _hear(self, event: object) -> None:
        self.home.events.append(event)
        if self.sleeps and not self.awake.is_set():
            until(self._wakes)
            self.awake.set()


def asleep(sleeper, fault):
    def both(stage):
        until(lambda: sleeper.sleeps)
        fault(stage)

    return both


def cleared(stage):
    """The first attempt is being cleared away."""
    return lambda: stage.cluster.server.calls.of("delete", "jobs")


def went_on(stage):
    """The second attempt runs."""
    return lambda: len(created(stage)) == 2


@pytest.mark.parametrize(
    ("fault", "wakes"),
    [(delete(0), went_on), (signal_ranks(signal.SIGKILL), cleared)],
    ids=["after the next attempt began", "while the lost one is cleared away"],
)
def test_who_slept_through_a_loss_follows_the_attempt_that_another_went_on_with(
    stage, tmp_path, fault, wakes
):
    with Sleeper(stage.other_home(tmp_path / "other"), wakes(stage)) as other:
        job = stage.job(cluster=ONE_NODE, processes=1, epochs=12)
        with Saboteur(stage, asleep(other, fault)):
            result = stage.launcher().train(job, stage.events.append)
    assert other.error is None
    both = [(one.attempt, one.step) for one in (result, other.result)]
    assert both == [(2, 2 * STEPS)] * 2
    assert len(created(stage)) == 2, "the second was never deleted"
    lost = [event.lost for event in named(other.home.events, "warning") if event.lost]
    assert lost[-1].cause == "Superseded"
    assert stage.left() == []


def delete_job(stage):
    (job,) = (job for job in stage.api().jobs(selector_of()) if job.name.endswith("-a2"))
    namespace, how = stage.cluster.namespace, {"propagation_policy": "Background"}
    batch(stage.cluster.client()).delete_namespaced_job(job.name, namespace, **how)


def leaves(stage):
    """The second attempt is being cleared away."""

    def second() -> bool:
        jobs = stage.api().jobs(selector_of())
        return any(job.deleting and job.name.endswith("-a2") for job in jobs)

    return second


def over(stage):
    """The second attempt was there, and nothing is left."""
    return lambda: len(created(stage)) == 2 and not stage.left()


@pytest.mark.parametrize(
    ("wakes", "deleted"),
    [(leaves, False), (over, False), (over, True)],
    ids=["while it is stopped", "after it was stopped", "after somebody deleted it"],
)
def test_who_slept_until_the_training_was_stopped_begins_no_attempt(
    stage, tmp_path, monkeypatch, wakes, deleted
):
    monkeypatch.setattr(runner, "_SUCCESSOR_SECONDS", 3.0)
    stop = threading.Event()
    ends = delete_job if deleted else lambda _: stop.set()
    with Sleeper(stage.other_home(tmp_path / "other"), wakes(stage)) as other:
        job = stage.job(cluster=ONE_NODE, processes=1, epochs=12)
        with Saboteur(stage, asleep(other, delete(0)), ends), pytest.raises(TrainingInterrupted):
            stage.launcher().train(job, stage.events.append, stop.is_set)
    assert isinstance(other.error, TrainingInterrupted)
    assert "somebody deleted its Job" in str(other.error)
    assert len(created(stage)) == 2
    assert stage.left() == []


def test_who_slept_until_the_end_has_the_result_and_every_event_and_pays_no_sleep(
    stage, tmp_path, monkeypatch
):
    monkeypatch.setattr(runner, "_SUCCESSOR_SECONDS", 3.0)
    with Sleeper(stage.other_home(tmp_path / "other"), over(stage)) as other:
        job = stage.job(cluster=ONE_NODE, processes=1, epochs=12)
        with Saboteur(stage, asleep(other, delete(0))):
            result = stage.launcher().train(job, stage.events.append)
    assert (other.error, len(created(stage))) == (None, 2)
    both = [(one.attempt, one.step) for one in (result, other.result)]
    assert both == [(2, 2 * STEPS)] * 2
    told, heard = ([e.step for e in named(s.events, "metrics")] for s in (stage, other.home))
    assert heard == told
    here, there = (
        session_usages(SessionFolder(home.folder(job)))[0] for home in (stage, other.home)
    )
    assert here.end == there.end == "lost"
    assert abs((here.held.ended - there.held.ended).total_seconds()) < 8


class Upgraded(Sleeper):
    """It follows the training as one of an older program."""

    def job(self) -> TrainJob:
        until(lambda: self.home.api().jobs(selector_of()))
        job = super().job()
        return replace(job, program=program_of(job))


def test_who_follows_an_older_program_follows_the_attempt_that_another_went_on_with(
    stage, tmp_path
):
    with Upgraded(stage.other_home(tmp_path / "other"), went_on(stage)) as other:
        job = stage.job(cluster=ONE_NODE, processes=1, epochs=12)
        with Saboteur(stage, asleep(other, delete(0))):
            result = stage.launcher().train(job, stage.events.append)
    assert other.error is None
    assert (result.attempt, other.result.attempt, len(created(stage))) == (2, 2, 2)
    assert stage.left() == []


def test_who_is_told_to_stop_ends_no_attempt_that_it_never_followed(stage, tmp_path):
    with Sleeper(stage.other_home(tmp_path / "other"), went_on(stage)) as other:
        other.stops.set()
        job = stage.job(cluster=ONE_NODE, processes=1, epochs=12)
        with Saboteur(stage, asleep(other, delete(0))):
            result = stage.launcher().train(job, stage.events.append)
    assert isinstance(other.error, TrainingInterrupted)
    assert (result.attempt, result.step, len(created(stage))) == (2, 2 * STEPS, 2)
    assert stage.left() == []
