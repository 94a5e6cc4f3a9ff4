"""Files in a landing folder: one per partition, or one in all; CSV, Parquet or JSON lines."""

import csv
import hashlib
import io
import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

import polars as pl

from ml_assets.errors import SourceError
from ml_assets.sources.events import parse_lines
from ml_assets.sources.schema import Columns, Reading, check_names, from_text, from_typed
from ml_assets.spec.partitions import PartitionWindow
from ml_assets.spec.sources import PARTITION_FIELD, EventsSource, FilesSource

_SHOWN = 3


@dataclass(frozen=True)
class _Found:
    """A file, read whole: what is parsed is exactly what is hashed."""

    relative: str
    content: bytes

    @property
    def receipt(self) -> dict[str, Any]:
        digest = hashlib.sha256(self.content).hexdigest()
        return {"path": self.relative, "bytes": len(self.content), "sha256": digest}


def read_file(
    name: str, source: FilesSource | EventsSource, root: Path, window: PartitionWindow | None
) -> Reading:
    """Read one partition (or the whole table) as declared.

    Raises:
        SourceError: the folder or file is missing, empty, or does not hold what is declared.
    """
    found = _find(name, source, root, window)
    where = f"{_title(name, window)}: {root / found.relative}"
    if not found.content.strip():
        raise SourceError(f"{where} is empty ({len(found.content)} bytes). {_EMPTY}")
    if isinstance(source, EventsSource) or source.format == "jsonl":
        frame = parse_lines(found.content, source.columns, where)
    elif source.format == "csv":
        frame = _parse_csv(found.content, source, where)
    else:
        frame = _parse_parquet(found.content, source.columns, where)
    if frame.is_empty():
        raise SourceError(f"{where} has columns but no rows. {_EMPTY}")
    return Reading(frame, found.receipt)


def file_receipt(
    name: str, source: FilesSource | EventsSource, root: Path, window: PartitionWindow | None
) -> dict[str, Any]:
    """Path, size and SHA-256 of the file, without parsing it."""
    return _find(name, source, root, window).receipt


def has_file(
    name: str, source: FilesSource | EventsSource, root: Path, window: PartitionWindow
) -> bool:
    """Whether the partition's file has landed.

    Raises:
        SourceError: the landing folder itself is missing.
    """
    _check_folder(name, source, root)
    return (root / _relative(source, window)).is_file()


_EMPTY = (
    "A partition or table without rows is taken for a fault at its origin, not for data: deliver"
    " the file again."
)


def _find(
    name: str, source: FilesSource | EventsSource, root: Path, window: PartitionWindow | None
) -> _Found:
    _check_folder(name, source, root)
    relative = _relative(source, window)
    file = root / relative
    if not file.resolve().is_relative_to(root.resolve()):
        raise SourceError(
            f"{_title(name, window)}: {file} is a symbolic link that leads out of {root}. Put the"
            " file itself there."
        )
    try:
        return _Found(relative, file.read_bytes())
    except FileNotFoundError as error:
        raise SourceError(
            f"{_title(name, window)}: there is no file {file}. {_neighbours(file)} Deliver the"
            f" file, or correct 'path' ({source.path!r}) of this source in defs.yaml."
        ) from error
    except OSError as error:
        raise SourceError(
            f"{_title(name, window)}: {file} cannot be read: {error.strerror}. A regular file that"
            " this user may read is expected there."
        ) from error


def _check_folder(name: str, source: FilesSource | EventsSource, root: Path) -> None:
    remedy = (
        "Set ML_ASSETS_SOURCES to the folder that holds the sources, or lay out the demo's:"
        " ml-assets demo"
    )
    if not root.is_dir():
        raise SourceError(
            f"{name}: ML_ASSETS_SOURCES is {root}, and there is no such folder. {remedy}"
        )
    folder = root / _fixed_folder(source)
    if not folder.is_dir():
        raise SourceError(
            f"{name}: there is no landing folder {folder} (path {source.path!r} below"
            f" ML_ASSETS_SOURCES, which is {root}). {remedy}"
        )


