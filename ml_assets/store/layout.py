"""The places of a stage's table, record and files in the snapshot store; reads them back."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self, TypeVar

from pydantic import BaseModel, ValidationError

from ml_assets.errors import StorageError, quoted
from ml_assets.spec.base import digest_of
from ml_assets.spec.records import InputVersion, StageRecord
from ml_assets.spec.stages import RAW_PREFIX
from ml_assets.store.snapshots import CommitId, SnapshotStore

ModelT = TypeVar("ModelT", bound=BaseModel)


@dataclass(frozen=True)
class Address:
    """One (asset, partition) of one pipeline."""

    pipeline: str
    stage: str
    source: str | None = None
    partition: str | None = None

    @classmethod
    def of(cls, key: str, partition: str | None = None) -> Self:
        """The address of an asset key, parts joined by ``/``."""
        pipeline, stage, *name = key.split("/")
        source = name[0].removeprefix(_named(stage, "")) if name else None
        return cls(pipeline, stage, source, partition)

    @property
    def key(self) -> str:
        """The asset key, parts joined by ``/``; its last part is what the lineage shows.

        No two assets of a pipeline have the same last part: a source as it was read is ``raw_``.
        """
        name = _named(self.stage, self.source) if self.source else None
        return "/".join(part for part in (self.pipeline, self.stage, name) if part)

    @property
    def table(self) -> str:
        return f"tables/{self.key}/{self._slot}/data.parquet"

    @property
    def record(self) -> str:
        return f"records/{self.key}/{self._slot}.json"

    def file(self, name: str) -> str:
        """A file of the stage's own, beside its table."""
        return f"tables/{self.key}/{self._slot}/{name}"

    @property
    def rejected(self) -> str:
        """Return where the rows of a table are kept of which nothing was published."""
        return f"quarantine/{self.key}/{self._slot}.parquet"

    def at(self, partition: str | None) -> "Address":
        return Address(self.pipeline, self.stage, self.source, partition)

    def __str__(self) -> str:
        return f"{self.key} [{self.partition}]" if self.partition else self.key

    @property
    def _slot(self) -> str:
        return (self.partition or "all").replace(":", "-")


_HOUR_OF_A_SLOT = re.compile(r"^(\d{4}-\d\d-\d\d-\d\d)-(\d\d)")


def partition_of(file_name: str) -> str | None:
    """The partition that a table's file is named after; None: the table has no partitions."""
    slot = file_name.removesuffix(".parquet")
    return None if slot == "all" else _HOUR_OF_A_SLOT.sub(r"\1:\2", slot)


def _named(stage: str, source: str) -> str:
    """What a stage calls its asset of a source."""
    return f"{RAW_PREFIX}{source}" if stage == "raw_snapshot" else source


def run_key(
    address: Address, code_version: str, inputs: Sequence[InputVersion], salt: str | None = None
) -> str:
    """Names the work of making one (asset, partition): equal key, equal result; never a run id.

    The champion is an input of a decision but no part of its key.
    """
    return digest_of(
        {
            "key": address.key,
            "partition": address.partition,
            "code": code_version,
            "inputs": sorted([i.key, i.partition or "", i.version] for i in inputs),
            "salt": salt,
        }
    )


def read_record(store: SnapshotStore, commit: CommitId, address: Address) -> StageRecord | None:
    """The record of the last whole materialization as of ``commit``; None where there is none.

    Raises:
        StorageError: the record is there but cannot be read.
    """
    if not store.exists(commit, address.record):
        return None
    return read_as(store, commit, address.record, StageRecord)


def read_records(
    store: SnapshotStore, commit: CommitId, pipeline: str, stage: str | None = None
) -> tuple[StageRecord, ...]:
    """All records of a pipeline (or of one stage of it), ordered by key and partition."""
    prefix = f"records/{pipeline}/{stage}/" if stage else f"records/{pipeline}/"
    entries = store.list(commit, prefix)
    return tuple(read_as(store, commit, entry.path, StageRecord) for entry in entries)


def recorded_pipelines(store: SnapshotStore, commit: CommitId) -> list[str]:
    """The pipelines that anything is made of."""
    return sorted({entry.path.split("/")[1] for entry in store.list(commit, "records/")})


def recent_records(
    store: SnapshotStore, commit: CommitId, address: Address, most: int = 104
) -> tuple[StageRecord, ...]:
    """The records of an asset's last partitions, oldest first; or its one, read whole.

    Args:
        most: partitions; by default two years of weeks.
    """
    entries = store.list(commit, f"records/{address.key}/")
    return tuple(read_as(store, commit, entry.path, StageRecord) for entry in entries[-most:])


def published_partitions(
    store: SnapshotStore, commit: CommitId, address: Address
) -> dict[str, StageRecord]:
    """Partition key -> record, of every partition of one asset, oldest first."""
    prefix = f"records/{address.key}/"
    entries = store.list(commit, prefix)
    records = [read_as(store, commit, entry.path, StageRecord) for entry in entries]
    return {r.partition: r for r in sorted(records, key=lambda r: r.partition or "") if r.partition}


def read_as(store: SnapshotStore, commit: CommitId, path: str, kind: type[ModelT]) -> ModelT:
    """A record of whatever kind, at a commit.

    Raises:
        StorageError: it cannot be read.
    """
    try:
        return kind.model_validate_json(store.read_bytes(commit, path))
    except ValidationError as error:
        raise StorageError(
            f"The record {path} at commit {commit[:12]} cannot be read: {quoted(error)}."
            " It was written by another version; make the asset again."
        ) from error
