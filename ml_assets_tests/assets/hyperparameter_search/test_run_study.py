"""The loop of a study: side by side, pruned, within its budget, and never twice."""

import random
import time
from dataclasses import replace
from math import log10
from pathlib import Path

import pytest

from ml_assets.assets.hyperparameter_search.optuna_study import Proposal
from ml_assets.assets.hyperparameter_search.page import study_page
from ml_assets.assets.hyperparameter_search.study_advice import verdict
from ml_assets.errors import StoreAway, TrainingFailed, TrainingHindered, TrainingInterrupted
from ml_assets.launch.launcher import OnEvent, ShouldStop, TrainJob, never
from ml_assets.launch.session_name import train_session
from ml_assets.spec.pipeline import PipelineSpec
from ml_assets.spec.training_program import TrainResult, World
from ml_assets_tests.assets.hyperparameter_search.curves import (
    TENTHS,
    Curves,
    iris_spec,
    plan_of,
    studied,
)
from ml_assets_tests.servers.postgres import postgres


@pytest.fixture(scope="module")
def spec(tmp_path_factory: pytest.TempPathFactory) -> PipelineSpec:
    return iris_spec(tmp_path_factory.mktemp("spec"))


def by_rate(job: TrainJob, share: float) -> float:
    """Best at a learning rate of 0.003; known from the first tenth on."""
    return 0.2 + abs(log10(job.training.learning_rate) - log10(0.003)) + 0.1 * (1 - share)


def test_a_study_finds_the_best_and_says_why_it_ends(tmp_path: Path, spec: PipelineSpec) -> None:
    said: list[str] = []
    study = studied(plan_of(spec, {}), Curves(by_rate), tmp_path, said)
    assert len(study.trials) == 9  # eight, and the spec's own setting
    assert len({one.session for one in study.trials}) == 9
    assert study.winner == study.best.number
    assert study.best.loss == min(one.loss or 9 for one in study.trials)
    assert study.own.values == {"training.learning_rate": 0.01, "model.width": 32}
    assert study.ended == "8 trials were asked for"
    assert any("the best so far" in line for line in said)
    assert [line.rpartition(" (")[2] for line in said] == [f"{n} of 9)" for n in range(1, 10)]


@pytest.mark.parametrize("metric", ["validation_accuracy", "validation_brier"])
def test_trials_are_judged_by_the_metric_that_is_asked_for(
    tmp_path: Path, spec: PipelineSpec, metric: str
) -> None:
    def right(job: TrainJob, share: float) -> float:
        missed = min(0.9, by_rate(job, share) / 4)
        return 1 - missed if metric == "validation_accuracy" else missed

    prune = {"prune": {"kind": "successive_halving", "min_share": 0.1}, "trials": 16}
    plan, said = plan_of(spec, {"metric": metric, **prune}, parallel=1), list[str]()
    study = studied(plan, Curves(right, metric=metric), tmp_path, said, patient=True)
    jobs = {one.number: plan.job(Proposal(one.number, one.values, one.own)) for one in study.trials}
    best = min(jobs, key=lambda number: by_rate(jobs[number], 1.0))
    assert study.best.number == best
    assert study.best.loss == pytest.approx(by_rate(jobs[best], 1.0) / 4)
    assert any(one.end == "pruned" for one in study.trials)
    name = "1 - validation accuracy" if metric == "validation_accuracy" else "validation brier"
    assert study.judged_by == name and any(f"{name} 0." in line for line in said)
    page = study_page(study, plan.search, spec)
    assert name in page and "validation loss" not in page


def test_a_metric_that_no_training_tells_fails_its_trials_and_says_why(
    tmp_path: Path, spec: PipelineSpec
) -> None:
    plan = plan_of(spec, {"metric": "validation_auc"})
    with pytest.raises(TrainingFailed, match=r"reported no validation_auc for step 10.*one class"):
        studied(plan, Curves(by_rate), tmp_path)


def test_trials_run_side_by_side(tmp_path: Path, spec: PipelineSpec) -> None:
    import threading

    both = threading.Barrier(3, timeout=60)

    def before(job: TrainJob, tenth: int) -> None:
        if tenth == 1:
            both.wait()  # passes only where three have begun

    launcher = Curves(by_rate, before=before)
    studied(plan_of(spec, {"trials": 5}, parallel=3), launcher, tmp_path)
    assert launcher.at_once == 3


