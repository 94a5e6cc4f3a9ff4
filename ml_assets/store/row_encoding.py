"""The rows of a shard as they lie in its files, and a model's inputs made from them.

The step that lays a set out, the training program and the server share layout and arithmetic, to
the bit. The checksums let some rows be fetched and verified by themselves.
"""

from collections.abc import Sequence
from hashlib import sha256
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ml_assets.spec.training import Task
from ml_assets.spec.training_program import CHECKED_ROWS, LabelScale, Preprocessing, ShardSchema

CHECKED = ("numeric", "missing", "categorical", "label")
"""The arrays of a shard that have checksums by rows, in their order."""
LABEL_TYPES: dict[Task, type[np.generic]] = {
    "binary": np.float32,
    "multiclass": np.int64,
    "regression": np.float64,
    "ranking": np.float32,
}


def checksums(*arrays: NDArray[Any]) -> NDArray[np.uint8]:
    """[ceil(rows / CHECKED_ROWS), arrays, 32] SHA-256 of so many rows of each array."""
    begins = range(0, len(arrays[0]), CHECKED_ROWS)
    digests = [checksum(one[begin : begin + CHECKED_ROWS]) for begin in begins for one in arrays]
    return np.frombuffer(b"".join(digests), np.uint8).reshape(len(begins), len(arrays), 32)


def checksum(rows: NDArray[Any]) -> bytes:
    """SHA-256 of some rows of an array, as they lie in its file."""
    return sha256(np.ascontiguousarray(rows).data).digest() if rows.size else sha256().digest()


CLIP = 8.0


class Encoder:
    """Encodes rows by one preprocessing."""

    def __init__(self, preprocessing: Preprocessing) -> None:
        columns = preprocessing.numeric
        self._means = np.array([column.mean for column in columns], np.float64)
        self._scales = np.array([1.0 / column.std for column in columns], np.float64)
        place = {column.name: number for number, column in enumerate(columns)}
        flagged = np.array([place[name] for name in preprocessing.null_flags], np.int64)
        self._bytes, self._bits = flagged // 8, (flagged % 8).astype(np.uint8)
        self._vocabularies = [
            {word: code for code, word in enumerate(column.vocabulary, 1)}
            for column in preprocessing.categorical
        ]

    def numeric(
        self, values: NDArray[np.float64], missing: NDArray[np.uint8]
    ) -> NDArray[np.float32]:
        """[rows, n + flags] float32: standardized and clipped, 0 where there is no number.

        Args:
            values: [rows, n].
            missing: [rows, ceil(n / 8)], see ``ShardFiles``.
        """
        rows, columns = values.shape
        found = np.empty((rows, columns + len(self._bytes)), np.float32)
        scaled = found[:, :columns]
        with np.errstate(over="ignore"):  # beyond every bound is clipped like any other
            # computed in float64: a bound of float32 clips what was rounded to the same bits
            np.multiply(values - self._means, self._scales, out=scaled, casting="same_kind")
        np.clip(scaled, -CLIP, CLIP, out=scaled)
        np.copyto(scaled, 0.0, where=np.isnan(scaled))
        found[:, columns:] = (missing[:, self._bytes] >> self._bits) & 1
        return found

    def codes(self, words: Sequence[Sequence[str]]) -> NDArray[np.int32]:
        """[c, most words + 1] the code of each word of some rows, by its place there plus 1.

        Args:
            words: for each categorical column those of the rows. A word never seen gets 0.
        """
        found = np.zeros((len(words), 1 + max(map(len, words), default=0)), np.int32)
        for row, known, own in zip(found, self._vocabularies, words, strict=True):
            row[1 : len(own) + 1] = [known.get(word, 0) for word in own]
        return found


def pack(missing: NDArray[np.bool_]) -> NDArray[np.uint8]:
    """[rows, ceil(n / 8)] which of the numbers are null, from [rows, n]; see ``ShardFiles``."""
    return np.packbits(missing, axis=1, bitorder="little")


def encoded_types(schema: ShardSchema) -> tuple[tuple[type[np.generic], tuple[int, ...]], ...]:
    """The type and the shape of an encoded row's numbers, words and label."""
    preprocessing = schema.preprocessing
    columns = len(preprocessing.numeric) + len(preprocessing.null_flags)
    label = np.float32 if schema.label_scale else LABEL_TYPES[schema.task]
    return (
        (np.float32, (columns,)),
        (np.int32, (len(preprocessing.categorical),)),
        (label, ()),
    )


def encoded_bytes(schema: ShardSchema) -> int:
    """The bytes of an encoded row."""
    return sum(np.empty(shape, type_).nbytes for type_, shape in encoded_types(schema))


def scale_label(label: NDArray[Any], scale: LabelScale | None) -> NDArray[Any]:
    """Labels as they are learned; those of a number are standardized to float32."""
    return label if scale is None else ((label - scale.mean) / scale.std).astype(np.float32)
