"""The embedded store under fire: killed writers, two writers at once, damaged files."""

import contextlib
import fcntl
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import pytest

from ml_assets.errors import StorageError, StoreAway
from ml_assets.store.embedded import refs
from ml_assets.store.embedded.store import EmbeddedStore
from ml_assets.store.embedded.trees import Tree
from ml_assets.store.embedded.trust import Trust
from ml_assets.store.open import open_snapshots
from ml_assets.store.snapshots import Collected, CommitId, Published, SnapshotStore

WRITER = """
import sys
from ml_assets.store.open import open_snapshots
store = open_snapshots(sys.argv[1])
print("ready", flush=True)
for number in range(int(sys.argv[3])):
    with store.open(store.resolve(), f"{sys.argv[2]}-{number}") as workspace:
        pair = f"{sys.argv[2]}-{number}".encode() * 2000
        workspace.put_bytes(f"t/{sys.argv[2]}/left", pair)
        workspace.put_bytes(f"t/{sys.argv[2]}/right", pair)
        workspace.commit("pair", {})
        print(type(workspace.publish()).__name__, flush=True)
"""

RACER = """
import sys
from ml_assets.store.open import open_snapshots
store = open_snapshots(sys.argv[1])
base = store.resolve()
print("ready", flush=True)
sys.stdin.readline()
with store.open(base, sys.argv[2]) as workspace:
    workspace.put_bytes("t/same", sys.argv[2].encode())
    workspace.commit("race", {})
    print(type(workspace.publish()).__name__, flush=True)
"""


