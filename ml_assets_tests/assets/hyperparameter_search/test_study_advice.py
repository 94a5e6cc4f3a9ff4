"""What a study taught: planted boundaries and ties are told, and nothing is told that is not so."""

from pathlib import Path

import pytest

from ml_assets.assets.hyperparameter_search.page import (
    against_champion,
    at_a_glance,
    study_page,
    time_said,
    trials_table,
)
from ml_assets.assets.hyperparameter_search.study_advice import (
    boundaries,
    isolated,
    luck,
    tied,
    verdict,
)
from ml_assets.reports.inline_pictures import INLINE
from ml_assets.spec.pipeline import PipelineSpec
from ml_assets.spec.records import ChampionComparison, Interval
from ml_assets.spec.study_record import Study
from ml_assets_tests.assets.hyperparameter_search.curves import Curves, Loss, iris_spec, plan_of
from ml_assets_tests.assets.hyperparameter_search.curves import studied as run


@pytest.mark.parametrize(
    ("hours", "said"),
    [(0.0, "0.0 s"), (0.0011, "4.0 s"), (0.01, "36 s"), (0.5, "30.0 min"), (30, "30.0 h")],
)
def test_a_short_trial_has_seconds(hours: float, said: str) -> None:
    assert time_said(hours) == said


@pytest.fixture(scope="module")
def spec(tmp_path_factory: pytest.TempPathFactory) -> PipelineSpec:
    return iris_spec(tmp_path_factory.mktemp("spec"))


def studied(folder: Path, spec: PipelineSpec, loss: Loss, **more: object) -> Study:
    return run(plan_of(spec, {"trials": 16, **more}), Curves(loss), folder)


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory, spec: PipelineSpec) -> Study:
    """Of sixteen trials, whose loss is their learning rate."""
    folder = tmp_path_factory.mktemp("study")
    return studied(folder, spec, lambda job, share: job.training.learning_rate)


def test_a_best_that_lies_on_an_edge_is_told_with_the_range_to_try(
    tmp_path: Path, spec: PipelineSpec
) -> None:
    study = studied(tmp_path, spec, lambda job, share: 1 - job.training.learning_rate, trials=32)
    search = plan_of(spec, {}).search
    (found,) = boundaries(study, search, spec)
    assert found.path == "training.learning_rate"
    assert "upper end of training.learning_rate (0.1): search 0.0001 to 0.562 next" in found.said


def test_a_best_that_lies_inside_is_no_boundary(tmp_path: Path, spec: PipelineSpec) -> None:
    def loss(job: object, share: float) -> float:
        from math import log10

        return abs(log10(job.training.learning_rate) + 2.5) + abs(job.model.width - 32) / 100  # type: ignore[attr-defined]

    study = studied(tmp_path, spec, loss)
    assert boundaries(study, plan_of(spec, {}).search, spec) == ()


def test_the_end_of_a_choice_of_numbers_is_an_edge(tmp_path: Path, spec: PipelineSpec) -> None:
    study = studied(tmp_path, spec, lambda job, share: 1 / job.model.width)
    found = boundaries(study, plan_of(spec, {}).search, spec)
    assert any("add values above it" in one.said for one in found if one.path == "model.width")


def test_a_choice_of_two_has_no_edge(tmp_path: Path, spec: PipelineSpec) -> None:
    widths = {"model.width": {"kind": "choice", "values": [16, 32]}}
    plan = plan_of(spec, {"trials": 4, "parameters": widths})
    study = run(plan, Curves(lambda job, share: 1 / job.model.width), tmp_path)
    assert boundaries(study, plan.search, spec) == ()


def test_an_end_beyond_which_the_field_allows_nothing_is_no_edge(
    tmp_path: Path, spec: PipelineSpec
) -> None:
    ranges = {"model.dropout": {"kind": "float", "low": 0.0, "high": 0.5}}
    plan = plan_of(spec, {"trials": 16, "parameters": ranges})
    study = run(plan, Curves(lambda job, share: job.model.dropout), tmp_path)  # type: ignore[union-attr]
    assert study.best.values["model.dropout"] < 0.05  # type: ignore[operator]
    assert boundaries(study, plan.search, spec) == ()


def test_a_tie_within_the_spread_of_seeds_is_told(tmp_path: Path, spec: PipelineSpec) -> None:
    def loss(job: object, share: float) -> float:
        training = job.training  # type: ignore[attr-defined]
        return 0.5 + 0.1 * training.learning_rate + 0.05 * training.seed

    study = studied(tmp_path, spec, loss, seeds=3)
    margin = luck(study)
    assert margin is not None and margin > 0.1
    assert len(tied(study)) == 17
    said = " ".join(verdict(study))
    assert "Any of these 17 may be the best" in said
    assert "no more than the usual difference between two seeds of one setting (" in said


