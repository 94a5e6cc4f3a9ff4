"""Finds equal rows of two splits by hashes on disk, with one bucket of them in memory."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import polars as pl
from numpy.typing import NDArray

from ml_assets.assets.training_set.read_split import SplitRows

BUCKET = 1 << 16
"""Hashes that are held at once: 512 KiB, and some times that while they are sorted."""
MOST = 4096
"""Buckets, and files of a split; of more than 268 million rows the buckets grow."""


class RowHashes:
    """The 64-bit hashes of some columns of the rows of a split, in buckets of close ones.

    Args:
        folder: where they lie; it need not exist.
        buckets: how many; the same for all that are compared.
    """

    def __init__(self, rows: SplitRows, columns: Sequence[str], folder: Path, buckets: int) -> None:
        self.rows, self.columns = rows, columns
        self._folder, self._buckets = folder, buckets
        folder.mkdir(parents=True)
        for frame in rows.each(columns):
            hashes = _hashes(frame)
            places = (hashes % np.uint64(buckets)).astype(np.uint16)
            hashes = hashes[np.argsort(places, kind="stable")]
            ends = np.cumsum(np.bincount(places, minlength=buckets))
            for bucket in np.unique(places).tolist():
                with (folder / str(bucket)).open("ab") as file:
                    file.write(hashes[ends[bucket - 1] if bucket else 0 : ends[bucket]].data)

    def shared(self, other: "RowHashes") -> tuple[NDArray[np.uint64], int]:
        """The hashes that the other has, too; and how many of these rows have one of them."""
        found, count = list[NDArray[np.uint64]](), 0
        for bucket in range(self._buckets):
            own = self._read(bucket)
            both = np.intersect1d(own, other._read(bucket))
            found.append(both)
            count += int(np.isin(own, both).sum())
        return np.concatenate(found), count

    def having(self, hashes: NDArray[np.uint64], columns: Sequence[str]) -> Iterator[pl.DataFrame]:
        """Read some columns of the rows that have one of these hashes, a part at a time."""
        wanted = list(dict.fromkeys([*self.columns, *columns]))
        for frame in self.rows.each(wanted):
            mask = np.isin(_hashes(frame.select(self.columns)), hashes)
            yield frame.filter(pl.Series(mask)).select(columns)

    def _read(self, bucket: int) -> NDArray[np.uint64]:
        file = self._folder / str(bucket)
        return np.fromfile(file, np.uint64) if file.exists() else np.empty(0, np.uint64)


def buckets_for(splits: Sequence[SplitRows]) -> int:
    """Return how many buckets keep each within what is held at once."""
    return min(MOST, max(1, -(-max(len(rows) for rows in splits) // BUCKET)))


def _hashes(frame: pl.DataFrame) -> NDArray[np.uint64]:
    return frame.hash_rows().to_numpy()
