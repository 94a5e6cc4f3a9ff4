"""A small lakeFS of the tests' own: the REST API and the S3 gateway on one port, in memory.

Written from lakeFS's published API (api/swagger.yml) and from how its server answers; it keeps its
semantics (staging areas, optimistic branch updates, three-way merges by path, hooks, error bodies)
and leaves out users, policies and pull requests; README.md says what it is checked against.

    with lakefs_server() as lakefs:
        lakefs.create_repository("demo")
        client_for(lakefs.endpoint, lakefs.access_key, lakefs.secret_key)
        lakefs.faults.add(Fault("POST", "/commits", after=True))  # done, but the answer is lost
"""

from ml_assets_tests.servers.lakefs.catalog import Setup
from ml_assets_tests.servers.lakefs.faults import Fault
from ml_assets_tests.servers.lakefs.hooks import HookFailed
from ml_assets_tests.servers.lakefs.server import LakeFSServer, lakefs_server

__all__ = ["Fault", "HookFailed", "LakeFSServer", "Setup", "lakefs_server"]
