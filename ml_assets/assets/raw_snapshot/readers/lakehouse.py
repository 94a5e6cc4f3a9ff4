"""Reads lakehouse tables, Delta Lake and Iceberg, at one version, which the receipt names.

Files without any row of a partition, by the table's own statistics, are not opened.
"""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import polars as pl

from ml_assets.assets.raw_snapshot.readers.arrived_files import (
    Key,
    Looked,
    look_in_turn,
    range_of,
    rows_receipt,
)
from ml_assets.assets.raw_snapshot.readers.look_cache import Seen
from ml_assets.assets.raw_snapshot.readers.parquet_format import frame_of
from ml_assets.assets.raw_snapshot.schema import Reading, check_names, from_typed
from ml_assets.errors import MlAssetsError, SourceError, counted, first_line, install, quoted
from ml_assets.spec.base import digest_of
from ml_assets.spec.partitions import PartitionWindow
from ml_assets.spec.paths import S3
from ml_assets.spec.sources import DeltaSource, IcebergSource, LakeSource

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.dataset as ds
    from pyiceberg.expressions import BooleanExpression
    from pyiceberg.table import DataScan
    from pyiceberg.types import NestedField


class LakeTable(Protocol):
    """A table at one of its versions."""

    @property
    def version(self) -> int: ...
    @property
    def columns(self) -> list[str]: ...

    def files(self, window: PartitionWindow | None) -> list[str]:
        """The files that may hold rows of the window; what is deleted from them is named, too."""
        ...

    def count(self, window: PartitionWindow | None) -> int: ...

    def count_unplaced(self) -> int:
        """Rows without a watermark."""
        ...

    def rows(self, window: PartitionWindow | None) -> "pa.Table":
        """The declared columns of the rows of the window."""
        ...


def read_lake(name: str, source: LakeSource, root: Path, window: PartitionWindow | None) -> Reading:
    """Read the rows whose watermark lies in ``[window.start, window.end)``, or the whole table.

    Raises:
        SourceError: the table cannot be read, or does not hold what is declared.
    """
    table, where = _open(name, source, root)
    title = f"{where} [{window.key}]" if window else where
    with _files_told(title, table):
        rows = table.rows(window)
    if not rows.num_rows:
        raise SourceError(
            f"{title} has no rows. A partition or table without rows is treated as a fault of its "
            "origin, not as data: load it, or ask for a partition that is there."
        )
    frame = from_typed(frame_of(rows), source.columns, title)
    return Reading(frame, _receipt(table, source, frame, window))


def look_at_lake(
    name: str,
    source: LakeSource,
    root: Path,
    partitions: Sequence[PartitionWindow] | None,
    seen: Seen | None,
    now: datetime,
) -> Looked:
    """Ask the table which files hold each partition; rows are read where these changed.

    Raises:
        SourceError: the table cannot be read, or has other columns than declared.
    """
    windows = [None] if partitions is None else partitions
    spans = {window.key if window else None: window for window in windows}
    table, where = _open(name, source, root)

    def read(key: Key) -> dict[str, Any]:
        return read_lake(name, source, root, spans[key]).receipt

    def stamp_of(key: Key) -> str | None:
        with _files_told(where, table):
            files = table.files(spans[key])
        there = key is None or bool(files and _has_rows(table, spans[key], where))
        return digest_of([*sorted(files)]) if there else None

    if seen is None:
        return Looked(tuple(key for key in spans if stamp_of(key)), {}, read)
    columns = [*source.columns.items(), source.watermark]
    places = {key: f"{where} {range_of(span)} {columns}" for key, span in spans.items()}
    return look_in_turn(places, stamp_of, read, seen, now)


def _open(name: str, source: LakeSource, root: Path) -> tuple[LakeTable, str]:
    """The table with the declared columns, every row of some partition; and how it is called."""
    if source.kind == "delta":
        table = DeltaLake(name, source, root)
        where = f"{name}: Delta table {source.path}"
    else:
        table = Iceberg(name, source)
        where = f"{name}: Iceberg table {source.table} of {source.catalog}"
    check_names(table.columns, source.columns, where)
    lost = 0
    if source.partitioned and not source.ignore_null_watermark:
        with _files_told(where, table):
            lost = table.count_unplaced()
    if lost:
        raise SourceError(
            f"{where}: {counted(lost, 'row')} without {source.watermark!r} would belong to no"
            " partition, and never be read. Fill the column in; or, to leave such rows out, set"
            " ignore_null_watermark: true for this source in defs.yaml."
        )
    return table, where


