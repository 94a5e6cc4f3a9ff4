"""The project's environment variables, read and checked only here."""

from ml_assets.settings.addresses import LakeFs, is_lakefs, is_s3, lakefs_place, read_lakefs
from ml_assets.settings.cluster import Cluster, read_cluster
from ml_assets.settings.environment import (
    DEMO_PIPELINES,
    SHOWN_AFTER_DEMO,
    SQL_PREFIX,
    Launcher,
    Retention,
    Settings,
    Signing,
    environment_apart,
    read_settings,
    read_signing,
    state_folder,
)
from ml_assets.settings.prices import (
    PRICE_CLASSES,
    PriceClass,
    Prices,
    price_class,
    prices_of,
    read_prices,
)

__all__ = [
    "DEMO_PIPELINES",
    "PRICE_CLASSES",
    "SHOWN_AFTER_DEMO",
    "SQL_PREFIX",
    "Cluster",
    "LakeFs",
    "Launcher",
    "PriceClass",
    "Prices",
    "Retention",
    "Settings",
    "Signing",
    "environment_apart",
    "is_lakefs",
    "is_s3",
    "lakefs_place",
    "price_class",
    "prices_of",
    "read_cluster",
    "read_lakefs",
    "read_prices",
    "read_settings",
    "read_signing",
    "state_folder",
]
