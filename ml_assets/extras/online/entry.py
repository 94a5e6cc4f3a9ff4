"""Adds online features to a pipeline: an asset, and when it is due again."""

from collections.abc import Mapping, Sequence

import dagster as dg

from ml_assets.automation.jobs import AssetJob
from ml_assets.automation.planner.plan import Plan
from ml_assets.extras.online.asset import online_features
from ml_assets.extras.online.open import open_online
from ml_assets.spec.records import StageRecord
from ml_assets.store.layout import Address
from ml_assets.store.pipeline_context import Pipeline


def assets(pipeline: Pipeline) -> Sequence[dg.AssetsDefinition]:
    """The asset that serves the newest features."""
    return [online_features(pipeline)]


def checks(_pipeline: Pipeline) -> Sequence[dg.AssetChecksDefinition]:
    """None of their own: the asset yields its check."""
    return ()


def jobs(_pipeline: Pipeline) -> Sequence[AssetJob]:
    """None of their own: it is a step of the walk."""
    return ()


def sensors(_pipeline: Pipeline) -> Sequence[dg.SensorDefinition]:
    """None of their own: landing and code change ask for it."""
    return ()


def with_lost_service(
    pipeline: Pipeline, found: Plan, records: Mapping[Address, StageRecord]
) -> Plan:
    """Return what was served and is not any more is due: the online store is no snapshot store.

    Raises:
        StoreAway: the online store does not answer.
    """
    made = records.get(Address(pipeline.name, "online_features"))
    if made is None:
        return found
    served = open_online(pipeline.settings.online).current(pipeline.name)
    if served is not None and served.version == made.data_version:
        return found
    instead = served.version if served else "nothing"
    return found.with_due(
        Address.of(made.key, made.partition), "the online store serves something else", salt=instead
    )
