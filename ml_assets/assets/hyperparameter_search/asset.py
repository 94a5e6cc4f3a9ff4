"""hyperparameter_search: one study of better settings for the spec, and its winner."""

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

import dagster as dg

from ml_assets.adapters.declare_asset import asset_key, journaled, stage_asset
from ml_assets.adapters.executor import launches_jobs
from ml_assets.adapters.metadata import address as link
from ml_assets.adapters.metadata import glance, numbers, pictures, record_metadata
from ml_assets.adapters.resources import LauncherResource, StoresResource
from ml_assets.adapters.step import AssetStep
from ml_assets.assets.trained_model.checks import require_sane
from ml_assets.errors import SettingsError, SpecError, counted
from ml_assets.graph.code_version import code_version_of
from ml_assets.graph.inputs import require_record
from ml_assets.graph.publish import Draft, Work, input_version
from ml_assets.records.run_record import RunInput, run_input
from ml_assets.records.tracking.links import Links
from ml_assets.spec.base import canonical_json, digest_of
from ml_assets.spec.records import StageRecord
from ml_assets.spec.stages import SEARCH_STAGE
from ml_assets.spec.study_record import STUDY_FILE, Study, Trial
from ml_assets.store.pipeline_context import Pipeline

if TYPE_CHECKING:
    from ml_assets.assets.hyperparameter_search.plan import StudyPlan
    from ml_assets.assets.hyperparameter_search.run_study import Running
    from ml_assets.assets.trained_model.initial_weights import Given
    from ml_assets.launch.launcher import Launcher

ON_A_CLUSTER = 4
"""Trials side by side, where the search does not say."""


def hyperparameter_search(declared: Pipeline) -> dg.AssetsDefinition:
    """The hyperparameter_search asset of a pipeline that has a search."""

    @stage_asset(
        declared,
        SEARCH_STAGE,
        description="Trainings by other settings of the spec, side by side, judged by the "
        "validation split; the best one, and what was learned. Made on request.",
        kinds={"optuna", "mlflow"},
        deps=[asset_key(declared, "training_set")],
    )
    @journaled(declared, SEARCH_STAGE)
    def materialize(
        context: dg.AssetExecutionContext, stores: StoresResource, launcher: LauncherResource
    ) -> dg.MaterializeResult:
        from ml_assets.assets.hyperparameter_search.page import (
            asset_pictures,
            at_a_glance,
            write_study_page,
        )
        from ml_assets.assets.trained_model.initial_weights import given_models
        from ml_assets.assets.trained_model.training_job import data_ref

        pipeline = stores.open(declared, keeps_objects=True).declared
        base = pipeline.store.resolve("main")
        data = require_record(pipeline.at(base), pipeline.address("training_set"))
        given = given_models(context.log, pipeline.at(base))
        runner = launcher.launcher(pipeline)
        require_sane(context, pipeline, runner, data_ref(pipeline, data))
        read = [run_input(data, base), *(one.as_run_input() for one in given.values())]
        study = run_study(context, pipeline, runner, study_plan(pipeline, data, given), read)
        address = pipeline.address(SEARCH_STAGE)
        code, inputs = code_version_of(pipeline, SEARCH_STAGE), (input_version(data, base),)
        work = Work(address, code, inputs, context.run.run_id)
        with Draft(pipeline, work, pipeline.store.resolve("main")) as draft:
            draft.text(STUDY_FILE, canonical_json(study))
            version = digest_of(study.model_dump(mode="json", exclude={"time"}))
            published = draft.publish(attributes=_attributes(study, data), data_version=version)
        write_study_page(pipeline, study)
        shown = {
            **glance(at_a_glance(study)),
            **pictures(asset_pictures(study)),
            **_numbers(study),
            "page": link(Links.of(pipeline.settings).search(pipeline.name)),
            **record_metadata(published),
        }
        return dg.MaterializeResult(metadata=shown, data_version=dg.DataVersion(version))

    return materialize


