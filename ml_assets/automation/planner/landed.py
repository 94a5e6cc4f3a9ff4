"""Finds what a pipeline's sources hold now: partitions that can be read, and those that wait."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from ml_assets.assets.raw_snapshot.asset import STAGE as RAW
from ml_assets.assets.raw_snapshot.readers.arrived_files import Looked
from ml_assets.assets.raw_snapshot.sources import Sources
from ml_assets.automation.planner.plan import RECALLED
from ml_assets.errors import SourceError, counted
from ml_assets.spec.partitions import PartitionWindow, why_in_no_partition, windows
from ml_assets.spec.pipeline import PipelineSpec
from ml_assets.spec.records import StageRecord
from ml_assets.store.layout import Address
from ml_assets.store.pipeline_context import Pipeline


@dataclass(frozen=True)
class Landed:
    """The partitions that each partitioned source has, or had when they were read.

    Gaps are kept as gaps. A source that cleans up takes nothing away: what was read is published.
    """

    windows: tuple[PartitionWindow, ...]
    looks: Mapping[str, Looked] = field(default_factory=dict)
    """Source -> what it holds at this moment."""
    recalled: tuple[str, ...] = ()
    """Partitions that were bad and are in a source no more: nothing is made of them."""
    unread: tuple[str, ...] = ()
    """Files that are of no partition that has ended, in sentences."""

    @property
    def keys(self) -> tuple[str, ...]:
        return tuple(window.key for window in self.windows)

    def holds(self, source: str, partition: str | None) -> bool:
        """Return whether a source has a partition now, and whole."""
        return partition in self._held[source]

    @property
    def as_read(self) -> tuple[str, ...]:
        """Partitions that a source does not have, or not whole, or that are settled there."""
        cut = [
            held
            for name, held in self._held.items()
            if None not in held and None not in self.looks[name].waiting
        ]
        return tuple(key for key in self.keys if not all(key in held for held in cut))

    @cached_property
    def _held(self) -> Mapping[str, frozenset[str | None]]:
        return {name: frozenset(looked.keys) for name, looked in self.looks.items()}

    @property
    def waiting(self) -> list[str]:
        """Return what is still being written and what was not looked at, in sentences."""
        found = [
            f"{name} [{key}] is skipped for now: {said}"
            if key
            else f"{name} is skipped for now: {said}"
            for name, looked in self.looks.items()
            for key, said in looked.waiting.items()
        ]
        found += [
            f"{counted(len(looked.later), 'partition')} of {name} not checked yet"
            for name, looked in self.looks.items()
            if looked.later
        ]
        if self.recalled:
            said = "recalled and not complete in all sources: deliver again, or lift the recall"
            found.append(f"{', '.join(self.recalled)} is skipped: {said}")
        return [*found, *self.unread]

    @property
    def is_all(self) -> bool:
        """Return whether no partition is unknown: looked at, or published as it was read."""
        return not any({*looked.later}.difference(self.keys) for looked in self.looks.values())


def landed(pipeline: Pipeline, sources: Sources, records: Mapping[Address, StageRecord]) -> Landed:
    """The partitions of which every partitioned source has data, or a snapshot is published.

    Raises:
        SourceError: there is none.
    """
    known = windows(pipeline.spec.partitions, sources.now())
    looks = {
        name: sources.look(name, source, _asked(pipeline, name, known, records))
        for name, source in pipeline.spec.sources.items()
    }
    every = Landed(known, looks, unread=tuple(_unread(pipeline.spec, known, looks)))
    cut = [name for name, source in pipeline.spec.sources.items() if source.partitioned]

    def gone(window: PartitionWindow) -> list[Address]:
        return [
            raw_address(pipeline, name, window.key)
            for name in cut
            if not every.holds(name, window.key)
        ]

    ever = [window for window in known if all(raw in records for raw in gone(window))]
    bad = [w for w in ever if any(RECALLED in records[raw].attributes for raw in gone(w))]
    found = replace(
        every,
        windows=tuple(window for window in ever if window not in bad),
        recalled=tuple(window.key for window in bad),
    )
    if known and not found.windows:
        raise SourceError(
            f"{pipeline.name}: no partition has data in all of its sources below"
            f" {sources.settings.sources}. {'; '.join([*found.waiting, ''])}Check"
            " ML_ASSETS_SOURCES, or lay out the demo's world: ml-assets demo"
        )
    return found


def _unread(
    spec: PipelineSpec, known: Sequence[PartitionWindow], looks: Mapping[str, Looked]
) -> Iterator[str]:
    """Of each source, the files that wait for the end of their partition, or that have none."""
    ended = {window.key for window in known}
    for name, looked in looks.items():
        keys = [key for key in looked.unasked if key not in ended]
        yield from (f"{name} {said}" for said in why_in_no_partition(spec.partitions, keys))


def _asked(
    pipeline: Pipeline,
    name: str,
    known: Sequence[PartitionWindow],
    records: Mapping[Address, StageRecord],
) -> Sequence[PartitionWindow] | None:
    """The partitions that a source is looked at for: not what was read, is sound, and settled."""
    source = pipeline.spec.sources[name]
    if not source.partitioned:
        return None
    if source.settled is None:
        return known
    since = Sources.now() - source.settled

    def is_settled(window: PartitionWindow) -> bool:
        record = records.get(raw_address(pipeline, name, window.key))
        return window.end <= since and record is not None and RECALLED not in record.attributes

    return [window for window in known if not is_settled(window)]


def calendar(pipeline: Pipeline) -> tuple[str, ...]:
    """Every partition key that has passed by now, landed or not, oldest first."""
    return tuple(w.key for w in windows(pipeline.spec.partitions, Sources.now()))


def raw_address(pipeline: Pipeline, source: str, partition: str | None) -> Address:
    return Address(pipeline.name, RAW, source, partition)
