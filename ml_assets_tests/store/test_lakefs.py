"""The lakeFS adapter under fire: lost answers, refusals, killed writers, writers with no key.

The contract that it shares with the embedded store is in ``test_snapshots_contract``.
"""

import base64
import json
import logging
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import pairwise
from pathlib import Path

import polars as pl
import pytest

from ml_assets.adapters.resources import StoresResource
from ml_assets.errors import SettingsError, StorageError, StoreAway, UntrustedState
from ml_assets.settings import LakeFs, read_lakefs, read_settings
from ml_assets.spec.base import canonical_json
from ml_assets.store.lakefs import repository as lakefs_repository
from ml_assets.store.lakefs.gateway import S3Gateway, scan_away
from ml_assets.store.lakefs.repository import MANIFEST, State, seal, unseal
from ml_assets.store.lakefs.store import LakeFsStore
from ml_assets.store.signing import Keys
from ml_assets.store.snapshots import AlreadyPublished, ByServer, Conflict, Published, PublishResult
from ml_assets.store.table_files import write_table
from ml_assets_tests.servers.lakefs import Fault, LakeFSServer, Setup, lakefs_server
from ml_assets_tests.servers.lakefs.clients import rest_client, s3_client
from ml_assets_tests.store.conftest import OpenLakeFs
from ml_assets_tests.worlds.opened import pipeline_of

THEIRS = Keys.of(base64.b64encode(b"the key of somebody else, really").decode())


@pytest.fixture
def store(lakefs: LakeFSServer, open_lakefs: OpenLakeFs) -> LakeFsStore:
    return open_lakefs(lakefs)


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


def test_somebody_who_is_first_in_the_last_moment_is_seen(
    lakefs: LakeFSServer, open_lakefs: OpenLakeFs
) -> None:
    """The rival's merge comes after we looked at main, before ours."""
    store, rival = open_lakefs(lakefs), open_lakefs(lakefs)
    taken: list[PublishResult] = []
    for ours, theirs, expected in (
        ({"t/ours": b"1"}, {"t/theirs": b"2"}, Published),
        ({"t/same": b"1"}, {"t/same": b"2"}, Conflict),
    ):
        rivals = partial(publish, rival, theirs, f"rival {len(taken)}")
        lakefs.faults.add(Fault("POST", "/merge/main", then=lambda do=rivals: taken.append(do())))
        assert isinstance(publish(store, ours, f"k{len(taken)}"), expected)
    assert all(isinstance(outcome, Published) for outcome in taken)
    head = store.resolve()
    assert [e.path for e in store.list(head)] == ["t/ours", "t/same", "t/theirs"]
    assert store.read_bytes(head, "t/same") == b"2"


def test_after_a_lost_race_it_waits_for_a_random_time_that_grows(
    lakefs: LakeFSServer, open_lakefs: OpenLakeFs
) -> None:
    rival, waits = open_lakefs(lakefs), list[float]()
    store = LakeFsStore(read_settings().snapshots, pause=waits.append)

    def be_first(left: int) -> None:
        publish(rival, {f"t/{left}": b"1"}, f"rival {left}")
        if left > 1:
            lakefs.faults.add(Fault("POST", "/merge/main", then=partial(be_first, left - 1)))

    lakefs.faults.add(Fault("POST", "/merge/main", then=partial(be_first, 6)))
    assert isinstance(publish(store, {"t/ours": b"1"}), Published)
    assert len(waits) == 6
    assert all(0 <= wait <= 0.1 * 2**number for number, wait in enumerate(waits))
    assert len(set(waits)) == 6


