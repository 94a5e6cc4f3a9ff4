"""The outside world that a pipeline reads."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Self

from ml_assets.assets.raw_snapshot.readers import read_source
from ml_assets.settings import Settings
from ml_assets.spec.partitions import PartitionWindow
from ml_assets.spec.sources import SourceSpec
from ml_assets.store.pipeline_context import Pipeline


@dataclass(frozen=True)
class Sources:
    """Reads sources below the root that the settings name."""

    settings: Settings
    seen: Path | None = None
    """File that remembers earlier looks; None: every look reads everything."""

    @classmethod
    def of(cls, pipeline: Pipeline) -> Self:
        """The sources of a pipeline, with the memory of earlier looks that sensors keep."""
        return cls(pipeline.settings, pipeline.settings.seen)

    def read(
        self, name: str, source: SourceSpec, window: PartitionWindow | None
    ) -> read_source.Reading:
        return read_source.read_source(
            name, source, self.settings.sources, self.settings.sql_url, window
        )

    def receipt(
        self, name: str, source: SourceSpec, window: PartitionWindow | None
    ) -> dict[str, Any]:
        return read_source.receipt_of(
            name, source, self.settings.sources, self.settings.sql_url, window
        )

    def look(
        self, name: str, source: SourceSpec, known: Sequence[PartitionWindow] | None
    ) -> read_source.Looked:
        """Return which partitions the source has, whole, and what each would be read as."""
        seen = read_source.Seen(self.seen) if self.seen else None
        urls, now = self.settings.sql_url, self.now()
        return read_source.look(name, source, self.settings.sources, urls, known, seen, now)

    @staticmethod
    def now() -> datetime:
        return datetime.now(UTC)
