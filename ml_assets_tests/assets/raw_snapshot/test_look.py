"""A look finds what is new and whole, and reads nothing again that nobody touched."""

import os
import sqlite3
from datetime import timedelta
from pathlib import Path

import pytest

from ml_assets.assets.raw_snapshot.readers.places import Folder
from ml_assets.assets.raw_snapshot.readers.read_source import Seen, receipt_of
from ml_assets.errors import SourceError
from ml_assets_tests.assets.raw_snapshot.delivering import (
    NOW,
    WEEKS,
    deliver,
    files,
    looked,
    no_sql,
    refusal,
    stream,
)

ROWS = "order,shop\n1,north\n"
KEY = "2024-01-01"
FILE = "orders/2024-01-01.csv"
SECOND = timedelta(seconds=1)
MINUTE = timedelta(minutes=1)


@pytest.fixture
def seen(tmp_path: Path) -> Seen:
    return Seen(tmp_path / "state" / "seen.db")


def test_a_file_that_is_new_is_taken_at_the_second_look(tmp_path: Path, seen: Seen):
    deliver(tmp_path, {FILE: ROWS}, at=NOW - SECOND)
    first = looked(tmp_path, files(), seen=seen)
    assert first.keys == ()
    assert "the next check shows" in first.waiting[KEY]
    later = NOW + timedelta(seconds=30)
    assert looked(tmp_path, files(), seen=seen, now=later).keys == (KEY,)
    reopened = Seen(seen.file)
    assert looked(tmp_path, files(), seen=reopened, now=later + SECOND).keys == (KEY,)


def test_a_file_that_grows_is_left_at_every_look_until_it_rests(tmp_path: Path, seen: Seen):
    for seconds in range(0, 90, 30):
        now = NOW + timedelta(seconds=seconds)
        deliver(tmp_path, {FILE: ROWS + "2,south\n" * seconds}, at=now)
        assert looked(tmp_path, files(), seen=seen, now=now).keys == ()
    rested = NOW + timedelta(seconds=90)
    assert looked(tmp_path, files(), seen=seen, now=rested).keys == (KEY,)


def test_a_file_of_an_hour_ago_is_taken_at_the_first_look(tmp_path: Path, seen: Seen):
    deliver(tmp_path, {FILE: ROWS.rstrip()})
    assert looked(tmp_path, files(), seen=seen).keys == (KEY,)


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("orders/2024-01-01.csv", "order,shop\n1,nor", "does not end with a line break"),
        ("orders/2024-01-01.csv", "", "is empty"),
        ("orders/2024-01-01.parquet", b"PAR1 and so on", "has no footer"),
        ("orders/2024-01-01.csv.gz", b"\x1f\x8b\x08\0\0\0\0\0\0\xff", "gzip that does not end"),
    ],
)
def test_what_is_cut_off_is_left_for_a_minute_and_then_refused_or_taken(
    tmp_path: Path, name: str, content: str | bytes, said: str
):
    kind = "parquet" if name.endswith("parquet") else "csv"
    source = files(path=name.replace(KEY, "{partition}"), format=kind)
    deliver(tmp_path, {name: content}, at=NOW - SECOND)
    found = looked(tmp_path, source)
    assert found.keys == ()
    assert said in found.waiting[KEY]
    assert looked(tmp_path, source, now=NOW + MINUTE).keys == (KEY,)


def test_a_file_from_the_future_rests_when_it_was_the_same_for_a_minute(tmp_path: Path, seen: Seen):
    deliver(tmp_path, {FILE: ROWS.rstrip()}, at=NOW + timedelta(days=1))
    assert looked(tmp_path, files(), seen=seen).keys == ()
    assert looked(tmp_path, files(), seen=seen, now=NOW + 30 * SECOND).keys == ()
    assert looked(tmp_path, files(), seen=seen, now=NOW + MINUTE).keys == (KEY,)


def test_one_unfinished_file_holds_up_its_own_partition_only(tmp_path: Path):
    done = '{"offset": 0, "order": 1, "at": null}\n'
    deliver(tmp_path, {f"arrivals/{week.key}/0.jsonl": done for week in WEEKS})
    deliver(tmp_path, {"arrivals/2024-01-08/1.jsonl": '{"offset": 1, "ord'}, at=NOW)
    assert looked(tmp_path, stream()).keys == ("2024-01-01", "2024-01-15")


def test_a_table_that_is_read_whole_is_left_too(tmp_path: Path, seen: Seen):
    source = files(path="shops.csv", partitioned=False)
    deliver(tmp_path, {"shops.csv": ROWS}, at=NOW)
    assert looked(tmp_path, source, None, seen).waiting[None]
    assert looked(tmp_path, source, None, seen, NOW + SECOND).keys == (None,)


