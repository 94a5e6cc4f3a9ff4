"""Parquet: what its footer claims is held against bounds before a row is read.

Read by Arrow, which is made to be given broken files; Polars' own reader can end the process.
"""

from typing import TYPE_CHECKING

import polars as pl

from ml_assets.errors import SourceError
from ml_assets.sources.places import MOST_BYTES
from ml_assets.sources.schema import Columns, check_names, from_typed
from ml_assets.sources.unpack import allowed

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq

_ARROW_ERRORS = (OSError, ValueError, OverflowError, pl.exceptions.PanicException)
_ALLOWED = 1 << 30
"""Bytes that any file may unpack to: a column of one value takes next to nothing."""
_CELL = 8
"""Bytes of a value in memory, about."""


def parse_parquet(
    content: bytes, declared: Columns, where: str, most: int = MOST_BYTES
) -> pl.DataFrame:
    """Read and type a Parquet file.

    Raises:
        SourceError: it is cut off or damaged, unpacks to too much, or does not hold what is
            declared.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        file = pq.ParquetFile(pa.BufferReader(content))
        names = list(file.schema_arrow.names)
        _check_claims(file.metadata, len(content), where, allowed(len(content), _ALLOWED, most))
        check_names(names, declared, where)
        table = file.read(columns=list(declared), use_threads=False)
        table.validate(full=True)  # text is UTF-8, and no index leads out
        frame = pl.DataFrame(pl.from_arrow(table.cast(_in_utc(table.schema))))
    except (*_ARROW_ERRORS, pa.ArrowException, pl.exceptions.PolarsError) as error:
        said = (str(error).splitlines() or [type(error).__name__])[0]
        raise SourceError(
            f"{where} is not a whole Parquet file: {said}. Deliver it again."
        ) from error
    return from_typed(frame, declared, where)


def _check_claims(footer: "pq.FileMetaData", packed: int, where: str, bound: int) -> None:
    """Refuse what would not fit into memory, by what the footer says of it."""
    groups = [footer.row_group(number) for number in range(footer.num_row_groups)]
    cells = footer.num_rows * footer.num_columns * _CELL
    size = max(cells, sum(group.total_byte_size for group in groups))
    if size > bound:
        raise SourceError(
            f"{where}: {packed:,} bytes of Parquet unpack to {size:,} bytes"
            f" ({footer.num_rows:,} rows); at most {bound:,} are read at once. Write smaller"
            " partitions."
        )


def _in_utc(schema: "pa.Schema") -> "pa.Schema":
    """The same instants: polars knows no zone that is but an offset."""
    import pyarrow as pa

    zoned = [
        field.with_type(pa.timestamp(field.type.unit, "UTC"))
        if pa.types.is_timestamp(field.type) and field.type.tz is not None
        else field
        for field in schema
    ]
    return pa.schema(zoned)
