"""Texts as windows of tokens, for the steps and the scores of a language model.

A unit is a window of the split as one stream: each token is a target once an epoch, whichever text
it belongs to. A row is a text by itself, in windows of its own. Both come as ``Rows``:
``categorical`` [windows, context + 1] int32, the token before the targets and then these, -1 where
there is none; ``label`` [windows] float32, how many targets count.
"""

from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ml_assets.spec.training_program import (
    SHARD_FILE,
    File,
    ShardFiles,
    ShardSchema,
    Split,
)
from ml_assets.training.rows.arrays import Rows, SplitArrays, shards_of
from ml_assets.training.stop import BadData

_TOKENS_OF_A_ROW = 4
"""A check or a chunk that asks for so many rows of a table gets this many times as many tokens."""
_FEW = 8
"""Windows that it gets at least, if it asks for so many rows."""


class Stream:
    """The tokens of one shard, mapped when they are first taken from."""

    def __init__(self, folder: Path, rows: int) -> None:
        self.rows = rows
        self._folder = folder

    @cached_property
    def tokens(self) -> NDArray[np.uint16]:
        """[n]: 0, then each text's tokens and a 0."""
        return self._mapped(self._files.tokens)

    @cached_property
    def texts(self) -> NDArray[np.int64]:
        """[rows + 1] where the targets of each text begin, and where the last one's end."""
        return self._mapped(self._files.texts)

    @cached_property
    def _files(self) -> ShardFiles:
        return ShardFiles.model_validate_json((self._folder / SHARD_FILE).read_bytes())

    def _mapped(self, file: File | None) -> NDArray[Any]:
        if file is None:
            raise BadData(f"The shard {self._folder} has no tokens: it is of another kind of set.")
        return np.load(self._folder / file.path, mmap_mode="r", allow_pickle=False)


class TokenArrays(SplitArrays):
    """One split of texts; its shards are mapped, not read."""

    at_once = 64

    def __init__(self, folder: Path, schema: ShardSchema, split: Split) -> None:
        tokens = schema.preprocessing.tokens
        assert tokens is not None
        self.context = tokens.context
        self._streams = [
            Stream(folder.parent / shard.digest, shard.rows)
            for shard in shards_of(schema, split, folder)
        ]
        self._starts = np.cumsum([0, *(one.rows for one in self._streams)])
        self._queries, self.label_scale = None, None

    @cached_property
    def _windows(self) -> NDArray[np.int64]:
        """[shards + 1] the number of the first window of each shard."""
        counts = [-(-(len(one.tokens) - 1) // self.context) for one in self._streams]
        return np.cumsum([0, *counts])

    @property
    def units(self) -> int:
        return int(self._windows[-1])

    @property
    def shards(self) -> list[int]:
        return np.diff(self._windows).tolist()

    def units_for(self, rows: int) -> int:
        return min(self.units, max(min(rows, _FEW), _TOKENS_OF_A_ROW * rows // self.context))

    def rows_of(self, units: NDArray[np.int64]) -> NDArray[np.int64]:
        return np.ones(len(units), np.int64)

    def take_units(self, units: NDArray[np.int64]) -> Rows:
        """The windows with these numbers, in this order."""
        owners = np.searchsorted(self._windows, units, side="right") - 1
        return self._rows(
            (self._streams[owner], 1 + place * self.context, len(self._streams[owner].tokens))
            for owner, place in zip(owners, units - self._windows[owners], strict=True)
        )

    def take(self, rows: NDArray[np.int64]) -> Rows:
        """The windows of the texts with these numbers; ``starts`` says where each text's begin."""
        counts: list[int] = []
        spans: list[tuple[Stream, int, int]] = []
        for row in rows:
            owner = int(np.searchsorted(self._starts, row, side="right") - 1)
            stream, place = self._streams[owner], int(row - self._starts[owner])
            begin, end = (int(n) for n in stream.texts[place : place + 2])
            own = [(stream, start, end) for start in range(begin, end, self.context)]
            counts.append(len(own))
            spans += own
        found = self._rows(iter(spans))
        return Rows(found.numeric, found.categorical, found.label, np.cumsum([0, *counts]))

    def _rows(self, spans: Iterator[tuple[Stream, int, int]]) -> Rows:
        """A window for each (stream, its first target, where the targets end)."""
        windows: list[NDArray[np.int32]] = []
        for stream, start, end in spans:
            window = np.full(self.context + 1, -1, np.int32)
            found = stream.tokens[start - 1 : min(start + self.context, end)]
            window[: len(found)] = found
            windows.append(window)
        tokens = np.stack(windows)
        targets = (tokens[:, 1:] >= 0).sum(1).astype(np.float32)
        return Rows(np.zeros((len(tokens), 0), np.float32), tokens, targets)


def split_arrays(folder: Path, schema: ShardSchema, split: Split) -> SplitArrays:
    """One split of a training set, of whichever kind it is.

    Raises:
        BadData: it has no such split.
    """
    kind = TokenArrays if schema.preprocessing.tokens else SplitArrays
    return kind(folder, schema, split)
