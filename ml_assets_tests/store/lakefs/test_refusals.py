"""What lakeFS refuses, and where it is not, is told with what to do, and shows no secret."""

import logging

import pytest

from ml_assets.errors import SettingsError, StorageError, StoreAway
from ml_assets.settings import read_settings
from ml_assets.store.lakefs.store import LakeFsStore
from ml_assets.store.snapshots import Published
from ml_assets_tests.servers.lakefs import Fault, LakeFSServer
from ml_assets_tests.servers.lakefs.clients import s3_client
from ml_assets_tests.store.conftest import OpenLakeFs
from ml_assets_tests.store.lakefs.publishing import publish, published, repository


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