def start(script: str, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", script, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


@pytest.mark.parametrize("delay", [0.0, 0.01, 0.03, 0.08, 0.2])
def test_a_writer_killed_at_any_moment_leaves_a_whole_state(tmp_path: Path, delay: float) -> None:
    root = str(tmp_path / "store")
    with start(WRITER, root, "w", "10000") as writer:
        assert writer.stdout is not None
        assert writer.stdout.readline() == "ready\n"
        time.sleep(delay)
        os.kill(writer.pid, signal.SIGKILL)
    store = open_snapshots(root)
    head = store.resolve()
    if store.exists(head, "t/w/left"):
        assert store.read_bytes(head, "t/w/left") == store.read_bytes(head, "t/w/right")
    store.collect_garbage()
    with store.open(store.resolve(), "after") as workspace:
        workspace.put_bytes("t/after", b"fine")
        workspace.commit("after", {})
        assert isinstance(workspace.publish(), Published)


def test_two_processes_on_disjoint_paths_both_land_every_time(tmp_path: Path) -> None:
    root = str(tmp_path / "store")
    with start(WRITER, root, "a", "15") as first, start(WRITER, root, "b", "15") as second:
        told = [process.communicate()[0].split()[1:] for process in (first, second)]
    assert told == [["Published"] * 15] * 2
    store = open_snapshots(root)
    assert len(store.log()) == 31


def test_two_processes_on_one_path_leave_one_winner(tmp_path: Path) -> None:
    root = str(tmp_path / "store")
    open_snapshots(root).resolve()
    with start(RACER, root, "x") as first, start(RACER, root, "y") as second:
        for process in (first, second):
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
        told = sorted(process.communicate("go\n")[0].strip() for process in (first, second))
    assert told == ["Conflict", "Published"]


def test_a_flipped_byte_is_refused_and_the_file_is_named(tmp_path: Path) -> None:
    store = open_snapshots(str(tmp_path))
    with store.open(store.resolve(), "k") as workspace:
        entry = workspace.put_bytes("t/a", b"precious")
        workspace.commit("k", {})
        outcome = workspace.publish()
    assert isinstance(outcome, Published)
    file = tmp_path / "objects" / entry.digest[:2] / entry.digest
    file.write_bytes(b"Precious")
    with pytest.raises(StorageError, match=r"t/a is damaged"):
        open_snapshots(str(tmp_path)).read_bytes(outcome.commit, "t/a")
    file.unlink()
    with pytest.raises(StorageError, match=r"t/a is lost"):
        open_snapshots(str(tmp_path)).read_bytes(outcome.commit, "t/a")


def publish(store: SnapshotStore, number: int) -> CommitId:
    with store.open(store.resolve(), f"k{number}") as workspace:
        workspace.put_bytes(f"t/{number}", str(number).encode())
        workspace.commit("k", {})
        done = workspace.publish()
    assert isinstance(done, Published)
    return done.commit


def test_a_reader_that_may_not_write_sees_what_others_publish(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = EmbeddedStore(tmp_path)
    publish(writer, 0)
    monkeypatch.setattr(refs, "may_write", lambda _: False)
    reader = EmbeddedStore(tmp_path)
    for number in range(1, 30):  # over a checkpoint of the writer
        assert reader.resolve() == writer.resolve()
        publish(writer, number)
    writer.tag("kept", writer.resolve())
    assert reader.tags() == {"kept": writer.resolve()}
    assert reader.read_bytes(reader.resolve(), "t/29") == b"29"


def test_a_reader_that_may_not_write_copies_again_what_a_writer_moved_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A checkpoint between the copies of the database and of its log."""
    writer = EmbeddedStore(tmp_path)
    published = publish(writer, 0)
    monkeypatch.setattr(refs, "may_write", lambda _: False)
    copy, done = shutil.copyfile, list[Path]()

    def copied(file: Path, target: Path) -> None:
        copy(file, target)
        if not done:
            with contextlib.closing(sqlite3.connect(tmp_path / "refs.db")) as other:
                other.execute("pragma wal_checkpoint(truncate)")
        done.append(file)

    monkeypatch.setattr(shutil, "copyfile", copied)
    assert EmbeddedStore(tmp_path).resolve() == published


def test_history_reads_each_commit_once_however_many_tags_there_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = EmbeddedStore(tmp_path)
    commits = [publish(store, number) for number in range(20)]
    for number, commit in enumerate(commits):
        store.tag(f"tag-{number}", commit)
    steps = list[str]()
    monkeypatch.setattr(Trust, "inherit", lambda _, parent: steps.append(parent))
    assert [one.id for one in store.history()][:20] == commits[::-1]
    assert len(steps) == 20


def test_others_publish_while_a_collection_reads_history_and_lose_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = open_snapshots(str(tmp_path))
    old = [publish(writer, number) for number in range(3)]
    collector = open_snapshots(str(tmp_path))
    assert isinstance(collector, EmbeddedStore)
    read, during = collector._tree, list[CommitId]()

    def reading(tree: str) -> Tree:
        if not during:
            with (tmp_path / "writers.lock").open("a") as handle:  # else it would wait for ever
                fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
            writer.tag("kept", old[1])
            during.append(publish(writer, 3))
        return read(tree)

    monkeypatch.setattr(collector, "_tree", reading)
    done = collector.collect_garbage(drop=old[:2])
    assert isinstance(done, Collected)
    after = open_snapshots(str(tmp_path))
    assert [commit.id for commit in after.log()][:3] == [during[0], old[2], old[1]]
    assert after.read_bytes(during[0], "t/3") == b"3"
    assert after.read_bytes(old[1], "t/1") == b"1", "a tag came to what was to be dropped"
    with pytest.raises(StorageError):
        after.list(old[0])


COLLECTOR = """
import sys
from ml_assets.store.open import open_snapshots
store = open_snapshots(sys.argv[1])
print("ready", flush=True)
old = [commit.id for commit in store.log()[1:-1]]
store.collect_garbage(drop=old)
print("done", flush=True)
"""


@pytest.mark.parametrize("delay", [0.0, 0.005, 0.02, 0.05])
def test_a_collection_killed_at_any_moment_is_finished_by_the_next(
    tmp_path: Path, delay: float
) -> None:
    root = str(tmp_path / "store")
    store = open_snapshots(root)
    for number in range(60):
        with store.open(store.resolve(), f"k{number}") as workspace:
            workspace.put_bytes("t/a", f"{number}".encode() * 2000)
            workspace.commit("k", {})
            workspace.publish()
    with start(COLLECTOR, root) as collector:
        assert collector.stdout is not None
        assert collector.stdout.readline() == "ready\n"
        time.sleep(delay)
        os.kill(collector.pid, signal.SIGKILL)
    store = open_snapshots(root)
    assert store.read_bytes(store.resolve(), "t/a") == b"59" * 2000
    for commit in store.log():
        store.list(commit.id)
    old = [commit.id for commit in store.log()[1:-1]]
    store.collect_garbage(drop=old)
    assert len(store.log()) == 2
    files = sum(1 for file in (tmp_path / "store" / "objects").rglob("*") if file.is_file())
    assert files == 5  # two commits, their two trees, and the one file at the head


def test_refs_that_do_not_answer_are_away_and_damaged_ones_are_not(tmp_path: Path) -> None:
    (tmp_path / "held").mkdir()
    (tmp_path / "held" / "refs.db").mkdir()
    with pytest.raises(StoreAway, match=r"The refs of .* cannot be used: unable to open"):
        EmbeddedStore(tmp_path / "held")
    (tmp_path / "damaged").mkdir()
    (tmp_path / "damaged" / "refs.db").write_bytes(b"no database" * 100)
    with pytest.raises(StorageError, match=r"The refs of .* cannot be used") as caught:
        EmbeddedStore(tmp_path / "damaged")
    assert not isinstance(caught.value, StoreAway)
