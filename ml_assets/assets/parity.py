"""The parity check of feature_set: a few rows of what is about to be published, made online."""

from collections.abc import Sequence
from pathlib import Path
from random import Random

import dagster as dg
import polars as pl

from ml_assets.assets.graph import PipelineGraph
from ml_assets.assets.partitioned import CheckOutcome
from ml_assets.operations.replay import replay
from ml_assets.operations.workplace import Workplace
from ml_assets.settings import read_settings
from ml_assets.storage.objects import LocalObjects
from ml_assets.storage.snapshots import CommitId, SnapshotStore

CHECK_NAME = "parity"
PARTITIONS = 3
"""Of a step that are replayed: the newest, and others by draw. Each costs what making it costs."""


def parity_spec(graph: PipelineGraph) -> dg.AssetCheckSpec:
    """The check, as Dagster declares it."""
    return dg.AssetCheckSpec(
        CHECK_NAME,
        asset=graph.key("feature_set"),
        blocking=True,
        description="Rows drawn by chance are made again on the path of a single prediction, from"
        " what was known when they were decided on: they have to be the same, bit for bit.",
    )


def drawn(partitions: Sequence[str | None], commit: CommitId) -> frozenset[str | None]:
    """The partitions of a step to replay rows of."""
    *others, newest = partitions
    count = min(PARTITIONS - 1, len(others))
    return frozenset((newest, *Random(commit).sample(others, count)))


def check_parity(
    graph: PipelineGraph,
    store: SnapshotStore,
    base: CommitId,
    partition: str | None,
    rows: pl.DataFrame,
) -> CheckOutcome:
    """Replay rows of one partition; which ones depends on the state that they are made from."""
    settings = read_settings()
    objects = LocalObjects(Path(settings.objects))
    place = Workplace(graph.spec, graph.folder, store, objects, settings.scratch)
    found = replay(place, base, partition, rows, Random(f"{base}{partition}"))
    return CheckOutcome(
        CHECK_NAME,
        not found.difference,
        dg.AssetCheckSeverity.ERROR,
        {"rows": found.rows, "moment": str(found.moment)},
        found.reason,
    )
