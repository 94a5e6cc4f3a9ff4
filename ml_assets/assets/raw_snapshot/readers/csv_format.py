"""CSV: text, a header, and as many fields in each line."""

import csv
import io
from collections.abc import Iterator, Sequence

import polars as pl

from ml_assets.assets.raw_snapshot.readers.places import MOST_BYTES
from ml_assets.assets.raw_snapshot.schema import Columns, Place, check_names, type_text
from ml_assets.assets.raw_snapshot.text_values import PLAINLY, TextFormat
from ml_assets.errors import SourceError, counted, quoted
from ml_assets.spec.sources import COMMAS, Dialect

csv.field_size_limit(MOST_BYTES)  # of this process: a field may be as long as a file
_HEADER_MOST = 1 << 20
"""Signs: a longer header is no header."""


def parse_csv(
    content: bytes,
    declared: Columns,
    null_values: Sequence[str],
    where: str,
    dialect: Dialect = COMMAS,
    written: TextFormat = PLAINLY,
) -> pl.DataFrame:
    """Parse and type a CSV file. Blank lines are skipped.

    Raises:
        SourceError: it is not CSV so written, or does not hold what is declared; names the line.
    """
    text = decode(content, where, dialect)
    header = csv_header(text, where, dialect)
    check_names(header, declared, where)
    raw = csv_cells(text, null_values, where, dialect)
    raw.columns = header
    place: Place = lambda row: f"line {line_of(text, row, dialect)}"  # noqa: E731
    typed = type_text(raw, declared, written).required(where, place)
    return typed.filter(~pl.all_horizontal(pl.all().is_null())) if raw.width > 1 else typed


def csv_header(text: str, where: str, dialect: Dialect) -> list[str]:
    """The column names of a CSV file, as they are: one may be there twice.

    Raises:
        SourceError: it has no header of a sensible size.
    """
    if not text.strip():
        raise SourceError(
            f"{where} is empty: the names of the columns are expected in the first line."
        )
    begin = text[:_HEADER_MOST]
    try:
        header = next(csv.reader(io.StringIO(begin, newline=""), delimiter=dialect.separator), [])
    except csv.Error as error:
        raise SourceError(
            f"{where} has no CSV header: {quoted(error)}. The names of the columns are expected in"
            " the first line."
        ) from error
    if len(text) > len(begin) and "\n" not in begin and "\r" not in begin:
        raise SourceError(
            f"{where}: the first line has more than {_HEADER_MOST:,} characters. The names of the"
            " columns are expected there."
        )
    return header


def csv_cells(text: str, null_values: Sequence[str], where: str, dialect: Dialect) -> pl.DataFrame:
    """The cells of a CSV file as strings.

    Raises:
        SourceError: it is not CSV, or a line has too few or too many fields.
    """
    width = len(csv_header(text, where, dialect))
    # polars takes a quote that is open where the text ends for the end of a field
    whole = text if text.endswith(("\n", "\r")) else f"{text}\n"
    try:
        raw = pl.read_csv(
            io.BytesIO(whole.encode()),
            infer_schema=False,
            null_values=list(null_values),
            separator=dialect.separator,
        )
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException) as error:
        _check_widths(text, width, where, dialect)
        said = quoted((str(error).splitlines() or ["it cannot be parsed"])[0])
        raise SourceError(f"{where} is not CSV: {said}. Look for an unclosed quote.") from error
    if raw.width != width:
        _check_widths(text, width, where, dialect)
        raise SourceError(
            f"{where} is not CSV: its header has {width} fields, its lines have {raw.width}. Look"
            " for an unclosed quote."
        )
    if raw.width and raw[:, -1].null_count():
        _check_widths(text, width, where, dialect)
    return raw


def decode(content: bytes, where: str, dialect: Dialect = COMMAS) -> str:
    """A file's text.

    Raises:
        SourceError: it is in another encoding; names the line.
    """
    encoding = dialect.encoding
    try:
        return content.decode("utf-8-sig" if encoding == "utf-8" else encoding)
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise SourceError(
            f"{where}, line {line}: byte 0x{content[error.start]:02x} is not {encoding.upper()}."
            " Write the file in UTF-8, or state its encoding in 'dialect' of its source, such as"
            " dialect: {encoding: cp1252}."
        ) from error


def line_of(text: str, row: int, dialect: Dialect = COMMAS) -> int:
    """The line of the file that a row begins on."""
    try:
        lines = (line for number, (line, _) in enumerate(_records(text, dialect)) if number == row)
        return next(lines, row + 2)
    except csv.Error:  # a field beyond the reader's limit: one line a row is the best guess
        return row + 2


def _records(text: str, dialect: Dialect) -> Iterator[tuple[int, list[str]]]:
    """Each record after the header and the line it begins on: a quoted field may hold newlines."""
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=dialect.separator)
    begins = 1
    for number, record in enumerate(reader):
        if number:
            yield begins, record
        begins = reader.line_num + 1


def _check_widths(text: str, width: int, where: str, dialect: Dialect) -> None:
    """Refuse a line with too few or too many fields: half a file must not pass for nulls."""
    try:
        for line, record in _records(text, dialect):
            if record and len(record) != width:
                raise SourceError(
                    f"{where}, line {line}: {counted(len(record), 'field')}, but the header has"
                    f" {width}. Was the file cut off, or does a field hold an unquoted"
                    f" {_sign(dialect)}? Deliver the complete file again."
                )
    except csv.Error as error:
        said = f"{where} is not CSV: {quoted(error)}. Look for an unclosed quote."
        raise SourceError(said) from error


def _sign(dialect: Dialect) -> str:
    return "comma" if dialect.separator == "," else repr(dialect.separator)
