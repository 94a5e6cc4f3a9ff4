"""What every snapshot store promises: each claim is held against each adapter."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import polars as pl
import pytest

from ml_assets.errors import StorageError
from ml_assets.store.open import open_snapshots
from ml_assets.store.snapshots import (
    AlreadyPublished,
    Busy,
    Collected,
    Conflict,
    Published,
    PublishResult,
    SnapshotStore,
)
from ml_assets.store.table_files import write_table

EACH_WAY_UP = ["embedded", "lakefs by gateway", "lakefs by presigned URL"]


@pytest.fixture(params=["embedded", "lakefs by presigned URL"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> SnapshotStore:
    """Empty; lakeFS's other way to upload is taken where a file goes up, and is not seen else."""
    if request.param == "embedded":
        return open_snapshots(str(tmp_path / "store"))
    gateway = request.param == "lakefs by gateway"
    server = request.getfixturevalue("gateway_server" if gateway else "presigning_server")
    return request.getfixturevalue("open_lakefs")(server)


@pytest.fixture
def collecting(tmp_path: Path) -> SnapshotStore:
    """A store that collects its history itself; a lakeFS server does it by rules of its own."""
    return open_snapshots(str(tmp_path / "store"))


def publish(
    store: SnapshotStore, files: dict[str, bytes], key: str, base: str | None = None
) -> PublishResult:
    with store.open(base or store.resolve(), key) as workspace:
        for path, data in files.items():
            workspace.put_bytes(path, data)
        workspace.commit(key, {})
        return workspace.publish()


def head(store: SnapshotStore, path: str) -> bytes:
    return store.read_bytes(store.resolve(), path)


@pytest.mark.parametrize("store", EACH_WAY_UP, indirect=True)
def test_what_is_published_can_be_read_and_what_was_before_stays(store: SnapshotStore) -> None:
    first = publish(store, {"t/a": b"1"}, "k1")
    second = publish(store, {"t/a": b"2"}, "k2")
    assert isinstance(first, Published)
    assert isinstance(second, Published)
    assert store.read_bytes(first.commit, "t/a") == b"1"
    assert store.read_bytes(second.commit, "t/a") == b"2"


def test_nothing_is_visible_before_it_is_published(store: SnapshotStore) -> None:
    with store.open(store.resolve(), "k") as workspace:
        workspace.put_bytes("t/a", b"1")
        workspace.commit("k", {})
        assert not store.exists(store.resolve(), "t/a")
    assert not store.exists(store.resolve(), "t/a")


def test_publishing_the_same_work_again_is_already_published(store: SnapshotStore) -> None:
    base = store.resolve()
    first = publish(store, {"t/a": b"1"}, "k", base)
    again = publish(store, {"t/a": b"1"}, "k", base)
    assert isinstance(first, Published)
    assert again == AlreadyPublished(first.commit)


def test_equal_content_is_already_published_whoever_wrote_it(store: SnapshotStore) -> None:
    publish(store, {"t/a": b"1"}, "k1")
    assert isinstance(publish(store, {"t/a": b"1"}, "k2"), AlreadyPublished)


def test_content_that_goes_back_is_published_again(store: SnapshotStore) -> None:
    for data, key in ((b"1", "k1"), (b"2", "k2"), (b"1", "k1")):
        assert isinstance(publish(store, {"t/a": data}, key), Published)
    assert head(store, "t/a") == b"1"


def test_disjoint_paths_from_one_base_both_land(store: SnapshotStore) -> None:
    base = store.resolve()
    assert isinstance(publish(store, {"t/a": b"1"}, "k1", base), Published)
    assert isinstance(publish(store, {"t/b": b"2"}, "k2", base), Published)
    assert (head(store, "t/a"), head(store, "t/b")) == (b"1", b"2")


def test_one_path_changed_on_both_sides_is_a_conflict_and_nothing_is_overwritten(
    store: SnapshotStore,
) -> None:
    base = store.resolve()
    publish(store, {"t/a": b"1"}, "k1", base)
    assert publish(store, {"t/a": b"2", "t/b": b"2"}, "k2", base) == Conflict(("t/a",))
    assert head(store, "t/a") == b"1"
    assert not store.exists(store.resolve(), "t/b")


def test_a_file_put_again_as_it_is_conflicts_with_a_change_since(store: SnapshotStore) -> None:
    """What was decided by a file is published with it: another one is told."""
    publish(store, {"t/a": b"1"}, "k1")
    base = store.resolve()
    assert isinstance(publish(store, {"t/a": b"1", "t/b": b"1"}, "k2", base), Published)
    publish(store, {"t/a": b"2"}, "k3")
    assert publish(store, {"t/a": b"1", "t/c": b"1"}, "k4", base) == Conflict(("t/a",))
    assert head(store, "t/a") == b"2"


