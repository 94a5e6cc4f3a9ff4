"""A store, and what is published to it with no more than records, to be recalled."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from ml_assets.extras.recall.recall import carry_out, extent
from ml_assets.spec.base import canonical_json
from ml_assets.spec.records import InputVersion, StageRecord
from ml_assets.store.embedded.store import EmbeddedStore
from ml_assets.store.layout import Address, read_record

BAD, GOOD = "b" * 64, "a" * 64
TABLE, MODEL, OTHER = "1" * 64, "2" * 64, "3" * 64


class Walk:
    """A store, and what is published to it with no more than records."""

    def __init__(self, root: Path):
        self.store, self._count = EmbeddedStore(root), 0

    @property
    def head(self) -> str:
        return self.store.resolve()

    def make(
        self, key: str, version: str, *inputs: InputVersion, partition=None, **more: Any
    ) -> InputVersion:
        self._count += 1
        address = Address.of(key, partition)
        record = StageRecord(
            key=key,
            partition=partition,
            run_key=f"{self._count:064d}",
            code_version=more.pop("code_version", "1"),
            data_version=version,
            rows=1,
            inputs=inputs,
            run=f"run-{self._count}",
            time=datetime.now(UTC),
            **more,
        )
        with self.store.open(self.head, record.run_key) as workspace:
            workspace.put_bytes(address.record, canonical_json(record))
            workspace.commit(str(address), {"run": record.run})
            workspace.publish()
        return InputVersion(key=key, partition=partition, version=version, commit=self.head)

    def record(self, key: str, partition: str | None = None) -> StageRecord:
        address = Address.of(key, partition)
        found = read_record(self.store, self.head, address)
        assert found is not None
        return found

    def recall(self, snapshot: str) -> str:
        found = extent(self.store, snapshot, "ann", "the scale was off")
        return carry_out(self.store, found)[0].id