def _has_rows(table: LakeTable, window: PartitionWindow | None, where: str) -> bool:
    """Whether there are any; where a file cannot be read, reading it says why."""
    try:
        with _files_told(where, table):
            return table.count(window) > 0
    except SourceError:
        return True


@contextmanager
def _files_told(title: str, table: LakeTable) -> Iterator[None]:
    """Tell of a file that is gone or damaged, whatever the package that reads it raises.

    Raises:
        SourceError: there is one.
    """
    try:
        yield
    except MlAssetsError:
        raise
    except Exception as error:  # each store and format has errors of its own
        said = quoted(first_line(error))
        raise SourceError(
            f"{title}: a file of its version {table.version} cannot be read: {said}. Restore the"
            " file; if it was deleted with old versions (VACUUM), name another 'version' of this"
            " source in defs.yaml, or none."
        ) from error


def _receipt(
    table: LakeTable, source: LakeSource, frame: pl.DataFrame, window: PartitionWindow | None
) -> dict[str, Any]:
    rows = rows_receipt(frame, source.watermark, window)
    return {"kind": source.kind, **rows, "version": table.version}


class DeltaLake:
    """See ``LakeTable``.

    Raises:
        SourceError: deltalake is not installed, there is no such table or version, or it holds
            what cannot be read.
    """

    def __init__(self, name: str, source: DeltaSource, root: Path) -> None:
        try:
            from deltalake import DeltaTable
            from deltalake.exceptions import DeltaError
        except ImportError as error:
            raise SourceError(
                f"{name}: a Delta table is to be read, and deltalake is not installed here."
                f" Remedy: {install('delta')}."
            ) from error
        self._source = source
        place = source.path if source.path.startswith(S3) else str(root / source.path)
        try:
            table = DeltaTable(place, version=source.version, storage_options=_options(place))
            self.version = table.version()
            self._rows: ds.Dataset = table.to_pyarrow_dataset()
        except (DeltaError, OSError, ValueError) as error:
            if source.version is not None:
                with suppress(DeltaError, OSError, ValueError):
                    newest = DeltaTable(place, storage_options=_options(place)).version()
                    raise SourceError(
                        f"{name}: the Delta table {place} has no version {source.version} that can"
                        f" be read; its newest is {newest}. Correct 'version' of this source in"
                        " defs.yaml, or remove it to read the newest."
                    ) from error
            said = quoted(first_line(error))
            raise SourceError(
                f"{name}: the Delta table {place} cannot be read: {said}. Correct 'path' of this"
                " source in defs.yaml; a folder with _delta_log is expected there."
            ) from error

    @property
    def columns(self) -> list[str]:
        return list(self._rows.schema.names)

    def files(self, window: PartitionWindow | None) -> list[str]:
        return [found.path for found in self._rows.get_fragments(filter=self._within(window))]

    def count(self, window: PartitionWindow | None) -> int:
        return self._rows.count_rows(filter=self._within(window))

    def count_unplaced(self) -> int:
        return self._rows.count_rows(filter=self._watermark.is_null())

    def rows(self, window: PartitionWindow | None) -> "pa.Table":
        return self._rows.to_table(columns=list(self._source.columns), filter=self._within(window))

    @cached_property
    def _watermark(self) -> "ds.Expression":
        import pyarrow.dataset as ds

        return ds.field(str(self._source.watermark))

    def _within(self, window: PartitionWindow | None) -> "ds.Expression | None":
        import pyarrow as pa

        if window is None:
            return None
        kind: Any = self._rows.schema.field(str(self._source.watermark)).type
        if not pa.types.is_timestamp(kind):
            raise SourceError(
                f"The watermark {self._source.watermark!r} of the Delta table {self._source.path}"
                f" is {kind}; a range needs a timestamp. Name another one in defs.yaml."
            )
        first, last = (
            pa.scalar(at, pa.timestamp("us", "UTC")) for at in (window.start, window.end)
        )
        first, last = (at.cast(pa.timestamp("us", kind.tz)) for at in (first, last))
        return (self._watermark >= first) & (self._watermark < last)


def _options(place: str) -> dict[str, str] | None:
    """The options of a store that is no AWS, which may have no certificate; else None."""
    if not place.startswith(S3):
        return None
    of_s3 = os.environ.get("AWS_ENDPOINT_URL_S3")
    endpoint = of_s3 or os.environ.get("AWS_ENDPOINT_URL", "")
    return {"AWS_ALLOW_HTTP": "true"} if endpoint.startswith("http://") else None


