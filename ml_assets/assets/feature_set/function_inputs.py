"""The inputs of a team's function for one partition: published tables, and their look-back."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

from ml_assets.errors import WindowError, counted
from ml_assets.spec.partitions import PartitionWindow, windows
from ml_assets.spec.records import StageRecord
from ml_assets.spec.window import Window
from ml_assets.store.layout import Address
from ml_assets.store.pipeline_context import Pipeline, PipelineState

if TYPE_CHECKING:
    import polars as pl

STAGE = "feature_set"


@dataclass
class _Calendar:
    """The partitions up to now, laid out once; and again when a later one is asked for."""

    pipeline: Pipeline
    _spans: tuple[PartitionWindow, ...] = ()
    _places: Mapping[str, int] = field(default_factory=dict)

    def place(self, partition: str) -> int:
        """How many partitions come before one."""
        if partition not in self._places:
            from ml_assets.assets.raw_snapshot.sources import Sources

            self._spans = windows(self.pipeline.spec.partitions, Sources.now())
            self._places = {span.key: place for place, span in enumerate(self._spans)}
        return self._places[partition]

    def spans(self, partition: str, back: int = 0) -> Sequence[PartitionWindow]:
        """A partition and so many before it, oldest first."""
        place = self.place(partition)
        return self._spans[place - back : place + 1]


@dataclass(frozen=True)
class Reads:
    """The tables of one function, and how far back it reads them."""

    pipeline: Pipeline
    reader: str
    """``feature_set``, or the name of a derived table."""
    names: tuple[str, ...]
    look_back: int

    def addresses(self, partition: str | None) -> dict[str, list[Address]]:
        """Table name -> where its partitions lie, oldest first.

        Raises:
            WindowError: the look-back reaches before the first partition.
        """
        keys = self._keys(partition)
        return {
            name: [
                Address(self.pipeline.name, self._stage(name), name, key)
                for key in self._keys_of(name, keys)
            ]
            for name in self.names
        }

    def records(self, state: PipelineState, partition: str | None) -> list[StageRecord]:
        """The records of those tables; a missing one is an error that names it."""
        from ml_assets.graph.inputs import require_record

        return [
            require_record(state, address)
            for addresses in self.addresses(partition).values()
            for address in addresses
        ]

    def tables(self, state: PipelineState, partition: str | None) -> "Mapping[str, pl.LazyFrame]":
        """Table name -> its rows, the look-back included."""
        from ml_assets.graph.inputs import scan_together

        return {
            name: scan_together(state, addresses)
            for name, addresses in self.addresses(partition).items()
        }

    def window(self, partition: str | None) -> Window:
        """The span that the function makes rows for."""
        from ml_assets.assets.feature_set.labels import deciding

        window = Window(None, None, None)
        if partition is not None:
            (span,) = self._calendar.spans(partition)
            window = Window(partition, span.start, span.end)
        return deciding(window, self.pipeline.spec.label) if self.reader == STAGE else window

    def dependencies(self) -> list[tuple[str, str, int]]:
        """The same as stage, name, and how many partitions back each is read."""
        return [(self._stage(name), name, self._back(name)) for name in self.names]

    @cached_property
    def _calendar(self) -> _Calendar:
        return _Calendar(self.pipeline)

    def _keys(self, partition: str | None) -> list[str | None]:
        if partition is None:
            return [None]
        place = self._calendar.place(partition)
        warm_up = self.pipeline.warm_up(self.reader)
        if place < warm_up:
            raise WindowError(
                f"{self.pipeline.name}/{self.reader} [{partition}] looks back"
                f" {counted(warm_up, 'partition')}, and there are only {place} before it."
                f" Its first partition is number {warm_up + 1}; set a smaller look_back, or an"
                " earlier partitions.start."
            )
        return [span.key for span in self._calendar.spans(partition, self.look_back)]

    def _keys_of(self, name: str, keys: Sequence[str | None]) -> Sequence[str | None]:
        """The keys to read; of a slowly changing table, what was known when the partition began."""
        if not self.pipeline.spec.is_partitioned(name):
            return [None]
        return keys[-1:] if self.pipeline.is_versioned(name) else keys

    def _stage(self, name: str) -> str:
        return "validated_table" if name in self.pipeline.spec.sources else "derived_table"

    def _back(self, name: str) -> int:
        alone = self.pipeline.is_versioned(name) or not self.pipeline.spec.is_partitioned(name)
        return 0 if alone else self.look_back


def feature_reads(pipeline: Pipeline) -> Reads:
    """The feature function reads every source and every derived table."""
    names = (*pipeline.spec.sources, *pipeline.spec.tables)
    return Reads(pipeline, STAGE, names, pipeline.spec.features.look_back)


def table_reads(pipeline: Pipeline, table: str) -> Reads:
    """A derived table's function reads what its spec names."""
    spec = pipeline.spec.tables[table]
    return Reads(pipeline, table, spec.reads, spec.look_back)
