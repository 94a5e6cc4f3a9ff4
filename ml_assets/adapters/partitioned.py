"""Making one or many partitions in a step: each is published and reported on its own."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import dagster as dg

from ml_assets.adapters.metadata import data_card
from ml_assets.errors import MlAssetsError, counted
from ml_assets.graph.publish import Published
from ml_assets.reports.card import Card
from ml_assets.store.layout import Address
from ml_assets.store.pipeline_context import Pipeline

Events = Iterator[
    dg.MaterializeResult | dg.AssetCheckResult | dg.AssetMaterialization | dg.AssetCheckEvaluation
]


@dataclass(frozen=True)
class CheckOutcome:
    """One expectation's verdict on one partition."""

    name: str
    passed: bool
    critical: bool
    metadata: Mapping[str, Any]
    reason: str


@dataclass(frozen=True)
class Made:
    """What became of one (asset, partition): published, or rejected with an error."""

    published: Published | None
    metadata: Mapping[str, Any]
    checks: tuple[CheckOutcome, ...] = ()
    error: MlAssetsError | None = None
    card: Card | None = None
    """Drawn for the last one of a step only: pictures are big."""


def make_partitions(
    context: dg.AssetExecutionContext,
    address: Address,
    make: Callable[[Address], Made],
    history: Callable[[], Mapping[str, Any]],
) -> Events:
    """Make every partition of the step; report each with its own version.

    In a range, failures are collected: what was published is logged, then the failed are named.

    Args:
        history: metadata about all partitions so far; it goes with the last one made.

    Raises:
        MlAssetsError: at least one partition failed (the first error's class, all named).
    """
    keys = step_partitions(context)
    made: dict[str | None, Made] = {}
    for number, key in enumerate(keys, start=1):
        made[key] = _try(make, address.at(key))
        if len(keys) > 1:
            _log_progress(context, address.at(key), made[key], number, len(keys))
    asset_key = dg.AssetKey(address.key.split("/"))
    failed = {key: item.error for key, item in made.items() if item.error is not None}
    whole = {key: item for key, item in made.items() if item.published is not None}
    if whole:
        newest = list(whole)[-1]
        shown = {**history(), **data_card(whole[newest].card)}
        made[newest] = replace(whole[newest], metadata={**shown, **whole[newest].metadata})
    if failed:
        # a failed step's output is not stored, nor what it logs: what was published is yielded
        yield from _each(asset_key, made)
        raise _combined(address, failed, published=len(whole))
    yield from _check_results(asset_key, made)
    # a range's result is reported for every partition of it: only one alone has the history
    yield materialize_result(asset_key, made[keys[-1]] if len(keys) == 1 else whole[keys[-1]])
    if len(keys) > 1:
        # a range's result stamps one version on all partitions: give each its own
        for event in _each(asset_key, made):
            context.log_event(event)  # pyright: ignore[reportArgumentType]  taken, if not declared


def step_partitions(context: dg.AssetExecutionContext) -> Sequence[str | None]:
    """The partition keys that this step makes; [None] for an asset that is not partitioned."""
    if not context.has_partition_key and not context.has_partition_key_range:
        return [None]
    if context.assets_def.partitions_def is None:
        return [None]
    return list(context.partition_keys)


def whole_check(asset_key: dg.AssetKey, check: CheckOutcome) -> dg.AssetCheckResult:
    """A verdict on an asset that is made in one piece."""
    return dg.AssetCheckResult(
        asset_key=asset_key,
        check_name=check.name,
        passed=check.passed,
        severity=_severity(check),
        description=check.reason,
        metadata=dict(check.metadata),
    )


def _severity(check: CheckOutcome) -> dg.AssetCheckSeverity:
    return dg.AssetCheckSeverity.ERROR if check.critical else dg.AssetCheckSeverity.WARN


def materialize_result(asset_key: dg.AssetKey, made: Made) -> dg.MaterializeResult:
    assert made.published is not None
    return dg.MaterializeResult(
        asset_key=asset_key,
        metadata=dict(made.metadata),
        data_version=dg.DataVersion(made.published.record.data_version),
    )


def address_of(pipeline: Pipeline, stage: str, source: str | None = None) -> Address:
    return Address(pipeline.name, stage, source)


def _try(make: Callable[[Address], Made], address: Address) -> Made:
    try:
        return make(address)
    except MlAssetsError as error:
        return Made(None, {}, error=error)


def _log_progress(
    context: dg.AssetExecutionContext, address: Address, made: Made, number: int, total: int
) -> None:
    rows = made.published.record.rows if made.published else None
    state = f"{rows} rows" if made.published else f"FAILED: {made.error}"
    context.log.info(f"{address}: {state} ({number} of {total})")


def _each(
    asset_key: dg.AssetKey, made: Mapping[str | None, Made]
) -> Iterator[dg.AssetMaterialization | dg.AssetCheckEvaluation]:
    for key, item in made.items():
        if item.published is not None:
            yield dg.AssetMaterialization(
                asset_key,
                partition=key,
                metadata=dict(item.metadata),
                tags={"dagster/data_version": item.published.record.data_version},
            )
        for check in item.checks:
            yield dg.AssetCheckEvaluation(
                asset_key,
                check.name,
                check.passed,
                metadata={k: dg.MetadataValue.text(str(v)) for k, v in check.metadata.items()},
                severity=_severity(check),
                description=check.reason,
                partition=key,
            )


def _check_results(asset_key: dg.AssetKey, made: Mapping[str | None, Made]) -> Events:
    by_name: dict[str, list[tuple[str | None, CheckOutcome]]] = {}
    for key, item in made.items():
        for check in item.checks:
            by_name.setdefault(check.name, []).append((key, check))
    for name, outcomes in by_name.items():
        failed = [(key, check) for key, check in outcomes if not check.passed]
        shown = (failed or outcomes)[0][1]
        yield dg.AssetCheckResult(
            asset_key=asset_key,
            check_name=name,
            passed=not failed,
            severity=_severity(shown),
            description=shown.reason,
            metadata={
                **shown.metadata,
                "partitions": len(outcomes),
                "failed_partitions": ", ".join(str(key) for key, _ in failed) or "none",
            },
        )


def _combined(
    address: Address, failed: Mapping[str | None, MlAssetsError], published: int
) -> MlAssetsError:
    first = next(iter(failed.values()))
    if list(failed) == [None] or (len(failed) == 1 and not published):
        return first
    lines = "\n".join(f"  {key}: {error}" for key, error in failed.items())
    return type(first)(
        f"{address}: {counted(len(failed), 'partition')} failed, {published}"
        f" {'was' if published == 1 else 'were'} published.\n{lines}"
    )