def _fixed_folder(source: FilesSource | EventsSource) -> Path:
    """The part of the path that is the same for every partition."""
    folders = PurePosixPath(source.path).parts[:-1]
    return Path(*itertools.takewhile(lambda folder: PARTITION_FIELD not in folder, folders))


def _relative(source: FilesSource | EventsSource, window: PartitionWindow | None) -> str:
    if source.partitioned != (window is not None):
        raise ValueError(f"partitioned is {source.partitioned} but the window is {window}")
    return source.path.replace(PARTITION_FIELD, window.key) if window else source.path


def _neighbours(file: Path) -> str:
    if not file.parent.is_dir():
        return f"Its folder {file.parent} does not exist either."
    names = sorted(p.name for p in file.parent.iterdir() if p.is_file() and p.name[0] != ".")
    if not names:
        return "Its folder is empty."
    nearest = sorted(names, key=lambda name: (name > file.name, name))
    earlier = [name for name in nearest if name <= file.name][-_SHOWN:]
    return f"Its folder holds {len(names)} files, such as {', '.join(earlier or names[:_SHOWN])}."


def _title(name: str, window: PartitionWindow | None) -> str:
    return f"{name} [{window.key}]" if window else name


def _parse_csv(content: bytes, source: FilesSource, where: str) -> pl.DataFrame:
    text = decode(content, where)
    check_names(csv_header(text), source.columns, where)
    raw = csv_cells(text, source.null_values, where)
    typed = from_text(raw, source.columns, where, lambda row: f"line {line_of(text, row)}")
    return typed.filter(~pl.all_horizontal(pl.all().is_null())) if raw.width > 1 else typed


def csv_header(text: str) -> list[str]:
    """The column names of a CSV file, as they are: one may be there twice."""
    return next(csv.reader(io.StringIO(text, newline="")), [])


def csv_cells(text: str, null_values: Sequence[str], where: str) -> pl.DataFrame:
    """The cells of a CSV file as strings.

    Raises:
        SourceError: it is not CSV, or a line has too few or too many fields.
    """
    width = len(csv_header(text))
    try:
        raw = pl.read_csv(
            io.BytesIO(text.encode()), infer_schema=False, null_values=list(null_values)
        )
    except pl.exceptions.PolarsError as error:
        _check_widths(text, width, where)
        raise SourceError(
            f"{where} is not CSV: {str(error).splitlines()[0]}. Look for an unclosed quote."
        ) from error
    if raw[:, -1].null_count():
        _check_widths(text, width, where)
    return raw


def decode(content: bytes, where: str) -> str:
    """A file's text.

    Raises:
        SourceError: it is not UTF-8; names the line.
    """
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise SourceError(
            f"{where}, line {line}: byte 0x{content[error.start]:02x} is not UTF-8. Write the file"
            " in UTF-8."
        ) from error


def _records(text: str) -> Iterator[tuple[int, list[str]]]:
    """Each record after the header and the line it begins on: a quoted field may hold newlines."""
    reader = csv.reader(io.StringIO(text, newline=""))
    begins = 1
    for number, record in enumerate(reader):
        if number:
            yield begins, record
        begins = reader.line_num + 1


def line_of(text: str, row: int) -> int:
    """The line of the file that a row begins on."""
    return next((line for number, (line, _) in enumerate(_records(text)) if number == row), row + 2)


def _check_widths(text: str, width: int, where: str) -> None:
    """Refuse a line with too few or too many fields: half a file must not pass for nulls."""
    for line, record in _records(text):
        if record and len(record) != width:
            raise SourceError(
                f"{where}, line {line}: {len(record)} fields, but the header has {width}. Was the"
                " file cut off, or does a field hold an unquoted comma? Deliver it again, whole."
            )


def _parse_parquet(content: bytes, declared: Columns, where: str) -> pl.DataFrame:
    try:
        frame = pl.read_parquet(io.BytesIO(content))
    except pl.exceptions.PolarsError as error:
        raise SourceError(
            f"{where} is not a whole Parquet file: {str(error).splitlines()[0]}. Deliver it again."
        ) from error
    check_names(frame.columns, declared, where)
    return from_typed(frame, declared, where)
