"""Reads Parquet, after checking the footer's claims against bounds.

Arrow reads it, because it is made for broken files; Polars' own reader can end the process.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import polars as pl

from ml_assets.assets.raw_snapshot.readers.places import allowed
from ml_assets.assets.raw_snapshot.schema import Columns, check_names, from_typed
from ml_assets.errors import SourceError, counted, first_line, quoted

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq

_ARROW_ERRORS = (OSError, ValueError, OverflowError, pl.exceptions.PanicException)
_ALLOWED = 1 << 30
"""Bytes that any file may unpack to: a column of one value takes next to nothing."""
_CELL = 8
"""Bytes of a value in memory, about."""


def parse_parquet(content: bytes, declared: Columns, where: str) -> pl.DataFrame:
    """Read and type a Parquet file.

    Raises:
        SourceError: it is cut off or damaged, unpacks to too much, or does not hold what is
            declared.
    """
    return from_typed(read_parquet(content, where, declared), declared, where)


def read_parquet(content: bytes, where: str, declared: Columns | None = None) -> pl.DataFrame:
    """Read a Parquet file within bounds: the declared columns; None: all, as they are typed.

    Raises:
        SourceError: as above; of all columns, one holds something else than plain values.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        file = pq.ParquetFile(pa.BufferReader(content))
        bound = allowed(len(content), _ALLOWED)
        _check_claims(file.metadata, len(content), where, bound)
        names = list(file.schema_arrow.names)
        if declared is None:
            _check_plain(file.schema_arrow, where)
        else:
            check_names(names, declared, where)
            from_typed(frame_of(file.schema_arrow.empty_table()), declared, where)  # no row yet
            names = list(declared)
        text = [column for column in _texts(file) if column in names]
        file = pq.ParquetFile(pa.BufferReader(content), read_dictionary=text)
        table = file.read(columns=names, use_threads=False)
        table.validate(full=True)  # text is UTF-8, and no index leads out
        _check_text(table, len(content), where, bound)
        return frame_of(table)
    except (*_ARROW_ERRORS, pa.ArrowException, pl.exceptions.PolarsError) as error:
        said = quoted(first_line(error))
        raise SourceError(
            f"{where} is not a complete Parquet file: {said}. Deliver it again."
        ) from error


def _check_plain(schema: "pa.Schema", where: str) -> None:
    """Refuse columns that are no values, or whose values may have any length and are no text."""
    import pyarrow as pa

    for field in schema:
        kind = field.type.value_type if pa.types.is_dictionary(field.type) else field.type
        text = pa.types.is_string(kind) or pa.types.is_large_string(kind)
        plain = (pa.types.is_primitive, pa.types.is_decimal, pa.types.is_null)
        if not text and not any(is_one(kind) for is_one in plain):
            raise SourceError(
                f"{where}: column {field.name!r} holds {quoted(kind)}; numbers, text, dates and"
                " times are read. Leave it out."
            )


def _check_claims(footer: "pq.FileMetaData", packed: int, where: str, bound: int) -> None:
    """Refuse what would not fit into memory, by what the footer says of it."""
    groups = [footer.row_group(number) for number in range(footer.num_row_groups)]
    cells = footer.num_rows * footer.num_columns * _CELL
    size = max(cells, sum(group.total_byte_size for group in groups))
    if size > bound:
        raise SourceError(
            f"{where}: {packed:,} bytes of Parquet unpack to {size:,} bytes"
            f" ({counted(footer.num_rows, 'row')}); at most {bound:,} are read at once. Write"
            " smaller partitions."
        )


def _texts(file: "pq.ParquetFile") -> Iterator[str]:
    """The columns whose values have any length: a file may hold one once, for a million rows."""
    for number in range(len(file.schema)):
        column = file.schema.column(number)
        if column.physical_type == "BYTE_ARRAY":
            yield column.path


def _check_text(table: "pa.Table", packed: int, where: str, bound: int) -> None:
    """Refuse text that repeats beyond every measure; the footer does not say how long it is."""
    import pyarrow as pa
    import pyarrow.compute as pc

    size = 0
    for column in table.columns:
        for chunk in column.chunks if pa.types.is_dictionary(column.type) else []:
            lengths = pc.call_function("binary_length", [chunk.dictionary])
            each = pc.call_function("take", [lengths, chunk.indices])
            size += pc.call_function("sum", [each.cast(pa.int64())]).as_py() or 0
    if size > bound:
        raise SourceError(
            f"{where}: {packed:,} bytes of Parquet hold text that unpacks to {size:,} bytes; at"
            f" most {bound:,} are read at once. Write smaller partitions."
        )


def frame_of(table: "pa.Table") -> pl.DataFrame:
    """An Arrow table as polars has it."""
    return pl.DataFrame(pl.from_arrow(table.cast(_as_polars_knows(table.schema))))


def _as_polars_knows(schema: "pa.Schema") -> "pa.Schema":
    """The same values: instants in UTC, for polars knows no zone that is but an offset; text."""
    import pyarrow as pa

    def known(kind: "pa.DataType") -> "pa.DataType":
        if pa.types.is_timestamp(kind) and kind.tz is not None:
            return pa.timestamp(kind.unit, "UTC")
        if pa.types.is_dictionary(kind) and (
            pa.types.is_string(kind.value_type) or pa.types.is_large_string(kind.value_type)
        ):
            return pa.large_string()
        return kind

    return pa.schema([field.with_type(known(field.type)) for field in schema])
