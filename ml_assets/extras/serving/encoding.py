"""Encodes rows of a request fast: polars takes milliseconds for one row, numpy microseconds.

``training_set.encoding`` is authoritative: rows that this code cannot take go there, and a test
compares the bits of both.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from types import NoneType

import numpy as np
from numpy.typing import NDArray

from ml_assets.assets.released_model.predict import feature_columns
from ml_assets.assets.released_model.rows_to_predict import RowsAsSent, check_rows, numbers_of
from ml_assets.assets.training_set.encoding import encode_rows
from ml_assets.spec.training_program import ModelManifest
from ml_assets.store import row_encoding

Columns = Mapping[str, Sequence[object]]
"""Name -> the values of all rows, as JSON gives them."""
_NUMBERS = {float, int, NoneType}
_WORDS = {str, NoneType}


@dataclass(frozen=True)
class Encoded:
    """Rows as a model reads them: numeric [rows, n] float32, categorical [rows, c] int32."""

    numeric: NDArray[np.float32]
    categorical: NDArray[np.int32]

    def __len__(self) -> int:
        return len(self.numeric)

    @classmethod
    def together(cls, parts: "Sequence[Encoded]") -> "Encoded":
        """Several in one, in their order."""
        if len(parts) == 1:
            return parts[0]
        numeric = np.concatenate([part.numeric for part in parts])
        return cls(numeric, np.concatenate([part.categorical for part in parts]))


@dataclass(frozen=True)
class Encoder:
    """Encodes rows for one model."""

    manifest: ModelManifest
    carried: frozenset[str]
    """Columns that a row may have, and the model does not read."""
    flags: frozenset[str] = frozenset()
    """Numeric columns that a row may give as true or false."""

    @property
    def columns(self) -> int:
        """Return how many columns a row may have."""
        return len(self._declared) + len(self.carried)

    def encode(self, columns: Columns, count: int) -> Encoded:
        """The rows as the model reads them.

        Args:
            columns: of one length each.
            count: that length.

        Raises:
            RowsRefused: they are not the model's; every mistake is listed.
        """
        given = {
            name: numbers_of(values) if name in self.flags else values
            for name, values in columns.items()
            if name not in self.carried
        }
        fast = self._fast(given, count) if given.keys() == self._declared.keys() else None
        return fast or self._checked(given)

    @cached_property
    def _declared(self) -> dict[str, object]:
        return {**feature_columns(self.manifest)}

    @cached_property
    def _words(self) -> list[tuple[str, dict[object, int]]]:
        read = self.manifest.preprocessing.categorical
        return [(c.name, {word: n for n, word in enumerate(c.vocabulary, 1)}) for c in read]

    @cached_property
    def _encoder(self) -> row_encoding.Encoder:
        return row_encoding.Encoder(self.manifest.preprocessing)

    def _fast(self, columns: Columns, count: int) -> Encoded | None:
        """None: a value is not of its column's type, or may not be."""
        numbers = [columns[column.name] for column in self.manifest.preprocessing.numeric]
        if any(not {type(value) for value in values} <= _NUMBERS for values in numbers):
            return None
        try:
            values = np.array(numbers, np.float64).reshape(len(numbers), count)
        except (OverflowError, ValueError):
            return None
        if np.isinf(values).any():
            return None
        codes = np.zeros((count, len(self._words)), np.int32)
        for place, (name, known) in enumerate(self._words):
            words = columns[name]
            if not {type(word) for word in words} <= _WORDS:
                return None
            codes[:, place] = [known.get(word, 0) for word in words]
        rows = np.ascontiguousarray(values.T)
        return Encoded(self._encoder.numeric(rows, row_encoding.pack(np.isnan(rows))), codes)

    def _checked(self, columns: Columns) -> Encoded:
        rows = RowsAsSent("the request", tuple(columns), columns, "json")
        declared = feature_columns(self.manifest)
        known = f"Send a value, or null, for each feature: {', '.join(declared)}."
        others = "ml-assets predict takes rows of a source, and makes their features."
        frame = check_rows(rows, declared, {}, "feature rows", (known, others))
        return Encoded(*encode_rows(frame, self.manifest.preprocessing))
