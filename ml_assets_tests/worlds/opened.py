"""Pipelines over stores that a test keeps in its hand."""

from dataclasses import replace
from pathlib import Path

from ml_assets.settings import DEMO_PIPELINES, Settings, read_settings
from ml_assets.spec.load import load_spec
from ml_assets.spec.pipeline import PipelineSpec
from ml_assets.store.objects import LocalObjects
from ml_assets.store.pipeline_context import Pipeline
from ml_assets.store.snapshots import SnapshotStore


def pipeline_of(
    folder: Path = DEMO_PIPELINES / "flight_delays",
    *,
    spec: PipelineSpec | None = None,
    settings: Settings | None = None,
    store: SnapshotStore | None = None,
    objects: LocalObjects | None = None,
) -> Pipeline:
    """The pipeline of a folder under the settings of now; these stores instead of theirs."""
    pipeline = Pipeline(spec or load_spec(folder), folder, settings or read_settings())
    given = {"store": store, "objects": objects}
    vars(pipeline).update({name: one for name, one in given.items() if one is not None})
    return pipeline


def on_cluster(pipeline: Pipeline, there: bool = True) -> Pipeline:
    """The same under the cluster profile, or without it."""
    launcher = "kubernetes" if there else "local"
    return replace(pipeline, settings=replace(pipeline.settings, launcher=launcher))