def test_the_same_study_trains_nothing_again(tmp_path: Path, spec: PipelineSpec) -> None:
    launcher, plan = Curves(by_rate), plan_of(spec, {})
    first = studied(plan, launcher, tmp_path)
    trained = len(launcher.trained)
    second = studied(plan, launcher, tmp_path)
    assert len(launcher.trained) == trained == 9
    assert second.trials == first.trials


def test_more_trials_go_on_with_the_study(tmp_path: Path, spec: PipelineSpec) -> None:
    launcher = Curves(by_rate)
    few = studied(plan_of(spec, {"trials": 4}), launcher, tmp_path)
    more = studied(plan_of(spec, {"trials": 8}), launcher, tmp_path)
    assert more.trials[: len(few.trials)] == few.trials
    assert len(launcher.trained) == len(set(launcher.trained)) == 9


def test_a_study_that_is_killed_anywhere_goes_on_from_what_is_whole(
    tmp_path: Path, spec: PipelineSpec
) -> None:
    class Killed(BaseException):
        """As SIGKILL: nothing is caught, nothing is told."""

    draw, plan = random.Random(7), plan_of(spec, {"trials": 12})
    moments = [draw.randint(1, 4 * TENTHS) for _ in range(20)]  # tenths until each kill
    kills = 0

    def before(job: TrainJob, tenth: int) -> None:
        if kills < len(moments):
            moments[kills] -= 1
            if moments[kills] <= 0:
                raise Killed

    launcher, study = Curves(by_rate, before=before), None
    while study is None:
        try:
            study = studied(plan, launcher, tmp_path)
        except Killed:
            kills += 1
    assert kills > 3
    assert len([one for one in study.trials if one.end == "finished"]) == 13
    assert len(launcher.trained) == len(set(launcher.trained)) == 13


@pytest.mark.daemon
def test_a_study_whose_connections_are_killed_goes_on_from_what_is_whole(
    tmp_path: Path, spec: PipelineSpec
) -> None:
    import psycopg

    draw, kills, broken = random.Random(20), 0, 0
    plan = plan_of(spec, {"trials": 12, "prune": {"kind": "median", "min_share": 0.9}})
    with postgres() as place:
        admin = psycopg.connect(place.replace("+psycopg", ""), autocommit=True)

        def before(job: TrainJob, tenth: int) -> None:
            nonlocal kills
            if kills < 20 and draw.random() < 0.3:
                kills += 1
                admin.execute(
                    "select pg_terminate_backend(pid) from pg_stat_activity"
                    " where backend_type = 'client backend' and pid <> pg_backend_pid()"
                )

        launcher, study = Curves(by_rate, before=before), None
        while study is None:
            try:
                study = studied(plan, launcher, tmp_path, place=place)
            except StoreAway as error:
                assert "was lost during a study" in str(error)
                broken += 1
        admin.close()
    assert kills == 20
    over = [one for one in study.trials if one.end in ("finished", "pruned")]
    assert len(over) == 13
    assert len(launcher.trained) == len(set(launcher.trained))


@pytest.mark.parametrize("epochs", [0.05, pytest.param(1.0, marks=pytest.mark.daemon)])
def test_a_trial_without_prospect_is_told_to_stop_and_counts_as_pruned(
    tmp_path: Path, spec: PipelineSpec, epochs: float
) -> None:
    """Also where max_steps ends a training in its first epochs."""
    if epochs < 1:
        training = spec.training.model_copy(update={"max_steps": TENTHS})
        spec = spec.model_copy(update={"training": training})
    pruned = {"trials": 24, "prune": {"kind": "successive_halving", "min_share": 0.1}}
    whole, cut = Curves(by_rate, epochs=epochs), Curves(by_rate, epochs=epochs)
    every = studied(plan_of(spec, {"trials": 24}), whole, tmp_path / "whole")
    some = studied(plan_of(spec, pruned, parallel=1), cut, tmp_path / "cut", patient=True)
    assert some.best.values == every.best.values
    assert cut.steps < 0.6 * whole.steps
    ended = [one for one in some.trials if one.end == "pruned"]
    assert ended
    assert all(one.curve and one.curve[-1][0] < 1 for one in ended)
    assert some.own.end == "finished" and some.own.curve[-1][0] == 1


