"""Adds a rollout to a pipeline: the log of predictions as a table, and the check for aborts."""

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from typing import TYPE_CHECKING, Self

import dagster as dg

from ml_assets.adapters.declare_asset import asset_key
from ml_assets.adapters.resources import StoresResource
from ml_assets.adapters.runs import Selection
from ml_assets.automation.jobs import AssetJob, run_tags
from ml_assets.automation.run_requests import MAX_RETRIES_TAG
from ml_assets.automation.run_retries import key_to_ask_by
from ml_assets.extras.serving.known_records import KnownRecord, known_records
from ml_assets.extras.serving.online_evaluation.asset import online_evaluation
from ml_assets.extras.serving.prediction_log import closed_hours, parts_of
from ml_assets.extras.serving.predictions.asset import hours, predictions
from ml_assets.graph.code_version import code_version_of
from ml_assets.records.ledger.chain import read
from ml_assets.records.ledger.stages import standing_abort
from ml_assets.spec.records import GateResult
from ml_assets.spec.stages import ONLINE_STAGE, PREDICTIONS_STAGE
from ml_assets.store.pipeline_context import Pipeline, PipelineState

if TYPE_CHECKING:
    from ml_assets.assets.drift_report.findings import Alarm

CHECK = "canary_in_traffic"
SECONDS_BETWEEN_TICKS = 30
_ABOUT = "Fails if the model in canary was taken out because of its traffic."


def assets(pipeline: Pipeline) -> Sequence[dg.AssetsDefinition]:
    """The table of served predictions, and what came true of them."""
    return [predictions(pipeline), online_evaluation(pipeline)]


def checks(declared: Pipeline) -> Sequence[dg.AssetChecksDefinition]:
    """The check that alerts people, as one runs it by hand; the sensor keeps it up to date."""

    @dg.asset_check(asset=asset_key(declared, "promoted_model"), name=CHECK, description=_ABOUT)
    def check(stores: StoresResource) -> dg.AssetCheckResult:
        told = _told(stores.open(declared))
        return dg.AssetCheckResult(
            passed=told is None, severity=dg.AssetCheckSeverity.ERROR, description=told or _FINE
        )

    return [check]


def jobs(pipeline: Pipeline) -> Sequence[AssetJob]:
    """Return what makes an hour of the table, and what evaluates a period."""
    about = {
        PREDICTIONS_STAGE: "Makes tables of the predictions that were served.",
        ONLINE_STAGE: "Compares served predictions with the labels that have arrived since.",
    }
    return [
        dg.define_asset_job(
            _job_name(pipeline, stage),
            selection=dg.AssetSelection.assets(asset_key(pipeline, stage)),
            description=said,
            tags=run_tags(pipeline, "by hand", {}),
        )
        for stage, said in about.items()
    ]


def sensors(declared: Pipeline) -> Sequence[dg.SensorDefinition]:
    """One makes a table of each hour that is over and tells of an abort; one evaluates periods."""

    @dg.sensor(
        name=f"{declared.name}__served",
        description="Makes tables of the predictions that were served; reports a model that was"
        " taken out of canary because of its traffic.",
        job_name=_job_name(declared, PREDICTIONS_STAGE),
        minimum_interval_seconds=SECONDS_BETWEEN_TICKS,
        default_status=dg.DefaultSensorStatus.RUNNING,
        tags={"pipeline": declared.name},
    )
    def evaluate(context: dg.SensorEvaluationContext, stores: StoresResource) -> dg.SensorResult:
        pipeline = stores.open(declared, keeps_objects=True)
        return served_tick(pipeline, context.cursor, context.instance)

    @dg.sensor(
        name=f"{declared.name}__labels",
        description="Compares served predictions with their labels, once these have arrived.",
        job_name=_job_name(declared, ONLINE_STAGE),
        minimum_interval_seconds=SECONDS_BETWEEN_TICKS,
        default_status=dg.DefaultSensorStatus.RUNNING,
        tags={"pipeline": declared.name},
    )
    def labels(context: dg.SensorEvaluationContext, stores: StoresResource) -> dg.SensorResult:
        return labels_tick(stores.open(declared), context.instance)

    return [evaluate, labels]


