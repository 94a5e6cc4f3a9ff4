"""The formats of files: the bytes of one become a table by the parser of its format."""

import polars as pl

from ml_assets.assets.raw_snapshot.readers.csv_text import parse_csv
from ml_assets.assets.raw_snapshot.readers.json_lines import parse_lines
from ml_assets.assets.raw_snapshot.readers.parquet import parse_parquet
from ml_assets.assets.raw_snapshot.readers.places import unpacked
from ml_assets.assets.raw_snapshot.text_values import TextFormat
from ml_assets.errors import SourceError
from ml_assets.spec.sources import EventsSource, FilesSource

PathSource = FilesSource | EventsSource
EMPTY = (
    "A partition or table without rows is treated as a fault of its origin, not as data: deliver "
    "the file again."
)


def parse_file(source: PathSource, path: str, raw: bytes, where: str) -> pl.DataFrame:
    """Parse the bytes of one file, unpacked if its name says so, into the declared columns.

    Args:
        where: the source and the file, as messages begin.

    Raises:
        SourceError: the file is empty, or does not hold what is declared.
    """
    if not raw.strip():
        raise SourceError(f"{where} is empty ({len(raw)} bytes). {EMPTY}")
    if isinstance(source, FilesSource) and source.format == "parquet":
        return parse_parquet(raw, source.columns, where)
    text = unpacked(raw, path, where)
    if isinstance(source, EventsSource):
        columns = dict(source.columns)
        if source.offset:
            columns[source.offset] = "int64"
        return parse_lines(text, columns, where)
    if source.format == "jsonl":
        return parse_lines(text, source.columns, where)
    nulls, written = source.null_values, TextFormat.of(source)
    return parse_csv(text, source.columns, nulls, where, source.dialect, written)
