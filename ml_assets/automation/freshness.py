"""Checks whether data is recent, on each validated table whose source has a bound.

Nothing runs if nothing arrives, so a sensor repeats the check as time passes, and reports it
whenever its answer changes.
"""

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import dagster as dg

from ml_assets.adapters.declare_asset import asset_key
from ml_assets.adapters.resources import StoresResource
from ml_assets.automation.tick_failures import why_not
from ml_assets.errors import StorageError, StoreAway
from ml_assets.spec.automation import duration_text
from ml_assets.spec.sources import SourceSpec
from ml_assets.store.layout import Address, read_records
from ml_assets.store.pipeline_context import Pipeline
from ml_assets.store.snapshots import MAIN

if TYPE_CHECKING:
    from ml_assets.assets.validated_table.freshness import Freshness

CHECK = "freshness"
STAGE = "validated_table"
SECONDS_BETWEEN_TICKS = 300


def bounded_sources(pipeline: Pipeline) -> dict[str, SourceSpec]:
    """The sources that declare how recent they have to be."""
    return {name: one for name, one in pipeline.spec.sources.items() if one.freshness}


def source_freshness(pipeline: Pipeline, name: str, now: datetime) -> "Freshness":
    """Judge the newest partition that is published; where all its rows are from the future, the
    one before it, and so on.

    Raises:
        StorageError: the store cannot be read.
    """
    from ml_assets.assets.validated_table.freshness import Newest, judge_freshness, newest_row

    source = pipeline.spec.sources[name]
    assert source.freshness is not None and source.time_column is not None
    commit = pipeline.store.resolve(MAIN)
    records = read_records(pipeline.store, commit, pipeline.name, f"{STAGE}/{name}")
    future = 0
    for record in sorted(records, key=lambda one: one.partition or "", reverse=True):
        address = Address(pipeline.name, STAGE, name, record.partition)
        table = pipeline.store.scan(commit, address.table)
        time, later = newest_row(table, source.time_column, now)
        future += later
        if time is not None:
            newest = Newest(time, record.partition, future)
            return judge_freshness(newest, now, source.freshness)
    return judge_freshness(Newest(None, None, future), now, source.freshness)


def freshness_checks(pipeline: Pipeline) -> list[dg.AssetChecksDefinition]:
    """The checks, as one runs them by hand or with the table; the sensor keeps them up to date."""
    return [_check(pipeline, name, source) for name, source in bounded_sources(pipeline).items()]


def _check(declared: Pipeline, name: str, source: SourceSpec) -> dg.AssetChecksDefinition:
    assert source.freshness is not None
    bound = duration_text(source.freshness.within)

    @dg.asset_check(
        asset=asset_key(declared, STAGE, name),
        name=CHECK,
        description=f"The newest row, by `{source.time_column}`, is at most {bound} old.",
    )
    def check(stores: StoresResource) -> dg.AssetCheckResult:
        found = source_freshness(stores.open(declared), name, datetime.now(UTC))
        return dg.AssetCheckResult(
            passed=found.fresh,
            severity=_severity(source),
            description=found.reason,
            metadata=_metadata(found),
        )

    return check


def freshness_sensor(declared: Pipeline) -> dg.SensorDefinition:
    """Turns the checks red when data stops coming, and green again, by itself."""

    @dg.sensor(
        name=f"{declared.name}__{CHECK}",
        description="Notices that the rows of a source stop coming.",
        minimum_interval_seconds=SECONDS_BETWEEN_TICKS,
        default_status=dg.DefaultSensorStatus.RUNNING,
        tags={"pipeline": declared.name},
    )
    def evaluate(context: dg.SensorEvaluationContext, stores: StoresResource) -> dg.SensorResult:
        now = datetime.now(UTC)
        return freshness_tick(stores.open(declared), context.instance, context.cursor, now)

    return evaluate


def freshness_tick(
    pipeline: Pipeline,
    instance: dg.DagsterInstance,
    cursor: str | None,
    now: datetime,
) -> dg.SensorResult:
    """One look: an evaluation for each source whose answer is another than in ``cursor``.

    A materialization outdates what was said before it (the UI then shows the check as never run),
    so the answer is given again after each. A store that is away tells nothing of the data.
    """
    try:
        judged = list(_judged(pipeline, now))
    except StoreAway as away:
        return dg.SensorResult(skip_reason=why_not(away), cursor=cursor)
    before: dict[str, str] = json.loads(cursor) if cursor else {}
    seen: dict[str, str] = {}
    told: list[str] = []
    changed: list[dg.AssetCheckEvaluation] = []
    for name, found in judged:
        made = instance.get_latest_materialization_event(asset_key(pipeline, STAGE, name))
        seen[name] = f"{found.fresh} {found.newest.time} {made.timestamp if made else ''}"
        told.append(f"{name}: {found.reason}")
        if seen[name] != before.get(name):
            changed.append(_evaluation(pipeline, name, found))
    said = " ".join(told)
    return dg.SensorResult(skip_reason=said, cursor=json.dumps(seen), asset_events=changed)


def _judged(pipeline: Pipeline, now: datetime) -> "Iterator[tuple[str, Freshness]]":
    from ml_assets.assets.validated_table.freshness import Freshness, Newest

    for name, source in bounded_sources(pipeline).items():
        try:
            yield name, source_freshness(pipeline, name, now)
        except StoreAway:
            raise
        except StorageError as error:
            assert source.freshness is not None
            yield name, Freshness(False, str(error), Newest(None, None))


def _evaluation(pipeline: Pipeline, name: str, found: "Freshness") -> dg.AssetCheckEvaluation:
    return dg.AssetCheckEvaluation(
        asset_key(pipeline, STAGE, name),
        CHECK,
        found.fresh,
        metadata={k: dg.MetadataValue.text(v) for k, v in _metadata(found).items()},
        severity=_severity(pipeline.spec.sources[name]),
        description=found.reason,
    )


def _severity(source: SourceSpec) -> dg.AssetCheckSeverity:
    critical = source.freshness is not None and source.freshness.severity == "critical"
    return dg.AssetCheckSeverity.ERROR if critical else dg.AssetCheckSeverity.WARN


def _metadata(found: "Freshness") -> dict[str, str]:
    newest = found.newest
    return {
        "newest_row": str(newest.time or "none"),
        "partition": newest.partition or "all",
        "rows_from_the_future": str(newest.future),
    }
