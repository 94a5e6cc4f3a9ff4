"""The rollback of a pipeline as a job: a form in the UI, with author and reason."""

import dagster as dg
from pydantic import Field

from ml_assets.adapters.resources import StoresResource
from ml_assets.adapters.run_config import RunConfig
from ml_assets.adapters.step import reported
from ml_assets.automation.jobs import run_tags
from ml_assets.store.pipeline_context import Pipeline


class RollbackConfig(RunConfig):
    """The author and the reason of a rollback; both are written into the ledger."""

    author: str
    reason: str
    to: str | None = Field(
        default=None,
        description="The beginning of a model's digest; default: the model that was there before.",
    )


def rollback_job(declared: Pipeline) -> dg.JobDefinition:
    """The job of a pipeline. It is in no pool: it does not wait for a training to end."""
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
