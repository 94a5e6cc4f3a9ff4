"""The jobs of a pipeline: the parts of the walk that a schedule, a sensor or a person starts."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import dagster as dg

from ml_assets.assets.graph import DATA_STAGES, MODEL_STAGES, SOURCE_STAGES, PipelineGraph
from ml_assets.planning.in_flight import PIPELINE_TAG, TRIGGER_TAG

AssetJob = Any
"""What ``dg.define_asset_job`` returns: Dagster does not name the type."""


@dataclass(frozen=True)
class PipelineJobs:
    """Three jobs, for Dagster takes partitions of one kind in a job: features begin later."""

    sources: AssetJob
    features: AssetJob
    refresh: AssetJob

    @property
    def all(self) -> tuple[AssetJob, ...]:
        return (self.sources, self.features, self.refresh)


def pipeline_jobs(graph: PipelineGraph) -> PipelineJobs:
    """The jobs of a pipeline, named ``<pipeline>__<part>``."""
    sources = [graph.key(s, name) for s in SOURCE_STAGES for name in graph.spec.sources]
    return PipelineJobs(
        sources=_job(graph, "sources", sources, "Takes in its sources and holds them to contract."),
        features=_job(graph, "features", [graph.key(DATA_STAGES[-1])], "Makes its features."),
        refresh=_job(
            graph,
            "refresh",
            [graph.key(stage) for stage in MODEL_STAGES],
            "Trains, judges and releases its model on the newest window that is published.",
        ),
    )


def run_tags(graph: PipelineGraph, trigger: str, more: Mapping[str, str]) -> dict[str, str]:
    """What tells on the run's page why it was started."""
    return {PIPELINE_TAG: graph.name, TRIGGER_TAG: trigger, **more}


def _job(graph: PipelineGraph, part: str, keys: list[dg.AssetKey], description: str) -> AssetJob:
    return dg.define_asset_job(
        f"{graph.name}__{part}",
        selection=dg.AssetSelection.assets(*keys),
        description=description,
        tags=run_tags(graph, "by hand", {}),
    )
