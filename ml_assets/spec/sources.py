"""Where a pipeline's tables come from, and the schema and contract each must meet."""

from pathlib import PurePosixPath
from typing import Annotated, Literal, Self, TypeVar

from pydantic import Field, StringConstraints, field_validator, model_validator

from ml_assets.spec.base import Frozen, Name, unset
from ml_assets.spec.bounds import FreshnessSpec, VolumeSpec

DType = Literal["int64", "float64", "string", "boolean", "date", "datetime"]
"""``datetime`` is UTC with microseconds: a table never holds a naive time."""

PARTITION_FIELD = "{partition}"


class _Source(Frozen):
    columns: dict[str, DType] = Field(min_length=1)
    """Column name -> type. The declared schema, complete: an unknown column is an error."""
    key: tuple[str, ...] = Field(strict=False, min_length=1)
    """Columns that identify a row; tables are sorted by it."""
    contract: str
    """Great Expectations suite (JSON), relative to the pipeline's folder."""
    partitioned: bool = True
    """False: one table, read whole at every run (a reference table)."""
    known_at: str | None = None
    """Column that tells when a row became known; None: known from the start."""
    after_event: tuple[str, ...] = Field(default=(), strict=False, exclude_if=unset)
    """Columns that are filled in only after the event that a row is about: no feature may read
    them, of this row or of another one."""
    volume: VolumeSpec | None = None
    """A bound on the change from one partition to the next; None: any number of rows."""
    freshness: FreshnessSpec | None = Field(default=None, exclude_if=unset)
    """A bound on the age of the newest row; None: of any age."""

    @model_validator(mode="after")
    def _columns_exist(self) -> Self:
        named = [*self.key, *([self.known_at] if self.known_at else []), *self.after_event]
        missing = [column for column in named if column not in self.columns]
        if missing:
            raise ValueError(f"columns {missing} are named here but not declared in 'columns'")
        early = sorted({*self.key, self.known_at}.intersection(self.after_event))
        if early:
            raise ValueError(f"after_event {early} tells the rows apart, or when they are known")
        if self.volume and not self.partitioned:
            raise ValueError("volume compares partitions, but partitioned is false: remove it")
        if self.freshness and self.columns.get(self.time_column or "") != "datetime":
            raise ValueError(
                f"freshness is judged by {self.time_column!r}, which is no declared datetime"
                " column: set freshness.column, known_at or (of SQL) watermark"
            )
        return self

    @property
    def time_column(self) -> str | None:
        """The column that says how recent a row is."""
        declared = self.freshness.column if self.freshness else None
        return declared or self.known_at or getattr(self, "watermark", None)

    @field_validator("contract")
    @classmethod
    def _contract_is_inside(cls, value: str) -> str:
        return inside(value)


class FilesSource(_Source):
    """Files of one format: one a partition (``landing/flights/{partition}.csv``), or one in all."""

    kind: Literal["files"]
    path: str
    format: Literal["csv", "parquet", "jsonl"]
    null_values: tuple[str, ...] = Field(default=("",), strict=False)
    """Text that means "no value" (CSV only)."""

    @field_validator("path")
    @classmethod
    def _path_is_inside(cls, value: str) -> str:
        return inside(value)

    @model_validator(mode="after")
    def _path_names_the_partition(self) -> Self:
        return _check_partition_field(self)


class EventsSource(_Source):
    """An append-only event stream in JSON lines, one file per partition."""

    kind: Literal["events"]
    path: str
    known_at: str = Field()  # pyright: ignore[reportIncompatibleVariableOverride]  an event always says when it became known

    @field_validator("path")
    @classmethod
    def _path_is_inside(cls, value: str) -> str:
        return inside(value)

    @model_validator(mode="after")
    def _path_names_the_partition(self) -> Self:
        return _check_partition_field(self)


class SqlSource(_Source):
    """A table in a SQL database; a partition is the range of its ``watermark`` column."""

    kind: Literal["sql"]
    connection: Annotated[str, StringConstraints(pattern=r"^[A-Z][A-Z0-9_]{0,62}$")]
    """Names the setting ML_ASSETS_SQL_<connection>, which holds the URL; never the URL itself."""
    table: Annotated[str, StringConstraints(pattern=r"^[A-Za-z_][A-Za-z0-9_.]{0,126}$")]
    watermark: str | None = None

    @model_validator(mode="after")
    def _partitions_need_a_watermark(self) -> Self:
        if self.partitioned and self.watermark is None:
            raise ValueError("a partitioned SQL source needs 'watermark', the column to range over")
        if self.watermark is not None and self.columns.get(self.watermark) != "datetime":
            raise ValueError(f"watermark {self.watermark!r} must be a declared 'datetime' column")
        return self


SourceSpec = Annotated[FilesSource | EventsSource | SqlSource, Field(discriminator="kind")]
SourceName = Name


PathSource = TypeVar("PathSource", FilesSource, EventsSource)


def inside(path: str) -> str:
    """Accept a relative path that stays below its root.

    Raises:
        ValueError: the path is absolute, climbs out with ``..``, or would after a URL's unescaping.
    """
    parts = PurePosixPath(path)
    odd = any(sign in path for sign in "\0\\%")
    if parts.is_absolute() or ".." in parts.parts or not path.strip() or odd:
        raise ValueError(f"{path!r} must be a relative path that stays inside its folder")
    return path


def _check_partition_field(source: PathSource) -> PathSource:
    if source.partitioned and PARTITION_FIELD not in source.path:
        raise ValueError(
            f"path {source.path!r} of a partitioned source must hold {PARTITION_FIELD}"
        )
    if not source.partitioned and PARTITION_FIELD in source.path:
        raise ValueError(f"path {source.path!r} holds {PARTITION_FIELD} but partitioned is false")
    return source
