"""What killed writers and lakeFS's own garbage collector leave."""

import subprocess
import sys
from datetime import UTC, datetime, timedelta

import pytest
from lakefs_client import models

from ml_assets.errors import StorageError
from ml_assets.store.lakefs.store import LakeFsStore
from ml_assets.store.snapshots import ByServer
from ml_assets_tests.servers.lakefs import LakeFSServer
from ml_assets_tests.servers.lakefs.clients import rest_client
from ml_assets_tests.store.lakefs.publishing import left, published, repository


def later(store: LakeFsStore, days: int) -> LakeFsStore:
    clock = datetime.now(UTC) + timedelta(days=days)
    return LakeFsStore(f"lakefs://{repository(store)}", lambda: clock)


_KILLED = """
import os, sys
from ml_assets.store.open import open_snapshots
store = open_snapshots(os.environ["ML_ASSETS_SNAPSHOTS"])
workspace = store.open(store.resolve(), "killed").__enter__()
workspace.put_bytes("t/half", b"half")
os.kill(os.getpid(), 9)
"""


def test_what_a_killed_writer_left_is_seen_by_nobody_and_collected_after_a_day(
    lakefs: LakeFSServer, store: LakeFsStore
) -> None:
    killed = subprocess.run([sys.executable, "-c", _KILLED], check=False, timeout=120)
    assert killed.returncode == -9
    (orphan,) = left(lakefs, store)
    assert not store.exists(store.resolve(), "t/half")
    assert orphan not in [
        b.id for b in rest_client(lakefs).branches_api.list_branches(repository(store)).results
    ], "people do not see it"
    assert store.collect_garbage() == ByServer(())
    tomorrow = later(store, days=2)
    assert tomorrow.collect_garbage(dry_run=True) == ByServer((orphan,))
    assert left(lakefs, store) == [orphan]
    assert tomorrow.collect_garbage() == ByServer((orphan,))
    assert left(lakefs, store) == []


def test_a_branch_that_is_not_ours_is_never_collected(
    lakefs: LakeFSServer, store: LakeFsStore
) -> None:
    lakefs.catalog.repository(repository(store)).create_branch("ml-assets-work-of-jane", "main")
    assert later(store, days=999).collect_garbage() == ByServer(())


def test_a_tagged_commit_outlives_the_retention_of_its_branch(
    lakefs: LakeFSServer, store: LakeFsStore
) -> None:
    """To lakeFS a tag alone is no reason to keep anything: its rules are about branches."""
    released, old, new = (
        published(store, {"t/a": data}, data.decode()) for data in (b"released", b"old", b"new")
    )
    store.tag("release-1", released)
    store.tag("release-1", released)  # again is the same

    rules = models.GarbageCollectionRules(7, [])
    rest_client(lakefs).repositories_api.set_gc_rules(repository(store), rules)
    assert lakefs.collect_garbage(repository(store), days_later=30) > 0

    assert store.read_bytes(store.resolve("release-1"), "t/a") == b"released"
    assert store.read_bytes(new, "t/a") == b"new"
    with pytest.raises(StorageError, match="lakeFS collected it"):
        store.read_bytes(old, "t/a")
