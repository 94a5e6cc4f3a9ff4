"""The tensors that a team's network is called with, where its spec declares them."""

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatchcase

from pydantic import Field

from ml_assets.errors import counted, did_you_mean
from ml_assets.spec.base import Frozen, Misfit, Name, Positive, unset


class BatchTensor(Frozen):
    """Columns of the training set as one tensor, in a shape: [n, *shape].

    Numbers are float32, standardized, and 0 for a null; categories are int32 codes.
    """

    columns: tuple[str, ...] = Field(strict=False, min_length=1)
    """Features, all numeric or all categorical, in this order: names, or patterns such as
    ``pixel_*``, whose features come in the order of the spec."""
    shape: tuple[Positive, ...] = Field(default=(), strict=False, exclude_if=unset)
    """Of one row, such as ``[1, 8, 8]``; the last axis runs fastest. Empty: a row of columns."""
    nulls: bool = Field(default=False, exclude_if=unset)
    """Whether it is 1 where a value is null and 0 elsewhere, in place of the values."""

    def among(self, numeric: Sequence[str], categorical: Sequence[str]) -> tuple[str, ...]:
        """The columns that it is made of, in order.

        Raises:
            ValueError: there is no such column, they are of two kinds, or do not fill the shape.
        """
        known, found = (*numeric, *categorical), list[str]()
        for pattern in self.columns:
            matching = [name for name in known if fnmatchcase(name, pattern)]
            if not matching:
                said = f"no feature is called {pattern!r}."
                series = dict.fromkeys(re.sub(r"\d+$", "*", name) for name in known)
                raise ValueError(said + did_you_mean(pattern, series if "*" in pattern else known))
            found += matching
        numbers = sum(name in numeric for name in found)
        if 0 < numbers < len(found):
            raise ValueError("it has numeric and categorical columns: declare a tensor for each")
        if self.nulls and not numbers:
            raise ValueError("nulls is for numbers; in a category, code 0 means null: remove it")
        size = math.prod(self.shape) if self.shape else len(found)
        if size != len(found):
            raise ValueError(
                f"shape {list(self.shape)} holds {counted(size, 'value')} of a row, and"
                f" {counted(len(found), 'column', 'fill')} it: name as many, or change the shape"
            )
        return tuple(found)


def batch_problems(
    batch: Mapping[Name, BatchTensor], numeric: Sequence[str], categorical: Sequence[str]
) -> Iterator[Misfit]:
    """Every declared tensor that these features do not make."""
    for name, tensor in batch.items():
        try:
            tensor.among(numeric, categorical)
        except ValueError as error:
            yield Misfit(("model", "batch", name), f"model.batch.{name}: {error}")
