"""Decides when a study starts automatically: on its schedule, or when gates refuse retrained
models.

Either way only if the study would differ from the last one. A retraining never searches.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import dagster as dg

from ml_assets.adapters.runs import PIPELINE_TAG, TRIGGER_TAG
from ml_assets.automation.jobs import AssetJob, PipelineJobs, run_tags
from ml_assets.automation.schedules import timed_schedules
from ml_assets.automation.tick_failures import why_not
from ml_assets.errors import MlAssetsError
from ml_assets.spec.base import digest_of
from ml_assets.spec.records import LedgerEntry
from ml_assets.spec.stages import SEARCH_STAGE
from ml_assets.store.pipeline_context import Pipeline

DRIFT_TRIGGER = "drift"
"""The tag of a run that the drift sensor asked for."""


def search_schedules(declared: Pipeline, job: AssetJob | None) -> list[dg.ScheduleDefinition]:
    """The schedule that the search declares."""
    timed = declared.search.schedule if declared.search else None
    described = (
        "Asks for the study of search.yaml; skips while the study would be the same as the "
        "last one."
    )
    return timed_schedules(declared, timed, "search_schedule", described, job, search_tick)


def search_tick(pipeline: Pipeline) -> dg.RunRequest | dg.SkipReason:
    """The run of one tick; or one sentence why there is none."""
    from ml_assets.automation.run_requests import WANTED_TAG

    own = pipeline.declared
    try:
        due = study_is_due(own)
    except MlAssetsError as error:
        return dg.SkipReason(why_not(error))
    if isinstance(due, dg.SkipReason):
        return due
    return dg.RunRequest(
        tags=run_tags(own, "schedule", {"why": due.reason, WANTED_TAG: due.wanted})
    )


def search_after_refusals(
    pipeline: Pipeline, jobs: PipelineJobs, instance: dg.DagsterInstance
) -> dg.RunRequest | None:
    """The run of a study, where the gates refused so many models in a row that drift had trained.

    None: too few, or the study would be the same one, or it failed: the next refusal asks anew.

    Raises:
        StorageError: the ledger is broken.
    """
    from ml_assets.automation.run_requests import MAX_RETRIES_TAG, WANTED_TAG

    own, most = pipeline.declared, pipeline.search and pipeline.search.after_refusals
    if jobs.search is None or most is None:
        return None
    refused = refused_in_a_row(own, jobs, instance)
    if len(refused) < most or isinstance(due := study_is_due(own), dg.SkipReason):
        return None
    last = refused[-1]
    run_key = _key_to_ask_by(instance, [own.name, SEARCH_STAGE, last.seq])
    if run_key is None:
        return None
    why = f"the gates refused {len(refused)} trainings in a row that drift asked for: {last.reason}"
    return dg.RunRequest(
        run_key=run_key,
        job_name=jobs.search.name,
        tags=run_tags(
            own, DRIFT_TRIGGER, {"why": why, MAX_RETRIES_TAG: "0", WANTED_TAG: due.wanted}
        ),
    )


def _key_to_ask_by(instance: dg.DagsterInstance, what: list[object]) -> str | None:
    """The key of the run that is to come, or is under way; None: it ended.

    A run whose process died is asked for again, under another key.
    """
    from ml_assets.automation.run_requests import ATTEMPTS, died
    from ml_assets.automation.run_retries import asked_before

    keys, attempts, newest = asked_before(instance, what)
    if newest is None or not newest.dagster_run.is_finished:
        return keys[max(attempts, 1) - 1]
    again = attempts < ATTEMPTS and died(instance, newest.dagster_run)
    return keys[attempts] if again else None


def refused_in_a_row(
    pipeline: Pipeline, jobs: PipelineJobs, instance: dg.DagsterInstance
) -> Sequence[LedgerEntry]:
    """The decisions against models that drift trained, since one passed or since the last study.

    Oldest first. What people or schedules trained and the gates refused counts neither way.
    """
    from ml_assets.records.ledger.chain import read

    state = pipeline.now()
    study = state.record(state.address(SEARCH_STAGE))
    by_drift = {
        run.run_id
        for run in instance.get_runs(
            dg.RunsFilter(
                job_name=jobs.refresh.name,
                tags={PIPELINE_TAG: pipeline.name, TRIGGER_TAG: DRIFT_TRIGGER},
            )
        )
    }
    found: list[LedgerEntry] = []
    for line in read(pipeline.store, pipeline.name, state.commit):
        if line.decision is None or line.decision.canary is not None:
            continue
        if line.decision.passed or (study and line.time <= study.time):
            found = []
        elif line.run in by_drift:
            found.append(line)
    return found


@dataclass(frozen=True)
class DueStudy:
    """A study that would be another one than the last."""

    reason: str
    wanted: str
    """Digest of what it would be made from."""


def study_is_due(own: Pipeline) -> DueStudy | dg.SkipReason:
    """Return why a study on the training set of now would be another one than the last; or why it
    would not.

    Args:
        own: a pipeline by its spec alone.
    """
    from ml_assets.automation.planner.graph_nodes import records_by_address, study_node
    from ml_assets.automation.planner.plan import plan

    records, data = records_by_address(own.store, own.name), own.address("training_set")
    if data not in records:
        return dg.SkipReason("There is no training set to search on yet.")
    (found,) = plan([study_node(own)], records).items
    if not found.due:
        return dg.SkipReason("The study is over, and would be the same: same data, same search.")
    wanted = digest_of([SEARCH_STAGE, found.node.code_version, records[data].data_version])
    return DueStudy(found.reason, wanted)
