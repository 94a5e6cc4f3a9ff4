"""Where the rows behind a model were read from, held to what spec and settings name."""

from collections.abc import Iterable, Mapping
from pathlib import Path

from ml_assets.assets.raw_snapshot.readers.read import origin_of
from ml_assets.errors import EvidenceError, StorageError
from ml_assets.records.recalls import derived_from
from ml_assets.settings import Settings
from ml_assets.spec.records import InputVersion, StageRecord
from ml_assets.spec.sources import SourceSpec
from ml_assets.store.layout import Address, read_record
from ml_assets.store.snapshots import CommitId, SnapshotStore


def require_own_sources(
    store: SnapshotStore,
    commit: CommitId,
    inputs: Iterable[InputVersion],
    sources: Mapping[str, SourceSpec],
    settings: Settings,
) -> Mapping[str, str]:
    """Source -> where it was read, once all behind a model was read where it should be.

    Args:
        inputs: what the training set was made from.

    Raises:
        EvidenceError: something was read elsewhere.
        StorageError: nothing says where.
    """
    named = {
        name: origin_of(source, Path(settings.sources), settings.sql_url)
        for name, source in sources.items()
    }
    wrong = {
        f"{record.key}{f' [{record.partition}]' if record.partition else ''} was read from"
        f" {read or 'nobody knows where'}, the spec and the settings name {named.get(name)}"
        for name, read, record in _read_from(store, commit, inputs)
        if read is None or read != named.get(name)
    }
    if wrong:
        some, more = sorted(wrong)[:3], len(wrong) - 3
        raise EvidenceError(
            f"{'; '.join(some)}{f'; and {more} more' if more > 0 else ''}. Deliver them where the"
            " settings look (ML_ASSETS_SOURCES, ML_ASSETS_SQL_<NAME>, the spec's path), and run"
            " again: they are read anew."
        )
    return named


def _read_from(
    store: SnapshotStore, commit: CommitId, inputs: Iterable[InputVersion]
) -> Iterable[tuple[str, str | None, StageRecord]]:
    """Each raw snapshot behind these inputs: its source, and where that was read."""
    todo, seen = list(inputs), set[tuple[str, str | None, str]]()
    while todo:
        version = todo.pop()
        node = version.key, version.partition, version.version
        if version.commit is None or node in seen:
            continue
        seen.add(node)
        record = _record(store, commit, version)
        address = Address.of(version.key)
        if address.stage == "raw_snapshot" and address.source:
            yield address.source, record.attributes.get("receipt", {}).get("source"), record
        else:
            todo.extend(derived_from(record))


def _record(store: SnapshotStore, commit: CommitId, version: InputVersion) -> StageRecord:
    """As it is now, where that has the same content, else as it was."""
    address = Address.of(version.key, version.partition)
    for at in (commit, version.commit or commit):
        record = read_record(store, at, address)
        if record is not None and record.data_version == version.version:
            return record
    raise StorageError(f"Nothing says where {address} was read from: its record is not kept.")