class Reads:
    """How often the content of a file was asked for."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.files: list[str] = []
        real = Folder.chunks

        def chunks(folder: Folder, found):
            self.files.append(found.path)
            return real(folder, found)

        monkeypatch.setattr(Folder, "chunks", chunks)


def test_what_nobody_touched_is_not_read_again(
    tmp_path: Path, seen: Seen, monkeypatch: pytest.MonkeyPatch
):
    reads = Reads(monkeypatch)
    deliver(tmp_path, {f"orders/{week.key}.csv": ROWS for week in WEEKS})

    def receipts(seen: Seen) -> list[object]:
        found = looked(tmp_path, files(), seen=seen)
        return [found.receipt(key) for key in found.keys]

    first = receipts(seen)
    assert len(reads.files) == 3
    assert receipts(Seen(seen.file)) == first
    assert len(reads.files) == 3, "nor after a restart"
    deliver(tmp_path, {FILE: ROWS + "2,south\n"})
    second = receipts(seen)
    assert reads.files[3:] == [FILE]
    assert second[0] != first[0]
    assert second[1:] == first[1:]


def test_files_that_are_rows_and_references_have_a_receipt_of_each(tmp_path: Path, seen: Seen):
    deliver(tmp_path, {f"docs/{KEY}/0.jsonl": '{"order": 1, "shop": "north"}\n'})
    path = "docs/{partition}/*.jsonl"
    referred = {"path": "string", "etag": "string"}
    for source in (
        files(path=path, format="jsonl"),
        files(path=path, format="binary", columns=referred, key=["path"]),
    ):
        found = looked(tmp_path, source, seen=seen).receipt(KEY)
        assert found == receipt_of("orders", source, tmp_path, no_sql, WEEKS[0])


def test_a_file_that_changed_as_it_was_read_is_not_remembered(
    tmp_path: Path, seen: Seen, monkeypatch: pytest.MonkeyPatch
):
    """Within one tick of the file system's clock a second change shows the same time."""
    deliver(tmp_path, {FILE: ROWS}, at=NOW)
    looked(tmp_path, files(), seen=seen)
    before = looked(tmp_path, files(), seen=seen, now=NOW + SECOND).receipt(KEY)
    deliver(tmp_path, {FILE: ROWS.replace("1", "2")}, at=NOW)
    after = looked(tmp_path, files(), seen=seen, now=NOW + SECOND).receipt(KEY)
    assert after["bytes"] == before["bytes"]
    assert after["sha256"] != before["sha256"]


def test_a_file_that_changes_while_it_is_read_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    deliver(tmp_path, {FILE: ROWS})
    found = looked(tmp_path, files())
    with (tmp_path / FILE).open("a") as file:
        file.write("2,south\n")
    with pytest.raises(SourceError, match="changed while it was read"):
        found.receipt(KEY)


@pytest.mark.parametrize("spoil", [b"no database", b""])
def test_a_memory_that_is_lost_or_damaged_costs_one_look(tmp_path: Path, seen: Seen, spoil: bytes):
    deliver(tmp_path, {FILE: ROWS})
    receipt = looked(tmp_path, files(), seen=seen).receipt(KEY)
    seen.file.write_bytes(spoil)
    assert looked(tmp_path, files(), seen=seen).receipt(KEY) == receipt


def test_a_receipt_in_the_memory_that_cannot_be_read_costs_one_look(tmp_path: Path, seen: Seen):
    deliver(tmp_path, {FILE: ROWS})
    receipt = looked(tmp_path, files(), seen=seen).receipt(KEY)
    with sqlite3.connect(seen.file) as memory:
        memory.execute("update seen set receipt = '{nonsense'")
    memory.close()
    assert looked(tmp_path, files(), seen=seen).receipt(KEY) == receipt


def test_a_memory_that_is_in_use_is_told_as_it_is(
    tmp_path: Path, seen: Seen, monkeypatch: pytest.MonkeyPatch
):
    deliver(tmp_path, {FILE: ROWS})
    looked(tmp_path, files(), seen=seen)
    monkeypatch.setattr("ml_assets.assets.raw_snapshot.readers.look_cache.PATIENCE_SECONDS", 0)
    other = sqlite3.connect(seen.file, isolation_level="EXCLUSIVE")
    other.execute("BEGIN EXCLUSIVE")
    with pytest.raises(SourceError, match="cannot be used: database is locked"):
        looked(tmp_path, files(), seen=seen)
    other.close()


def test_a_pipe_is_no_file(tmp_path: Path):
    deliver(tmp_path, {FILE: ROWS})
    os.mkfifo(tmp_path / "orders/2024-01-08.csv")
    assert looked(tmp_path, files()).keys == (KEY,)
    assert "not a regular file" in refusal(tmp_path, files(), WEEKS[1]), "it would never end"