def test_the_memory_of_what_was_pruned_survives(tmp_path: Path, spec: PipelineSpec) -> None:
    plan = plan_of(spec, {"prune": {"kind": "successive_halving", "min_share": 0.1}}, parallel=1)
    launcher = Curves(by_rate)
    first = studied(plan, launcher, tmp_path, patient=True)
    assert any(one.end == "pruned" for one in first.trials)
    steps = launcher.steps
    second = studied(plan, launcher, tmp_path)
    assert [one.end for one in second.trials] == [one.end for one in first.trials]
    assert launcher.steps == steps


def test_a_trial_that_fails_is_no_end_of_the_study(tmp_path: Path, spec: PipelineSpec) -> None:
    def before(job: TrainJob, tenth: int) -> None:
        if job.model.width == 8:
            raise TrainingFailed("the losses are no numbers")

    plan, launcher = plan_of(spec, {}), Curves(by_rate, before=before)
    study = studied(plan, launcher, tmp_path)
    failed = [one for one in study.trials if one.end == "failed"]
    assert failed and all(one.values["model.width"] == 8 for one in failed)
    assert all("no numbers" in one.reason for one in failed)
    assert study.best.end == "finished"
    again = studied(plan, launcher, tmp_path)
    assert [one.number for one in again.trials if one.end == "failed"] == [
        one.number for one in failed
    ]


def test_where_every_trial_fails_the_study_does(tmp_path: Path, spec: PipelineSpec) -> None:
    def before(job: TrainJob, tenth: int) -> None:
        raise TrainingFailed("no memory")

    with pytest.raises(TrainingFailed, match="no trial came to a result"):
        studied(plan_of(spec, {}), Curves(by_rate, before=before), tmp_path)


@pytest.mark.parametrize(
    "error", [StoreAway("the store does not answer"), TrainingHindered("the disk is full")]
)
def test_a_store_that_is_away_or_full_ends_the_study_and_blames_no_trial(
    tmp_path: Path, spec: PipelineSpec, error: Exception
) -> None:
    away = True

    def before(job: TrainJob, tenth: int) -> None:
        if away and job.training.learning_rate != 0.01:
            raise error

    launcher, plan = Curves(by_rate, before=before), plan_of(spec, {})
    with pytest.raises(type(error), match=str(error)):
        studied(plan, launcher, tmp_path)
    away = False
    assert all(one.end == "finished" for one in studied(plan, launcher, tmp_path).trials)


def test_a_memory_that_claims_a_result_is_not_believed(tmp_path: Path, spec: PipelineSpec) -> None:
    plan, launcher = plan_of(spec, {}), Curves(by_rate)
    honest = studied(plan, launcher, tmp_path)
    other = Curves(lambda job, share: 1.0 if share < 1 else by_rate(job, share))
    again = studied(plan, other, tmp_path)  # the sessions are gone, the memory is there
    assert len(other.trained) == 9, "what no session vouches for is trained"
    assert again.best.loss == honest.best.loss


def test_a_spent_budget_stops_what_runs_and_a_greater_one_goes_on(
    tmp_path: Path, spec: PipelineSpec
) -> None:
    def before(job: TrainJob, tenth: int) -> None:
        time.sleep(0.02)  # a second of the study is 3,600th of an hour

    launcher = Curves(by_rate, before=before)
    small = plan_of(spec, {"trials": 40, "budget": {"machine_hours": 1e-9}}, parallel=1)
    with pytest.raises(TrainingFailed, match="machine hours is spent, and no trial was finished"):
        studied(small, launcher, tmp_path)
    assert not launcher.trained
    whole = studied(
        plan_of(spec, {"trials": 3, "budget": {"machine_hours": 1}}), launcher, tmp_path
    )
    assert all(one.end == "finished" for one in whole.trials)


