"""One server for the tests of a file; each test has a repository of its own."""

from collections.abc import Iterator

import pytest

from ml_assets_tests.servers.lakefs import LakeFSServer, lakefs_server


@pytest.fixture(scope="module")
def server() -> Iterator[LakeFSServer]:
    with lakefs_server() as server:
        yield server
