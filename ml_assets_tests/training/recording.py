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
from ml_assets.training.models.layers import Masks
from ml_assets.training.rows.arrays import Rows, SplitArrays
from ml_assets.training.rows.batches import Batches, Tensors


def record(file: Path) -> None:
    """From here on every batch of a step is written down; what an idle rank reads does not count.

    The methods themselves are replaced, whoever makes the objects.
    """
    take_units, share = SplitArrays.take_units, Batches.share
    last: list[int] = []

    def remembered(self: SplitArrays, units: NDArray[np.int64]) -> Rows:
        last[:] = units.tolist()
        return take_units(self, units)

    def written(
        self: Batches, step: int, rank: int, world: int, batch: int = 0
    ) -> tuple[Tensors, Masks, int]:
        rows, masks, counted = share(self, step, rank, world, batch)
        with file.open("a") as handle:
            handle.write(json.dumps({"step": step, "units": last if counted else []}) + "\n")
        return rows, masks, counted

    SplitArrays.take_units = remembered
    Batches.share = written


if __name__ == "__main__":
    record(Path(f"{sys.argv.pop(1)}.{os.environ.get('RANK', '0')}"))
    program.run()
