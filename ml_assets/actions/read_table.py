"""Reads any stored table by its asset key, as it is now or as it was at a commit or data version.

In a notebook::

    from ml_assets.actions.read_table import read_table

    read_table("flight_delays/feature_set").collect()
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import polars as pl

from ml_assets.actions.store_states import known_state
from ml_assets.assets.training_set.shards import load_schema, scan_rows
from ml_assets.errors import StorageError, did_you_mean
from ml_assets.records.recalls import require_sound
from ml_assets.settings import Settings, read_settings
from ml_assets.spec.records import StageRecord
from ml_assets.spec.stages import DATA_STAGES
from ml_assets.spec.training_program import Ref
from ml_assets.store.layout import Address, partition_of, read_records, recorded_pipelines
from ml_assets.store.objects import LocalObjects
from ml_assets.store.open import open_objects, open_snapshots
from ml_assets.store.snapshots import MAIN, CommitId, SnapshotStore

_SHORTEST_PREFIX = 6


@dataclass(frozen=True)
class StoredTable:
    """One table of the snapshot store."""

    key: str
    """What people call it: ``pipeline/stage/name``."""
    partition: str | None
    scan: Callable[[], pl.LazyFrame]
    record: StageRecord | None = None
    """None for rows of a table of which nothing was published."""


def read_table(
    key: str,
    partition: str | None = None,
    version: str | None = None,
    settings: Settings | None = None,
) -> pl.LazyFrame:
    """The rows of a table; of all its partitions, oldest first, where none is named.

    Args:
        key: as the lineage shows it: ``pipeline/raw_snapshot/raw_source``,
            ``pipeline/validated_table/source``, ``pipeline/derived_table/table``,
            ``pipeline/feature_set``, ``pipeline/training_set`` (it has the column ``split``). Or
            ``pipeline/quarantine/source``, rows kept back beside a published table, and
            ``pipeline/rejected/source``, tables of which nothing was published.
        version: a commit or tag of the snapshot store, or a data version of the table; a unique
            prefix of at least six characters will do. Default: the head of ``main``.

    Raises:
        StorageError: there is no such table, partition or version; names what there is.
        Recalled: it was made from bad data.
    """
    found = settings or read_settings()
    store = open_snapshots(found.snapshots)
    wanted = key.strip("/")
    commit, only = (store.resolve(MAIN), None) if version is None else _at(store, wanted, version)
    known = list(stored_tables(store, commit, open_objects(found.objects, found.cache)))
    tables = [table for table in known if table.key == wanted]
    if not tables:
        raise StorageError(_no_such_key(wanted, {table.key for table in known}))
    chosen = [t for t in tables if (partition or only) in (None, t.partition)]
    if not chosen:
        have = [t.partition or "all" for t in tables]
        raise StorageError(
            f"{wanted} has no partition {partition or only!r} at commit {commit[:12]}; it has"
            f" {len(have)}: {', '.join(have[:3])}{' ... ' + have[-1] if len(have) > 3 else ''}"
        )
    for table in chosen:
        if table.record:
            require_sound(store, store.resolve(MAIN), table.record)
    return pl.concat([table.scan() for table in chosen], how="diagonal")


def stored_tables(
    store: SnapshotStore, commit: CommitId, objects: LocalObjects
) -> Iterator[StoredTable]:
    """Every table of a commit, by key and partition.

    Args:
        objects: where training sets lie.
    """
    for pipeline in recorded_pipelines(store, commit):
        for record in read_records(store, commit, pipeline):
            yield from _of_record(store, commit, record, objects)
    for entry in store.list(commit, "quarantine/"):
        _, pipeline, _, source, name = entry.path.split("/")
        key = f"{pipeline}/rejected/{source}"
        yield _stored(store, commit, key, partition_of(name), entry.path)


def _of_record(
    store: SnapshotStore, commit: CommitId, record: StageRecord, objects: LocalObjects
) -> Iterator[StoredTable]:
    address = Address.of(record.key, record.partition)
    pipeline, stage = address.pipeline, address.stage
    if stage in DATA_STAGES:
        table = _stored(store, commit, record.key, record.partition, address.table)
        yield replace(table, record=record)
    if stage == "validated_table":
        kept = f"{pipeline}/quarantine/{address.source}"
        path = address.file("quarantine.parquet")
        yield _stored(store, commit, kept, record.partition, path)
    if stage == "training_set":
        ref = Ref(uri=record.attributes["uri"], digest=record.attributes["digest"])
        own = objects.own(ref, "shards", pipeline)
        yield StoredTable(record.key, None, lambda: scan_rows(own, load_schema(own)), record)


def _stored(
    store: SnapshotStore, commit: CommitId, key: str, partition: str | None, path: str
) -> StoredTable:
    return StoredTable(key, partition, lambda: store.scan(commit, path))


def _at(store: SnapshotStore, key: str, version: str) -> tuple[CommitId, str | None]:
    """The commit of a state or a data version, and the partition that a data version is of.

    Of a data version it is the newest commit that holds it.
    """
    state = known_state(store, version)
    if state is not None:
        return state, None
    path = key.replace("/quarantine/", "/validated_table/", 1)
    seen: set[str] = set()
    for commit in store.log() if len(version) >= _SHORTEST_PREFIX else ():
        for entry in store.list(commit.id, f"records/{path}/"):
            if entry.digest in seen:
                continue
            seen.add(entry.digest)
            record = StageRecord.model_validate_json(store.read_bytes(commit.id, entry.path))
            if record.data_version.startswith(version):
                return commit.id, record.partition
    raise StorageError(
        f"{version!r} is not the name of a state, and no data version of {key} begins with it."
        " `ml-assets data list` lists the states, `ml-assets status"
        f" {key.split('/')[0]} --json` the versions."
    )


def _no_such_key(key: str, known: set[str]) -> str:
    if not known:
        return f"There is no table {key!r}: nothing is made yet. Run: ml-assets run PIPELINE"
    there = "".join(f"\n  {one}" for one in sorted(known))
    return f"There is no table {key!r}.{did_you_mean(key, known)} There are:{there}"
