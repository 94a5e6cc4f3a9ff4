"""A person's data: a file, a folder or a pattern of files, or a table of a database."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

import polars as pl

from ml_assets.assets.raw_snapshot.readers.csv_format import csv_cells, csv_header, decode
from ml_assets.assets.raw_snapshot.readers.listing import leads_out
from ml_assets.assets.raw_snapshot.readers.places import unpacked
from ml_assets.assets.raw_snapshot.readers.sql_database import first_rows
from ml_assets.assets.raw_snapshot.text_values import TextFormat
from ml_assets.errors import SourceError, SpecError, counted
from ml_assets.scaffold.column_types import check_names
from ml_assets.scaffold.columns import typed_text, whole_or_not, with_times
from ml_assets.scaffold.csv_dialect import (
    find_dates,
    find_decimal,
    find_encoding,
    find_separator,
)
from ml_assets.scaffold.dated_names import Cadence, Dated, dated, hour_comes_twice, missing
from ml_assets.scaffold.named_files import NamedFiles, format_of, named_files
from ml_assets.settings import SQL_PREFIX, Settings
from ml_assets.spec.paths import PARTITION
from ml_assets.spec.sources import COMMAS, DateOrder, Dialect, Separator

SQL = "sql:"
FEWEST = 5
"""With fewer partitions the files are one table, whose rows are split by time."""
_MOST_BYTES = 256_000_000
"""Bytes of many files that are looked at, evenly spread."""
_MOST_ROWS = 200_000
"""Rows of a table of a database that are looked at."""
_NO_PATH = {*"*?[]{}%\\"}
"""Signs that mean something in the path of a source, or that it cannot have."""
_NAMED = 5
"""Columns that a message names."""
ONE_TABLE = "the files are read as one table, whose rows are split by time"


@dataclass(frozen=True)
class Calendar:
    """The partitions that the files are."""

    cadence: Cadence
    keys: tuple[str, ...]
    """Different ones, oldest first."""
    day_offset: int = 0
    zone: str = "UTC"
    """Of the days and hours that files are named by."""


@dataclass(frozen=True)
class Given:
    """A table that was found, typed, and how a spec's source reads it."""

    frame: pl.DataFrame
    source: Mapping[str, object] = field(default_factory=dict)
    """``kind`` and where it lies, as the spec says it."""
    rows: Literal["", "copied", "written"] = ""
    """Instead, its rows go to a file of the pipeline's own, and are read from there."""
    null_values: tuple[str, ...] = ("",)
    zoneless: tuple[str, ...] = ()
    """Columns of times that are written without a zone."""
    dialect: Dialect = COMMAS
    """How a CSV file is written."""
    calendar: Calendar | None = None
    keys: pl.Series | None = None
    """[n] the partition of each row, where there are partitions."""
    copies: Mapping[Path, str] = field(default_factory=dict)
    """Files that are not below the sources' root yet -> where they belong below it."""
    pattern: str = ""
    """The path that all files are read by as one table, where a person named them by a pattern."""
    notes: tuple[str, ...] = ()


def find(
    what: str,
    name: str,
    settings: Settings,
    zone: str,
    dates: DateOrder | None = None,
    nulls: Sequence[str] = (),
) -> Given:
    """Read what a person names.

    Args:
        what: a file, a folder, a pattern with ``*``, or ``sql:CONNECTION.table``.
        name: of the new pipeline: files from elsewhere are copied to a folder of that name.
        zone: of times that are written without one.
        dates: what comes first in a day; None: its values show it.
        nulls: texts of CSV that mean "no value", beside those that are found.

    Raises:
        SpecError: nothing is there, it is no table, or its values can be read in several ways.
    """
    if what.startswith(SQL):
        return _database(what.removeprefix(SQL), settings)
    named = named_files(what)
    if len(named.files) == 1:
        given, at = _read(named.files, zone, dates, nulls), named.relative[0]
        odd = _odd_sign(f"{_below(named.folder, name, settings)}{at}")
        unread = odd or _leads_out(named, name, settings) or "" in given.frame.columns
        if unread or format_of(named.files[0]) != "csv":
            return replace(given, rows="copied")
        return _placed(given, named, at, name, settings)
    return _many(named, name, settings, zone, dates, nulls)


def as_one_table(given: Given) -> Given:
    """The files of all partitions, read whole."""
    path = PARTITION.sub(_any_partition, str(given.source["path"]))
    path = given.pattern or re.sub(r"\*+", "*", path)
    return replace(given, calendar=None, keys=None, source={**given.source, "path": path})


def _any_partition(place: re.Match[str]) -> str:
    """A star for each folder that a partition's key is written over."""
    return re.sub("[^/]+", "*", place[1] or "*")


