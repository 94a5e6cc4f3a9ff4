"""Makes one or many partitions in a step; each is published and reported on its own."""

from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from time import monotonic
from typing import Any

import dagster as dg

from ml_assets.adapters.check_outcome import CheckOutcome, over_partitions, whole_check
from ml_assets.errors import PASSES, MlAssetsError, StorageError, counted
from ml_assets.graph.publish import Published
from ml_assets.store.layout import Address
from ml_assets.store.pipeline_context import Pipeline

Events = Iterator[dg.MaterializeResult | dg.AssetCheckResult | dg.AssetMaterialization]


BETWEEN_LINES = 1.0
"""Seconds between two lines of progress: a line in Dagster's log costs more than a small table."""


_REPORTED = {"__source_asset_observation__": True}
"""Dagster's own word, for sources that are observed, that a step has reported its partitions."""


@dataclass(frozen=True)
class Made:
    """Holds what became of one (asset, partition): published, or rejected with an error."""

    published: Published | None
    metadata: Mapping[str, Any]
    checks: tuple[CheckOutcome, ...] = ()
    error: MlAssetsError | None = None
    page: Callable[[], Mapping[str, Any]] = dict
    """More metadata, of the newest one of a step only: it is big, or the same for all."""


def make_partitions(
    context: dg.AssetExecutionContext,
    pipeline: Pipeline,
    address: Address,
    make: Callable[[Address], Made],
    history: Callable[[], Mapping[str, Any]],
) -> Events:
    """Make every partition of the step; report each with its own version.

    In a range, each is reported before the next is begun: a process that is killed has reported
    what it published. Failures are collected, and named at the end. They are written down, too,
    for the first page and ``ml-assets status``: before the next report, for Dagster ends a step
    there that was told to end, and asks it for nothing more.

    Args:
        history: metadata about all partitions so far; it goes with the last one made, which is
            reported again for that where others failed after it.

    Raises:
        MlAssetsError: at least one partition failed (all are named). Its class is that of one that
            was hindered, where there is one, for then the rest is worth another try.
    """
    keys = step_partitions(context)
    asset_key = dg.AssetKey(address.key.split("/"))
    made: dict[str | None, Made] = {}
    try:
        page = yield from _make_each(context, pipeline, address, make, made)
    except GeneratorExit:  # nobody takes what is yielded any more
        raise
    except BaseException:
        _note_errors(context, pipeline, address, made)
        yield from _check_results(asset_key, made)
        raise
    failed = _errors(made)
    whole = [key for key, item in made.items() if item.published is not None]
    if whole:
        newest = made[whole[-1]]
        shown = {**history(), **page()}
        made[whole[-1]] = replace(newest, metadata={**shown, **newest.metadata})
        if len(keys) > 1:
            yield _materialization(asset_key, whole[-1], made[whole[-1]])
    yield from _check_results(asset_key, made)
    if failed:
        raise _combined(address, failed, published=len(whole))
    if len(keys) == 1:
        yield materialize_result(asset_key, made[keys[0]])
    else:
        # Dagster would report a range's result for each partition, with one version for all
        yield dg.MaterializeResult(asset_key=asset_key, metadata=_REPORTED)


def _make_each(
    context: dg.AssetExecutionContext,
    pipeline: Pipeline,
    address: Address,
    make: Callable[[Address], Made],
    made: dict[str | None, Made],
) -> Generator[dg.AssetMaterialization, None, Callable[[], Mapping[str, Any]]]:
    """Make the partitions of the step one after the other; return the page of the newest.

    Each is reported at once, but for the last: what is shown of all goes with it.

    Args:
        made: takes what became of each, so that an interruption leaves what came before it.
    """
    keys = step_partitions(context)
    asset_key = dg.AssetKey(address.key.split("/"))
    page: Callable[[], Mapping[str, Any]] = dict
    told = monotonic()
    unwritten: dict[str | None, Made] = {}
    for number, key in enumerate(keys, start=1):
        one = _try(context, pipeline, make, address.at(key))
        page = one.page if one.published else page
        made[key] = replace(one, page=dict)  # a page holds a data card: only the newest is shown
        unwritten[key] = made[key]
        is_last = number == len(keys)
        if one.published or is_last:
            _note_errors(context, pipeline, address, unwritten)
            unwritten.clear()
        if one.published and not is_last:
            yield _materialization(asset_key, key, one)
        is_due = is_last or monotonic() - told >= BETWEEN_LINES
        if len(keys) > 1 and (is_due or made[key].error):
            _log_progress(context, address.at(key), made[key], number, len(keys))
            told = monotonic()
    return page