def canary_gate(state: PipelineState, model: str, champion: str | None) -> GateResult:
    """Return what its traffic says of a model in canary, where labels have come."""
    from ml_assets.extras.serving.online_evaluation.verdict import canary_verdict, online_reports

    return canary_verdict(online_reports(state), model, champion)


def served_alarm(state: PipelineState, release: str) -> "Alarm | None":
    """The alarm of a release that does worse on what it was served than it was judged."""
    from ml_assets.extras.serving.online_evaluation import verdict

    return verdict.served_alarm(state, release)


def labels_tick(pipeline: Pipeline, instance: dg.DagsterInstance) -> dg.SensorResult:
    """One look: one run for the periods whose features are newer than their evaluation."""
    state = pipeline.now()
    hours = Hours.of(state)
    code = code_version_of(pipeline, ONLINE_STAGE)
    made = {one.partition: one for one in known_records(state, pipeline.address(ONLINE_STAGE))}
    due: list[KnownRecord] = []
    late: set[str] = set()
    for features in _published_since(state, hours.begin):
        last = made.get(features.partition)
        new = _unseen(state, last, features, hours) if last and last.code_version == code else _ALL
        if new:
            due.append(features)
            late |= new
    if not due:
        return dg.SensorResult(skip_reason="No period has new labels.")
    first, last = due[0].partition, due[-1].partition
    span = (first, last) if first is not None and last is not None else None
    asked = Selection((asset_key(pipeline, ONLINE_STAGE),), partitions=span)
    said = {"why": f"features up to {last or 'now'} are new"}
    what = [code, sorted(late), *([one.partition, one.data_version] for one in due)]
    key = key_to_ask_by(instance, what)
    if isinstance(key, dg.SkipReason):
        why = f"{ONLINE_STAGE} up to {last or 'now'} {key.skip_message}"
        return dg.SensorResult(skip_reason=why)
    tags = run_tags(pipeline, "labels", {**said, **asked.tags, MAX_RETRIES_TAG: "0"})
    return dg.SensorResult(run_requests=[dg.RunRequest(run_key=key, tags=tags)])


_LAST = 104
"""Partitions."""
_LATE_LABELS = timedelta(days=14)


def _published_since(state: PipelineState, begin: datetime | None) -> Sequence[KnownRecord]:
    """The features that were published since traffic began, oldest partition first.

    Of those that are not among the last partitions, what was published long ago is left out: it was
    looked at, and each look reads an evaluation.
    """
    if begin is None:
        return []
    found = known_records(state, state.address("feature_set"))
    early = max(begin, datetime.now(UTC) - _LATE_LABELS)
    earlier, last = found[:-_LAST], found[-_LAST:]
    return [
        *(features for features in earlier if features.time >= early),
        *(features for features in last if features.time >= begin),
    ]


@dataclass(frozen=True)
class Hours:
    """The hours of answers, oldest first."""

    records: Sequence[KnownRecord]
    names: Sequence[str]
    digests: Sequence[str]
    """A digest of each hour and all before it."""

    @classmethod
    def of(cls, state: PipelineState) -> Self:
        """Return what was published of them."""
        records, told = known_records(state, state.address(PREDICTIONS_STAGE)), sha256()
        digests = list[str]()
        for one in records:
            told.update(one.digest.encode())
            digests.append(told.hexdigest())
        return cls(records, [one.partition or "" for one in records], digests)

    @property
    def begin(self) -> datetime | None:
        """When traffic began."""
        found = self.names[:1]
        return datetime.strptime(f"{found[0]}+0000", "%Y-%m-%dT%H%z") if found else None


