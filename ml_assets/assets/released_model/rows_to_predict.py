"""Parses and types rows to predict, and reports every mistake at once.

The format (Parquet, JSON, CSV) is recognized from the content itself.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import polars as pl

from ml_assets.assets.raw_snapshot.python_values import JSON_VALUES
from ml_assets.assets.raw_snapshot.readers.csv_format import csv_cells, csv_header, decode, line_of
from ml_assets.assets.raw_snapshot.readers.parquet_format import read_parquet
from ml_assets.assets.raw_snapshot.schema import (
    TYPES,
    Columns,
    listed,
    name_problems,
    type_text,
    type_typed,
    type_values,
)
from ml_assets.assets.raw_snapshot.text_values import TextFormat
from ml_assets.errors import RowsRefused, SourceError, quoted
from ml_assets.spec.documents import DocumentError, RepeatedKey, read_json
from ml_assets.spec.features import SubjectSpec
from ml_assets.spec.pipeline import PipelineSpec
from ml_assets.spec.sources import COMMAS, FilesSource

Cells = pl.DataFrame | Mapping[str, Sequence[object]]


@dataclass(frozen=True)
class RowsAsSent:
    """Rows as they came: named columns, not typed yet."""

    where: str
    names: tuple[str, ...]
    """The column names as they are: one may be there twice."""
    cells: Cells
    """Strings (CSV), typed columns (Parquet, a frame), or Python values (JSON)."""
    kind: Literal["csv", "typed", "json"]
    text: str = ""
    """CSV: the file, to find lines in."""
    source: FilesSource | None = None
    """CSV: the source whose files are written as it is."""

    def __len__(self) -> int:
        if isinstance(self.cells, pl.DataFrame):
            return len(self.cells)
        return max((len(values) for values in self.cells.values()), default=0)

    def at(self, row: int) -> str:
        """Return where a person finds a row."""
        if self.kind != "csv":
            return f"row {row + 1}"
        return f"line {line_of(self.text, row, self.source.dialect if self.source else COMMAS)}"

    def typed(self, declared: Columns) -> tuple[pl.DataFrame, list[str]]:
        """The declared columns that are there, typed; a sentence for each value that is not."""
        there: Columns = {n: dtype for n, dtype in declared.items() if n in self.names}
        if not isinstance(self.cells, pl.DataFrame):
            typed = type_values(self.cells, there, JSON_VALUES)
        elif self.kind == "typed":
            return type_typed(self.cells, there)
        elif self.source is None:
            typed = type_text(self.cells, there)
        else:
            typed = type_text(self.cells, there, TextFormat.of(self.source))
        return typed.frame, typed.problems(self.at)

    def with_numbers(self, flags: Collection[str]) -> "RowsAsSent":
        """The same rows with 1 and 0 for true and false in the columns that are flags."""
        there = [name for name in dict.fromkeys(self.names) if name in flags]
        if not there:
            return self
        if not isinstance(self.cells, pl.DataFrame):
            changed = {name: numbers_of(self.cells[name]) for name in there}
            return replace(self, cells={**self.cells, **changed})
        if self.kind == "csv":
            words = pl.col(there).str.to_lowercase().replace({"true": "1", "false": "0"})
            return replace(self, cells=self.cells.with_columns(words))
        true_or_false = [name for name in there if self.cells.schema[name] == pl.Boolean]
        return replace(self, cells=self.cells.cast(dict.fromkeys(true_or_false, pl.Float64)))

    def as_they_are(self, names: Iterable[str]) -> pl.DataFrame:
        """Columns that are only carried along."""
        chosen = [name for name in dict.fromkeys(names) if name in self.names]
        if isinstance(self.cells, pl.DataFrame):
            return self.cells.select(chosen)
        return pl.DataFrame({name: self.cells[name] for name in chosen}, strict=False)


def numbers_of(values: Sequence[object]) -> list[object]:
    """Values of a column of JSON, with 1 and 0 for true and false."""
    return [int(value) if isinstance(value, bool) else value for value in values]


def parse_rows(content: bytes, where: str, source: FilesSource | None = None) -> RowsAsSent:
    """Parquet, CSV, JSON lines, a JSON array of objects, or one JSON object.

    Args:
        source: whose files a CSV is written as: its separator, texts that mean "no value", zone.

    Raises:
        RowsRefused: it is none of them, or holds no row.
    """
    if not content.strip():
        raise RowsRefused(f"{where} is empty: give at least one row. {_KINDS}")
    try:
        if content[:4] == b"PAR1":
            rows = of_frame(read_parquet(content, where), where)
        elif content.lstrip()[:1] in (b"{", b"["):
            rows = _of_json(decode(content, where), where)
        else:
            dialect = source.dialect if source else COMMAS
            text = decode(content, where, dialect)
            names = tuple(csv_header(text, where, dialect))
            cells = csv_cells(text, source.null_values if source else ("",), where, dialect)
            rows = RowsAsSent(where, names, cells, "csv", text, source)
    except (SourceError, pl.exceptions.PolarsError) as error:
        raise RowsRefused(f"{where} cannot be read: {error} {_KINDS}") from error
    if not len(rows):
        raise RowsRefused(f"{where} has columns but no rows: give at least one row.")
    return rows


def of_frame(frame: pl.DataFrame, where: str = "the frame") -> RowsAsSent:
    """The rows of a polars frame."""
    return RowsAsSent(where, tuple(frame.columns), frame, "typed")


def check_rows(
    rows: RowsAsSent,
    declared: Columns,
    optional: Columns,
    taken_for: str,
    remedies: Sequence[str] = (),
    *,
    always: bool = False,
) -> pl.DataFrame:
    """The declared columns, typed; optional ones that are not there are null.

    Args:
        remedies: sentences below the mistakes, where a column's name is not right.
        always: they are told of values that are not right, too.

    Raises:
        RowsRefused: lists every missing, unknown and mistyped column, and each one's first row.
    """
    there: Columns = {n: dtype for n, dtype in optional.items() if n in rows.names}
    wanted: Columns = {**declared, **there}
    frame, mistyped = rows.typed(wanted)
    misnamed = name_problems(rows.names, wanted)
    if misnamed or mistyped:
        refuse(
            rows.where, taken_for, [*misnamed, *mistyped], remedies if misnamed or always else ()
        )
    absent = [pl.lit(None, TYPES[t]).alias(n) for n, t in optional.items() if n not in there]
    return frame.with_columns(absent)


def check_keys(rows: RowsAsSent, frame: pl.DataFrame, key: Sequence[str], taken_for: str) -> None:
    """Every row has a key, and no two have the same.

    Raises:
        RowsRefused: names the rows.
    """
    numbered = frame.with_row_index("__row")
    lost = numbered.filter(pl.any_horizontal(pl.col(*key).is_null()))["__row"]
    twice = numbered.filter(pl.struct(key).is_duplicated())["__row"]
    shown = f"the key ({', '.join(key)})"
    problems = [f"{rows.at(row)}: {shown} has no value" for row in lost[:5]]
    if len(twice):
        places = ", ".join(rows.at(row) for row in twice[:5])
        problems.append(f"{shown} is there more than once: {places}")
    if problems:
        refuse(rows.where, taken_for, problems)


def refuse(
    where: str, taken_for: str, problems: Sequence[str], remedies: Sequence[str] = ()
) -> None:
    """Raise the one error that lists every mistake."""
    told = f"{where}, read as {taken_for}, cannot be predicted:{listed(problems)}"
    raise RowsRefused("\n".join([told, *remedies]))


def why_needed(names: Sequence[str], spec: PipelineSpec, subject: SubjectSpec) -> list[str]:
    """What missing columns of the subject's source are for, and which of them a row may lack."""
    features = spec.features
    uses = [
        (features.key, "tells the rows apart (features.key): give each row its own value"),
        ((features.decision_at,), "is the time of the decision (features.decision_at)"),
        ((subject.time,), "says which partition a row is in (features.subject.time)"),
    ]
    told = [f"{name!r} {use}." for name in names for columns, use in uses if name in columns]
    used = {*features.columns, *(name for columns, _ in uses for name in columns)}
    others = [name for name in names if name not in used]
    if others and spec.label.column not in spec.sources[subject.source].columns:
        named = " or ".join(map(repr, others))
        told.append(f"If only the label needs {named}, {LATER.format(subject.source)}")
    return told


