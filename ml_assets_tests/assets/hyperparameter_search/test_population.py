"""A population: its worst take over from its best, and what comes out is a schedule."""

import random
from math import log10
from pathlib import Path
from typing import Any

import pytest

from ml_assets.assets.hyperparameter_search.optuna_study import Proposal, TrainingPart
from ml_assets.assets.hyperparameter_search.page import schedule_table, study_page
from ml_assets.assets.hyperparameter_search.plan import StudyPlan
from ml_assets.errors import TrainingFailed
from ml_assets.launch.launcher import TrainJob
from ml_assets.spec.pipeline import PipelineSpec
from ml_assets.spec.study_record import Study
from ml_assets_tests.assets.hyperparameter_search.curves import Curves, iris_spec, plan_of, studied

RATE = {"training.learning_rate": {"kind": "log_float", "low": 0.0001, "high": 0.1}}


@pytest.fixture(scope="module")
def spec(tmp_path_factory: pytest.TempPathFactory) -> PipelineSpec:
    return iris_spec(tmp_path_factory.mktemp("spec"))


def population(spec: PipelineSpec, **more: Any) -> StudyPlan:
    asked = {"method": "population", "trials": 8, "rounds": 5, "parameters": RATE, **more}
    return plan_of(spec, asked)


class Learns(Curves):
    """A training that really takes over: each round lowers the loss that its weights came with, the
    more the nearer its learning rate is to 0.003."""

    def __init__(self, **more: Any) -> None:
        super().__init__(self._lowered, **more)
        self.came_to: dict[str, float] = {}

    def _lowered(self, job: TrainJob, share: float) -> float:
        begun = self.came_to[job.init.uri] if job.init else 1.0
        away = abs(log10(job.training.learning_rate) - log10(0.003))
        loss = begun - 0.1 * share * (1 - away)
        if share == 1.0:
            self.came_to[f"/nowhere/{self._session(job)}"] = loss
        return loss

    @staticmethod
    def _session(job: TrainJob) -> str:
        from ml_assets.launch.session_name import train_session

        return train_session(job)


def rates(study: Study) -> list[float]:
    return [float(str(one.values["training.learning_rate"])) for one in study.schedule]


def test_a_population_finds_a_known_optimum_and_tells_the_schedule(
    tmp_path: Path, spec: PipelineSpec
) -> None:
    plan = population(spec, trials=16, rounds=6)
    study = studied(plan, Learns(), tmp_path)
    assert len(study.trials) == 1 + 16 * 6
    assert Study.model_validate_json(study.model_dump_json()) == study
    best = study.best
    assert [one.round for one in study.schedule] == [0, 1, 2, 3, 4, 5]
    assert best.loss is not None and best.loss < 0.48, "0.4 is what six rounds at 0.003 come to"
    assert 0.0015 < rates(study)[-1] < 0.006
    table = schedule_table(study, plan.search)
    assert table is not None and [row[0] for row in table.rows] == ["1", "2", "3", "4", "5", "6"]
    page = study_page(study, plan.search, spec)
    assert "The schedule that the best followed" in page and f"trial {best.number}, round 6" in page


def test_the_worst_quarter_takes_over_weights_and_settings_of_the_best(
    tmp_path: Path, spec: PipelineSpec
) -> None:
    study = studied(population(spec), Learns(), tmp_path)
    for number in range(1, 5):
        before = [one for one in study.trials if one.round == number - 1]
        ranked = sorted(before, key=lambda one: one.loss or 0.0)
        ahead, behind = ({one.number for one in part} for part in (ranked[:2], ranked[-2:]))
        now = [one for one in study.trials if one.round == number]
        for member, one in enumerate(now):
            if before[member].number in behind:
                assert one.parent in ahead
            else:
                assert one.parent == before[member].number
                assert one.values == before[member].values


def test_the_same_seed_is_the_same_population_and_another_one_is_not(
    tmp_path: Path, spec: PipelineSpec
) -> None:
    first = studied(population(spec), Learns(), tmp_path / "a")
    again = studied(population(spec), Learns(), tmp_path / "b")
    assert again.trials == first.trials
    other = studied(population(spec, seed=1), Learns(), tmp_path / "c")
    assert rates(other) != rates(first)


def test_a_population_that_is_killed_anywhere_goes_on_from_what_is_whole(
    tmp_path: Path, spec: PipelineSpec
) -> None:
    class Killed(BaseException):
        """As SIGKILL: nothing is caught, nothing is told."""

    draw, kills = random.Random(3), 0

    def before(job: TrainJob, tenth: int) -> None:
        nonlocal kills
        if kills < 20 and draw.random() < 0.05:
            kills += 1
            raise Killed

    launcher, study = Learns(before=before), None
    while study is None:
        try:
            study = studied(population(spec), launcher, tmp_path)
        except Killed:
            continue
    assert kills == 20
    assert len(launcher.trained) == len(set(launcher.trained)) == 41, "none is trained twice"
    assert study.trials == studied(population(spec), Learns(), tmp_path / "whole").trials
    trained = len(launcher.trained)
    assert studied(population(spec), launcher, tmp_path).trials == study.trials
    assert len(launcher.trained) == trained, "asked for again, it trains nothing"


def test_a_member_that_fails_takes_over_and_one_survivor_is_enough(
    tmp_path: Path, spec: PipelineSpec
) -> None:
    def before(job: TrainJob, tenth: int) -> None:
        if job.training.learning_rate > 0.004 and job.salt:
            raise TrainingFailed("the losses are no numbers")

    study = studied(population(spec), Learns(before=before), tmp_path)
    failed = [one for one in study.trials if one.end == "failed"]
    assert any(one.round == 0 for one in failed)
    gone = {one.number for one in failed}
    assert all(one.parent not in gone for one in study.trials)


def test_a_round_is_its_share_of_the_epochs_with_the_weights_of_its_parent(
    spec: PipelineSpec,
) -> None:
    plan = population(spec, rounds=4)
    value = {"training.learning_rate": 0.02}
    jobs = [plan.job(Proposal(8 * n, value, part=TrainingPart(n))) for n in range(4)]
    assert [job.training.epochs for job in jobs] == [8, 8, 7, 7]
    assert len({job.training.seed for job in jobs}) == 4, "rows come in another order each round"
    assert {job.training.schedule for job in jobs} == {"constant"}
    assert [job.training.warmup > 0 for job in jobs] == [True, False, False, False]
    whole = plan.job(Proposal(-1, {"training.learning_rate": 0.01}, own=True))
    assert whole.training.epochs == 30 and whole.training.schedule == "cosine"


def test_a_spent_budget_ends_a_population_between_two_trainings(
    tmp_path: Path, spec: PipelineSpec
) -> None:
    import time

    def before(job: TrainJob, tenth: int) -> None:
        time.sleep(0.01)

    plan = population(spec, budget={"machine_hours": 1 / 3600})
    study = studied(plan, Learns(before=before), tmp_path)
    assert "machine hours is spent" in study.ended
    assert 1 < len(study.finished) < 41
