"""What tests of the lakeFS adapter do with a store."""

from ml_assets.store.lakefs.store import LakeFsStore
from ml_assets.store.snapshots import Published, PublishResult
from ml_assets_tests.servers.lakefs import LakeFSServer


def publish(store: LakeFsStore, files: dict[str, bytes], key: str = "k") -> PublishResult:
    with store.open(store.resolve(), key) as workspace:
        for path, data in files.items():
            workspace.put_bytes(path, data)
        workspace.commit(key, {"run": "r"})
        return workspace.publish()


def published(store: LakeFsStore, files: dict[str, bytes], key: str = "k") -> str:
    outcome = publish(store, files, key)
    assert isinstance(outcome, Published)
    return outcome.commit


def repository(store: LakeFsStore) -> str:
    return store.uri("", "").split("/")[2]


def left(server: LakeFSServer, store: LakeFsStore) -> list[str]:
    return [b for b in server.catalog.repository(repository(store)).branches if b != "main"]
