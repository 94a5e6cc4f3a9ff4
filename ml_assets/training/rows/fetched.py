"""Fetches rows as training reaches them, for a set that is larger than the disk.

A rank fetches the blocks of its next windows in threads, checks each against its checksums, and
keeps them encoded in files of a fixed size; the least recently used make room.
"""

import os
import tempfile
from collections import OrderedDict
from collections.abc import Container, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ml_assets.errors import StorageError, StoreAway
from ml_assets.spec.training_program import ShardSchema
from ml_assets.spec.training_program.on_demand import RowsOnDemand
from ml_assets.store.block_order import BlockOrder
from ml_assets.store.retries import persist
from ml_assets.store.row_encoding import encoded_bytes, encoded_types
from ml_assets.store.s3.client import S3Place
from ml_assets.training.rows.arrays import Rows, SplitArrays, shards_of
from ml_assets.training.rows.remote_shards import RemoteShards
from ml_assets.training.stop import BadData, BadRequest, NotSaved

_THREADS = 8


class FetchedRows(SplitArrays):
    """The training split, of which the disk holds the blocks that are used now and next.

    Args:
        order: of an epoch; its blocks are what is fetched.
        waits: runs while a step waits for rows that did not come in time.

    Raises:
        BadRequest: the disk that it may take holds no block.
        NotSaved: the disk has less.
    """

    fetches = True

    def __init__(
        self,
        schema: ShardSchema,
        source: RowsOnDemand,
        order: BlockOrder,
        waits: AbstractContextManager[object],
    ) -> None:
        shards = shards_of(schema, "train", Path(source.uri))
        self._starts = np.cumsum([0, *(shard.rows for shard in shards)])
        self._queries, self.label_scale = None, schema.label_scale
        self._order, self._waits = order, waits
        self._remote = RemoteShards(S3Place(source.uri), schema, shards)
        self._disk = Disk(Path(source.scratch), source.bytes, order.block, schema)
        self._pool = ThreadPoolExecutor(_THREADS, thread_name_prefix="rows")
        self._places = OrderedDict[int, int]()
        """Block -> its place on the disk, that which was used last at the end."""
        self._free = list(range(self._disk.blocks))
        self._coming = dict[int, Future[None]]()

    @property
    def fetched_bytes(self) -> int:
        """See ``SplitArrays.fetched_bytes``."""
        return self._remote.place.moved.bytes

    def expect(self, now: Sequence[int], soon: Sequence[int]) -> None:
        """Begin to fetch the blocks that are read now and next, as far as there is room.

        Raises:
            BadRequest: there is no room for those that are read now.
        """
        if len(now) > self._disk.blocks:
            raise BadRequest(
                f"A process has room for {self._disk.blocks} blocks of rows, and reads {len(now)}"
                " at a time: raise cluster.data_cache, lower training.block_rows or"
                " training.block_window, or raise cluster.nodes together with training.processes."
            )
        for block in reversed(now):
            if block in self._places:
                self._places.move_to_end(block)
        wanted = dict.fromkeys([*now, *soon])
        for block in wanted:
            if block not in self._places and not self._fetch(block, wanted):
                return

    def _taken(self, rows: NDArray[np.int64]) -> Rows:
        blocks = np.searchsorted(self._order.firsts, rows, side="right") - 1
        needed = np.unique(blocks)
        if len(needed) <= self._disk.blocks:
            return self._held(rows, blocks, needed)
        found = self._disk.empty(len(rows))
        for first in range(0, len(needed), self._disk.blocks):
            some = needed[first : first + self._disk.blocks]
            own = np.flatnonzero(np.isin(blocks, some))
            part = self._held(rows[own], blocks[own], some)
            for whole, piece in zip(
                found, (part.numeric, part.categorical, part.label), strict=True
            ):
                whole[own] = piece
        return Rows(*found)

    def _held(
        self, rows: NDArray[np.int64], blocks: NDArray[np.int64], needed: NDArray[np.int64]
    ) -> Rows:
        """Rows of blocks for all of which there is room."""
        wanted = dict.fromkeys(needed.tolist())
        for block in wanted:
            if block in self._places:
                self._places.move_to_end(block)
        for block in wanted:
            if block not in self._places:
                while not self._fetch(block, wanted):
                    self._await(next(one for one in self._coming if one not in wanted))
        for block in wanted:
            self._await(block)
        places = np.array([self._places[block] for block in wanted])
        within = rows - self._order.firsts[blocks]
        return self._disk.take(places[np.searchsorted(needed, blocks)], within)

    def _fetch(self, block: int, wanted: Container[int]) -> bool:
        """Begin to fetch a block into the place of one that is not wanted; False: there is none."""
        if not self._free:
            old = next((b for b in self._places if b not in wanted and self._is_over(b)), None)
            if old is None:
                return False
            self._free.append(self._places.pop(old))
        place = self._places[block] = self._free.pop()
        self._coming[block] = self._bring_to(place, block)
        return True

    def _bring_to(self, place: int, block: int) -> Future[None]:
        first = int(self._order.firsts[block])
        return self._pool.submit(self._bring, place, first)

    def _is_over(self, block: int) -> bool:
        """Whether nothing is written to its place."""
        coming = self._coming.get(block)
        if coming is None:
            return True
        if not (coming.cancel() or coming.done()):
            return False
        del self._coming[block]
        return True

    def _await(self, block: int) -> None:
        """Wait until a block is here.

        Raises:
            BadData: it is lost or damaged.
            StoreAway: the store refuses, or did not answer for a quarter of an hour.
        """
        coming = self._coming.get(block)
        if coming is None:
            return
        try:
            if not coming.done() or coming.exception() is not None:
                with self._waits:
                    persist(lambda: self._arrive(block))
        except BaseException as error:
            self._free.append(self._places.pop(block))
            if isinstance(error, StorageError) and not isinstance(error, StoreAway):
                raise BadData(str(error)) from error
            raise
        finally:
            del self._coming[block]

    def _arrive(self, block: int) -> None:
        """Wait for a fetch; one that found the store away is begun again: it may be back by now."""
        coming = self._coming[block]
        if coming.done() and isinstance(coming.exception(), StoreAway):
            coming = self._coming[block] = self._bring_to(self._places[block], block)
        coming.result()

    def _bring(self, place: int, first: int) -> None:
        last = first + self._order.block
        self._disk.put(place, self._remote.rows(first, last))


