"""The record of a release and its materialization, after a rollback: they say what serves."""

import dagster as dg

from ml_assets.assets.released_model.page import show_release
from ml_assets.assets.released_model.whole_rollback import Returned
from ml_assets.graph.pipeline_graph import PipelineGraph
from ml_assets.store.snapshots import SnapshotStore


def rolled_back(
    graph: PipelineGraph, store: SnapshotStore, returned: Returned, run: str = ""
) -> dg.AssetMaterialization:
    """Publish the record, and what Dagster is to be told.

    Raises:
        StorageError: another run published the record at the same time.
    """
    stage = graph.spec.release.shown_by
    shown = show_release(graph, store, returned.origin.commit, returned.entry, run, stage)
    return dg.AssetMaterialization(
        graph.key(stage),
        description=f"Rolled back by {returned.entry.author}: {returned.entry.reason}",
        metadata=shown.metadata,
        tags={"dagster/data_version": shown.data_version.value},
    )