def test_what_is_held_is_not_put_again_and_conflicts_with_a_change_since(
    store: SnapshotStore,
) -> None:
    def held(key: str, base: str) -> PublishResult:
        with store.open(base, key) as workspace:
            workspace.hold("t/a")
            workspace.put_bytes(f"t/{key}", b"1")
            workspace.commit(key, {})
            return workspace.publish()

    publish(store, {"t/a": b"1"}, "k1")
    base = store.resolve()
    assert isinstance(held("k2", base), Published)
    assert head(store, "t/a") == b"1"
    publish(store, {"t/a": b"2"}, "k3")
    assert held("k4", base) == Conflict(("t/a",))
    assert (head(store, "t/a"), store.exists(store.resolve(), "t/k4")) == (b"2", False)
    with (
        store.open(base, "k5") as workspace,
        pytest.raises(StorageError, match=f"Commit {base[:12]} of .* has no t/missing"),
    ):
        workspace.hold("t/missing")


def test_if_absent_conflicts_where_the_path_is_taken(store: SnapshotStore) -> None:
    publish(store, {"ledger/1": b"first"}, "k1")
    with store.open(store.resolve(), "k2") as workspace:
        workspace.put_bytes("ledger/1", b"second", if_absent=True)
        workspace.commit("k2", {})
        assert workspace.publish() == Conflict(("ledger/1",))
    assert head(store, "ledger/1") == b"first"


def test_a_path_that_was_removed_is_gone(store: SnapshotStore) -> None:
    publish(store, {"t/a": b"1"}, "k1")
    with store.open(store.resolve(), "k2") as workspace:
        workspace.remove("t/a")
        workspace.commit("remove", {})
        removed = workspace.publish()
    assert isinstance(removed, Published)
    assert not store.exists(store.resolve(), "t/a")


@pytest.mark.parametrize("store", EACH_WAY_UP, indirect=True)
def test_a_file_is_copied_out_whole_or_not_at_all(store: SnapshotStore, tmp_path: Path) -> None:
    done = publish(store, {"t/a": b"1" * 3_000_000}, "k1")
    assert isinstance(done, Published)
    store.copy_out(done.commit, "t/a", tmp_path / "a")
    assert (tmp_path / "a").read_bytes() == b"1" * 3_000_000
    with pytest.raises(StorageError, match="t/b"):
        store.copy_out(done.commit, "t/b", tmp_path / "b")
    assert [file.name for file in tmp_path.iterdir() if file.is_file()] == ["a"]


@pytest.mark.parametrize("store", EACH_WAY_UP, indirect=True)
def test_writers_at_once_all_get_in_and_each_line_is_taken_once(store: SnapshotStore) -> None:
    """Three paths of their own, and one that all of them want."""
    base = store.resolve()

    def write(number: int) -> tuple[PublishResult, PublishResult]:
        own = publish(store, {f"t/{number}": b"x"}, f"own {number}", base)
        with store.open(base, f"line {number}") as workspace:
            workspace.put_bytes("ledger/1", str(number).encode(), if_absent=True)
            workspace.commit(f"line {number}", {})
            return own, workspace.publish()

    with ThreadPoolExecutor(3) as pool:
        outcomes = list(pool.map(write, range(3)))
    assert all(isinstance(own, Published) for own, _ in outcomes)
    assert sum(isinstance(line, Published) for _, line in outcomes) == 1
    assert sum(line == Conflict(("ledger/1",)) for _, line in outcomes) == 2
    assert [e.path for e in store.list(store.resolve(), "t/")] == ["t/0", "t/1", "t/2"]


def test_history_is_all_that_main_and_tags_have_behind_them(store: SnapshotStore) -> None:
    first = publish(store, {"t/a": b"1"}, "k1")
    assert isinstance(first, Published)
    store.tag("v1", first.commit)
    publish(store, {"t/a": b"2"}, "k2")
    assert [c.message for c in store.history()][:2] == ["k2", "k1"]
    assert store.history() == store.log()
    assert dict(store.tags()) == {"v1": first.commit}


def test_list_diff_and_log_tell_what_happened(store: SnapshotStore) -> None:
    first = publish(store, {"t/a": b"1", "t/b": b"1"}, "k1")
    second = publish(store, {"t/b": b"22", "u/c": b"3"}, "k2")
    assert isinstance(first, Published)
    assert isinstance(second, Published)
    assert [entry.path for entry in store.list(second.commit, "t/")] == ["t/a", "t/b"]
    changes = {(c.path, c.kind) for c in store.diff(first.commit, second.commit)}
    assert changes == {("t/b", "changed"), ("u/c", "added")}
    assert [commit.message for commit in store.log(limit=2)] == ["k2", "k1"]
    assert store.log()[0].metadata["run_key"] == "k2"


