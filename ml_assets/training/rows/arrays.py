"""The training set as memory-mapped arrays, verified against its manifest. No engine is loaded.

The shards hold raw rows; fitted values are applied when rows are read.
"""

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import ValidationError

from ml_assets.errors import StorageError
from ml_assets.spec.training_program import (
    SCHEMA_FILE,
    SHARD_FILE,
    SPLITS,
    File,
    Ref,
    Shard,
    ShardFiles,
    ShardSchema,
    Split,
)
from ml_assets.store.objects import file_digest, verify
from ml_assets.store.row_encoding import Encoder, scale_label
from ml_assets.training.stop import BadData

_CHUNK = 1_000_000
_AT_ONCE = 1 << 16
"""Rows that are encoded at once: they are held as they were, too."""
_KEPT = 64 << 20
"""Bytes of encoded rows that are kept, of a split that is read again and again."""


@dataclass(frozen=True)
class Rows:
    """Rows as encoded: numeric [n, f] float32, categorical [n, c] int32, label [n]."""

    numeric: NDArray[np.generic]
    categorical: NDArray[np.generic]
    label: NDArray[Any]
    starts: NDArray[np.int64] | None = None
    """[queries + 1] int64, where the rows of each query begin (ranking), or the windows of each
    text (language model); else None."""


Predict = Callable[[Rows], NDArray[np.float64]]
"""Rows -> [n, outputs] float64; see ``ScoreOutput.predictions``."""


class ShardArrays:
    """The arrays of one shard, mapped when they are first taken from."""

    def __init__(self, folder: Path, rows: int, encoder: Encoder) -> None:
        self.rows = rows
        self._folder, self._encoder = folder, encoder

    @cached_property
    def numeric(self) -> NDArray[np.float64]:
        return self._mapped(self._files.numeric)

    @cached_property
    def missing(self) -> NDArray[np.uint8]:
        return self._mapped(self._files.missing)

    @cached_property
    def categorical(self) -> NDArray[np.int32]:
        return self._mapped(self._files.categorical)

    @cached_property
    def label(self) -> NDArray[Any]:
        return self._mapped(self._files.label)

    def codes(self, rows: NDArray[np.int64]) -> NDArray[np.int32]:
        """[rows, c] the codes of the words of these rows."""
        places = np.take(self.categorical, rows, axis=0)
        columns, words = self._codes.shape
        return np.take(self._codes, places + words * np.arange(columns, dtype=np.int32))

    @cached_property
    def queries(self) -> NDArray[np.int64] | None:
        """[queries + 1] where the rows of each query begin; None if no ranking."""
        file = self._files.queries
        return None if file is None else self._mapped(file).astype(np.int64)

    @cached_property
    def _codes(self) -> NDArray[np.int32]:
        """[c, words + 1] the code of each of the shard's own words."""
        return self._encoder.codes(json.loads((self._folder / self._files.words.path).read_bytes()))

    @cached_property
    def _files(self) -> ShardFiles:
        return ShardFiles.model_validate_json((self._folder / SHARD_FILE).read_bytes())

    def _mapped(self, file: File) -> NDArray[Any]:
        mapped = np.load(self._folder / file.path, mmap_mode="r", allow_pickle=False)
        return np.asarray(mapped)  # a view: numpy's own class for it costs time at every use


