"""python -m ml_assets_tests.training.recording FILE train --request REQUEST.json

The training program as it is, but each rank writes down which units of the training split its steps
read: one line for each batch, ``{step, units}``, in FILE.<rank>.
"""

import json
import os
import sys
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ml_assets.training import __main__ as program
from ml_assets.training import train
from ml_assets.training.batches import Batches, Tensors
from ml_assets.training.data import Rows, SplitArrays
from ml_assets.training.models.layers import Masks


class RecordedArrays(SplitArrays):
    """Remembers which units were taken last."""

    last: tuple[int, ...] = ()

    def take_units(self, units: NDArray[np.int64]) -> Rows:
        self.last = tuple(units.tolist())
        return super().take_units(units)


class RecordedBatches(Batches):
    """Writes down what a step takes; what an idle rank reads does not count."""

    def share(self, step: int, rank: int, world: int, batch: int = 0) -> tuple[Tensors, Masks, int]:
        rows, masks, counted = super().share(step, rank, world, batch)
        assert isinstance(self.rows, RecordedArrays)
        line = {"step": step, "units": self.rows.last if counted else ()}
        with Path(f"{FILE}.{os.environ.get('RANK', '0')}").open("a") as handle:
            handle.write(json.dumps(line) + "\n")
        return rows, masks, counted


if __name__ == "__main__":
    FILE = sys.argv.pop(1)
    train.SplitArrays = RecordedArrays
    train.Batches = RecordedBatches
    sys.exit(program.main())
