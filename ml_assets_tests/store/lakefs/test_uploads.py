"""How a file gets to lakeFS: where it presigns, through its gateway, never whole in memory."""

from pathlib import Path

import pytest

from ml_assets.store.lakefs import repository as lakefs_repository
from ml_assets_tests.fresh import said_by
from ml_assets_tests.servers.lakefs import LakeFSServer, Setup, lakefs_server
from ml_assets_tests.store.conftest import OpenLakeFs
from ml_assets_tests.store.lakefs.publishing import published


def test_a_store_of_azure_gets_the_header_that_it_asks_for(open_lakefs: OpenLakeFs) -> None:
    with lakefs_server(Setup(blockstore="azure")) as server:
        store = open_lakefs(server)
        assert store.read_bytes(published(store, {"t/a": b"1"}), "t/a") == b"1"
        assert server.faults.count("PUT", "X-Amz-Signature") == 2, "the file and the manifest"


def test_a_file_too_large_for_one_request_goes_through_the_gateway(
    presigning_server: LakeFSServer, open_lakefs: OpenLakeFs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lakefs_repository, "PRESIGNED_BYTES", 1000)
    store, size = open_lakefs(presigning_server), 1001
    commit = published(store, {"t/large": b"x" * size, "t/small": b"x"})
    assert len(store.read_bytes(commit, "t/large")) == size
    through = [presigning_server.faults.count("PUT", f"/t/{name}$") for name in ("large", "small")]
    assert through == [1, 0]


_UPLOAD = """
import os, resource, sys
from pathlib import Path
from ml_assets.store.open import open_snapshots
store = open_snapshots(os.environ["ML_ASSETS_SNAPSHOTS"])
def put(path, size):
    file = Path(sys.argv[1]) / path
    with file.open("wb") as handle:
        for n in range(size):
            handle.write(os.urandom(1 << 20))
    with store.open(store.resolve(), path) as workspace:
        workspace.put(f"t/{path}", file)
        workspace.commit(path, {})
        workspace.publish()
    store.copy_out(store.resolve(), f"t/{path}", file)
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
small = put("small", 1)
print(put("big", 160) - small)
"""


@pytest.mark.parametrize("server", ["gateway_server", "presigning_server"])
def test_a_big_file_is_never_whole_in_memory_on_its_way_up_and_down(
    request: pytest.FixtureRequest, open_lakefs: OpenLakeFs, server: str, tmp_path: Path
) -> None:
    open_lakefs(request.getfixturevalue(server))
    said = said_by(_UPLOAD, str(tmp_path))
    assert int(said) < 120, "MB more than with a small file; it has 160"
