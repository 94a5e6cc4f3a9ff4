"""Opens the training split of a request: its rows here, or fetched as they are read."""

from contextlib import AbstractContextManager
from pathlib import Path

from ml_assets.spec.training_program import MeasureRequest, SanityRequest, ShardSchema, TrainRequest
from ml_assets.store.block_order import BlockOrder, block_order
from ml_assets.training.rows.arrays import SplitArrays
from ml_assets.training.rows.tokens import split_arrays
from ml_assets.training.stop import BadRequest


def open_training_split(
    request: TrainRequest | MeasureRequest | SanityRequest,
    folder: Path,
    schema: ShardSchema,
    waits: AbstractContextManager[object],
) -> tuple[SplitArrays, BlockOrder | None]:
    """The rows, and the order of their blocks; None: any row may come at any place.

    Args:
        waits: runs while rows that are fetched are waited for.

    Raises:
        BadRequest: the set is of texts, and its rows are to be fetched.
    """
    spec, source = request.training, request.on_demand
    if source is None:
        rows = split_arrays(folder, schema, "train")
        return rows, block_order(rows.shards, spec) if spec.order == "blocks" else None
    if schema.preprocessing.tokens:
        raise BadRequest("Texts are not fetched as they are read: remove cluster.data_cache.")
    from ml_assets.training.rows.fetched import FetchedRows

    order = block_order([shard.rows for shard in schema.splits["train"]], spec)
    return FetchedRows(schema, source, order, waits), order
