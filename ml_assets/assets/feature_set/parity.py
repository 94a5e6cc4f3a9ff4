"""The check ``parity`` of feature_set: replays a few rows before they are published."""

from collections.abc import Callable, Sequence
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

STAGE = "feature_set"
CHECK_NAME = "parity"
RowsOf = Callable[[PipelineState, str | None], "pl.LazyFrame"]
"""Makes the feature rows of a partition."""
PARTITIONS = 3
"""Partitions of a step that are replayed: the newest, and others by draw. Each is made again."""


def parity_spec(pipeline: Pipeline) -> CheckSpec:
    """The check, as Dagster declares it."""
    return check_spec(
        pipeline,
        STAGE,
        CHECK_NAME,
        "Random rows are made again as for a single prediction, only from data that was known at"
        " the time of their decision: both must be the same, bit for bit.",
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
    _drawn: tuple[str | None, ...] | None = None
    """None: nothing was replayed yet."""
    _found: dict[str | None, CheckOutcome] = field(default_factory=dict)
    _made: "dict[str | None, tuple[PipelineState, pl.LazyFrame]]" = field(default_factory=dict)

    def checks(self, partition: str | None) -> tuple[CheckOutcome, ...]:
        """The verdict on a partition, if it was drawn.

        Raises:
            MlAssetsError: its rows cannot be made, or a store does not say what it holds.
        """
        if partition in self._examined() and partition not in self._found:
            self._judge(partition, *self.rows(self.pipeline.address(STAGE, partition=partition)))
        return (self._found[partition],) if partition in self._found else ()

    def refusal(self, address: Address) -> FeaturesDiffer | None:
        """Return why the partition is not published; None: nothing differs."""
        self._examined()
        failed = {key: check for key, check in self._found.items() if not check.passed}
        if not failed:
            return None
        if address.partition in failed:
            return FeaturesDiffer(f"{address}: {failed[address.partition].reason}")
        first = next(iter(failed))
        return FeaturesDiffer(f"{address}: held back, because the replay of [{first}] failed")

    def rows(self, address: Address) -> "tuple[PipelineState, pl.LazyFrame]":
        """The feature rows of a partition, and the state that they are made from."""
        if address.partition in self._made:
            return self._made.pop(address.partition)
        state = self.pipeline.now()
        return state, self.rows_of(state, address.partition)

    def _examined(self) -> Sequence[str | None]:
        """The partitions that were drawn: each is judged, if its rows can be made."""
        if self._drawn is None:
            state = self.pipeline.now()
            found = drawn(self.partitions, state.commit)
            for partition in found:
                try:
                    rows = self.rows_of(state, partition)
                except MlAssetsError:  # of its inputs: told when its turn comes
                    continue
                self._judge(partition, state, rows)
            self._drawn = found
        return self._drawn

    def _judge(self, partition: str | None, state: PipelineState, rows: "pl.LazyFrame") -> None:
        self._found[partition] = _replayed(state, partition, rows)
        self._made[partition] = (state, rows)


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
