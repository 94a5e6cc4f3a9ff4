"""Makes the data of a claim again: reads the sources, then makes tables and features from them."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

import polars as pl

from ml_assets.adapters.declare_asset import key_of
from ml_assets.adapters.execute import Tell, execute
from ml_assets.adapters.runs import Definitions, Selection
from ml_assets.assets.raw_snapshot.receipt import window_of
from ml_assets.assets.raw_snapshot.sources import Sources
from ml_assets.automation.planner.landed import calendar
from ml_assets.automation.planner.plan import contiguous
from ml_assets.errors import Interrupted, MlAssetsError, SourceError, StorageError
from ml_assets.extras.prove.claim import address_of
from ml_assets.extras.prove.clean_home import CleanHome
from ml_assets.extras.prove.reproduction import Reproduction, table_difference
from ml_assets.records.record_history import Made
from ml_assets.store.layout import read_record
from ml_assets.store.pipeline_context import Pipeline
from ml_assets.store.snapshots import MAIN, SnapshotStore


@dataclass(frozen=True)
class DataWalk:
    """The walk from the raw snapshots to the features, in a clean home."""

    pipeline: Pipeline
    defs: Definitions
    home: CleanHome
    tell: Tell
    from_snapshots: bool = False
    """Sources are not read again: what was read then is taken as it was kept."""

    def verdicts(self, data: Sequence[Made]) -> Iterator[Reproduction]:
        """A verdict for each asset, in the order of the walk; the caller stops where one differs.

        Raises:
            Interrupted: somebody stopped it.
            StorageError: a snapshot that has to be brought is lost.
        """
        for _, made in groupby(data, key=lambda one: one.record.key):
            group = list(made)
            again = self._raw if address_of(group[0]).stage == "raw_snapshot" else self._make
            yield again(group)

    # --- raw snapshots --------------------------------------------------------------------------

    def _raw(self, group: list[Made]) -> Reproduction:
        key = group[0].record.key
        for made in group:
            damage = self._damage(made)
            if damage:
                return Reproduction(key, "differs", _at(made, damage), len(group))
        kept = group if self.from_snapshots else [m for m in group if not self._can_read(m)]
        self.home.bring_tables(kept)
        read = [made for made in group if made not in kept]
        verdict = self._make(read) if read else Reproduction(key, "equal", "")
        if verdict.outcome == "differs":
            remedy = "--from-snapshots proves the rest from what was read then"
            said = f"{verdict.said}. The source has changed since: {remedy}"
            return Reproduction(key, "differs", said, len(group), verdict.then, verdict.now)
        parts = [
            *([f"{len(read)} read again from the source"] if read else []),
            *([f"{len(kept)} as kept then"] if kept else []),
        ]
        return Reproduction(key, "equal", ", ".join(parts), len(group))

    def _damage(self, made: Made) -> str:
        """What is wrong with the snapshot that is kept; empty where it is what its digest names."""
        try:
            path = address_of(made).table
            data = self.home.real.list(made.commit, path)[0].digest
            self.home.real.read_bytes(made.commit, path)
        except StorageError as error:
            return f"its snapshot cannot be read: {error}"
        if data == made.record.data_version:
            return ""
        found = f"{data[:12]}, its record says {made.record.data_version[:12]}"
        return f"the snapshot that is kept is {found}"

    def _can_read(self, made: Made) -> bool:
        """Whether the source still has it, the same or not."""
        address, sources = address_of(made), Sources(self.home.settings)
        name = address.source or ""
        try:
            window = window_of(self.pipeline, address.partition)
            sources.receipt(name, self.pipeline.spec.sources[name], window)
        except SourceError:
            return False
        return True

    # --- what is made from them -----------------------------------------------------------------

    def _make(self, group: list[Made]) -> Reproduction:
        key = group[0].record.key
        asset = key_of(key)
        keys = [made.record.partition for made in group]
        try:
            for span in _spans(keys, calendar(self.pipeline)):
                selection = Selection((asset,), None if _is_audited(key) else (), span)
                execute(self.defs, self.home.instance, self.pipeline.name, selection, self.tell)
        except Interrupted:
            raise
        except MlAssetsError as error:
            return Reproduction(key, "differs", f"it cannot be made: {error}", len(group))
        return self._compared(group)

    def _compared(self, group: list[Made]) -> Reproduction:
        key, store = group[0].record.key, self.home.store
        now = store.resolve(MAIN)
        for made in group:
            record = read_record(store, now, address_of(made))
            if record is None or record.data_version != made.record.data_version:
                found = record.data_version if record else None
                said = _at(made, self._difference(made, store) if record else "it is not made")
                then = made.record.data_version
                return Reproduction(key, "differs", said, len(group), then, found)
        return Reproduction(key, "equal", "", len(group))

    def _difference(self, made: Made, store: SnapshotStore) -> str:
        table = address_of(made).table
        try:
            then = self.home.real.scan(made.commit, table).collect()
        except StorageError as error:
            return f"another digest, and the earlier table cannot be read: {error}"
        now = store.scan(store.resolve(MAIN), table).collect()
        return table_difference(then, now, [k for k in self._key(made) if k in then.columns])

    def _key(self, made: Made) -> tuple[str, ...]:
        address, spec = address_of(made), self.pipeline.spec
        if address.stage == "feature_set":
            return spec.features.key
        if address.stage == "derived_table":
            return spec.tables[address.source or ""].key
        return spec.sources[address.source or ""].key


def differing_rows(then: pl.DataFrame, now: pl.DataFrame, key: Sequence[str], split: str) -> str:
    """How the rows of one split of a training set differ; empty where they do not."""
    if then.equals(now):
        return ""
    return f"{split}: {table_difference(then, now, key)}"


def _spans(keys: Sequence[str | None], order: Sequence[str]) -> Iterator[tuple[str, str] | None]:
    cut = [key for key in keys if key is not None]
    if len(cut) < len(keys):
        yield None
    yield from contiguous(cut, order)


def _is_audited(key: str) -> bool:
    """It is checked by the step that makes it: its checks cannot be left out."""
    return key.split("/")[1] in ("raw_snapshot", "validated_table", "feature_set")


def _at(made: Made, said: str) -> str:
    return f"[{made.record.partition}] {said}" if made.record.partition else said
