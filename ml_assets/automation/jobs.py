"""The jobs of a pipeline: the parts of the walk that a schedule, a sensor or a person starts; and
its rollback, a form in the UI, with author and reason.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import dagster as dg
from pydantic import Field

from ml_assets.adapters.declare_asset import asset_key
from ml_assets.adapters.resources import StoresResource
from ml_assets.adapters.run_config import RunConfig
from ml_assets.adapters.runs import PIPELINE_TAG, TRIGGER_TAG
from ml_assets.adapters.step import reported
from ml_assets.automation.planner.steps import WalkStep, data_steps
from ml_assets.spec.stages import CANARY_STAGES, DRIFT_STAGE, MODEL_STAGES, SEARCH_STAGE
from ml_assets.store.pipeline_context import Pipeline

AssetJob = Any
"""What ``dg.define_asset_job`` returns: Dagster does not name the type."""


@dataclass(frozen=True)
class PipelineJobs:
    """A job for each data step, for Dagster takes partitions of one kind in a job; and one more."""

    data: tuple[tuple[WalkStep, AssetJob], ...]
    refresh: AssetJob
    promote: AssetJob | None
    """The job of pipelines that ask for canary evidence."""
    drift: AssetJob | None
    """The job of pipelines that watch for drift."""
    search: AssetJob | None
    """The job of pipelines that have a search."""

    @property
    def all(self) -> tuple[AssetJob, ...]:
        asked = [job for job in (self.promote, self.drift, self.search) if job]
        return (*(job for _, job in self.data), self.refresh, *asked)


def pipeline_jobs(pipeline: Pipeline) -> PipelineJobs:
    """The jobs of a pipeline, named ``<pipeline>__<part>``."""
    steps = data_steps(pipeline)
    return PipelineJobs(
        data=tuple((step, _job(pipeline, step.name, step.keys, _about(step))) for step in steps),
        refresh=_job(
            pipeline,
            "refresh",
            [asset_key(pipeline, stage) for stage in MODEL_STAGES],
            "Trains, judges and releases its model on the newest window that is published.",
        ),
        promote=_promote_job(pipeline) if pipeline.spec.release.canary != "none" else None,
        drift=_drift_job(pipeline) if pipeline.spec.drift else None,
        search=_search_job(pipeline) if pipeline.search else None,
    )


def _promote_job(pipeline: Pipeline) -> AssetJob:
    about = "Judges the model in canary on the rows that came since, and moves it to production."
    return _job(pipeline, "promote", [asset_key(pipeline, stage) for stage in CANARY_STAGES], about)


def _drift_job(pipeline: Pipeline) -> AssetJob:
    about = "Compares the newest periods with what the release was trained on."
    return _job(pipeline, "drift", [asset_key(pipeline, DRIFT_STAGE)], about)


def _search_job(pipeline: Pipeline) -> AssetJob:
    """The study on the training set that is published, then the model of its winner."""
    adopts = pipeline.search is not None and pipeline.search.adopt
    stages = (SEARCH_STAGE, *(MODEL_STAGES[1:] if adopts else ()))
    about = (
        "Searches for better settings; then trains, judges and releases with the winner's "
        "settings, where the search says so."
    )
    return _job(pipeline, "search", [asset_key(pipeline, stage) for stage in stages], about)


def run_tags(pipeline: Pipeline, trigger: str, more: Mapping[str, str]) -> dict[str, str]:
    """Return what tells on the run's page why it was started."""
    return {PIPELINE_TAG: pipeline.name, TRIGGER_TAG: trigger, **more}


def _about(step: WalkStep) -> str:
    if step.name == "sources":
        return "Reads its sources and checks them against their contracts."
    if step.name == "online":
        return "Serves its newest features for look-ups."
    return "Makes its features." if step.name == "features" else f"Makes its {step.name}."


def _job(pipeline: Pipeline, part: str, keys: Sequence[dg.AssetKey], description: str) -> AssetJob:
    return dg.define_asset_job(
        f"{pipeline.name}__{part}",
        selection=dg.AssetSelection.assets(*keys),
        description=description,
        tags=run_tags(pipeline, "by hand", {}),
    )


class RollbackConfig(RunConfig):
    """The author and the reason of a rollback; both are written into the ledger."""

    author: str
    reason: str
    to: str | None = Field(
        default=None,
        description="The beginning of a model's digest; default: the model that was there before.",
    )


def rollback_job(declared: Pipeline) -> dg.JobDefinition:
    """The rollback of a pipeline. It is in no pool: it does not wait for a training to end."""
    name = f"{declared.name}__rollback"
    about = (
        f"Puts a model back in `{declared.spec.release.to}` that was there before: verified, tried,"
        " switched and recorded. Give the author and the reason; see `ml-assets release history`."
    )

    @dg.op(
        name=f"{declared.name}__roll_back",
        description=about,
        config_schema=RollbackConfig.form(),
    )
    @reported
    def roll_back(context: dg.OpExecutionContext, stores: StoresResource) -> None:
        from ml_assets.assets.released_model.page import rolled_back
        from ml_assets.assets.released_model.rollback import RollbackRequest, return_to
        from ml_assets.records.tracking.mlflow import Tracking

        config = RollbackConfig.of(context)
        pipeline = stores.open(declared)
        asked = RollbackRequest(config.author, config.reason, config.to)
        returned = return_to(
            pipeline,
            Tracking.of(pipeline.settings),
            asked,
            context.log.info,
            run=context.run.run_id,
        )
        context.log_event(rolled_back(pipeline, returned, context.run.run_id))

    @dg.job(
        name=name,
        description=about,
        tags=run_tags(declared, "by hand", {}),
        executor_def=dg.in_process_executor,
    )
    def rollback() -> None:
        roll_back()

    return rollback
