"""A code location with the cluster profile over the embedded stores: the pipelines of a room."""

import dagster as dg

from ml_assets.component import build_pipeline
from ml_assets.definitions import resources
from ml_assets.graph.pipeline_graph import PipelineGraph
from ml_assets.resources.executor import executor
from ml_assets.settings import read_settings
from ml_assets.spec.load import load_spec


@dg.definitions
def defs() -> dg.Definitions:
    settings = read_settings()
    (room,) = settings.pipelines
    folders = [folder for folder in room.iterdir() if folder.is_dir()]
    built = [build_pipeline(PipelineGraph(load_spec(f), f, on_cluster=True)) for f in folders]
    shared = dg.Definitions(resources=resources(), executor=executor("kubernetes"))
    return dg.Definitions.merge(*built, shared)
