"""The spec of sources: where tables come from, their schema, contract and bounds."""

from collections.abc import Iterable
from typing import Annotated, Literal, Self, TypeVar

from pydantic import AfterValidator, Field, StringConstraints, model_validator

from ml_assets.spec.automation import Duration
from ml_assets.spec.base import Frozen, Name, Positive, Timezone, unset
from ml_assets.spec.paths import (
    FIELD,
    PARTITION,
    PARTITION_FIELD,
    VERSION_FIELD,
    inside,
    source_path,
)

SourcePath = Annotated[str, AfterValidator(source_path)]
DType = Literal["int64", "float64", "string", "boolean", "date", "datetime"]
"""``datetime`` is UTC with microseconds: a table never holds a naive time."""

OBJECT_COLUMNS: dict[str, DType] = {
    "path": "string",
    "bytes": "int64",
    "modified": "datetime",
    "sha256": "string",
    "etag": "string",
}
"""What a file that is taken in by reference can tell of itself; ``sha256`` reads it once."""


Severity = Literal["critical", "warning"]


_TAKEN = {"_reason", "__row"}
"""Columns that quarantine and predictions add."""


def patterns_among(names: Iterable[str]) -> list[str]:
    """Return the names that polars takes for several columns: ``*``, and ``^`` to ``$``."""
    return [name for name in names if name == "*" or (name[:1] == "^" and name[-1:] == "$")]


class VolumeSpec(Frozen):
    """The number of rows of a partition, relative to the ones before it."""

    within: Annotated[float, Field(gt=0)] = 0.2
    """Relative: 0.2 accepts from 80 % to 120 % of the rows before."""
    severity: Severity = "critical"
    """``critical`` keeps the partition from being published."""
    every: Positive = Field(default=1, exclude_if=lambda value: value == 1)
    """Compare with every n-th partition back: 7 of daily ones is the same weekday, 24 of
    hourly ones the same hour, 52 of weekly ones the same season."""
    periods: Positive = Field(default=1, exclude_if=lambda value: value == 1)
    """The number of those partitions; their median counts."""


class FreshnessSpec(Frozen):
    """The greatest age of a source's newest row, by the row's own time."""

    within: Duration
    severity: Severity = "warning"
    """The severity of the check; age unpublishes nothing."""
    column: str | None = Field(default=None, exclude_if=unset)
    """The datetime column to judge by; None: ``known_at``, or the ``watermark`` of a SQL source."""


class _Source(Frozen):
    columns: dict[str, DType] = Field(min_length=1)
    """Column name -> type. The declared schema, complete: an unknown column is an error."""
    key: tuple[str, ...] = Field(strict=False, min_length=1)
    """Columns that identify a row; tables are sorted by it."""
    contract: Annotated[str, AfterValidator(inside)] | None = None
    """Great Expectations suite (JSON), relative to the pipeline's folder. Without one the source is
    read, and its rows are published to nobody: a first one can be proposed from them."""
    partitioned: bool = True
    """False: one table, read whole at every run (a reference table)."""
    known_at: str | None = None
    """The column with the time at which a row became known; None: known from the start."""
    after_event: tuple[str, ...] = Field(default=(), strict=False, exclude_if=unset)
    """Columns that are filled in only after the event that a row is about: no feature may read
    them, of this row or of another one, and rows to predict may lack them."""
    volume: VolumeSpec | None = None
    """A bound on the change from one partition to the next; None: any number of rows."""
    freshness: FreshnessSpec | None = Field(default=None, exclude_if=unset)
    """A bound on the age of the newest row; None: of any age."""
    settled: Duration | None = Field(default=None, exclude_if=unset)
    """A partition that was read, and ended this long ago, is not looked at again; None: it always
    is."""

    @model_validator(mode="after")
    def _columns_exist(self) -> Self:
        named = [*self.key, *([self.known_at] if self.known_at else []), *self.after_event]
        taken = [column for column in self.columns if column in _TAKEN]
        if taken:
            raise ValueError(f"columns {taken} have names that tables use here: rename them")
        if patterns := patterns_among(self.columns):
            raise ValueError(f"columns {patterns} are patterns of several columns: rename them")
        missing = [column for column in named if column not in self.columns]
        if missing:
            raise ValueError(f"columns {missing} are named here but not declared in 'columns'")
        if self.known_at and self.columns[self.known_at] not in ("datetime", "date"):
            raise ValueError(
                f"known_at {self.known_at!r} is declared as {self.columns[self.known_at]}: it must"
                " be a 'datetime' (or 'date') column"
            )
        early = sorted({*self.key, self.known_at}.intersection(self.after_event))
        if early:
            raise ValueError(f"after_event {early} identifies the rows or their times")
        if self.volume and not self.partitioned:
            raise ValueError("volume compares partitions, but partitioned is false: remove it")
        if self.settled and not self.partitioned:
            raise ValueError(
                "settled is the age of a partition, but partitioned is false: remove it"
            )
        if self.freshness and self.columns.get(self.time_column or "") != "datetime":
            raise ValueError(
                f"freshness is judged by {self.time_column!r}, which is not a declared datetime "
                "column: set freshness.column, known_at or (of SQL) watermark"
            )
        return self

    @property
    def time_column(self) -> str | None:
        """The column that says how recent a row is."""
        declared = self.freshness.column if self.freshness else None
        return declared or self.known_at or getattr(self, "watermark", None)

    @property
    def versioned(self) -> bool:
        """Return whether each partition gets the newest version that was known when it began."""
        return False


