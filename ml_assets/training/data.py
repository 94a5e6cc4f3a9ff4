"""The training set as memory-mapped arrays, verified against its manifest; batches by position."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import ValidationError

from ml_assets.errors import StorageError
from ml_assets.spec.program import File, Ref, ShardSchema, Split
from ml_assets.storage.objects import file_digest, verify
from ml_assets.training.models.layers import Masks
from ml_assets.training.sampler import microbatch_seed, permuted
from ml_assets.training.stop import BadData


@dataclass(frozen=True)
class Rows:
    """Rows as tensors: numeric [n, f] float32, categorical [n, c] int32, label [n]."""

    numeric: torch.Tensor
    categorical: torch.Tensor
    label: torch.Tensor


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
            return _tensors([array[rows] for array in self._parts[0]])
        return _tensors([self._gather(rows, kind) for kind in range(3)])

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


@dataclass(frozen=True)
class Batches:
    """``microbatches of one rank's share of a global step``, as a function of the step alone."""

    rows: SplitArrays
    seed: int
    batch_size: int
    microbatches: int

    @property
    def steps_per_epoch(self) -> int:
        """The last step of an epoch may be short: every row comes exactly once an epoch."""
        return -(-len(self.rows) // self.batch_size)

    def first(self, count: int) -> Rows:
        """The first rows of the first batch."""
        places = np.arange(min(count, len(self.rows)))
        return self.rows.take(permuted(places, len(self.rows), self.seed, 0))

    def share(self, step: int, rank: int, world: int) -> tuple[Rows, Masks, int]:
        """Rank r of w takes the microbatches r, r + w, ...; with them, how many rows count.

        A rank with nothing to do gets one row that does not count: all ranks must run.
        """
        epoch, place = divmod(step, self.steps_per_epoch)
        size = self.batch_size // self.microbatches
        ranges, seeds = [], []
        for microbatch in range(rank, self.microbatches, world):
            start = min(place * self.batch_size + microbatch * size, len(self.rows))
            stop = min(start + size, len(self.rows), (place + 1) * self.batch_size)
            if stop > start:
                ranges.append(np.arange(start, stop))
                seeds.append(microbatch_seed(self.seed, step, microbatch))
        counted = sum(len(span) for span in ranges)
        if not ranges:
            ranges, seeds = [np.zeros(1, np.int64)], [0]
        numbers = permuted(np.concatenate(ranges), len(self.rows), self.seed, epoch)
        masks = Masks(tuple(seeds), tuple(len(span) for span in ranges))
        return self.rows.take(numbers), masks, counted


def lost_share(microbatches: int, world: int) -> float:
    """Share of a step that ranks spend waiting where ``world`` does not divide ``microbatches``."""
    most = -(-microbatches // world)
    return 1 - microbatches / (most * world)


def _mapped(folder: Path, file: File) -> NDArray[np.generic]:
    return np.load(folder / file.path, mmap_mode="r", allow_pickle=False)


def _tensors(arrays: list[NDArray[np.generic]]) -> Rows:
    numeric, categorical, label = (torch.from_numpy(np.ascontiguousarray(a)) for a in arrays)
    return Rows(numeric, categorical, label)
