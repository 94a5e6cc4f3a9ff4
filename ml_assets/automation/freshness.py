"""Checks whether data is recent, on each validated table whose source has a bound.

It is judged by the newest row's own time. A row from the future does not count: a wrong clock would
keep a dead source fresh for ever. Nothing runs if nothing arrives, so a sensor repeats the check as
time passes, and reports it whenever its answer changes.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import dagster as dg

from ml_assets.adapters.declare_asset import asset_key
from ml_assets.adapters.resources import StoresResource
from ml_assets.automation.tick_failures import why_not
from ml_assets.errors import StorageError, StoreAway, counted
from ml_assets.spec.automation import duration_text
from ml_assets.spec.sources import FreshnessSpec, SourceSpec
from ml_assets.store.layout import Address, read_records
from ml_assets.store.pipeline_context import Pipeline
from ml_assets.store.snapshots import MAIN

if TYPE_CHECKING:
    import polars as pl

CHECK = "freshness"
STAGE = "validated_table"
SECONDS_BETWEEN_TICKS = 300


@dataclass(frozen=True)
class Newest:
    """The end of a table by its time column, as of a moment."""

    time: datetime | None
    """The time of the newest row that is not from the future; None: there is none."""
    partition: str | None
    """Where that row lies."""
    future: int = 0
    """Rows later than the moment, of the partitions that were looked at."""


@dataclass(frozen=True)
class Freshness:
    """Says whether a source is as recent as declared."""

    fresh: bool
    reason: str
    newest: Newest


def newest_row(table: "pl.LazyFrame", column: str, now: datetime) -> tuple[datetime | None, int]:
    """The latest time up to now, and how many rows are later; only the column is read."""
    import polars as pl

    time = pl.col(column)
    past = time.filter(time <= now).max().alias("newest")
    found = table.select(past, (time > now).sum().alias("future")).collect(engine="streaming")
    newest, future = found.row(0)
    return newest, int(future or 0)


def judge_freshness(newest: Newest, now: datetime, spec: FreshnessSpec) -> Freshness:
    """Hold the newest row to the bound; where there is none, the source is not fresh."""
    future = (
        f" {counted(newest.future, 'row', 'are')} from the future (after {now:%Y-%m-%d %H:%M} UTC)"
        " and do not count: check the clock of the source."
        if newest.future
        else ""
    )
    bound = duration_text(spec.within)
    if newest.time is None:
        said = f"There is no row yet; one of the last {bound} was expected."
        return Freshness(False, said + future, newest)
    age = now - newest.time
    where = f" (partition {newest.partition})" if newest.partition else ""
    said = (
        f"The newest row is of {newest.time:%Y-%m-%d %H:%M} UTC{where}, {_age(age)} ago; one "
        f"within {bound} was expected."
    )
    return Freshness(age <= spec.within, said + future, newest)


def _age(age: timedelta) -> str:
    hours = age.total_seconds() / 3600
    return f"{hours / 24:,.1f} days" if hours >= 48 else f"{hours:,.1f} hours"


def bounded_sources(pipeline: Pipeline) -> dict[str, SourceSpec]:
    """The sources that declare how recent they have to be."""
    return {name: one for name, one in pipeline.spec.sources.items() if one.freshness}


def source_freshness(pipeline: Pipeline, name: str, now: datetime) -> Freshness:
    """Judge the newest partition that is published; where all its rows are from the future, the
    one before it, and so on.

    Raises:
        StorageError: the store cannot be read.
    """
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


def _judged(pipeline: Pipeline, now: datetime) -> Iterator[tuple[str, Freshness]]:
    for name, source in bounded_sources(pipeline).items():
        try:
            yield name, source_freshness(pipeline, name, now)
        except StoreAway:
            raise
        except StorageError as error:
            assert source.freshness is not None
            yield name, Freshness(False, str(error), Newest(None, None))


def _evaluation(pipeline: Pipeline, name: str, found: Freshness) -> dg.AssetCheckEvaluation:
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


def _metadata(found: Freshness) -> dict[str, str]:
    newest = found.newest
    return {
        "newest_row": str(newest.time or "none"),
        "partition": newest.partition or "all",
        "rows_from_the_future": str(newest.future),
    }
