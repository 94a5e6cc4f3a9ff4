"""What is wrong now, from Dagster's storage: failed checks and runs, and data that is too old.

A cause is seen as long as it lasts, whoever looks and however often: to tell it once is the
record's business (``operations.alerts.told``).
"""

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import dagster as dg

from ml_assets.automation.alerts.failed_runs import Span, failed_runs, span_of, within
from ml_assets.automation.alerts.message import Cause, Kind
from ml_assets.automation.freshness import CHECK as FRESHNESS
from ml_assets.automation.late_runs import CHECK as BEGINNINGS
from ml_assets.automation.tick_failures import blind
from ml_assets.records.tracking.links import Links
from ml_assets.spec.automation import duration_text

LAST_EVALUATIONS = 120
"""Evaluations of one check that are read: what failed before them is not told of any more."""
DRIFT = "drift_report"
"""Its warnings are alerts too, as are those of freshness: nothing else would act on them."""
_ANSWERED = ("SUCCEEDED", "FAILED")
Evaluated = Any
"""Dagster's record of one evaluation of a check, whose type it does not export."""


def causes_now(
    instance: dg.DagsterInstance, repository: dg.RepositoryDefinition, links: Links, now: datetime
) -> list[Cause]:
    """Everything that an alert is about; of a run that failed by a check, the check alone."""
    failed: list[Evaluated] = []
    explained: set[str] = set()
    for key in sorted(repository.asset_graph.asset_check_keys):
        records = instance.event_log_storage.get_asset_check_execution_history(
            key, limit=LAST_EVALUATIONS
        )
        history = [record for record in records if record.status.value in _ANSWERED]
        explained |= {record.run_id for record in history if _is_told(record)}
        graph, asset = repository.asset_graph, key.asset_key
        partitioned = graph.has(asset) and graph.get(asset).is_partitioned
        failed += _failed(instance, history, partitioned=partitioned)
    return [
        *(_check_cause(record, links) for record in failed),
        *failed_runs(instance, repository, explained, links),
        *_blind_causes(instance, repository, links),
        *_stale_causes(instance, repository, links, now),
    ]


def _failed(
    instance: dg.DagsterInstance, history: Sequence[Evaluated], *, partitioned: bool
) -> Iterator[Evaluated]:
    """The newest evaluation of each partition, where that is one to tell of."""
    if not any(map(_is_told, history)):
        return
    newer: list[Span] = []
    for record in history:  # newest first
        span = _span(instance, record, partitioned=partitioned)
        if _is_told(record) and not any(within(span, other) for other in newer):
            yield record
        newer.append(span)


def _span(instance: dg.DagsterInstance, record: Evaluated, *, partitioned: bool) -> Span:
    """The partitions that an evaluation is about; empty keys where it is about no single ones.

    A run reports its checks without them: one evaluation for a whole range that passed.
    """
    if record.partition is not None:
        return record.partition, record.partition
    run = instance.get_run_by_id(record.run_id) if partitioned else None
    return span_of(run.tags) if run else ("", "")


def _is_told(record: Evaluated) -> bool:
    evaluation = record.evaluation
    if record.status.value != "FAILED" or evaluation is None:
        return False
    warns = _kind(record.key) in ("drift", "stale data")
    return warns or evaluation.severity is dg.AssetCheckSeverity.ERROR


def _check_cause(record: Evaluated, links: Links) -> Cause:
    key, evaluation = record.key, record.evaluation
    asset = key.asset_key.to_user_string()
    of = f" [{record.partition}]" if record.partition else ""
    said = (evaluation.description if evaluation else None) or "it failed"
    return Cause(
        id=f"check {asset} {key.name}{of}",
        kind=_kind(key),
        pipeline=key.asset_key.path[0],
        what=f"{asset}{of}, check {key.name}: {said}",
        link=f"{links.asset(asset)}?view=checks",
    )


def _kind(key: dg.AssetCheckKey) -> Kind:
    if key.name == BEGINNINGS:
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


def _blind_causes(
    instance: dg.DagsterInstance, repository: dg.RepositoryDefinition, links: Links
) -> Iterator[Cause]:
    """Sensors and schedules that cannot see what is to be run."""
    for name, said in blind(instance, repository):
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
