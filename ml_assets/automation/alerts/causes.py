"""Finds present problems in Dagster's storage: failed checks and runs, and data that is too old.

A cause is seen as long as it lasts, whoever looks and however often; ``alerts.reported`` makes sure
that it is sent once.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import dagster as dg

from ml_assets.adapters.check_outcome import partition_verdicts, was_asked
from ml_assets.adapters.runs import PIPELINE_TAG, name_of, step_failures
from ml_assets.automation.alerts.message import Cause, Kind
from ml_assets.automation.freshness import CHECK as FRESHNESS
from ml_assets.automation.late_runs import CHECK as LATE_RUNS
from ml_assets.automation.tick_failures import error_words, tick_failures
from ml_assets.records.tracking.links import Links
from ml_assets.spec.automation import duration_text

LAST_EVALUATIONS = 120
"""Evaluations of one check that are read: what failed before them is not told of any more."""
DRIFT = "drift_report"
"""Its warnings are alerts too, as are those of freshness: nothing else would act on them."""
LAST_RUNS = 200
LAST_MADE = 1000
"""Times that an asset was made that are read to know whether what failed was made since."""
Span = tuple[str, str]
"""The first and the last of some partitions."""
_PLANNED = dg.DagsterEventType.ASSET_MATERIALIZATION_PLANNED
_MADE = dg.DagsterEventType.ASSET_MATERIALIZATION
_PARTITION = "dagster/partition"
_RANGE = ("dagster/asset_partition_range_start", "dagster/asset_partition_range_end")
_ANSWERED = ("SUCCEEDED", "FAILED")
Explained = dict[str, set[str]]
"""Step -> the partitions of a run that a check told of; the empty key: all of them."""
Evaluated = Any
"""Dagster's record of one evaluation of a check, whose type it does not export."""


def causes_now(
    instance: dg.DagsterInstance, repository: dg.RepositoryDefinition, links: Links, now: datetime
) -> list[Cause]:
    """Everything that an alert is about; of what failed by a check, the check alone."""
    failed: list[Cause] = []
    explained: dict[str, Explained] = {}
    for key in sorted(repository.asset_graph.asset_check_keys):
        records = instance.event_log_storage.get_asset_check_execution_history(
            key, limit=LAST_EVALUATIONS
        )
        answered = [record for record in records if record.status.value in _ANSWERED]
        history = [record for record in answered if was_asked(record.evaluation)]
        for record in filter(_is_told, history):
            step = record.event.step_key if record.event else None
            if step and not _is_warning(record):
                steps = explained.setdefault(record.run_id, {})
                steps.setdefault(step, set()).update(_rejected(record))
        graph, asset = repository.asset_graph, key.asset_key
        partitioned = graph.has(asset) and graph.get(asset).is_partitioned
        failed += _failed(instance, history, links, partitioned=partitioned)
    return [
        *failed,
        *_failed_runs(instance, repository, explained, links),
        *_tick_failure_causes(instance, repository, links),
        *_stale_causes(instance, repository, links, now),
    ]


def _failed(
    instance: dg.DagsterInstance, history: Sequence[Evaluated], links: Links, *, partitioned: bool
) -> Iterator[Cause]:
    """The newest verdict on each partition, where that is one to tell of."""
    if not any(map(_is_told, history)):
        return
    newer: list[Span] = []
    for record in history:  # newest first
        answers = list(_answers(instance, record, partitioned=partitioned))
        for one in answers:
            if not one.is_told or any(_within(one.span, other) for other in newer):
                continue
            if not one.is_rejection or not _is_made_since(instance, record, one):
                yield _check_cause(record, one, links)
        newer += [one.span for one in answers]


@dataclass(frozen=True)
class _Answer:
    """What an evaluation says of some partitions."""

    span: Span
    """Empty keys where it is about no single ones."""
    partition: str | None
    is_told: bool
    said: str
    is_rejection: bool = False
    """It kept its partition from being published."""


def _is_made_since(instance: dg.DagsterInstance, record: Evaluated, answer: _Answer) -> bool:
    """Whether the partition is published by now, by a run that was killed before its verdicts."""
    wanted = dg.AssetRecordsFilter(record.key.asset_key, asset_partitions=[answer.span[0]])
    newest = instance.fetch_materializations(wanted, limit=1).records
    return any(one.timestamp > record.event.timestamp for one in newest)


def _answers(
    instance: dg.DagsterInstance, record: Evaluated, *, partitioned: bool
) -> Iterator[_Answer]:
    """One answer for each partition that an evaluation names; else one, of all of its run."""
    evaluation = record.evaluation
    named = list(partition_verdicts(evaluation.metadata)) if evaluation else []
    for one in reversed(named):  # newest first
        told = one.verdict == "fail" or (one.verdict == "warn" and _warnings_count(record.key))
        span, rejected = (one.partition, one.partition), one.verdict == "fail"
        yield _Answer(span, one.partition, told, one.said, is_rejection=rejected)
    if not named:
        of = record.partition
        run = instance.get_run_by_id(record.run_id) if partitioned and of is None else None
        said = (evaluation.description if evaluation else None) or "it failed"
        span = (of or "", of or "") if run is None else _span_of(run.tags)
        yield _Answer(span, of, _is_told(record), said)


