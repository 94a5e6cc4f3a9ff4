"""Reads some rows of a shard from S3 by range, checked against the shard's checksums."""

import json
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from pydantic import ValidationError

from ml_assets.errors import StorageError
from ml_assets.spec.training_program import (
    CHECKED_ROWS,
    SHARD_FILE,
    File,
    Shard,
    ShardFiles,
    ShardSchema,
)
from ml_assets.store.objects import bytes_digest
from ml_assets.store.row_encoding import CHECKED, LABEL_TYPES, Encoder, checksum, scale_label
from ml_assets.store.s3.client import S3Place
from ml_assets.training.rows.arrays import Rows

_SHARDS_KNOWN = 256
"""Shards whose checksums stay in memory: 32 KB for 10^6 rows."""


class _Known(NamedTuple):
    """What is read of a shard before its rows."""

    place: S3Place
    files: ShardFiles
    checksums: NDArray[np.uint8]
    codes: NDArray[np.int32]


class RemoteShards:
    """The shards of a split as they lie on S3: rows of one by range, held to their checksums.

    Args:
        place: the folder of the shards.
    """

    def __init__(self, place: S3Place, schema: ShardSchema, shards: Sequence[Shard]) -> None:
        self.place = place
        self._shards = shards
        self._starts = np.cumsum([0, *(shard.rows for shard in shards)])
        self._encoder, self._scale = Encoder(schema.preprocessing), schema.label_scale
        numbers, words = len(schema.preprocessing.numeric), len(schema.preprocessing.categorical)
        self._like: tuple[tuple[type[np.generic], tuple[int, ...]], ...] = (
            (np.float64, (numbers,)),
            (np.uint8, (-(-numbers // 8),)),
            (np.int32, (words,)),
            (LABEL_TYPES[schema.task], ()),
        )
        self._known = lru_cache(_SHARDS_KNOWN)(self._learn)

    def rows(self, first: int, last: int) -> Rows:
        """Rows from one on, up to another or to the end of its shard, encoded.

        Raises:
            StorageError: they are lost or damaged.
            StoreAway: the store does not answer.
        """
        number = int(np.searchsorted(self._starts, first, side="right")) - 1
        begin = int(first - self._starts[number])
        end = min(int(last - self._starts[number]), self._shards[number].rows)
        shard = self._known(number)
        parts = (self._array(shard, kind, begin, end) for kind in range(len(CHECKED)))
        numbers, missing, words, label = parts
        codes = shard.codes[np.arange(words.shape[1]), words]
        return Rows(self._encoder.numeric(numbers, missing), codes, scale_label(label, self._scale))

    def _learn(self, number: int) -> _Known:
        digest = self._shards[number].digest
        place = self.place.at(digest)
        manifest = place.read(SHARD_FILE) or b""
        if bytes_digest(manifest) != digest:
            raise StorageError(f"{place.uri}/{SHARD_FILE} is lost or damaged.")
        try:
            files = ShardFiles.model_validate_json(manifest)
        except ValidationError as error:
            raise StorageError(
                f"{place.uri}/{SHARD_FILE} is of another version: {error}"
            ) from error
        if files.checksums is None:
            raise StorageError(
                f"{place.uri} has no checksums of its rows: it was encoded before there were any."
                " Materialize training_set again, or remove cluster.data_cache."
            )
        data = self._small(place, files.checksums)
        found = np.frombuffer(data[-32 * len(CHECKED) * -(-files.rows // CHECKED_ROWS) :], np.uint8)
        codes = self._encoder.codes(json.loads(self._small(place, files.words)))
        return _Known(place, files, found.reshape(-1, len(CHECKED), 32), codes)

    def _small(self, place: S3Place, file: File) -> bytes:
        data = place.read(file.path) or b""
        if bytes_digest(data) != file.sha256:
            raise StorageError(f"{place.uri}/{file.path} is lost or damaged.")
        return data

    def _array(self, shard: _Known, kind: int, begin: int, end: int) -> NDArray[Any]:
        """Rows of one array of a shard; what is damaged on its way comes a second time."""
        file: File = getattr(shard.files, CHECKED[kind])
        dtype, shape = self._like[kind]
        width = np.dtype(dtype).itemsize * int(np.prod(shape, dtype=np.int64))
        chunk = begin // CHECKED_ROWS
        first, last = (
            chunk * CHECKED_ROWS,
            min(-(-end // CHECKED_ROWS) * CHECKED_ROWS, shard.files.rows),
        )
        if width == 0:
            return np.empty((end - begin, *shape), dtype)
        header = file.size - width * shard.files.rows
        for _ in range(2):
            data = shard.place.read_range(file.path, header + width * first, width * (last - first))
            if len(data) == width * (last - first):
                rows = np.frombuffer(data, dtype).reshape(last - first, *shape)
                if _is_whole(rows, shard.checksums[chunk:, kind]):
                    return rows[begin - first : end - first]
        raise StorageError(
            f"{shard.place.uri}/{file.path} is damaged: rows {first:,} to {last:,} have another"
            " checksum. Delete the folder and materialize training_set again."
        )


def _is_whole(rows: NDArray[Any], expected: NDArray[np.uint8]) -> bool:
    begins = range(0, len(rows), CHECKED_ROWS)
    return all(
        checksum(rows[begin : begin + CHECKED_ROWS]) == wanted.tobytes()
        for begin, wanted in zip(begins, expected, strict=False)
    )
