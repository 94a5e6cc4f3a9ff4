"""Rows into training: our batches against other loaders: python benchmarks/input.py [ROWS]

The same rows, the same batches, one process each. Ours lie in mapped shards as they are, are
encoded as they are taken, and kept encoded when they are read again: the best turn is one of kept
rows, in an order of rows and in one of blocks. The others' are encoded already: those of torch's
DataLoader lie in memory (a row at a time, a batch at a time, and a tuple of tensors that is
shuffled), those of MosaicML's StreamingDataset in its shards on disk, in its own environment.
Rows per CPU second, the best of five turns that take one another's place; one figure a line:
NAME VALUE AIM holds|short.
"""

import importlib
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import peers
import torch
from figures import tell
from generated import training_set
from torch.utils.data import DataLoader, Dataset

from ml_assets.spec.training import TrainingSpec
from ml_assets.spec.training_program import Ref
from ml_assets.store.block_order import BlockOrder, block_order
from ml_assets.training.rows.arrays import SplitArrays, open_set
from ml_assets.training.rows.batches import Batches

SPEC = TrainingSpec(order="blocks")
BATCH = SPEC.batch_size
TURNS = 5
EACH_IS = "made of the best of five turns"
MEDIAN_OF = 5
PEERS = ("mosaicml-streaming",)
NOTE = (
    "Ours takes whole batches of arrays that an earlier turn encoded, and keeps in memory;"
    " MosaicML's StreamingDataset (from its shards on disk) and"
    " a DataLoader by row take rows one at a time and put them together."
)
ALIKE = "Both orders gather rows alike, and differ by less than one run differs from the next."

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
        made = training_set(rows, Path(folder))
        data, schema = open_set(made)
        arrays = SplitArrays(data, schema, "train")
        ours = best(lambda: from_batches(arrays))
        blocks = block_order(arrays.shards, SPEC)
        by_blocks = best(lambda: from_batches(arrays, blocks))
        by_row = best(lambda: from_loader(DataLoader(Row(arrays), BATCH, shuffle=True)))
        whole = DataLoader(Batch(arrays), BATCH, shuffle=True, collate_fn=lambda taken: taken)
        by_batch = best(lambda: from_loader(whole))
        shuffled = best(lambda: from_tensors(arrays))
        streamed = in_peer(made)
    print(f"rows_per_cpu_second {ours:,.0f}")
    print(f"rows_per_cpu_second_of_blocks {by_blocks:,.0f}")
    print(f"rows_per_cpu_second_of_shuffled_tensors {shuffled:,.0f}")
    tell("blocks_to_rows", by_blocks / ours, 1, at="least", why=ALIKE)
    if streamed:
        tell("input_to_mosaicml_streaming", by_blocks / streamed, 1, at="least")
    tell("input_to_dataloader_by_row", ours / by_row, 20, at="least")
    tell("input_to_dataloader_by_batch", ours / by_batch, 2, at="least")


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


def from_batches(arrays: SplitArrays, blocks: BlockOrder | None = None) -> Iterator[int]:
    batches = Batches(arrays, SPEC.seed, BATCH, SPEC.microbatches, blocks=blocks)
    for step in range(batches.steps_per_epoch):
        yield batches.share(step, rank=0, world=1)[2]


def from_loader(loader: DataLoader[Tensors]) -> Iterator[int]:
    for numeric, _, _ in loader:
        yield len(numeric)


def from_tensors(arrays: SplitArrays) -> Iterator[int]:
    """Without a loader: one permutation, and an index of the tensors for each batch."""
    rows = Batch(arrays)
    whole = [torch.from_numpy(one) for one in (rows.numeric, rows.categorical, rows.label)]
    for chosen in torch.randperm(len(rows)).split(BATCH):
        numeric, _, _ = (one[chosen] for one in whole)
        yield len(numeric)


def in_peer(made: Ref) -> float | None:
    """Rows per CPU second of MosaicML's Streaming in its environment; None: it is not there."""
    python = peers.python("mosaicml-streaming")
    if not python:
        return print(f"goes on without {peers.lack('mosaicml-streaming')}")
    asked = [python, __file__, made.uri, made.digest]
    told = subprocess.run(
        asked, check=True, stdout=subprocess.PIPE, text=True, env={**os.environ, **peers.beside()}
    )
    return float(told.stdout.splitlines()[-1])


def streamed(made: Ref) -> float:
    """Rows per CPU second of MosaicML's Streaming, from its own shards of the same rows."""
    torch.set_num_threads(1)
    data, schema = open_set(made)
    with tempfile.TemporaryDirectory() as folder:
        return mosaic(SplitArrays(data, schema, "train"), Path(folder) / "mosaic")


def mosaic(arrays: SplitArrays, folder: Path) -> float:
    mosaicml: Any = importlib.import_module("streaming")
    rows = Batch(arrays)
    columns = {
        "numeric": f"ndarray:float32:{rows.numeric.shape[1]}",
        "categorical": f"ndarray:int32:{rows.categorical.shape[1]}",
        "label": "float32",
    }
    with mosaicml.MDSWriter(out=str(folder), columns=columns) as out:
        for numeric, words, label in zip(rows.numeric, rows.categorical, rows.label, strict=True):
            out.write({"numeric": numeric, "categorical": words, "label": np.float32(label)})

    def turn() -> Iterator[int]:
        data: Any = mosaicml.StreamingDataset(local=str(folder), shuffle=True, batch_size=BATCH)
        for batch in mosaicml.StreamingDataLoader(data, batch_size=BATCH):
            yield len(batch["numeric"])

    return best(turn)


if __name__ == "__main__":
    match sys.argv[1:]:
        case [uri, digest]:
            print(streamed(Ref(uri=uri, digest=digest)))
        case _:
            main()
