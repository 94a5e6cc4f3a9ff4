"""One pipeline: its spec, its folder, the settings, and the stores with its results."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import ValidationError

from ml_assets.errors import SpecError
from ml_assets.settings import Settings
from ml_assets.spec.load import find_pipeline, load_spec, pipeline_folders
from ml_assets.spec.network_code import NetworkCode, read_network
from ml_assets.spec.pipeline import PipelineSpec
from ml_assets.spec.records import InputVersion, StageRecord
from ml_assets.spec.search import SearchSpec, load_search, with_values
from ml_assets.spec.search_parameter import Value
from ml_assets.spec.split import StratifiedGroupSplit
from ml_assets.spec.stages import SEARCH_STAGE
from ml_assets.spec.study_record import parted_by
from ml_assets.spec.training import Module, without_meaning
from ml_assets.store.layout import Address, published_partitions, read_record, recent_records
from ml_assets.store.objects import LocalObjects
from ml_assets.store.open import has_snapshots, open_objects, shared_snapshots
from ml_assets.store.snapshots import MAIN, CommitId, SnapshotStore

if TYPE_CHECKING:
    import polars as pl


@dataclass(frozen=True)
class Winner:
    """The setting that a study found best, and where that is written down."""

    study: str
    trial: int
    space: str
    """Digest of the space that was searched."""
    values: Mapping[str, Value]
    record: InputVersion
    """The record of the study, and the commit that it was read at."""
    split: str | None = None
    """Digest of what parted the rows that chose it; None: the study does not say."""
    as_of: str | None = None
    """The last partition of the study's window; None: its rows were read whole."""
    data: str | None = None
    """The digest of the study's training set."""

    def may_know(
        self, spec: PipelineSpec, as_of: str | None, data: str | None
    ) -> tuple[str, str] | None:
        """Why rows that chose it may be held out of a training set; None: they are not.

        Args:
            as_of: the last partition of the set; None: it is not known, or rows are read whole.
            data: the digest of the set; None: it is not known.

        Returns:
            The reason, and what a search that mends it is asked with.
        """
        if self.split != parted_by(spec):
            return (
                "the study split its rows otherwise (another split, seed, key or time), so rows"
                " that chose this trial may be in the holdout now",
                "",
            )
        if as_of and as_of < (self.as_of or ""):
            return (
                f"its study was as of {self.as_of}, so rows that chose it may be held out as of"
                f" {as_of}",
                f" --as-of {as_of}",
            )
        if isinstance(spec.split, StratifiedGroupSplit) and data and data != self.data:
            return (
                "its study was on another training set, and a split of kind stratified_group moves"
                " entities where rows change, so some that chose it may be held out now",
                "",
            )
        return None


@dataclass(frozen=True)
class Pipeline:
    """A spec, the folder it was declared in, and where the settings say that its state lies."""

    spec: PipelineSpec
    folder: Path
    """Holds the feature function and the contracts that the spec names."""
    settings: Settings
    shown_until: date | None = None
    """Where the partitions that Dagster is told of end; None: with those of the spec."""
    search: SearchSpec | None = None
    """What ``search.yaml`` beside the spec says; None: there is none."""
    winner: Winner | None = None
    """Whose values the spec has; None: they are all its own."""
    own: PipelineSpec | None = None
    """The spec as it was declared, where a winner's values are in ``spec``."""
    set_aside: str = ""
    """Why the winner of the newest study is not adopted, in a sentence; empty: it is, or there is
    none."""

    @property
    def name(self) -> str:
        return self.spec.name

    @property
    def scratch(self) -> Path:
        return self.settings.scratch

    @property
    def on_cluster(self) -> bool:
        """Each partition is a run of its own then, and work on GPUs queues for them."""
        return self.settings.launcher == "kubernetes"

    @cached_property
    def store(self) -> SnapshotStore:
        """Tables, records and the ledger; opened at first use."""
        return shared_snapshots(self.settings.snapshots)

    @cached_property
    def objects(self) -> LocalObjects:
        """Shards, checkpoints, weights and reports; opened at first use."""
        return open_objects(self.settings.objects, self.settings.cache)

    @property
    def network(self) -> NetworkCode | None:
        """The code of a team's own network, as it is in the folder now; None: one of ours.

        Raises:
            SpecError: it cannot be read whole.
        """
        model = self.spec.model
        return read_network(self.folder, model) if isinstance(model, Module) else None

    @property
    def declared(self) -> "Pipeline":
        """The pipeline by its spec alone, without a winner's values."""
        return replace(self, spec=self.own or self.spec, winner=None, own=None, set_aside="")

    def with_winner(self, as_of: str | None = None) -> "Pipeline":
        """The pipeline by the newest study's winner, where the search says to adopt it.

        A winner that the declared space does not hold is none: whatever is written down as one,
        only what a team declared to try is ever trained. Nor is one that rows chose which the
        training set may hold out: the gates would judge it by what it was chosen on.

        Args:
            as_of: the last partition of the training set that is to be made; None: the published
                one is trained on.
        """
        own = self.declared
        if self.search is None or not self.search.adopt:
            return own
        if not has_snapshots(self.settings.snapshots):
            return own
        state = own.now()
        winner = read_winner(state)
        if winner is None:
            return own
        if not self.search.holds(winner.values):
            return own._without(winner, "search.yaml does not hold its values")
        set_now = state.record(own.address("training_set"))
        trained_on = set_now.attributes if set_now else {}
        known = winner.may_know(
            own.spec, as_of or trained_on.get("as_of"), trained_on.get("digest")
        )
        if known:
            return own._without(winner, *known)
        try:
            spec = with_values(own.spec, winner.values)
        except ValidationError:  # the rest of the spec has changed
            return own._without(winner, "its values do not go with the rest of the spec")
        return replace(own, spec=spec, winner=winner, own=own.spec)

    def _without(self, winner: Winner, why: str, asked_with: str = "") -> "Pipeline":
        said = (
            f"trial {winner.trial} of {winner.study} is not adopted; the spec's own values are"
            f" used: {why}. Search again: ml-assets run {self.name} --search{asked_with}"
        )
        return replace(self, set_aside=said)

    def at(self, commit: CommitId) -> "PipelineState":
        """Return what was published at a commit."""
        return PipelineState(self, commit)

    def now(self) -> "PipelineState":
        """Return what is published on ``main`` now: one consistent state to read everything at."""
        return PipelineState(self, self.store.resolve(MAIN))

    def address(
        self, stage: str, source: str | None = None, partition: str | None = None
    ) -> Address:
        """Return where a stage's table and record lie."""
        return Address(self.name, stage, source, partition)

    def is_versioned(self, name: str) -> bool:
        """Return whether it is a source that changes slowly: each partition has one version."""
        source = self.spec.sources.get(name)
        return source is not None and source.versioned

    def warm_up(self, name: str) -> int:
        """Return how many partitions precede the first of a source, a table or feature_set."""
        if name in self.spec.sources:
            return 0
        if name == "feature_set":
            return self.spec.features.look_back + self._warm_up_of([*self.spec.tables])
        table = self.spec.tables[name]
        return table.look_back + self._warm_up_of(table.reads)

    def _warm_up_of(self, names: Sequence[str]) -> int:
        return max((self.warm_up(name) for name in names), default=0)

    def with_epochs(self, epochs: int | None) -> "Pipeline":
        """The pipeline of a spec that says so many epochs; None: as it is.

        Its model has a code version and a session of its own: neither is taken for the other.

        Raises:
            SpecError: there are no such epochs, or the model's family has none.
        """
        if epochs is None:
            return self
        model, training = self.spec.model, self.spec.training
        if "epochs" in without_meaning(model):
            raise SpecError(
                f"{self.name}: epochs {epochs} was asked for, and model.family {model.family!r} has"
                " none. Set model.rounds in the spec."
            )
        if epochs < 1:
            raise SpecError(f"{self.name}: epochs is {epochs}; it takes at least one to train.")
        changed = training.model_copy(update={"epochs": epochs})
        return replace(self, spec=self.spec.model_copy(update={"training": changed}))

    def with_asked_epochs(self, epochs: int | None) -> "Pipeline":
        """The pipeline of a training that was recorded with so many; None: its family has none."""
        return self.with_epochs(None if epochs == self.spec.training.epochs else epochs)


