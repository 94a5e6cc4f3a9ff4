"""Resolves the exact version of each input of a step: once, read by commit, and recorded."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ml_assets.errors import SchemaChanged, StorageError, counted
from ml_assets.spec.records import StageRecord
from ml_assets.spec.schema_change import declared_changes
from ml_assets.store.layout import Address
from ml_assets.store.pipeline_context import PipelineState

if TYPE_CHECKING:
    import polars as pl


def scan_together(state: PipelineState, addresses: Sequence[Address]) -> "pl.LazyFrame":
    """The rows of partitions of one table, in their order.

    Raises:
        SchemaChanged: some of them were made when its columns were others.
    """
    import polars as pl

    return pl.concat(scan_each(state, addresses))


def scan_each(state: PipelineState, addresses: Sequence[Address]) -> "list[pl.LazyFrame]":
    """The rows of each of these partitions of one table.

    Raises:
        SchemaChanged: some of them were made when its columns were others.
    """
    frames = [state.scan(address) for address in addresses]
    # of scans that are not kept: one that was asked keeps its file's statistics, 0.1 MiB
    schemas = [state.scan(address).collect_schema() for address in addresses]
    older = [a for a, schema in zip(addresses, schemas, strict=True) if schema != schemas[-1]]
    if older:
        named = ", ".join(str(one) for one in older[:3])
        changed = declared_changes(
            {name: str(dtype) for name, dtype in schemas[addresses.index(older[-1])].items()},
            {name: str(dtype) for name, dtype in schemas[-1].items()},
        )
        raise SchemaChanged(
            f"{len(older)} of {counted(len(addresses), 'partition')} that are read together"
            f" ({named}) have other columns than {addresses[-1]}"
            f" ({changed or 'in another order'}). Make them again: ml-assets run"
            f" {addresses[-1].pipeline}"
        )
    return frames


def require_record(state: PipelineState, address: Address) -> StageRecord:
    """The record of an input.

    Raises:
        StorageError: it was never materialized; the message says which asset to make.
        Recalled: it was made from bad data.
    """
    from ml_assets.records.recalls import require_sound

    record = state.record(address)
    if record is None:
        raise StorageError(
            f"{address} was never materialized (commit {state.commit[:12]} has no"
            f" {address.record}). Materialize {address.key} first, or run: ml-assets run"
            f" {address.pipeline}"
        )
    require_sound(state.store, state.commit, record)
    return record