def _rejected(record: Evaluated) -> Iterator[str]:
    """The partitions that a check kept back; the empty key: all of its run."""
    named = list(partition_verdicts(record.evaluation.metadata))
    yield from (one.partition for one in named if one.verdict == "fail")
    if not named:
        yield ""


def _is_told(record: Evaluated) -> bool:
    evaluation = record.evaluation
    if record.status.value != "FAILED" or evaluation is None:
        return False
    return _warnings_count(record.key) or not _is_warning(record)


def _is_warning(record: Evaluated) -> bool:
    evaluation = record.evaluation
    return evaluation is not None and evaluation.severity is dg.AssetCheckSeverity.WARN


def _warnings_count(key: dg.AssetCheckKey) -> bool:
    return _kind(key) in ("drift", "stale data")


def _check_cause(record: Evaluated, answer: _Answer, links: Links) -> Cause:
    key = record.key
    asset = key.asset_key.to_user_string()
    of = f" [{answer.partition}]" if answer.partition else ""
    return Cause(
        id=f"check {asset} {key.name}{of}",
        kind=_kind(key),
        pipeline=key.asset_key.path[0],
        what=f"{asset}{of}, check {key.name}: {answer.said}",
        link=f"{links.asset(asset)}?view=checks",
    )


def _kind(key: dg.AssetCheckKey) -> Kind:
    if key.name == LATE_RUNS:
        return "run that never started"
    if key.name == FRESHNESS:
        return "stale data"
    stages: Mapping[str, Kind] = {
        "raw_snapshot": "failed contract",  # its schema
        "validated_table": "failed contract",
        DRIFT: "drift",
    }
    return stages.get(_stage(key), "failed check")


def _stage(key: dg.AssetCheckKey) -> str:
    return key.asset_key.path[min(1, len(key.asset_key.path) - 1)]


def _tick_failure_causes(
    instance: dg.DagsterInstance, repository: dg.RepositoryDefinition, links: Links
) -> Iterator[Cause]:
    """Sensors and schedules that cannot see what is to be run."""
    for name, said in tick_failures(instance, repository):
        yield Cause(
            id=f"tick {name}",
            kind="run that never started",
            pipeline=name.partition("__")[0],
            what=f"{name} {said}",
            link=links.automation(),
        )


def _stale_causes(
    instance: dg.DagsterInstance, repository: dg.RepositoryDefinition, links: Links, now: datetime
) -> Iterator[Cause]:
    """Assets that were made longer ago than their freshness policy allows."""
    graph = repository.asset_graph
    for key in sorted(graph.materializable_asset_keys):
        window = getattr(graph.get(key).freshness_policy, "fail_window", None)
        if window is None:  # nothing is declared, or a time of day, by a team's own asset
            continue
        newest = instance.get_latest_materialization_event(key)
        if newest is None:
            continue
        bound = window.to_timedelta()
        made = datetime.fromtimestamp(newest.timestamp, UTC)
        if now - made > bound:
            asset = key.to_user_string()
            yield Cause(
                id=f"stale {asset}",
                kind="stale data",
                pipeline=key.path[0],
                what=f"{asset} was made at {made:%Y-%m-%d %H:%M} UTC, longer ago than"
                f" {duration_text(bound)}.",
                link=links.asset(asset),
            )


def _failed_runs(
    instance: dg.DagsterInstance,
    repository: dg.RepositoryDefinition,
    explained: Mapping[str, Explained],
    links: Links,
) -> Iterator[Cause]:
    """Runs that failed, of each partition the newest; not where another run made it since.

    Args:
        explained: run -> what is told already, by the check that failed.
    """
    ended = [dg.DagsterRunStatus.FAILURE, dg.DagsterRunStatus.SUCCESS]
    newer: dict[str, list[Span]] = {}
    for run in instance.get_runs(filters=dg.RunsFilter(statuses=ended), limit=LAST_RUNS):
        span, answered = _span_of(run.tags), newer.setdefault(_work(run), [])
        undone: Collection[str] = ()
        if run.status is dg.DagsterRunStatus.FAILURE:
            undone = _untold(instance, repository, run, explained.get(run.run_id, {}))
        undone = {k for k in undone if not any(_within((k, k), other) for other in answered)}
        if undone and not _are_made_since(instance, repository, run, undone):
            yield Cause(
                id=" ".join(filter(None, ["run", run.job_name, span[1], *_asked(run)])),
                kind="failed run",
                pipeline=_pipeline(run),
                what=f"{name_of(run)}{_of_job(run)} failed: {_reason(instance, run)}",
                link=links.run(run.run_id),
            )
        answered.append(span)


