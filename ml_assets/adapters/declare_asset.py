"""Declares a pipeline's assets to Dagster: key, group, partitions, pool, version."""

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from datetime import UTC, datetime
from functools import wraps
from typing import Any
from zoneinfo import ZoneInfo

import dagster as dg

from ml_assets.adapters.step import reported
from ml_assets.errors import WindowError, counted
from ml_assets.graph.code_version import code_version_of
from ml_assets.spec.load import SPEC_FILE
from ml_assets.spec.partitions import windows
from ml_assets.spec.pipeline import PartitionsSpec
from ml_assets.spec.sources import SourceSpec
from ml_assets.store.pipeline_context import Pipeline

AssetKey = dg.AssetKey
Materialization = dg.AssetMaterialization
CheckSpec = dg.AssetCheckSpec
Step = Callable[..., Any]
Decorator = Callable[[Callable[..., Any]], dg.AssetsDefinition]
GPU_POOL = "gpu"
"""On a cluster: what every run that trains on GPUs waits for in the queue."""


def stage_asset(
    pipeline: Pipeline,
    stage: str,
    source: str | None = None,
    code_version: str | None = None,
    **more: Any,
) -> Decorator:
    """``dg.asset`` with the attributes that every asset of a pipeline declares.

    Args:
        code_version: where the step writes it down, too: it is computed once.
    """
    partitions: dg.PartitionsDefinition | None = more.get("partitions_def")
    asset: Any = dg.asset(
        **attributes(pipeline, stage, source, code_version),
        pool=pool(pipeline, stage, partitioned=partitions is not None),
        backfill_policy=_backfill_policy(pipeline, partitions),
        **more,
    )
    return lambda step: asset(reported(step))


def journaled(pipeline: Pipeline, stage: str) -> Callable[[Step], Step]:
    """Decorate a step: its run's record begins before it, and gets what the step came to."""

    def written(context: Any, given: Mapping[str, Any]) -> AbstractContextManager[None]:
        from ml_assets.adapters.run_journal import StepJournal

        return StepJournal(pipeline, stage, context, given).written()

    def decorate(step: Step) -> Step:
        if inspect.isgeneratorfunction(step):

            @wraps(step)
            def yielding(context: Any, **given: Any) -> Iterator[Any]:
                with written(context, given):
                    yield from step(context, **given)

            return yielding

        @wraps(step)
        def returning(context: Any, **given: Any) -> Any:
            with written(context, given):
                return step(context, **given)

        return returning

    return decorate


def attributes(
    pipeline: Pipeline, stage: str, source: str | None = None, code_version: str | None = None
) -> dict[str, Any]:
    """Return what every asset of a pipeline declares: key, group, owner, code version, tags."""
    return {
        "key": asset_key(pipeline, stage, source),
        "group_name": pipeline.name,
        "owners": [pipeline.spec.owner],
        "code_version": code_version or code_version_of(pipeline, stage, source),
        "tags": {"pipeline": pipeline.name, "stage": stage},
        "freshness_policy": _freshness(pipeline, stage),
        "metadata": {"dagster/code_references": _spec_file(pipeline)},
    }


def _spec_file(pipeline: Pipeline) -> dg.CodeReferencesMetadataValue:
    """The link to the spec that the UI shows beside an asset."""
    place = dg.LocalFileCodeReference(file_path=str(pipeline.folder / SPEC_FILE), label=SPEC_FILE)
    return dg.CodeReferencesMetadataValue(code_references=[place])


def asset_key(pipeline: Pipeline, stage: str, source: str | None = None) -> dg.AssetKey:
    """The key of a stage's asset, as the lineage shows it."""
    return key_of(pipeline.address(stage, source).key)


def key_of(text: str) -> dg.AssetKey:
    """The key of an asset from ``pipeline/stage/name``, as it is written everywhere else."""
    return dg.AssetKey(text.split("/"))


def asset_deps(pipeline: Pipeline, reads: Iterable[tuple[str, str, int]]) -> list[dg.AssetDep]:
    """Return what an asset is made from: stage, name, and how many partitions back it is read."""
    found: list[dg.AssetDep] = []
    for stage, name, look_back in reads:
        key = asset_key(pipeline, stage, name)
        back = dg.TimeWindowPartitionMapping(start_offset=-look_back)
        found.append(dg.AssetDep(key, partition_mapping=back) if look_back else dg.AssetDep(key))
    return found


def check_spec(
    pipeline: Pipeline, stage: str, name: str, about: str, *, blocking: bool
) -> dg.AssetCheckSpec:
    """A check of a stage's asset."""
    return dg.AssetCheckSpec(
        name, asset=asset_key(pipeline, stage), blocking=blocking, description=about
    )


