"""Only what a trusted key signed is read: whoever writes everywhere but holds no key is refused."""

import base64
import os
import shlex
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from ml_assets.errors import SettingsError, UntrustedState
from ml_assets.spec.base import canonical_json
from ml_assets.store.embedded.blobs import Blobs
from ml_assets.store.open import open_snapshots
from ml_assets.store.signing import Keys
from ml_assets.store.snapshots import MAIN, Published, SnapshotStore
from ml_assets_tests.red_team.forging import refs

OURS, THEIRS = (base64.b64encode(bytes([n]) * 32).decode() for n in (1, 2))


@pytest.fixture(autouse=True)
def ours(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ML_ASSETS_SIGNING_KEY", OURS)


def public(secret: str) -> str:
    return Keys.of(secret).public


def publish(store: SnapshotStore, path: str, data: bytes) -> str:
    with store.open(store.resolve(), f"write {path}") as workspace:
        workspace.put_bytes(path, data)
        workspace.commit(path, {})
        outcome = workspace.publish()
    assert isinstance(outcome, Published)
    return outcome.commit


def forge(root: Path, target: str) -> None:
    """Point main at another commit, as somebody can who may write the file."""
    with refs(root) as database:
        database.execute("update refs set target = ? where name = ?", [target, MAIN])


def planted(root: Path, path: str, data: bytes) -> str:
    """A commit on top of main that changes one file, with every digest right."""
    store, blobs = open_snapshots(str(root)), Blobs(root)
    head = store.resolve()
    tree = {entry.path: [entry.digest, entry.size] for entry in store.list(head)}
    tree[path] = [blobs.write(data), len(data)]
    body = {"tree": blobs.write(canonical_json(tree)), "parents": [head], "message": "planted"}
    body |= {"metadata": {}, "time": "2026-01-01T00:00:00+00:00"}
    return blobs.write(canonical_json(body))


def test_a_commit_that_nobody_signed_is_neither_read_nor_built_upon(tmp_path: Path) -> None:
    publish(open_snapshots(str(tmp_path)), "ledger/p/000001.json", b"refused")
    forge(tmp_path, planted(tmp_path, "ledger/p/000001.json", b"passed"))
    with pytest.raises(UntrustedState, match="which nobody signed"):
        open_snapshots(str(tmp_path)).resolve()
    with pytest.raises(UntrustedState, match="which nobody signed"):
        publish(open_snapshots(str(tmp_path)), "other", b"x")


def test_a_signature_of_another_commit_is_none_of_this_one(tmp_path: Path) -> None:
    old = publish(open_snapshots(str(tmp_path)), "a", b"1")
    forged = planted(tmp_path, "a", b"2")
    forge(tmp_path, forged)
    with refs(tmp_path) as database:
        database.execute(
            "insert into signatures select ?, key, value from signatures where commit_id = ?",
            [forged, old],
        )
    with pytest.raises(UntrustedState, match="that key signed something else"):
        open_snapshots(str(tmp_path)).resolve()


def test_a_foreign_key_counts_only_where_it_is_trusted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ML_ASSETS_SIGNING_KEY", THEIRS)
    commit = publish(open_snapshots(str(tmp_path)), "a", b"1")
    monkeypatch.setenv("ML_ASSETS_SIGNING_KEY", OURS)
    with pytest.raises(UntrustedState) as refused:
        open_snapshots(str(tmp_path)).resolve()
    assert public(THEIRS) in str(refused.value)
    monkeypatch.setenv("ML_ASSETS_TRUSTED_KEYS", f"{public(THEIRS)}")
    assert open_snapshots(str(tmp_path)).resolve() == commit


def test_a_tag_on_a_commit_that_nobody_signed_is_not_read(tmp_path: Path) -> None:
    publish(open_snapshots(str(tmp_path)), "a", b"1")
    forged = planted(tmp_path, "a", b"2")
    with refs(tmp_path) as database:
        database.execute("insert into refs values ('v1', 'tag', ?)", [forged])
    with pytest.raises(UntrustedState, match="'v1'"):
        open_snapshots(str(tmp_path)).resolve("v1")


def test_a_secret_that_is_no_key_is_an_error_that_does_not_show_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ML_ASSETS_SIGNING_KEY", "hunter2hunter2")
    with pytest.raises(SettingsError) as refused:
        open_snapshots(str(tmp_path))
    assert "ML_ASSETS_SIGNING_KEY" in str(refused.value)
    assert "hunter2" not in str(refused.value)


def test_a_secret_from_a_file_may_end_with_a_line_break(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit = publish(open_snapshots(str(tmp_path)), "a", b"1")
    monkeypatch.setenv("ML_ASSETS_SIGNING_KEY", os.environ["ML_ASSETS_SIGNING_KEY"] + "\n")
    assert open_snapshots(str(tmp_path)).resolve() == commit


def test_without_a_key_nothing_is_signed_and_no_key_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("ML_ASSETS_SIGNING_KEY")
    commit = publish(open_snapshots(str(tmp_path)), "a", b"1")
    assert open_snapshots(str(tmp_path)).resolve() == commit
    refs = sqlite3.connect(tmp_path / "refs.db")
    assert refs.execute("select count(*) from signatures").fetchone() == (0,)
    refs.close()
    assert not (tmp_path / "keys").exists()


def test_what_was_begun_without_a_key_does_not_count_with_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody without the key could have written it: nothing signs what nobody signed."""
    monkeypatch.delenv("ML_ASSETS_SIGNING_KEY")
    publish(open_snapshots(str(tmp_path)), "a", b"1")
    monkeypatch.setenv("ML_ASSETS_SIGNING_KEY", OURS)
    with pytest.raises(UntrustedState, match=r"nobody signed.*start clean"):
        open_snapshots(str(tmp_path)).resolve()


def test_what_is_signed_is_not_read_as_if_it_were_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that lost its key neither reads nor goes on with what others signed."""
    publish(open_snapshots(str(tmp_path)), "a", b"1")
    monkeypatch.delenv("ML_ASSETS_SIGNING_KEY")
    with pytest.raises(UntrustedState, match="no key is set here") as refused:
        publish(open_snapshots(str(tmp_path)), "b", b"2")
    assert public(OURS) in str(refused.value)


def test_a_stripped_signature_is_refused_by_who_has_the_key_or_trusts_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish(open_snapshots(str(tmp_path)), "a", b"1")
    with refs(tmp_path) as database:
        database.execute("delete from signatures")
    with pytest.raises(UntrustedState, match="nobody signed"):
        open_snapshots(str(tmp_path)).resolve()
    monkeypatch.delenv("ML_ASSETS_SIGNING_KEY")
    monkeypatch.setenv("ML_ASSETS_TRUSTED_KEYS", public(OURS))
    with pytest.raises(UntrustedState, match="nobody signed"):
        open_snapshots(str(tmp_path)).resolve()


def test_who_only_trusts_a_key_reads_and_does_not_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit = publish(open_snapshots(str(tmp_path)), "a", b"1")
    monkeypatch.delenv("ML_ASSETS_SIGNING_KEY")
    monkeypatch.setenv("ML_ASSETS_TRUSTED_KEYS", public(OURS))
    assert open_snapshots(str(tmp_path)).resolve() == commit
    with pytest.raises(SettingsError, match="nobody could verify"):
        publish(open_snapshots(str(tmp_path)), "b", b"2")
    assert open_snapshots(str(tmp_path)).resolve() == commit


def test_collecting_forgets_the_signatures_of_what_it_drops(tmp_path: Path) -> None:
    store = open_snapshots(str(tmp_path))
    old = publish(store, "a", b"1")
    publish(store, "a", b"2")
    store.collect_garbage([old])
    refs = sqlite3.connect(tmp_path / "refs.db")
    signed = {row[0] for row in refs.execute("select commit_id from signatures")}
    refs.close()
    assert old not in signed
    assert open_snapshots(str(tmp_path)).resolve() in signed


def test_a_store_of_the_same_key_and_another_name_is_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two homes under one key: the one, copied over the other, would stand for it."""
    monkeypatch.setenv("ML_ASSETS_STORE", "staging")
    commit = publish(open_snapshots(str(tmp_path)), "a", b"1")
    assert open_snapshots(str(tmp_path)).resolve() == commit
    for name in ("production", ""):
        monkeypatch.setenv("ML_ASSETS_STORE", name)
        with pytest.raises(UntrustedState) as refused:
            open_snapshots(str(tmp_path)).resolve()
        said = f"ML_ASSETS_STORE is {name!r}." if name else "ML_ASSETS_STORE is not set."
        assert said in str(refused.value)
        assert "ML_ASSETS_TRUSTED_KEYS" not in str(refused.value), "the key is trusted"
    monkeypatch.setenv("ML_ASSETS_STORE", "with a space")
    with pytest.raises(SettingsError, match="ML_ASSETS_STORE is"):
        open_snapshots(str(tmp_path))


def test_the_page_prints_the_public_half_of_the_key() -> None:
    page = (Path(__file__).parents[2] / "docs" / "operate.md").read_text()
    (line,) = (one for one in page.splitlines() if one.startswith(".venv/bin/python -c "))
    command = [sys.executable, *shlex.split(line)[1:]]
    told = subprocess.run(command, capture_output=True, text=True, check=True)
    assert told.stdout.strip() == public(OURS)