def _errors(made: Mapping[str | None, Made]) -> dict[str | None, MlAssetsError]:
    return {key: item.error for key, item in made.items() if item.error is not None}


def step_partitions(context: dg.AssetExecutionContext) -> Sequence[str | None]:
    """The partition keys that this step makes; [None] for an asset that is not partitioned."""
    if not context.has_partition_key and not context.has_partition_key_range:
        return [None]
    if context.assets_def.partitions_def is None:
        return [None]
    return list(context.partition_keys)


def materialize_result(asset_key: dg.AssetKey, made: Made) -> dg.MaterializeResult:
    assert made.published is not None
    return dg.MaterializeResult(
        asset_key=asset_key,
        metadata=dict(made.metadata),
        data_version=dg.DataVersion(made.published.record.data_version),
    )


def _try(
    context: dg.AssetExecutionContext,
    pipeline: Pipeline,
    make: Callable[[Address], Made],
    address: Address,
) -> Made:
    try:
        return make(address)
    except MlAssetsError as error:
        return Made(None, {}, error=error)
    except Exception as error:
        said = f"{type(error).__name__}: {error}"
        _note(context, pipeline, address, {address.partition: said})
        raise


def _note_errors(
    context: dg.AssetExecutionContext,
    pipeline: Pipeline,
    address: Address,
    made: Mapping[str | None, Made],
) -> None:
    if failed := _errors(made):
        _note(context, pipeline, address, {key: str(error) for key, error in failed.items()})


def _note(
    context: dg.AssetExecutionContext,
    pipeline: Pipeline,
    address: Address,
    reasons: Mapping[str | None, str],
) -> None:
    from ml_assets.records.data_failures import note_failures

    try:
        note_failures(pipeline.now(), address, context.run.run_id, reasons)
    except StorageError as away:  # the step's own error is the one to tell
        context.log.warning(f"The failure was not recorded: {away}")


def _log_progress(
    context: dg.AssetExecutionContext, address: Address, made: Made, number: int, total: int
) -> None:
    rows = (made.published.record.rows if made.published else None) or 0
    state = counted(rows, "row") if made.published else f"FAILED: {made.error}"
    context.log.info(f"{address}: {state} ({number} of {total})")


def _materialization(
    asset_key: dg.AssetKey, key: str | None, made: Made
) -> dg.AssetMaterialization:
    assert made.published is not None
    return dg.AssetMaterialization(
        asset_key,
        partition=key,
        metadata=dict(made.metadata),
        tags={"dagster/data_version": made.published.record.data_version},
    )


def _check_results(asset_key: dg.AssetKey, made: Mapping[str | None, Made]) -> Events:
    """One result for each check, of all partitions that it judged."""
    by_name: dict[str, dict[str | None, CheckOutcome]] = {}
    for key, item in made.items():
        for check in item.checks:
            by_name.setdefault(check.name, {})[key] = check
    published = [key for key, item in made.items() if item.published is not None]
    for outcomes in by_name.values():
        yield whole_check(asset_key, over_partitions(outcomes, published))


def _combined(
    address: Address, failed: Mapping[str | None, MlAssetsError], published: int
) -> MlAssetsError:
    first, *others = failed.values()
    if list(failed) == [None] or (len(failed) == 1 and not published):
        return first
    lines = "\n".join(f"  {key}: {error}" for key, error in failed.items())
    told = next((error for error in (first, *others) if isinstance(error, PASSES)), first)
    return type(told)(
        f"{address}: {counted(len(failed), 'partition')} failed, {published}"
        f" {'was' if published == 1 else 'were'} published.\n{lines}"
    )
