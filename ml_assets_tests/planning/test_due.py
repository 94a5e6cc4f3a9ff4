"""The nodes of the plan: which assets can be made of what has landed."""

from collections import Counter
from datetime import UTC, datetime

import pytest

from ml_assets.assets.graph import PipelineGraph
from ml_assets.assets.raw_snapshot import receipt_version
from ml_assets.planning.due import Landed, data_nodes
from ml_assets.spec.load import PIPELINES, load_spec
from ml_assets.spec.partitions import windows


@pytest.mark.parametrize(
    ("weeks", "features", "online"),
    [(1, 0, 0), (4, 0, 0), (5, 1, 1), (9, 5, 1)],
)
def test_nothing_is_served_before_the_first_look_back_is_whole(
    weeks: int, features: int, online: int
) -> None:
    """Features of the flights look back at four weeks; they are served as soon as there are any."""
    folder = PIPELINES / "flight_delays"
    graph = PipelineGraph(load_spec(folder), folder)
    known = windows(graph.spec.partitions, datetime(2014, 1, 1, tzinfo=UTC))
    nodes = data_nodes(
        graph,
        Landed(known[:weeks]),
        lambda name, span: receipt_version(name, span.key if span else None, {}),
    )
    stages = Counter(node.address.stage for node in nodes)
    assert (stages["feature_set"], stages["online_features"]) == (features, online)
    served = [node for node in nodes if node.address.stage == "online_features"]
    assert all(node.inputs for node in served)