def study_plan(pipeline: Pipeline, data: StageRecord, given: "Given") -> "StudyPlan":
    """Return what is trained: on a laptop as many trials side by side as it has cores.

    Raises:
        SpecError: the pipeline has no search.
    """
    from ml_assets.assets.hyperparameter_search.plan import StudyPlan
    from ml_assets.assets.trained_model.training_job import train_job

    search = pipeline.search
    if search is None:
        raise SpecError(
            f"{pipeline.name} has no search: write search.yaml beside its spec (docs/search.md)."
        )
    base = train_job(pipeline, data, None, given)
    if pipeline.on_cluster:
        return StudyPlan(pipeline.spec, search, base, search.parallel or ON_A_CLUSTER, None)
    cores = os.cpu_count() or 1
    parallel = search.parallel or max(1, cores // pipeline.spec.training.threads)
    each = max(1, cores // (parallel * pipeline.spec.training.threads))
    return StudyPlan(pipeline.spec, search, base, parallel, each)


def run_study(
    context: AssetStep,
    pipeline: Pipeline,
    runner: "Launcher",
    plan: "StudyPlan",
    read: Sequence[RunInput],
) -> Study:
    """Train what is left of a study; everything that happens is told to the run's log and MLflow.

    Args:
        read: the training set, and the weights to begin with.

    Raises:
        StateInUse: another process works on it.
        StoreAway: the database that remembers it went away.
        TrainingFailed: not one trial came to a result.
    """
    from ml_assets.assets.hyperparameter_search.mlflow_study import TrackedStudy
    from ml_assets.assets.hyperparameter_search.optuna_study import Sampler
    from ml_assets.assets.hyperparameter_search.population import Population
    from ml_assets.assets.hyperparameter_search.run_study import StudyRun, outcome
    from ml_assets.assets.hyperparameter_search.study_memory import answering, held
    from ml_assets.assets.trained_model.training_job import remember_session

    place = _place(pipeline, context)
    own = plan.search.own(plan.spec)
    tracked = TrackedStudy.open(context, pipeline, plan, read)

    def ended(trial: Trial, one: "Running") -> None:
        remember_session(context.instance, context.run.run_id, trial.session)
        tracked.trial(trial, one)

    with held(place, plan.name), answering():
        if plan.search.method == "population":
            sampler = Population(plan.search, own, plan.fits)
        else:
            sampler = Sampler(plan.search, own, plan.name, place, plan.fits)
        run = StudyRun(plan, sampler, runner, pipeline.objects, context.log.info, ended)
        context.log.info(f"study {plan.name}: {counted(plan.parallel, 'trial')} at once")
        why = run.run()
        study = outcome(plan, run, why)
    tracked.close(study)
    return study


def _place(pipeline: Pipeline, context: AssetStep) -> str:
    """Where the study is remembered.

    Raises:
        SettingsError: it is a folder, and the step's disk goes with its pod.
    """
    place = pipeline.settings.studies
    if "://" not in place and launches_jobs(context.instance):
        raise SettingsError(
            f"ML_ASSETS_STUDIES is the folder {place}, and this step runs in a pod, whose disk is "
            "lost with it: an interrupted study would start again. Set ML_ASSETS_STUDIES to a "
            "database, postgresql+psycopg://host/name, in the Secret of the pods."
        )
    return place


def _attributes(study: Study, data: StageRecord) -> dict[str, object]:
    """What the record says of the winner: all that training by it takes, where it is a setting."""
    best = study.best
    return {
        "study": study.name,
        "space": study.space,
        "split": data.attributes.get("split"),
        "as_of": data.attributes["as_of"],
        "data": study.data,
        "trial": study.winner if best.round is None else None,  # a schedule is adopted by nobody
        "winner": study.winner,
        "values": best.values,
        "session": best.session,
        "loss": best.loss,
        "own_loss": study.own.loss,
        "trials": len(study.trials),
        "ended": study.ended,
    }


def _numbers(study: Study) -> dict[str, object]:
    best, winner = study.best, "the spec's own setting"
    if study.winner is not None:
        winner = f"trial {study.winner}"
    elif study.own.end == "stopped":
        winner = "none: the spec's own setting was not trained to its end"
    return {
        "study": study.name,
        "winner": winner,
        "judged_by": study.judged_by,
        **numbers(
            {
                "loss": best.loss,
                "own_loss": study.own.loss,
                "trials": len(study.trials),
                "machine_hours": round(study.machine_hours, 4),
            }
        ),
        "ended": study.ended,
    }
