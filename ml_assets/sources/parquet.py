"""Parquet: what its footer claims is held against bounds before a row is read."""

import io

import polars as pl

from ml_assets.errors import SourceError
from ml_assets.sources.places import MOST_BYTES
from ml_assets.sources.schema import Columns, check_names, from_typed
from ml_assets.sources.unpack import allowed

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
    names = _claims(content, where, allowed(len(content), _ALLOWED, most))
    check_names(names, declared, where)
    try:
        frame = pl.read_parquet(io.BytesIO(content), columns=list(declared))
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException, OSError) as error:
        raise _not_whole(where, error) from error
    return from_typed(frame, declared, where)


def _claims(content: bytes, where: str, bound: int) -> list[str]:
    """The names of the columns, once what the footer claims is known to be bearable."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        footer = pq.read_metadata(pa.BufferReader(content))
        names = list(footer.schema.to_arrow_schema().names)
        groups = [footer.row_group(number) for number in range(footer.num_row_groups)]
        size = sum(group.total_byte_size for group in groups)
    except (pa.ArrowException, OSError, ValueError, OverflowError) as error:
        raise _not_whole(where, error) from error
    cells = footer.num_rows * len(names) * _CELL
    if max(size, cells) > bound:
        raise SourceError(
            f"{where}: {len(content):,} bytes of Parquet unpack to {max(size, cells):,} bytes"
            f" ({footer.num_rows:,} rows); at most {bound:,} are read at once. Write smaller"
            " partitions."
        )
    return names


def _not_whole(where: str, error: BaseException) -> SourceError:
    said = (str(error).splitlines() or [type(error).__name__])[0]
    return SourceError(f"{where} is not a whole Parquet file: {said}. Deliver it again.")
