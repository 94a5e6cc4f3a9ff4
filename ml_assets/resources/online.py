"""The online store, as a Dagster resource."""

import dagster as dg

from ml_assets.errors import SettingsError
from ml_assets.resources.executor import launches_jobs
from ml_assets.settings import read_settings
from ml_assets.store.online import SERVERS, open_online
from ml_assets.store.online.store import OnlineStore


class OnlineResource(dg.ConfigurableResource):
    """The store that ML_ASSETS_ONLINE names, read when used, for a URL may hold a password."""

    def store(self, instance: dg.DagsterInstance) -> OnlineStore:
        """The store, for a step of a run of this instance.

        Raises:
            SettingsError: it is a file, and the step's disk goes with its pod.
        """
        location = read_settings().online
        if location.split("://")[0] not in SERVERS and launches_jobs(instance):
            raise SettingsError(
                f"ML_ASSETS_ONLINE is the file {location}, and this step runs in a pod, whose disk"
                " goes with it: nothing would be served. Set ML_ASSETS_ONLINE to a Redis server,"
                " redis://host:6379/0, in the environment of the pods; where it holds a password,"
                " in their Secret."
            )
        return open_online(location)
