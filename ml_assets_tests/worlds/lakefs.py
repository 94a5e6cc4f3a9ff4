"""A repository on a lakeFS server of this machine, and the environment that leads there."""

import uuid
from pathlib import Path

from ml_assets_tests.servers.lakefs import LakeFSServer


def new_repository(server: LakeFSServer, home: Path) -> dict[str, str]:
    """The environment of somebody who keeps snapshots in an empty repository of its own."""
    name = f"repo-{uuid.uuid4().hex[:12]}"
    server.create_repository(name)
    return {
        "ML_ASSETS_HOME": str(home),
        "ML_ASSETS_SNAPSHOTS": f"lakefs://{name}",
        "LAKEFS_ENDPOINT": server.endpoint,
        "LAKEFS_ACCESS_KEY_ID": server.access_key,
        "LAKEFS_SECRET_ACCESS_KEY": server.secret_key,
    }
