"""The schedule of a search: its study asked for again, where it is another one by then."""

import dagster as dg

from ml_assets.adapters.declared import asset_key
from ml_assets.automation.jobs import AssetJob, run_tags
from ml_assets.automation.schedules import timed_schedules
from ml_assets.automation.tick_failures import why_not
from ml_assets.errors import MlAssetsError
from ml_assets.spec.stages import MODEL_STAGES, SEARCH_STAGE
from ml_assets.store.pipeline_context import Pipeline


def search_job(pipeline: Pipeline) -> AssetJob:
    """The study on the training set that is published, then the model of its winner."""
    adopts = pipeline.search is not None and pipeline.search.adopt
    stages = (SEARCH_STAGE, *(MODEL_STAGES[1:] if adopts else ()))
    return dg.define_asset_job(
        f"{pipeline.name}__search",
        selection=dg.AssetSelection.assets(*(asset_key(pipeline, stage) for stage in stages)),
        description="Searches for better settings; then trains, judges and releases by the winner,"
        " where the search says so.",
        tags=run_tags(pipeline, "by hand", {}),
    )


def search_schedules(declared: Pipeline, job: AssetJob) -> list[dg.ScheduleDefinition]:
    """The schedule that the search declares."""
    timed = declared.search.schedule if declared.search else None
    described = "Asks for the study of search.yaml; skips while it would be the same one."
    return timed_schedules(declared, timed, "search_schedule", described, job, search_tick)


def search_tick(pipeline: Pipeline) -> dg.RunRequest | dg.SkipReason:
    """The run of one tick; or one sentence why there is none."""
    from ml_assets.automation.planner.due import records_by_address, study_node
    from ml_assets.automation.planner.plan import plan

    own = pipeline.declared
    try:
        records = records_by_address(own.store, own.name)
        if own.address("training_set") not in records:
            return dg.SkipReason("There is no training set to search on yet.")
        (found,) = plan([study_node(own)], records).items
    except MlAssetsError as error:
        return dg.SkipReason(why_not(error))
    if not found.due:
        return dg.SkipReason("The study is over, and would be the same: same data, same search.")
    return dg.RunRequest(tags=run_tags(own, "schedule", {"reason": found.reason}))