def materialization(
    pipeline: Pipeline, stage: str, version: str, metadata: Mapping[str, Any], about: str = ""
) -> dg.AssetMaterialization:
    """Return what Dagster is told of an asset outside of its own step."""
    return dg.AssetMaterialization(
        asset_key(pipeline, stage),
        description=about or None,
        metadata=dict(metadata),
        tags={"dagster/data_version": version},
    )


def observation(
    key: str, partition: str | None, metadata: Mapping[str, Any], about: str
) -> dg.AssetObservation:
    """Return what is said of an asset on its page, without making it again."""
    return dg.AssetObservation(
        key_of(key), description=about, partition=partition, metadata=dict(metadata)
    )


def pool(pipeline: Pipeline, stage: str = "", *, partitioned: bool = False) -> str | None:
    """Return what the runs of a stage hold while they work; the others wait in the queue.

    On a laptop the pipeline: one run at a time writes it. On a cluster partitions are made side
    by side (each is published on its own), and GPUs are waited for by all pipelines together.
    """
    if not pipeline.on_cluster:
        return pipeline.name
    if partitioned:
        return None
    on_gpus = stage == "trained_model" and pipeline.spec.cluster.gpus_per_node > 0
    return GPU_POOL if on_gpus else pipeline.name


def source_partitions(pipeline: Pipeline, source: SourceSpec) -> dg.PartitionsDefinition | None:
    """The partitions of a source; None where it is read whole."""
    return _definition(_calendar(pipeline)) if source.partitioned else None


def feature_partitions(pipeline: Pipeline) -> dg.PartitionsDefinition | None:
    """The partitions of feature_set: the first ones are only looked back at."""
    return _partitions_after(pipeline, pipeline.warm_up("feature_set"))


def table_partitions(pipeline: Pipeline, table: str) -> dg.PartitionsDefinition | None:
    """The partitions of a derived table; None where everything that it reads is read whole."""
    if not pipeline.spec.is_partitioned(table):
        return None
    return _partitions_after(pipeline, pipeline.warm_up(table))


def _partitions_after(pipeline: Pipeline, warm_up: int) -> dg.PartitionsDefinition | None:
    partitions = _calendar(pipeline)
    if partitions.cadence == "none" or not warm_up:
        return _definition(partitions)
    first = windows(pipeline.spec.partitions, datetime.now(UTC))[warm_up : warm_up + 1]
    if not first:
        raise WindowError(
            f"{pipeline.name}: look_back needs {counted(warm_up, 'partition')}, but fewer have"
            f" passed since partitions.start {partitions.start}. Start earlier, or look back"
            " less."
        )
    start = first[0].start.astimezone(ZoneInfo(partitions.timezone)).date()
    return _definition(partitions.model_copy(update={"start": start}))


def _calendar(pipeline: Pipeline) -> PartitionsSpec:
    partitions, shown = pipeline.spec.partitions, pipeline.shown_until
    return partitions.model_copy(update={"end": shown}) if shown else partitions


def _backfill_policy(
    pipeline: Pipeline, partitions: dg.PartitionsDefinition | None
) -> dg.BackfillPolicy | None:
    """How many runs make a range: one on a laptop, one for each partition on a cluster."""
    if partitions is None:
        return None
    one_each = dg.BackfillPolicy.multi_run(max_partitions_per_run=1)
    return one_each if pipeline.on_cluster else dg.BackfillPolicy.single_run()


def _freshness(pipeline: Pipeline, stage: str) -> dg.FreshnessPolicy | None:
    declared = pipeline.spec.automation.freshness
    bounds = {
        "feature_set": declared.data,
        "training_set": declared.data,
        "released_model": declared.model,
    }
    bound = bounds.get(stage)
    return dg.FreshnessPolicy.time_window(fail_window=bound) if bound else None


def _definition(spec: PartitionsSpec) -> dg.PartitionsDefinition | None:
    """Dagster's partitions for a declared cadence."""
    if spec.cadence == "none" or spec.start is None:
        return None
    start, end = spec.start.isoformat(), spec.end.isoformat() if spec.end else None
    if spec.cadence == "hourly":
        return dg.HourlyPartitionsDefinition(
            f"{start}-00:00", f"{end}-00:00" if end else None, timezone=spec.timezone
        )
    if spec.cadence == "daily":
        return dg.DailyPartitionsDefinition(start, end_date=end, timezone=spec.timezone)
    if spec.cadence == "monthly":
        return dg.MonthlyPartitionsDefinition(start, end_date=end, timezone=spec.timezone)
    return dg.WeeklyPartitionsDefinition(
        start, end_date=end, timezone=spec.timezone, day_offset=spec.day_offset
    )