def _many(
    named: NamedFiles,
    name: str,
    settings: Settings,
    zone: str,
    dates: DateOrder | None,
    nulls: Sequence[str],
) -> Given:
    files, notes = named.files, list[str]()
    found = dated(named.relative)
    if found and (why := _why_no_partitions(named, found, zone, settings)):
        notes.append(f"{why}: {ONE_TABLE}")
        found = None
    chosen = _some(files)
    if len(chosen) < len(files):
        notes.append(f"looked at {len(chosen)} of {counted(len(files), 'file')}, evenly spread")
    keys = dict(zip(files, found.keys, strict=True)) if found else {}
    given = _read(chosen, zone, dates, nulls, keys)
    if more := named.read_too(named.whole, settings.sources):
        raise SpecError(
            f"{named.folder}/{named.pattern} stands for {more}, too, which is not such a table:"
            f" end the pattern with the extension of the others, such as {files[0].suffix}."
        )
    calendar = (
        Calendar(found.cadence, tuple(sorted({*found.keys})), found.day_offset, zone)
        if found
        else None
    )
    return replace(
        _placed(given, named, found.path if found else named.whole, name, settings),
        calendar=calendar,
        pattern=f"{_below(named.folder, name, settings)}{named.whole}" if named.pattern else "",
        notes=(*notes, *given.notes),
    )


def _why_no_partitions(named: NamedFiles, found: Dated, zone: str, settings: Settings) -> str:
    """Why dated files are not partitions; empty where they are."""
    few = len({*found.keys})
    if lost := missing(found):
        return f"{counted(len(lost), 'partition', 'are')} missing, {lost[0]} for one"
    if few < FEWEST:
        return f"the splits need {FEWEST} partitions, and there {'is' if few == 1 else 'are'} {few}"
    if hour_comes_twice(found, zone):
        return f"an hour comes twice in {zone} when the clocks go back, and its files have one name"
    if more := named.read_too(found.path, settings.sources, min(found.keys)[:10]):
        return f"as partitions they would be read with {more}, which the pattern leaves out"
    return ""


def _placed(given: Given, named: NamedFiles, path: str, name: str, settings: Settings) -> Given:
    """The files where a source reads them: where they are, or copied below the sources' root.

    Raises:
        SpecError: their names have what no path of a source has, or a link among them leads out.
    """
    folder, files = named.folder, named.files
    below = _below(folder, name, settings)
    if sign := _odd_sign(below) or _odd_sign(re.sub("[*?]", "", PARTITION.sub("", path))):
        raise SpecError(
            f"{below}{named.relative[0]} holds {sign!r}, which the path of a source cannot have:"
            " rename the files or their folder."
        )
    if out := _leads_out(named, name, settings):
        raise SpecError(out)
    inside = folder.is_relative_to(settings.sources)
    copies = (
        {} if inside else {f: f"{below}{at}" for f, at in zip(files, named.relative, strict=True)}
    )
    return replace(
        given,
        source={"kind": "files", "path": f"{below}{path}", "format": format_of(files[0])},
        copies=copies,
    )


def _leads_out(named: NamedFiles, name: str, settings: Settings) -> str:
    """What is wrong with a file that no source would read where it lies; empty: nothing is."""
    if not named.folder.is_relative_to(settings.sources):
        return ""  # it is copied
    return next(filter(None, (leads_out(name, one, settings.sources) for one in named.files)), "")


def _below(folder: Path, name: str, settings: Settings) -> str:
    """The folder that a source reads files from, below the sources' root."""
    inside = folder.is_relative_to(settings.sources)
    below = str(folder.relative_to(settings.sources)) if inside else name
    return "" if below == "." else f"{below}/"


def _odd_sign(name: str) -> str:
    return next((sign for sign in name if sign in _NO_PATH or not sign.isprintable()), "")


def _some(files: Sequence[Path]) -> list[Path]:
    total = sum(one.stat().st_size for one in files)
    if total <= _MOST_BYTES:
        return list(files)
    count = max(2, int(len(files) * _MOST_BYTES / total))
    return [files[round(n * (len(files) - 1) / (count - 1))] for n in range(count)]


def _read(
    files: Sequence[Path],
    zone: str,
    dates: DateOrder | None,
    nulls: Sequence[str],
    keys: Mapping[Path, str] | None = None,
) -> Given:
    """The rows of files of one format, typed together."""
    dialect = COMMAS
    try:
        if format_of(files[0]) == "csv":
            frames, dialect = _csv(files)
        else:
            frames = [_frame(one) for one in files]
    except (OSError, SourceError, pl.exceptions.PolarsError) as error:
        raise SpecError(f"The table cannot be read: {error}") from error
    for file, frame in zip(files, frames, strict=True):
        if frame.columns != frames[0].columns:
            raise SpecError(_other_columns(file, frame.columns, files[0], frames[0].columns))
    try:
        whole = pl.concat(frames, how="vertical_relaxed")
    except pl.exceptions.PolarsError as error:
        raise SpecError(f"The files hold columns of different types: {error}") from error
    if whole.is_empty():
        raise SpecError(f"The table {files[0]} has no rows: there is nothing to learn from.")
    check_names(whole.columns)
    of_rows = None
    if keys:
        parts = [pl.Series([keys[f]] * len(frame)) for f, frame in zip(files, frames, strict=True)]
        of_rows = pl.concat(parts)
    if format_of(files[0]) != "csv":
        return Given(whole_or_not(whole), keys=of_rows)
    decimal, first = find_decimal(whole, dialect.separator), find_dates(whole, dates)
    typed = typed_text(whole, TextFormat(zone, decimal, first), nulls)
    return Given(
        typed.frame,
        null_values=typed.null_values,
        zoneless=typed.zoneless,
        dialect=dialect.model_copy(update={"decimal": decimal, "dates": first}),
        keys=of_rows,
        notes=typed.notes,
    )


