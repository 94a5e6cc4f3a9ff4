"""The outside world that a pipeline reads, as a Dagster resource."""

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import dagster as dg

from ml_assets.settings import read_settings
from ml_assets.sources import read as reading
from ml_assets.spec.partitions import PartitionWindow
from ml_assets.spec.sources import SourceSpec


class SourcesResource(dg.ConfigurableResource):
    """Reads sources below one root; SQL URLs come from the environment when they are used."""

    root: str
    seen: str | None = None
    """File that remembers earlier looks; None: every look reads everything."""

    def read(
        self, name: str, source: SourceSpec, window: PartitionWindow | None
    ) -> reading.Reading:
        return reading.read_source(name, source, Path(self.root), read_settings().sql_url, window)

    def receipt(
        self, name: str, source: SourceSpec, window: PartitionWindow | None
    ) -> dict[str, Any]:
        return reading.receipt_of(name, source, Path(self.root), read_settings().sql_url, window)

    def look(
        self, name: str, source: SourceSpec, known: Sequence[PartitionWindow] | None
    ) -> reading.Looked:
        """Which partitions the source has, whole, and what each would be read as."""
        seen = reading.Seen(Path(self.seen)) if self.seen else None
        urls, now = read_settings().sql_url, self.now()
        return reading.look(name, source, Path(self.root), urls, known, seen, now)

    @staticmethod
    def now() -> datetime:
        return datetime.now(UTC)
