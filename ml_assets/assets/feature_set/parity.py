"""The check ``parity`` of feature_set: replays a few rows before they are published."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from random import Random
from typing import TYPE_CHECKING

from ml_assets.adapters.check_outcome import CheckOutcome
from ml_assets.adapters.declare_asset import CheckSpec, check_spec
from ml_assets.errors import FeaturesDiffer, MlAssetsError
from ml_assets.store.layout import Address
from ml_assets.store.pipeline_context import Pipeline, PipelineState
from ml_assets.store.snapshots import CommitId

if TYPE_CHECKING:
    import polars as pl

CHECK_NAME = "parity"
RowsOf = Callable[[PipelineState, str | None], "pl.LazyFrame"]
"""Makes the feature rows of a partition."""
PARTITIONS = 3
"""Partitions of a step that are replayed: the newest, and others by draw. Each is made again."""


def parity_spec(pipeline: Pipeline) -> CheckSpec:
    """The check, as Dagster declares it."""
    return check_spec(
        pipeline,
        "feature_set",
        CHECK_NAME,
        "Rows drawn by chance are made again on the path of a single prediction, from"
        " what was known when they were decided on: they have to be the same, bit for bit.",
        blocking=True,
    )


@dataclass
class Replays:
    """Rows replayed before the first partition of a step is published.

    A row that differs keeps every partition back: they are all made by the same function.
    """

    pipeline: Pipeline
    partitions: Sequence[str | None]
    """Those that the step makes, oldest first."""
    rows_of: RowsOf
    _found: dict[str | None, CheckOutcome] | None = None
    _made: "dict[str | None, tuple[PipelineState, pl.LazyFrame]]" = field(default_factory=dict)

    def checks(self, partition: str | None) -> tuple[CheckOutcome, ...]:
        """The verdict on a partition, if it was drawn."""
        found = self._examined()
        return (found[partition],) if partition in found else ()

    def refusal(self, address: Address) -> FeaturesDiffer | None:
        """Return why the partition is not published; None: nothing differs."""
        failed = {key: check for key, check in self._examined().items() if not check.passed}
        if not failed:
            return None
        if address.partition in failed:
            return FeaturesDiffer(f"{address}: {failed[address.partition].reason}")
        return FeaturesDiffer(f"{address}: held back, because [{next(iter(failed))}] differs")

    def rows(self, address: Address) -> "tuple[PipelineState, pl.LazyFrame]":
        """The feature rows of a partition, and the state that they are made from."""
        if address.partition in self._made:
            return self._made.pop(address.partition)
        state = self.pipeline.now()
        return state, self.rows_of(state, address.partition)

    def _examined(self) -> Mapping[str | None, CheckOutcome]:
        if self._found is None:
            self._found = {}
            state = self.pipeline.now()
            for partition in drawn(self.partitions, state.commit):
                with suppress(MlAssetsError):  # of its inputs: told when its turn comes
                    rows = self.rows_of(state, partition)
                    self._made[partition] = (state, rows)
                    self._found[partition] = _replayed(state, partition, rows)
        return self._found


def _replayed(state: PipelineState, partition: str | None, rows: "pl.LazyFrame") -> CheckOutcome:
    from ml_assets.assets.feature_set.replay import replay

    found = replay(state, partition, rows, Random(f"{state.commit}{partition}"))
    return CheckOutcome(
        CHECK_NAME,
        found.passed,
        True,
        {"rows": found.rows, "moment": str(found.moment)},
        found.reason,
    )


def drawn(partitions: Sequence[str | None], commit: CommitId) -> tuple[str | None, ...]:
    """The partitions to replay rows of: the newest, and others that nobody can choose."""
    *others, newest = partitions
    return (newest, *Random(commit).sample(others, min(PARTITIONS - 1, len(others))))