def _other_columns(file: Path, columns: list[str], first: Path, expected: list[str]) -> str:
    """What is said of a file whose columns are not those of the first one."""
    gone = [name for name in expected if name not in columns]
    came = [name for name in columns if name not in expected]
    if not gone and not came:
        here, there = next(pair for pair in zip(columns, expected, strict=True) if len({*pair}) > 1)
        return (
            f"{file} has the columns of {first.name} in another order: {here!r} stands where"
            f" {first.name} has {there!r}. Write the columns of all files in one order."
        )
    if len(gone) == len(came) == 1:
        return (
            f"{file} has a column {came[0]!r} and no {gone[0]!r}, which {first.name} has: it looks"
            " renamed. Give it one name in all files; or start the table at the first file with"
            f" the new name, {file.name}, by a pattern that names no earlier one."
        )
    told = [
        f"{verb} {_listed(names)}{of}"
        for verb, names, of in (("lacks", gone, f" of {first.name}"), ("adds", came, ""))
        if names
    ]
    return (
        f"{file} has other columns than {first.name}: it {' and '.join(told)}. All files of a table"
        " have the same columns, in one order: bring them to that, or name only those that have, by"
        " a pattern."
    )


def _listed(names: Sequence[str]) -> str:
    more = f" and {counted(len(names) - _NAMED, 'more column')}" if len(names) > _NAMED else ""
    return ", ".join(map(repr, names[:_NAMED])) + more


def _frame(file: Path) -> pl.DataFrame:
    kind = format_of(file)
    if kind == "parquet":
        return pl.read_parquet(file)
    content = unpacked(file.read_bytes(), file.name, str(file))
    return pl.read_ndjson(content, infer_schema_length=None)


def _csv(files: Sequence[Path]) -> tuple[list[pl.DataFrame], Dialect]:
    """The cells of CSV files as text, and how the files are written, but for the decimal sign."""
    contents = [(file, unpacked(file.read_bytes(), file.name, str(file))) for file in files]
    encoding = find_encoding(contents)
    dialect = Dialect(encoding=encoding)
    texts = [(file, decode(content, str(file), dialect)) for file, content in contents]
    separators: dict[Separator, Path] = {find_separator(file, text): file for file, text in texts}
    if len(separators) > 1:
        told = ", ".join(f"{file.name} by {sign!r}" for sign, file in separators.items())
        raise SpecError(
            f"The files separate values in different ways: {told}. Write all in one way."
        )
    dialect = Dialect(separator=next(iter(separators)), encoding=encoding)
    return [_cells(file, text, dialect) for file, text in texts], dialect


def _cells(file: Path, text: str, dialect: Dialect) -> pl.DataFrame:
    header = csv_header(text, str(file), dialect)
    if twice := next((name for name in header if header.count(name) > 1), None):
        raise SourceError(
            f"{file} has {header.count(twice)} columns {twice!r}. Give each a name of its own."
        )
    cells = csv_cells(text, ("",), str(file), dialect)
    cells.columns = header
    return cells.filter(~pl.all_horizontal(pl.all().is_null())) if cells.width > 1 else cells


def _database(named: str, settings: Settings) -> Given:
    """A table of a database, read whole where it is not too long."""
    connection, dot, table = named.partition(".")
    if not dot or not table:
        raise SpecError(
            f"sql:{named}: write sql:CONNECTION.table; the database's URL is in"
            f" {SQL_PREFIX}CONNECTION."
        )
    try:
        names, rows = first_rows(connection, table, settings.sql_url, _MOST_ROWS)
    except SourceError as error:
        raise SpecError(str(error)) from error
    check_names(names)
    if not rows:
        raise SpecError(f"The table sql:{named} has no rows: there is nothing to learn from.")
    frame = pl.DataFrame(rows, schema=names, orient="row", infer_schema_length=None)
    more = len(rows) == _MOST_ROWS
    notes = (f"looked at the first {_MOST_ROWS:,} rows",) if more else ()
    source = {"kind": "sql", "connection": connection, "table": table}
    return Given(with_times(whole_or_not(frame)), source, notes=notes)
