"""The results of a team's functions: its own tables, the features, and the online features."""

from collections.abc import Iterator, Sequence
from typing import Annotated, Any, Literal, Self

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    StringConstraints,
    ValidationError,
    model_validator,
)

from ml_assets.settings.cluster import bytes_of
from ml_assets.spec.base import Frozen, Misfit, Name, unset
from ml_assets.spec.paths import inside
from ml_assets.spec.texts import TokensSpec

FunctionPath = Annotated[
    str,
    StringConstraints(pattern=r"^[A-Za-z0-9_./-]+\.py:[a-z_][a-z0-9_]*$"),
    AfterValidator(inside),
]
"""``file.py:name``, the file relative to the pipeline's folder."""


LEAST_MEMORY = 32 << 20
"""Bytes with which an engine can begin."""


def _with_unit(value: Any) -> Any:
    if isinstance(value, int | float):
        raise ValueError(f"{value} has no unit: write {value}Mi or {value}Gi")
    return value


def _enough(value: str) -> str:
    if (bytes_of(value) or 0) < LEAST_MEMORY:
        raise ValueError(
            f"{value!r} is not a memory size of an engine: write 32Mi or more, as in 4Gi"
        )
    return value


EngineMemory = Annotated[str, BeforeValidator(_with_unit), AfterValidator(_enough)]


class TableSpec(Frozen):
    """An asset that a function of the team makes from published tables, as it makes features."""

    function: FunctionPath
    """(Mapping[str, LazyFrame], Window) -> LazyFrame, as for the features."""
    reads: tuple[Name, ...] = Field(strict=False, min_length=1)
    """Sources, and tables declared above this one."""
    key: tuple[str, ...] = Field(strict=False, min_length=1)
    """Columns that identify a row; the table is sorted by it."""
    look_back: Annotated[int, Field(ge=0)] = 0
    """Earlier partitions that the function reads to make one partition."""

    @model_validator(mode="before")
    @classmethod
    def _has_no_engine(cls, raw: Any) -> Any:
        if isinstance(raw, dict) and "engine" in raw:
            raise ValueError(
                "a table of a team has no engine: polars makes it, in memory. Where its partition"
                " does not fit, cut partitions smaller, or make its columns in the feature"
                " function, which has features.engine"
            )
        return raw


class SubjectSpec(Frozen):
    """The source whose rows are predicted: ``ml-assets predict`` takes its new rows unchanged.

    The feature function is called on the published tables with the new rows among them.
    """

    source: Name
    time: str | None = None
    """Its datetime column that says which partition a row is in; needed where there are any."""


class DecodeSpec(Frozen):
    """Each feature row refers to a file; a function of the team makes numeric features of it.

    The feature function returns ``path`` and ``etag`` as the table of a source of
    ``format: binary`` has them. A file that is another one now is an error.
    """

    function: FunctionPath
    """(list of n files as bytes) -> [n, width] numbers."""
    name: Name
    """The features are called ``name_0``, ``name_1``, ...; they follow the other numeric ones."""
    width: Annotated[int, Field(gt=0, le=4096)]
    """How many there are."""
    path: str = "path"
    """The column that says where the file is."""
    etag: str = "etag"
    """The column that says which version of it is meant."""

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of the features."""
        return tuple(f"{self.name}_{place}" for place in range(self.width))


class EngineSpec(Frozen):
    """The engine that runs a portable feature function where a partition does not fit in memory.

    The bytes are those of polars. What the function reads and makes in between lies on disk.
    """

    kind: Literal["duckdb"]
    memory: EngineMemory = "1Gi"
    """What DuckDB may hold: at least 32Mi. Python, polars and a group of 100,000 rows come
    beside it."""


class FeaturesSpec(Frozen):
    """The feature function and the columns it must return."""

    function: FunctionPath
    """(Mapping[str, LazyFrame], Window) -> LazyFrame."""
    key: tuple[str, ...] = Field(strict=False, min_length=1)
    decision_at: str
    """The UTC datetime column with the time of the prediction. Nothing later may be used."""
    numeric: tuple[str, ...] = Field(default=(), strict=False)
    categorical: tuple[str, ...] = Field(default=(), strict=False)
    look_back: Annotated[int, Field(ge=0)] = 0
    """Earlier partitions that the function reads to make one partition."""
    tokens: TokensSpec | None = Field(default=None, exclude_if=unset)
    """For a language model: the text, in the place of numeric and categorical features."""
    decode: DecodeSpec | None = Field(default=None, exclude_if=unset)
    """Numeric features that come of files (images, sounds) to which the rows refer."""
    engine: EngineSpec | None = Field(default=None, exclude_if=unset)
    """What runs the function; None: polars, in memory."""
    subject: SubjectSpec | None = None
    """The source whose rows are predicted; None: only whole feature rows can be."""

    @property
    def columns(self) -> tuple[str, ...]:
        """Return what a model reads, as the feature function returns it."""
        return (*self.numeric, *self.categorical, *([self.tokens.column] if self.tokens else []))

    @model_validator(mode="before")
    @classmethod
    def _with_decoded(cls, raw: Any) -> Any:
        """What is made of files are numeric features like others, wherever they are read."""
        if not isinstance(raw, dict) or not raw.get("decode"):
            return raw
        given = raw.get("numeric", ())
        if not isinstance(given, list | tuple):
            return raw
        try:
            decoded = DecodeSpec.model_validate(raw["decode"]).columns
        except ValidationError:  # told of by the field itself
            return raw
        return {**raw, "numeric": (*(name for name in given if name not in decoded), *decoded)}

    @model_validator(mode="after")
    def _has_columns(self) -> Self:
        columns = self.columns
        if not columns:
            raise ValueError("declare at least one 'numeric' or 'categorical' feature")
        if self.tokens and len(columns) > 1:
            raise ValueError(
                "'tokens' is all that a language model reads: remove 'numeric' and 'categorical'"
            )
        twice = sorted({c for c in columns if columns.count(c) > 1})
        if twice:
            raise ValueError(f"features {twice} are declared twice")
        return self


class OnlineSpec(Frozen):
    """The newest feature row of each entity is served for look-ups, after every publication."""

    entity: tuple[str, ...] = Field(strict=False, min_length=1)
    """Columns of the feature set's key, or categorical features, that name an entity."""
    features: tuple[str, ...] = Field(default=(), strict=False)
    """Those to serve; empty: all."""
    look_back: Annotated[int, Field(ge=0)] = 0
    """Earlier partitions in which the newest row of an entity may be; older ones are not served."""


def online_problems(
    spec: OnlineSpec | None,
    key: Sequence[str],
    numeric: Sequence[str],
    categorical: Sequence[str],
    *,
    partitioned: bool,
) -> Iterator[Misfit]:
    """Yield what does not go with the features and the partitions of the pipeline."""
    if spec is None:
        return
    unknown = [name for name in spec.entity if name not in (*key, *categorical)]
    if unknown:
        said = f"online.entity {unknown} are neither in features.key nor categorical features"
        yield Misfit(("online", "entity"), said)
    unknown = [name for name in spec.features if name not in (*numeric, *categorical)]
    if unknown:
        said = f"online.features {unknown} are not features"
        yield Misfit(("online", "features"), said)
    if spec.look_back and not partitioned:
        yield Misfit(("online", "look_back"), "online.look_back needs partitions")
