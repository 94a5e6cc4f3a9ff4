"""The online store, as a Dagster resource."""

import dagster as dg

from ml_assets.settings import read_settings
from ml_assets.storage.online.open import open_online
from ml_assets.storage.online.store import OnlineStore


class OnlineResource(dg.ConfigurableResource):
    """The store that ML_ASSETS_ONLINE names, read when used, for a URL may hold a password."""

    def store(self) -> OnlineStore:
        return open_online(read_settings().online)