def _untold(
    instance: dg.DagsterInstance,
    repository: dg.RepositoryDefinition,
    run: dg.DagsterRun,
    explained: Explained,
) -> Collection[str]:
    """The partitions of a failed run that it did not make, and of which no check told."""
    failed = {one.step_key for one in step_failures(instance, run)} if explained else set()
    told = set().union(*explained.values()) if failed and failed <= {*explained} else set()
    return () if "" in told else {*_undone(instance, repository, run)} - told


def _span_of(tags: Mapping[str, str]) -> Span:
    """The partitions of a run; empty keys where it has none."""
    first, last = (tags.get(name) or tags.get(_PARTITION, "") for name in _RANGE)
    return first, last


def _within(span: Span, other: Span) -> bool:
    """Whether all of a span is in another one: keys sort by time."""
    return other[0] <= span[0] and span[1] <= other[1]


def _undone(
    instance: dg.DagsterInstance, repository: dg.RepositoryDefinition, run: dg.DagsterRun
) -> Collection[str]:
    """The partitions of a failed run of which it did not make all that it was to make."""
    span, graph = _span_of(run.tags), repository.asset_graph
    if span[0] == span[1]:
        return set(span)
    made = _made_by(instance, repository, run)
    calendars = {key: graph.get(key).partitions_def for key in made}
    days = [one.get_partition_keys() for one in set(calendars.values()) if one]
    known = {*span, *(key for keys in days for key in keys), *set().union(*made.values())}
    asked = {key for key in known if _within((key, key), span)}
    whole = [keys for asset, keys in made.items() if calendars[asset]]
    return asked.difference(set.intersection(*whole) if whole else ()) or asked


def _made_by(
    instance: dg.DagsterInstance, repository: dg.RepositoryDefinition, run: dg.DagsterRun
) -> dict[dg.AssetKey, set[str]]:
    """The assets that a run was to make, each with the partitions that it made."""
    made: dict[dg.AssetKey, set[str]] = {}
    for entry in instance.all_logs(run.run_id, of_type={_PLANNED, _MADE}):
        event = entry.dagster_event
        if event and event.asset_key and repository.asset_graph.has(event.asset_key):
            keys = made.setdefault(event.asset_key, set())
            keys |= {event.partition or ""} if event.event_type is _MADE else set()
    return made


def _are_made_since(
    instance: dg.DagsterInstance,
    repository: dg.RepositoryDefinition,
    run: dg.DagsterRun,
    undone: Collection[str],
) -> bool:
    """Whether other runs, of whatever assets, made what failed in a run; where no asset did, all
    that it left undone."""
    made = _made_by(instance, repository, run)
    failed = {one.step_key for one in step_failures(instance, run)}
    own = [key for key in made if "__".join(key.path) in failed] or [*made]
    record = instance.get_run_record_by_id(run.run_id)
    begun = record.start_time if record else None
    if begun is None:
        return False
    for key in own:
        partitioned = repository.asset_graph.get(key).is_partitioned
        left = ({*undone} if partitioned else {""}) - made[key]
        since = dg.AssetRecordsFilter(key, after_timestamp=begun)
        records = instance.fetch_materializations(since, limit=LAST_MADE).records
        if not left <= {one.partition_key or "" for one in records}:
            return False
    return bool(own)


def _work(run: dg.DagsterRun) -> str:
    """Names what a run was to do, but for which partitions: the same for the run that does it
    again, or what is left of it.

    That is its job; in the asset graph, where all is one job, its assets too, or its pipeline where
    Dagster keeps no assets: of a run of the command line.
    """
    return " ".join([run.job_name, *_asked(run)])


def _asked(run: dg.DagsterRun) -> list[str]:
    assets = sorted(key.to_user_string() for key in run.asset_selection or ())
    of_pipeline = [run.tags[PIPELINE_TAG]] if PIPELINE_TAG in run.tags else []
    return (assets or of_pipeline) if run.job_name.startswith("__") else []


def _of_job(run: dg.DagsterRun) -> str:
    """Its job, as a sentence names it; nothing where it is that of all assets."""
    return "" if run.job_name.startswith("__") else f" of {run.job_name}"


def _pipeline(run: dg.DagsterRun) -> str:
    assets = sorted(key.path[0] for key in run.asset_selection or ())
    return run.tags.get(PIPELINE_TAG) or (assets[0] if assets else run.job_name)


def _reason(instance: dg.DagsterInstance, run: dg.DagsterRun) -> str:
    """Our own error's words, which hold no secret; of any other error its name alone."""
    for entry in instance.all_logs(run.run_id, of_type=dg.DagsterEventType.STEP_FAILURE):
        event = entry.dagster_event
        error = event.step_failure_data.error if event else None
        if error:
            return error_words(error, f"step {event.step_key if event else ''}")
    return "none of its steps failed. Its process was ended, or it never began"
