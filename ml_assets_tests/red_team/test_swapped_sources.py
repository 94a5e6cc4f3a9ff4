"""Files of a source that are exchanged behind the look at them: refused, and nobody waits."""

import json
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ml_assets.assets.raw_snapshot.readers import listing, places
from ml_assets.assets.raw_snapshot.readers.files import read_file
from ml_assets.errors import SourceError
from ml_assets.spec.sources import FilesSource

COLUMNS = {"flower": "int64", "species": "string"}
ROWS = "flower,species\n1,setosa\n"


def source(file: str, kind: str) -> FilesSource:
    spec = {"kind": "files", "path": file, "format": kind, "partitioned": False}
    return FilesSource.model_validate({**spec, "columns": COLUMNS, "key": ["flower"]})


@pytest.fixture
def nobody_waits() -> Iterator[None]:
    def late(*_: object) -> None:
        pytest.fail("it waits for a file that never ends")

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(5)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


def swapped(patch: pytest.MonkeyPatch, file: Path, other: Callable[[Path], object]) -> None:
    """The file is another one as soon as it was listed."""
    listed = listing.list_local

    def then(*given: object) -> Iterator[object]:
        found = [*listed(*given)]  # type: ignore[arg-type]
        file.unlink()
        other(file)
        yield from found

    patch.setattr(places, "list_local", then)


@pytest.mark.usefixtures("nobody_waits")
def test_a_pipe_in_place_of_a_file_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "rows.csv"
    file.write_text(ROWS)
    swapped(monkeypatch, file, os.mkfifo)
    with pytest.raises(SourceError):
        read_file("rows", source("rows.csv", "csv"), tmp_path, None)


@pytest.mark.usefixtures("nobody_waits")
def test_no_more_is_read_than_was_listed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file, read = tmp_path / "rows.csv", list[int]()
    file.write_text(ROWS)
    swapped(monkeypatch, file, lambda there: (there.touch(), os.truncate(there, 256 << 20)))
    place = places.Folder("rows", tmp_path)
    [found] = [*place.list(places.pattern_of("rows.csv"))]
    with pytest.raises(SourceError):
        for chunk in place.chunks(found):  # type: ignore[arg-type]
            read.append(len(chunk))
    assert sum(read) <= 2 * places.CHUNK


def test_a_link_in_place_of_a_file_is_not_followed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root, outside = tmp_path / "sources", tmp_path / "secret.csv"
    root.mkdir()
    file = root / "rows.csv"
    file.write_text(ROWS)
    outside.write_text(ROWS.replace("setosa", "hidden"))
    state = file.stat()
    os.utime(outside, ns=(state.st_atime_ns, state.st_mtime_ns))
    swapped(monkeypatch, file, lambda there: there.symlink_to(outside))
    with pytest.raises(SourceError):
        read_file("rows", source("rows.csv", "csv"), root, None)


def test_half_a_sign_in_json_is_told_with_its_line(tmp_path: Path) -> None:
    row = json.dumps({"flower": 1, "species": "\ud800"})
    (tmp_path / "rows.jsonl").write_text(f"{row}\n")
    with pytest.raises(SourceError, match="line 1"):
        read_file("rows", source("rows.jsonl", "jsonl"), tmp_path, None)
