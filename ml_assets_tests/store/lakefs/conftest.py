"""A store on the lakeFS server of the tests, with a key that signs."""

import base64

import pytest

from ml_assets.store.lakefs.store import LakeFsStore
from ml_assets_tests.servers.lakefs import LakeFSServer
from ml_assets_tests.store.conftest import OpenLakeFs


@pytest.fixture
def store(lakefs: LakeFSServer, open_lakefs: OpenLakeFs) -> LakeFsStore:
    return open_lakefs(lakefs)


@pytest.fixture(autouse=True)
def key(monkeypatch: pytest.MonkeyPatch) -> None:
    ours = base64.b64encode(b"the key of the store".ljust(32)).decode()
    monkeypatch.setenv("ML_ASSETS_SIGNING_KEY", ours)
