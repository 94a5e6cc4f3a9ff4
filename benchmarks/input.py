"""Rows into training: our batches against torch's DataLoader: python benchmarks/input.py [ROWS]

The same rows, the same batches, one process each. Ours lie in mapped shards as they are and are
encoded as they are taken; the DataLoader's are encoded already and lie in memory. Rows per CPU
second, the best of three turns that take one another's place; one figure a line: NAME VALUE AIM
holds|short.
"""

import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import torch
from figures import tell
from generated import training_set
from torch.utils.data import DataLoader, Dataset

from ml_assets.training.rows.arrays import SplitArrays, open_set
from ml_assets.training.rows.batches import Batches

BATCH = 3072
TURNS = 3

Tensors = tuple[torch.Tensor, ...]


class Row(Dataset[Tensors]):
    """What most people write: one row at a time, which the loader puts together."""

    def __init__(self, rows: SplitArrays) -> None:
        whole = rows.whole()
        self.numeric, self.categorical, self.label = whole.numeric, whole.categorical, whole.label

    def __len__(self) -> int:
        return len(self.label)

    def __getitem__(self, index: int) -> Tensors:
        return (
            torch.from_numpy(self.numeric[index]),
            torch.from_numpy(self.categorical[index]),
            torch.tensor(self.label[index]),
        )


class Batch(Row):
    """The loader's own way to batch: all rows of it at once."""

    def __getitems__(self, indices: Sequence[int]) -> Tensors:
        taken = (self.numeric[indices], self.categorical[indices], self.label[indices])
        return tuple(torch.from_numpy(array) for array in taken)


def main() -> None:
    """Print each figure with its aim."""
    rows = int((sys.argv[1:] or ["300000"])[0])
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        data, schema = open_set(training_set(rows, Path(folder)))
        arrays = SplitArrays(data, schema, "train")
        ours = best(lambda: from_batches(arrays))
        by_row = best(lambda: from_loader(DataLoader(Row(arrays), BATCH, shuffle=True)))
        whole = DataLoader(Batch(arrays), BATCH, shuffle=True, collate_fn=lambda taken: taken)
        by_batch = best(lambda: from_loader(whole))
    print(f"rows_per_cpu_second {ours:,.0f}")
    tell("input_to_dataloader_by_row", ours / by_row, 20, at="least")
    why = "Ours gathers rows from shards and encodes them; the loader's are encoded, and in memory."
    tell("input_to_dataloader_by_batch", ours / by_batch, 2, at="least", why=why)


def best(turn: Callable[[], Iterator[int]]) -> float:
    """Rows per CPU second of the best turn through (at most ten seconds of) an epoch."""
    found: list[float] = []
    for _ in range(TURNS):
        began, seen = time.process_time(), 0
        for rows in turn():
            seen += rows
            if time.process_time() - began > 10:
                break
        found.append(seen / (time.process_time() - began))
    return max(found)


def from_batches(arrays: SplitArrays) -> Iterator[int]:
    batches = Batches(arrays, seed=0, batch_size=BATCH, microbatches=24)
    for step in range(batches.steps_per_epoch):
        yield batches.share(step, rank=0, world=1)[2]


def from_loader(loader: DataLoader[Tensors]) -> Iterator[int]:
    for numeric, _, _ in loader:
        yield len(numeric)


if __name__ == "__main__":
    main()