class Iceberg:
    """See ``LakeTable``.

    Raises:
        SourceError: pyiceberg is not installed, the catalog does not answer, or there is no such
            table or snapshot.
    """

    def __init__(self, name: str, source: IcebergSource) -> None:
        try:
            from pyiceberg.catalog import load_catalog
            from pyiceberg.utils.config import Config
        except ImportError as error:
            raise SourceError(
                f"{name}: an Iceberg table is to be read, and pyiceberg is not installed here."
                f" Remedy: {install('iceberg')}."
            ) from error
        self._source = source
        settings = f"PYICEBERG_CATALOG__{source.catalog.upper()}__URI"
        try:
            known: Any = Config().get_catalog_config(source.catalog) or {}
            self._table = load_catalog(source.catalog, **known).load_table(source.table)
        except (
            Exception
        ) as error:  # each catalog has errors of its own, and a URI may hold a secret
            raise SourceError(
                f"{name}: the Iceberg table {source.table} of the catalog {source.catalog} cannot"
                f" be opened ({type(error).__name__}). Check {settings} and its neighbours, that"
                " the catalog answers, and 'table' of this source in defs.yaml."
            ) from None
        current = self._table.current_snapshot()
        number = source.version if source.version is not None else current and current.snapshot_id
        if number is None or self._table.snapshot_by_id(number) is None:
            raise SourceError(
                f"{name}: the Iceberg table {source.table} has no snapshot"
                f" {'yet' if number is None else number}. Load it, or correct 'version' of this"
                " source in defs.yaml."
            )
        self.version = number

    @property
    def columns(self) -> list[str]:
        return [field.name for field in self._scan(None).projection().fields]

    def files(self, window: PartitionWindow | None) -> list[str]:
        found = list[str]()
        for task in self._scan(window).plan_files():
            found += [task.file.file_path, *(file.file_path for file in task.delete_files)]
        return found

    def count(self, window: PartitionWindow | None) -> int:
        return self._scan(window).count()

    def count_unplaced(self) -> int:
        from pyiceberg.expressions import IsNull

        unplaced = IsNull(self._watermark.name)  # pyright: ignore[reportCallIssue]  pydantic's own
        return self._scan(None, unplaced).count()

    def rows(self, window: PartitionWindow | None) -> "pa.Table":
        return self._scan(window).select(*self._source.columns).to_arrow()

    def _scan(
        self, window: PartitionWindow | None, where: "BooleanExpression | None" = None
    ) -> "DataScan":
        from pyiceberg.exceptions import ValidationError
        from pyiceberg.expressions import AlwaysTrue

        rows = where or (AlwaysTrue() if window is None else self._within(window))
        try:
            return self._table.scan(row_filter=rows, snapshot_id=self.version)
        except (ValidationError, ValueError) as error:
            raise SourceError(
                f"The Iceberg table {self._source.table} cannot be scanned: {quoted(str(error))}"
            ) from error

    @cached_property
    def _watermark(self) -> "NestedField":
        """As the table has it now: pyiceberg filters each version by the names of today."""
        name = str(self._source.watermark)
        number = self._scan(None).projection().find_field(name).field_id
        if self._table.schema().find_column_name(number) is None:
            raise SourceError(
                f"The watermark {name!r} of the Iceberg table {self._source.table} was removed"
                f" after its version {self.version}: a range of it cannot be read. Name another"
                " watermark or a later version in defs.yaml."
            )
        return self._table.schema().find_field(number)

    def _within(self, window: PartitionWindow) -> "BooleanExpression":
        from pyiceberg.expressions import And, GreaterThanOrEqual, LessThan
        from pyiceberg.types import TimestampType, TimestamptzType

        name, kind = self._watermark.name, self._watermark.field_type
        if not isinstance(kind, TimestampType | TimestamptzType):
            raise SourceError(
                f"The watermark {name!r} of the Iceberg table {self._source.table} is {kind}; a"
                " range needs a timestamp. Name another one in defs.yaml."
            )
        ends = (window.start, window.end)
        if isinstance(kind, TimestampType):  # holds UTC
            ends = tuple(at.replace(tzinfo=None) for at in ends)
        first, last = (at.isoformat() for at in ends)
        after = GreaterThanOrEqual(name, first)  # pyright: ignore[reportCallIssue]
        before = LessThan(name, last)  # pyright: ignore[reportCallIssue]
        return And(after, before)