class SplitArrays:
    """One split; its shards are mapped, not read.

    What is sampled is a unit: a row or, of a ranking, a query with all its rows. A query without a
    relevant row teaches nothing: it is no unit.
    """

    at_once = 8192
    """Rows that are scored at once."""
    fetches = False
    """Whether it has to be told what is read next."""

    def __init__(self, folder: Path, schema: ShardSchema, split: Split) -> None:
        shards = shards_of(schema, split, folder)
        self._encoder, self.label_scale = Encoder(schema.preprocessing), schema.label_scale
        self._parts = [ShardArrays(folder.parent / s.digest, s.rows, self._encoder) for s in shards]
        self._starts = np.cumsum([0, *(shard.rows for shard in shards)])
        self._queries = self._relevant_queries(folder) if schema.task == "ranking" else None
        self._passed, self._kept = 0, None

    def __len__(self) -> int:
        return int(self._starts[-1])

    def units_for(self, rows: int) -> int:
        """Return how many units hold about so many rows; a ranking's are many rows each."""
        return max(1, min(self.units, rows * self.units // len(self)))

    @property
    def units(self) -> int:
        """Rows or, of a ranking, queries."""
        return len(self) if self._queries is None else len(self._queries)

    @property
    def shards(self) -> list[int]:
        """The units of each shard."""
        firsts = self._starts
        if self._queries is not None:
            firsts = np.searchsorted(self._queries[:, 0], firsts)
        return np.diff(firsts).tolist()

    def take(self, rows: NDArray[np.int64]) -> Rows:
        """The rows with these numbers, in this order, encoded."""
        if len(rows) <= _AT_ONCE:
            return self._taken(rows)
        blocks = [self._taken(rows[n : n + _AT_ONCE]) for n in range(0, len(rows), _AT_ONCE)]
        arrays = zip(*((b.numeric, b.categorical, b.label) for b in blocks), strict=True)
        return Rows(*(np.concatenate(parts) for parts in arrays))

    @property
    def fetched_bytes(self) -> int:
        """That came from a store since it was opened."""
        return 0

    def expect(self, now: Sequence[int], soon: Sequence[int]) -> None:
        """Be told which blocks are read now and next; where all rows are here, do nothing."""

    def labels(self) -> Iterator[NDArray[np.int64]]:
        """The places of the rows' classes, in order, some at a time."""
        for part in self._parts:
            for first in range(0, part.rows, _CHUNK):
                yield np.asarray(part.label[first : first + _CHUNK]).astype(np.int64)

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

    def _taken(self, rows: NDArray[np.int64]) -> Rows:
        if self._kept is None and self._passed >= len(self):  # nothing is kept of what is read once
            self._kept = self._encoded_whole()
            self._passed = 0
        if self._kept is not None:
            return Rows(*(np.take(array, rows, axis=0) for array in self._kept))
        self._passed += len(rows)
        return self._encoded(rows)

    def _encoded_whole(self) -> tuple[NDArray[Any], ...] | None:
        """All rows as encoded, for those that are read again; None: they are too many."""
        one = self._encoded(np.zeros(1, np.int64))
        found = tuple(_empty(a, len(self)) for a in (one.numeric, one.categorical, one.label))
        if sum(array.nbytes for array in found) > _KEPT:  # of what is not written none is taken
            return None
        for first in range(0, len(self), _AT_ONCE):
            some = self._encoded(np.arange(first, min(first + _AT_ONCE, len(self))))
            for array, new in zip(found, (some.numeric, some.categorical, some.label), strict=True):
                array[first : first + len(new)] = new
        return found

    def _encoded(self, rows: NDArray[np.int64]) -> Rows:
        numbers, missing, codes, labels = (_empty(like, len(rows)) for like in self._likes)
        for part, places, own in self._owners(rows):
            numbers[places] = np.take(part.numeric, own, axis=0)
            missing[places] = np.take(part.missing, own, axis=0)
            codes[places] = part.codes(own)
            labels[places] = np.take(part.label, own)
        numeric = self._encoder.numeric(numbers, missing)
        return Rows(numeric, codes, scale_label(labels, self.label_scale))

    @cached_property
    def _likes(self) -> tuple[NDArray[Any], ...]:
        one = self._parts[0]
        return one.numeric, one.missing, one.categorical, one.label

    def _owners(
        self, rows: NDArray[np.int64]
    ) -> Iterator[tuple[ShardArrays, NDArray[np.int64] | slice, NDArray[np.int64]]]:
        """Each shard that holds some of the rows, with their places in ``rows`` and in it."""
        if len(self._parts) == 1:
            yield self._parts[0], slice(None), rows
            return
        owner = np.searchsorted(self._starts, rows, side="right") - 1
        order = np.argsort(owner, kind="stable")
        ends = np.cumsum(np.bincount(owner, minlength=len(self._parts)))
        for number in np.unique(owner):
            places = order[ends[number - 1] if number else 0 : ends[number]]
            yield self._parts[number], places, rows[places] - self._starts[number]

    def _relevant_queries(self, folder: Path) -> NDArray[np.int64]:
        """[queries, 2] first row and end of each query with a relevant row."""
        spans: list[NDArray[np.int64]] = []
        for part, first in zip(self._parts, self._starts, strict=False):
            if part.queries is not None and part.rows:
                begins, ends = part.queries[:-1], part.queries[1:]
                relevant = np.add.reduceat(part.label, begins) > 0
                spans.append(first + np.stack([begins, ends], axis=1)[relevant])
        found = np.concatenate(spans)
        if not len(found):
            raise BadData(f"No query of {folder} has a relevant row: there is nothing to learn.")
        return found


def shards_of(schema: ShardSchema, split: Split, folder: Path) -> tuple[Shard, ...]:
    """The shards of a split.

    Raises:
        BadData: there are none.
    """
    shards = schema.splits.get(split, ())
    if not shards:
        raise BadData(f"The training set {folder} has no split {split!r}.")
    return shards


def open_set(ref: Ref, splits: Sequence[Split] = SPLITS) -> tuple[Path, ShardSchema]:
    """The schema of a training set, held to its digest, with every file held to the schema.

    Args:
        splits: those whose rows are to be here.

    Raises:
        BadData: something is missing or damaged.
    """
    folder = Path(ref.uri)
    file = folder / SCHEMA_FILE
    try:
        if file_digest(file) != ref.digest:
            raise BadData(f"{file} is damaged: its checksum is not {ref.digest[:12]}.")
        schema = ShardSchema.model_validate_json(file.read_bytes())
        for shard in schema.shards_of(splits):
            _verify(folder.parent / shard.digest, shard)
    except (OSError, ValidationError, StorageError) as error:
        raise BadData(f"The training set {folder} cannot be used: {error}") from error
    return folder, schema


def _verify(folder: Path, shard: Shard) -> None:
    manifest = folder / SHARD_FILE
    if file_digest(manifest) != shard.digest:
        raise StorageError(f"{manifest} is damaged: its checksum is not {shard.digest[:12]}.")
    verify(folder, ShardFiles.model_validate_json(manifest.read_bytes()).arrays)


def _empty(like: NDArray[Any], rows: int) -> NDArray[Any]:
    return np.empty((rows, *like.shape[1:]), like.dtype)