def test_a_budget_that_stops_the_own_setting_leaves_no_winner(
    tmp_path: Path, spec: PipelineSpec
) -> None:
    class Slow(Curves):
        """The spec's own setting is the best, and never ends."""

        def world(self, job: TrainJob) -> World:
            return World(nodes=10**9 if self.trained else 1)  # a trial is done: all is spent

        def train(
            self, job: TrainJob, on_event: OnEvent, should_stop: ShouldStop = never
        ) -> TrainResult:
            if job.training.learning_rate != spec.training.learning_rate:
                return super().train(job, on_event, should_stop)
            on_event(self._event(job, train_session(job), 1))
            while not should_stop():
                time.sleep(0.001)
            raise TrainingInterrupted("it was told to stop")

    def loss(job: TrainJob, share: float) -> float:
        return 0.1 if job.training.learning_rate == spec.training.learning_rate else 0.9

    plan = plan_of(spec, {"trials": 3, "budget": {"machine_hours": 1}})
    study = studied(plan, Slow(loss), tmp_path)
    assert (study.own.end, study.own.loss) == ("stopped", 0.1)
    assert study.finished and study.winner is None
    assert verdict(study)[0].startswith("The budget was spent before the spec's own setting")


def test_the_wait_for_a_cluster_s_machines_spends_no_budget(
    tmp_path: Path, spec: PipelineSpec
) -> None:
    queued = Curves(by_rate, before=lambda job, tenth: time.sleep(0.02))  # nothing is placed
    asked = {"trials": 3, "budget": {"machine_hours": 0.1 / 3600}}
    plan = replace(plan_of(spec, asked), processes=None)
    assert studied(plan, queued, tmp_path / "waits").ended == "3 trials were asked for"
    placed = Curves(by_rate, before=lambda job, tenth: time.sleep(0.5), placed=True)
    with pytest.raises(TrainingFailed, match="machine hours is spent"):
        studied(plan, placed, tmp_path / "runs")


def test_other_seeds_are_of_the_best_setting_alone(tmp_path: Path, spec: PipelineSpec) -> None:
    jobs: dict[str, TrainJob] = {}

    def before(job: TrainJob, tenth: int) -> None:
        jobs[train_session(job)] = job

    def loss(job: TrainJob, share: float) -> float:
        return by_rate(job, share) + 0.001 * job.training.seed

    plan = plan_of(spec, {"seeds": 4})
    study = studied(plan, Curves(loss, before=before), tmp_path)
    others = [job for job in jobs.values() if job.training.seed != 0]
    assert {job.training.seed for job in others} == {1, 2, 3}
    rates = {job.training.learning_rate for job in others}
    assert rates == {study.best.values["training.learning_rate"]}
    assert len(study.seeds) == 4


def test_trials_wait_in_the_queue_of_the_search(spec: PipelineSpec) -> None:
    queued = plan_of(spec, {"queue": "searches", "queue_priority": "low"})
    own = Proposal(0, queued.search.own(spec), own=True)
    other = Proposal(1, {"training.learning_rate": 0.02, "model.width": 8})
    for job in (queued.job(own), queued.job(other), queued.job(own, seed=3)):
        assert (job.cluster.queue, job.cluster.queue_priority) == ("searches", "low")
    plain = plan_of(spec, {})
    assert plain.job(other).cluster == spec.cluster
    assert train_session(plain.job(other)) == train_session(queued.job(other))


def test_the_name_of_a_study_is_a_digest_of_what_decides_it(spec: PipelineSpec) -> None:
    name = plan_of(spec, {}).name
    same = (
        {"trials": 20},
        {"parallel": 7},
        {"budget": {"gpu_hours": 1}},
        {"adopt": True},
        {"queue": "searches"},
        {"after_refusals": 2},
    )
    assert {plan_of(spec, more).name for more in same} == {name}
    narrow = {"training.learning_rate": {"kind": "log_float", "low": 0.001, "high": 0.1}}
    other = (
        {"method": "random"},
        {"seed": 1},
        {"parameters": narrow},
        {"prune": {"kind": "median"}},
        {"metric": "validation_brier"},
    )
    assert len({plan_of(spec, more).name for more in other} | {name}) == 6
