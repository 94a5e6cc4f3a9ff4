"""An Iceberg table at a snapshot, through ``pyiceberg`` and the catalog that its settings name."""

from typing import TYPE_CHECKING, Any

from ml_assets.errors import SourceError, quoted
from ml_assets.spec.partitions import PartitionWindow
from ml_assets.spec.sources import IcebergSource

if TYPE_CHECKING:
    import pyarrow as pa
    from pyiceberg.expressions import BooleanExpression
    from pyiceberg.table import DataScan

INSTALL_ICEBERG = (
    "pip install -c requirements.lock -e '.[iceberg]' in the project's folder, or"
    " pip install 'ml_assets[iceberg]'"
)


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
                f" Remedy: {INSTALL_ICEBERG}."
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

        unplaced = IsNull(str(self._source.watermark))  # pyright: ignore[reportCallIssue]  pydantic's own
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

    def _within(self, window: PartitionWindow) -> "BooleanExpression":
        from pyiceberg.expressions import And, GreaterThanOrEqual, LessThan
        from pyiceberg.types import TimestampType, TimestamptzType

        name = str(self._source.watermark)
        kind = self._table.schema().find_field(name).field_type
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