Separator = Literal[",", ";", "\t", "|"]
Encoding = Literal["utf-8", "utf-16", "cp1252", "latin-1"]
DateOrder = Literal["ymd", "dmy", "mdy"]


class Dialect(Frozen):
    """The format of a CSV file that does not use commas, decimal points and UTF-8."""

    separator: Separator = ","
    """The separator of a line's values; a tab is ``"\\t"``."""
    decimal: Literal[".", ","] = "."
    """The decimal sign of a number."""
    encoding: Encoding = "utf-8"
    """A byte order mark is left out."""
    dates: DateOrder = Field(default="ymd", exclude_if=lambda value: value == "ymd")
    """What comes first in a date: the year, the day (31.12.2023) or the month (12/31/2023)."""

    @model_validator(mode="after")
    def _signs_differ(self) -> Self:
        if self.decimal == self.separator:
            raise ValueError("decimal and separator are the same character: make them differ")
        return self


COMMAS = Dialect()


class FilesSource(_Source):
    """Files of one format: one or more a partition, or in all; on this machine or on S3.

    ``landing/flights/{partition}.csv``, ``landing/{partition}/*.csv.gz``,
    ``s3://bucket/images/{partition}/{camera}/*.jpg``. With ``{version}``, a date, instead of
    ``{partition}``: a table that changes slowly.
    """

    kind: Literal["files"]
    path: SourcePath
    format: Literal["csv", "parquet", "jsonl", "binary"]
    """``binary``: the files stay where they are; the table refers to them, a row each."""
    null_values: tuple[str, ...] = Field(default=("",), strict=False)
    """Text that means "no value" (CSV only)."""
    dialect: Dialect = Field(default=COMMAS, exclude_if=lambda value: value == COMMAS)
    """How the file is written (CSV only)."""
    timezone: Timezone | None = Field(default=None, exclude_if=unset)
    """The zone of times written without one (CSV only); None: each time must have its zone."""

    @model_validator(mode="after")
    def _path_names_the_partition(self) -> Self:
        if self.format == "parquet" and self.path.endswith(".gz"):
            raise ValueError("a Parquet file has its own compression: gzip is for csv and jsonl")
        _check_fields(self, [*self.columns] if self.format == "binary" else [])
        if self.format == "binary":
            _check_references(self)
        return _check_partition_field(self)

    @property
    def versioned(self) -> bool:
        return VERSION_FIELD in self.path


class EventsSource(_Source):
    """An append-only event stream in JSON lines, one or more files (micro-batches) a partition."""

    kind: Literal["events"]
    path: SourcePath
    offset: Name | None = Field(default=None, exclude_if=unset)
    """Field of each event that numbers it within its partition, without a gap; None: no numbers."""
    known_at: str = Field()  # pyright: ignore[reportIncompatibleVariableOverride]  an event always says when it became known

    @model_validator(mode="after")
    def _fields_of_the_path(self) -> Self:
        _check_fields(self, [])
        if VERSION_FIELD in self.path:
            raise ValueError(f"{VERSION_FIELD} is for kind: files; events come in partitions")
        if self.offset in self.columns:
            raise ValueError(
                f"offset {self.offset!r} is declared in 'columns' as well: it numbers the events "
                "and is not part of the table; remove it there"
            )
        return self

    @model_validator(mode="after")
    def _path_names_the_partition(self) -> Self:
        return _check_partition_field(self)