def test_a_tag_names_a_commit_for_good(store: SnapshotStore) -> None:
    first = publish(store, {"t/a": b"1"}, "k1")
    assert isinstance(first, Published)
    store.tag("v1", first.commit)
    store.tag("v1", first.commit)
    assert store.resolve("v1") == first.commit
    second = publish(store, {"t/a": b"2"}, "k2")
    assert isinstance(second, Published)
    with pytest.raises(StorageError, match="A tag never moves"):
        store.tag("v1", second.commit)
    store.untag("v1")
    store.untag("v1")
    store.untag("main")
    assert (dict(store.tags()), store.resolve()) == ({}, second.commit)
    store.tag("v1", second.commit)
    assert store.resolve("v1") == second.commit


def test_a_commit_tells_which_home_made_it(store: SnapshotStore) -> None:
    first = publish(store, {"t/a": b"1"}, "k1")
    assert isinstance(first, Published)
    assert store.made_here(first.commit)


def test_a_path_that_leads_elsewhere_is_refused(store: SnapshotStore) -> None:
    with store.open(store.resolve(), "k") as workspace:
        for path in ("", "/t", "../t", "t/../u", "t//u", "./t"):
            with pytest.raises(StorageError):
                workspace.put_bytes(path, b"1")


def test_a_missing_path_or_ref_is_named(store: SnapshotStore) -> None:
    with pytest.raises(StorageError, match="t/none"):
        store.read_bytes(store.resolve(), "t/none")
    with pytest.raises(StorageError, match="nowhere"):
        store.resolve("nowhere")


@pytest.mark.parametrize("store", EACH_WAY_UP, indirect=True)
def test_a_table_is_scanned_by_commit(store: SnapshotStore, tmp_path: Path) -> None:
    frame = pl.DataFrame({"k": [2, 1], "v": ["b", "a"]})
    write_table(frame, tmp_path / "t.parquet", ["k"])
    with store.open(store.resolve(), "k") as workspace:
        workspace.put("t/data.parquet", tmp_path / "t.parquet")
        workspace.commit("k", {})
        outcome = workspace.publish()
    assert isinstance(outcome, Published)
    assert store.scan(outcome.commit, "t/data.parquet").collect().equals(frame.sort("k"))


def test_garbage_is_what_nothing_reaches(collecting: SnapshotStore) -> None:
    publish(collecting, {"t/a": b"kept"}, "k1")
    with collecting.open(collecting.resolve(), "k2") as workspace:
        workspace.put_bytes("t/b", b"left behind")
        workspace.commit("k2", {})
        assert collecting.collect_garbage() == Busy()
    told = collecting.collect_garbage(dry_run=True)
    done = collecting.collect_garbage()
    assert told == done
    assert isinstance(done, Collected)
    assert done.freed_bytes >= len(b"left behind")
    assert head(collecting, "t/a") == b"kept"


def history(store: SnapshotStore, length: int) -> list[str]:
    """That many commits of one path, oldest first."""
    outcomes = [publish(store, {"t/a": str(n).encode() * 1000}, f"k{n}") for n in range(length)]
    return [outcome.commit for outcome in outcomes if not isinstance(outcome, Conflict)]


def test_dropped_history_frees_what_only_it_reached(collecting: SnapshotStore) -> None:
    commits = history(collecting, 6)
    collecting.tag("released", commits[1])
    done = collecting.collect_garbage(drop=[commits[0], *commits[1:4]])
    assert isinstance(done, Collected)
    assert done.freed_bytes >= 3 * 1000
    assert head(collecting, "t/a") == b"5" * 1000
    assert collecting.read_bytes(commits[4], "t/a") == b"4" * 1000
    assert collecting.read_bytes(collecting.resolve("released"), "t/a") == b"1" * 1000
    with pytest.raises(StorageError):
        collecting.read_bytes(commits[2], "t/a")


def test_history_goes_on_over_what_was_dropped(collecting: SnapshotStore) -> None:
    begin = collecting.resolve()
    commits = history(collecting, 6)
    collecting.collect_garbage(drop=[commits[1], commits[2], commits[4]])
    left = [commits[5], commits[3], commits[0], begin]
    assert [commit.id for commit in collecting.log()] == left
    assert [commit.id for commit in collecting.history()] == left
    again = collecting.collect_garbage(drop=[begin, commits[3]])
    assert isinstance(again, Collected)
    assert [commit.id for commit in collecting.log()] == [commits[5], commits[0]]


def test_the_head_cannot_be_dropped(store: SnapshotStore) -> None:
    commits = history(store, 2)
    store.collect_garbage(drop=commits)
    assert head(store, "t/a") == b"1" * 1000
    assert isinstance(publish(store, {"t/a": b"new"}, "new"), Published)


def test_work_begun_before_a_collection_can_be_published_after_it(store: SnapshotStore) -> None:
    commits = history(store, 3)
    base = store.resolve()
    store.collect_garbage(drop=commits[:2])
    assert isinstance(publish(store, {"t/b": b"late"}, "late", base), Published)
    assert head(store, "t/b") == b"late"