@dataclass(frozen=True)
class PipelineState:
    """Holds what a pipeline had published at a commit: all reads of one step see the same state."""

    pipeline: Pipeline
    commit: CommitId

    @property
    def spec(self) -> PipelineSpec:
        return self.pipeline.spec

    @property
    def name(self) -> str:
        return self.pipeline.name

    @property
    def store(self) -> SnapshotStore:
        return self.pipeline.store

    @property
    def objects(self) -> LocalObjects:
        return self.pipeline.objects

    def at(self, commit: CommitId) -> "PipelineState":
        """Return what the same pipeline had published at another commit."""
        return PipelineState(self.pipeline, commit)

    def address(
        self, stage: str, source: str | None = None, partition: str | None = None
    ) -> Address:
        """Return where a stage's table and record lie."""
        return self.pipeline.address(stage, source, partition)

    def record(self, address: Address) -> StageRecord | None:
        """The record of the last whole materialization; None where there is none."""
        return read_record(self.store, self.commit, address)

    def partitions(self, address: Address) -> dict[str, StageRecord]:
        """Partition key -> record, of every published partition of an asset, oldest first."""
        return published_partitions(self.store, self.commit, address)

    def recent(self, address: Address) -> tuple[StageRecord, ...]:
        """The records of an asset's last partitions, oldest first; or its one, read whole."""
        return recent_records(self.store, self.commit, address)

    def scan(self, address: Address) -> "pl.LazyFrame":
        """The rows of a published table."""
        return self.store.scan(self.commit, address.table)

    def exists(self, path: str) -> bool:
        return self.store.exists(self.commit, path)

    def read_bytes(self, path: str) -> bytes:
        return self.store.read_bytes(self.commit, path)


def read_winner(state: PipelineState) -> Winner | None:
    """Return what the study that was published last found best; None: its spec's own setting, or no
    study.

    Raises:
        StorageError: the record of the study is damaged.
    """
    address = state.address(SEARCH_STAGE)
    record = state.record(address)
    if record is None or record.attributes.get("trial") is None:
        return None
    told = record.attributes
    version = InputVersion(
        key=record.key, partition=None, version=record.data_version, commit=state.commit
    )
    return Winner(
        told["study"],
        told["trial"],
        told["space"],
        told["values"],
        version,
        told.get("split"),
        told.get("as_of"),
        told.get("data"),
    )


def open_pipeline(name: str, settings: Settings) -> Pipeline:
    """Open a pipeline by its name, with the values of a winner that it adopts.

    Raises:
        SpecError: there is no such pipeline, or its spec is wrong.
    """
    found = declared_pipeline(name, settings)
    return replace(found, search=load_search(found.folder, found.spec)).with_winner()


def declared_pipeline(name: str, settings: Settings) -> Pipeline:
    """A pipeline by its name, as its spec alone declares it; its search is not read.

    Raises:
        SpecError: there is no such pipeline, or its spec is wrong.
    """
    folder = find_pipeline(pipeline_folders(settings), name)
    return Pipeline(load_spec(folder), folder, settings)