class _TableSource(_Source):
    """A table; a partition is the range of its ``watermark`` column."""

    watermark: str | None = None
    """A datetime column; a partitioned table needs it."""
    ignore_null_watermark: bool = Field(default=False, exclude_if=unset)
    """Leave rows out that have no watermark and so belong to no partition; False: an error."""

    @model_validator(mode="after")
    def _partitions_need_a_watermark(self) -> Self:
        if self.ignore_null_watermark and not self.partitioned:
            raise ValueError(
                "ignore_null_watermark is for partitions, but partitioned is false: all rows are"
                " read; remove it"
            )
        if self.partitioned and self.watermark is None:
            raise ValueError(
                "a partitioned table needs 'watermark', the datetime column to range over: add it,"
                " or set partitioned: false"
            )
        if self.watermark is not None and self.columns.get(self.watermark) != "datetime":
            raise ValueError(f"watermark {self.watermark!r} must be a declared 'datetime' column")
        return self


TableName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z_][A-Za-z0-9_.]{0,126}$")]


class SqlSource(_TableSource):
    """A table in a SQL database; a partition is the range of its ``watermark`` column."""

    kind: Literal["sql"]
    connection: Annotated[str, StringConstraints(pattern=r"^[A-Z][A-Z0-9_]{0,62}$")]
    """Names the setting ML_ASSETS_SQL_<connection>, which holds the URL; never the URL itself."""
    table: TableName


def _folder(path: str) -> str:
    if any(sign in path for sign in "{}*?"):
        raise ValueError(f"{path!r} must be the folder of one table: write it without a pattern")
    return source_path(path)


class DeltaSource(_TableSource):
    """A Delta Lake table at one of its versions; a partition is the range of its ``watermark``."""

    kind: Literal["delta"]
    path: Annotated[str, AfterValidator(_folder)]
    """Its folder: below ML_ASSETS_SOURCES, or on S3."""
    version: Annotated[int, Field(ge=0)] | None = Field(default=None, exclude_if=unset)
    """None: the newest, which the receipt names."""


class IcebergSource(_TableSource):
    """An Iceberg table at one of its snapshots; a partition is the range of its ``watermark``."""

    kind: Literal["iceberg"]
    catalog: Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9]{0,62}$")]
    """The catalog's name in pyiceberg: PYICEBERG_CATALOG__<CATALOG>__URI and the like give its
    address."""
    table: TableName
    """With its namespace: ``air.flights``."""
    version: Annotated[int, Field(ge=0)] | None = Field(default=None, exclude_if=unset)
    """Number of a snapshot; None: the newest, which the receipt names."""


LakeSource = DeltaSource | IcebergSource
SourceSpec = Annotated[
    FilesSource | EventsSource | SqlSource | DeltaSource | IcebergSource,
    Field(discriminator="kind"),
]

PathSource = TypeVar("PathSource", FilesSource, EventsSource)


def _check_fields(source: "FilesSource | EventsSource", columns: list[str]) -> None:
    """Each ``{field}`` of the path is one that something reads."""
    known = {PARTITION_FIELD[1:-1], VERSION_FIELD[1:-1], *columns}
    unknown = sorted(set(FIELD.findall(PARTITION.sub("", source.path))) - known)
    if unknown:
        raise ValueError(
            f"path {source.path!r} holds {{{unknown[0]}}}, which is neither {PARTITION_FIELD} nor a"
            " declared column of a binary source: correct it, or declare it in 'columns'"
        )


def _check_references(source: "FilesSource") -> None:
    """A file taken in by reference has no columns but what it tells, and what its path says."""
    parsed = set(FIELD.findall(source.path))
    strange = [
        name
        for name, dtype in source.columns.items()
        if name not in parsed and OBJECT_COLUMNS.get(name) != dtype
    ]
    if strange:
        known = ", ".join(f"{name}: {dtype}" for name, dtype in OBJECT_COLUMNS.items())
        raise ValueError(
            f"columns {strange} of a binary source are neither fields of its path nor one of"
            f" {{{known}}}"
        )
    if "path" not in source.columns:
        raise ValueError("a binary source refers to files: declare the column path: string")


def _check_partition_field(source: PathSource) -> PathSource:
    named = ((PARTITION_FIELD, PARTITION.search(source.path)), (VERSION_FIELD, None))
    cut = [field for field, found in named if found or field in source.path]
    if len(cut) > 1:
        raise ValueError(f"path {source.path!r} holds {' and '.join(cut)}: use only one of them")
    if source.partitioned and not cut:
        raise ValueError(
            f"path {source.path!r} of a partitioned source must hold {PARTITION_FIELD}: write it"
            " where a file's day or month stands, or set partitioned: false, for one table"
        )
    if not source.partitioned and cut:
        raise ValueError(f"path {source.path!r} holds {cut[0]} but partitioned is false")
    return source
