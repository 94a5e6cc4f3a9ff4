"""One contract for both places of checkpoints; S3 is a real server over HTTP, and it fails."""

import sys
from pathlib import Path

import pytest

from ml_assets.errors import SettingsError, StorageError, StoreAway
from ml_assets.spec.training_program import CheckpointManifest, File
from ml_assets.store.checkpoint_store import (
    MANIFEST,
    CheckpointStore,
    claim_session,
    last_claim,
    whole_checkpoints,
)
from ml_assets.store.local_checkpoints import discard_all, open_checkpoints, stored_at
from ml_assets.store.objects import describe
from ml_assets.store.s3 import client as s3
from ml_assets_tests.servers.s3 import BUCKET, S3Server

NAME = "step-000010.a1"


@pytest.fixture(params=["folder", "s3"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> CheckpointStore:
    if request.param == "folder":
        return open_checkpoints(str(tmp_path / "checkpoints"), tmp_path / "scratch")
    request.getfixturevalue("bucket")
    return open_checkpoints(f"s3://{BUCKET}/some/session", tmp_path / "scratch")


def write(store: CheckpointStore, name: str = NAME, content: bytes = b"state") -> tuple[File, ...]:
    folder = store.draft(name)
    (folder / "data").write_bytes(content)
    store.put(name, ["data"])
    return describe(folder, ["data"])


def save(store: CheckpointStore, step: int, attempt: int = 1, content: bytes = b"state") -> None:
    name = f"step-{step:06d}.a{attempt}"
    files = write(store, name, content)
    manifest = CheckpointManifest(
        session="s",
        attempt=attempt,
        step=step,
        validation_loss=None,
        world=1,
        parent=None,
        files=files,
    )
    store.commit(name, manifest.model_dump_json().encode())
    store.release(name)


def test_a_checkpoint_is_there_when_its_manifest_is(store: CheckpointStore) -> None:
    files = write(store)
    assert store.names() == (NAME,)
    assert store.read(NAME, MANIFEST) is None
    assert whole_checkpoints(store, "s") == []
    store.release(NAME)
    save(store, 10)
    (found,) = whole_checkpoints(store, "s")
    assert (found.name, found.manifest.files) == (NAME, files)
    assert (store.fetch(NAME, files) / "data").read_bytes() == b"state"
    store.discard(NAME)
    assert store.names() == ()
    assert store.read(NAME, "data") is None


def test_a_file_that_is_damaged_or_lost_is_refused(store: CheckpointStore) -> None:
    files = write(store, content=b"first")
    store.release(NAME)
    write(store, content=b"other")
    store.release(NAME)
    with pytest.raises(StorageError, match="damaged"):
        store.fetch(NAME, files)
    with pytest.raises(StorageError, match="lost"):
        store.fetch(NAME, [files[0].model_copy(update={"path": "nowhere"})])


def test_an_attempt_claims_once_and_an_older_one_never_after_it(store: CheckpointStore) -> None:
    assert last_claim(store) is None
    claim_session(store, "s", 1, resume=False)
    save(store, 10)
    claim_session(store, "s", 2, resume=True)
    save(store, 20, attempt=1)
    claim_session(store, "s", 2, resume=True)  # again, after a restart: the first claim stays
    claim_session(store, "s", 1, resume=True)
    claim = last_claim(store)
    assert claim is not None and (claim.attempt, claim.accepted) == (2, (NAME,))
    assert [found.name for found in whole_checkpoints(store, "s")] == [NAME]


def test_house_keeping_counts_and_deletes_all_of_a_session(store: CheckpointStore) -> None:
    save(store, 10)
    claim_session(store, "s", 1, resume=False)
    stored = stored_at(store.uri)
    assert stored is not None and stored.files == 3
    discard_all(store.uri)
    assert stored_at(store.uri) is None


# --- S3 alone -------------------------------------------------------------------------------------


def test_a_big_file_goes_up_in_parts_and_comes_back_the_same(
    bucket: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(s3, "PART_BYTES", 5 << 20)  # the least that S3 takes
    store = open_checkpoints(f"s3://{BUCKET}/big", tmp_path)
    content = bytes(range(256)) * (11 << 12)
    files = write(store, content=content)
    assert sum("partNumber=" in path for method, path in bucket.faults.requests) == 3
    store.release(NAME)
    assert (store.fetch(NAME, files) / "data").read_bytes() == content


def test_an_answer_that_passes_is_asked_again(bucket: S3Server, tmp_path: Path) -> None:
    store = open_checkpoints(f"s3://{BUCKET}/flaky", tmp_path)
    bucket.faults.failing = 2
    save(store, 10)
    assert len(whole_checkpoints(store, "s")) == 1


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"uri": "s3://nowhere-at-all/x"}, "there is no such bucket (ListObjectsV2). Create it"),
        ({"AWS_ENDPOINT_URL": "http://127.0.0.1:9"}, "does not answer"),
        ({"AWS_ACCESS_KEY_ID": None}, "no credentials were found. Set AWS_ACCESS_KEY_ID"),
        ({"failing": -1}, "it answered SlowDown again and again"),
    ],
)
def test_a_store_that_is_away_says_what_where_and_what_to_do(
    bucket: S3Server,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    change: dict[str, str | int | None],
    says: str,
) -> None:
    monkeypatch.setattr(s3, "TRIES", 2)
    monkeypatch.setenv("HOME", str(tmp_path))
    uri = str(change.pop("uri", f"s3://{BUCKET}/x"))
    bucket.faults.failing = int(change.pop("failing", 0) or 0)
    for name, value in change.items():
        monkeypatch.delenv(name) if value is None else monkeypatch.setenv(name, str(value))
    store = open_checkpoints(uri, tmp_path)
    with pytest.raises(StoreAway) as caught:
        store.names()
    assert says in str(caught.value) and uri in str(caught.value)
    assert "hush" not in str(caught.value)


def test_a_machine_without_boto3_is_told_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "boto3", None)
    with pytest.raises(SettingsError, match=r"pip install 'ml_assets\[s3\]'"):
        open_checkpoints("s3://bucket/x")


def test_a_fetch_that_was_broken_off_brings_only_what_is_not_here_yet(
    bucket: S3Server, tmp_path: Path
) -> None:
    store = open_checkpoints(f"s3://{BUCKET}/some/session", tmp_path / "scratch")
    folder = store.draft(NAME)
    for name in ("first", "second"):
        (folder / name).write_text(name)
    store.put(NAME, ["first"])
    files = describe(folder, ["first", "second"])
    store.release(NAME)
    with pytest.raises(StorageError, match="second is lost"):
        store.fetch(NAME, files)
    (folder / "second").write_text("second")
    store.put(NAME, ["second"])
    (folder / "second").write_text("damage")
    bucket.faults.requests.clear()
    assert (store.fetch(NAME, files) / "second").read_text() == "second"
    brought = {path.rpartition("/")[2] for _, path in bucket.faults.requests}
    assert brought == {"second?"}
