"""Who writes to the branch without a key is not read, and is in the way of nothing."""

import base64
import json
from pathlib import Path

import polars as pl
import pytest

from ml_assets.assets.released_model.tags import left_behind, take_away, wrong_names
from ml_assets.errors import StorageError, UntrustedState
from ml_assets.records import recall_files
from ml_assets.spec.base import canonical_json
from ml_assets.store.lakefs.repository import MANIFEST, State, seal, unseal
from ml_assets.store.lakefs.store import LakeFsStore
from ml_assets.store.signing import Keys
from ml_assets.store.snapshots import Published
from ml_assets.store.table_files import write_table
from ml_assets_tests.records.conftest import PIPELINE, A, B, C, recall, refused, released
from ml_assets_tests.servers.lakefs import LakeFSServer
from ml_assets_tests.servers.lakefs.clients import rest_client, s3_client
from ml_assets_tests.store.lakefs.publishing import publish, published, repository

THEIRS = Keys.of(base64.b64encode(b"the key of somebody else, really").decode())


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


def forged_manifest(store: LakeFsStore, path: str, data: bytes, keys: Keys) -> bytes:
    """With every digest right."""
    import hashlib

    tree = {e.path: (e.digest, e.size) for e in store.list(store.resolve())}
    tree[path] = (hashlib.sha256(data).hexdigest(), len(data))
    return seal(State(tree, "k", store.resolve()), keys)


def test_the_names_of_another_home_of_the_repository_are_no_matter_of_ours(
    lakefs: LakeFSServer, store: LakeFsStore
) -> None:
    """Branches share tags; what is signed tells whose a commit is, also after ours was put back."""
    begin = store.resolve()
    lakefs.catalog.repository(repository(store)).create_branch("lab", "main")
    theirs = LakeFsStore(f"lakefs://{repository(store)}/lab", pause=lambda _: None)
    released(theirs, A)
    released(store, B)
    released(store, C, B)
    assert wrong_names(store, PIPELINE) == [] == left_behind(store)
    with pytest.raises(StorageError, match="another home gave"):
        take_away(store, f"{PIPELINE}-release-1")
    ours, other = (store.tags()[f"{PIPELINE}-release-{number}"] for number in (2, 1))
    assert (store.made_here(ours), store.made_here(other)) == (True, False)
    rest_client(lakefs).experimental_api.hard_reset_branch(repository(store), "main", begin)
    with pytest.raises(StorageError, match=r"put back to an earlier state.* Nothing was moved"):
        released(anew(store), A)
    assert wrong_names(anew(store), PIPELINE)


def test_a_recall_of_the_home_that_a_branch_began_as_is_its_own_matter(
    lakefs: LakeFSServer, store: LakeFsStore
) -> None:
    refused(store, A)
    lakefs.catalog.repository(repository(store)).create_branch("fork", "main")
    fork = LakeFsStore(f"lakefs://{repository(store)}/fork", pause=lambda _: None)
    told = recall(store, A)
    recall_files.name_state(store, told.id)
    before = store.resolve()
    assert recall_files.lost_recalls(fork) == []
    recall_files.forget_state(fork, told.id)
    assert store.tags()[f"recall-{told.id}"] == before, "who lifts it there takes no name here"


def test_a_manifest_of_before_branches_were_kept_is_read_as_ours(store: LakeFsStore) -> None:
    sealed = json.loads(seal(State({"t/a": ("0" * 64, 1)}, "k", "b"), Keys.of("")))
    del sealed["state"]["branch"]
    assert unseal(json.dumps(sealed).encode(), Keys.of(""), "it").branch == ""


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
