"""A lakeFS server that is away, and answers that are lost: each step is done once, or given up."""

from itertools import pairwise
from pathlib import Path

import polars as pl
import pytest

from ml_assets.errors import StoreAway
from ml_assets.settings import LakeFs, read_lakefs, read_settings
from ml_assets.store.lakefs.gateway import S3Gateway, scan_away
from ml_assets.store.lakefs.store import LakeFsStore
from ml_assets.store.snapshots import AlreadyPublished, Published
from ml_assets.store.table_files import write_table
from ml_assets_tests.servers.lakefs import Fault, LakeFSServer
from ml_assets_tests.store.conftest import OpenLakeFs
from ml_assets_tests.store.lakefs.publishing import left, publish, published, repository

# --- a server that is away ---------------------------------------------------------------------


def test_the_object_store_that_an_upload_does_not_reach_is_named(
    lakefs: LakeFSServer, store: LakeFsStore
) -> None:
    lakefs.faults.add(Fault(*STEPS["upload"], times=-1))
    with pytest.raises(StoreAway, match=r"no answer from the object store at \S+:\d+ ") as away:
        publish(store, {"t/a": b"1"})
    assert "pre_signed_endpoint" in str(away.value)
    assert "LAKEFS_ENDPOINT" not in str(away.value)
    assert "Signature" not in str(away.value)


@pytest.mark.parametrize("status", [503, 0])
def test_a_gateway_that_is_away_while_polars_scans_is_a_store_that_is_away(
    lakefs: LakeFSServer,
    store: LakeFsStore,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    status: int,
) -> None:
    once = {**S3Gateway(read_lakefs(), repository(store)).options, "max_retries": 0}
    monkeypatch.setattr(S3Gateway, "options", once)
    write_table(pl.DataFrame({"k": [1]}), tmp_path / "t.parquet", ["k"])
    commit = published(store, {"t/data.parquet": (tmp_path / "t.parquet").read_bytes()})
    rows = store.scan(commit, "t/data.parquet")
    for method in ("GET", "HEAD"):
        lakefs.faults.add(Fault(method, f"^/{repository(store)}/", times=-1, status=status))
    with pytest.raises(OSError, match="object-store error") as raised:
        rows.collect()
    away = scan_away(raised.value)
    assert away is not None
    table = f"s3://{repository(store)}/{commit}/t/data.parquet"
    assert f"lakeFS at {lakefs.endpoint} did not give {table}: " in str(away)
    assert "LAKEFS_S3_ENDPOINT" in str(away)
    assert scan_away(OSError("object-store error: no such thing")) is None


@pytest.mark.parametrize("lakefs_is_set", [True, False])
def test_a_teams_own_scan_of_another_store_does_not_blame_lakefs(
    lakefs: LakeFSServer, store: LakeFsStore, monkeypatch: pytest.MonkeyPatch, lakefs_is_set: bool
) -> None:
    """The keys of the scan are no secret of ours, and are not told either."""
    if not lakefs_is_set:
        monkeypatch.delenv("LAKEFS_ENDPOINT")
    options = {
        **S3Gateway(LakeFs("", "http://127.0.0.1:9", "a", "hush"), "b").options,
        "max_retries": 0,
    }
    rows = pl.scan_parquet(
        "s3://theirs/of/t.parquet", storage_options=options, credential_provider=None, glob=False
    )
    with pytest.raises(OSError, match="object-store error") as raised:
        rows.collect()
    away = str(scan_away(raised.value))
    assert "The object store at http://127.0.0.1:9 did not give s3://theirs/of/t.parquet: " in away
    assert "storage_options" in away
    assert "hush" not in away
    assert "lakeFS" not in away
    assert scan_away(FileNotFoundError("No such file (os error 2): /here/t.parquet")) is None


# --- answers that are lost ---------------------------------------------------------------------

STEPS = {
    "branch": ("POST", "/branches$"),
    "address": ("GET", "/staging/backing"),
    "upload": ("PUT", "presigned|X-Amz-Signature"),
    "link": ("PUT", "/staging/backing"),
    "commit": ("POST", "/commits$"),
    "merge": ("POST", "/merge/main"),
    "clean": ("DELETE", "/branches/ml-assets-work-"),
}


@pytest.mark.parametrize("how", ["refused", "lost after"])
@pytest.mark.parametrize("step", STEPS)
def test_a_step_that_fails_or_whose_answer_is_lost_is_done_once(
    lakefs: LakeFSServer, store: LakeFsStore, step: str, how: str
) -> None:
    base = store.resolve()
    method, path = STEPS[step]
    told = {
        "refused": Fault(method, path, status=500),
        "lost after": Fault(method, path, after=True),
    }
    fault = lakefs.faults.add(told[how])
    outcome = publish(store, {"t/a": b"1", "t/b": b"2"})
    assert fault.times == 0, "the fault was met"
    assert isinstance(outcome, Published)
    assert [c.message for c in store.log()[:2]] == ["k", "Repository created"]
    assert store.log()[0].metadata == {"run_key": "k", "run": "r"}
    assert store.read_bytes(outcome.commit, "t/a") == b"1"
    assert left(lakefs, store) == []
    with store.open(base, "k") as workspace:  # the process did not see it, and does it again
        workspace.put_bytes("t/a", b"1")
        workspace.commit("k", {})
        assert workspace.publish() == AlreadyPublished(outcome.commit)


def test_a_server_that_stays_away_is_given_up_after_some_tries(
    lakefs: LakeFSServer, store: LakeFsStore
) -> None:
    head = store.resolve()
    lakefs.faults.add(Fault("POST", "/merge/", times=-1, status=503))
    with pytest.raises(StoreAway, match="6 times"):
        publish(store, {"t/a": b"1"})
    assert lakefs.faults.count("POST", "/merge/") == 6
    assert store.resolve() == head


def test_the_waits_between_tries_grow_and_end(
    lakefs: LakeFSServer, open_lakefs: OpenLakeFs
) -> None:
    open_lakefs(lakefs)
    waits: list[float] = []
    store = LakeFsStore(read_settings().snapshots, pause=waits.append)
    lakefs.faults.add(Fault("GET", "/branches/main", times=-1, status=429))
    with pytest.raises(StoreAway, match="429"):
        store.resolve()
    assert len(waits) == 5
    assert all(later > earlier for earlier, later in pairwise(waits))
    assert sum(waits) < 10


def test_a_download_that_breaks_off_is_begun_again(
    lakefs: LakeFSServer, store: LakeFsStore, tmp_path: Path
) -> None:
    commit = published(store, {"t/big": b"0123456789" * 300_000})
    fault = lakefs.faults.add(Fault("GET", r"objects\?path=t%2Fbig", cut=1_500_000))
    store.copy_out(commit, "t/big", tmp_path / "big")
    assert fault.times == 0
    assert (tmp_path / "big").read_bytes() == b"0123456789" * 300_000