class Disk:
    """Blocks of encoded rows in files that take what they may from the beginning, and no more.

    Args:
        bytes_: the files are not larger together.
        block: rows of a block.
    """

    def __init__(self, folder: Path, bytes_: int, block: int, schema: ShardSchema) -> None:
        self._like, row = encoded_types(schema), encoded_bytes(schema)
        self.blocks = bytes_ // (row * block)
        """For so many there is room."""
        self._block = block
        if not self.blocks:
            raise BadRequest(
                f"A process may take {bytes_ / 1e6:,.1f} MB of the disk for rows, and a block takes"
                f" {row * block / 1e6:,.1f} MB: raise cluster.data_cache."
            )
        folder.mkdir(parents=True, exist_ok=True)
        self._arrays = [
            _mapped(folder, dtype, (self.blocks * block, *shape)) for dtype, shape in self._like
        ]

    def empty(self, rows: int) -> list[NDArray[Any]]:
        """Arrays for so many rows."""
        return [np.empty((rows, *shape), dtype) for dtype, shape in self._like]

    def put(self, place: int, rows: Rows) -> None:
        """Rows of a block into a place."""
        first = place * self._block
        for array, new in zip(
            self._arrays, (rows.numeric, rows.categorical, rows.label), strict=True
        ):
            array[first : first + len(new)] = new

    def take(self, places: NDArray[np.int64], within: NDArray[np.int64]) -> Rows:
        """[rows] of these places, by their numbers in the blocks."""
        rows = places * self._block + within
        return Rows(*(np.take(array, rows, axis=0) for array in self._arrays))


def _mapped(folder: Path, dtype: type[np.generic], shape: tuple[int, ...]) -> NDArray[Any]:
    """An array in a file without a name: its room is free again however the process ends."""
    size = np.dtype(dtype).itemsize * int(np.prod(shape, dtype=np.int64))
    if size == 0:
        return np.empty(shape, dtype)
    with tempfile.TemporaryFile(dir=folder) as file:
        try:
            if hasattr(os, "posix_fallocate"):  # else a full disk would end the process by a signal
                os.posix_fallocate(file.fileno(), 0, size)
            else:
                file.truncate(size)
        except OSError as error:
            raise NotSaved(
                f"{size / 1e6:,.0f} MB of rows have no room in {folder}: {error}. Raise"
                " cluster.scratch, or lower cluster.data_cache."
            ) from error
        return np.asarray(np.memmap(file, dtype, "r+", shape=shape))
