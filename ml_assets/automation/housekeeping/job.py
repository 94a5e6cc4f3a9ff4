"""House-keeping every week: a job that deletes what nothing reaches, and its schedule."""

from typing import TYPE_CHECKING

import dagster as dg

from ml_assets.adapters.resources import StoresResource
from ml_assets.errors import StateInUse

if TYPE_CHECKING:
    from ml_assets.automation.housekeeping.collect import CollectionResult

CRON = "0 3 * * 0"
"""Sundays at three: the daemon makes up for one tick that it slept through."""


@dg.op(
    name="collect_garbage",
    description="Deletes what is old and no longer used; see `ml-assets ops gc --dry-run`.",
)
def collect_garbage(context: dg.OpExecutionContext, stores: StoresResource) -> None:
    """Collect; where another house-keeping is at work, there is nothing to do."""
    from ml_assets.automation.housekeeping.collect import Housekeeping

    try:
        outcome = Housekeeping(stores.settings(), context.instance, context.run.run_id).collect()
    except StateInUse as busy:
        context.log.info(str(busy))
        return
    for kind, tally in outcome.tallies.items():
        context.log.info(
            f"{kind}: kept {tally.kept_things} ({tally.kept_bytes:,} bytes),"
            f" freed {tally.freed_things} ({tally.freed_bytes:,} bytes)"
        )
    for line in outcome.left:
        context.log.warning(f"left {line}")
    context.add_output_metadata(_metadata(outcome))


@dg.job(
    name="housekeeping",
    description="Keeps the state folder small. What a release, a line of a ledger, a tag or"
    " running work refers to is kept, whatever its age.",
    executor_def=dg.in_process_executor,
)
def housekeeping() -> None:
    """The one step of the job."""
    collect_garbage()


def definitions() -> dg.Definitions:
    """The job, and a schedule that runs it wherever the daemon does."""
    weekly = dg.ScheduleDefinition(
        name="housekeeping_weekly",
        job=housekeeping,
        cron_schedule=CRON,
        execution_timezone="UTC",
        default_status=dg.DefaultScheduleStatus.RUNNING,
    )
    return dg.Definitions(jobs=[housekeeping], schedules=[weekly])


def _metadata(outcome: "CollectionResult") -> dict[str, dg.MetadataValue]:
    lines = ["| kind | kept | bytes | freed | bytes |", "|---|---|---|---|---|"]
    for kind, t in outcome.tallies.items():
        cells = (t.kept_things, t.kept_bytes, t.freed_things, t.freed_bytes)
        lines.append(f"| {kind} | {' | '.join(f'{cell:,}' for cell in cells)} |")
    return {
        "freed_bytes": dg.MetadataValue.int(outcome.freed_bytes),
        "kinds": dg.MetadataValue.md("\n".join(lines)),
    }
