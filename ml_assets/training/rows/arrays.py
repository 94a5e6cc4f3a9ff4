"""The training set as memory-mapped arrays, verified against its manifest. No engine is loaded."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from pydantic import ValidationError

from ml_assets.errors import StorageError
from ml_assets.spec.program import File, Ref, Shard, ShardSchema, Split
from ml_assets.store.objects import file_digest, verify
from ml_assets.training.stop import BadData

_CHUNK = 1_000_000


@dataclass(frozen=True)
class Rows:
    """Rows as encoded: numeric [n, f] float32, categorical [n, c] int32, label [n]."""

    numeric: NDArray[np.generic]
    categorical: NDArray[np.generic]
    label: NDArray[np.generic]
    starts: NDArray[np.int64] | None = None
    """Ranking: [queries + 1] int64, where the rows of each query begin; else None."""


Predict = Callable[[Rows], NDArray[np.float64]]
"""Rows -> [n, outputs] float64; see ``ScoreOutput.predictions``."""


class SplitArrays:
    """One split; its shards are mapped, not read.

    What is sampled is a unit: a row or, of a ranking, a query with all its rows. A query without a
    relevant row teaches nothing: it is no unit.
    """

    def __init__(self, folder: Path, schema: ShardSchema, split: Split) -> None:
        shards = schema.splits.get(split, ())
        if not shards:
            raise BadData(f"The training set {folder} has no split {split!r}.")
        self._parts = [
            tuple(_mapped(folder, file) for file in (s.numeric, s.categorical, s.label))
            for s in shards
        ]
        self._starts = np.cumsum([0, *(shard.rows for shard in shards)])
        self._queries = self._relevant_queries(folder, shards)

    def __len__(self) -> int:
        return int(self._starts[-1])

    @property
    def units(self) -> int:
        """Rows or, of a ranking, queries."""
        return len(self) if self._queries is None else len(self._queries)

    def take(self, rows: NDArray[np.int64]) -> Rows:
        """The rows with these numbers, in this order."""
        if len(self._parts) == 1:
            numeric, categorical, label = (array[rows] for array in self._parts[0])
        else:
            numeric, categorical, label = (self._gather(rows, kind) for kind in range(3))
        return Rows(numeric, categorical, label)

    def labels(self) -> Iterator[NDArray[np.int64]]:
        """The places of the rows' classes, in order, some at a time."""
        for _, _, labels in self._parts:
            for first in range(0, len(labels), _CHUNK):
                yield np.asarray(labels[first : first + _CHUNK]).astype(np.int64)

    def whole(self) -> Rows:
        """The rows of every unit, in order."""
        return self.take_units(np.arange(self.units))

    def take_units(self, units: NDArray[np.int64]) -> Rows:
        """The rows of the units with these numbers, in this order."""
        if self._queries is None:
            return self.take(units)
        chosen = self._queries[units]
        starts = np.concatenate([[0], np.cumsum(self.rows_of(units))])
        rows = self.take(np.concatenate([np.arange(first, last) for first, last in chosen]))
        return replace(rows, starts=starts)

    def rows_of(self, units: NDArray[np.int64]) -> NDArray[np.int64]:
        """The number of rows of each of these units."""
        if self._queries is None:
            return np.ones(len(units), np.int64)
        first, last = self._queries[units].T
        return last - first

    def _relevant_queries(self, folder: Path, shards: Sequence[Shard]) -> NDArray[np.int64] | None:
        """[queries, 2] first row and end of each query with a relevant row; None if no ranking."""
        spans: list[NDArray[np.int64]] = []
        for shard, first, part in zip(shards, self._starts, self._parts, strict=False):
            if shard.queries is None:
                return None
            starts = _mapped(folder, shard.queries).astype(np.int64)
            relevant = np.add.reduceat(part[2], starts[:-1]) > 0
            spans.append(first + np.stack([starts[:-1], starts[1:]], axis=1)[relevant])
        found = np.concatenate(spans)
        if not len(found):
            raise BadData(f"No query of {folder} has a relevant row: there is nothing to learn.")
        return found

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
                files = (shard.numeric, shard.categorical, shard.label, shard.queries)
                verify(folder, [file for file in files if file is not None])
    except (OSError, ValidationError, StorageError) as error:
        raise BadData(f"The training set {folder} cannot be used: {error}") from error
    return folder, schema


def _mapped(folder: Path, file: File) -> NDArray[np.generic]:
    return np.load(folder / file.path, mmap_mode="r", allow_pickle=False)
