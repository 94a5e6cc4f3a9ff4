"""Runs that failed, as causes of an alert, until what they left undone is done by newer runs."""

from collections.abc import Collection, Iterator, Mapping

import dagster as dg

from ml_assets.automation.alerts.message import Cause
from ml_assets.automation.planner.in_flight import PIPELINE_TAG, name_of
from ml_assets.automation.tick_failures import error_words
from ml_assets.records.tracking.links import Links

LAST_RUNS = 200
Span = tuple[str, str]
"""The first and the last of some partitions."""
_PLANNED = dg.DagsterEventType.ASSET_MATERIALIZATION_PLANNED
_MADE = dg.DagsterEventType.ASSET_MATERIALIZATION
_PARTITION = "dagster/partition"
_RANGE = ("dagster/asset_partition_range_start", "dagster/asset_partition_range_end")


def failed_runs(
    instance: dg.DagsterInstance,
    repository: dg.RepositoryDefinition,
    explained: Collection[str],
    links: Links,
) -> Iterator[Cause]:
    """Runs that failed, of each partition the newest.

    Args:
        explained: ids of runs that failed by a check that is told already.
    """
    ended = [dg.DagsterRunStatus.FAILURE, dg.DagsterRunStatus.SUCCESS]
    newer: dict[str, list[Span]] = {}
    for run in instance.get_runs(filters=dg.RunsFilter(statuses=ended), limit=LAST_RUNS):
        span, answered = span_of(run.tags), newer.setdefault(_work(run), [])
        failed = run.status is dg.DagsterRunStatus.FAILURE and run.run_id not in explained
        if failed and not all(
            any(within((key, key), other) for other in answered)
            for key in _undone(instance, repository, run)
        ):
            yield Cause(
                id=" ".join(filter(None, ["run", run.job_name, span[1], *_asked(run)])),
                kind="failed run",
                pipeline=_pipeline(run),
                what=f"{name_of(run)} of {run.job_name} failed: {_reason(instance, run)}",
                link=links.run(run.run_id),
            )
        answered.append(span)


def span_of(tags: Mapping[str, str]) -> Span:
    """The partitions of a run; empty keys where it has none."""
    first, last = (tags.get(name) or tags.get(_PARTITION, "") for name in _RANGE)
    return first, last


def within(span: Span, other: Span) -> bool:
    """Whether all of a span is in another one: keys sort by time."""
    return other[0] <= span[0] and span[1] <= other[1]


def _undone(
    instance: dg.DagsterInstance, repository: dg.RepositoryDefinition, run: dg.DagsterRun
) -> Collection[str]:
    """The partitions of a failed run of which it did not make all that it was to make."""
    span, graph = span_of(run.tags), repository.asset_graph
    if span[0] == span[1]:
        return set(span)
    made: dict[dg.AssetKey, set[str]] = {}
    for entry in instance.all_logs(run.run_id, of_type={_PLANNED, _MADE}):
        event = entry.dagster_event
        if event and event.asset_key and graph.has(event.asset_key):
            keys = made.setdefault(event.asset_key, set())
            keys |= {event.partition or ""} if event.event_type is _MADE else set()
    calendars = {key: graph.get(key).partitions_def for key in made}
    days = [one.get_partition_keys() for one in set(calendars.values()) if one]
    known = {*span, *(key for keys in days for key in keys), *set().union(*made.values())}
    asked = {key for key in known if within((key, key), span)}
    whole = [keys for asset, keys in made.items() if calendars[asset]]
    return asked.difference(set.intersection(*whole) if whole else ()) or asked


def _work(run: dg.DagsterRun) -> str:
    """Names what a run was to do, but for which partitions: the same for the run that does it
    again, or what is left of it.

    That is its job; in the asset graph, where all is one job, its assets too.
    """
    return " ".join([run.job_name, *_asked(run)])


def _asked(run: dg.DagsterRun) -> list[str]:
    assets = sorted(key.to_user_string() for key in run.asset_selection or ())
    return assets if run.job_name.startswith("__") else []


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
    return "no step of it did; its process was ended, or never began"
