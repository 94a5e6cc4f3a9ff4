"""The steps of the walk that make data: assets that one job makes together."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import dagster as dg

from ml_assets.adapters.declare_asset import asset_key
from ml_assets.spec.stages import SOURCE_STAGES
from ml_assets.store.pipeline_context import Pipeline

if TYPE_CHECKING:
    from ml_assets.automation.planner.plan import Item


@dataclass(frozen=True)
class WalkStep:
    """Assets that are made together, partition by partition: one run can make them, for they are
    cut in time alike."""

    name: str
    """``sources``, ``table_<name>``, ``features`` or ``online``."""
    keys: tuple[dg.AssetKey, ...]

    def of(self, items: "Iterable[Item]") -> "list[Item]":
        """The items that belong to this step."""
        paths = {"/".join(key.path) for key in self.keys}
        return [item for item in items if item.node.address.key in paths]


def data_steps(pipeline: Pipeline) -> list[WalkStep]:
    """Sources with their validated tables, each derived table, and the features, in order."""
    sources = [
        asset_key(pipeline, s, name) for s in SOURCE_STAGES for name in pipeline.spec.sources
    ]
    tables = [
        WalkStep(f"table_{name}", (asset_key(pipeline, "derived_table", name),))
        for name in pipeline.spec.tables
    ]
    features = WalkStep("features", (asset_key(pipeline, "feature_set"),))
    online = WalkStep("online", (asset_key(pipeline, "online_features"),))
    served = [online] if pipeline.spec.online else []
    return [WalkStep("sources", tuple(sources)), *tables, features, *served]
