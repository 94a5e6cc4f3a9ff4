"""Tables of a team's own, between the validated tables and the features."""

from typing import Annotated

from pydantic import Field, StringConstraints, field_validator

from ml_assets.spec.base import Frozen, Name
from ml_assets.spec.sources import inside

FunctionPath = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_./-]+\.py:[a-z_][a-z0-9_]*$")]
"""``file.py:name``, the file relative to the pipeline's folder."""


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

    @field_validator("function")
    @classmethod
    def _function_is_inside(cls, value: str) -> str:
        return inside(value)
