"""The layout of a shard's rows in its files, so that some can be fetched and verified by
themselves.

The step that lays a set out and the training program share it.
"""

from hashlib import sha256
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ml_assets.spec.training import Task
from ml_assets.spec.training_program import CHECKED_ROWS

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
