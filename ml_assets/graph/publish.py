"""Publishes a step's result: one record and its files, together or not at all."""

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ml_assets.errors import StorageError
from ml_assets.spec.base import canonical_json, digest_of
from ml_assets.spec.records import InputVersion, StageRecord
from ml_assets.store.disk import scratch_in
from ml_assets.store.layout import Address, run_key
from ml_assets.store.objects import file_digest
from ml_assets.store.pipeline_context import Pipeline
from ml_assets.store.snapshots import TOOK_KEY, CommitId, Conflict, PublishResult

if TYPE_CHECKING:
    import polars as pl

    from ml_assets.store.table_statistics import TableStatistics
    from ml_assets.store.table_survey import LabelColumns

TABLE_FILE = "data.parquet"
"""A stage's table."""


@dataclass(frozen=True)
class Work:
    """Holds what one (asset, partition) is about to be made from."""

    address: Address
    code_version: str
    inputs: tuple[InputVersion, ...]
    run: str
    """Dagster run id."""
    salt: str | None = None
    seen: tuple[InputVersion, ...] = ()
    """Read and written down, but no part of the key: the champion at the time."""
    begun: datetime | None = None
    """When a data step began: its machine's time until it is published goes onto the bill."""

    @property
    def run_key(self) -> str:
        return run_key(self.address, self.code_version, self.inputs, self.salt)


@dataclass(frozen=True)
class Published:
    """A record that others can now read, and the commit to read it at."""

    record: StageRecord
    commit: CommitId

    def as_input(self) -> InputVersion:
        return input_version(self.record, self.commit)


@dataclass
class Draft:
    """Files of one (asset, partition) on an ephemeral branch, until it is published or left."""

    pipeline: Pipeline
    work: Work
    base: CommitId
    rows: int | None = None
    missing: dict[str, float] | None = None
    """Column of the stage's table -> share of its values that are missing."""
    statistics: "TableStatistics | None" = None
    """The statistics of the stage's table, where it has a data card."""
    _files: dict[str, Path | bytes] = field(default_factory=dict)
    _removed: list[str] = field(default_factory=list)
    _scratch: tempfile.TemporaryDirectory[str] | None = None

    def __enter__(self) -> "Draft":
        scratch = scratch_in(self.pipeline.scratch)
        self._scratch = tempfile.TemporaryDirectory(dir=scratch)
        return self

    def __exit__(self, *_: object) -> None:
        if self._scratch:
            self._scratch.cleanup()

    @property
    def _scratch_name(self) -> str:
        if self._scratch is None:
            raise ValueError("a Draft is used inside 'with'")
        return self._scratch.name

    def table(self, frame: "pl.DataFrame | pl.LazyFrame", key: Sequence[str]) -> None:
        """Add the stage's table; its rows and missing values become the record's.

        Args:
            frame: rows in memory, or of a file, which are read more than once.
        """
        from ml_assets.store.table_files import missing_shares

        self.rows = self.extra_table(TABLE_FILE, frame, key)
        self.missing = missing_shares(frame)

    def card(
        self,
        frame: "pl.DataFrame | pl.LazyFrame",
        key: Sequence[str],
        labels: "LabelColumns | None" = None,
    ) -> None:
        """Add the statistics that the stage's data card is drawn from."""
        from ml_assets.store.table_survey import survey

        self.card_of(survey(frame, key, labels))

    def card_of(self, statistics: "TableStatistics") -> None:
        """Add statistics that were counted already."""
        from ml_assets.store.table_statistics import STATISTICS_FILE

        self.statistics = statistics
        self.text(STATISTICS_FILE, canonical_json(statistics))

    def extra_table(
        self, name: str, frame: "pl.DataFrame | pl.LazyFrame", key: Sequence[str]
    ) -> int:
        from ml_assets.store.table_files import write_table

        file = Path(self._scratch_name) / name
        rows = write_table(frame, file, key)
        self._files[name] = file
        return rows

    @property
    def version(self) -> str:
        """The data version that the stage's table will have: the digest of its bytes."""
        return file_digest(self.file(TABLE_FILE))

    def file(self, name: str) -> Path:
        """A table that was added, as it will be published."""
        file = self._files[name]
        assert isinstance(file, Path)
        return file

    def text(self, name: str, content: bytes) -> None:
        self._files[name] = content

    def remove(self, path: str) -> None:
        """Take a file away with the same commit, where there is one."""
        if self.pipeline.store.exists(self.base, path):
            self._removed.append(path)

    def keep(self, path: str, frame: "pl.DataFrame", key: Sequence[str]) -> None:
        """Publish one table under a path of its own, with no record: rows that were rejected.

        Raises:
            StorageError: another run kept other rows there meanwhile.
        """
        self.extra_table("kept.parquet", frame, key)
        file = Path(self._scratch_name) / "kept.parquet"
        work = digest_of([self.work.run_key, file_digest(file)])  # other rows are other work
        with self.pipeline.store.open(self.base, work) as workspace:
            workspace.put(path, file)
            workspace.commit(f"quarantine {self.work.address}", {})
            self._require_published(workspace.publish())

    def publish(
        self, *, attributes: Mapping[str, Any], data_version: str | None = None
    ) -> Published:
        """Commit files and record, and merge them into ``main`` in one step.

        The data version is ``data_version``, or the digest of the stage's table.

        Raises:
            StorageError: another run published the same (asset, partition) meanwhile.
        """
        with self.pipeline.store.open(self.base, self.work.run_key) as workspace:
            digests: dict[str, str] = {}
            for name, content in self._files.items():
                path = self.work.address.file(name)
                put = workspace.put_bytes if isinstance(content, bytes) else workspace.put
                digests[name] = put(path, content).digest  # pyright: ignore[reportArgumentType]  matched above
            for path in self._removed:
                workspace.remove(path)
            record = self._record(data_version or digests[TABLE_FILE], attributes)
            workspace.put_bytes(self.work.address.record, canonical_json(record))
            told = {"run_key": self.work.run_key, "run": self.work.run, **self._took()}
            workspace.commit(f"{self.work.address}", told)
            commit = self._require_published(workspace.publish())
        return Published(record, commit)

    def _took(self) -> dict[str, str]:
        if self.work.begun is None:
            return {}
        took = (datetime.now(UTC) - self.work.begun) // timedelta(microseconds=1)
        return {TOOK_KEY: str(max(0, took))}

    def _require_published(self, outcome: PublishResult) -> CommitId:
        if isinstance(outcome, Conflict):
            raise StorageError(
                f"{self.work.address} was published by another run at the same time"
                f" ({', '.join(outcome.paths[:3])}). Nothing was overwritten; materialize it again."
            )
        return outcome.commit

    def _record(self, data_version: str, attributes: Mapping[str, Any]) -> StageRecord:
        work = self.work
        return StageRecord(
            key=work.address.key,
            partition=work.address.partition,
            run_key=work.run_key,
            code_version=work.code_version,
            data_version=data_version,
            rows=self.rows,
            inputs=(*work.inputs, *work.seen),
            attributes={
                **attributes,
                **({"salt": work.salt} if work.salt else {}),
                **({"missing": self.missing} if self.missing is not None else {}),
            },
            run=work.run,
            time=datetime.now(UTC),
        )


def input_version(record: StageRecord, commit: CommitId) -> InputVersion:
    """Return what a downstream step writes down about an input it read."""
    return InputVersion(
        key=record.key, partition=record.partition, version=record.data_version, commit=commit
    )
