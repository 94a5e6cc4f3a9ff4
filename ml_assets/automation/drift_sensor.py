"""The tick of the drift sensor: has each new period judged, and trains if drift stands; or
searches, if the search says so, when the gates refuse the retrained models.

``decide`` is the rule. A cooldown or a daily budget delays a training, and loses no alarm. A
training that would change nothing is never asked for, whatever the alarm.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

import dagster as dg

from ml_assets.adapters.runs import PIPELINE_TAG, TRIGGER_TAG
from ml_assets.assets.drift_report.findings import DriftReport
from ml_assets.assets.drift_report.last_report import last_report
from ml_assets.assets.drift_report.verdict import summary
from ml_assets.automation.data_sensors import at_work, skip
from ml_assets.automation.jobs import PipelineJobs
from ml_assets.automation.planner.candidate_runs import (
    DRIFT,
    MODEL,
    CandidateRun,
    drift_candidate,
    model_candidate,
)
from ml_assets.automation.planner.graph_nodes import records_by_address
from ml_assets.automation.planner.landed import calendar
from ml_assets.automation.run_requests import Cursor, requests, sort_out
from ml_assets.automation.search_starts import DRIFT_TRIGGER, search_after_refusals
from ml_assets.automation.tick_failures import why_not
from ml_assets.errors import MlAssetsError
from ml_assets.load_extras import load_extra
from ml_assets.records.ledger.chain import read
from ml_assets.records.ledger.stages import champion
from ml_assets.spec.automation import duration_text
from ml_assets.spec.drift import RetrainSpec
from ml_assets.store.pipeline_context import Pipeline

DAY = timedelta(days=1)


def drift_tick(
    pipeline: Pipeline,
    jobs: PipelineJobs,
    retrain: RetrainSpec,
    instance: dg.DagsterInstance,
    text: str | None,
    now: datetime,
) -> dg.SensorResult:
    """One evaluation: a report, a training, a search, or one sentence that says what was seen.

    Args:
        text: the cursor of the tick before.
    """
    busy = at_work(instance, pipeline)
    if busy:
        return skip(busy, text)
    cursor = Cursor.read(text).keep({DRIFT, MODEL})
    try:
        due = drift_candidate(pipeline)
        held = ""
        if not isinstance(due, str):
            asked = _ask(pipeline, jobs.drift, due, instance, cursor)
            if isinstance(asked, dg.SensorResult):
                return asked
            due = held = asked  # a report that failed holds up no alarm that stands
        if search := search_after_refusals(pipeline, jobs, instance):
            return dg.SensorResult(run_requests=[search], cursor=cursor.text)
        release = champion(read(pipeline.store, pipeline.name), pipeline.spec.release.to)
        report = _with_served(pipeline, last_report(pipeline.now()), release)
        begun = trainings(pipeline, jobs, instance, now - max(retrain.cooldown, DAY))
        decided = decide(report, release, retrain, begun, now)
        if isinstance(decided, Wait):
            return skip(f"{due}; {decided.reason}" if report else due, cursor.text)
        model = _model(pipeline, decided.reason)
        if isinstance(model, str):
            return skip(_join(held, decided.reason, model), cursor.keep({DRIFT}).text)
        asked = _ask(pipeline, jobs.refresh, model, instance, cursor)
        if isinstance(asked, dg.SensorResult):
            return asked
        return skip(_join(held, decided.reason, asked), cursor.text)
    except MlAssetsError as error:
        return skip(why_not(error), text)


@dataclass(frozen=True)
class Retrain:
    """Train now, for this reason."""

    reason: str


@dataclass(frozen=True)
class Wait:
    """Do not train now, for this reason."""

    reason: str


def decide(
    report: DriftReport | None,
    release: str | None,
    spec: RetrainSpec,
    begun: Sequence[datetime],
    now: datetime,
) -> Retrain | Wait:
    """Decide whether the newest report asks for a training.

    Args:
        release: digest of the model that is released now.
        begun: when the trainings of the last day (and of the cooldown) began that drift asked for.
    """
    if report is None:
        return Wait("no period has been judged yet")
    if report.model != release:
        return Wait(
            f"the last report is about model {report.model[:12]}, which is no longer the release"
        )
    alarm = report.alarm
    if alarm is None:
        return Wait(summary(report))
    if not set(alarm.kinds) & set(spec.kinds):
        kinds = ", ".join(alarm.kinds)
        return Wait(f"an alarm in {kinds} asks for no training ({alarm.reason}): repair the source")
    kept = f"the alarm of {alarm.period} is kept ({alarm.reason})"
    ends = max(begun) + spec.cooldown if begun else now
    if now < ends:
        return Wait(
            f"{kept}: drift asked for a training at {max(begun):%Y-%m-%d %H:%M} UTC, and the"
            f" cooldown of {duration_text(spec.cooldown)} ends at {ends:%Y-%m-%d %H:%M} UTC"
        )
    today = [at for at in begun if at > now - DAY]
    if len(today) >= spec.runs_per_day:
        again = min(today) + DAY
        return Wait(
            f"{kept}: drift may ask for {spec.runs_per_day} in a day, and has; again at"
            f" {again:%Y-%m-%d %H:%M} UTC"
        )
    return Retrain(f"drift in {', '.join(alarm.kinds)} since {alarm.period}: {alarm.reason}")


def _join(*said: str) -> str:
    return "; ".join(filter(None, said))


def trainings(
    pipeline: Pipeline, jobs: PipelineJobs, instance: dg.DagsterInstance, since: datetime
) -> list[datetime]:
    """Return when the trainings began that drift asked for, whatever became of them."""
    filters = dg.RunsFilter(
        job_name=jobs.refresh.name,
        tags={PIPELINE_TAG: pipeline.name, TRIGGER_TAG: DRIFT_TRIGGER},
        created_after=since,
    )
    return [record.create_timestamp for record in instance.get_run_records(filters=filters)]


def _with_served(
    pipeline: Pipeline, report: DriftReport | None, release: str | None
) -> DriftReport | None:
    """The report; its alarm is that of what was served, where it has none of its own."""
    spec = pipeline.spec.release
    if spec.rollout is None or release is None or report is None or report.alarm is not None:
        return report
    alarm = load_extra("release.rollout").served_alarm(pipeline.now(), release)
    return report.model_copy(update={"alarm": alarm})


def _model(pipeline: Pipeline, reason: str) -> CandidateRun | str:
    """The model of the newest window, where other data makes it due; else why it is not."""
    records = records_by_address(pipeline.store, pipeline.name)
    candidate = model_candidate(pipeline, records, as_of=None, data_only=True)
    return candidate if isinstance(candidate, str) else replace(candidate, because=reason)


def _ask(
    pipeline: Pipeline,
    job: object,
    candidate: CandidateRun,
    instance: dg.DagsterInstance,
    cursor: Cursor,
) -> dg.SensorResult | str:
    """The run of a candidate; else why it was asked for before and is not again."""
    found = sort_out(instance, [candidate], cursor)
    if not found.fresh:
        return "; ".join(found.held)
    asked, cursor = requests(pipeline, job, DRIFT_TRIGGER, found.fresh, calendar(pipeline), cursor)
    return dg.SensorResult(run_requests=asked, cursor=cursor.text)