LATER = "list the column under after_event of the source {!r}: rows may then lack it."
_KINDS = "Parquet, CSV with a header, JSON lines, or one row as a JSON object can be read."


def _of_json(text: str, where: str) -> RowsAsSent:
    objects = _objects(text, where)
    names = tuple(dict.fromkeys(name for one in objects for name in one))
    cells = {name: [one.get(name) for one in objects] for name in names}
    return RowsAsSent(where, names, cells, "json")


def _objects(text: str, where: str) -> list[dict[str, Any]]:
    try:
        document = read_json(text)
    except RepeatedKey as error:
        raise SourceError(f"{error}.") from error
    except DocumentError:
        document = [_line(line, n, where) for n, line in _lines(text)]
    objects = document if isinstance(document, list) else [document]
    for number, found in enumerate(objects, 1):
        if not isinstance(found, dict):
            kind = type(found).__name__
            raise SourceError(f"its row {number} is a {kind}, where an object is expected.")
    return objects


def _lines(text: str) -> list[tuple[int, str]]:
    # not splitlines: a JSON string may hold U+2028 and others at which that cuts
    return [(n, line) for n, line in enumerate(text.split("\n"), 1) if line.strip()]


def _line(line: str, number: int, where: str) -> Any:
    try:
        return read_json(line)
    except DocumentError as error:
        raise SourceError(
            f"its line {number} is not JSON ({error.rule}): {quoted(repr(line[:60]))}."
        ) from error
