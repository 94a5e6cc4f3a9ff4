"""Which exact version of each input a step reads: resolved once, read by commit, written down."""

import dagster as dg

from ml_assets.errors import StorageError
from ml_assets.registry.release.recalls import require_sound
from ml_assets.spec.records import StageRecord
from ml_assets.storage.layout import Address, read_record
from ml_assets.storage.snapshots import CommitId, SnapshotStore


def resolve_base(context: dg.AssetExecutionContext, store: SnapshotStore) -> CommitId:
    """The commit that a step reads all its inputs at: one consistent state of ``main``.

    Steps of one run follow each other, so this state holds what the run itself has published.
    """
    commit = store.resolve("main")
    context.log.debug(f"inputs are read at commit {commit}")
    return commit


def require_record(store: SnapshotStore, commit: CommitId, address: Address) -> StageRecord:
    """The record of an input.

    Raises:
        StorageError: it was never materialized; the message says which asset to make.
        Recalled: it was made from bad data.
    """
    record = read_record(store, commit, address)
    if record is None:
        raise StorageError(
            f"{address} was never materialized (commit {commit[:12]} has no {address.record})."
            f" Materialize {address.key} first, or run: ml-assets run {address.pipeline}"
        )
    require_sound(store, commit, record)
    return record
