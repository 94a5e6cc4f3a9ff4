"""The rows that a model in canary is judged on: the first partitions after its holdout."""

from dataclasses import dataclass

import polars as pl

from ml_assets.assets.training_set.window import feature_order
from ml_assets.errors import EvidenceError
from ml_assets.graph.inputs import require_record
from ml_assets.graph.publish import input_version
from ml_assets.records.ledger.origin import Origin, find_origin
from ml_assets.spec.base import digest_of
from ml_assets.spec.records import CanaryPeriod, InputVersion, StageRecord
from ml_assets.store.layout import Address, published_partitions
from ml_assets.store.pipeline_context import Pipeline, PipelineState
from ml_assets.store.snapshots import CommitId


@dataclass(frozen=True)
class Waiting:
    """The rows are not there yet."""

    model: str
    partition: str
    """The first one that is missing."""

    @property
    def reason(self) -> str:
        return (
            f"model {self.model[:12]} is in canary and waits for the partition {self.partition} of"
            " feature_set"
        )


@dataclass(frozen=True)
class CanaryRows:
    """Labelled rows that no decision on the model has seen."""

    model: Origin
    partitions: tuple[StageRecord, ...]
    """Records of feature_set, oldest first: always the first ones behind the holdout, so that
    nobody chooses the week that suits."""
    commit: CommitId

    @property
    def inputs(self) -> tuple[InputVersion, ...]:
        model = input_version(self.model.model, self.model.commit)
        return (model, *(input_version(record, self.commit) for record in self.partitions))

    @property
    def digest(self) -> str:
        """The digest of which partitions they are, and of what is in them."""
        return digest_of([[record.partition, record.data_version] for record in self.partitions])

    @property
    def span(self) -> tuple[str, str]:
        return self.partitions[0].partition or "", self.partitions[-1].partition or ""

    def period(self, rows: int) -> CanaryPeriod:
        return CanaryPeriod(first=self.span[0], last=self.span[1], rows=rows)

    def read(self, pipeline: Pipeline) -> pl.DataFrame:
        """The rows with a label; those of a query side by side.

        Raises:
            EvidenceError: no row has one yet.
        """
        features, label = Address(pipeline.name, "feature_set"), pipeline.spec.label
        tables = [
            pipeline.store.scan(self.commit, features.at(r.partition).table)
            for r in self.partitions
        ]
        rows = pl.concat(tables).filter(pl.col(label.column).is_not_null()).collect()
        if rows.is_empty():
            raise EvidenceError(
                f"{pipeline.name}: no row of {' to '.join(self.span)} has a label {label.column!r}:"
                " the outcomes have not arrived yet. The model stays in canary."
            )
        return rows.sort(label.query, maintain_order=True) if label.query else rows


def canary_rows(state: PipelineState, model: str) -> CanaryRows | Waiting:
    """Return what the policy asks a model in canary to be scored on, as of a commit.

    Raises:
        EvidenceError: nobody can tell where its holdout ended.
    """
    canary = state.spec.release.canary
    origin = find_origin(state.store, state.name, model)
    if origin is None or canary == "none":
        raise EvidenceError(
            f"{state.name}: the records of model {model[:12]} are no longer in the snapshot "
            "store, so where its holdout ended is not known. It stays in canary."
        )
    published = published_partitions(state.store, state.commit, Address(state.name, "feature_set"))
    order = feature_order(state.pipeline)
    begin = order.index(_end_of_holdout(state.pipeline, origin)) + 1
    wanted = [*order[begin : begin + canary.periods]]
    missing = [key for key in wanted if key not in published]
    if missing or len(wanted) < canary.periods:
        return Waiting(model, missing[0] if missing else f"behind {order[-1]}")
    return CanaryRows(origin, tuple(published[key] for key in wanted), state.commit)


def _end_of_holdout(pipeline: Pipeline, origin: Origin) -> str:
    data = require_record(pipeline.at(origin.commit), pipeline.address("training_set"))
    if data.attributes["digest"] != origin.model.attributes["data"]["digest"]:
        raise EvidenceError(
            f"{pipeline.name}: commit {origin.commit[:12]} holds another training set than that of"
            f" model {origin.model.data_version[:12]}. It stays in canary."
        )
    # whoever made it elsewhere may have seen all that was there
    return origin.model.attributes.get("published_to") or data.attributes["as_of"]
