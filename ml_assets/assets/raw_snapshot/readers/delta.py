"""A Delta Lake table at a version, through ``deltalake``; on S3 by the AWS_ variables."""

import os
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ml_assets.errors import SourceError, quoted
from ml_assets.spec.partitions import PartitionWindow
from ml_assets.spec.paths import S3
from ml_assets.spec.sources import DeltaSource

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.dataset as ds

INSTALL_DELTA = (
    "pip install -c requirements.lock -e '.[delta]' in the project's folder, or"
    " pip install 'ml_assets[delta]'"
)


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
                f" Remedy: {INSTALL_DELTA}."
            ) from error
        self._source = source
        place = source.path if source.path.startswith(S3) else str(root / source.path)
        try:
            table = DeltaTable(place, version=source.version, storage_options=_options(place))
            self.version = table.version()
            self._rows: ds.Dataset = table.to_pyarrow_dataset()
        except (DeltaError, OSError, ValueError) as error:
            said = quoted((str(error).splitlines() or [type(error).__name__])[0])
            at = "" if source.version is None else f" at version {source.version}"
            raise SourceError(
                f"{name}: the Delta table {place} cannot be read{at}: {said}. Correct 'path' or"
                " 'version' of this source in defs.yaml; a folder with _delta_log is expected"
                " there."
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
    """Of a store that is no AWS: it may have no certificate."""
    if not place.startswith(S3):
        return None
    endpoint = os.environ.get("AWS_ENDPOINT_URL", "")
    return {"AWS_ALLOW_HTTP": "true"} if endpoint.startswith("http://") else None
