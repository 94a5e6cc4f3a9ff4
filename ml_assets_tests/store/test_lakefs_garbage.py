"""What lakeFS's own garbage collector leaves of the snapshots that are kept on it."""

import pytest
from lakefs_client import models

from ml_assets.errors import StorageError
from ml_assets.store.snapshots import Published
from ml_assets_tests.servers.lakefs import LakeFSServer
from ml_assets_tests.servers.lakefs.clients import rest_client
from ml_assets_tests.store.conftest import OpenLakeFs


def test_a_tagged_commit_outlives_the_retention_of_its_branch(
    lakefs: LakeFSServer, open_lakefs: OpenLakeFs
) -> None:
    """To lakeFS a tag alone is no reason to keep anything: its rules are about branches."""
    store = open_lakefs(lakefs)
    commits = []
    for data in (b"released", b"old", b"new"):
        with store.open(store.resolve(), data.decode()) as workspace:
            workspace.put_bytes("t/a", data)
            workspace.commit("m", {})
            outcome = workspace.publish()
        assert isinstance(outcome, Published)
        commits.append(outcome.commit)
    released, old, new = commits
    store.tag("release-1", released)
    store.tag("release-1", released)  # again is the same

    repository = store.uri("", "").split("/")[2]
    rules = models.GarbageCollectionRules(7, [])
    rest_client(lakefs).repositories_api.set_gc_rules(repository, rules)
    assert lakefs.collect_garbage(repository, days_later=30) > 0

    assert store.read_bytes(store.resolve("release-1"), "t/a") == b"released"
    assert store.read_bytes(new, "t/a") == b"new"
    with pytest.raises(StorageError, match="lakeFS collected it"):
        store.read_bytes(old, "t/a")