def test_a_gain_beyond_luck_is_called_one(tmp_path: Path, spec: PipelineSpec) -> None:
    def loss(job: object, share: float) -> float:
        training = job.training  # type: ignore[attr-defined]
        return training.learning_rate + 1e-7 * training.seed

    said = " ".join(verdict(studied(tmp_path, spec, loss, seeds=3)))
    assert "That is more than the usual difference between two seeds of one setting (" in said
    assert "may be the best" not in said


def test_a_spread_that_was_not_measured_is_not_made_up(study: Study) -> None:
    assert luck(study) is None
    assert "was not measured" in " ".join(verdict(study))


def test_a_study_of_which_nothing_was_finished_calls_nothing_best(
    study: Study, spec: PipelineSpec
) -> None:
    own = next(one for one in study.trials if one.own)
    search = plan_of(spec, {}).search
    alone = study.model_copy(update={"trials": (own,), "winner": None, "seeds": ()})
    assert verdict(alone)[0].startswith("No trial was finished but the spec's own setting")
    assert boundaries(alone, search, spec) == ()


def test_a_best_trial_beside_an_own_setting_that_failed_is_compared_with_nothing(
    study: Study,
) -> None:
    ends = [one.model_copy(update={"end": "failed"}) if one.own else one for one in study.trials]
    said = verdict(study.model_copy(update={"trials": tuple(ends)}))
    assert said[0] == (
        "The spec's own setting failed: there is nothing to compare trial"
        f" {study.best.number} with."
    )


def test_a_scientific_value_has_its_best_over_the_nuisance_parameters(
    tmp_path: Path, spec: PipelineSpec
) -> None:
    def loss(job: object, share: float) -> float:
        return job.training.learning_rate + (0.0 if job.model.width == 32 else 1.0)  # type: ignore[attr-defined]

    study = studied(tmp_path, spec, loss)
    found = {one.label: one for one in isolated(study, plan_of(spec, {}).search)["model.width"]}
    assert [*found] == ["8", "32", "64"]
    assert found["32"].best == study.best.loss
    assert found["8"].best > 1 > found["32"].high >= found["32"].best
    assert sum(one.trials for one in found.values()) == 17


@pytest.mark.parametrize(
    ("gain", "spread", "said"),
    [
        (0.5, 0.1, "better. That is more than the usual difference between two seeds of one"),
        (0.1, 0.1, "better. That is no more than the usual difference between two seeds"),
        (0.1, None, "other seeds are not in it): better."),
    ],
)
def test_the_holdout_calls_nothing_better_without_a_word_on_seeds(
    study: Study, gain: float, spread: float | None, said: str
) -> None:
    seeds = () if spread is None else (0.4, 0.4 + spread * 2**0.5)
    apart = Interval(value=-gain, low=-gain - 0.01, high=-gain + 0.01)
    champion = ChampionComparison(
        champion="0" * 64,
        comparable=True,
        reason="",
        loss="log-loss",
        loss_difference=apart,
        metrics={},
    )
    told = against_champion(champion, apart, study.model_copy(update={"seeds": seeds}))
    assert said in told


def test_a_trial_that_was_stopped_early_is_not_ranked_with_those_that_finished(
    study: Study, spec: PipelineSpec
) -> None:
    search = plan_of(spec, {}).search
    *rest, last = study.trials
    assert trials_table(
        study.model_copy(update={"trials": tuple(study.finished)}), search
    ).words == ("The best first.")
    cut = last.model_copy(update={"end": "pruned", "loss": 0.0})
    told = trials_table(study.model_copy(update={"trials": (*rest, cut)}), search)
    assert "then those that were stopped early" in told.words
    ends = [row[-3] for row in told.rows]
    assert ends == sorted(ends), "those that finished stand above"


def test_the_page_loads_nothing_and_escapes_what_it_shows(study: Study, spec: PipelineSpec) -> None:
    small = at_a_glance(study)
    assert small.startswith("validation loss, lower is better") and len(small) < INLINE
    evil = study.model_copy(update={"ended": "<script>alert(1)</script>"})
    html = study_page(evil, plan_of(spec, {}).search, spec)
    assert "<script>" not in html
    assert "http" not in html.replace("http-equiv", "")
    for title in ("What model.width does", "What matters", "How they learned", "Where trials went"):
        assert title in html
