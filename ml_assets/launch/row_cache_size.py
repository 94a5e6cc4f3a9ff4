"""Holds the disk for fetched rows to what a process reads at a time, before a process starts.

Fewer nodes have more microbatches each, and the same disk. So it is counted for the fewest nodes
too, with which a training may have to go on when one is lost.
"""

from ml_assets.errors import DoesNotFit, counted
from ml_assets.spec.cluster import ClusterSpec
from ml_assets.spec.training import TrainingSpec
from ml_assets.spec.training_program import ShardSchema, World
from ml_assets.store.block_order import block_order
from ml_assets.store.row_encoding import encoded_bytes

_MEBIBYTE = 1 << 20


def require_cached(
    schema: ShardSchema, training: TrainingSpec, world: World, cluster: ClusterSpec, cache: int
) -> None:
    """Hold the cache of a pod to the blocks that its processes read at a time.

    Args:
        world: of the attempt that comes next.
        cache: bytes of a pod.

    Raises:
        DoesNotFit: it has less room, on these nodes or on the fewest that are allowed.
    """
    if schema.preprocessing.tokens:  # the program says that texts are not fetched
        return
    block = training.block_rows * encoded_bytes(schema)
    for nodes in sorted({world.nodes, cluster.min_nodes or world.nodes}, reverse=True):
        some = world.model_copy(update={"nodes": nodes})
        needed, room = _most_read(schema, training, some), cache // some.procs // block
        if needed > room:
            raise DoesNotFit(_said(training, some, cluster, block, needed, room))


def _most_read(schema: ShardSchema, training: TrainingSpec, world: World) -> int:
    """The most blocks that a process reads at a time, from the first step to the last."""
    order = block_order([shard.rows for shard in schema.splits["train"]], training)
    rows = training.batch_size * training.accumulate
    steps = -(-order.units // rows)
    epochs = training.epochs
    if training.max_steps is not None:
        epochs = min(epochs, -(-training.max_steps // steps))
    return order.most_read(world.processes, rows // training.microbatches, training.seed, epochs)


def _said(
    training: TrainingSpec, world: World, cluster: ClusterSpec, block: int, needed: int, room: int
) -> str:
    least = -(-needed * block * world.procs // _MEBIBYTE)
    where, more = counted(world.nodes, "node"), "raise cluster.nodes and training.processes"
    if world.nodes == cluster.min_nodes != cluster.nodes:
        where += ", the fewest that cluster.min_nodes allows"
        more = f"raise cluster.min_nodes, or {more}"
    return (
        f"The rows that are read at a time do not fit cluster.data_cache {cluster.data_cache}. On"
        f" {where}, a process reads {counted(needed, 'block')} of"
        f" {counted(training.block_rows, 'row')} at a time, of {block / 1e6:,.2f} MB each, and has"
        f" room for {room:,}; a pod runs {counted(world.procs, 'process')}. Set"
        f" cluster.data_cache to {least}Mi or more, lower training.block_window or"
        f" training.block_rows, or {more}."
    )