def test_who_looks_again_reads_only_what_has_changed(
    lakefs: LakeFSServer,
    open_lakefs: OpenLakeFs,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As a sensor does, tick by tick; another user has another store."""
    store, place = open_lakefs(lakefs), pipeline_of()
    write_table(pl.DataFrame({"k": [1]}), tmp_path / "t.parquet", ["k"])
    table = (tmp_path / "t.parquet").read_bytes()
    first = published(store, {"t/table": table, **{f"t/{n}": b"%d" % n for n in range(9)}})

    def look() -> int:
        before = lakefs.faults.count("GET", "/objects")
        seen = StoresResource().open(place).store
        head = StoresResource().open(place).store.resolve()
        assert [seen.read_bytes(head, f"t/{n}") for n in range(1, 9)] == [
            b"%d" % n for n in range(1, 9)
        ]
        assert len(seen.scan(first, "t/table").collect()) == 1
        return lakefs.faults.count("GET", "/objects") - before

    assert look() == 10  # the manifest, eight files, the table
    assert look() == 0
    published(store, {"t/0": b"changed"}, "k2")
    assert look() == 1  # the manifest
    monkeypatch.setenv("LAKEFS_SECRET_ACCESS_KEY", "hunter2hunter2")
    with pytest.raises(StoreAway, match="LAKEFS_SECRET_ACCESS_KEY"):
        StoresResource().open(place).store.resolve()


# --- refusals, told -----------------------------------------------------------------------------


def test_a_wrong_key_names_the_variables_and_shows_no_secret(
    lakefs: LakeFSServer,
    open_lakefs: OpenLakeFs,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    open_lakefs(lakefs)
    monkeypatch.setenv("LAKEFS_SECRET_ACCESS_KEY", "hunter2hunter2")
    with caplog.at_level(logging.DEBUG), pytest.raises(StoreAway) as refused:
        open_lakefs(lakefs).resolve()
    assert "LAKEFS_SECRET_ACCESS_KEY" in str(refused.value)
    assert "hunter2" not in str(refused.value) + caplog.text + repr(vars(refused.value))


def test_a_missing_setting_a_missing_repository_and_a_missing_branch_are_named(
    lakefs: LakeFSServer, store: LakeFsStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(StorageError, match="no repository nowhere on lakeFS"):
        LakeFsStore("lakefs://nowhere").resolve()
    with pytest.raises(StorageError, match="no branch other in the repository"):
        LakeFsStore(f"lakefs://{repository(store)}/other").resolve()
    monkeypatch.delenv("LAKEFS_ENDPOINT")
    with pytest.raises(SettingsError, match="LAKEFS_ENDPOINT is not set"):
        LakeFsStore("lakefs://nowhere")


def test_a_server_that_is_not_there_is_named(
    store: LakeFsStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LAKEFS_ENDPOINT", "http://127.0.0.1:9")
    away = LakeFsStore(f"lakefs://{repository(store)}", pause=lambda _: None)
    with pytest.raises(StoreAway, match=r"127\.0\.0\.1:9 .* could not read a branch"):
        away.resolve()


@pytest.mark.parametrize("value", ["lakefs://", "lakefs://a", "lakefs://repo/b/c", "lakefs://UP"])
def test_an_address_that_is_none_is_refused_with_what_is_expected(value: str) -> None:
    with pytest.raises(SettingsError, match="expected lakefs://repository"):
        read_settings({"ML_ASSETS_SNAPSHOTS": value})


def test_keys_in_the_address_are_refused_and_not_shown() -> None:
    with pytest.raises(SettingsError) as refused:
        read_settings({"ML_ASSETS_SNAPSHOTS": "lakefs://key:hunter2@repo"})
    assert "hunter2" not in str(refused.value)
    assert "LAKEFS_SECRET_ACCESS_KEY" in str(refused.value)


def test_a_branch_that_takes_no_merge_a_hook_and_lost_data_each_say_what_to_do(
    lakefs: LakeFSServer, store: LakeFsStore
) -> None:
    commit = published(store, {"t/a": b"1"})
    lakefs.faults.add(Fault("POST", "/merge/main", status=403))
    with pytest.raises(StoreAway, match="The branch is protected"):
        publish(store, {"t/b": b"1"}, "k2")
    lakefs.faults.add(Fault("POST", "/merge/main", status=412))
    with pytest.raises(StorageError, match="under Actions"):
        publish(store, {"t/b": b"1"}, "k3")
    lakefs.collect(repository(store), commit, "t/a")
    with pytest.raises(StorageError, match="Lengthen the garbage collection rules"):
        store.read_bytes(commit, "t/a")


def test_a_protected_branch_is_no_hindrance(lakefs: LakeFSServer, store: LakeFsStore) -> None:
    """Nobody commits to it directly, we do not either."""
    lakefs.catalog.repository(repository(store)).settings.protected.append("main")
    assert isinstance(publish(store, {"t/a": b"1"}), Published)


def test_a_tag_with_the_name_of_a_branch_is_refused_and_never_taken_for_made(
    lakefs: LakeFSServer, store: LakeFsStore
) -> None:
    commit = published(store, {"t/a": b"1"})
    lakefs.catalog.repository(repository(store)).create_branch("storm", "main")
    with pytest.raises(StorageError, match="no tag 'storm': a branch"):
        store.tag("storm", commit)
    assert "storm" not in store.tags()


def test_files_that_somebody_left_uncommitted_are_named_as_what_is_in_the_way(
    lakefs: LakeFSServer, store: LakeFsStore
) -> None:
    s3_client(lakefs).put_object(Bucket=repository(store), Key="main/notes.txt", Body=b"x")
    with pytest.raises(StorageError, match="never committed"):
        publish(store, {"t/a": b"1"})


# --- what is left behind ------------------------------------------------------------------------

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
    tomorrow = LakeFsStore(
        f"lakefs://{repository(store)}", lambda: datetime.now(UTC) + timedelta(days=2)
    )
    assert tomorrow.collect_garbage(dry_run=True) == ByServer((orphan,))
    assert left(lakefs, store) == [orphan]
    assert tomorrow.collect_garbage() == ByServer((orphan,))
    assert left(lakefs, store) == []


def test_a_branch_that_is_not_ours_is_never_collected(
    lakefs: LakeFSServer, store: LakeFsStore
) -> None:
    lakefs.catalog.repository(repository(store)).create_branch("ml-assets-work-of-jane", "main")
    later = LakeFsStore(
        f"lakefs://{repository(store)}", lambda: datetime.now(UTC) + timedelta(days=999)
    )
    assert later.collect_garbage() == ByServer(())


# --- who writes without a key -------------------------------------------------------------------


def forge(server: LakeFSServer, store: LakeFsStore, files: dict[str, bytes]) -> str:
    """A commit on main by somebody who may write there."""
    s3 = s3_client(server)
    for path, data in files.items():
        s3.put_object(Bucket=repository(store), Key=f"main/{path}", Body=data)
    from lakefs_client.models import CommitCreation

    made = CommitCreation(message="forged", metadata={"run_key": "wanted"})
    return rest_client(server).commits_api.commit(repository(store), "main", made).id


def anew(store: LakeFsStore) -> LakeFsStore:
    return LakeFsStore(f"lakefs://{repository(store)}", pause=lambda _: None)


@pytest.fixture(autouse=True)
def key(monkeypatch: pytest.MonkeyPatch) -> None:
    ours = base64.b64encode(b"the key of the store".ljust(32)).decode()
    monkeypatch.setenv("ML_ASSETS_SIGNING_KEY", ours)


def forged_manifest(store: LakeFsStore, path: str, data: bytes, keys: Keys) -> bytes:
    """With every digest right."""
    import hashlib

    tree = {e.path: (e.digest, e.size) for e in store.list(store.resolve())}
    tree[path] = (hashlib.sha256(data).hexdigest(), len(data))
    return seal(State(tree, "k", store.resolve()), keys)


def test_a_file_that_was_changed_on_the_branch_is_damaged(
    lakefs: LakeFSServer, store: LakeFsStore, tmp_path: Path
) -> None:
    write_table(pl.DataFrame({"k": [1]}), tmp_path / "t.parquet", ["k"])
    good = (tmp_path / "t.parquet").read_bytes()
    published(store, {"ledger/1": b"refused", "t/data.parquet": good})
    write_table(pl.DataFrame({"k": [2]}), tmp_path / "t.parquet", ["k"])
    bad = (tmp_path / "t.parquet").read_bytes()
    commit = forge(lakefs, store, {"ledger/1": b"passed", "t/data.parquet": bad})
    with pytest.raises(StorageError, match="is damaged"):
        anew(store).read_bytes(commit, "ledger/1")
    with pytest.raises(StorageError, match="is damaged"):
        store.scan(commit, "t/data.parquet")
    with pytest.raises(StorageError, match="is damaged"):
        store.copy_out(commit, "t/data.parquet", tmp_path / "out.parquet")
    assert not (tmp_path / "out.parquet").exists()


def test_a_file_that_was_changed_or_lost_is_whole_again_when_it_is_made_again(
    lakefs: LakeFSServer, store: LakeFsStore
) -> None:
    published(store, {"t/a": b"good", "t/b": b"good", "records/t": b"1"})
    s3_client(lakefs).delete_object(Bucket=repository(store), Key="main/t/b")
    forge(lakefs, store, {"t/a": b"bad!"})
    commit = published(anew(store), {"t/a": b"good", "t/b": b"good", "records/t": b"2"}, "k2")
    assert anew(store).read_bytes(commit, "t/a") == b"good"
    assert anew(store).read_bytes(commit, "t/b") == b"good"


ATTACKS = ["foreign key", "replayed signature", "stripped signature", "no signature", "no list"]


@pytest.mark.parametrize("attack", ATTACKS)
def test_a_state_that_no_trusted_key_signed_is_neither_read_nor_built_upon(
    lakefs: LakeFSServer, store: LakeFsStore, attack: str
) -> None:
    commit = published(store, {"ledger/1": b"refused"})
    forged = forged_manifest(store, "ledger/1", b"passed", THEIRS)
    if attack == "replayed signature":
        there = rest_client(lakefs).objects_api.get_object(
            repository(store), commit, MANIFEST, _preload_content=False
        )
        sealed = json.loads(b"".join([there.data]))
        forged = canonical_json(json.loads(forged) | {"signature": sealed["signature"]})
    if attack == "stripped signature":
        forged = canonical_json(json.loads(forged) | {"signature": None})
    if attack == "no signature":
        forged = forged.replace(b'"signature"', b'"nothing"')
    if attack == "no list":
        s3_client(lakefs).delete_object(Bucket=repository(store), Key=f"main/{MANIFEST}")
        forge(lakefs, store, {"ledger/1": b"passed"})
    else:
        forge(lakefs, store, {"ledger/1": b"passed", MANIFEST: forged})
    refusal = StorageError if attack == "no signature" else UntrustedState
    with pytest.raises(refusal):
        anew(store).resolve()
    with pytest.raises(refusal):
        publish(anew(store), {"other": b"x"})


def test_a_forged_run_key_does_not_pass_for_published_work(
    lakefs: LakeFSServer, store: LakeFsStore
) -> None:
    published(store, {"t/a": b"1"})
    base = store.resolve()
    forge(lakefs, store, {"notes": b"x"})
    with store.open(base, "wanted") as workspace:
        workspace.put_bytes("t/b", b"2")
        workspace.commit("wanted", {})
        assert isinstance(workspace.publish(), Published)
    assert store.read_bytes(store.resolve(), "t/b") == b"2"


def test_a_commit_of_somebody_elses_is_in_the_way_of_nothing(
    lakefs: LakeFSServer, store: LakeFsStore
) -> None:
    """People may keep files of their own beside ours: the signed list does not name them."""
    published(store, {"t/a": b"1"})
    forge(lakefs, store, {"README.md": b"hello"})
    assert isinstance(publish(store, {"t/b": b"2"}, "k2"), Published)
    assert [entry.path for entry in store.list(store.resolve())] == ["t/a", "t/b"]
    assert [c.message for c in store.log(limit=3)] == ["k2", "forged", "k"]


def test_another_machines_key_counts_only_where_it_is_trusted(
    lakefs: LakeFSServer, store: LakeFsStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit = published(store, {"t/a": b"1"})
    monkeypatch.setenv("ML_ASSETS_SIGNING_KEY", base64.b64encode(bytes(32)).decode())
    with pytest.raises(UntrustedState, match="ML_ASSETS_TRUSTED_KEYS") as refused:
        anew(store).resolve()
    assert store.keys.public in str(refused.value)
    monkeypatch.setenv("ML_ASSETS_TRUSTED_KEYS", store.keys.public)
    assert anew(store).resolve() == commit


def test_without_a_key_a_manifest_has_no_signature_and_one_that_has_is_not_read(
    store: LakeFsStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = State({"t/a": ("0" * 64, 3)}, "key", "base")
    assert unseal(seal(state, Keys()), Keys(), "it") == state
    with pytest.raises(UntrustedState, match="no key is set here"):
        unseal(seal(state, store.keys), Keys(), "it")
    with pytest.raises(UntrustedState, match="nobody signed"):
        unseal(seal(state, Keys()), store.keys, "it")


def test_a_manifest_says_what_was_sealed_and_a_flipped_byte_is_seen(store: LakeFsStore) -> None:
    state = State({"t/a": ("0" * 64, 3)}, "key", "base")
    sealed = seal(state, store.keys)
    assert unseal(sealed, store.keys, "it") == state
    for place in range(0, len(sealed), 7):
        broken = sealed[:place] + bytes([sealed[place] ^ 1]) + sealed[place + 1 :]
        with pytest.raises(StorageError):
            unseal(broken, store.keys, "it")


# --- size ---------------------------------------------------------------------------------------

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
    done = subprocess.run(
        [sys.executable, "-c", _UPLOAD, str(tmp_path)],
        capture_output=True,
        text=True,
        check=True,
        timeout=240,
    )
    assert int(done.stdout) < 120, "MB more than with a small file; it has 160"