_ALL = frozenset({"all"})
_UNSEEN: dict[str, tuple[tuple[str, ...], frozenset[str]]] = {}
"""Path of an evaluation's record -> digests of all that was compared, and what was found: each
evaluation names a year's hours, so it is read where something of that is new."""


def _unseen(
    state: PipelineState, made: KnownRecord, features: KnownRecord, hours: Hours
) -> frozenset[str]:
    """What an evaluation was not made from: its features of now, and hours of answers that began
    before these features were published, and were themselves published after the evaluation.

    Not hours before the evaluation: that moves with each, and would never end.
    """
    many = bisect_right(hours.names, f"{features.time:%Y-%m-%dT%H}")
    address = state.address(ONLINE_STAGE, partition=made.partition)
    compared = (made.digest, features.digest, *hours.digests[max(many - 1, 0) : many])
    known, found = _UNSEEN.get(address.record, ((), _ALL))
    if known == compared:
        return found
    whole = state.record(address)
    assert whole is not None  # it was listed
    seen = {(one.key, one.partition, one.version) for one in whole.inputs}
    served = state.address(PREDICTIONS_STAGE).key
    asked = [
        (state.address("feature_set").key, features.partition, features.data_version),
        *((served, one.partition, one.data_version) for one in hours.records[:many]),
    ]
    found = frozenset(" ".join(map(str, one)) for one in asked if one not in seen)
    _UNSEEN[address.record] = compared, found
    return found


def served_tick(
    pipeline: Pipeline, cursor: str | None, instance: dg.DagsterInstance
) -> dg.SensorResult:
    """One look: a run for each hour that is over, and an evaluation where the answer is new."""
    told = _told(pipeline) or _FINE
    new = told != cursor and not (cursor is None and told == _FINE)
    evaluation = dg.AssetCheckEvaluation(
        asset_key(pipeline, "promoted_model"),
        CHECK,
        told == _FINE,
        metadata={},
        severity=dg.AssetCheckSeverity.ERROR,
        description=told,
    )
    found = closed_hours(pipeline.objects, pipeline.name, datetime.now(UTC))
    asked = [_request(pipeline, hour, instance) for hour in found]
    requests = [one for one in asked if isinstance(one, dg.RunRequest)]
    held = [one for one in asked if isinstance(one, str)]
    more = [f"And {len(held) - _SHOWN} more."] if len(held) > _SHOWN else []
    held = [*held[:_SHOWN], *more] or ["No hour of predictions is due."]
    return dg.SensorResult(
        run_requests=requests or None,
        skip_reason=None if requests else " ".join([told, *held]),
        dynamic_partitions_requests=[hours(pipeline).build_add_request(found)] if found else None,
        cursor=told,
        asset_events=[evaluation] if new else [],
    )


_FINE = "No model was taken out of canary."
_SHOWN = 3
"""Hours of which a tick says why they wait."""


def _told(pipeline: Pipeline) -> str | None:
    line = standing_abort(read(pipeline.store, pipeline.name))
    if line is None:
        return None
    return (
        f"Model {line.model[:12]} was taken out of canary on {line.time:%Y-%m-%d %H:%M} UTC (ledger"
        f" line {line.seq}): {line.reason}"
    )


def _request(pipeline: Pipeline, hour: str, instance: dg.DagsterInstance) -> dg.RunRequest | str:
    """The run that makes an hour, whose files lie there until it has; or why none is asked for."""
    parts = parts_of(pipeline.objects, pipeline.name, hour)
    key = key_to_ask_by(instance, [hour, parts])
    if isinstance(key, dg.SkipReason):
        return f"{PREDICTIONS_STAGE} [{hour}] {key.skip_message}"
    said = {"why": f"predictions [{hour}] were served", MAX_RETRIES_TAG: "0"}
    return dg.RunRequest(run_key=key, partition_key=hour, tags=run_tags(pipeline, "served", said))


def _job_name(pipeline: Pipeline, stage: str) -> str:
    return f"{pipeline.name}__{stage}"
