"""The training set as memory-mapped arrays, verified against its manifest. No engine is loaded."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from pydantic import ValidationError

from ml_assets.errors import StorageError
from ml_assets.spec.program import File, Ref, ShardSchema, Split
from ml_assets.storage.objects import file_digest, verify
from ml_assets.training.stop import BadData


@dataclass(frozen=True)
class Rows:
    """Rows as encoded: numeric [n, f] float32, categorical [n, c] int32, label [n]."""

    numeric: NDArray[np.generic]
    categorical: NDArray[np.generic]
    label: NDArray[np.generic]


Predict = Callable[[Rows], NDArray[np.float64]]
"""Rows -> probabilities [n, 1] (binary) or [n, k], float64."""


class SplitArrays:
    """One split; its shards are mapped, not read."""

    def __init__(self, folder: Path, schema: ShardSchema, split: Split) -> None:
        shards = schema.splits.get(split, ())
        if not shards:
            raise BadData(f"The training set {folder} has no split {split!r}.")
        self._parts = [
            tuple(_mapped(folder, file) for file in (s.numeric, s.categorical, s.label))
            for s in shards
        ]
        self._starts = np.cumsum([0, *(shard.rows for shard in shards)])

    def __len__(self) -> int:
        return int(self._starts[-1])

    def take(self, rows: NDArray[np.int64]) -> Rows:
        """The rows with these numbers, in this order."""
        if len(self._parts) == 1:
            return Rows(*(array[rows] for array in self._parts[0]))
        return Rows(*(self._gather(rows, kind) for kind in range(3)))

    def whole(self) -> Rows:
        """Every row, in order."""
        return self.take(np.arange(len(self)))

    def _gather(self, rows: NDArray[np.int64], kind: int) -> NDArray[np.generic]:
        owner = np.searchsorted(self._starts, rows, side="right") - 1
        sample = self._parts[0][kind]
        out = np.empty((len(rows), *sample.shape[1:]), sample.dtype)
        for number, part in enumerate(self._parts):
            mine = owner == number
            out[mine] = part[kind][rows[mine] - self._starts[number]]
        return out


def open_set(ref: Ref) -> tuple[Path, ShardSchema]:
    """The schema of a training set, held to its digest, with every file held to the schema.

    Raises:
        BadData: something is missing or damaged.
    """
    folder = Path(ref.uri)
    file = folder / "schema.json"
    try:
        if file_digest(file) != ref.digest:
            raise BadData(f"{file} is damaged: its checksum is not {ref.digest[:12]}.")
        schema = ShardSchema.model_validate_json(file.read_bytes())
        for shards in schema.splits.values():
            for shard in shards:
                verify(folder, (shard.numeric, shard.categorical, shard.label))
    except (OSError, ValidationError, StorageError) as error:
        raise BadData(f"The training set {folder} cannot be used: {error}") from error
    return folder, schema


def _mapped(folder: Path, file: File) -> NDArray[np.generic]:
    return np.load(folder / file.path, mmap_mode="r", allow_pickle=False)
