"""The checks of a partition's feature rows before they are published."""

from collections.abc import Sequence
from dataclasses import dataclass

import polars as pl

from ml_assets.adapters.check_outcome import CheckOutcome
from ml_assets.assets.feature_set.feature_function import FeatureFunction
from ml_assets.assets.feature_set.function_inputs import Reads
from ml_assets.assets.feature_set.hide_future import FutureGuard
from ml_assets.assets.feature_set.parity import Replays, RowsOf
from ml_assets.errors import LeakError, MlAssetsError
from ml_assets.store.layout import Address
from ml_assets.store.pipeline_context import PipelineState


@dataclass(frozen=True)
class JudgedRows:
    """The rows of a partition, or why it is not published."""

    rows: tuple[PipelineState, pl.LazyFrame] | None
    """With the state that they are made from."""
    checks: tuple[CheckOutcome, ...]
    error: MlAssetsError | None = None


class RowGuards:
    """Holds the partitions of a step to the future and to the path of a single prediction.

    Some are drawn. Where one is refused no other is published either: the same function made them.
    """

    def __init__(
        self,
        reads: Reads,
        partitions: Sequence[str | None],
        build: FeatureFunction,
        rows_of: RowsOf,
    ) -> None:
        self.build = build
        self.replays = Replays(reads.pipeline, partitions, rows_of)
        self.future = FutureGuard(reads, partitions)

    def judge(self, address: Address) -> JudgedRows:
        """The rows of a partition, if no guard refuses them."""
        replayed, differs = self.replays.checks(address.partition), self.replays.refusal(address)
        if self.future.stopped:
            return JudgedRows(None, replayed, _both(self.future.stopped, differs))
        state, rows = self.replays.rows(address)
        found, leaks = self.future.judge(state, address, self.build, rows)
        checks, refused = (*found, *replayed), _both(leaks, differs)
        return JudgedRows(None if refused else (state, rows), checks, refused)


def _both(future: MlAssetsError | None, parity: MlAssetsError | None) -> MlAssetsError | None:
    """Why a partition is not published, where two checks of its rows may say it."""
    if future is None or parity is None:
        return future or parity
    return LeakError(f"{future}\n    {parity}")
